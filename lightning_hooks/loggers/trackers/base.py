"""``TrackerHook``: the base of loggers to experiment trackers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import multiprocessing
import os
import pickle
import sys
from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import lightning as L

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import logged_values, progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.runner.line import has_rates, in_fit
from lightning_hooks.loggers.as_lightning_logger import HooksLogger
from lightning_hooks.loggers.base import LoggerHook, by_kind, keys_of, peak_memory
from lightning_hooks.loggers.delivery.notices import Notices
from lightning_hooks.loggers.delivery.sender import LINGER
from lightning_hooks.loggers.delivery.session import Session
from lightning_hooks.loggers.delivery.spool import spool_path
from lightning_hooks.loggers.delivery.tracked_run import RESUME, TrackedRun, runs_in
from lightning_hooks.loggers.delivery.writer import Writer, fail
from lightning_hooks.loggers.trackers.checkpoints import CheckpointUploads
from lightning_hooks.loggers.trackers.inputs import check_run, flatten_params, is_lightning_logger
from lightning_hooks.loggers.trackers.packages import (
    check_client,
    import_clients,
    tolerant,
    uses_package,
)
from lightning_hooks.loggers.trackers.table import options_of
from lightning_hooks.utils.arguments import (
    check_bool,
    check_choice,
    check_dict,
    check_number,
    shown,
)
from lightning_hooks.utils.attributes import weak_property
from lightning_hooks.utils.packages import require
from lightning_hooks.utils.samples import Sample, kind_of
from lightning_hooks.utils.secrets import describe, without_secrets
from lightning_hooks.utils.warn import warn

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.line import Line
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["RATES", "TrackerHook", "with_keywords"]

RATES = "learning_rate", "momentum", "epoch"
"""The beginnings of names of values with a single point at a step."""

_START, _START_OF_USED = 2.0, 20.0
"""Seconds to wait for a run with which the module may log; which the module's file imports."""


