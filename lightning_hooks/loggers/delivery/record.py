"""``Record``: what is logged at one step, and its form as a line of JSON."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lightning_hooks.utils.plain_types import plain

__all__ = ["Record", "as_image", "from_line", "is_image", "to_line"]


@dataclass(frozen=True)
class Record:
    """What is logged at one step.

    Args:
        seq: The number of the record in its run, from 0; it tells a repetition from a new one.
        time: When it was logged, in seconds since the epoch: the same when it is sent again.
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
    r"""Return a record as one line of strict JSON; what is empty is left out.

    >>> to_line(Record(0, 12.5, 3, {"loss": 0.1, "norm": float("nan")}))
    b'{"seq": 0, "time": 12.5, "step": 3, "scalars": {"loss": 0.1, "norm": "nan"}}\n'
    """
    fields: dict[str, Any] = {"seq": record.seq, "time": record.time, "step": record.step}
    if record.scalars:
        fields["scalars"] = record.scalars
    if record.images:
        fields["images"] = {name: _packed(image) for name, image in record.images.items()}
    if record.texts:
        fields["texts"] = dict(record.texts)
    if record.params:
        fields["params"] = plain(record.params)
    try:
        text = json.dumps(fields, allow_nan=False)
    except ValueError:  # a NaN or an infinity somewhere, for which strict JSON has no name
        text = json.dumps(_named(fields), allow_nan=False)
    return text.encode() + b"\n"


def from_line(line: bytes) -> Record:
    """Return what :func:`to_line` was given.

    Raises:
        ValueError: if the line is no record.

    >>> from_line(to_line(Record(7, 1.5, 2, {"acc": float("inf")}))).scalars
    {'acc': inf}
    """
    try:
        fields = json.loads(line)
        return Record(
            *(int(fields["seq"]), float(fields["time"]), int(fields["step"])),
            {name: float(value) for name, value in fields.get("scalars", {}).items()},
            {name: _unpacked(image) for name, image in fields.get("images", {}).items()},
            fields.get("texts", {}),
            fields.get("params", {}),
        )
    except (KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ValueError(f"no record: {line[:80]!r}") from error


def is_image(value: Any) -> bool:
    """Whether a value has the shape of an image: ``[C, H, W]`` with 1, 3 or 4 channels.

    >>> is_image(torch.zeros(3, 8, 8)), is_image(torch.zeros(8, 8, 3)), is_image(0.5)
    (True, False, False)
    """
    if not isinstance(value, (torch.Tensor, np.ndarray)) or value.ndim != 3:
        return False
    channels, height, width = value.shape
    return channels in (1, 3, 4) and height * width > 1


def as_image(value: torch.Tensor | np.ndarray) -> np.ndarray:
    """Return an image as ``uint8``: floats are of 0 to 1, integers of 0 to 255.

    >>> as_image(torch.tensor([[[0.0, 0.5, 1.0]]])).tolist()
    [[[0, 128, 255]]]
    """
    if isinstance(value, torch.Tensor):
        wide = value.detach().float() if value.is_floating_point() else value.detach()
        array = wide.cpu().numpy()
    else:
        array = value
    if array.dtype.kind == "f":
        array = np.nan_to_num(array).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    return array.clip(0, 255).astype(np.uint8)


def _packed(image: np.ndarray) -> dict[str, Any]:
    data = zlib.compress(np.ascontiguousarray(image).tobytes(), level=1)
    return {"shape": list(image.shape), "zlib": base64.b64encode(data).decode()}


def _unpacked(packed: Mapping[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(packed["zlib"]))
    return np.frombuffer(data, np.uint8).reshape(packed["shape"])


def _named(value: Any) -> Any:
    """NaN and infinities as the strings that ``float`` reads."""
    if isinstance(value, Mapping):
        return {str(key): _named(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
