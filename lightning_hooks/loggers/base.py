"""``LoggerHook``: the base of all loggers. It averages values and names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from torch import distributed

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.logged_values import RAW
from lightning_hooks.engine.priority import loggers_of
from lightning_hooks.engine.runner.line import Line, in_fit
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.loggers.as_lightning_logger import HooksLogger
from lightning_hooks.utils.arguments import check_bool, check_int
from lightning_hooks.utils.ranks import is_distributed
from lightning_hooks.utils.samples import as_image, is_image, is_scalar

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["LoggerHook", "by_kind", "keys_of", "peak_memory"]


def by_kind(tags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort tags into ``scalars``, ``texts`` and ``images``; other values are left out.

    >>> by_kind({"loss": 0.5, "best": "cat", "recalls": [0.1, 0.2]})
    {'scalars': {'loss': 0.5}, 'texts': {'best': 'cat'}, 'images': {}}
    """
    kinds: dict[str, dict[str, Any]] = {"scalars": {}, "texts": {}, "images": {}}
    for name, value in tags.items():
        if is_scalar(value):
            kinds["scalars"][name] = float(value)
        elif isinstance(value, str):
            kinds["texts"][name] = value
        elif is_image(value):
            kinds["images"][name] = as_image(value)
    return kinds


class LoggerHook(Hook):
    """The base of loggers: calls ``log(runner)`` with the values of a line as the output.

    A line at iteration ``t`` averages the values of the iterations ``t - interval + 1`` to ``t``,
    independently of other loggers' intervals; a key without values in this window is absent. A
    validation has a separate line with the averages over the validation's batches. Values from
    other hooks in ``runner.log_buffer.output``, such as the results of an evaluation, are logged
    unchanged, once by each logger: immediately if the hook sets ``log_buffer.ready``, else in the
    next line. Learning rate and momentum are the values used by the iteration's step. A tensor
    logged by the module under another name and returned as ``loss`` appears once, as ``loss``.

    Args:
        interval: Iterations between two lines, counted in the epoch or, with ``by_epoch=False``,
            in the run; 0 logs nothing within the epoch.
        ignore_last: Whether to leave out the last iterations of an epoch if fewer than
            ``interval`` remain. An epoch without another line logs them anyway.
        reset_flag: Whether to clear the output after logging. A run sets the flag: true for the
            last logger, false for all others.
        by_epoch: Whether the run is counted in epochs.
        sync: Whether to average over the ranks, with one collective a line; by default a line has
            the averages of rank 0. With ``sync`` every rank must have the logger.

    Raises:
        TypeError: if ``interval`` is not an integer.
        ValueError: if ``interval`` is negative.

    Source: mmcv's ``LoggerHook``.

    Note:
        Departures from mmcv: a line averages the values of the line's iterations (mmcv: the last
        ``interval`` values of each key, also where some iterations have none), and each logger
        has an interval of its own (in mmcv all loggers log whenever any logger does). An epoch, or
        a run by iteration, shorter than the interval has one line at the end. By iteration a window
        reaches back into the previous epoch. A run without ``IterTimerHook`` logs training values
        as ``train`` (mmcv: ``val``). Training and validation have separate log buffers and are
        never averaged together. Where the Trainer validates within epochs, a validation's line has
        the current epoch and training iteration; so has an evaluation by a hook within an epoch
        (mmcv: the number of batches). Only the last logger clears the output, so all loggers see an
        evaluation's results; the next run sets ``reset_flag`` anew. ``eval_iter_num`` is no tag. A
        name with the mode as prefix (``val/acc``) gets no second prefix. 0-d tensors are scalars
        (mmcv raises TypeError). Two names of one key, such as ``acc`` and ``train/acc``, are both
        kept, and a warning says so. The last, shorter line of an epoch with ``ignore_last=False``
        averages its own iterations (in mmcv the last ``interval``). A run without optimizer logs no
        learning rate (mmcv raises). Values of a whole epoch, and of a test or validation outside
        of a fit, are logged once.
    """

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        sync: bool = False,
    ) -> None:
        super().__init__()
        check_int("interval", interval, 0)
        check_bool(ignore_last=ignore_last, reset_flag=reset_flag, by_epoch=by_epoch)
        check_bool(sync=sync)
        self.interval = interval
        self.ignore_last = ignore_last
        self.reset_flag = reset_flag
        self.by_epoch = by_epoch
        self._sync = sync

    _reads_step = False
    _reads_log_buffer = True
    _timings = False
    """Whether the times of batches alone are values to log."""

    @property
    def _writes_files(self) -> bool:
        """Whether the hook writes files or to a tracker, as loggers do."""
        return True

    _transient: Sequence[str] = (
        *("_results", "_read", "_resumed_results", "_line_at", "_given", "_names_of_lines"),
    )
    _results: Mapping[str, Any] = MappingProxyType({})  # of other hooks, not logged yet
    _resumed_results: Mapping[str, Any] | None = None  # of the resumed file, until the first step
    _read = 0  # the number of the last result read in the output
    _line_at: int | None = None  # the iteration of the last line
    _given: GivenValues | None = None  # of a Lightning Logger, not logged yet
    _names_of_lines: frozenset[str] = frozenset()  # of all values in the lines of the run
    _reserved: Collection[str] = ()
    """Names that no value of a Lightning ``Logger`` may have."""

    def log(self, runner: Runner) -> Any:
        """Log the values of ``runner.log_buffer.output``."""
        raise NotImplementedError(f"{type(self).__name__} must define log(runner)")

    # -- schedule --------------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Serve the Trainer's :func:`~lightning_hooks.hooks_logger`, if there is one."""
        super().setup(trainer, pl_module, stage)
        self._resumed_results = None
        for logger in trainer.loggers:
            if isinstance(logger, HooksLogger):
                logger.begin(trainer)

    def before_run(self, runner: Runner) -> None:
        """Let the last logger of the run clear the output, and no other."""
        loggers = loggers_of(runner.hooks)
        for hook in loggers:
            hook.reset_flag = hook is loggers[-1]
        self._results, self._read, self._line_at = {}, 0, None
        self._names_of_lines = frozenset()

    def before_epoch(self, runner: Runner) -> None:
        """Drop the previous epoch's values, except for windows of loggers by iteration."""
        _forget_epoch(runner)

    def after_train_iter(self, runner: Runner) -> None:
        """Log the averages of the last iterations every ``interval`` iterations."""
        buffer = runner.log_buffer
        if self._given is not None:
            self._write_earlier(runner)
        # an evaluation within an epoch has the iteration in the log, not the number of batches
        self._read_results(buffer, leave_out="eval_iter_num")
        done = (runner.inner_iter if self.by_epoch else runner.iter) + 1
        now = buffer.progress.completed
        length = self._length(runner, done)
        # an evaluation by a hook may have logged this iteration before
        if length and self._line_at != now:
            self._line_at = now
            self._log_line(runner, length)
        elif buffer.ready and self._results:
            self._log_line(runner)
        if self.reset_flag and (buffer.output or buffer.ready):
            buffer.clear_logged()

    def after_train_epoch(self, runner: Runner) -> None:
        """Log an epoch shorter than the interval, and the results of other hooks."""
        self._read_results(runner.log_buffer)
        self._log_end_of_epoch(runner)
        if self.reset_flag:
            runner.log_buffer.clear_logged()
            _forget_epoch(runner)

    def after_epoch(self, runner: Runner) -> None:
        """Log the rest of a run by iteration that has ended early."""
        if not self.by_epoch:
            self._log_rest(runner, runner.iter)

    def after_val_epoch(self, runner: Runner) -> None:
        """Log the averages of a validation."""
        self._log_all(runner)
        if self.reset_flag:
            runner.log_buffer.clear_output()

    def after_run(self, runner: Runner) -> None:
        """Log the last values of a Lightning ``Logger``."""
        self._write_given(runner)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Log the last values of a Lightning ``Logger``."""
        if self._given is not None:
            self._write_given(Driver.of(trainer).runner)

    def _log_values(self, runner: Runner) -> None:
        """Log values of a whole training epoch, or of a further validation, test or such.

        Outside of a fit the log is opened before and closed afterwards.
        """
        if in_fit(runner):
            self._log_all(runner)
            return
        self.before_run(runner)
        try:
            self._log_all(runner)
        finally:
            self.after_run(runner)

    def _length(self, runner: Runner, done: int) -> int:
        """Return the number of iterations of a line after the ``done``-th; 0 for no line."""
        if self.interval and done % self.interval == 0:
            return self.interval
        if not self.ignore_last and self.end_of_epoch(runner):
            return self._iterations(done)
        return done if done < self.interval and self._ends(runner) else 0

    def _iterations(self, done: int) -> int:
        """Return the number of iterations of a line that ends with the ``done``-th."""
        return done % self.interval or self.interval if self.interval else done

    def _ends(self, runner: Runner) -> bool:
        """Whether the epoch, or the run if counted in iterations, ends with this iteration."""
        if runner.should_stop or self.is_last_iter(runner):
            return True
        return self.end_of_epoch(runner) and (self.by_epoch or self.is_last_epoch(runner))

    def _log_all(self, runner: Runner) -> None:
        runner.log_buffer.average()
        output = runner.log_buffer.output
        averages = {name: value for name, value in output.items() if name in output.averages}
        unshown = {"eval_iter_num"} if self._timings else {"eval_iter_num", "time", "data_time"}
        if not unshown.issuperset(output):
            self._write(runner, averages, output.results())

    def _log_end_of_epoch(self, runner: Runner) -> None:
        ends = self.is_last_epoch(runner) or runner.iter == runner.max_iters or runner.should_stop
        if self.by_epoch or ends or not self.ignore_last:
            self._log_rest(runner, runner.inner_iter + 1 if self.by_epoch else runner.iter)
        if runner.log_buffer.ready and self._results:
            self._log_line(runner)

    def _log_rest(self, runner: Runner, done: int) -> None:
        """Log the rest of an epoch, or run, of ``done`` iterations that has ended early."""
        is_short, has_lines = 0 < done < self.interval, self._line_at is not None
        if self._line_at == runner.log_buffer.progress.completed - 1:
            return
        if not (is_short or (has_lines and not self.ignore_last)):
            return
        # up to the next iteration
        averages = runner.log_buffer.window(self._iterations(done) + 1)
        if averages:
            results = self._results if runner.log_buffer.ready else {}  # these have another line
            given, self._results = {} if results else self._results, results
            self._write(runner, averages, given, ended=True)

    def _log_line(self, runner: Runner, n: int = 0) -> None:
        """Log averages of ``n`` iterations, and the results of other hooks not logged yet."""
        results, self._results = self._results, {}
        self._write(runner, runner.log_buffer.window(n) if n else {}, results)

    def _write(
        self,
        runner: Runner,
        averages: Mapping[str, Any],
        results: Mapping[str, Any],
        *,
        ended: bool = False,
    ) -> None:
        """Log a line; ``ended`` as in :meth:`Line.of`."""
        if self._given is not None:
            self._write_earlier(runner)
        if self._sync and averages:
            averages = mean_over_ranks(averages)
        self._names_of_lines |= averages.keys() | results.keys()
        line = Line.of(runner, averages, results, by_epoch=self.by_epoch, ended=ended)
        with runner.log_buffer.showing(line):
            self.log(runner)

    def _read_results(self, buffer: LogBuffer, leave_out: str = "") -> None:
        """Keep what other hooks have written into the output, for the next line."""
        if self._resumed_results is not None:
            self._results, self._read = self._resumed_results, buffer.loaded
            self._resumed_results = None
        output = buffer.output
        if output.number > self._read:
            self._results = {**self._results, **output.results(since=self._read)}
            self._results.pop(leave_out, None)
            self._read = output.number

    # -- checkpoints -----------------------------------------------------------------------

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the results not logged yet; log the values of a Lightning ``Logger`` so far."""
        super()._add_to_file(file)
        if not file.is_whole:
            return
        runner = Driver.of(file.trainer).runner
        if self._given is not None:
            self._write_earlier(runner)
            if not self._comes_again(runner):
                self._write_given(runner)
        results = {**self._results, **runner.train_log.output.results(since=self._read)}
        numbers = {name: float(v) for name, v in results.items() if isinstance(v, Real)}
        file.own_part.setdefault("results", []).append(numbers)

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Read the results not logged yet, if the Trainer has as many loggers as the file's."""
        loggers = [hook for hook in callbacks_of(file.trainer) if isinstance(hook, LoggerHook)]
        results = file.own_part.get("results", [])
        if file.resumes and len(results) == len(loggers):
            pairs = zip(loggers, results, strict=True)
            self._resumed_results = next((r for hook, r in pairs if hook is self), None)

    # -- values of a Lightning Logger --------------------------------------------------------

    def _log_given(self, runner: Runner, values: Mapping[str, Any]) -> None:
        """Keep the values of a :class:`HooksLogger` until their iteration, or validation, is over.

        Lightning's monitors log at the beginning and the end of a batch, on the first rank: the
        values have a line of their own, without a collective.
        """
        self._write_earlier(runner)
        if self._given is None:
            # an evaluation alone, or a run that begins, has no place yet
            has_place = in_fit(runner) and runner.mode is not None
            self._given = GivenValues(
                self._place(runner), self._present(runner) if has_place else None
            )
        self._given.values.update(values)

    def _place(self, runner: Runner) -> Place:
        """Return what is the same for values that share a line."""
        ready = progress.batches(runner.trainer).current.ready
        return int(runner.iter), int(ready), bool(runner.trainer.validating)

    def _present(self, runner: Runner) -> tuple[Line, int]:
        """Return an empty line at the present place, and the step of its values."""
        line = Line.of(runner, {}, {}, by_epoch=self.by_epoch)
        return dataclasses.replace(line, rates={}, is_given=True), self.get_iter(runner)

    def _comes_again(self, runner: Runner) -> bool:
        """Whether a run resumed from a file of this moment comes to the present place again."""
        trainer, current = runner.trainer, progress.batches(runner.trainer).current
        if trainer.interrupted and (trainer.validating or progress.ends_epoch(trainer)):
            return True
        return current.completed < current.ready and runner.iter == runner.iterations_done

    def _write_earlier(self, runner: Runner) -> None:
        """Log kept values of an earlier place."""
        if self._given is not None and self._given.place != self._place(runner):
            self._write_given(runner)

    def _write_given(self, runner: Runner) -> None:
        """Log kept values."""
        given, self._given = self._given, None
        if given is not None:
            line, step = given.present or self._present(runner)
            values = self._with_own_names(runner, given.values)
            self._log_line_of_logger(runner, line, step, values)

    def _log_line_of_logger(
        self, runner: Runner, line: Line, step: int, values: dict[str, Any]
    ) -> None:
        """Log values of a Lightning ``Logger`` in a line of their own, at a step."""
        line = dataclasses.replace(line, results=values)
        with runner.log_buffer.showing(line):
            self.log(runner)

    def _with_own_names(self, runner: Runner, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by names that no value of this hook's lines has."""
        taken = {*self._reserved, *self._names_of_lines, *self._names_of_steps(runner)}
        named = {}
        for name, value in values.items():
            key, number = name, 1
            while key in taken:
                number += 1
                key = f"{name}_{number}"
            if key != name:
                runner.warn_once(
                    f"{name!r} is a name of the hooks' own lines: what trainer.logger logs by this "
                    f"name is logged as {key}"
                )
            named[key] = value
        return named

    def _names_of_steps(self, runner: Runner) -> Collection[str]:
        """Return the names of the values of training steps in this hook's lines."""
        return runner.train_log.names

    # -- names -----------------------------------------------------------------------------

    is_scalar = staticmethod(is_scalar)

    def _line(self, runner: Runner) -> Line:
        """The line that is being logged; before a line the present place of the run."""
        output = runner.log_buffer.output
        return runner.log_buffer.line or Line.of(
            runner, dict.fromkeys(output.averages), output.results(), by_epoch=self.by_epoch
        )

    def get_mode(self, runner: Runner) -> str:
        """``"train"`` if the output is an average of steps, else ``"val"``; or ``"test"``."""
        return self._line(runner).mode

    def get_epoch(self, runner: Runner) -> int:
        """The number of the epoch, from 1."""
        return self._line(runner).epoch

    def get_iter(self, runner: Runner, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` counted in the epoch.

        A validation within an epoch has the last training iteration. A validation at the end of
        an epoch has, as in mmcv, the next iteration or, in the epoch, the number of batches.
        """
        line = self._line(runner)
        return line.iter if inner_iter else line.step

    def get_step(self, runner: Runner) -> int:
        """The iteration; by epoch, the epoch for a validation at the end of an epoch."""
        is_at_end = runner.mode != "val" or self.get_iter(runner) != runner.iter
        if self.by_epoch and is_at_end and self.get_mode(runner) in ("val", "test"):
            return self.get_epoch(runner)
        return self.get_iter(runner)

    def get_lr_tags(self, runner: Runner) -> dict[str, float]:
        """``learning_rate`` of the first group; with several optimizers of each, by name."""
        return self._rates(runner, "learning_rate")

    def get_momentum_tags(self, runner: Runner) -> dict[str, float]:
        """``momentum`` of the first group; with several optimizers of each, by name."""
        return self._rates(runner, "momentum")

    def _rates(self, runner: Runner, tag: str) -> dict[str, float]:
        return {k: v for k, v in self._line(runner).rates.items() if k.partition("/")[0] == tag}

    def get_loggable_tags(
        self,
        runner: Runner,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ("time", "data_time"),
    ) -> dict[str, Any]:
        """Return the values to log by name.

        ======================================  =======================================
        key                                     value
        ======================================  =======================================
        ``train/<name>``, ``val/<name>``        each value of the output
        ``system/<name>``                       the machine's load, in every mode
        ``learning_rate``, ``momentum``         of the first group
        ``learning_rate/<optimizer>``, ...      with several optimizers
        ======================================  =======================================

        Args:
            runner: The runner.
            allow_scalar: Whether numbers are included.
            allow_text: Whether strings are included.
            add_mode: Whether names begin with the mode.
            tags_to_skip: Names to leave out.
        """
        line = self._line(runner)
        if line.is_given:
            return {k: v for k, v in runner.log_buffer.output.items() if allow_scalar}
        prefix = f"{self.get_mode(runner)}/" if add_mode else ""
        keys, tags = _keys(runner, prefix), {}
        for name, value in runner.log_buffer.output.items():
            if name in tags_to_skip or name == "eval_iter_num":
                continue
            if not allow_scalar and self.is_scalar(value):
                continue
            if not allow_text and isinstance(value, str):
                continue
            tags[keys[name]] = value
        if not line.rates:
            return tags
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}


Place = tuple[int, ...]


@dataclasses.dataclass
class GivenValues:
    """Values of a Lightning ``Logger`` that a hook has not logged yet.

    Args:
        place: What the values of a line have in common: the iterations done and begun, and whether
            a validation is in progress; or the epoch.
        present: The empty line of the place and its step; None where the run has none yet.
        values: The values by name.
    """

    place: Place
    present: tuple[Line, int] | None
    values: dict[str, Any] = dataclasses.field(default_factory=dict)


def _forget_epoch(runner: Runner) -> None:
    """Drop the values of the epoch, except for windows of loggers by iteration."""
    loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
    reach = [hook.interval for hook in loggers if not hook.by_epoch]
    runner.log_buffer.keep_window(max(reach, default=1))


def _keys(runner: Runner, prefix: str) -> dict[str, str]:
    """Return the key of each value of the output; warn once of two names that want one key."""
    buffer = runner.log_buffer
    copies = buffer.loss_names  # of the loss, in no line
    names = dict.fromkeys([*(n for n in buffer.names if n not in copies), *buffer.output])
    of_steps: Collection[str] = ()
    if prefix and runner.mode == "train_epoch":
        of_steps = keys_of(runner.train_log.names, prefix).values()
    keys = keys_of(names, prefix, of_steps)
    for name in buffer.output:
        key, wanted = keys[name], _prefixed(name, prefix)
        if key != wanted and wanted not in of_steps:
            first = next(other for other, taken in keys.items() if taken == wanted)
            text = f"{first!r} and {name!r} have one key in trackers: the second is logged as {key}"
            runner.warn_once(text)
    return keys


def keys_of(names: Iterable[str], prefix: str, of_steps: Collection[str] = ()) -> dict[str, str]:
    """Return a key with the prefix for each name, and never one key for two names.

    A series has values of steps or of epochs: a value of an epoch whose key has values of steps
    gets the ending ``_epoch``.

    Args:
        names: The names, the first of which keeps a key that several of them want.
        prefix: The prefix, such as ``"train/"``; a name that begins with it stays as it is.
        of_steps: The keys of values of steps, for names of values of epochs.

    >>> keys_of(["acc", "train/acc"], "train/")
    {'acc': 'train/acc', 'train/acc': 'train/acc_2'}
    >>> keys_of(["train/loss"], "train/", of_steps=["train/loss"])
    {'train/loss': 'train/loss_epoch'}
    """
    keys: dict[str, str] = {}
    taken = {*of_steps}
    for name in names:
        key = wanted = _prefixed(name, prefix)
        if key in taken and of_steps:
            key = f"{wanted}_epoch"
        number = 1
        while key in taken:
            number += 1
            key = f"{wanted}_{number}"
        keys[name] = key
        taken.add(key)
    return keys


def _prefixed(name: str, prefix: str) -> str:
    own = (prefix, "system/", *([RAW] if prefix == "val/" else []))
    return name if name.startswith(own) else prefix + name


def mean_over_ranks(averages: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of each value over the ranks with that key; one collective.

    >>> mean_over_ranks({"loss": 0.5})  # on one rank
    {'loss': 0.5}
    """
    if not is_distributed():
        return dict(averages)
    of_ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(of_ranks, dict(averages))
    values: dict[str, list[float]] = {}
    for of_rank in of_ranks:
        for name, value in of_rank.items():
            values.setdefault(name, []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


def peak_memory(runner: Runner) -> int | None:
    """Return torch's peak of allocated memory on the module's device, in MiB.

    The result is the maximum over the ranks, so all ranks must call this function. None without
    CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # without a collective nothing is read from the device
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
