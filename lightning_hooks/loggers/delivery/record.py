"""``Record``: the values logged at a step, and the conversion to and from a line of JSON."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightning_hooks.loggers.delivery.upload import Upload, check_label
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.samples import Audio, Histogram, Table, Video

__all__ = ["KINDS", "Record", "from_line", "seal", "to_line", "unseal"]

KINDS = "images", "tables", "histograms", "texts", "audios", "videos"
"""The kinds of samples."""

_LARGEST_IMAGE = 1 << 30  # bytes
_LARGEST_FILE = 1 << 30  # bytes of a sound or video
_MOST_CELLS = 4096  # of a histogram


@dataclass(frozen=True)
class Record:
    """The values logged at a step.

    Args:
        seq: The number of the record in the run, from 0; a repetition has the same number.
        time: The time of the log, in seconds since the epoch; a repetition has the same time.
        step: The iteration.
        scalars: Numbers by name.
        images: Images by name, ``uint8`` arrays ``[C, H, W]``.
        texts: Texts by name.
        params: Hyper-parameters of the run by name.
        tables: Tables by name.
        histograms: Histograms by name.
        audios: Sounds by name.
        videos: Videos by name.
        checkpoints: Checkpoints by name; None deletes a checkpoint.
    """

    seq: int
    time: float
    step: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    audios: Mapping[str, Audio] = field(default_factory=dict)
    videos: Mapping[str, Video] = field(default_factory=dict)
    checkpoints: Mapping[str, Upload | None] = field(default_factory=dict)

    @property
    def uploads(self) -> list[Upload]:
        """The checkpoints to be sent."""
        return [upload for upload in self.checkpoints.values() if upload is not None]

    def without_lost_files(self) -> Record:
        """Return the record without checkpoints that were sent or deleted before."""
        uploads = self.checkpoints.items()
        left = {
            name: upload
            for name, upload in uploads
            if upload is None or os.path.lexists(upload.path)
        }
        return replace(self, checkpoints=left)

    @property
    def points(self) -> list[tuple[str, Any]]:
        """All values of the step, as pairs of name and value."""
        names = dict.fromkeys(("scalars", "texts", *KINDS))
        return [point for name in names for point in getattr(self, name).items()]


def to_line(record: Record) -> bytes:
    r"""Return a record as a line of strict JSON with a checksum, without empty fields.

    >>> to_line(Record(0, 12.5, 3, {"loss": 0.1, "norm": float("nan")}))[:-21]
    b'{"seq": 0, "time": 12.5, "step": 3, "scalars": {"loss": 0.1, "norm": "nan"}'
    """
    fields: dict[str, Any] = {"seq": record.seq, "time": record.time, "step": record.step}
    if record.scalars:
        fields["scalars"] = record.scalars
    for kind, encode in _ENCODERS.items():
        if values := getattr(record, kind):
            fields[kind] = {name: encode(value) for name, value in values.items()}
    try:
        text = json.dumps(fields, allow_nan=False)
    except ValueError:  # strict JSON has no NaN and no infinity
        text = json.dumps(_with_names(fields), allow_nan=False)
    return seal(text)


def from_line(line: bytes, folder: str = "") -> Record:
    """Return the record of a line written by :func:`to_line`.

    Args:
        line: The line.
        folder: The folder of the spool, with the checkpoints to send.

    Raises:
        ValueError: if the line holds no record.

    >>> from_line(to_line(Record(7, 1.5, 2, {"acc": float("inf")}))).scalars
    {'acc': inf}
    """
    fields = unseal(line)
    try:
        if fields is None:
            raise ValueError("it is damaged")
        values = {kind: dict(fields.get(kind, {}).items()) for kind in _KINDS}
        for kind, decode in _DECODERS.items():
            values[kind] = {name: decode(value) for name, value in values[kind].items()}
        sent = values["checkpoints"].items()
        values["checkpoints"] = {name: _checkpoint(name, value, folder) for name, value in sent}
        return Record(_step(fields["seq"]), _time(fields["time"]), _step(fields["step"]), **values)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"a line must hold a record, got {shown(line[:80])}: {error}") from error


def _step(value: Any) -> int:
    if type(value) is not int or abs(value) >= 2**63:
        raise ValueError(f"no number of a step: {shown(value)}")
    return value


def _time(value: Any) -> float:
    if not 0 <= (time := float(value)) < 1e11:
        raise ValueError(f"no time: {shown(value)}")
    return time


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {shown(value)}")
    return value


def _checkpoint(name: str, fields: Any, folder: str) -> Upload | None:
    check_label(name)
    return None if fields is None else Upload.from_fields(name, fields, folder)


def _table(columns: Any, rows: Any) -> Table:
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise ValueError(f"no row of a table with {len(columns)} columns: {shown(row)}")
        for cell in row:
            if not (cell is None or isinstance(cell, (bool, int, float, str))):
                raise TypeError(f"no cell of a table: {shown(cell)}")
    return Table(tuple(map(_text, columns)), tuple(map(tuple, rows)))


def _histogram(low: Any, high: Any, counts: Any, left_out: Any) -> Histogram:
    low, high, counts = float(low), float(high), tuple(map(_step, counts))
    if not (math.isfinite(high - low) and low < high and 0 < len(counts) <= _MOST_CELLS):
        raise ValueError(f"no histogram: {len(counts)} cells from {low} to {high}")
    if min(counts) < 0:
        raise ValueError(f"no counts of a histogram: {shown(counts)}")
    return Histogram(low, high, counts, _step(left_out))


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _file(text: Any, beginning: bytes) -> bytes:
    """Return the bytes of a file with a known beginning."""
    data = base64.b64decode(text, validate=True)
    if len(data) > _LARGEST_FILE or not data.startswith(beginning):
        raise ValueError(f"no file that begins with {beginning!r}: {data[:9]!r}")
    return data


def _pack(image: np.ndarray) -> dict[str, Any]:
    data = zlib.compress(np.ascontiguousarray(image).tobytes(), level=1)
    return {"shape": list(image.shape), "zlib": _to_base64(data)}


def _unpack(packed: Mapping[str, Any]) -> np.ndarray:
    shape = [_step(each) for each in packed["shape"]]
    size = math.prod(shape)
    if len(shape) != 3 or min(shape) < 0 or size > _LARGEST_IMAGE:
        raise ValueError(f"no shape of an image: {shape}")
    try:  # a few bytes can be packed gigabytes
        data = zlib.decompressobj().decompress(base64.b64decode(packed["zlib"]), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return np.frombuffer(data, np.uint8).reshape(shape)


_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "images": _pack,
    "texts": str,
    "params": plain,
    "tables": vars,
    "histograms": vars,
    "audios": lambda audio: _to_base64(audio.data),
    "videos": lambda video: _to_base64(video.data),
    "checkpoints": lambda upload: upload and upload.fields(),
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "scalars": float,
    "images": _unpack,
    "texts": _text,
    "tables": lambda fields: _table(**fields),
    "histograms": lambda fields: _histogram(**fields),
    "audios": lambda text: Audio(_file(text, b"RIFF")),
    "videos": lambda text: Video(_file(text, b"GIF8")),
}
_KINDS = {*_ENCODERS, *_DECODERS}


def _with_names(value: Any) -> Any:
    """Replace NaN and infinities by strings for ``float``."""
    if isinstance(value, Mapping):
        return {str(key): _with_names(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_names(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_SEALED = re.compile(rb'(\{.*), "crc": "([0-9a-f]{8})"\}', re.DOTALL)


def seal(text: str) -> bytes:
    r"""Return the JSON of an object as a line with a checksum at the end.

    >>> seal('{"step": 3}')
    b'{"step": 3, "crc": "08b1f3bf"}\n'
    """
    body = text.encode()
    return body[:-1] + b', "crc": "%08x"}\n' % zlib.crc32(body)


def unseal(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line, None if the line is damaged; old lines have no checksum.

    >>> unseal(seal('{"step": 3}')), unseal(b'{"step": 4, "crc": "08b1f3bf"}')
    ({'step': 3}, None)
    >>> unseal(b'{"step": 4}'), unseal(b"[" * 100_000), unseal(b"null")
    ({'step': 4}, None, None)
    """
    sealed = _SEALED.fullmatch(line.rstrip(b"\n"))
    if sealed:
        line = sealed[1] + b"}"
        if zlib.crc32(line) != int(sealed[2], 16):
            return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
