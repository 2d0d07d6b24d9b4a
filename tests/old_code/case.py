"""``Case``: a hook class of a real package and its run."""

from __future__ import annotations

from typing import Any, NamedTuple

EVAL = "<loader>"  # a loader to evaluate on, in arguments
EPOCH_CHECKPOINTS = ("mmcv", "CheckpointHook", {"interval": 2}, "NORMAL")
TIMER = ("mmcv", "IterTimerHook", {}, "LOW")
TEXT = ("mmcv", "TextLoggerHook", {"interval": 2}, "VERY_LOW")
WANDB = dict(
    init_kwargs=dict(project="p"),
    interval=2,
    log_checkpoint=True,
    log_checkpoint_metadata=True,
    log_artifact=False,
)


class Case(NamedTuple):
    """A hook class and its run."""

    file: str
    name: str
    arguments: dict[str, Any]
    by_epoch: bool = True
    steps: bool = False  # the hook runs backward and the optimizer step
    val: bool = False
    priority: Any = "NORMAL"
    in_trainer: bool = True  # also in a Trainer
    beside: tuple[Any, ...] = ()  # other hooks: (file or mmcv, class, arguments, priority)
    logs: bool = False  # whether to compare the log buffer too


def evaluation(package: str, **arguments: Any) -> tuple[str, str, dict[str, Any], str]:
    """The evaluation hook of a package, beside another hook."""
    file = f"{package}/core/evaluation/eval_hooks.py"
    return file, "EvalHook", {"dataloader": EVAL, **arguments}, "LOW"


def evaluating(
    package: str, by_epoch: bool = True, name: str = "EvalHook", **arguments: Any
) -> Any:
    """The case of an evaluation hook."""
    file = f"{package}/core/evaluation/eval_hooks.py"
    return Case(file, name, {"dataloader": EVAL, **arguments}, by_epoch, priority="LOW")


# arguments of hooks shared by several packages
YOLOX_RATE = dict(
    num_last_epochs=1,
    min_lr_ratio=0.05,
    warmup="exp",
    by_epoch=False,
    warmup_by_epoch=True,
    warmup_ratio=1,
    warmup_iters=1,
)
CLUSTERS = dict(
    centroids_update_interval=2,
    deal_with_small_clusters_interval=3,
    evaluate_interval=4,
    reweight=True,
    reweight_pow=0.5,
)
