"""A progress bar for what a hook does on the side, of the kind that the Trainer shows."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar

__all__ = ["with_bar"]


def with_bar(
    trainer: L.Trainer, items: Iterable[Any], title: str, total: int | None = None
) -> Generator[Any, None, None]:
    """Yield the items under a bar: rich's or tqdm's, as the Trainer's; none if it has none.

    Args:
        trainer: Whose bar it stands beside; only rank 0 shows one.
        items: What is iterated.
        title: What stands before the bar.
        total: How many there are, if that is known. The bar goes away after the last.
    """
    shown = trainer.progress_bar_callback
    if shown is None or not getattr(shown, "is_enabled", True) or not trainer.is_global_zero:
        yield from items
    elif isinstance(shown, RichProgressBar) and shown.progress is not None:
        task = shown.progress.add_task(title, total=total)
        try:
            for item in items:
                yield item
                shown.progress.advance(task)
        finally:
            shown.progress.remove_task(task)
    else:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]  # Lightning needs it too

        yield from tqdm(items, desc=title, total=total, position=1, leave=False)