class TrackerHook(LoggerHook):
    """The base of loggers with a ``Writer``: set ``_writer_class``, override ``_target``.

    Logged values are appended to ``{work_dir}/spool/{timestamp}-{backend}.jsonl``; a thread brings
    them to the backend. A backend that is slow, hangs, raises or is down costs a warning and slows
    no step. Records not delivered when the run ends, or is killed, stay in the file. The hook, or
    the next run in the work dir, prints the ``lightning-hooks replay`` command to send the rest.

    A process resumed from a checkpoint continues the backend's run. Values of later steps already
    in the backend stay and are not stored twice; unsent records of a killed process are sent
    first, up to the checkpoint's step.

    Only rank 0 writes. An error in the training closes the run as failed.

    Args:
        interval, ignore_last, reset_flag, by_epoch, sync: See ``LoggerHook``.
        run: An open run, of the client or of a Lightning ``Logger``, to use and leave open.
        timeout: Seconds at the end for sending the rest, plus a second for each megabyte of files.
        strict: Whether an undelivered record is an error, for tests.
        resume: ``"allow"`` continues the run of the checkpoint, ``"never"`` begins a new run.
        all_groups: Whether to send every parameter group's rate, by the group's name or number.
        names: ``"mmcv"`` for ``train/loss``, ``val/acc`` and the iteration, from 1, as the step;
            ``"lightning"`` for the module's own names (``train_loss``, ``val_acc``) and the step of
            Lightning's loggers, so that a run shares charts with runs of Lightning's loggers.
        timings: Whether to send ``time`` and ``data_time`` (seconds) and the device's peak
            ``memory`` (MiB).
        upload: ``"best"``, ``"last"`` or ``"all"``: the checkpoints to send to the run, for writers
            that take checkpoints; None sends no checkpoints.

    Raises:
        ImportError: if the client is not installed.
        ValueError: if ``timeout`` is negative, or ``names``, ``resume``, ``upload`` or an argument
            of the client with a closed choice another word.
        TypeError: if ``run`` is no run of the backend, for an argument of a wrong type or unknown
            to the client, or an ``upload`` to a backend without checkpoints.

    Note:
        Departures from mmcv: only numbers and images are sent (mmcv also sends lists, refused by
        most trackers). Images are tensors or arrays ``[C, H, W]`` with 1, 3 or 4 channels,
        floats from 0 to 1 or integers from 0 to 255. ``module.hparams`` are the run's
        hyper-parameters. Each line of a fit has the number of the epoch as ``epoch``.
    """

    _writer_class: type[Writer]
    """The writer for the backend."""

    _package: str = ""
    """The backend's package, and the name of the extra; empty for a backend without a package."""

    _imported: Sequence[str] = ()
    """Modules that the client imports at the start, beside the package."""

    _start_function: str = ""
    """The function of the package that starts the client with ``init_kwargs``."""

    _logs_epoch: bool = True
    """Whether each line has the number of the epoch, by the name ``epoch``."""

    _run_attribute: str = "log"
    """An attribute of every run of the client."""

    _texts: bool = False
    """Whether to send strings too."""

    _is_global: bool = False
    """Whether the client has one active run in the process, for calls by the module."""

    _synchronous: bool = False
    """Whether ``before_run`` and ``log`` wait for the client and the delivery of all records."""

    _init_kwargs: Mapping[str, Any] = MappingProxyType({})
    """The user's arguments for the function that starts the client."""

    _transient: Sequence[str] = (
        *("_session", "_peers", "_ended", "_tracked", "_restored", "_rates_at"),
        *("_open_run", "_parents_run"),
    )
    _uploads: CheckpointUploads | None = None
    _tracked = TrackedRun()
    _restored: Mapping[str, Any] | None = None  # the checkpoint's entry, until the run has begun
    _ended: Mapping[str, Any] | None = None  # the entry of the last run
    _session: Session | None = None
    _open_run: Any = None  # of the program
    _parents_run: Any = None  # of the program that has spawned this process
    _peers: Sequence[TrackerHook] = ()
    _rates_at: int | None = None  # the step of the last line

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        sync: bool = False,
        run: Any = None,
        timeout: float = 10.0,
        strict: bool = False,
        resume: str = "allow",
        names: str = "mmcv",
        all_groups: bool = False,
        timings: bool = False,
        upload: str | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, sync)
        check_number("timeout", timeout, 0)
        check_choice("resume", resume, RESUME)
        check_choice("names", names, ("mmcv", "lightning"))
        check_bool(strict=strict, all_groups=all_groups, timings=timings)
        self._client_run = check_run(run, self._run_attribute, type(self).__name__)
        self._timeout, self._strict = timeout, strict
        self._resume, self._names = resume, names
        self._all_groups, self._timings = all_groups, timings
        self._upload = upload
        if upload is not None:
            if "checkpoints" not in self._takes:
                raise TypeError(
                    f"{type(self).__name__} sends no checkpoints, got upload={shown(upload)}"
                )
            self._uploads = CheckpointUploads(upload)
        # import_wandb() and its like are mmcv's, overridden by old subclasses
        getattr(self, f"import_{self._package}", self._require_client)()

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return the arguments of ``writer_class.connect``, to begin or continue the run."""
        raise NotImplementedError(f"{type(self).__name__} must define target(runner)")

    def _last_step(self, runner: Runner) -> int:
        """Return the last step of the checkpoint at the beginning of the run."""
        if self._names == "lightning":
            return progress.last_logged_step(runner.trainer)
        return int(runner.iter)

    def get_iter(self, runner: Runner, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; by Lightning's names Lightning's step, from 0."""
        if self._names == "lightning":
            return progress.logged_step(runner.trainer)
        return super().get_iter(runner, inner_iter)

    def _start_with(self, init_kwargs: dict[str, Any] | None, **keywords: Any) -> None:
        """Keep the arguments of the client's function, after a check of names and closed choices.

        Args:
            init_kwargs: The user's dict.
            keywords: The same by keywords of the hook, whose names the client has.
        """
        self._init_kwargs = with_keywords(init_kwargs, **keywords)
        own = init_kwargs or {}
        unchecked = {k: v for k, v in self._init_kwargs.items() if k in own or k == "mode"}
        if unchecked and self._begins_run:
            check_client(self, unchecked)

    def _require_client(self) -> None:
        """Check that the client is installed, without an import.

        Raises:
            ImportError: for a missing client; the message has the command to install it.
        """
        if self._package:
            require(self._package, type(self).__name__)

    def _modules(self, runner: Runner) -> Sequence[str]:
        """Return the modules imported at the start."""
        return (self._package, *self._imported) if self._package else ()

    def _start_arguments(self) -> Collection[str]:
        """Return the names of the user's arguments for a new run, useless to an open run."""
        return self._init_kwargs

    def _active_run(self) -> Any:
        """Return a run started by the program, if any."""
        return None

    def _passed_run(self) -> Any:
        """Return the argument ``run`` in the form for ``connect``."""
        run = self._client_run
        return run.experiment if is_lightning_logger(run) else run

    @property
    def _begins_run(self) -> bool:
        """Whether the hook has no open run by the argument ``run``."""
        return self._client_run is None

    def _run_folder(self, runner: Runner) -> str | None:
        """Return the folder of the run's files, if a folder holds one run.

        A second hook of the Trainer with the same folder has a folder apart.
        """
        return None

    def _has_other_run(self, runner: Runner) -> bool:
        """Whether the folder of a new run has files of another run, so a folder apart is needed."""
        return False

    def _parameters(self, runner: Runner) -> dict[str, Any]:
        """Return the hyper-parameters; none for a Lightning ``Logger``, which gets them itself."""
        if is_lightning_logger(self._client_run):
            return {}
        return self._plain(self._hyper_parameters(runner))

    def _plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return hyper-parameters in the form that the backend takes."""
        return flatten_params(params)

    def _hyper_parameters(self, runner: Runner) -> dict[str, Any]:
        """Return the hyper-parameters of the module, and of the Trainer's ``hooks_logger``."""
        given = [x.params for x in runner.trainer.loggers if isinstance(x, HooksLogger)]
        params = logged_values.hyper_parameters(runner.module)
        return {k: v for each in (params, *given) for k, v in each.items()}

    def _log_params(self, runner: Runner, params: Mapping[str, Any]) -> None:
        """Append hyper-parameters; before the run begins the logger keeps them."""
        if self._peers and self._session is not None:
            self._session.append(self.get_iter(runner), params=self._plain(params))

    def _files(self, runner: Runner, folders: contextlib.ExitStack) -> list[tuple[str, str]]:
        """Return the files of the run to send: pairs of a path and a name in the backend.

        Args:
            runner: The runner.
            folders: A stack for temporary folders, which are removed when the files are sent.
        """
        return []

    # -- samples ---------------------------------------------------------------------------

    @property
    def _takes(self) -> Collection[str]:
        """The kinds of samples supported by the backend."""
        return self._writer_class.takes

    def _log_sample(self, runner: Runner, name: str, sample: Sample) -> None:
        """Append an image, a table or a histogram to the spool, if supported by the backend."""
        if (kind := kind_of(sample)) not in self._takes:
            return
        if self._session is None or (in_fit(runner) and not self._peers):
            runner.warn_once(
                f"{type(self).__name__}: {name} is not logged: a fit's samples are logged from the "
                "module's on_train_start, and the hooks' before_train_epoch, to the last "
                "on_train_epoch_end"
            )
            return
        is_begun, has_prefix = runner.mode is not None, self._names != "lightning"
        if not has_prefix:
            name = name.removeprefix(f"{runner.samples.mode}/")
        step = runner.iter if has_prefix and not is_begun else self.get_iter(runner)
        self._session.append(step, **{kind: {name: sample}})

    def _log_all(self, runner: Runner) -> None:
        super()._log_all(runner)
        for name, sample in runner.samples.waiting:  # of an evaluation outside of a fit
            self._log_sample(runner, name, sample)

    # -- the run ---------------------------------------------------------------------------

    @weak_property
    def client_run(self) -> Any:
        """The client's run; None before the start."""
        return self._current_run

    @property
    def _current_run(self) -> Any:
        """The client's run; None before the start."""
        return getattr(self._session and self._session.sender.writer, "run", None)

    def status(self) -> dict[str, Any]:
        """Return how many records were ``logged`` and ``sent``, and the last ``error``, if any."""
        return self._session.status() if self._session else {"logged": 0, "sent": 0, "error": None}

    def before_run(self, runner: Runner) -> None:
        """Open the session with the backend."""
        super().before_run(runner)
        if self._peers:  # open since a fit in which a callback's own on_exception has failed
            self._peers = [self]
            self._close_all()
        restored, self._restored = self._restored, None
        self._tracked = TrackedRun.restored(restored, self._resume, self._last_step(runner))
        peers = [hook for hook in runner.hooks if isinstance(hook, TrackerHook)]
        # a resumed run that its file does not name goes on in the folder, as in mmcv
        has_begun = runner.iter > 0 and self._ended is None
        is_new = in_fit(runner) and self._tracked.after is None and not has_begun
        if self._shares_folder(runner, peers) or (is_new and self._has_other_run(runner)):
            self._tracked = dataclasses.replace(self._tracked, apart=True)
        if not in_fit(runner):
            peers = [self]  # other trackers begin and end on their own
        self._peers, self._session, self._rates_at = peers, None, None
        if runner.is_writer:
            if self in peers[:1]:
                import_clients(peers, runner)
                for peer in peers:  # before a hook's thread starts a run
                    peer._find_open_run()
            self._session = self._open_session(runner)
            if self._synchronous:
                self._session.sender.settle(self._timeout)
            if self in peers[-1:]:
                for peer in peers:
                    peer._await_global_run(runner)
        if self._uploads is not None and self._session is not None and in_fit(runner):
            self._uploads.begin(runner, self._session, self._tracked)

    def _await_global_run(self, runner: Runner) -> None:
        """Wait for the run that the module's own calls of the client need, for some seconds."""
        if self._is_global and self._session is not None:
            is_used = uses_package(type(runner.module), self._package)
            self._session.sender.await_start(_START_OF_USED if is_used else _START)

    def _find_open_run(self) -> None:
        """Find a run that the program has opened, unless the hook has the argument ``run``."""
        self._open_run = None
        if self._begins_run:
            with contextlib.suppress(Exception), tolerant():  # a broken client is reported later
                self._open_run = self._program_run()

    def _program_run(self) -> Any:
        """Return the run of the argument ``run``, or that the program has opened, if any."""
        own = self._active_run() if self._begins_run else self._passed_run()
        return self._parents_run or own

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy takes along; a spawned process takes the program's open run too."""
        state = super().__getstate__()
        if multiprocessing.context.get_spawning_popen() and self._package in sys.modules:
            try:
                with tolerant():
                    run = self._program_run()
                    pickle.dumps(run)  # a client's run may have no pickle
                state["_parents_run"] = run
            except Exception as error:
                warn(
                    f"{type(self).__name__}: the program's open run cannot be handed to a spawned "
                    f"process, which begins a run of its own ({describe(error)})"
                )
        return state

    def _shares_folder(self, runner: Runner, peers: Sequence[TrackerHook]) -> bool:
        """Whether an earlier hook of the Trainer has the folder of this hook."""
        if not self._begins_run or (own := self._run_folder(runner)) is None:
            return False
        earlier = itertools.takewhile(lambda hook: hook is not self, peers)
        same = (e for e in earlier if e._writer_class is self._writer_class and e._begins_run)
        folders = filter(None, (hook._run_folder(runner) for hook in same))
        return os.path.realpath(own) in map(os.path.realpath, folders)

    def _open_session(self, runner: Runner) -> Session:
        target, run, options = dict[str, Any](), None, dict[str, Any]()
        try:
            with tolerant():
                target = self._target(runner)
                run = self._open_run if self._begins_run else self._program_run()
            connect = functools.partial(self._writer_class.connect, run=run, **target)
            options = without_secrets(options_of(self._writer_class, run, target))
        except Exception as error:
            connect = functools.partial(fail, error)
        session = Session(
            *(self._writer_class, connect, spool_path(runner, self._writer_class.name)),
            options,
            Notices(runner.logger, type(self).__name__, self._writer_class.name),
            linger=0.0 if self._synchronous else LINGER,
            run=self._tracked,
            evaluation=not in_fit(runner),
        )
        if run is not None and in_fit(runner) and (useless := self._start_arguments()):
            text = f"the run was open before: {', '.join(useless)} have no effect"
            session.notices.log(logging.WARNING, text)
        if params := self._parameters(runner):
            session.append(runner.iter, params=params)
        return session

    def log(self, runner: Runner) -> None:
        """Append the values to the spool."""
        tags = self._tags(runner)  # on all ranks: the peak memory needs a collective
        if (session := self._session) is None:
            return
        is_axis = self._names == "lightning" and "step" in tags  # as in Lightning's loggers
        step = int(tags.pop("step")) if is_axis else self.get_iter(runner)
        follows = self.interval == 1 and runner.iter != runner.max_iters
        # a line of training at the same step has the rates and the epoch of a validation
        if (follows or step == self._rates_at) and self.get_mode(runner) != "train":
            tags = {k: v for k, v in tags.items() if k.split("/")[0] not in RATES}
        self._rates_at = step
        self._names_of_lines |= tags.keys()
        session.append(step, **by_kind(tags))
        self._settle(session)

    def _settle(self, session: Session) -> None:
        """Wait for the delivery if Lightning calls the client too; raise an error if strict."""
        if self._synchronous:
            session.sender.settle(self._timeout)
        if self._strict and (error := session.undelivered()):
            raise error

    _reserved = RATES

    def _names_of_steps(self, runner: Runner) -> Collection[str]:
        """Return the keys of the values of training steps."""
        is_mmcv = self._names == "mmcv"
        return keys_of(runner.train_log.names, "train/" if is_mmcv else "").values()

    def _log_given(self, runner: Runner, values: Mapping[str, Any]) -> None:
        """Keep the values of a :class:`HooksLogger`, unless the run has ended."""
        if in_fit(runner) and self._session is not None and not self._peers:
            names = ", ".join(values)
            runner.warn_once(f"hooks_logger: {names} came after the run's end, and is left out")
        else:
            super()._log_given(runner, values)

    def _log_line_of_logger(
        self, runner: Runner, line: Line, step: int, values: dict[str, Any]
    ) -> None:
        """Append the values of a Lightning ``Logger`` to the spool."""
        if self._session is not None:
            self._session.append(step, scalars={k: float(v) for k, v in values.items()})
            self._settle(self._session)

    def _log_values(self, runner: Runner) -> None:
        """Log values of a whole epoch; outside of a fit in the run of the fit before, if any."""
        self._restored = None if in_fit(runner) else self._ended
        super()._log_values(runner)

    def _tags(self, runner: Runner) -> dict[str, Any]:
        is_mmcv = self._names == "mmcv"
        skipped = () if self._timings else ("time", "data_time")
        tags = self.get_loggable_tags(
            runner, allow_text=self._texts, add_mode=is_mmcv, tags_to_skip=skipped
        )
        if self._timings and "time" in runner.log_buffer.output:
            memory = peak_memory(runner)
            if memory is not None:
                tags[f"{self.get_mode(runner)}/memory" if is_mmcv else "memory"] = memory
        if self._all_groups and has_rates(runner):
            tags.update(runner.step_rates.of_groups("lr", "learning_rate"))
            tags.update(runner.step_rates.of_groups("momentum", "momentum"))
        if not is_mmcv:
            tags = self._as_lightning(tags, runner)
        if tags and self._logs_epoch and in_fit(runner):
            epoch = self.get_epoch(runner) if is_mmcv else runner.trainer.current_epoch
            tags.setdefault("epoch", epoch)
        return tags

    def _as_lightning(self, tags: dict[str, Any], runner: Runner) -> dict[str, Any]:
        """Return the values by the names of Lightning's loggers; the module's own values win."""
        output = runner.log_buffer.output
        own, _ = logged_values.names_for_loggers(runner.trainer)
        tags = {k: output.get(k, v) for k, v in tags.items() if k in output or k not in own}
        if runner.mode != "train_epoch" and self.get_mode(runner) == "train":
            if "step" in tags:  # the x-axis, and no average
                tags["step"] = runner.train_log.val_history["step"][-1]
            tags = as_module_calls(tags, runner)
        return tags

    def after_run(self, runner: Runner) -> None:
        """Send the run's files and close the run."""
        if not (in_fit(runner) and any(peer._upload for peer in self._peers)):
            for error in self._close_all(runner):
                raise error

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run as failed."""
        self._restored = None  # a fit may fail before its beginning
        for peer in self._peers:
            LoggerHook.on_exception(peer, trainer, pl_module, exception)
        self._close_all()

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Send the files and close the run, after the last checkpoint."""
        runner = Driver.of(trainer).runner
        if self._restored is not None:
            self._deliver_rest(runner)
        if self._upload is not None or self._restored is not None:
            self._restored = None
            for error in self._close_all(runner):
                raise error

    def _deliver_rest(self, runner: Runner) -> None:
        """Send what a killed process has left, if the resumed fit has nothing to train."""
        run = TrackedRun.restored(self._restored, self._resume, sys.maxsize)  # no step is left out
        folder = os.path.dirname(spool_path(runner, self._writer_class.name))
        if runner.is_writer and run.has_left(folder, self._writer_class.name):
            self._tracked, self._peers = run, [self]
            self._find_open_run()
            self._session = self._open_session(runner)

    def on_checkpoints_deleted(self, paths: Sequence[str]) -> None:
        """Note deleted files; the tracker deletes its copies after the next checkpoint."""
        if self._uploads is not None:
            self._uploads.deleted += paths

    def on_checkpoint_saved(self, path: str) -> None:
        """Send a saved file, if wanted by ``upload``."""
        if self._uploads is not None and self._session is not None:
            self._uploads.send(path, is_late=not self._peers)

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the run."""
        super()._add_to_file(file)
        if self._session is not None and file.is_whole:
            runs_in(file.own_part, self._writer_class.name).append(self._session.entry())

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Read the run of the tracker in the same place."""
        super()._take_from_file(file)
        if file.resumes:
            name, hooks = self._writer_class.name, callbacks_of(file.trainer)
            same = [h for h in hooks if isinstance(h, TrackerHook) and h._writer_class.name == name]
            runs = zip(same, runs_in(file.own_part, name), strict=False)
            self._restored = next((run for hook, run in runs if hook is self), None)

    def _close_all(self, runner: Runner | None = None) -> list[Exception]:
        """Close the sessions of all trackers together, waiting for all at once.

        Args:
            runner: The runner; None if the training has failed.
        """
        if runner is not None:
            for peer in self._peers:
                peer._write_given(runner)
        with contextlib.ExitStack() as folders:
            sessions = [(peer, peer._close_session(runner, folders)) for peer in self._peers]
            errors = [(peer, s.wait()) for peer, s in sessions if s is not None]
        return [error for peer, error in errors if peer._strict and error is not None]

    def _close_session(
        self, runner: Runner | None, folders: contextlib.ExitStack
    ) -> Session | None:
        """Send the run's files and begin to close the session; return the session, if open.

        Args:
            runner: The runner; None if the training has failed.
            folders: The stack that removes the temporary folders of the files.
        """
        session, self._peers = self._session, ()
        if session is None:
            return None
        files: list[tuple[str, str]] = []
        self._ended = session.entry()
        if runner is not None and in_fit(runner) and not session.sender.given_up:
            try:
                with tolerant():
                    files = self._files(runner, folders)
            except Exception as error:
                session.notices.failed("given the run's files", error)
        session.close(self._timeout, failed=runner is None, files=files)
        return session


