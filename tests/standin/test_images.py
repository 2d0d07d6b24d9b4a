"""Old code reads, writes and normalizes images without mmcv; mmcv's own tell in golden_check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_hooks.standin.image import io


@pytest.fixture
def image() -> np.ndarray:
    return np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 4


def test_an_image_written_is_read_again_in_both_orders(tmp_path: Path, image: np.ndarray) -> None:
    pytest.importorskip("PIL")
    import mmcv

    path = str(tmp_path / "deep" / "image.png")
    assert mmcv.imwrite(image, path)
    assert np.array_equal(mmcv.imread(path), image)
    assert np.array_equal(mmcv.imread(path, channel_order="rgb"), mmcv.bgr2rgb(image))
    assert mmcv.imread(path, flag="grayscale").shape == (4, 5)
    assert mmcv.imread(image) is image
    assert np.array_equal(mmcv.imfrombytes(Path(path).read_bytes()), image)


def test_a_batch_becomes_images_again(image: np.ndarray) -> None:
    import mmcv

    mean, std = np.array([10.0, 20.0, 30.0]), np.array([2.0, 4.0, 8.0])
    normal = mmcv.imnormalize(image, mean, std)
    batch = torch.from_numpy(normal.transpose(2, 0, 1))[None]
    [again] = mmcv.tensor2imgs(batch, tuple(mean), tuple(std))
    assert np.abs(again.astype(int) - image).max() <= 1
    assert mmcv.imflip(image).shape == mmcv.impad(image, shape=(4, 5)).shape


def test_one_value_of_a_border_is_for_all_channels_a_departure(image: np.ndarray) -> None:
    import mmcv

    assert (mmcv.impad_to_multiple(image, 8, 7)[-1, -1] == 7).all()


def test_what_needs_opencv_says_so(image: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    import mmcv

    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(ImportError, match="pip install opencv-python-headless"):
        mmcv.imrescale(image, 2.0)
    assert mmcv.imresize(image, (10, 8), backend="pillow").shape == (8, 10, 3)
    with pytest.raises(ValueError, match=r"turbojpeg is not supported.*pillow"):
        mmcv.use_backend("turbojpeg")
    with pytest.raises(ValueError, match=r"no image format has the ending '\.xyz'"):
        io.imwrite(image, "image.xyz")
