"""Show a progress bar for a hook's own loop, in the style of the Trainer's bar."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar

__all__ = ["with_bar"]


def with_bar(
    trainer: L.Trainer, items: Iterable[Any], title: str, total: int | None = None
) -> Generator[Any, None, None]:
    """Yield the items under a progress bar of rich or tqdm, whichever the Trainer has, or no bar.

    Args:
        trainer: The Trainer; only rank 0 shows a bar.
        items: The items.
        title: The text before the bar.
        total: The number of items, if known. The bar disappears after the last.
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
        from tqdm.auto import tqdm  # type: ignore[import-untyped]  # Lightning needs tqdm too

        yield from tqdm(items, desc=title, total=total, position=1, leave=False)
