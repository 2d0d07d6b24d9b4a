"""``VisdomLoggerHook``: draw lines and images on a Visdom server."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.run_files import claim_timestamp
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.attributes import alias
from lightning_hooks.utils.regular_files import regular

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["VisdomLoggerHook", "VisdomWriter"]


_STRICT = {"raise_exceptions": True, "use_incoming_socket": False}


class VisdomWriter(Writer):
    """An environment of Visdom's, with a window for each name.

    Args:
        run: The client.
    """

    name = "visdom"
    run_options: Mapping[str, str] = {"server": "server", "port": "port", "env": "env"}
    replayed: Mapping[str, Any] = {"init": _STRICT}
    batch = 256
    takes = ("images", "tables", "texts")

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self._drawn: dict[str, int] = {}  # name: number of the last record
        self._saved: dict[str, int] = {}  # the same, saved in the server's files
        # whether the server's content is known: no failed call since the save
        self._is_certain = True
        self._is_offline = bool(getattr(run, "offline", False))

    @classmethod
    def connect(
        cls, *, run: Any = None, init: Mapping[str, Any] | None = None, after: int | None = None
    ) -> VisdomWriter:
        """Connect to a server, or to a file.

        Args:
            run: A connected client.
            init: Arguments of ``visdom.Visdom``.
            after: The last step of the checkpoint of a continued run.
        """
        path = (init or {}).get("log_to_filename")
        if run is None:
            import visdom

            if path:
                os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            run = visdom.Visdom(**(init or {}))
        writer = cls(run)
        if after is not None:
            writer.keep_stored(_stored_steps(run, path), after)
        return writer

    @classmethod
    def options(cls, run: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the server of an open client, or the folder and the name of the file."""
        if run is not None:
            return super().options(run, arguments)
        folder, name = os.path.split((arguments.get("init") or {}).get("log_to_filename") or "")
        return {"dir": folder, "run_id": name.removesuffix(".log")} if name else {}

    @classmethod
    def reopen(
        cls, *, folder: str | None = None, run_id: str = "replayed", init: dict[str, Any]
    ) -> VisdomWriter:
        """Connect to a server, or continue the file of a run in a folder."""
        if "port" in init:
            init["port"] = int(init["port"])
        if folder is not None:
            init.update(offline=True, log_to_filename=os.path.join(folder, f"{run_id}.log"))
        return cls.connect(init=init, after=0)

    def write(self, records: Sequence[Record]) -> None:
        """Draw records, and make the server save the environment, to survive a restart."""
        if not self._is_certain:  # the server may have restarted, or have unconfirmed points
            self.stored, self._drawn = _stored_steps(self.run, None), dict(self._saved)
            records = [*map(self.new_points, records)]
        self._is_certain = False
        self._draw_all(records)
        if not (self._is_offline or self.run.save([self.run.env])):
            raise ConnectionError("the Visdom server does not save its environment")
        self._is_certain, self._saved = True, dict(self._drawn)

    def _draw_all(self, records: Sequence[Record]) -> None:
        """Extend each line by the points of all records at once: a call takes milliseconds."""
        points: dict[str, list[tuple[int, float]]] = {}
        for record in records:
            for name, value in record.scalars.items():
                if record.seq > self._drawn.get(name, -1):
                    points.setdefault(name, []).append((record.step, value))
        for name, new in points.items():
            steps, values = zip(*new, strict=True)
            self._draw(
                *("line", name, name, records[-1].seq),
                X=list(steps),
                Y=list(values),
                name=name,
                update="append",
                opts={"title": name, "xlabel": "iteration"},
            )
        for record in records:
            for name, image in record.images.items():
                opts = {"title": name, "caption": f"iteration {record.step}"}
                self._draw("image", f"{name} ", name, record.seq, img=image, opts=opts)
            for name, words in record.texts.items():
                caption = f"{html.escape(name)}, iteration {record.step}"
                text = f"<p>{caption}</p><pre>{html.escape(words)}</pre>"
                self._draw("text", f"{name}   ", name, record.seq, text=text)
            for name, table in record.tables.items():
                caption = f"<caption>{name}, iteration {record.step}</caption>"
                text = f"<table>{caption}{_html_rows([table.columns, *table.rows])}"
                self._draw("text", f"{name}  ", name, record.seq, text=text)
            if record.params:
                text = f"<table>{_html_rows(record.params.items())}"
                self._draw("text", "parameters ", "parameters", record.seq, text=text)

    def _draw(self, kind: str, key: str, win: str, seq: int, **what: Any) -> None:
        """Draw a record unless drawn before."""
        if seq <= self._drawn.get(key, -1):
            return
        # without raise_exceptions the client returns False if no server answers
        if getattr(self.run, kind)(win=win, **what) is False:
            raise ConnectionError("the Visdom server does not answer")
        self._drawn[key] = seq


