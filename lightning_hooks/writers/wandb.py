"""``WandbLoggerHook``: numbers and text files to Weights & Biases."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lightning_hooks.files import is_local
from lightning_hooks.registry import HOOKS
from lightning_hooks.writers.tracker import Package, TrackerHook, require
from lightning_hooks.writers.work_files import check_suffix, files_of_run

__all__ = ["WandbLoggerHook", "WandbWriter", "has_wandb_key"]

_SUMMARIES = ("min", "max", "mean", "best", "last", "none")
_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")


@HOOKS.register_module()
class WandbLoggerHook(TrackerHook):
    """Logs to W&B: offline in the work dir, unless a key or ``WANDB_MODE`` says otherwise.

    The keys are those of ``get_loggable_tags``. ``wandb sync`` uploads an offline run later.

    Args:
        init_kwargs: Arguments of ``wandb.init``.
        interval: Iterations between two logs.
        ignore_last: See ``LoggerHook``.
        reset_flag: See ``LoggerHook``.
        commit: With ``with_step=False``, whether each log ends a step of W&B's.
        by_epoch: Whether the run is counted in epochs.
        with_step: Whether the iteration is W&B's step; otherwise it is logged as
            ``global_step``.
        log_artifact: Whether the run's text files are logged as the artifact ``artifacts``.
        out_suffix: How the names of these files end.
        define_metric_cfg: A summary (min, max, mean, best, last or none) by metric.

    Raises:
        ImportError: if wandb is not installed.
        ValueError: for an unknown summary.

    Source: mmcv's ``WandbLoggerHook``.

    Note:
        Departures from mmcv: the run is offline, in the work dir, when nothing is configured.
        With ``with_step`` a step is committed by the next one, so that validation and training
        of one iteration are one row (mmcv commits at once, and W&B drops the second). A run
        that is there already (the program's own, or of Lightning's ``WandbLogger``) is used and
        left open; the iteration is logged there as ``global_step``.
    """

    package = "wandb"
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
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.import_wandb()
        self.init_kwargs = dict(init_kwargs or {})
        self.commit = commit
        self.with_step = with_step
        self.log_artifact = log_artifact
        self.out_suffix = check_suffix(out_suffix)
        self.define_metric_cfg = dict(define_metric_cfg or {})
        for metric, summary in self.define_metric_cfg.items():
            if summary not in _SUMMARIES:
                raise ValueError(
                    f"define_metric_cfg[{metric!r}] must be one of {', '.join(_SUMMARIES)}, "
                    f"got {summary!r}"
                )

    def import_wandb(self) -> None:
        """Complain if wandb is not installed; ``self.wandb`` imports it when it is first read."""
        require("wandb", type(self).__name__)

    def open_writer(self, runner: Any) -> WandbWriter:
        """Start a run, or take the one that there is."""
        run = self.wandb.run
        owned = run is None
        if owned:
            run = self.wandb.init(**self._arguments(runner.work_dir))
        return WandbWriter(run, owned, with_step=self.with_step, commit=self.commit)

    def begin(self, runner: Any, writer: WandbWriter) -> None:
        """Say how metrics are summarised."""
        for metric, summary in self.define_metric_cfg.items():
            writer.run.define_metric(metric, summary=summary)

    def _arguments(self, work_dir: str) -> dict[str, Any]:
        # flushed every second: what a kill loses, W&B's own default would be 15 of them
        settings = {"x_transaction_log_flush_interval": 1, "init_timeout": 20, "console": "off"}
        given = self.init_kwargs.get("settings")
        if isinstance(given, Mapping):
            settings.update(given)
        elif given is not None:
            settings.update(given.model_dump(exclude_unset=True))
        arguments = {"settings": self.wandb.Settings(**settings)}
        if is_local(work_dir) and "WANDB_DIR" not in os.environ:
            os.makedirs(work_dir, exist_ok=True)
            arguments["dir"] = work_dir
        chosen = "mode" in settings or "WANDB_MODE" in os.environ or has_wandb_key()
        if not chosen:
            arguments["mode"] = "offline"
        return {**arguments, **{k: v for k, v in self.init_kwargs.items() if k != "settings"}}

    def finish(self, runner: Any, writer: WandbWriter) -> None:
        """Log the text files as an artifact."""
        if self.log_artifact:
            artifact = self.wandb.Artifact(name="artifacts", type="model")
            for name in files_of_run(runner, self.out_suffix):
                artifact.add_file(os.path.join(runner.work_dir, name), name=name)
            writer.run.log_artifact(artifact)


class WandbWriter:
    """A run in W&B.

    Args:
        run: The client's run.
        owned: Whether it is ours to number its steps and to finish it.
        with_step: Whether the iteration is W&B's step.
        commit: Whether a log without step ends one of W&B's.
    """

    def __init__(self, run: Any, owned: bool, *, with_step: bool, commit: bool) -> None:
        self.run = run
        self._owned = owned
        self._with_step = with_step and owned
        self._commit = commit

    def log(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        """Log a row, or what there is of it so far."""
        if self._with_step:
            self.run.log(dict(metrics), step=step)
        else:
            self.run.log({**metrics, "global_step": step}, commit=self._commit)

    def close(self, failed: bool = False) -> None:
        """Finish the run if it is ours."""
        if self._owned:
            self.run.finish(exit_code=1 if failed else 0)


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
