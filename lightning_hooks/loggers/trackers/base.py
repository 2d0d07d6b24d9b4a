"""``TrackerHook``: a logger that sends values to an experiment tracker and never ends a run."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.loggers.delivery.record import as_image, is_image
from lightning_hooks.loggers.delivery.session import Sending
from lightning_hooks.loggers.delivery.unsent import shared_folder
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.log_tags import by_group, peak_memory
from lightning_hooks.loggers.trackers.inputs import check_run, experiment, flat
from lightning_hooks.loggers.trackers.packages import check_arguments, import_all, tolerant
from lightning_hooks.storage.files import is_local, join
from lightning_hooks.utils.arguments import check_bool, check_number
from lightning_hooks.utils.plain_types import plain

__all__ = ["TrackerHook"]


class TrackerHook(LoggerHook):
    """The base of loggers with a :class:`Writer`: give ``writer_class`` and ``target``.

    What is logged is appended to ``{work_dir}/spool/{timestamp}-{backend}.jsonl``, which takes
    some ten microseconds; a thread brings it from there to the backend. A backend that is slow,
    hangs, raises or is not there costs a warning and slows no step. What it has not taken when
    the run ends, or is killed, stays in that file, and ``lightning-hooks replay
    FILE`` sends it later: the next run in the same work dir says so. Otherwise the file is removed.

    A process that resumes a run begins a run of its own in the tracker, at the checkpoint's
    iteration: the run before keeps what it was sent, also of iterations that were lost. Where both
    write to one place it is this that comes of it:

    ===============  =========================================================================
    TensorBoard      one folder: the points after the checkpoint are taken back (``purge_step``)
    DVCLive          one folder: rows are appended, those after the checkpoint are there twice
    Visdom           one window for each name: the lines go back and are drawn over
    MLflow, W&B      with ``run=``: both values of a step are kept, MLflow shows the later one;
                     W&B has ``global_step`` as a value there, since its own steps never go back
    W&B, same id     ``init_kwargs=dict(id=..., resume="allow")``: W&B drops rows up to its last
                     step; with ``with_step=False`` it keeps them
    any              what the killed process has not sent is in its spool, up to its last log;
                     replay it before the run is resumed, or leave it
    ===============  =========================================================================

    Only rank 0 writes. An error that ends the training closes the run as a failed one.

    Args:
        interval: Iterations between two logs.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten afterwards; in a run the last logger's are.
        by_epoch: Whether the run is counted in epochs.
        run: A run that is there already, of the client or of a Lightning ``Logger``; it is used
            and left open.
        timeout: Seconds after the last iteration in which the backend is to take the rest; it
            has one more for each megabyte of files.
        strict: Whether what cannot be delivered is an error, for tests.
        all_groups: Whether the learning rate and momentum of every parameter group are sent, under
            its name or number, beside those of the first.
        timings: Whether ``time`` and ``data_time`` are sent too, in seconds, and ``memory``, the
            most that torch has allocated on a device, in MiB.

    Raises:
        ValueError: if ``timeout`` is negative.
        TypeError: if ``run`` is no run of the backend's, or an argument has a wrong type; when the
            run begins, if the client has no argument of a name that was given.

    Note:
        Departures from mmcv: only numbers and images are sent (mmcv sends lists too, which most
        trackers refuse). Images are tensors or arrays ``[C, H, W]`` with 1, 3 or 4 channels, of
        0 to 1 if they are floats. ``module.hparams`` are the run's hyper-parameters.
    """

    writer_class: type[Writer]
    """What writes to the backend."""

    package: str
    """The backend's package, and the extra that installs it."""

    run_has: str = "log"
    """What a client's run is told by: an attribute of it."""

    texts: bool = False
    """Whether strings are sent too."""

    at_once: bool = False
    """Whether ``before_run`` and ``log`` wait until the client is there and has all."""

    timeout = 10.0
    strict = all_groups = timings = False
    _client_run: Any = None
    _sending: Sending | None = None
    _peers: Sequence[TrackerHook] = ()

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        run: Any = None,
        timeout: float = 10.0,
        strict: bool = False,
        all_groups: bool = False,
        timings: bool = False,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        check_number("timeout", timeout, 0)
        check_bool(strict=strict, all_groups=all_groups, timings=timings)
        self._client_run = check_run(run, self.run_has, type(self).__name__)
        self.timeout = timeout
        self.strict = strict
        self.all_groups = all_groups
        self.timings = timings

    # -- what a backend defines ------------------------------------------------------------

    def target(self, runner: Any) -> dict[str, Any]:
        """Return the arguments of ``writer_class.connect``, in types that JSON has."""
        raise NotImplementedError(f"{type(self).__name__} must define target(runner)")

    def for_client(self) -> tuple[Callable[..., Any], Mapping[str, Any]] | None:
        """Return what the client is started by, and the user's own arguments of it, if any."""
        return None

    def modules(self, runner: Any) -> Sequence[str]:
        """Return what the client imports as it starts: it is imported before the first step."""
        return (self.package,)

    def running(self) -> Any:
        """Return the program's own run in the backend, if one is active: it is used then."""
        return None

    def existing(self) -> Any:
        """Return the run that was given, as ``writer_class.connect`` takes it."""
        return experiment(self._client_run)

    def parameters(self, runner: Any, own: bool) -> dict[str, Any]:
        """Return the run's hyper-parameters: the module's, unless the run is someone else's."""
        return flat(logged_values.hyper_parameters(runner.module)) if own else {}

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """Return the files of the run to send, each with the name that it has there.

        Args:
            runner: The runner.
            folder: A folder to make some in; it is removed afterwards.
        """
        return []

    # -- the run ---------------------------------------------------------------------------

    @property
    def client_run(self) -> Any:
        """The client's run; None until the backend has started it."""
        return getattr(self._sending and self._sending.writer, "run", None)

    def status(self) -> dict[str, Any]:
        """Return how many records were ``logged`` and ``sent``, and the last ``error``, if any."""
        if self._sending is None:
            return {"logged": 0, "sent": 0, "error": None}
        return self._sending.status()

    def before_run(self, runner: Any) -> None:
        """Begin to send."""
        super().before_run(runner)
        self._peers = [hook for hook in runner.hooks if isinstance(hook, TrackerHook)]
        if runner.rank == 0:
            if self in self._peers[:1]:
                self._import_for_all(runner)
            self._check_arguments()
        self._sending = self._begin(runner) if runner.rank == 0 else None
        self._settle()

    def _import_for_all(self, runner: Any) -> None:
        """Import all clients: a thread that does so later holds up each step."""
        names: list[str] = []
        for peer in self._peers:
            with contextlib.suppress(Exception):  # what is broken is told of later
                names += peer.modules(runner)
        import_all(names)

    def _settle(self) -> None:
        if self._sending is not None and self.at_once:
            self._sending.settle(self.timeout)

    def _check_arguments(self) -> None:
        found = None
        with contextlib.suppress(Exception), tolerant():  # what is broken is told of later
            found = self.for_client()
        if found is not None and self._client_run is None:
            check_arguments(*found, type(self).__name__)

    def _begin(self, runner: Any) -> Sending:
        target: dict[str, Any] = {}
        connect: Callable[[], Writer]
        run = None
        try:
            with tolerant():
                target = self.target(runner)
                run = self.running() if self._client_run is None else self.existing()
            connect = functools.partial(self.writer_class.connect, run=run, **target)
        except Exception as error:
            connect = functools.partial(_fail, error)
        name = self.writer_class.name
        sending = Sending(
            *(self.package, self.writer_class, connect, _spool_path(runner, name)),
            {"writer": name, "arguments": _without_secrets(plain(target)), "format": 1},
            *(runner.logger, type(self).__name__),
            at_once=self.at_once,
        )
        params = self.parameters(runner, own=run is None)
        if params:
            sending.append(runner.iter, params=params)
        return sending

    def log(self, runner: Any) -> None:
        """Put the values into the spool."""
        tags = self._tags(runner)  # all ranks together
        if self._sending is None:
            return
        scalars = {name: float(v) for name, v in tags.items() if self.is_scalar(v)}
        texts = {name: v for name, v in tags.items() if isinstance(v, str)}
        images = {name: as_image(v) for name, v in tags.items() if is_image(v)}
        self._sending.append(self.get_iter(runner), scalars=scalars, texts=texts, images=images)
        self._settle()
        if self.strict:
            self._sending.check()

    def _tags(self, runner: Any) -> dict[str, Any]:
        skipped = () if self.timings else ("time", "data_time")
        tags = self.get_loggable_tags(runner, allow_text=self.texts, tags_to_skip=skipped)
        if self.timings and "time" in runner.log_buffer.output:
            memory = peak_memory(runner)
            tags.update({} if memory is None else {f"{self.get_mode(runner)}/memory": memory})
        if self.all_groups:
            tags.update(by_group("learning_rate", runner, runner.current_lr))
            tags.update(by_group("momentum", runner, runner.current_momentum))
        return tags

    def after_run(self, runner: Any) -> None:
        """See that the rest is sent, by all trackers at once: all wait while one does."""
        peers, self._peers = self._peers, ()
        with contextlib.ExitStack() as folders:
            for peer in peers:
                folder = folders.enter_context(tempfile.TemporaryDirectory())
                peer._close(failed=False, files=peer._files(runner, folder))
            undelivered = [peer._wait() for peer in peers]
        for error in filter(None, undelivered):
            raise error

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run as a failed one."""
        peers, self._peers = self._peers, ()
        for peer in peers:
            peer._close(failed=True)
        for peer in peers:
            peer._wait()

    def _files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        if self._sending is None or self._sending.given_up:
            return []
        try:
            with tolerant():
                return self.files(runner, folder)
        except Exception as error:
            self._sending.tell("given the run's files", error)
            return []

    def _close(self, failed: bool, files: Sequence[tuple[str, str]] = ()) -> None:
        self._peers = ()
        if self._sending is not None:
            self._sending.close(self.timeout, failed=failed, files=files)

    def _wait(self) -> Exception | None:
        error = None if self._sending is None else self._sending.wait()
        return error if self.strict else None

    def __getstate__(self) -> dict[str, Any]:
        own = ("_sending", "_peers")
        return {k: v for k, v in super().__getstate__().items() if k not in own}


def _fail(error: Exception) -> Writer:
    raise error


def _spool_path(runner: Any, name: str) -> str:
    work_dir = runner.work_dir.removeprefix("file://")
    if not is_local(work_dir):  # nothing can be appended there
        work_dir = shared_folder()
    return join(work_dir, "spool", f"{runner.timestamp}-{name}.jsonl")


def _without_secrets(value: Any) -> Any:
    """The arguments without what opens an account: the spool is a file that people pass on."""
    if isinstance(value, dict):
        secret = ("token", "key", "password", "secret")
        kept = {k: v for k, v in value.items() if not any(s in str(k).lower() for s in secret)}
        return {k: _without_secrets(v) for k, v in kept.items()}
    return value
