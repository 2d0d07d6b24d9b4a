"""``TextLoggerHook``: lines on the console, and a JSON line for each in the work dir."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import fsspec

from lightning_hooks.files import is_local, join
from lightning_hooks.hooks.logger import LoggerHook
from lightning_hooks.hooks.memory import peak_memory
from lightning_hooks.hooks.tags import of_first_group
from lightning_hooks.registry import HOOKS
from lightning_hooks.writers.records import is_image
from lightning_hooks.writers.text_line import console_line, eta, json_line, rounded
from lightning_hooks.writers.work_files import check_suffix, copy_files

__all__ = ["TextLoggerHook"]


@HOOKS.register_module()
class TextLoggerHook(LoggerHook):
    r"""Prints a line for each log and appends it to ``{work_dir}/{timestamp}.log.json``.

    ``Epoch [4][100/1000]\tlr: 1.000e-01, eta: 0:10:00, time: 0.250, data_time: 0.010, loss: ...``

    ==============  ==========================================================================
    key in JSON     value
    ==============  ==========================================================================
    mode            ``train`` or ``val``
    epoch, iter     from 1; ``iter`` counts in the epoch, or in the run if not ``by_epoch``; for
                    ``val`` it is the number of its batches
    lr              of the first group; with several optimizers a dict of them by name
    memory          the most that torch has allocated, MiB, of all ranks, where there is CUDA
    time            seconds per iteration, ``data_time`` those of waiting for the batch
    anything else   what is in ``runner.log_buffer.output``
    ==============  ==========================================================================

    The file's first line is ``runner.meta``, if there is something in it. A subclass whose
    ``_round_float`` returns what it is given keeps all digits there.

    Args:
        by_epoch: Whether the run is counted in epochs.
        interval: Iterations between two logs.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: See ``LoggerHook``.
        interval_exp_name: Iterations after which ``runner.meta["exp_name"]`` is printed; it is
            at the end of each epoch too.
        out_dir: A folder or URL; after the run its text files are copied into a folder there
            that is named as the work dir.
        out_suffix: How the names of the files to copy end.
        keep_local: Whether copied files stay in the work dir too.
        file_client_args: ``backend``, a protocol of fsspec, and its storage options; told from
            ``out_dir`` by default.

    Raises:
        ValueError: if ``file_client_args`` is given without ``out_dir``, or has an unknown
            backend.
        TypeError: if ``out_dir`` is no path or ``out_suffix`` no string or strings.

    Source: mmcv's ``TextLoggerHook``.

    Note:
        Departures from mmcv in the JSON: floats below 0.01 keep all digits (mmcv rounds to five
        decimals, so a learning rate of 3e-6 was 0.0), and NaN and infinity are ``null``, so that
        strict readers read each line. Without a known end there is no ETA and the total is
        ``?`` (mmcv raises). A file that cannot be written or copied costs one warning, not the
        run. ``out_dir`` is not changed by a run; where the work dir is the current folder, only
        files that bear the run's timestamp are copied.
    """

    _failed = False
    start_iter = 0

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
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        if out_dir is None and file_client_args is not None:
            raise ValueError("file_client_args has no meaning without out_dir")
        if not (out_dir is None or isinstance(out_dir, (str, os.PathLike))):
            raise TypeError(f"out_dir must be a path or None, got {out_dir!r}")
        self.time_sec_tot = 0.0
        self.interval_exp_name = interval_exp_name
        self.out_dir = None if out_dir is None else os.fspath(out_dir)
        self.out_suffix = check_suffix(out_suffix)
        self.keep_local = keep_local
        self.file_client_args = None if file_client_args is None else dict(file_client_args)
        if self.out_dir is not None:
            self._file_system()  # complain now

    def before_run(self, runner: Any) -> None:
        """Write the run's meta as the first line."""
        super().before_run(runner)
        self.time_sec_tot = 0.0
        self.start_iter = runner.iter
        self.json_log_path = join(
            runner.work_dir.removeprefix("file://"), f"{runner.timestamp}.log.json"
        )
        self._failed = False
        if is_local(runner.work_dir) and runner.rank == 0:
            with contextlib.suppress(OSError):  # the first line will complain
                os.makedirs(os.path.dirname(self.json_log_path), exist_ok=True)
        if runner.meta:
            self._dump_log(runner.meta, runner)

    def log(self, runner: Any) -> dict[str, Any]:
        """Print and write what is in the output."""
        output = dict(runner.log_buffer.output)
        record: dict[str, Any] = {
            "mode": self.get_mode(runner),
            "epoch": self.get_epoch(runner),
            # an evaluation's number of batches
            "iter": output.pop("eval_iter_num", self.get_iter(runner, inner_iter=True)),
        }
        lr = of_first_group(runner, runner.current_lr)
        if lr is not None:
            record["lr"] = lr
        memory = self._get_max_memory(runner) if "time" in output else None
        if memory is not None:
            record["memory"] = memory
        record.update({name: value for name, value in output.items() if not is_image(value)})
        self._log_info(record, runner)
        self._dump_log(record, runner)
        return record

    def _log_info(self, log_dict: dict[str, Any], runner: Any) -> None:
        """Print a record."""
        if log_dict["mode"] == "train" and "time" in log_dict:
            self.time_sec_tot += log_dict["time"] * self.interval
        if runner.rank != 0:
            return
        if runner.meta and "exp_name" in runner.meta:
            ends = self.by_epoch and self.end_of_epoch(runner)
            if ends or self.every_n_iters(runner, self.interval_exp_name):
                runner.logger.info("Exp name: %s", runner.meta["exp_name"])
        batches, end = runner.trainer.num_training_batches, runner.max_iters
        in_epoch = None if batches == float("inf") else int(batches)
        done = runner.iter + 1
        left = None
        if end is not None and "time" in log_dict:
            left = eta(self.time_sec_tot, done - self.start_iter, max(end - done, 0))
        total = in_epoch if self.by_epoch else end
        line = console_line(log_dict, by_epoch=self.by_epoch, total=total, eta=left)
        runner.logger.info("%s", line)

    def _dump_log(self, log_dict: dict[str, Any], runner: Any) -> None:
        """Append a record to the file, which is closed again: the line is out of our hands."""
        if runner.rank != 0 or self._failed:
            return
        line = json_line(log_dict, self._round_float) + "\n"
        try:
            # fsspec takes half a millisecond, which a folder on this machine need not cost
            opening = open if is_local(self.json_log_path) else fsspec.open
            with opening(self.json_log_path, "a", encoding="utf-8") as file:
                file.write(line)
        except Exception as error:  # a full disk, a lost mount: training goes on
            self._failed = True
            runner.logger.warning(
                "%s cannot be written (%s: %s); this run goes on without it",
                *(self.json_log_path, type(error).__name__, error),
            )

    def _round_float(self, items: Any) -> Any:
        return rounded(items)

    def _get_max_memory(self, runner: Any) -> int | None:
        return peak_memory(runner)

    def after_run(self, runner: Any) -> None:
        """Copy the text files to ``out_dir``."""
        if self.out_dir is None or runner.rank != 0:
            return
        copy_files(
            *(runner, self._file_system(), self.out_dir, self.out_suffix),
            keep_local=self.keep_local,
        )

    def _file_system(self) -> Any:
        options = dict(self.file_client_args or {})
        backend = options.pop("backend", None)
        if backend is None:
            return fsspec.core.url_to_fs(self.out_dir, **options)[0]
        # mmcv's name for the local disk
        return fsspec.filesystem("file" if backend == "disk" else backend, **options)
