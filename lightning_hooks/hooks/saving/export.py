"""The weights of a checkpoint: ``export()`` and ``load_at_end`` of the saving hooks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.hooks.saving import lightning_view
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.storage import files, shards, verification, weights
from lightning_hooks.storage.checkpoint_io import wait_for_writer, writes_for
from lightning_hooks.utils.fsdp import has_slices

__all__ = ["export", "load_weights", "weights_in"]


def export(
    path: str,
    model: torch.nn.Module | Callable[[L.LightningModule], torch.nn.Module] | None,
    store: CheckpointStore,
    source: str,
    *,
    is_last: bool,
) -> None:
    """Write a ``state_dict`` alone; :meth:`SavingHook.export` describes arguments and errors.

    Args:
        path: The new file.
        model: A model, or a function that picks a part of the module.
        store: The store that has written the checkpoint.
        source: The checkpoint; empty for the module's present weights.
        is_last: Whether the checkpoint is the last one, not the best.
    """
    weights.check_ending(path, "export()")
    if isinstance(model, torch.nn.Module):
        return _export_present(path, model, store)
    if store.runner is None:
        raise RuntimeError("export() before a fit needs model=, a torch.nn.Module")
    runner = store.runner
    trainer, module = runner.trainer, runner.module
    part = unwrap(runner.model) if model is None else model(module)
    if not source:
        return _export_present(path, part, store)
    if store.in_parts or os.path.isdir(source):
        _require_present_weights(source, runner.hooks, is_last)
        return _export_present(path, part, store)
    if part is not module:
        _require_whole(part, store)
    if store.background and not files.exists(source):
        store.thread.wait()
    if trainer.is_global_zero:
        state = _part_of(weights_in(source, trainer), module, part)
        weights.write_weights(state, path, weights.facts_of(source))
    if trainer.strategy.restore_checkpoint_after_setup:  # a strategy with shards
        trainer.strategy.barrier("SavingHook.export")
    return None


def _export_present(path: str, model: torch.nn.Module, store: CheckpointStore) -> None:
    _require_whole(model, store)
    facts = {"run": store.runner.run_id} if store.runner is not None else {}
    weights.write_weights(model.state_dict(), path, facts)


def _require_whole(model: torch.nn.Module, store: CheckpointStore) -> None:
    trained = store.runner and store.runner.trainer.model
    if trained is not None and has_slices(trained, model.parameters()):
        raise ValueError(
            "export() cannot gather parameters that FSDP has flattened: call "
            "trainer.save_checkpoint(path, weights_only=True) on all ranks"
        )


def _require_present_weights(path: str, hooks: Iterable[Any], is_last: bool) -> None:
    """Raise unless a directory of shards holds the module's present weights."""
    averages = [type(hook).__name__ for hook in natives_with("_averages_weights", hooks)]
    if is_last and not averages:
        return
    own = f", or {averages[0]}.export() for the average of the last step" if averages else ""
    raise ValueError(
        f"export() cannot read {os.path.basename(path)}, a directory with a part of each rank: "
        f"{shards.advice_for_file(path)}, or have one written (save_distributed_checkpoint=False, "
        f"state_dict_type='full'){own}"
    )


def load_weights(path: str, trainer: L.Trainer) -> None:
    """Load the ``state_dict`` of a checkpoint into the Trainer's module, on all ranks together.

    Args:
        path: The file, or a directory with a part of each rank.
        trainer: The Trainer that wrote the file.

    Raises:
        FileNotFoundError: if the file is missing.
        DamagedCheckpointError: if the file is damaged.
        ValueError: if the file holds more than tensors and plain types.
    """
    strategy, module = trainer.strategy, trainer.lightning_module
    if not strategy.restore_checkpoint_after_setup:
        module.load_state_dict(weights_in(path, trainer), strict=module.strict_loading)
        return
    # in a fit a strategy with shards loads the optimizers, too
    with setting(trainer.state, fn=TrainerFn.VALIDATING), setting(strategy, optimizers=[]):
        lightning_view.verify(trainer, path)
        strategy.load_checkpoint(path)


def weights_in(path: str, trainer: L.Trainer) -> dict[str, Any]:
    """Return the ``state_dict`` of a checkpoint: the validated weights.

    Args:
        path: The file.
        trainer: The Trainer that wrote the file; its user's ``CheckpointIO`` also reads.

    Raises:
        FileNotFoundError: if the file is missing.
        DamagedCheckpointError: if the file is damaged.
        ValueError: if the file holds more than tensors and plain types.
    """
    strategy = trainer.strategy
    if not writes_for(strategy):
        wait_for_writer(strategy)
        return dict(strategy.checkpoint_io.load_checkpoint(path)["state_dict"])
    try:
        return dict(verification.load(path)["state_dict"])
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is read without executing anything in it, and there is more than "
            "tensors and plain types in it, such as hyperparameters of a class of yours; as the "
            f"file is your own, write torch.load({path!r}, weights_only=False)['state_dict']"
        ) from error


def _part_of(
    state: Mapping[str, Any], module: torch.nn.Module, model: torch.nn.Module
) -> dict[str, Any]:
    """Return the values of a part of a module, by the part's own keys.

    Args:
        state: The values, by the keys of the module's state dict.
        module: The module.
        model: A part of the module, found by shared tensors, else by name.

    Raises:
        ValueError: if the model is no part of the module.
    """
    if model is module:
        return dict(state)
    keys = {id(value): key for key, value in module.state_dict(keep_vars=True).items()}
    places = [name for name, part in module.named_modules() if part is model]
    own = model.state_dict(keep_vars=True)
    if not places and not any(id(value) in keys for value in own.values()):
        raise ValueError(
            f"export(model=...): the function has returned a {type(model).__name__} that is no "
            f"part of {type(module).__name__}, whose weights are in the checkpoint; give the "
            "model itself for its present weights"
        )
    prefix = f"{places[0]}." if places else ""
    sources = {key: keys.get(id(value), prefix + key) for key, value in own.items()}
    return {key: state[source] for key, source in sources.items() if source in state}
