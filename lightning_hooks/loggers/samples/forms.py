"""Images, tables and histograms in the forms that the backends take."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.utils.samples import Histogram, Table

__all__ = ["as_markdown", "html_rows", "mlflow_files", "moments", "wandb_media"]


def as_markdown(table: Table) -> str:
    r"""Return a table as TensorBoard shows texts.

    >>> print(as_markdown(Table(("id", "label"), ((1, "a|b"), (2, None)))))
    | id | label |
    | --- | --- |
    | 1 | a\|b |
    | 2 |  |
    """
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(map(_in_markdown, row))} |" for row in rows)


def _in_markdown(cell: Any) -> str:
    return "" if cell is None else re.sub(r"\s+", " ", str(cell).replace("|", "\\|"))


def html_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Return the rows of a table in HTML; their texts are no HTML.

    >>> html_rows([("id", "<b>"), (1, None)])
    '<tr><td>id<td>&lt;b&gt;<tr><td>1<td>'
    """
    cells = (("" if cell is None else html.escape(str(cell)) for cell in row) for row in rows)
    return "".join(f"<tr>{''.join(f'<td>{cell}' for cell in row)}" for row in cells)


def moments(counted: Histogram) -> dict[str, Any]:
    """Return a histogram as TensorBoard stores it; the sums are those of the cells' middles.

    >>> found = moments(Histogram(0.0, 1.0, (3, 1)))
    >>> found["num"], found["sum"], found["bucket_limits"]
    (4, 1.5, [0.5, 1.0])
    """
    counts, edges = np.array(counted.counts), np.array(counted.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    with np.errstate(over="ignore"):  # the square of 1e300 is infinite
        total, squares = float((counts * middles).sum()), float((counts * middles * middles).sum())
    return {
        **{"min": counted.low, "max": counted.high, "num": int(counts.sum())},
        **{"sum": total, "sum_squares": squares},
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": counts.tolist(),
    }


def mlflow_files(record: Record, name_of: Callable[[str], str]) -> Iterator[tuple[str, Any, str]]:
    """Yield the client's method, the content and the path for each sample of a record.

    A table has the form of MLflow's own ``log_table``. A second attempt writes the same files.

    Args:
        record: The record.
        name_of: A function that returns MLflow's name for one.
    """
    for name, image in record.images.items():
        path = f"images/{name_of(name)}/{record.step}.png"
        yield "log_image", image.transpose(1, 2, 0), path
    for name, table in record.tables.items():
        content = {"columns": table.columns, "data": table.rows}
        yield "log_dict", content, f"tables/{name_of(name)}/{record.step}.json"


def wandb_media(record: Record, name_of: Callable[[str], str]) -> dict[str, Any]:
    """Return the samples of a record as W&B's objects by name.

    Args:
        record: The record.
        name_of: A function that returns a name as the path of a file.
    """
    media: dict[str, Any] = {}
    if record.images or record.tables or record.histograms:
        import wandb

        for name, image in record.images.items():  # [H, W, C], or [H, W] in grey
            media[name_of(name)] = wandb.Image(image.transpose(1, 2, 0).squeeze())
        for name, table in record.tables.items():
            columns: list[str | int] = [*table.columns]
            rows = [*map(list, table.rows)]
            media[name_of(name)] = wandb.Table(columns, rows, allow_mixed_types=True)
        for name, counted in record.histograms.items():
            counts = np.array(counted.counts), np.array(counted.edges)
            media[name] = wandb.Histogram(np_histogram=counts)
    return media
