"""Logged figures, sounds and videos, encoded when they are logged."""

from __future__ import annotations

import io
import os
import wave
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.samples import Audio, Video, as_image, as_picture, on_host

__all__ = ["as_file", "audio_of", "encoded", "figure_image", "video_of"]


def figure_image(name: str, figure: Any) -> np.ndarray:
    """Return a matplotlib figure as an image ``[3, H, W]``; the figure stays open and unchanged.

    Raises:
        TypeError: for a value that is no figure.
    """
    if not hasattr(figure, "savefig"):
        raise TypeError(
            f"the figure {name!r} must be a figure of matplotlib's, got a {type(figure).__name__}"
        )
    from PIL import Image  # a requirement of matplotlib

    file = io.BytesIO()
    figure.savefig(file, format="png")
    return np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1)


def audio_of(name: str, audio: Any, sample_rate: int) -> Audio:
    """Return a sound of 16 bits: floats from -1 to 1, or integers of 16 bits.

    Args:
        name: The name, for the message.
        audio: A tensor or array ``[T]`` or ``[C, T]``, with 1 or 2 channels.
        sample_rate: Samples per second.

    Raises:
        TypeError: for another type or shape.
        ValueError: if ``sample_rate`` is not positive.

    >>> with wave.open(io.BytesIO(audio_of("beep", torch.zeros(2, 80), 8000).data)) as file:
    ...     file.getnchannels(), file.getframerate(), file.getnframes()
    (2, 8000, 80)
    """
    if isinstance(sample_rate, bool) or not isinstance(sample_rate, int) or sample_rate < 1:
        raise ValueError(f"sample_rate must be a positive integer, got {shown(sample_rate)}")
    array = on_host(audio) if isinstance(audio, (torch.Tensor, np.ndarray)) else None
    array = array[None] if array is not None and array.ndim == 1 else array
    is_sound = array is not None and array.ndim == 2 and array.shape[0] in (1, 2)
    if array is None or not is_sound or not (array.dtype.kind == "f" or array.dtype == np.int16):
        given = f"shape {array.shape} of {array.dtype}" if array is not None else shown(audio)
        raise TypeError(
            f"the audio {name!r} must be a tensor or array [T] or [C, T] with 1 or 2 channels of "
            f"floats from -1 to 1, or int16, got {given}"
        )
    if array.dtype.kind == "f":
        array = (np.nan_to_num(array).clip(-1, 1) * 32767).round()
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(len(array))
        sound.setsampwidth(2)
        sound.setframerate(sample_rate)
        sound.writeframes(np.ascontiguousarray(array.T, "<i2").tobytes())
    return Audio(file.getvalue())


def video_of(name: str, video: Any, fps: float) -> Video:
    """Return frames as an animated GIF, which has at most 256 colors in a frame.

    Args:
        name: The name, for the message.
        video: A tensor or array ``[T, C, H, W]`` with 1 or 3 channels; floats from 0 to 1, or
            integers from 0 to 255.
        fps: Frames per second; a GIF has at most 50.

    Raises:
        TypeError: for another type or shape.
        ValueError: if ``fps`` is not positive.
    """
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not fps > 0:
        raise ValueError(f"fps must be positive, got {shown(fps)}")
    array = on_host(video) if isinstance(video, (torch.Tensor, np.ndarray)) else None
    if array is None or array.ndim != 4 or array.shape[1] not in (1, 3) or not array.size:
        given = f"shape {array.shape}" if array is not None else f"a {type(video).__name__}"
        raise TypeError(
            f"the video {name!r} must be a tensor or array [T, C, H, W] with 1 or 3 channels, "
            f"got {given}"
        )
    from PIL import Image

    first, *others = (Image.fromarray(as_picture(as_image(frame))) for frame in array)
    file, duration = io.BytesIO(), max(round(1000 / fps), 20)
    options = {"save_all": True, "append_images": others, "duration": duration, "loop": 0}
    first.save(file, format="gif", **options)
    return Video(file.getvalue())


def encoded(sample: Any) -> tuple[str, bytes] | None:
    """Return the ending and the content of a sample's file; None for tables and histograms.

    >>> encoded("a cat")
    ('txt', b'a cat')
    """
    if isinstance(sample, str):
        return "txt", sample.encode()
    if isinstance(sample, (Audio, Video)):
        return "wav" if isinstance(sample, Audio) else "gif", sample.data
    if not isinstance(sample, np.ndarray):
        return None
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(as_picture(sample)).save(file, format="png")
    return "png", file.getvalue()


def as_file(sample: str | Audio | Video, folder: str, name: object) -> str:
    """Write a text, sound or video as ``<name>.<ending>`` into a folder; return the path."""
    ending, content = encoded(sample) or ("", b"")
    path = os.path.join(folder, f"{name}.{ending}")
    with open(path, "wb") as file:
        file.write(content)
    return path
