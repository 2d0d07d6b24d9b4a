"""``WandbLoggerHook``: numbers and text files to Weights & Biases.

``WandbWriter``: a run in Weights & Biases.
"""

from __future__ import annotations

import netrc
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.packages import Package, require
from lightning_hooks.loggers.upload import check_suffix, files_of_run
from lightning_hooks.storage.files import inner_path, is_local, join
from lightning_hooks.utils.arguments import check_bool, check_choice, check_dict

__all__ = ["WandbLoggerHook", "WandbWriter", "has_wandb_key"]


class WandbWriter(Writer):
    """A run in W&B.

    Args:
        run: The client's run.
        owned: Whether it is ours to number its steps and to finish it.
        with_step: Whether the iteration is W&B's step.
        commit: Whether a log without step ends one of W&B's.
    """

    name = "wandb"

    def __init__(self, run: Any, owned: bool, *, with_step: bool = True, commit: bool = True):
        self.run = run
        self._owned = owned
        self._with_step = with_step and owned
        self._commit = commit
        self._on_axis: set[str] = set()

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        init: Mapping[str, Any] | None = None,
        with_step: bool = True,
        commit: bool = True,
        summaries: Mapping[str, str] | None = None,
        run_id: str | None = None,
    ) -> WandbWriter:
        """Start a run, or take the one that there is.

        Args:
            run: A run that is there already.
            init: Arguments of ``wandb.init``; the settings as a dict.
            with_step: Whether the iteration is W&B's step.
            commit: Whether a log without step ends one of W&B's.
            summaries: How metrics are summarised.
            run_id: The run to go on with.
        """
        import wandb

        owned = run is None
        if owned:
            arguments = dict(init or {})
            arguments["settings"] = wandb.Settings(**arguments.get("settings", {}))
            if run_id is not None:
                arguments.update(id=run_id, resume="allow")
            run = wandb.init(**arguments)
        for metric, summary in (summaries or {}).items():
            run.define_metric(metric, summary=summary)
        return cls(run, owned, with_step=with_step, commit=commit)

    def log(self, record: Record) -> None:
        """Log a row, or what there is of it so far."""
        row: dict[str, Any] = {**record.scalars, **record.texts}
        if record.images:
            from wandb import Image

            # [H, W, C], or [H, W] in grey
            for name, image in record.images.items():  # each in a file of that name
                row[inner_path(name)] = Image(image.transpose(1, 2, 0).squeeze())
        if self._with_step:
            self.run.log(row, step=record.step)
            return
        for name in row.keys() - self._on_axis:
            self.run.define_metric(name, step_metric="global_step")
            self._on_axis.add(name)
        self.run.log({**row, "global_step": record.step}, commit=self._commit)

    def params(self, params: Mapping[str, Any]) -> None:
        """Add to the config; what is there already stays."""
        known = dict(self.run.config)
        self.run.config.update({k: v for k, v in params.items() if k not in known})

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Log files as the artifact ``artifacts``."""
        import wandb

        artifact = wandb.Artifact(name="artifacts", type="model")
        for path, name in files:
            artifact.add_file(path, name=name)
        self.run.log_artifact(artifact)

    def close(self, failed: bool = False) -> None:
        """Finish the run if it is ours."""
        if self._owned:
            self.run.finish(exit_code=1 if failed else 0)

    def resume(self) -> dict[str, Any]:
        """The run's id."""
        return {"run_id": self.run.id}

    @staticmethod
    def hopeless(error: Exception) -> bool:
        """Wrong use and wrong keys stay so; what the network does may pass."""
        import wandb

        wrong = (wandb.errors.UsageError, wandb.errors.AuthenticationError)
        return isinstance(error, wrong) or Writer.hopeless(error)

    @staticmethod
    def let_go() -> None:
        """End W&B's service: the process, when it ends, would wait for as long as that tries."""
        import wandb

        if wandb.run is None:  # else somebody uses it
            wandb.teardown()


_SUMMARIES = ("min", "max", "mean", "best", "last", "none")
_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")


