"""Format records of the text log: as a line for the console and as a line of JSON."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lightning_hooks.utils.plain_types import plain

__all__ = ["console_line", "eta", "json_line", "printable", "rounded"]

_IN_HEAD = ("mode", "Epoch", "iter", "lr", "time", "data_time", "memory", "epoch")


def eta(seconds: float, done: int, left: int) -> str:
    """Return the time for ``left`` iterations, if ``done`` iterations took ``seconds``.

    >>> eta(90.0, done=3, left=4)
    '0:02:00'
    """
    return str(datetime.timedelta(seconds=int(seconds / done * left)))


def printable(text: str) -> str:
    r"""Return a text as one line, with escapes instead of control characters except tabs.

    >>> print(printable("loss\n\x1b[31m"))
    loss\n\x1b[31m
    """
    control = r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]"
    return re.sub(control, lambda found: found[0].encode("unicode_escape").decode(), text)


def console_line(
    record: Mapping[str, Any], *, by_epoch: bool, total: int | None, eta: str | None
) -> str:
    r"""Return the console's line for a record.

    Args:
        record: ``mode``, ``epoch``, ``iter``, ``lr`` (a number, or a dict of numbers by
            optimizer), perhaps ``time`` and ``data_time`` in seconds and ``memory`` in MiB, and any
            values.
        by_epoch: Whether ``iter`` counts within the epoch.
        total: The last value of ``iter``, None if unknown.
        eta: The remaining time, None if unknown.

    >>> record = dict(mode="train", epoch=1, iter=5, lr=0.1, time=0.25, loss=2.3)
    >>> console_line(record, by_epoch=True, total=9, eta="0:01:00").split("\t")
    ['Epoch [1][5/9]', 'lr: 1.000e-01, eta: 0:01:00, time: 0.250, loss: 2.3000']
    """
    items = ", ".join(
        f"{k}: {v:.4f}" if isinstance(v, float) else f"{k}: {v}"
        for k, v in record.items()
        if k not in _IN_HEAD
    )
    span, epoch = ("Epoch", f"[{record['epoch']}]") if by_epoch else ("Iter", "")
    if record["mode"] != "train":
        mode = record["mode"].removesuffix("_epoch")
        return f"{span}({mode}) {epoch}[{record['iter']}]\t{items}"
    head = []
    lr = record.get("lr")
    if isinstance(lr, Mapping):
        head.append(" ".join(f"lr_{name}: {value:.3e}" for name, value in lr.items()))
    elif lr is not None:
        head.append(f"lr: {lr:.3e}")
    if "time" in record:
        if eta is not None:
            head.append(f"eta: {eta}")
        head += [f"{key}: {record[key]:.3f}" for key in ("time", "data_time") if key in record]
        if "memory" in record:
            head.append(f"memory: {record['memory']}")
    # mmcv ends each part of the head with a comma, also where nothing follows
    start = f"{span} {epoch}[{record['iter']}/{'?' if total is None else total}]\t"
    return start + "".join(f"{part}, " for part in head) + items


def rounded(value: Any) -> Any:
    """Round floats for the JSON, also in lists, to five decimals.

    A float below 0.01 keeps all digits; NaN and infinity become None.

    >>> rounded([2.0000001, 0.0123456, 3.21e-06, float("nan")])
    [2.0, 0.01235, 3.21e-06, None]
    """
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, 5) if abs(value) >= 0.01 else value
    return value


def json_line(record: Mapping[str, Any], rounding: Callable[[Any], Any] = rounded) -> str:
    """Return a record as one line of strict JSON: NaN and infinity are ``null``.

    Args:
        record: The values by key.
        rounding: A function that rounds a value or a list of values.

    >>> json_line(dict(mode="train", loss=float("inf"), lr=dict(a=3e-06, b=0.012345678)))
    '{"mode": "train", "loss": null, "lr": {"a": 3e-06, "b": 0.012345678}}'
    """
    written = {key: rounding(_jsonable(value)) for key, value in record.items()}
    return json.dumps(written, allow_nan=False)


def _jsonable(value: Any) -> Any:
    """Convert a value to plain types without NaN and infinity."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if type(value) not in (float, int, str):  # nearly every value
        value = plain(value)
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    if isinstance(value, bytes):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
