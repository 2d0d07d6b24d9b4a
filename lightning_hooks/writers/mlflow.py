"""``MlflowLoggerHook``: numbers, parameters and the model to MLflow."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.arguments import check_bool, check_dict
from lightning_hooks.files import is_local
from lightning_hooks.model import unwrap
from lightning_hooks.registry import HOOKS
from lightning_hooks.writers.given import is_lightning_logger
from lightning_hooks.writers.mlflow_writer import MlflowWriter
from lightning_hooks.writers.packages import Package, require
from lightning_hooks.writers.tracker import TrackerHook

__all__ = ["MlflowLoggerHook"]


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are those of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment; made if it does not exist. By default the configured one, or
            one named as the work dir.
        tags: Tags of the run.
        params: Parameters of the run, beside the module's hyper-parameters.
        log_model: Whether the model is logged as the artifact ``models`` at the end.
        interval: Iterations between two logs.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten afterwards; in a run the last logger's are.
        by_epoch: Whether the run is counted in epochs.
        options: See ``TrackerHook``; ``run`` is MLflow's run or a Lightning ``MLFlowLogger``, to be
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
    run_has = "info"
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
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        self.import_mlflow()
        if not (exp_name is None or isinstance(exp_name, str)):
            raise TypeError(f"exp_name must be a str or None, got {exp_name!r}")
        check_bool(log_model=log_model)
        self.exp_name = exp_name
        self.tags = check_dict("tags", tags) or {}
        self.params = check_dict("params", params) or {}
        self.log_model = log_model

    def import_mlflow(self) -> None:
        """Complain if mlflow is not installed; ``self.mlflow`` imports it when it is first read."""
        require("mlflow", type(self).__name__)

    def running(self) -> Any:
        """The active run, with the store that it is in."""
        active = self.mlflow.active_run()
        return active and (self.mlflow.get_tracking_uri(), active.info.run_id)

    def existing(self) -> Any:
        """The given run, with the store that it is in."""
        run = self._client_run
        if is_lightning_logger(run):
            return run.experiment.tracking_uri, run.run_id
        return self.mlflow.get_tracking_uri(), run.info.run_id

    def modules(self, runner: Any) -> Sequence[str]:
        """The store, where the client is one itself."""
        store = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.db.utils")
        return "mlflow", *(store if self._embedded(runner) else ())

    def _embedded(self, runner: Any) -> bool:
        """Whether nothing is configured, and an sqlite file is the store."""
        told = "mlflow" in sys.modules and self.mlflow.is_tracking_uri_set()
        return not (told or "MLFLOW_TRACKING_URI" in os.environ) and is_local(runner.work_dir)

    def target(self, runner: Any) -> dict[str, Any]:
        """An sqlite file in the work dir, unless something else is configured."""
        work_dir = runner.work_dir
        name = self.exp_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        target: dict[str, Any] = {"tags": {str(k): str(v) for k, v in self.tags.items()}}
        if self._embedded(runner):
            folder = os.path.abspath(work_dir)
            os.makedirs(folder, exist_ok=True)
            target["uri"] = f"sqlite:///{folder}/mlflow.db"
            # without a location MLflow puts artifacts into the current folder
            target["artifacts"] = f"file://{folder}/mlartifacts"
            name = name or os.path.basename(folder) or "lightning_hooks"
        else:
            target["uri"] = self.mlflow.get_tracking_uri()
        return {**target, "experiment": name}

    def parameters(self, runner: Any, own: bool) -> dict[str, Any]:
        """The module's hyper-parameters and those given."""
        return {**super().parameters(runner, own), **self.params}

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """The model, in the files of MLflow's that ``mlflow.pytorch.load_model`` reads."""
        if not self.log_model:
            return []
        version = torch.__version__.split("+")[0]
        save = self.mlflow_pytorch.save_model
        how = {"pip_requirements": [f"torch=={version}"], "serialization_format": "pickle"}
        known = inspect.signature(save).parameters
        path = os.path.join(folder, "models")
        save(unwrap(runner.model), path, **{k: v for k, v in how.items() if k in known})
        made = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return [(file, os.path.relpath(file, folder)) for file in sorted(made)]
