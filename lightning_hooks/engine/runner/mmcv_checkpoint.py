"""Write and read checkpoints of mmcv's layout: ``{meta, state_dict, optimizer}``.

The calling rank writes alone, without a collective. Files of mmcv's and of Lightning's layout can
be read.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.optimizers import by_optimizer
from lightning_hooks.storage import manifest, torch_files, verification
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.storage.layout import (
    COUNTERS,
    OPTIMIZER,
    RAW,
    check_layout,
    check_weights,
    has_average,
    own_part,
    raw_weights,
)
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.dtensors import any_sharded
from lightning_hooks.utils.fsdp import has_slices
from lightning_hooks.utils.plain_types import plain, plain_groups
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import without_user

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "file_name",
    "iterations_done",
    "load",
    "load_weights",
    "meta_to_resume",
    "resume",
    "resume_optimizers",
    "run_meta",
    "save",
    "weights_of",
    "with_keys_of",
]

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
        raise ValueError(
            f"filename_tmpl must be the name of a file in out_dir, got {shown(template)}"
        )
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


def resume_optimizers(runner: Runner, checkpoint: dict[str, Any], path: str) -> None:
    """Restore the optimizers from a file of mmcv or Lightning, if the file has them.

    Raises:
        DamagedCheckpointError: for another object in place of the state of an optimizer.
        ValueError: for another number of optimizers in a file of Lightning's.
    """
    optimizer = runner.optimizer
    by_name = optimizer if isinstance(optimizer, dict) else {"": optimizer}
    if checkpoint.get("optimizer") is not None:
        form = dict.fromkeys(by_name, OPTIMIZER) if isinstance(optimizer, dict) else OPTIMIZER
        check_layout(checkpoint, path, {"optimizer": form})
        states = checkpoint["optimizer"]
        states = states if isinstance(optimizer, dict) else {"": states}
    elif "optimizer_states" in checkpoint:
        saved = checkpoint["optimizer_states"]
        if len(saved) != len(by_name):
            raise ValueError(
                f"{path}'s 'optimizer_states' are of {len(saved)} optimizers, and the run has "
                f"{len(by_name)}; without them: runner.resume(..., resume_optimizer=False)"
            )
        states = dict(zip(by_name, saved, strict=True))
    else:
        return
    for name, single in by_name.items():
        single.load_state_dict(states[name])


def run_meta(
    runner: Runner, epoch: int, iteration: int, own: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return mmcv's ``meta``: the caller's entries, the runner's, then the run's counters.

    No user of a URL is stored.
    """
    meta = {**(own or {}), **(runner.meta or {})}
    classes = getattr(unwrap(runner.model), "CLASSES", None)
    if classes is not None:
        meta["CLASSES"] = classes
    meta["mmcv_version"] = LAYOUT
    meta.update(epoch=epoch, iter=iteration, time=time.asctime())
    return without_user(plain(meta))  # type: ignore[no-any-return]


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
    # Lightning's files keep buffers added by hooks apart
    state = {**weights_of(checkpoint), **own_part(checkpoint).get("buffers", {})}
    for pattern, replacement in revisions:
        state = {re.sub(pattern, replacement, key): value for key, value in state.items()}
    load_weights(unwrap(runner.model), state, filename, runner.logger, strict=strict)
    return checkpoint


