"""What the `vmamba2` command runs beside training."""
