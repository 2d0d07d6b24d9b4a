"""A module that logs a figure, a text, a sound and a video, and the encoded files."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_hooks import log_audio, log_figure, log_text, log_video
from lightning_hooks.utils.media import audio_of, video_of
from support.training import TinyModule

__all__ = ["FRAMES", "GIF", "SOUND", "WAV", "WORDS", "Telling"]

pytest.importorskip("PIL")  # a requirement of matplotlib

SOUND = torch.linspace(-1, 1, 160).reshape(2, 80)
FRAMES = torch.stack([torch.zeros(3, 4, 6), torch.ones(3, 4, 6)])
WORDS = "a <cat>\nand more"
WAV, GIF = audio_of("x", SOUND, 8000).data, video_of("x", FRAMES, 10).data


class Telling(TinyModule):
    """A module that logs a figure, a text, a sound and a video in validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 0:
            matplotlib = pytest.importorskip("matplotlib.figure")
            figure = matplotlib.Figure(figsize=(1, 0.5), dpi=40, facecolor="red")
            figure.subplots().plot([1, 2])
            log_figure(self, "curve", figure)
            log_text(self, "answer", WORDS)
            log_audio(self, "speech", SOUND, sample_rate=8000)
            log_video(self, "rollout", FRAMES, fps=10)
        return super().validation_step(batch, batch_idx)
