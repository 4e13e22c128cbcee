"""Building blocks of the models, one idea per file; grids of tokens are (B, height, width, C)."""

from vmamba2.layers.depthwise_conv import DepthwiseConv2d
from vmamba2.layers.downsample import Downsample
from vmamba2.layers.grid_block import GridBlock
from vmamba2.layers.grid_mixer import GridMixer
from vmamba2.layers.mlp import MLP
from vmamba2.layers.patch_conv import PatchConv2d

__all__ = ["MLP", "DepthwiseConv2d", "Downsample", "GridBlock", "GridMixer", "PatchConv2d"]
