"""Flip, rotate, crop and pad images as mmcv does."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_hooks.standin.image.io import opencv
from lightning_hooks.standin.image.resize import interpolation_flag

__all__ = [
    "bbox_clip",
    "bbox_scaling",
    "imcrop",
    "imflip",
    "imflip_",
    "impad",
    "impad_to_multiple",
    "imrotate",
]

_BORDERS = ("constant", "replicate", "reflect", "wrap", "reflect_101", "transparent", "isolated")


def imflip(img: Any, direction: str = "horizontal") -> Any:
    """Return an image flipped: ``"horizontal"``, ``"vertical"`` or ``"diagonal"``, both."""
    axes: dict[str, Any] = {"horizontal": 1, "vertical": 0, "diagonal": (0, 1)}
    if direction not in axes:
        raise AssertionError(f"direction must be one of {', '.join(axes)}, got {direction!r}")
    return np.flip(img, axis=axes[direction])


def imflip_(img: Any, direction: str = "horizontal") -> Any:
    """Flip an image in place; see :func:`imflip`."""
    img[...] = imflip(img, direction).copy()
    return img


def imrotate(
    img: Any,
    angle: float,
    center: tuple[float, float] | None = None,
    scale: float = 1.0,
    border_value: int = 0,
    interpolation: str = "bilinear",
    auto_bound: bool = False,
    border_mode: str = "constant",
) -> Any:
    """Rotate an image clockwise.

    Args:
        img: The image.
        angle: In degrees.
        center: Around which point; the image's centre by default.
        scale: A factor for its size.
        border_value: What the corners are filled with.
        interpolation: See :func:`lightning_hooks.standin.image.resize.imresize`.
        auto_bound: Whether the result is as large as the whole rotated image.
        border_mode: OpenCV's, by its name.
    """
    if center is not None and auto_bound:
        raise ValueError("`auto_bound` conflicts with `center`")
    if border_mode not in _BORDERS:
        raise KeyError(f"border_mode must be one of {_BORDERS}, got {border_mode!r}")
    cv2 = opencv("imrotate")
    height, width = img.shape[:2]
    middle = ((width - 1) * 0.5, (height - 1) * 0.5) if center is None else center
    matrix = cv2.getRotationMatrix2D(middle, -angle, scale)
    if auto_bound:
        cos, sin = np.abs(matrix[0, 0]), np.abs(matrix[0, 1])
        new_width, new_height = height * sin + width * cos, height * cos + width * sin
        matrix[:, 2] += (new_width - width) * 0.5, (new_height - height) * 0.5
        width, height = int(np.round(new_width)), int(np.round(new_height))
    return cv2.warpAffine(
        img,
        matrix,
        (width, height),
        flags=interpolation_flag(cv2, interpolation),
        borderMode=getattr(cv2, f"BORDER_{border_mode.upper()}"),
        borderValue=border_value,
    )


def bbox_clip(bboxes: Any, img_shape: tuple[int, ...]) -> Any:
    """Return boxes (..., 4k) of x1, y1, x2, y2 that do not leave the image (height, width)."""
    limits = np.tile([img_shape[1] - 1, img_shape[0] - 1], bboxes.shape[-1] // 2)
    return np.maximum(np.minimum(bboxes, limits.astype(bboxes.dtype)), 0)


def bbox_scaling(bboxes: Any, scale: float, clip_shape: tuple[int, int] | None = None) -> Any:
    """Return boxes scaled around their centres, perhaps clipped to an image."""
    if float(scale) == 1.0:
        scaled = bboxes.copy()
    else:
        w, h = bboxes[..., 2] - bboxes[..., 0] + 1, bboxes[..., 3] - bboxes[..., 1] + 1
        dw, dh = w * (scale - 1) * 0.5, h * (scale - 1) * 0.5
        scaled = bboxes + np.stack((-dw, -dh, dw, dh), axis=-1)
    return scaled if clip_shape is None else bbox_clip(scaled, clip_shape)


def imcrop(img: Any, bboxes: Any, scale: float = 1.0, pad_fill: Any = None) -> Any:
    """Cut boxes out of an image.

    Args:
        img: The image.
        bboxes: One box x1, y1, x2, y2 (the last two included), or an array (k, 4) of them.
        scale: A factor for the boxes.
        pad_fill: What is outside of the image is filled with; None leaves it out.

    Returns:
        The part, or a list of them.
    """
    channels = 1 if img.ndim == 2 else img.shape[2]
    fill = [pad_fill] * channels if isinstance(pad_fill, (int, float)) else pad_fill
    several = bboxes if bboxes.ndim == 2 else bboxes[None]
    scaled = bbox_scaling(several, scale).astype(np.int32)
    parts = []
    for (x1, y1, x2, y2), inside in zip(scaled, bbox_clip(scaled, img.shape), strict=True):
        left, top, right, bottom = inside
        part = img[top : bottom + 1, left : right + 1, ...]
        if fill is not None:
            shape = (y2 - y1 + 1, x2 - x1 + 1, *img.shape[2:])
            values: Any = fill[0] if img.ndim == 2 else np.asarray(fill)
            whole = np.full(shape, values, dtype=img.dtype)
            y, x = max(-y1, 0), max(-x1, 0)
            whole[y : y + part.shape[0], x : x + part.shape[1], ...] = part
            part = whole
        parts.append(part)
    return parts[0] if bboxes.ndim == 1 else parts


def impad(
    img: Any,
    *,
    shape: tuple[int, int] | None = None,
    padding: Any = None,
    pad_val: Any = 0,
    padding_mode: str = "constant",
) -> Any:
    """Give an image a border.

    Args:
        img: The image.
        shape: The height and width to reach, on the right and below; or
        padding: the border's width: one for all, (left and right, top and bottom), or (left,
            top, right, bottom).
        pad_val: Its value, or one for each channel.
        padding_mode: ``"constant"``, ``"edge"``, ``"reflect"`` or ``"symmetric"``.

    Note:
        Departure from mmcv: one ``pad_val`` is for all channels (mmcv: for the first, 0 for the
        rest).
    """
    if (shape is None) == (padding is None):
        raise ValueError("give either shape or padding")
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}
    if padding_mode not in modes:
        raise AssertionError(f"padding_mode must be one of {[*modes]}, got {padding_mode!r}")
    if shape is not None:
        padding = (0, 0, max(shape[1] - img.shape[1], 0), max(shape[0] - img.shape[0], 0))
    sides = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = sides * 2 if len(sides) == 2 else sides
    width: Any = [(top, bottom), (left, right), *[(0, 0)] * (img.ndim - 2)]
    if padding_mode != "constant":
        return np.pad(img, width, mode=padding_mode)  # type: ignore[call-overload]
    height, across = img.shape[0] + top + bottom, img.shape[1] + left + right
    whole = np.empty((height, across, *img.shape[2:]), dtype=img.dtype)
    whole[...] = pad_val
    whole[top : top + img.shape[0], left : left + img.shape[1]] = img
    return whole


def impad_to_multiple(img: Any, divisor: int, pad_val: Any = 0) -> Any:
    """Give an image a border up to the next multiples of ``divisor``."""
    height, width = (-(-side // divisor) * divisor for side in img.shape[:2])
    return impad(img, shape=(height, width), pad_val=pad_val)