def weights_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights in a file of mmcv, Lightning or detectron2, or in a bare state dict.

    >>> weights_of({"state_dict": {"w": 1}}), weights_of({"model": {"w": 2}}), weights_of({"w": 3})
    ({'w': 1}, {'w': 2}, {'w': 3})
    """
    entries = (checkpoint.get(key) for key in ("state_dict", "model"))
    return dict(next((entry for entry in entries if isinstance(entry, Mapping)), checkpoint))


def load_weights(
    model: torch.nn.Module,
    state: dict[str, Any],
    source: str,
    logger: logging.Logger,
    *,
    strict: bool = False,
) -> None:
    """Load the weights that fit into a model; log the names of all others.

    The prefix ``model.`` is added to or taken from the keys as needed.

    Args:
        model: The model, without a wrapper.
        state: The weights by name.
        source: The file, for the messages.
        logger: Logs a line for each of unexpected, missing and misshapen weights.
        strict: Whether keys and shapes must agree.

    Raises:
        RuntimeError: if ``strict`` and keys or shapes differ.
        DamagedCheckpointError: if another object stands in place of a tensor.
    """
    state = with_keys_of(model, state)
    own = model.state_dict()
    check_weights(state, own, "state_dict", source)
    if strict:
        model.load_state_dict(state)
        return
    misshapen = {
        key: f"{key} {[*value.shape]}, in the model {[*own[key].shape]}"
        for key, value in state.items()
        if isinstance(own.get(key), torch.Tensor) and own[key].shape != value.shape
    }
    fitting = {key: value for key, value in state.items() if key not in misshapen}
    result = model.load_state_dict(fitting, strict=False)
    missing = [k for k in result.missing_keys if not k.endswith("num_batches_tracked")]
    for what, keys in [
        ("unexpected", result.unexpected_keys),
        ("missing", [key for key in missing if key not in misshapen]),
        ("size mismatch", [*misshapen.values()]),
    ]:
        if keys:
            logger.warning("%s: %s keys: %s", source, what, printable(", ".join(keys)))


def iterations_done(runner: Any, meta: dict[str, Any]) -> int:
    """Return the iterations done by a file's ``meta``, for this number of processes.

    In a run counted in epochs an epoch has fewer iterations on more GPUs: ``iter`` is multiplied by
    the number of ``gpu_ids`` in the file's config and divided by the runner's ``world_size``.

    Args:
        runner: The runner; ``world_size``, ``counts_epochs`` and ``logger`` are read.
        meta: mmcv's ``meta``, with ``iter`` and perhaps the text of the ``config``.
    """
    done: int = meta["iter"]
    gpus = _gpu_count(meta.get("config"))
    if gpus in (0, runner.world_size) or not runner.counts_epochs:
        return done
    runner.logger.info("the iteration number is changed due to change of GPU number")
    return int(done * gpus / runner.world_size)


def _gpu_count(config: Any) -> int:
    r"""Return the number of ``gpu_ids`` in the text of a config, which is not executed; 0 if none.

    >>> [_gpu_count(f"gpu_ids = {ids}\nlr = 1") for ids in ("range(0, 8)", "[0, 2]", "f()")]
    [8, 2, 0]
    """
    pattern = r"^gpu_ids = (?:range\((\d{1,9}), (\d{1,9})\)|\[([\d,\s]*)\])$"
    gpu_ids = re.search(pattern, config, re.MULTILINE) if isinstance(config, str) else None
    if gpu_ids is None:
        return 0
    start, stop, listed = gpu_ids.groups()
    return len(re.findall(r"\d+", listed)) if start is None else max(int(stop) - int(start), 0)


def meta_to_resume(checkpoint: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return mmcv's ``meta``, with the epochs and iterations done.

    Raises:
        ValueError: for a file of weights, without ``meta``.
        DamagedCheckpointError: if ``epoch`` or ``iter`` is missing or no count.
    """
    meta: dict[str, Any] | None = checkpoint.get("meta")
    if meta is None:
        raise ValueError(
            f"{path} has no 'meta': it is a file of weights; use load_checkpoint() for it"
        )
    check_layout(checkpoint, path, {"meta": COUNTERS})
    return meta


def resume(runner: Runner, path: str, resume_optimizer: bool, map_location: Any) -> None:
    """Restore weights, meta, counters and optimizers from a file of mmcv or Lightning."""
    checkpoint = runner.load_checkpoint(path, map_location=map_location)
    if has_average(checkpoint):  # the average is loaded now
        model = unwrap(runner.model)
        raw = with_keys_of(model, raw_weights(checkpoint))
        check_weights(raw, model.state_dict(), RAW, path)
        model.load_state_dict(raw, strict=False)
    meta = meta_to_resume(checkpoint, path)
    runner.epoch = meta["epoch"]
    is_lightnings = verification.LIGHTNINGS_KEY in checkpoint
    runner.iter = meta["iter"] if is_lightnings else iterations_done(runner, meta)
    runner.step_counts.count_from(checkpoint)
    runner.begin_pass()
    runner.meta = dict(meta)
    run = own_part(checkpoint).get("run")
    if manifest.is_run(run):
        runner.run_id = str(run)
    if resume_optimizer:
        resume_optimizers(runner, checkpoint, path)
