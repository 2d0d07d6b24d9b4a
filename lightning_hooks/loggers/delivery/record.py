"""``Record``: the values logged at one step, and their form as a line of JSON."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lightning_hooks.utils.plain_types import plain

__all__ = ["Record", "from_line", "to_line"]


@dataclass(frozen=True)
class Record:
    """The values logged at one step.

    Args:
        seq: The number of the record in its run, from 0; a repetition has the same number.
        time: The time of the log, in seconds since the epoch; a repetition has the same time.
        step: The iteration.
        scalars: Numbers by name.
        images: Images by name, ``uint8`` arrays ``[C, H, W]``.
        texts: Texts by name.
        params: Hyper-parameters by name; they belong to the run, not to the step.
    """

    seq: int
    time: float
    step: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


def to_line(record: Record) -> bytes:
    r"""Return a record as one line of strict JSON, without empty fields.

    >>> to_line(Record(0, 12.5, 3, {"loss": 0.1, "norm": float("nan")}))
    b'{"seq": 0, "time": 12.5, "step": 3, "scalars": {"loss": 0.1, "norm": "nan"}}\n'
    """
    fields: dict[str, Any] = {"seq": record.seq, "time": record.time, "step": record.step}
    if record.scalars:
        fields["scalars"] = record.scalars
    if record.images:
        fields["images"] = {name: _pack(image) for name, image in record.images.items()}
    if record.texts:
        fields["texts"] = dict(record.texts)
    if record.params:
        fields["params"] = plain(record.params)
    try:
        text = json.dumps(fields, allow_nan=False)
    except ValueError:  # strict JSON has no NaN and no infinity
        text = json.dumps(_with_names(fields), allow_nan=False)
    return text.encode() + b"\n"


def from_line(line: bytes) -> Record:
    """Return the record of a line written by :func:`to_line`.

    Raises:
        ValueError: if the line holds no record.

    >>> from_line(to_line(Record(7, 1.5, 2, {"acc": float("inf")}))).scalars
    {'acc': inf}
    """
    try:
        fields = json.loads(line)
        return Record(
            *(int(fields["seq"]), float(fields["time"]), int(fields["step"])),
            {name: float(value) for name, value in fields.get("scalars", {}).items()},
            {name: _unpack(image) for name, image in fields.get("images", {}).items()},
            fields.get("texts", {}),
            fields.get("params", {}),
        )
    except (KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ValueError(f"a line must hold a record, got {line[:80]!r}") from error


def _pack(image: np.ndarray) -> dict[str, Any]:
    data = zlib.compress(np.ascontiguousarray(image).tobytes(), level=1)
    return {"shape": list(image.shape), "zlib": base64.b64encode(data).decode()}


def _unpack(packed: Mapping[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(packed["zlib"]))
    return np.frombuffer(data, np.uint8).reshape(packed["shape"])


def _with_names(value: Any) -> Any:
    """Replace NaN and infinities by the strings that ``float`` reads."""
    if isinstance(value, Mapping):
        return {str(key): _with_names(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_names(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
