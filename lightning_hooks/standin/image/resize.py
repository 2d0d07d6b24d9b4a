"""Resize images as mmcv does: to a size, by a factor, to multiples."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_hooks.standin.image.io import opencv, pillow
from lightning_hooks.standin.utils.misc import to_2tuple

__all__ = [
    "imrescale",
    "imresize",
    "imresize_like",
    "imresize_to_multiple",
    "interpolation_flag",
    "rescale_size",
]

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area", "lanczos")


def interpolation_flag(cv2: Any, name: str) -> int:
    """Return OpenCV's number of a way to interpolate."""
    if name not in _INTERPOLATIONS:
        raise KeyError(f"interpolation must be one of {_INTERPOLATIONS}, got {name!r}")
    words = {"bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos": "LANCZOS4"}
    return int(getattr(cv2, f"INTER_{words.get(name, name.upper())}"))


def imresize(
    img: Any,
    size: tuple[int, int],
    return_scale: bool = False,
    interpolation: str = "bilinear",
    out: Any = None,
    backend: str | None = None,
) -> Any:
    """Resize an image.

    Args:
        img: The image.
        size: Width and height.
        return_scale: Whether the factors of both are returned too.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"area"`` or ``"lanczos"``;
            the last two are OpenCV's alone.
        out: Where to; OpenCV's alone.
        backend: ``"cv2"``, the default, or ``"pillow"``.
    """
    height, width = img.shape[:2]
    if backend not in (None, "cv2", "pillow"):
        raise ValueError(f"backend: {backend} is not supported for resize, only cv2 and pillow")
    if backend == "pillow":
        if img.dtype != np.uint8:
            raise AssertionError(f'backend="pillow" resizes uint8 images, got {img.dtype}')
        image = pillow("imresize").Image
        kind = getattr(image.Resampling, interpolation.upper())
        resized = np.array(image.fromarray(img).resize(size, kind))
    else:
        cv2 = opencv("imresize")
        kind = interpolation_flag(cv2, interpolation)
        resized = cv2.resize(img, size, dst=out, interpolation=kind)
    return (resized, size[0] / width, size[1] / height) if return_scale else resized


def imresize_like(
    img: Any,
    dst_img: Any,
    return_scale: bool = False,
    interpolation: str = "bilinear",
    backend: str | None = None,
) -> Any:
    """Resize an image to the size of another; see :func:`imresize`."""
    height, width = dst_img.shape[:2]
    return imresize(img, (width, height), return_scale, interpolation, backend=backend)


def imresize_to_multiple(
    img: Any,
    divisor: int | tuple[int, int],
    size: int | tuple[int, int] | None = None,
    scale_factor: float | tuple[float, float] | None = None,
    keep_ratio: bool = False,
    return_scale: bool = False,
    interpolation: str = "bilinear",
    out: Any = None,
    backend: str | None = None,
) -> Any:
    """Resize an image to a size or by a factor, rounded up to multiples of ``divisor``."""
    height, width = img.shape[:2]
    if (size is None) == (scale_factor is None):
        raise ValueError("give either size or scale_factor")
    if size is None:
        size = _scaled((width, height), to_2tuple(scale_factor))
    size = to_2tuple(size)
    if keep_ratio:
        size = rescale_size((width, height), size)
    rounded: Any = tuple(int(np.ceil(s / d)) * d for s, d in zip(size, to_2tuple(divisor)))  # type: ignore[arg-type]  # noqa: B905
    done, w_scale, h_scale = imresize(img, rounded, True, interpolation, out, backend)
    return (done, w_scale, h_scale) if return_scale else done


def rescale_size(old_size: tuple[int, int], scale: Any, return_scale: bool = False) -> Any:
    """Return the size of an image that is scaled with its sides in proportion.

    Args:
        old_size: Width and height.
        scale: A factor, or a pair: the largest long side and the largest short side.
        return_scale: Whether the factor is returned too.

    >>> rescale_size((1000, 500), (600, 400))
    (600, 300)
    """
    if isinstance(scale, (float, int)):
        if scale <= 0:
            raise ValueError(f"Invalid scale {scale}, must be positive.")
        factor = float(scale)
    elif isinstance(scale, tuple):
        factor = min(max(scale) / max(old_size), min(scale) / min(old_size))
    else:
        raise TypeError(f"Scale must be a number or tuple of int, but got {type(scale)}")
    size = _scaled(old_size, (factor, factor))
    return (size, scale if isinstance(scale, (float, int)) else factor) if return_scale else size


def _scaled(size: tuple[int, int], factors: Any) -> tuple[int, int]:
    width, height = (int(s * float(f) + 0.5) for s, f in zip(size, factors, strict=True))
    return width, height


def imrescale(
    img: Any,
    scale: Any,
    return_scale: bool = False,
    interpolation: str = "bilinear",
    backend: str | None = None,
) -> Any:
    """Resize an image with its sides in proportion; see :func:`rescale_size`."""
    height, width = img.shape[:2]
    size, factor = rescale_size((width, height), scale, return_scale=True)
    resized = imresize(img, size, interpolation=interpolation, backend=backend)
    return (resized, factor) if return_scale else resized
