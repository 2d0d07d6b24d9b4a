"""Read and write images as mmcv does: arrays (height, width, 3) in the order B, G, R.

OpenCV does it where it is installed, as in mmcv, else Pillow.
"""

from __future__ import annotations

import importlib.util
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "imfrombytes",
    "imread",
    "imwrite",
    "opencv",
    "pillow",
    "supported_backends",
    "use_backend",
]

supported_backends = ["cv2", "pillow"]
"""The packages that read images; mmcv's turbojpeg and tifffile are not offered."""

_FLAGS = (
    "color",
    "grayscale",
    "unchanged",
    "color_ignore_orientation",
    "grayscale_ignore_orientation",
)
_chosen: dict[str, str] = {}


def opencv(asked: str) -> Any:
    """Return OpenCV.

    Args:
        asked: Who needs it.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        import cv2  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ImportError(
            f"mmcv.{asked} needs OpenCV, as in mmcv: pip install opencv-python-headless"
        ) from None
    return cv2


def pillow(asked: str) -> Any:
    """Return Pillow, with its modules Image and ImageOps.

    Args:
        asked: Who needs it.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise ImportError(
            f"mmcv.{asked} needs OpenCV, as in mmcv, or Pillow: pip install pillow", name="PIL"
        ) from None
    return PIL


def use_backend(backend: str) -> None:
    """Set the backend that reads images from now on.

    Args:
        backend: ``"cv2"`` or ``"pillow"``.
    """
    _chosen["backend"] = _known(backend)


def _known(backend: str | None) -> str:
    if backend is None:
        default = "cv2" if importlib.util.find_spec("cv2") else "pillow"
        return _chosen.get("backend", default)
    if backend not in supported_backends:
        hint = suggest(str(backend), supported_backends)
        raise ValueError(f"backend: {backend} is not supported in the stand-in; {hint}")
    return backend


def imread(
    img_or_path: Any,
    flag: str = "color",
    channel_order: str = "bgr",
    backend: str | None = None,
    file_client_args: dict[str, Any] | None = None,
) -> Any:
    """Read an image; an array is returned as it is.

    Args:
        img_or_path: Its path, local or remote, or an array.
        flag: ``"color"``, ``"grayscale"`` or ``"unchanged"``; with ``_ignore_orientation`` after
            the first two, the camera's orientation is not undone.
        channel_order: ``"bgr"`` or ``"rgb"``.
        backend: ``"cv2"`` or ``"pillow"``; that of :func:`use_backend` by default.
        file_client_args: Which storage; by the path by default.

    Note:
        Departure from mmcv: ``channel_order`` also holds with ``_ignore_orientation``.
    """
    if isinstance(img_or_path, np.ndarray):
        return img_or_path
    if not isinstance(img_or_path, (str, Path)):
        raise TypeError(f'"img" must be a numpy array or a str or a Path, got {img_or_path!r}')
    client = FileClient.infer_client(file_client_args, img_or_path)
    return imfrombytes(client.get(img_or_path), flag, channel_order, backend)


def imfrombytes(
    content: bytes, flag: str = "color", channel_order: str = "bgr", backend: str | None = None
) -> Any:
    """Read an image from the bytes of its file; see :func:`imread`."""
    if flag not in _FLAGS:
        raise ValueError(f"flag must be one of {', '.join(_FLAGS)}, got {flag!r}")
    read = _by_opencv if _known(backend) == "cv2" else _by_pillow
    image = read(content, flag)
    if image is not None and flag.startswith("color") and channel_order == "rgb":
        image = np.ascontiguousarray(image[..., ::-1])
    return image


def _by_opencv(content: bytes, flag: str) -> Any:
    cv2 = opencv("imread")
    kinds = {
        "color": cv2.IMREAD_COLOR,
        "grayscale": cv2.IMREAD_GRAYSCALE,
        "unchanged": cv2.IMREAD_UNCHANGED,
        "color_ignore_orientation": cv2.IMREAD_IGNORE_ORIENTATION | cv2.IMREAD_COLOR,
        "grayscale_ignore_orientation": cv2.IMREAD_IGNORE_ORIENTATION | cv2.IMREAD_GRAYSCALE,
    }
    return cv2.imdecode(np.frombuffer(content, np.uint8), kinds[flag])


def _by_pillow(content: bytes, flag: str) -> Any:
    pil = pillow("imread")
    opened: Any = pil.Image.open(io.BytesIO(content))
    if flag in ("color", "grayscale"):
        opened = pil.ImageOps.exif_transpose(opened)
    if flag.startswith("grayscale"):
        return np.array(opened.convert("L"))
    if flag == "unchanged":
        pixels = np.array(opened)
        return pixels if pixels.ndim < 3 else pixels[..., [2, 1, 0, *range(3, pixels.shape[2])]]
    return np.ascontiguousarray(np.array(opened.convert("RGB"))[..., ::-1])


def imwrite(
    img: Any,
    file_path: str,
    params: Any = None,
    auto_mkdir: bool | None = None,
    file_client_args: dict[str, Any] | None = None,
) -> bool:
    """Write an image, in the format of the path's ending; its directory is made.

    Args:
        img: The pixels, in the order B, G, R.
        file_path: Where to.
        params: OpenCV's settings of the format.
        auto_mkdir: Without effect: directories are always made.
        file_client_args: Which storage; by the path by default.
    """
    if not isinstance(file_path, (str, Path)):
        raise TypeError(f"file_path must be a path, got {file_path!r}")
    ending = os.path.splitext(file_path)[1]
    if _known(None) == "cv2":
        done, encoded = opencv("imwrite").imencode(ending, img, params or [])
        content = encoded.tobytes()
    else:
        done, content = True, _encoded(np.asarray(img), ending)
    client = FileClient.infer_client(file_client_args, file_path)
    client.put(content, file_path)
    return bool(done)


def _encoded(img: Any, ending: str) -> bytes:
    image = pillow("imwrite").Image
    pixels = img if img.ndim < 3 else img[..., [2, 1, 0, *range(3, img.shape[2])]]
    file = io.BytesIO()
    kind = image.registered_extensions().get(ending.lower())
    if kind is None:
        raise ValueError(f"no image format has the ending {ending!r}")
    image.fromarray(np.ascontiguousarray(pixels.squeeze())).save(file, format=kind)
    return file.getvalue()
