"""State-space vision models and how they are trained; importing this registers the models with timm."""

from vmamba2 import models

__all__ = ["models"]
__version__ = "0.1.0"