@HOOKS.register_module()
class WandbLoggerHook(TrackerHook):
    """Logs to W&B: offline in the work dir, unless a key or ``WANDB_MODE`` says otherwise.

    The keys are those of ``get_loggable_tags``; the module's hyper-parameters are in the config.
    ``wandb sync`` uploads an offline run later.

    Args:
        init_kwargs: Arguments of ``wandb.init``, which is called in the hook's thread.
        interval: Iterations between two logs.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten afterwards; in a run the last logger's are.
        commit: With ``with_step=False``, whether each log ends a step of W&B's.
        by_epoch: Whether the run is counted in epochs.
        with_step: Whether the iteration is W&B's step; otherwise it is logged as
            ``global_step``.
        log_artifact: Whether the run's text files are logged as the artifact ``artifacts``.
        out_suffix: How the names of these files end.
        define_metric_cfg: A summary (min, max, mean, best, last or none) by metric.
        options: See ``TrackerHook``; ``run`` is W&B's run or a Lightning ``WandbLogger``, to be
            used and left open.

    Raises:
        ImportError: if wandb is not installed.
        ValueError: for an unknown summary.
        TypeError: if ``run`` is no run of W&B's.

    Source: mmcv's ``WandbLoggerHook``.

    Note:
        Departures from mmcv: the run is offline, in the work dir, when nothing is configured.
        With ``with_step`` a step is committed by the next one, so that validation and training
        of one iteration are one row (mmcv commits at once, and W&B drops the second). A run
        that is there already (the program's own, or of Lightning's ``WandbLogger``) is used and
        left open; the iteration is logged there as ``global_step``, the axis of what we log.
    """

    package = "wandb"
    writer_class = WandbWriter
    run_has = "define_metric"
    wandb = Package("wandb")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        commit: bool = True,
        by_epoch: bool = True,
        with_step: bool = True,
        log_artifact: bool = True,
        out_suffix: str | tuple[str, ...] = (".log.json", ".log", ".py"),
        define_metric_cfg: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        self.import_wandb()
        self.init_kwargs = check_dict("init_kwargs", init_kwargs) or {}
        check_bool(commit=commit, with_step=with_step, log_artifact=log_artifact)
        self.commit = commit
        self.with_step = with_step
        self.log_artifact = log_artifact
        self.out_suffix = check_suffix(out_suffix)
        self.define_metric_cfg = check_dict("define_metric_cfg", define_metric_cfg) or {}
        for metric, summary in self.define_metric_cfg.items():
            check_choice(f"define_metric_cfg[{metric!r}]", summary, _SUMMARIES)

    def import_wandb(self) -> None:
        """Complain if wandb is not installed; ``self.wandb`` imports it when it is first read."""
        require("wandb", type(self).__name__)

    def running(self) -> Any:
        """The run that the program has started."""
        return self.wandb.run

    def for_client(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """What starts the client, and its arguments that were given."""
        return self.wandb.init, self.init_kwargs

    def modules(self, runner: Any) -> Sequence[str]:
        """What ``wandb.init`` imports."""
        return "wandb", "wandb.apis.public"

    def target(self, runner: Any) -> dict[str, Any]:
        """A run in the work dir; online only if something says so."""
        # flushed every second: what a kill loses, W&B's own default would be 15 of them
        settings = {"x_transaction_log_flush_interval": 1, "init_timeout": 20, "console": "off"}
        if "finish_timeout" in getattr(self.wandb.Settings, "model_fields", {}):
            settings["finish_timeout"] = max(int(self.timeout), 1)
        given = self.init_kwargs.get("settings")
        if isinstance(given, Mapping):
            settings.update(given)
        elif given is not None:
            settings.update(given.model_dump(exclude_unset=True))
        init: dict[str, Any] = {}
        if is_local(runner.work_dir) and "WANDB_DIR" not in os.environ:
            os.makedirs(runner.work_dir, exist_ok=True)
            init["dir"] = runner.work_dir
        chosen = "mode" in settings or "WANDB_MODE" in os.environ or has_wandb_key()
        if not chosen:
            init["mode"] = "offline"
        return {
            "init": {**init, **self.init_kwargs, "settings": settings},
            "with_step": self.with_step,
            "commit": self.commit,
            "summaries": self.define_metric_cfg,
        }

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """The text files of the run."""
        if not self.log_artifact:
            return []
        return [(join(runner.work_dir, n), n) for n in files_of_run(runner, self.out_suffix)]


def has_wandb_key() -> bool:
    """Whether W&B has an account to log to: in the environment or in the netrc file."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = [urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc, *_HOSTS]
    files = [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]
    for path in map(os.path.expanduser, files):
        try:
            known = netrc.netrc(path)
        except (OSError, netrc.NetrcParseError):
            continue
        if any(host and host in known.hosts for host in hosts):
            return True
    return False
