"""Images are read, shaped and normalized as by mmcv; run in the oracle environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import pytest
import torch

from lightning_hooks.standin.image import colour, geometric, io, resize

IMAGE = (np.random.default_rng(0).random((13, 17, 3)) * 255).astype(np.uint8)
FLOAT = IMAGE.astype(np.float32)
BOXES = np.array([[2, 3, 8, 9], [-3, -2, 5, 20]])
MEAN, STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]
CALLS: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = [
    *((colour, f"{a}2{b}", (IMAGE,), {}) for a, b in (("bgr", "rgb"), ("bgr", "hsv"),
      ("hsv", "bgr"), ("bgr", "hls"), ("hls", "bgr"), ("bgr", "gray"), ("rgb", "gray"))),
    (colour, "gray2bgr", (IMAGE[..., 0],), {}),
    (colour, "imnormalize", (IMAGE, np.array(MEAN), np.array(STD)), {}),
    (colour, "imnormalize", (IMAGE, np.array(MEAN), np.array(STD), False), {}),
    (colour, "imdenormalize", (FLOAT, np.array(MEAN), np.array(STD)), {}),
    (colour, "iminvert", (IMAGE,), {}),
    (colour, "lut_transform", (IMAGE, np.arange(256, dtype=np.uint8)[::-1].copy()), {}),
    (colour, "tensor2imgs", (torch.rand(2, 3, 4, 5), tuple(MEAN), tuple(STD)), {}),
    (colour, "tensor2imgs", (torch.rand(2, 1, 4, 5) * 200,), {"to_rgb": False}),
    *((resize, "imresize", (IMAGE, (9, 8), True, kind), {})
      for kind in ("nearest", "bilinear", "bicubic", "area", "lanczos")),
    (resize, "imresize", (IMAGE, (9, 8)), {"backend": "pillow"}),
    (resize, "imresize_like", (IMAGE, IMAGE[:5, :6]), {}),
    (resize, "imresize_to_multiple", (IMAGE, 4), {"scale_factor": 1.7}),
    (resize, "imresize_to_multiple", (IMAGE, (4, 8), (30, 40)), {"keep_ratio": True}),
    (resize, "imrescale", (IMAGE, 1.5), {"return_scale": True}),
    (resize, "imrescale", (IMAGE, (30, 50)), {"return_scale": True}),
    (resize, "rescale_size", ((100, 50), 0.37, True), {}),
    *((geometric, f, (IMAGE.copy(), d), {})
      for f in ("imflip", "imflip_") for d in ("horizontal", "vertical", "diagonal")),
    (geometric, "imcrop", (IMAGE, BOXES[0]), {}),
    (geometric, "imcrop", (IMAGE, BOXES, 1.3), {}),
    (geometric, "imcrop", (IMAGE, BOXES, 1.2, [1, 2, 3]), {}),
    (geometric, "imcrop", (IMAGE[..., 0], BOXES), {"pad_fill": 7}),
    (geometric, "impad", (IMAGE,), {"shape": (20, 30), "pad_val": (1, 2, 3)}),
    *((geometric, "impad", (IMAGE,), {"padding": p, "padding_mode": m})
      for p in (2, (1, 3), (1, 2, 3, 4)) for m in ("constant", "edge", "reflect", "symmetric")),
    (geometric, "impad_to_multiple", (IMAGE, 8, (5, 5, 5)), {}),
    (geometric, "imrotate", (IMAGE, 30), {"auto_bound": True, "border_value": 9}),
    (geometric, "imrotate", (IMAGE, -45, (3, 4), 1.2), {"interpolation": "nearest"}),
    (colour, "quantize", (np.linspace(-1, 2, 50), 0, 1, 7), {}),
    (colour, "dequantize", (np.arange(7), 0, 1, 7), {}),
]  # fmt: skip


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        assert ours == theirs


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[1])
def test_equal(call: Any) -> None:
    module, name, args, kwargs = call
    theirs = getattr(mmcv, name)(*(a.copy() if hasattr(a, "copy") else a for a in args), **kwargs)
    assert_same(getattr(module, name)(*args, **kwargs), theirs)


@pytest.mark.parametrize("ending", [".png", ".bmp", ".jpg"])
@pytest.mark.parametrize("backend", ["cv2", "pillow"])
def test_files(ending: str, backend: str, tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / f"image{ending}")
    assert io.imwrite(IMAGE, path)
    theirs = str(tmp_path / f"theirs{ending}")
    mmcv.imwrite(IMAGE, theirs)
    assert Path(path).read_bytes() == Path(theirs).read_bytes()
    for flag in ("color", "grayscale", "unchanged", "color_ignore_orientation"):
        for order in ("bgr", "rgb")[: 1 if flag.endswith("tion") else 2]:  # mmcv forgets it there
            args = (path, flag, order, backend)
            assert_same(io.imread(*args), mmcv.imread(*args))


def test_files_by_pillow_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "_chosen", {"backend": "pillow"})
    path = str(tmp_path / "image.png")
    io.imwrite(IMAGE, path)
    assert_same(mmcv.imread(path), IMAGE)
    assert_same(io.imread(path), IMAGE)
