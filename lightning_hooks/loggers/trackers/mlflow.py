"""``MlflowLoggerHook``: log to MLflow, in a file or on a server."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.trackers.inputs import is_lightning_logger, metric_key
from lightning_hooks.loggers.trackers.mlflow_store import RUN_NAME, SQLITE, MlflowWriter
from lightning_hooks.loggers.trackers.packages import Package
from lightning_hooks.loggers.uploads.hook import UploadsCheckpoints
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.arguments import check_bool, check_dict

__all__ = ["MlflowLoggerHook", "MlflowWriter", "metric_key"]


@HOOKS.register_module()
class MlflowLoggerHook(UploadsCheckpoints):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are those of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment, created if it does not exist. By default the configured one, or
            one with the name of the work dir.
        tags: Tags of the run.
        params: Parameters of the run, beside the module's hyper-parameters.
        log_model: Whether the model is logged as the artifact ``models`` at the end, with a
            signature if ``module.example_input_array`` is a tensor. It is a pickle, which runs code
            when it is loaded: load that of a run that you trust.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        tracking_uri: The server or the store, in the place of the configured one.
        run_name: The run's name.
        upload: ``"best"``, ``"last"`` or ``"all"``: these checkpoints are files in the artifact
            folder ``checkpoints``; the tag ``checkpoint.best`` has the path of the best.
        options: See ``TrackerHook``; ``run`` is MLflow's run or a Lightning ``MLFlowLogger``; it is
            used and left open.

    Raises:
        ImportError: if mlflow is not installed.
        TypeError: if ``run`` is no run of MLflow's.

    Source: mmcv's ``MlflowLoggerHook``.

    Note:
        Departures from mmcv: MLflow's global state is read, not changed. The run is closed at
        the end, as a failed one after an error; an active run of the program's own is used and
        left open. The model is logged without mmcv's wrapper. Characters that MLflow refuses in
        a key become ``_``.
    """

    package = "mlflow"
    writer_class = MlflowWriter
    run_attribute = "info"
    mlflow = Package("mlflow")
    mlflow_pytorch = Package("mlflow.pytorch")

    def __init__(
        self,
        exp_name: str | None = None,
        tags: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        log_model: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        upload: str | None = None,
        **options: Any,
    ) -> None:
        shared = interval, ignore_last, reset_flag, by_epoch
        super().__init__(*shared, upload=upload, **options)
        self.require_client()
        names = {"exp_name": exp_name, "tracking_uri": tracking_uri, "run_name": run_name}
        for key, value in names.items():
            if not (value is None or isinstance(value, str)):
                raise TypeError(f"{key} must be a str or None, got {value!r}")
        check_bool(log_model=log_model)
        self.exp_name = exp_name
        self.tracking_uri, self.run_name = tracking_uri, run_name
        self.tags = check_dict("tags", tags) or {}
        self.params = check_dict("params", params) or {}
        self.log_model = log_model

    def import_mlflow(self) -> None:
        """Check that mlflow is installed; ``self.mlflow`` imports it when it is first read."""
        super().require_client()

    def require_client(self) -> None:
        """Call mmcv's method, which old subclasses override."""
        self.import_mlflow()

    def active_run(self) -> Any:
        """Return the store and the id of the active run."""
        active, uri = self.mlflow.active_run(), self.mlflow.get_tracking_uri()
        if self.tracking_uri not in (None, uri):
            return None
        return active and (uri, active.info.run_id)

    def passed_run(self) -> Any:
        """Return the store and the id of the run that was passed."""
        run = self._client_run
        if is_lightning_logger(run):
            return run.experiment.tracking_uri, run.run_id
        return self.mlflow.get_tracking_uri(), run.info.run_id

    def modules(self, runner: Any) -> Sequence[str]:
        """Return the client's modules, with those of the store if it is a local file."""
        store = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.db.utils")
        return "mlflow", *(store if self._uses_file(runner) else ())

    def _uses_file(self, runner: Any) -> bool:
        """Whether the store is an sqlite file, since no other one is configured."""
        if self.tracking_uri is not None:
            return False
        is_set = "mlflow" in sys.modules and self.mlflow.is_tracking_uri_set()
        return not (is_set or "MLFLOW_TRACKING_URI" in os.environ) and is_local(runner.work_dir)

    def target(self, runner: Any) -> dict[str, Any]:
        """Return an sqlite file in the work dir, unless another store is configured."""
        work_dir = runner.work_dir
        name = self.exp_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or None
        target: dict[str, Any] = {"tags": {str(k): str(v) for k, v in self.tags.items()}}
        if self.run_name is not None:
            target["tags"][RUN_NAME] = self.run_name
        if self._uses_file(runner):
            os.makedirs(work_dir, exist_ok=True)
            folder = os.path.abspath(work_dir)
            return {
                **target,
                "uri": f"{SQLITE}{folder}/mlflow.db",
                "artifacts": f"file://{folder}/mlartifacts",
                "experiment": name or os.path.basename(folder) or "lightning_hooks",
            }
        return {
            **target,
            "uri": self.tracking_uri or self.mlflow.get_tracking_uri(),
            "experiment": name,
        }

    def run_arguments(self, run: TrackedRun) -> dict[str, Any]:
        """Return the run's id, and the tag by which it is found without."""
        return {"run_id": run.run_id, "label": run.key, "after": run.after}

    def parameters(self, runner: Any, own: bool) -> dict[str, Any]:
        """Return the module's hyper-parameters and ``params``."""
        return {**super().parameters(runner, own), **self.params}

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """Return the files of the model, for ``mlflow.pytorch.load_model``."""
        if not self.log_model:
            return []
        version = torch.__version__.split("+")[0]
        save = self.mlflow_pytorch.save_model
        options = {
            "pip_requirements": [f"torch=={version}"],
            "serialization_format": "pickle",
            "signature": signature_of(runner.module),
        }
        known = inspect.signature(save).parameters
        path = os.path.join(folder, "models")
        with _without_advice():
            save(unwrap(runner.model), path, **{k: v for k, v in options.items() if k in known})
        written = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return [(file, os.path.relpath(file, folder)) for file in sorted(written)]


def signature_of(module: Any) -> Any:
    """Return MLflow's signature of a module's inputs, None without an example tensor.

    The module is not called: on one rank of several that could wait for the others.
    """
    example = getattr(module, "example_input_array", None)
    if not isinstance(example, torch.Tensor):
        return None
    from mlflow.models import infer_signature

    return infer_signature(example.detach().cpu().numpy())


@contextmanager
def _without_advice() -> Iterator[None]:
    """Drop MLflow's advice to write another format, which is an argument of its own function."""
    logger = logging.getLogger("mlflow.pytorch")

    def is_other(record: logging.LogRecord) -> bool:
        return "serialization_format" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
