"""``log_image``, ``log_table`` and others: log to trackers from the steps of a LightningModule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.logged_values import is_isolated
from lightning_hooks.engine.raw_validation import validates_raw
from lightning_hooks.engine.roster import hook_callbacks_of
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.warn import warn

__all__ = ["log_audio", "log_figure", "log_image", "log_table", "log_text", "log_video"]


def log_image(module: L.LightningModule, name: str, image: Any) -> None:
    """Log an image from a step of a LightningModule: ``log_image(self, "sample", x[0])``.

    Every tracker of the run gets the image at this iteration as ``train/sample``, ``val/sample``
    or ``test/sample``. The sanity check, ranks other than 0, steps run by a hook, such as
    ``precise_bn``, and the second validation of an average's ``validate="both"`` log nothing.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the image; several images with the same name form a series.
        image: A tensor or array ``[C, H, W]`` with 1, 3 or 4 channels, or ``[H, W]``; floats from
            0 to 1, or integers from 0 to 255.

    Raises:
        TypeError: for a value that is no image.
    """
    _call(module, "log_image", name, image)


def log_table(
    module: L.LightningModule,
    name: str,
    rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]],
) -> None:
    """Log a table from a step: ``log_table(self, "worst", {"id": ids, "loss": losses})``.

    Trackers without tables are named in a warning. Names have the prefixes of images.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the table; several tables with the same name form a series.
        rows: A dict of columns, or a dict for each row, with numbers and texts.

    Raises:
        TypeError, ValueError: for a value that is no table.
    """
    _call(module, "log_table", name, rows)


def log_figure(module: L.LightningModule, name: str, figure: Any) -> None:
    """Log a matplotlib figure from a step: ``log_figure(self, "confusion", figure)``.

    The figure is logged as an image, drawn at once, with the names of images; the caller closes it.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the figure; several figures with the same name form a series.
        figure: A ``matplotlib.figure.Figure``.

    Raises:
        TypeError: for a value that is no figure.
    """
    _call(module, "log_figure", name, figure)


def log_text(module: L.LightningModule, name: str, text: str) -> None:
    """Log a text from a step, such as a generated answer: ``log_text(self, "answer", words)``.

    A text, audio or video that no tracker of the run holds is a file in ``{work_dir}/media``, as a
    warning says. Names have the prefixes of images.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the text; several texts with the same name form a series.
        text: The text.

    Raises:
        TypeError: for a value that is no str.
    """
    _call(module, "log_text", name, text)


def log_audio(module: L.LightningModule, name: str, audio: Any, sample_rate: int) -> None:
    """Log a sound from a step: ``log_audio(self, "speech", wave[0], sample_rate=16_000)``.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the sound; several sounds with the same name form a series.
        audio: A tensor or array ``[T]`` or ``[C, T]`` with 1 or 2 channels; floats from -1 to 1, or
            integers of 16 bits.
        sample_rate: Samples per second.

    Raises:
        TypeError: for a value that is no sound.
        ValueError: if ``sample_rate`` is not positive.
    """
    _call(module, "log_audio", name, audio, sample_rate)


def log_video(module: L.LightningModule, name: str, video: Any, fps: float = 4) -> None:
    """Log a video from a step: ``log_video(self, "rollout", frames, fps=10)``.

    The video is an animated GIF, with at most 256 colors in a frame.

    Args:
        module: The module: ``self`` in a step.
        name: Name of the video; several videos with the same name form a series.
        video: A tensor or array ``[T, C, H, W]`` with 1 or 3 channels; floats from 0 to 1, or
            integers from 0 to 255.
        fps: Frames per second, at most 50.

    Raises:
        TypeError: for a value that is no video.
        ValueError: if ``fps`` is not positive.
    """
    _call(module, "log_video", name, video, fps)


def _call(module: Any, function: str, name: str, *values: Any) -> None:
    """Call the runner's method with the name of a function, or say why nothing is logged."""
    if not isinstance(module, L.LightningModule):
        raise TypeError(
            f"{function}(self, name, ...) begins with the LightningModule, got {shown(module)}"
        )
    if is_isolated(module):
        return
    try:
        trainer = module.trainer
    except RuntimeError:
        trainer = None
    if trainer is not None and validates_raw(trainer):
        return
    if trainer is not None and hook_callbacks_of(trainer):
        getattr(Driver.of(trainer).runner_for(trainer, module), function)(name, *values)
        return
    reason = "is attached to no Trainer" if trainer is None else "has a Trainer without loggers"
    warn(
        f"{function}: {type(module).__name__} {reason} of this package, so nothing is logged; "
        "write Trainer(callbacks=[WandbLoggerHook()]), or another tracker",
    )
