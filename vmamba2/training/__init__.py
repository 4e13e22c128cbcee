"""How models are trained: the Lightning module, its callbacks, and the configuration of a run."""
