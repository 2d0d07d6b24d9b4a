"""``LightningLoggerHook``: log to any ``Logger`` of Lightning's."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lightning.pytorch import loggers as known_loggers
from lightning.pytorch.loggers.logger import DummyLogger

from lightning_hooks.engine.lightning_api import logged_values, progress
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.loggers.as_lightning_logger import HooksLogger
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer, one_at_a_time
from lightning_hooks.loggers.trackers.base import RATES, TrackerHook
from lightning_hooks.loggers.trackers.inputs import is_lightning_logger, is_logger_class
from lightning_hooks.loggers.trackers.lightning_clients import client_of
from lightning_hooks.loggers.trackers.packages import check_arguments
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.secrets import describe, masked, without_secrets
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["LightningLoggerHook", "LightningWriter", "logger_class"]


class LightningWriter(Writer):
    """One or several of Lightning's loggers; all take numbers, some take images and tables.

    Args:
        run: The loggers.
        ours: The loggers to finalize here; a Trainer finalizes the others.
        made: The loggers made here. After the fit the run of such a logger goes on for evaluations;
            the next fit ends the run.
    """

    name = "lightning"
    imports_ipython = True
    chunk = 8
    slow_start = 60.0

    _idle: ClassVar[list[tuple[int, Any]]] = []  # loggers of ended fits, with their process

    def __init__(self, run: Sequence[Any], ours: Sequence[Any], made: Sequence[Any] = ()) -> None:
        super().__init__(list(run))
        self._ours, self._made = ours, made
        self.takes = {kind for logger in self.run for kind in client_of(type(logger)).log}

    @classmethod
    def connect(
        cls,
        *,
        run: tuple[Sequence[Any], bool] | None = None,
        loggers: Sequence[Mapping[str, Any]] = (),
    ) -> LightningWriter:
        """Make loggers, in addition to existing loggers.

        Args:
            run: Loggers, and whether to finalize the loggers here.
            loggers: A dict for each further logger, with ``type`` and arguments.
        """
        given, are_ours = run or ((), False)
        with one_at_a_time(cls.name):  # else two loggers would choose the same version
            if loggers:
                cls._end_idle()
            made = [logger_class(each["type"])(**_arguments(each)) for each in loggers]
            for logger in made:
                with contextlib.suppress(Exception):  # comes again at the first log
                    client_of(type(logger)).begin(logger)
        if run is None and not made:
            raise ValueError("loggers must have an entry, got none")
        return cls([*given, *made], [*(given if are_ours else ()), *made], made)

    @classmethod
    def _end_idle(cls) -> None:
        """End the runs of earlier fits, which new loggers would use otherwise."""
        while cls._idle:
            process, logger = cls._idle.pop()
            if process == os.getpid():  # a forked process leaves the runs alone
                client: Any = client_of(type(logger))
                with contextlib.suppress(Exception):
                    client.end(logger)

    @classmethod
    def options(cls, run: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the loggers given as dicts, as JSON."""
        loggers = without_secrets(plain(arguments.get("loggers")))
        return {"logger": json.dumps(loggers, default=str)} if loggers else {}

    @classmethod
    def reopen(cls, *, logger: str | None = None) -> LightningWriter:
        """Make the logger, or the list of loggers, of a JSON."""
        try:
            loggers = json.loads(logger or "")
        except ValueError:
            example = '{"type": "CSVLogger", "save_dir": "logs"}'
            text = f"lightning needs the option logger, such as {example}, got"
            raise ValueError(f"{text} {shown(masked(logger))}") from None
        return cls.connect(
            loggers=[*map(_checked, loggers if isinstance(loggers, list) else [loggers])]
        )

    def log(self, record: Record) -> None:
        """Log the values of a step to each logger."""
        if record.images and "images" not in self.takes:  # of a hook, in the log buffer
            self.note = f"these loggers hold no images: {', '.join(record.images)} is left out"
        super().log(record)

    def calls(self, record: Record) -> Iterator[Callable[[], object]]:
        """Yield a call for the numbers of a step, and for each sample, of each logger."""
        for logger in self.run:
            if record.scalars:
                log = partial(logger.log_metrics, metrics=dict(record.scalars), step=record.step)
                yield partial(self._call, logger, log)
            for kind, send in client_of(type(logger)).log.items():
                for name, sample in getattr(record, kind).items():
                    log = partial(send, logger, name, sample, record.step)
                    yield partial(self._call, logger, log)

    def params(self, params: Mapping[str, Any]) -> None:
        """Log hyper-parameters."""
        for logger in self.run:
            self._call(logger, partial(logger.log_hyperparams, dict(params)))

    @property
    def lag(self) -> float:  # type: ignore[override]
        """The longest lag of the loggers."""
        return max((client_of(type(logger)).lag(logger) for logger in self.run), default=0.0)

    def flush(self) -> None:
        """Make the loggers save; the Trainer saves its own loggers."""
        for logger in self._ours:
            self._call(logger, logger.save)

    def end(self, failed: bool) -> None:
        """Finalize the loggers without a Trainer."""
        for logger in self._ours:
            self._call(logger, partial(logger.finalize, "failed" if failed else "success"))
        kept_open = (logger for logger in self._made if client_of(type(logger)).end)
        self._idle.extend((os.getpid(), logger) for logger in kept_open)

    def _call(self, logger: Any, call: Callable[[], object]) -> None:
        """Call a logger; if one of several loggers refuses the input, note the error."""
        try:
            client_of(type(logger)).check(logger)
            call()
        except Exception as error:
            if len(self.run) == 1 or not self.is_permanent(error):
                raise
            name = getattr(getattr(call, "func", call), "__name__", "").lstrip("_")
            self.note = f"{type(logger).__name__}.{name} raised {describe(error)}"