def _stored_steps(client: Any, path: str | None) -> dict[str, set[int]]:
    """Return the steps drawn by a client, on a server or offline into a file."""
    lines = _lines_in(path) if getattr(client, "offline", False) else _lines_on(client)
    return {name: {*map(int, xs)} for name, xs in lines.items()}


def _lines_on(client: Any) -> dict[str, list[float]]:
    """Return the steps on the server for each name."""
    windows = json.loads(client.get_window_data() or "{}")
    lines = {name: each for name, each in windows.items() if each.get("type") == "plot"}
    return {name: each["content"]["data"][0]["x"] for name, each in lines.items()}


def _lines_in(path: str | None) -> dict[str, list[float]]:
    """Return the steps of each name in an offline client's file."""
    lines: dict[str, list[float]] = {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8", opener=regular) as file:
            for _, message in map(json.loads, file):
                for data in message.get("data", ()):
                    lines.setdefault(message["win"], []).extend(data.get("x", ()))
    return lines


def _html_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Return the rows of a table in HTML, with escaped texts.

    >>> _html_rows([("id", "<b>"), (1, None)])
    '<tr><td>id<td>&lt;b&gt;<tr><td>1<td>'
    """
    cells = (("" if cell is None else html.escape(str(cell)) for cell in row) for row in rows)
    return "".join(f"<tr>{''.join(f'<td>{cell}' for cell in row)}" for row in cells)


@HOOKS.register_module()
class VisdomLoggerHook(TrackerHook):
    """Draws a line for each name on a Visdom server, or into ``{work_dir}/visdom`` offline.

    The windows have the names of ``get_loggable_tags``; the x-axis is the iteration. ``[C, H, W]``
    tensors are images, the module's hyper-parameters a table. Without a server in ``init_kwargs``
    the drawings are lines of JSON in a file; ``Visdom().replay_log(file)`` draws the file.

    Args:
        init_kwargs: Arguments of ``visdom.Visdom``.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        server: The server's URL without the port, as of ``visdom.Visdom``.
        port: The server's port.
        env: The environment of the windows.
        options: See ``TrackerHook``; ``run`` is a ``Visdom`` client to be used.

    Raises:
        ImportError: if visdom is not installed.
        TypeError: if ``run`` is no client of Visdom's, or an argument has another type.
        ValueError: for an argument repeated in ``init_kwargs``.

    Note:
        mmcv has no such logger; the model is a writer of cvpods' users.
    """

    _package, _start_function = "visdom", "Visdom"
    _writer_class = VisdomWriter
    _run_attribute = "replay_log"
    init_kwargs: dict[str, Any] = alias("_init_kwargs")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        server: str | None = None,
        port: int | None = None,
        env: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        self._start_with(init_kwargs, server=server, port=port, env=env)

    def _run_folder(self, runner: Runner) -> str | None:
        """Return the folder of the file, which is named by the run's timestamp."""
        named = self._init_kwargs.keys() & {"server", "port", "endpoint", "offline"}
        local = is_local(runner.work_dir) and not named
        return os.path.join(runner.work_dir, "visdom") if local else None

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return the server of ``init_kwargs``, or a file in the work dir."""
        init: dict[str, Any] = {**_STRICT}
        if (folder := self._run_folder(runner)) is not None:
            claim_timestamp(runner)
            part = f"-{self._tracked.key}" if self._tracked.apart else ""
            path = os.path.join(folder, f"{runner.timestamp}{part}.log")
            init.update(offline=True, log_to_filename=path)
        return {"init": {**init, **self._init_kwargs}, "after": self._tracked.after}
