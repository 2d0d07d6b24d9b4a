"""``TensorboardLoggerHook``: log to TensorBoard's event files."""

from __future__ import annotations

import io
import re
import time
import wave
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.model_state import keep_train_flags
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Names, flatten_params
from lightning_hooks.storage.files import is_local, join
from lightning_hooks.utils.arguments import check_bool, check_path
from lightning_hooks.utils.samples import Audio, Histogram, Table, Video
from lightning_hooks.utils.secrets import describe

if TYPE_CHECKING:
    from lightning_hooks.engine.checkpoint_file import CheckpointFile
    from lightning_hooks.engine.runner.runner import Runner
    from lightning_hooks.loggers.delivery.session import Session

__all__ = ["TensorboardLoggerHook", "TensorboardWriter", "as_markdown", "clean_tag", "moments"]


class TensorboardWriter(Writer):
    """An event file of TensorBoard's, where values are float32; the run is a ``SummaryWriter``.

    Args:
        run: The ``SummaryWriter``.
        owned: Whether the writer has opened the run.
        metrics: Names of the numbers in the tab HPARAMS.
    """

    name = "tensorboard"
    run_options: Mapping[str, str] = {"dir": "log_dir"}
    chunk = 8
    takes = KINDS

    def __init__(self, run: Any, *, owned: bool = True, metrics: Sequence[str] = ()) -> None:
        super().__init__(run, owned=owned)
        self._metrics = metrics
        self._names = Names(clean_tag, longest=1000)

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        log_dir: str | None = None,
        purge_step: int | None = None,
        metrics: Sequence[str] = (),
    ) -> TensorboardWriter:
        """Begin an event file in a folder, or take an open writer.

        Args:
            run: A ``SummaryWriter``.
            log_dir: The folder, or a URL.
            purge_step: The first step to log again; TensorBoard drops earlier points from there on.
            metrics: Names of the numbers in the tab HPARAMS.
        """
        from torch.utils.tensorboard import SummaryWriter

        if run is not None:
            return cls(run, owned=False, metrics=metrics)
        if purge_step is not None and log_dir is not None:
            _await_new_second(log_dir)
        return cls(SummaryWriter(log_dir, purge_step=purge_step), metrics=metrics)

    def add(self, name: str, value: Any, record: Record) -> None:
        """Add a number, a text, an image, a table as a text, or a histogram."""
        add = self.run.add_scalar
        if isinstance(value, Table):
            value = as_markdown(value)
        if isinstance(value, (Audio, Video)):
            summary = _media(self._names.of(name), value)
            self.run.file_writer.add_summary(summary, record.step, record.time)
            return
        if isinstance(value, str):
            add = self.run.add_text
        elif isinstance(value, np.ndarray):
            add = self.run.add_image
        elif isinstance(value, Histogram):
            add, value = self.run.add_histogram_raw, moments(value)
        if isinstance(value, dict):
            add(self._names.of(name), **value, global_step=record.step, walltime=record.time)
        else:
            add(self._names.of(name), value, record.step, walltime=record.time)

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters for the tab HPARAMS."""
        from torch.utils.tensorboard.summary import hparams

        flat = flatten_params(params).items()
        values = {k: v if isinstance(v, (bool, int, float)) else str(v) for k, v in flat}
        metrics = dict.fromkeys(map(self._names.of, self._metrics), 0.0)  # without the values
        for summary in hparams(values, metrics):  # type: ignore[no-untyped-call]
            self.run.file_writer.add_summary(summary)

    def flush(self) -> None:
        """Write the client's buffer."""
        self.run.flush()

    def end(self, failed: bool) -> None:
        """Close the file."""
        self.run.close()


