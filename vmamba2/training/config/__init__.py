"""The configuration of a run: composed by Hydra, checked as a whole before anything is built."""