def as_module_calls(tags: Mapping[str, Any], runner: Runner) -> dict[str, Any]:
    """Return the values of training steps by the names that Lightning's loggers get.

    The loss has the names under which the module logs the loss, or else ``train_loss``. A value of
    steps whose name the module logs by epoch alone ends with ``_step``.
    """
    by_epoch = logged_values.epoch_names(runner.trainer)
    forked = {name: f"{name}_step" for name in by_epoch}
    forked |= logged_values.step_names(runner.trainer)
    named = {forked.get(name, name): value for name, value in tags.items() if name != "loss"}
    if "loss" in tags:
        # a name with a value of its own is a copy no more
        copies = runner.train_log.loss_names - tags.keys() - by_epoch or {"train_loss"}
        named.update({forked.get(name, name): tags["loss"] for name in sorted(copies)})
    return named


def with_keywords(init_kwargs: dict[str, Any] | None, **keywords: Any) -> dict[str, Any]:
    """Return ``init_kwargs`` with the client's arguments given as keywords.

    Raises:
        TypeError: for a keyword of another type.
        ValueError: for an argument given in both ways.

    >>> with_keywords({"mode": "offline"}, project="digits", name=None)
    {'mode': 'offline', 'project': 'digits'}
    >>> with_keywords({"project": "letters"}, project="digits")
    Traceback (most recent call last):
    ValueError: project is given twice: as a keyword, and in init_kwargs; write one of them
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    for name, value in given.items():
        if name == "tags":
            several = isinstance(value, (list, tuple, Set))
            if not several or not all(isinstance(tag, str) for tag in value):
                raise TypeError(
                    f"tags must be a list of str, such as ['baseline'], got {shown(value)}"
                )
            given[name] = list(value)
        elif isinstance(value, bool) or not isinstance(value, int if name == "port" else str):
            wanted = "an int" if name == "port" else "a str"
            raise TypeError(f"{name} must be {wanted}, got {shown(value)}")
    known = check_dict("init_kwargs", init_kwargs) or {}
    for name in given.keys() & known.keys():
        raise ValueError(
            f"{name} is given twice: as a keyword, and in init_kwargs; write one of them"
        )
    return {**known, **given}
