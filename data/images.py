"""From a file to a PIL image with the wanted number of channels."""

from __future__ import annotations

import struct

from PIL import Image, UnidentifiedImageError

# Lower case; files are matched whatever the case of their suffix.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

# What Pillow's decoders raise on broken bytes.
DECODE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    struct.error,
    Image.DecompressionBombError,
)


class ImageReadError(OSError):
    """An image file is missing, empty, truncated or no image; the message names it."""


def read_image(path: str) -> Image.Image:
    """Read a whole image file.

    Raises:
        ImageReadError: the file cannot be read to its end.
    """
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except DECODE_ERRORS as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, UnidentifiedImageError):
            reason = "it is empty or no image that Pillow knows"
        raise ImageReadError(f"image ({path}) cannot be read: {reason}") from error


def with_channels(image: Image.Image, in_chans: int) -> Image.Image:
    """Convert to grey for one channel and to RGB for three."""
    mode = "L" if in_chans == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)
