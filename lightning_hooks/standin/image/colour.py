"""mmcv's conversions of images that hooks and data pipelines use: colours, values, batches.

mmcv's quantization of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_hooks.standin.image.io import opencv

__all__ = [
    "bgr2gray",
    "bgr2hls",
    "bgr2hsv",
    "bgr2rgb",
    "dequantize",
    "gray2bgr",
    "gray2rgb",
    "hls2bgr",
    "hsv2bgr",
    "imconvert",
    "imdenormalize",
    "iminvert",
    "imnormalize",
    "imnormalize_",
    "lut_transform",
    "quantize",
    "rgb2bgr",
    "rgb2gray",
    "tensor2imgs",
]

# -- colours -------------------------------------------------------------------------------------


def bgr2rgb(img: Any) -> Any:
    """Return an image (height, width, 3) with its channels in the reverse order."""
    return img[..., ::-1].copy()


rgb2bgr = bgr2rgb


def imconvert(img: Any, src: str, dst: str) -> Any:
    """Convert an image between OpenCV's colour spaces: ``imconvert(img, "bgr", "hsv")``."""
    cv2 = opencv("imconvert")
    return cv2.cvtColor(img, getattr(cv2, f"COLOR_{src.upper()}2{dst.upper()}"))


def bgr2hsv(img: Any) -> Any:
    """Convert from B, G, R to hue, saturation, value."""
    return imconvert(img, "bgr", "hsv")


def hsv2bgr(img: Any) -> Any:
    """Convert from hue, saturation, value to B, G, R."""
    return imconvert(img, "hsv", "bgr")


def bgr2hls(img: Any) -> Any:
    """Convert from B, G, R to hue, lightness, saturation."""
    return imconvert(img, "bgr", "hls")


def hls2bgr(img: Any) -> Any:
    """Convert from hue, lightness, saturation to B, G, R."""
    return imconvert(img, "hls", "bgr")


def bgr2gray(img: Any, keepdim: bool = False) -> Any:
    """Convert to gray; with ``keepdim`` as (height, width, 1)."""
    gray = imconvert(img, "bgr", "gray")
    return gray[..., None] if keepdim else gray


def rgb2gray(img: Any, keepdim: bool = False) -> Any:
    """Convert to gray; with ``keepdim`` as (height, width, 1)."""
    gray = imconvert(img, "rgb", "gray")
    return gray[..., None] if keepdim else gray


def gray2bgr(img: Any) -> Any:
    """Repeat a gray image's values three times."""
    return np.repeat(img[..., None] if img.ndim == 2 else img, 3, axis=2)


gray2rgb = gray2bgr


# -- values --------------------------------------------------------------------------------------


def imnormalize(img: Any, mean: Any, std: Any, to_rgb: bool = True) -> Any:
    """Return ``(img - mean) / std`` of each channel, in float32, perhaps in the order R, G, B."""
    return imnormalize_(img.astype(np.float32), mean, std, to_rgb)


def imnormalize_(img: Any, mean: Any, std: Any, to_rgb: bool = True) -> Any:
    """Normalize a float32 image in place; see :func:`imnormalize`."""
    if img.dtype == np.uint8:
        raise AssertionError("imnormalize_ works in place and needs a float image, got uint8")
    if to_rgb:
        img[...] = img[..., ::-1].copy()
    img -= np.asarray(mean, np.float64).reshape(1, -1).astype(img.dtype)
    img *= (1 / np.asarray(std, np.float64).reshape(1, -1)).astype(img.dtype)
    return img


def imdenormalize(img: Any, mean: Any, std: Any, to_bgr: bool = True) -> Any:
    """Return ``img * std + mean`` of each channel, perhaps in the order B, G, R."""
    if img.dtype == np.uint8:
        raise AssertionError("imdenormalize needs a float image, got uint8")
    mean, std = (np.asarray(x, np.float64).reshape(1, -1).astype(img.dtype) for x in (mean, std))
    img = img * std + mean
    return bgr2rgb(img) if to_bgr else img


def iminvert(img: Any) -> Any:
    """Return ``255 - img``."""
    return np.full_like(img, 255) - img


def lut_transform(img: Any, lut_table: Any) -> Any:
    """Return a table's entry for each value of 0 to 255."""
    if not (isinstance(img, np.ndarray) and np.min(img) >= 0 and np.max(img) <= 255):
        raise AssertionError("img must be an array of values from 0 to 255")
    if not (isinstance(lut_table, np.ndarray) and lut_table.shape == (256,)):
        raise AssertionError("lut_table must be an array of 256 values")
    return lut_table[img.astype(np.int32)]


# -- batches -------------------------------------------------------------------------------------


def tensor2imgs(tensor: Any, mean: Any = None, std: Any = None, to_rgb: bool = True) -> list[Any]:
    """Turn a batch of normalized images (N, C, height, width) into a list of uint8 images.

    Args:
        tensor: The batch, of one channel or three.
        mean: The mean that was taken off; 0 by default.
        std: What was divided by; 1 by default.
        to_rgb: Whether the batch is in the order R, G, B; the images are B, G, R.
    """
    channels = tensor.size(1)
    if tensor.ndim != 4 or channels not in (1, 3):
        raise AssertionError(f"tensor must be (N, 1 or 3, H, W), got {tuple(tensor.shape)}")
    if channels == 1 and to_rgb:
        raise AssertionError("an image of one channel has no order: pass to_rgb=False")
    mean = (0,) * channels if mean is None else mean
    std = (1,) * channels if std is None else std
    images = []
    for one in tensor.cpu().numpy():
        image = imdenormalize(one.transpose(1, 2, 0), mean, std, to_bgr=to_rgb).astype(np.uint8)
        images.append(np.ascontiguousarray(image.squeeze(2) if channels == 1 else image))
    return images


def _check(min_val: float, max_val: float, levels: int) -> None:
    if not (isinstance(levels, int) and levels > 1):
        raise ValueError(f"levels must be a positive integer, but got {levels}")
    if min_val >= max_val:
        raise ValueError(f"min_val ({min_val}) must be smaller than max_val ({max_val})")


def quantize(arr: Any, min_val: float, max_val: float, levels: int, dtype: Any = np.int64) -> Any:
    """Return the number of the level, 0 to ``levels - 1``, that each value is in.

    >>> quantize(np.array([-1.0, 0.0, 0.6, 2.0]), 0, 1, 4).tolist()
    [0, 0, 2, 3]
    """
    _check(min_val, max_val, levels)
    above = np.clip(arr, min_val, max_val) - min_val
    return np.minimum(np.floor(levels * above / (max_val - min_val)).astype(dtype), levels - 1)


def dequantize(
    arr: Any, min_val: float, max_val: float, levels: int, dtype: Any = np.float64
) -> Any:
    """Return the middle of each level.

    >>> dequantize(np.array([0, 2]), 0, 1, 4).tolist()
    [0.125, 0.625]
    """
    _check(min_val, max_val, levels)
    return (arr + 0.5).astype(dtype) * (max_val - min_val) / levels + min_val
