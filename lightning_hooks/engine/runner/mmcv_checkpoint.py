"""Write and read checkpoints of mmcv's layout: ``{meta, state_dict, optimizer}``.

The calling rank writes alone, without a collective. Files of mmcv's and of Lightning's layout can
be read.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.optimizers import by_optimizer
from lightning_hooks.storage import manifest, torch_files, verification
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.storage.layout import RAW, check_weights, has_average, own_part, raw_weights
from lightning_hooks.utils.dtensors import any_sharded
from lightning_hooks.utils.fsdp import has_slices
from lightning_hooks.utils.plain_types import plain, plain_groups
from lightning_hooks.utils.printable import printable

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["file_name", "load", "resume", "resume_optimizers", "run_meta", "save", "with_keys_of"]

LAYOUT = "1.7.2"
"""The version of mmcv with the files' layout."""


def file_name(template: str, number: int) -> str:
    """Return the name of a file from mmcv's ``filename_tmpl``.

    Raises:
        ValueError: if the template leaves the directory.

    >>> file_name("epoch_{}.pth", 3)
    'epoch_3.pth'
    """
    name = template.format(number)
    if not is_inside(name):
        raise ValueError(f"filename_tmpl must be the name of a file in out_dir, got {template!r}")
    return name


def with_keys_of(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict with ``model.`` added to or taken from the keys, if needed to match."""
    own = set(model.state_dict())
    if own & set(state):
        return state
    for candidate in (
        {k.removeprefix("model."): v for k, v in state.items()},
        {f"model.{k}": v for k, v in state.items()},
    ):
        if own & set(candidate):
            return candidate
    return state


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimizer, or the states of a dict of optimizers by name."""
    return by_optimizer(lambda single: plain_groups(single.state_dict()), optimizer)  # type: ignore[no-any-return]


def resume_optimizers(runner: Runner, checkpoint: dict[str, Any]) -> None:
    """Restore the optimizers from a file of mmcv or Lightning, if the file has them."""
    optimizer = runner.optimizer
    many = optimizer if isinstance(optimizer, dict) else {"": optimizer}
    if "optimizer" in checkpoint:
        saved = checkpoint["optimizer"]
        states = saved if isinstance(optimizer, dict) else {"": saved}
    elif "optimizer_states" in checkpoint:
        states = dict(zip(many, checkpoint["optimizer_states"], strict=True))
    else:
        return
    for name, single in many.items():
        single.load_state_dict(states[name])


def run_meta(
    runner: Runner, epoch: int, iteration: int, own: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return mmcv's ``meta``: the caller's entries, the runner's, then the run's counters."""
    meta = {**(own or {}), **(runner.meta or {})}
    classes = getattr(unwrap(runner.model), "CLASSES", None)
    if classes is not None:
        meta["CLASSES"] = classes
    meta["mmcv_version"] = LAYOUT
    meta.update(epoch=epoch, iter=iteration, time=time.asctime())
    return plain(meta)  # type: ignore[no-any-return]


def _refuse_parts(runner: Runner, method: str, instead: str) -> None:
    """Raise if the rank holds only parts of the parameters."""
    trainer = runner.trainer
    parameters = [*unwrap(runner.model).parameters()]
    if any_sharded(parameters) or has_slices(trainer.model or runner.module, parameters):
        raise ValueError(
            f"runner.{method}() works on one rank, and with {type(trainer.strategy).__name__} "
            "each has parts of the parameters only: use lightning_hooks.CheckpointHook, or "
            f"{instead}"
        )


def save(runner: Runner, path: str, save_optimizer: bool, meta: dict[str, Any] | None) -> None:
    """Write a checkpoint of the present state."""
    _refuse_parts(runner, "save_checkpoint", "trainer.save_checkpoint() on all ranks")
    checkpoint: dict[str, Any] = {
        "meta": run_meta(runner, runner.epoch + 1, runner.iter, meta),
        "state_dict": torch_files.to_cpu(unwrap(runner.model).state_dict()),
    }
    optimizer = runner.optimizer
    if save_optimizer and optimizer is not None:
        checkpoint["optimizer"] = optimizer_state(optimizer)
    torch_files.save_torch(checkpoint, path)


def load(
    runner: Runner, filename: str, map_location: Any, strict: bool, revisions: list[tuple[str, str]]
) -> dict[str, Any]:
    """Load the weights of a file into the runner's model and return the whole checkpoint."""
    _refuse_parts(runner, "load_checkpoint", "Trainer.fit(ckpt_path=...)")
    checkpoint = verification.load(filename, map_location)
    state = checkpoint.get("state_dict", checkpoint)
    # Lightning's files keep buffers added by hooks apart
    state = {**state, **own_part(checkpoint).get("buffers", {})}
    for pattern, replacement in revisions:
        state = {re.sub(pattern, replacement, key): value for key, value in state.items()}
    model = unwrap(runner.model)
    state = with_keys_of(model, state)
    own = model.state_dict()
    check_weights(state, own, "state_dict", filename)
    wrong = [k for k, v in state.items() if k in own and own[k].shape != v.shape]
    if strict:
        model.load_state_dict(state)
        return checkpoint
    result = model.load_state_dict({k: v for k, v in state.items() if k not in wrong}, strict=False)
    missing = [k for k in result.missing_keys if not k.endswith("num_batches_tracked")]
    for what, keys in [
        ("unexpected", result.unexpected_keys),
        ("missing", [k for k in missing if k not in wrong]),
        ("size mismatch", wrong),
    ]:
        if keys:
            runner.logger.warning("%s: %s keys: %s", filename, what, printable(", ".join(keys)))
    return checkpoint


def resume(runner: Runner, path: str, resume_optimizer: bool, map_location: Any) -> None:
    """Restore weights, meta, counters and optimizers from a file of mmcv or Lightning."""
    checkpoint = runner.load_checkpoint(path, map_location=map_location)
    if has_average(checkpoint):  # the average is loaded now
        model = unwrap(runner.model)
        raw = with_keys_of(model, raw_weights(checkpoint))
        check_weights(raw, model.state_dict(), RAW, path)
        model.load_state_dict(raw, strict=False)
    meta = checkpoint.get("meta")
    if meta is None:
        raise ValueError(
            f"{path} has no 'meta': it is a file of weights; use load_checkpoint() for it"
        )
    runner.epoch = meta["epoch"]
    runner.iter = meta["iter"]
    runner.step_counts.count_from(checkpoint)
    runner.meta = dict(meta)
    run = own_part(checkpoint).get("run")
    if manifest.is_run(run):
        runner.run_id = str(run)
    if resume_optimizer:
        resume_optimizers(runner, checkpoint)
