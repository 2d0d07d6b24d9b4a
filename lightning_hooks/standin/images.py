"""mmcv's two conversions of images that hooks use."""

from __future__ import annotations

from typing import Any

__all__ = ["bgr2rgb", "rgb2bgr"]


def bgr2rgb(img: Any) -> Any:
    """Return an image (height, width, 3) with its channels in the reverse order."""
    return img[..., ::-1].copy()


rgb2bgr = bgr2rgb
