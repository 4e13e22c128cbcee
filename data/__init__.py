"""From files on disk to a batch; knows no model."""
