"""``TextLoggerHook``: a line for each log, on the console and in files of the work dir."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import fsspec
import lightning as L
import torch

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.base import LoggerHook, peak_memory
from lightning_hooks.loggers.run_files import LogFile, check_suffix, claim_timestamp, copy_files
from lightning_hooks.storage.files import join
from lightning_hooks.utils.arguments import check_bool, check_dict, check_int, check_path, shown
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.samples import is_image
from lightning_hooks.utils.secrets import masked, without_user

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["TextLoggerHook", "console_line", "eta", "json_line", "rounded"]

_IN_HEAD = ("mode", "Epoch", "iter", "lr", "time", "data_time", "memory", "epoch")


def eta(seconds: float, done: int, left: int) -> str:
    """Return the time for ``left`` iterations, if ``done`` iterations took ``seconds``.

    >>> eta(90.0, done=3, left=4)
    '0:02:00'
    """
    return str(datetime.timedelta(seconds=int(seconds / done * left)))


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
    if type(value) not in (float, int, str):  # nearly every value
        value = plain(value.tolist() if isinstance(value, torch.Tensor) else value)
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(k): _jsonable(v) for k, v in value.items()}
        case list() | tuple():
            return [_jsonable(v) for v in value]
        case bytes():
            return str(value)
    return value


@HOOKS.register_module()
class TextLoggerHook(LoggerHook):
    """Prints a line for each log and appends the line to ``{work_dir}/{timestamp}.log``.

    ``Epoch [4][100/1000]  lr: 1.000e-01, eta: 0:10:00, time: 0.250, data_time: 0.010, loss: ...``

    The same values as JSON are appended to ``{timestamp}.log.json``. A run resumed from a
    checkpoint continues both files: lines later than the checkpoint are removed first, so each
    iteration appears once.

    ==============  ==========================================================================
    key in JSON     value
    ==============  ==========================================================================
    mode            ``train`` or ``val``
    epoch, iter     from 1; ``iter`` counts in the epoch, or in the run if not ``by_epoch``; for a
                    ``val`` at the end of an epoch it is the number of batches, for a ``val``
                    within an epoch the current training iteration
    lr              of the first group, in the iteration's step; with several optimizers a dict of
                    rates by name
    memory          torch's peak of allocated memory, MiB, over all ranks, with CUDA
    time            seconds per iteration; ``data_time``: seconds of waiting for the batch
    any other       a value of ``runner.log_buffer.output``
    ==============  ==========================================================================

    The JSON file's first line is ``runner.meta`` unless empty. A line of ``trainer.validate`` or
    ``test`` has no ``lr``, and the epoch of ``ckpt_path``. A subclass with a ``_round_float``
    that returns the argument keeps all digits in the JSON.

    Args:
        by_epoch, interval, ignore_last, reset_flag, sync: See ``LoggerHook``.
        interval_exp_name: Iterations between two prints of ``runner.meta["exp_name"]``; the name
            is printed at the end of each epoch too.
        out_dir: A folder or URL; after the run the text files are copied into a subfolder with
            the name of the work dir.
        out_suffix: Endings of the names of the files to copy.
        keep_local: Whether copied files stay in the work dir too.
        file_client_args: ``backend``, a protocol of fsspec, and storage options; derived from
            ``out_dir`` by default.

    Raises:
        ValueError: if ``file_client_args`` is passed without ``out_dir``, or has an unknown
            backend.
        TypeError: if ``out_dir`` is no path or ``out_suffix`` no string or strings.

    Source: mmcv's ``TextLoggerHook``.

    Note:
        Departures from mmcv in the JSON: floats below 0.01 keep all digits (mmcv rounds to five
        decimals, so a learning rate of 3e-6 was 0.0), and NaN and infinity are ``null``, readable
        by strict parsers. A resumed run continues the earlier run's files (mmcv begins new files),
        unless the run has another ``timestamp``. The ``.log`` has the lines of this hook alone; a
        logger with a handler for the same file writes the lines instead. Without a known end the
        line has no ETA and the total is ``?`` (mmcv raises). A failed write or copy costs one
        warning, not the run. A run does not change ``out_dir``; if the work dir is the current
        folder, only files with the run's timestamp as prefix are copied.
    """

    _transient = ("_json", "_lines", "_resumed", "_before_validation")
    _reserved = _IN_HEAD
    start_iter = 0
    _json: LogFile | None = None
    _lines: LogFile | None = None
    _resumed: Mapping[str, Any] = MappingProxyType({})  # states of the files, by their names
    # the iteration of the last validation, and the states from before
    _before_validation: tuple[int, dict[str, Any]] = (-1, {})

    def __init__(
        self,
        by_epoch: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        interval_exp_name: int = 1000,
        out_dir: str | None = None,
        out_suffix: str | tuple[str, ...] = (".log.json", ".log", ".py"),
        keep_local: bool = True,
        file_client_args: dict[str, Any] | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, sync)
        if out_dir is None and file_client_args is not None:
            raise ValueError(
                f"file_client_args must be None without out_dir, got "
                f"{shown(masked(file_client_args))}"
            )
        check_int("interval_exp_name", interval_exp_name)
        check_bool(keep_local=keep_local)
        self.time_sec_tot = 0.0
        self.interval_exp_name = interval_exp_name
        self.out_dir = check_path("out_dir", out_dir)
        self.out_suffix = check_suffix(out_suffix)
        self.keep_local = keep_local
        self.file_client_args = check_dict("file_client_args", file_client_args)
        if self.out_dir is not None:
            self._file_system()  # raises for an unknown backend

    # -- files -----------------------------------------------------------------------------

    def before_run(self, runner: Runner) -> None:
        """Open the files; a new JSON file begins with the run's meta."""
        super().before_run(runner)
        self.time_sec_tot = 0.0
        self.start_iter = runner.iter
        self._json = self._lines = None
        resumed, self._resumed = self._resumed, {}
        if runner.may_write:
            if runner.rank == 0:
                self._claim_timestamp(runner, resumed)
            self._json = LogFile(_path(runner, ".log.json"))
            self._lines = LogFile(_path(runner, ".log")) if self._writes_lines(runner) else None
        if runner.rank != 0:
            return
        continued = [
            file.cut_back(resumed[file.name], runner.logger)
            for file in self._files
            if file.name in resumed
        ]
        if self._has_meta(runner) and not any(continued) and runner.mode not in ("val", "test"):
            self._dump_log(without_user(runner.meta or {}), runner)

    def _claim_timestamp(self, runner: Runner, resumed: Collection[str]) -> None:
        claim_timestamp(runner, resumed)

    def _has_meta(self, runner: Runner) -> bool:
        return bool(runner.meta) and runner.meta != {"hook_msgs": {}}

    @property
    def json_log_path(self) -> str:
        """The path of the JSON file; assign a path to write elsewhere."""
        return "" if self._json is None else self._json.path

    @json_log_path.setter
    def json_log_path(self, path: str) -> None:
        self._json = LogFile(path)

    @property
    def _files(self) -> list[LogFile]:
        return [file for file in (self._json, self._lines) if file is not None]

    def _writes_lines(self, runner: Runner) -> bool:
        """Whether this hook writes the ``.log``; not if the logger has a handler for the file."""
        path = os.path.abspath(_path(runner, ".log"))
        logger: logging.Logger | None = runner.logger
        while logger is not None:
            if any(getattr(handler, "baseFilename", None) == path for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the sizes of the text files, after the lines of the epoch that ends."""
        if self._files and trainer.is_global_zero:
            runner = Driver.of(trainer).runner
            self._write_earlier(runner)
            self._before_validation = runner.iter, self._states(runner)

    def _states(self, runner: Runner) -> dict[str, Any]:
        states = {text.name: text.state(runner.logger) for text in self._files}
        return {name: state for name, state in states.items() if state is not None}

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the sizes of the text files; without the lines of a validation that is repeated."""
        super()._add_to_file(file)
        trainer = file.trainer
        if self._files and trainer.is_global_zero and file.is_whole:
            runner = Driver.of(trainer).runner
            states, (iteration, before) = self._states(runner), self._before_validation
            is_cut = trainer.interrupted and trainer.validating
            if is_cut and iteration == runner.iter:
                states = before
            file.own_part.setdefault("text_logs", {}).update(states)

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Read the sizes of the text files."""
        super()._take_from_file(file)
        if file.resumes:
            self._resumed = file.own_part.get("text_logs", {})

    def after_run(self, runner: Runner) -> None:
        """Copy the text files to ``out_dir``."""
        super().after_run(runner)
        if self.out_dir is not None and runner.is_writer:
            system = self._file_system()
            copy_files(runner, system, self.out_dir, self.out_suffix, keep_local=self.keep_local)

    def _file_system(self) -> Any:
        options = dict(self.file_client_args or {})
        backend = options.pop("backend", None)
        if backend is None:
            return fsspec.core.url_to_fs(self.out_dir, **options)[0]
        # mmcv's name for the local disk
        return fsspec.filesystem("file" if backend == "disk" else backend, **options)

    # -- lines -----------------------------------------------------------------------------

    def log(self, runner: Runner) -> dict[str, Any]:
        """Print and write the output."""
        output = dict(runner.log_buffer.output)
        mode, iteration = self.get_mode(runner), self.get_iter(runner, inner_iter=True)
        record: dict[str, Any] = {
            "mode": "train_epoch" if runner.mode == "train_epoch" else mode,
            "epoch": self.get_epoch(runner),
            "iter": output.pop("eval_iter_num", iteration),  # an evaluation's number of batches
        }
        if (lr := self._line(runner).lr) is not None:
            record["lr"] = lr
        if "time" in output and torch.cuda.is_available():  # old subclasses return one without CUDA
            memory = self._get_max_memory(runner)
            if memory is not None:
                record["memory"] = memory
        # nearly every value is a float
        record.update({k: v for k, v in output.items() if type(v) is float or not is_image(v)})
        self._log_info(record, runner)
        self._dump_log(record, runner)
        return record

    def _log_info(self, log_dict: dict[str, Any], runner: Runner) -> None:
        """Print a record."""
        if log_dict["mode"] == "train" and "time" in log_dict:
            self.time_sec_tot += log_dict["time"] * self._iterations(log_dict["iter"])
        trainer = runner.trainer
        if not trainer.is_global_zero:
            return
        lines = []
        if runner.meta and "exp_name" in runner.meta and not self._line(runner).is_given:
            ends = self.by_epoch and self.end_of_epoch(runner)
            if ends or self.every_n_iters(runner, self.interval_exp_name):
                lines.append(f"Exp name: {runner.meta['exp_name']}")
        end, left = runner.max_iters, None
        if end is not None and "time" in log_dict:
            done = runner.iter + 1
            left = eta(self.time_sec_tot, done - self.start_iter, max(end - done, 0))
        total = self._batches(runner) if self.by_epoch else end
        lines.append(console_line(log_dict, by_epoch=self.by_epoch, total=total, eta=left))
        for line in map(printable, lines):
            runner.logger.info("%s", line)
            if self._lines is not None:
                now = datetime.datetime.now().isoformat(" ", "milliseconds").replace(".", ",")
                self._lines.append(f"{now} - {runner.logger.name} - INFO - {line}", runner.logger)

    def _batches(self, runner: Runner) -> int | None:
        """Return the number of batches of an epoch; None for a loader without a length."""
        batches = runner.trainer.num_training_batches
        return None if batches == float("inf") else int(batches)

    def _dump_log(self, log_dict: dict[str, Any], runner: Runner) -> None:
        """Append a record to the JSON file."""
        if self._json is not None and runner.trainer.is_global_zero:
            self._json.append(self._json_line(log_dict, runner), runner.logger)

    def _json_line(self, record: Mapping[str, Any], runner: Runner) -> str:
        return json_line(record, self._round_float)

    _round_float = staticmethod(rounded)

    def _get_max_memory(self, runner: Runner) -> int | None:
        return peak_memory(runner)


def _path(runner: Runner, suffix: str) -> str:
    return join(runner.work_dir, runner.timestamp + suffix)
