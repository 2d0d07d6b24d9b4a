"""Logged images, tables and other samples, checked when they are logged."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain

__all__ = [
    "Audio",
    "Histogram",
    "Sample",
    "Table",
    "Video",
    "as_image",
    "as_picture",
    "as_table",
    "image_of",
    "is_image",
    "is_scalar",
    "kind_of",
    "on_host",
]


@dataclass(frozen=True)
class Histogram:
    """Counts of values in cells of equal width.

    Args:
        low: The least value.
        high: The greatest value.
        counts: The number of values in each cell.
        left_out: The number of NaN and infinite values.
    """

    low: float
    high: float
    counts: tuple[int, ...]
    left_out: int = 0

    @property
    def edges(self) -> list[float]:
        """The borders of the cells, from ``low`` to ``high``.

        >>> Histogram(0.0, 1.0, (3, 1)).edges
        [0.0, 0.5, 1.0]
        """
        return [float(edge) for edge in np.linspace(self.low, self.high, len(self.counts) + 1)]


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def by_column(self) -> dict[str, list[Any]]:
        """Return the values of each column.

        >>> Table(("id", "label"), ((1, "cat"), (2, None))).by_column()
        {'id': [1, 2], 'label': ['cat', None]}
        """
        return {name: [row[i] for row in self.rows] for i, name in enumerate(self.columns)}


@dataclass(frozen=True)
class Audio:
    """A sound as the bytes of a WAV file."""

    data: bytes


@dataclass(frozen=True)
class Video:
    """A video as the bytes of an animated GIF."""

    data: bytes


Sample = np.ndarray | Table | Histogram | str | Audio | Video

_KINDS = {
    **{Table: "tables", Histogram: "histograms"},
    **{str: "texts", Audio: "audios", Video: "videos"},
}


def kind_of(sample: Sample) -> str:
    """Return the kind of a sample, as a field of a record.

    >>> kind_of("a cat"), kind_of(np.zeros((1, 4, 4)))
    ('texts', 'images')
    """
    return _KINDS.get(type(sample), "images")


def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
    """Whether a value is a number, or an array or tensor with one element.

    >>> is_scalar(torch.tensor(0.5)), is_scalar(np.ones(2)), is_scalar("cat")
    (True, False, False)
    """
    if isinstance(val, numbers.Number):
        return True
    if isinstance(val, np.ndarray):
        return include_np and val.ndim == 0
    return include_torch and isinstance(val, torch.Tensor) and val.numel() == 1


def is_image(value: Any) -> bool:
    """Whether a value has the shape of an image: ``[C, H, W]`` with 1, 3 or 4 channels.

    >>> is_image(torch.zeros(3, 8, 8)), is_image(torch.zeros(8, 8, 3)), is_image(0.5)
    (True, False, False)
    """
    if not isinstance(value, (torch.Tensor, np.ndarray)) or value.ndim != 3:
        return False
    channels, height, width = value.shape
    return channels in (1, 3, 4) and height * width > 1


def on_host(value: torch.Tensor | np.ndarray) -> np.ndarray:
    """Return a tensor, or an array, as an array with floats of a type that numpy knows."""
    if isinstance(value, np.ndarray):
        return value
    value = value.detach()
    return (value.float() if value.is_floating_point() else value).cpu().numpy()


def as_image(value: torch.Tensor | np.ndarray) -> np.ndarray:
    """Return an image as ``uint8``: floats are scaled from 0..1, integers are taken as 0..255.

    >>> as_image(torch.tensor([[[0.0, 0.5, 1.0]]])).tolist()
    [[[0, 128, 255]]]
    """
    array = on_host(value)
    if array.dtype.kind == "f":
        array = np.nan_to_num(array).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    return array.clip(0, 255).astype(np.uint8)


def as_picture(image: np.ndarray) -> np.ndarray:
    """Return an image ``[C, H, W]`` as most clients take images: ``[H, W, C]``, grey ``[H, W]``.

    >>> as_picture(np.zeros((3, 1, 8))).shape, as_picture(np.zeros((1, 4, 8))).shape
    ((1, 8, 3), (4, 8))
    """
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)


def image_of(name: str, value: Any) -> np.ndarray:
    """Return a user's image as :func:`as_image` does; ``[H, W]`` becomes ``[1, H, W]``.

    Raises:
        TypeError: for another shape or type; the message has the correction.

    >>> image_of("sample", torch.zeros(4, 6)).shape
    (1, 4, 6)
    >>> image_of("sample", np.zeros((8, 6, 3)))
    Traceback (most recent call last):
    TypeError: the image 'sample' must be a tensor or array [C, H, W] with 1, 3 or 4 channels, or
    [H, W], got shape (8, 6, 3); write image.transpose(2, 0, 1)
    """
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 2:
        value = value[None]
    if is_image(value):
        return as_image(value)
    must = f"the image {name!r} must be a tensor or array [C, H, W] with 1, 3 or 4 channels"
    if not isinstance(value, (torch.Tensor, np.ndarray)):
        hint = (
            "; write numpy.asarray(image).transpose(2, 0, 1)" if hasattr(value, "getbands") else ""
        )
        raise TypeError(f"{must}, or [H, W], got a {type(value).__name__}{hint}")
    hint = ""
    if value.ndim == 3 and value.shape[2] in (1, 3, 4):
        swapped = "permute" if isinstance(value, torch.Tensor) else "transpose"
        hint = f"; write image.{swapped}(2, 0, 1)"
    elif value.ndim == 4:
        hint = "; write images[0], or log each under a name of its own"
    raise TypeError(f"{must}, or [H, W], got shape {tuple(value.shape)}{hint}")


def as_table(name: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]) -> Table:
    """Return a table from a dict for each row, or a dict of columns.

    A cell is a number, a bool, a text or None. 0-d tensors become numbers, NaN and infinity become
    None, and other values become text.

    Raises:
        TypeError: for rows of another type.
        ValueError: if the columns have different lengths.

    >>> as_table("wrong", [{"id": 1, "score": torch.tensor(0.5)}, {"id": 2}])
    Table(columns=('id', 'score'), rows=((1, 0.5), (2, None)))
    >>> as_table("wrong", {"id": torch.arange(2), "label": ["cat", "dog"]}).rows
    ((0, 'cat'), (1, 'dog'))
    """
    if isinstance(rows, Mapping):
        columns = {str(key): _cells(name, key, cells) for key, cells in rows.items()}
        lengths = {key: len(cells) for key, cells in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"the columns of table {name!r} must have one length, got {shown(lengths)}"
            )
        return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)))
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise TypeError(_must(name, rows))
    dicts = list(rows)
    for row in dicts:
        if not isinstance(row, Mapping):
            raise TypeError(_must(name, row))
    keys = list(dict.fromkeys(key for row in dicts for key in row))
    cells = (tuple(_cell(row.get(key)) for key in keys) for row in dicts)
    return Table(tuple(map(str, keys)), tuple(cells))


def _must(name: str, given: Any) -> str:
    return (
        f"the table {name!r} must be a dict of columns, such as {{'id': [1, 2]}}, or a list with a "
        f"dict for each row, got {shown(given)}"
    )


def _cells(name: str, key: Any, cells: Any) -> Sequence[Any]:
    if isinstance(cells, torch.Tensor):
        cells = cells.tolist()
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(_must(name, {key: cells}))
    return [_cell(cell) for cell in cells]


def _cell(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 0:
        value = value.item()
    value = plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