def logger_class(name: str) -> Any:
    """Return a logger's class by name in ``lightning.pytorch.loggers``, or by path.

    Raises:
        UnknownNameError: for an unknown name, with the closest name.
        ImportError: for a missing module.

    >>> logger_class("CSVLogger").__name__, logger_class("lightning.pytorch.loggers.CSVLogger")
    ('CSVLogger', <class 'lightning.pytorch.loggers.csv_logs.CSVLogger'>)
    """
    module, _, cls = name.rpartition(".")
    home = importlib.import_module(module) if module else known_loggers
    kind = getattr(home, cls, None)
    if not is_logger_class(kind):
        known = [each for each in vars(home) if each.endswith("Logger")]
        raise UnknownNameError(f"{home.__name__} has no logger {cls!r}; {suggest(cls, known)}")
    return kind


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "type"}


@HOOKS.register_module()
class LightningLoggerHook(TrackerHook):
    """Logs to any Lightning ``Logger``, such as the loggers of Comet, SwanLab or Aim.

    The keys are the keys of ``get_loggable_tags``. By default the loggers are the Trainer's own:
    the hook adds the values missing in the module's ``self.log``, at Lightning's step, while the
    training waits, because Lightning calls the same loggers. Any other logger is called beside the
    training, at the iteration, with all values and the module's hyper-parameters. The
    loggers of TensorBoard, MLflow, W&B, Comet, SwanLab and Aim get images and tables. The end of a
    short run waits up to a minute for a logger that is slow to start, such as Comet's. Comet is
    offline with ``COMET_START_ONLINE=0`` in the environment: ``CometLogger(online=False)`` stores
    nothing. Each fit makes the loggers given as dicts anew; evaluations go on with the loggers of
    the fit before.

    Args:
        logger: A ``Logger``; a dict with ``type``, a name in ``lightning.pytorch.loggers`` or a
            path, and arguments; or a list of loggers and dicts. The names ``class_path`` and
            ``init_args`` of a LightningCLI work too. The work dir is the default of ``save_dir``.
            None for the Trainer's own loggers.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        options: See ``TrackerHook``. The printed ``lightning-hooks replay`` command contains
            loggers given as dicts; for other loggers add ``--logger``. A resumed run continues the
            logger's run if the logger does so, by ``version`` or ``id``.

    Raises:
        TypeError: for another ``logger``, or an unknown argument of the logger.
        UnknownNameError: for an unknown name of a logger.

    Note:
        mmcv has no such hook.

    >>> from lightning.pytorch.loggers import CSVLogger
    >>> hook = LightningLoggerHook(CSVLogger("logs"), interval=10)
    >>> hook = LightningLoggerHook(dict(type="CSVLogger", save_dir="logs"), interval=10)
    """

    _writer_class = LightningWriter
    _transient = ("_current", "_shares", "_client_run")
    loggers: Sequence[Any] = ()
    _current: Sequence[Any] = ()  # the loggers of the run
    _shares = False
    _client_run: Any = None  # the loggers of the run given as objects, and whether to finalize them

    def __init__(
        self,
        logger: Any = None,
        interval: int = 50,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        **options: Any,
    ) -> None:
        if options.get("run") is not None:
            raise TypeError("LightningLoggerHook takes an open run by its logger: logger=...")
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        given = list(logger) if isinstance(logger, (list, tuple)) else [logger]
        self.loggers = [] if logger is None else [_checked(each) for each in given]

    @property
    def _synchronous(self) -> bool:  # type: ignore[override]
        """Whether training waits for each log: Lightning calls the Trainer's loggers too."""
        return self._shares

    def before_run(self, runner: Runner) -> None:
        """Find the loggers of the run."""
        self._find_loggers(runner)
        super().before_run(runner)

    def _deliver_rest(self, runner: Runner) -> None:
        self._find_loggers(runner)
        super()._deliver_rest(runner)

    def _find_loggers(self, runner: Runner) -> None:
        no_backends = DummyLogger, HooksLogger
        of_trainer = [x for x in runner.trainer.loggers if not isinstance(x, no_backends)]
        # an evaluation goes on with the loggers of the fit before
        own = self.loggers if in_fit(runner) else self._current_run or self.loggers
        self._current = own if self.loggers else of_trainer
        self._shares = any(logger is other for logger in self._current for other in of_trainer)
        given = [each for each in self._current if not isinstance(each, dict)]
        self._client_run = (given, not self._shares) if given or not self._current else None
        if not self._current and runner.is_writer:
            runner.logger.warning(
                "LightningLoggerHook: the Trainer has no logger, so nothing is logged there; write "
                "Trainer(logger=...) or LightningLoggerHook(logger=...)"
            )

    def log(self, runner: Runner) -> None:
        """Append the values to the spool, unless the run has no logger."""
        if self._current:
            super().log(runner)

    def _log_given(self, runner: Runner, values: Mapping[str, Any]) -> None:
        """Keep values of a Lightning ``Logger``; the Trainer's own loggers have them."""
        if not self._shares:
            super()._log_given(runner, values)

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return the loggers given as dicts, which the writer makes."""
        made = [each for each in self._current if isinstance(each, dict)]
        return {"loggers": [_with_folder(each, runner.work_dir) for each in made]}

    def _parameters(self, runner: Runner) -> dict[str, Any]:
        """Return the module's hyper-parameters; Lightning sends them to the Trainer's loggers."""
        return {} if self._shares else super()._parameters(runner)

    @property
    def _takes(self) -> Collection[str]:
        """The kinds of samples that a logger of the run holds."""
        classes = (
            logger_class(logger["type"]) if isinstance(logger, dict) else type(logger)
            for logger in self._current or self.loggers
        )
        return {kind for cls in classes for kind in client_of(cls).log}

    @property
    def _logs_epoch(self) -> bool:  # type: ignore[override]
        """Whether each line has the number of the epoch: Lightning adds it for the Trainer's."""
        return not self._shares

    def get_iter(self, runner: Runner, inner_iter: bool = False) -> int:
        """The number of the iteration; Lightning's own step for the Trainer's loggers."""
        if self._shares:
            return progress.logged_step(runner.trainer)
        return super().get_iter(runner, inner_iter)

    def get_loggable_tags(self, runner: Runner, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the values; for the Trainer's loggers without values logged by Lightning."""
        tags = super().get_loggable_tags(runner, *args, **kwargs)
        if not self._shares:
            return tags
        there, kept = logged_values.names_for_loggers(runner.trainer)
        prefix = f"{self.get_mode(runner)}/"
        if (runner.train_log.loss_names & there) - {name.removeprefix(prefix) for name in tags}:
            there.add("loss")
        old = there | kept
        new = {
            k: v
            for k, v in tags.items()
            if not {k, k.removeprefix(prefix), k.removeprefix(logged_values.RAW)} & old
        }
        return new if any(name.split("/")[0] not in RATES for name in new) else {}


def _checked(logger: Any) -> Any:
    """Return a logger, or a logger's dict with the name as ``type``."""
    if is_lightning_logger(logger):
        return logger
    if not isinstance(logger, Mapping):
        raise TypeError(
            f"logger must be a Logger of Lightning's or a dict, got {shown(masked(logger))}"
        )
    config = dict(logger)
    name = config.pop("class_path", config.pop("type", None))
    if not isinstance(name, str):
        raise TypeError(
            f"logger must have the name of its class as 'type', got {shown(masked(logger))}"
        )
    config = {"type": name, **(config.pop("init_args", None) or {}), **config}
    check_arguments(logger_class(name), _arguments(config), "LightningLoggerHook")
    return config


def _with_folder(config: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    parameters = inspect.signature(logger_class(config["type"])).parameters
    if "save_dir" in parameters and config.get("save_dir") is None:
        return {**config, "save_dir": folder}
    return config