def _media(tag: str, sample: Audio | Video) -> Any:
    """Return the summary of a sound, or of a video: TensorBoard shows a GIF as an image."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    if isinstance(sample, Video):
        image = Summary.Image(colorspace=3, encoded_image_string=sample.data)
        return Summary(value=[Summary.Value(tag=tag, image=image)])
    with wave.open(io.BytesIO(sample.data)) as file:
        audio = Summary.Audio(
            sample_rate=file.getframerate(),
            num_channels=file.getnchannels(),
            length_frames=file.getnframes(),
            encoded_audio_string=sample.data,
            content_type="audio/wav",
        )
    return Summary(value=[Summary.Value(tag=tag, audio=audio)])


def _await_new_second(log_dir: str) -> None:
    """Wait for a second without an event file: files of the same second have no fixed order."""
    while any(Path(log_dir).glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
        time.sleep(0.02)


def clean_tag(name: str) -> str:
    """Return a tag with the characters allowed by TensorBoard.

    >>> clean_tag("val/AP@50")
    'val/AP_50'
    """
    return re.sub(r"[^-/\w.]", "_", name).lstrip("/")


def as_markdown(table: Table) -> str:
    r"""Return a table as TensorBoard shows texts.

    >>> print(as_markdown(Table(("id", "label"), ((1, "a|b"), (2, None)))))
    | id | label |
    | --- | --- |
    | 1 | a\|b |
    | 2 |  |
    """
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(map(_in_markdown, row))} |" for row in rows)


def _in_markdown(cell: Any) -> str:
    return "" if cell is None else re.sub(r"\s+", " ", str(cell).replace("|", "\\|"))


def moments(counted: Histogram) -> dict[str, Any]:
    """Return a histogram in TensorBoard's form; the sums are sums over the cells' middles.

    >>> found = moments(Histogram(0.0, 1.0, (3, 1)))
    >>> found["num"], found["sum"], found["bucket_limits"]
    (4, 1.5, [0.5, 1.0])
    """
    counts, edges = np.array(counted.counts), np.array(counted.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    with np.errstate(over="ignore"):  # the square of 1e300 is infinite
        total, squares = float((counts * middles).sum()), float((counts * middles * middles).sum())
    return {
        **{"min": counted.low, "max": counted.high, "num": int(counts.sum())},
        **{"sum": total, "sum_squares": squares},
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": counts.tolist(),
    }


@HOOKS.register_module()
class TensorboardLoggerHook(TrackerHook):
    """Logs to TensorBoard, in ``{work_dir}/tf_logs``, or a folder below for each further run.

    The keys are the keys of ``get_loggable_tags``; strings are texts, and ``[C, H, W]`` tensors
    images. The tab HPARAMS has the module's hyper-parameters. Its metrics are the monitored values
    of the hooks and callbacks that keep the best checkpoint, and ``hp_metric``, the best score. A
    second hook with the same folder has a subfolder: TensorBoard follows one file of a folder.

    Args:
        log_dir: Another folder, or a URL.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        graph: Whether the tab GRAPHS has the module, traced with ``module.example_input_array`` at
            the beginning of the fit. Not for models in shards.
        options: See ``TrackerHook``; ``run`` is a ``SummaryWriter`` or a Lightning
            ``TensorBoardLogger``, to use and leave open.

    Raises:
        ImportError: if tensorboard is not installed.
        TypeError: for another ``run``, or a ``log_dir`` that is no path.

    Source: mmcv's ``TensorboardLoggerHook``.

    Note:
        Departures from mmcv: a run does not change ``log_dir``, so a second run in another work
        dir has another folder, and so has a second run in one work dir, without a resume.
        tensorboardX is not used. In a resumed run TensorBoard drops old
        points after the checkpoint (in mmcv old and new points stay).
    """

    _package = "tensorboard"
    _imported = ("torch.utils.tensorboard",)
    _writer_class = TensorboardWriter
    _run_attribute = "add_scalar"
    _texts = True
    _transient = ("_end_is_left",)
    _end_is_left = False

    def __init__(
        self,
        log_dir: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        check_bool(graph=graph)
        self.log_dir, self._graph = check_path("log_dir", log_dir), graph

    @property
    def writer(self) -> Any:
        """The ``SummaryWriter``; None before the start."""
        return self._current_run

    def _run_folder(self, runner: Runner) -> str | None:
        """Return the folder of the event files: TensorBoard follows one file of a folder."""
        return self.log_dir or join(runner.work_dir, "tf_logs")

    def _has_other_run(self, runner: Runner) -> bool:
        """Whether the work dir has event files: in one folder two runs would be one zigzag line.

        A given folder is taken as given, with a warning.
        """
        folder = str(self._run_folder(runner))
        is_used = is_local(folder) and self._begins_run and any(Path(folder).glob("events.out.*"))
        if is_used and self.log_dir is not None and runner.is_writer:
            text = "TensorboardLoggerHook: log_dir=%r has events of another run, drawn as one line"
            runner.logger.warning(text, self.log_dir)
        return is_used and self.log_dir is None

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return the folder and, for a resumed run, the step to purge from."""
        target: dict[str, Any] = {"log_dir": self._run_folder(runner)}
        prefix = "val/" if self._names == "mmcv" else ""
        monitored = [
            prefix + hook.monitor.removeprefix(prefix) for hook in _keepers_of_best(runner)
        ]
        target["metrics"] = ["hp_metric", *monitored]
        if self._tracked.apart:
            target["log_dir"] = join(target["log_dir"], self._tracked.key)
        if runner.iter > 0:
            # an epoch's validation was logged with the number of the iteration after it
            trainer, is_over = runner.trainer, not progress.is_resuming_mid_epoch(runner.trainer)
            validated = is_over or (self._end_is_left and progress.validates_next(trainer))
            target["purge_step"] = self._last_step(runner) + 1
            target["purge_step"] += self.by_epoch and validated and self._names == "mmcv"
        return target

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Read the run, and whether the resumed run begins with the events of the epoch's end."""
        super()._take_from_file(file)
        self._end_is_left = bool(file.own_part.get("end_is_left"))

    def before_run(self, runner: Runner) -> None:
        """Open the session with the backend; draw the graph if wanted."""
        super().before_run(runner)
        if self._graph and self._session is not None and in_fit(runner):
            self._draw_graph(runner)

    def _draw_graph(self, runner: Runner) -> None:
        """Trace the module into an event file beside the run's."""
        from torch.utils.tensorboard import SummaryWriter

        module = runner.module
        folder = getattr(self._passed_run(), "log_dir", None) or self._target(runner)["log_dir"]
        try:
            if module.example_input_array is None:
                raise TypeError("module.example_input_array is None")
            inputs = module.transfer_batch_to_device(module.example_input_array, module.device, 0)
            with SummaryWriter(folder) as writer, keep_train_flags(module), torch.no_grad():
                writer.add_graph(module, inputs)
        except Exception as error:  # such as a module that cannot be traced
            text = "TensorboardLoggerHook: graph=True draws nothing (%s)"
            runner.logger.warning(text, describe(error))

    def _close_session(self, runner: Runner | None, folders: ExitStack) -> Session | None:
        """Log the best score as ``hp_metric``, and begin to close the session."""
        # without a mode nothing was trained: an old runner's run was done before
        if self._session is not None and runner is not None and in_fit(runner) and runner.mode:
            scores = [each.best_model_score for each in _keepers_of_best(runner)]
            if scores and scores[0] is not None:
                value = {"hp_metric": float(scores[0])}
                self._session.append(self.get_iter(runner), scalars=value)
        return super()._close_session(runner, folders)


def _keepers_of_best(runner: Runner) -> Iterator[Any]:
    """Yield the hooks and callbacks that keep the best checkpoint by a monitored value."""
    for each in (*runner.hooks, *runner.trainer.checkpoint_callbacks):
        if hasattr(each, "best_model_score") and isinstance(each.monitor, str):
            yield each
