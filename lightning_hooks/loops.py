"""What we read from and change in Lightning's loops: the only module with its private names.

Every function does one thing and takes the trainer or the module. Lightning may rename what is
behind them in any release; this file is then the one to mend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.connectors.data_connector import _DataLoaderSource
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.data import extract_batch_size
from torchmetrics import Metric

__all__ = [
    "accumulates_gradients",
    "batch_counts",
    "batch_counts_of_epoch",
    "batch_idx",
    "batch_is_open",
    "batch_size",
    "batches_processed",
    "epoch_is_over",
    "evaluate_as_before",
    "goes_on_in_pass",
    "grad_scaler",
    "has_grad_scaler",
    "hyper_parameters",
    "in_training_step",
    "is_last_batch",
    "is_resuming_mid_epoch",
    "iterates_anew",
    "iterations_by_epoch",
    "iterations_of_steps",
    "keep_global_step",
    "leave_resumed_epoch",
    "lift_minimum",
    "prepare_batch",
    "quiet",
    "renew_iterator",
    "replace_loader",
    "replace_val_loader",
    "restore_minimum",
    "restore_train_data",
    "restore_val_data",
    "run_validation",
    "set_batches",
    "set_epoch",
    "set_max_steps",
    "set_train_length",
    "step_metrics",
    "step_results",
    "train_as_before_validation",
    "train_data",
    "train_loaders",
    "unscales_itself",
    "val_metrics",
    "validates_next",
    "writes_directories",
]


# -- progress ----------------------------------------------------------------------------------


def batch_counts(trainer: L.Trainer) -> Any:
    """Lightning's count of training batches over all epochs: its ``completed`` are behind us.

    Those are the same for all callbacks of one event: un-incremented in ``on_train_batch_end``,
    incremented in the validation that follows it. The object stays that of the Trainer's loop.
    """
    return trainer.fit_loop.epoch_loop.batch_progress.total


def batch_size(batch: Any) -> int | None:
    """How many samples are in a batch, as Lightning counts them; None where it cannot."""
    try:
        return extract_batch_size(batch)
    except (MisconfigurationException, RecursionError):
        return None


def batches_processed(trainer: L.Trainer) -> int:
    """Training batches whose step has run: right also in a checkpoint written by their end."""
    total: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    return int(total.processed)


def batch_counts_of_epoch(trainer: L.Trainer) -> Any:
    """Lightning's count of an epoch's training batches: its ``ready`` has the one that runs, too.

    The object stays that of the Trainer's loop.
    """
    return trainer.fit_loop.epoch_loop.batch_progress.current


def batch_idx(trainer: L.Trainer) -> int:
    """The index of the training batch in its epoch; the last one's between epochs."""
    return max(int(batch_counts_of_epoch(trainer).ready) - 1, 0)


def is_last_batch(trainer: L.Trainer) -> bool:
    """Whether the training batch is the last of its epoch, right for unsized loaders too."""
    loop = trainer.fit_loop.epoch_loop
    return bool(loop.batch_progress.is_last_batch or loop._is_training_done)


def epoch_is_over(trainer: L.Trainer) -> bool:
    """Whether the validation that starts now is the one that ends the epoch."""
    stopping = trainer.should_stop and trainer.fit_loop._can_stop_early
    return bool(is_last_batch(trainer) or stopping)


def validates_next(trainer: L.Trainer) -> bool:
    """Whether a validation follows the training batch that ends now."""
    loop = trainer.fit_loop
    return bool(loop._data_fetcher and loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def is_resuming_mid_epoch(trainer: L.Trainer) -> bool:
    """Whether the run goes on inside an epoch, without an ``on_train_epoch_start``."""
    return bool(trainer.fit_loop.restarted_mid_epoch)


def goes_on_in_pass(trainer: L.Trainer) -> bool:
    """Whether the run goes on inside a pass over the data, where its loaders know they stood.

    Their iterators exist already in the uninterrupted run: what making them anew draws from the
    random state is drawn for nothing.
    """
    inside = is_resuming_mid_epoch(trainer) and not is_last_batch(trainer)
    return inside and all(hasattr(x, "load_state_dict") for x in train_loaders(trainer))


def batch_is_open(trainer: L.Trainer) -> bool:
    """Whether a training batch has begun and not ended: its iteration is not counted yet."""
    current: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return bool(current.started > current.completed)


def iterates_anew(trainer: L.Trainer) -> bool:
    """Whether Lightning itself makes a new iterator for the epoch that starts."""
    loop = trainer.fit_loop
    resuming = loop.is_resuming or loop.epoch_loop.restarting
    return bool(trainer.current_epoch > 0 and not resuming)


def leave_resumed_epoch(trainer: L.Trainer) -> None:
    """Go on with the next epoch where a checkpoint was written at the end of one.

    With ``max_steps`` set Lightning would put one more batch into the epoch that is over, or end
    the run: its loops wait for the rest of an epoch that has none.
    """
    loop: Any = trainer.fit_loop
    over = loop.restarted_on_epoch_end and loop.epoch_loop.restarted_on_last
    if over and trainer.max_steps != -1:
        for progress in (loop.epoch_progress.current, loop.epoch_progress.total):
            progress.completed = progress.processed
        loop.reset_restart_stage()
        loop.restarting = loop.epoch_loop.restarting = False


def set_epoch(trainer: L.Trainer, epoch: int) -> None:
    """Make ``epoch`` the current one, as far as Lightning's epoch loop is concerned."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    progress.processed = progress.completed = epoch


def set_batches(trainer: L.Trainer, number: int) -> None:
    """Begin the run with so many training batches behind us."""
    total: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    total.ready = total.started = total.processed = total.completed = number


def set_max_steps(trainer: L.Trainer, max_steps: int) -> None:
    """Change the number of optimizer steps after which training ends."""
    trainer.fit_loop.epoch_loop.max_steps = max_steps


def lift_minimum(trainer: L.Trainer) -> tuple[Any, Any]:
    """Let ``should_stop`` end the run before ``min_epochs`` and ``min_steps``; return the two."""
    loop = trainer.fit_loop
    before = loop.min_epochs, loop.epoch_loop.min_steps
    loop.min_epochs, loop.epoch_loop.min_steps = 0, None
    return before


def restore_minimum(trainer: L.Trainer, minimum: tuple[Any, Any]) -> None:
    """Put back what :func:`lift_minimum` returned."""
    trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = minimum


def iterations_of_steps(trainer: L.Trainer, steps: int) -> int:
    """How many iterations take so many optimizer steps.

    Accumulated gradients are stepped at the end of every epoch too. A module that steps several
    optimizers itself is taken to step each of them once in an iteration.
    """
    if not trainer.lightning_module.automatic_optimization:
        return -(-steps // max(len(trainer.optimizers), 1))
    return iterations_by_epoch(trainer, steps, trainer.accumulate_grad_batches)


def iterations_by_epoch(trainer: L.Trainer, steps: int, every: int) -> int:
    """How many iterations take so many steps: one for ``every`` of an epoch, one for its rest."""
    batches = trainer.num_training_batches
    if every == 1 or batches == float("inf"):
        return steps * every
    epochs, rest = divmod(steps, -(-int(batches) // every))
    return epochs * int(batches) + min(rest * every, int(batches))


def keep_global_step(trainer: L.Trainer) -> None:
    """Count the steps of manual optimization for automatic optimization too.

    ``trainer.global_step`` reads the one or the other, by the module's flag of the moment.
    """
    loop = trainer.fit_loop.epoch_loop
    total = loop.automatic_optimization.optim_progress.optimizer.step.total
    total.ready = total.completed = loop.manual_optimization.optim_step_progress.total.completed


def accumulates_gradients(trainer: L.Trainer) -> bool:
    """Whether this batch's gradients wait for a later batch's step."""
    return bool(trainer.fit_loop.epoch_loop._should_accumulate())


# -- data --------------------------------------------------------------------------------------


def train_loaders(trainer: L.Trainer) -> list[Any]:
    """The training loaders as they are iterated, samplers injected; empty before fit."""
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else list(combined.flattened)


def renew_iterator(trainer: L.Trainer) -> None:
    """Make the training iterator anew: its workers then see the data set as it is now."""
    fetcher = trainer.fit_loop._data_fetcher
    if fetcher is None:
        raise RuntimeError("there is no training data to iterate yet")
    for loader in train_loaders(trainer):
        if getattr(loader, "persistent_workers", False):
            loader._iterator = None  # its workers would keep their copy of the data set
    iter(fetcher)


def prepare_batch(trainer: L.Trainer, batch: Any) -> Any:
    """Return a batch as a step gets it: converted, transferred, in the module's own ways."""
    module: Any = trainer.lightning_module
    batch = trainer.precision_plugin.convert_input(batch)
    batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def train_data(trainer: L.Trainer) -> Any:
    """What :func:`restore_train_data` needs to iterate the loaders of now again."""
    loop = trainer.fit_loop
    return loop._data_source, loop._combined_loader, loop.max_batches, trainer.val_check_batch


def restore_train_data(trainer: L.Trainer, data: Any) -> None:
    """Go back to loaders that were replaced."""
    loop: Any = trainer.fit_loop
    loop._data_source, loop._combined_loader, loop.max_batches, trainer.val_check_batch = data
    if loop._data_fetcher is not None:
        loop._data_fetcher.setup(loop._combined_loader)


def replace_val_loader(trainer: L.Trainer, loader: Any) -> Any:
    """Validate on ``loader`` in the pass that starts; return what restores the old one."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    old = loop._data_source, loop._combined_loader, loop._max_batches
    loop._data_source, loop._combined_loader = _DataLoaderSource(loader, ""), None
    loop.setup_data()
    loop.reset()
    return old


def restore_val_data(trainer: L.Trainer, data: Any) -> None:
    """Go back to validation loaders that were replaced."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    loop._data_source, loop._combined_loader, loop._max_batches = data


def replace_loader(trainer: L.Trainer, loader: Any) -> None:
    """Train on ``loader`` from the next iterator on: samplers, limits and counts follow."""
    loop = trainer.fit_loop
    loop._data_source = _DataLoaderSource(loader, "")
    loop._combined_loader = None
    loop.setup_data()
    for inner in train_loaders(trainer):
        _set_sampler_epoch(inner, trainer.current_epoch)


def set_train_length(trainer: L.Trainer, batches: int) -> None:
    """Make the epoch that begins this long, whatever its loader said at the start of the run."""
    loop: Any = trainer.fit_loop
    loop.max_batches = batches
    loop._combined_loader.limits = batches


def run_validation(trainer: L.Trainer, loader: Any) -> None:
    """Validate on ``loader`` now, at any point of a fit; training goes on afterwards."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    connector = trainer._logger_connector
    data = loop._data_source, loop._combined_loader, loop._max_batches
    first_iteration = connector._first_loop_iter
    loop._data_source, loop._combined_loader = _DataLoaderSource(loader, ""), None
    trainer.validating = True
    try:
        loop.run()
    finally:
        trainer.training = True
        connector._first_loop_iter = first_iteration
        restore_val_data(trainer, data)


def train_as_before_validation(trainer: L.Trainer) -> None:
    """Give the module the train flags it had before the validation that has just started."""
    trainer.fit_loop.epoch_loop.val_loop._module_mode.restore(trainer.lightning_module)


def evaluate_as_before(trainer: L.Trainer) -> None:
    """Take the flags as they are for those to train on with, and go back to evaluation."""
    module = trainer.lightning_module
    trainer.fit_loop.epoch_loop.val_loop._module_mode.capture(module)
    module.on_validation_model_eval()


# -- logged values -----------------------------------------------------------------------------


def step_results(trainer: L.Trainer) -> Any:
    """Where Lightning keeps what the module logs in training: empty if that is nothing.

    The object stays that of the Trainer's loop.
    """
    return trainer.fit_loop.epoch_loop._results


def step_metrics(
    trainer: L.Trainer, seen: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """What the module logged with ``self.log(on_step=True)`` in this training step.

    Args:
        trainer: The Trainer.
        seen: The values of the steps before, changed: Lightning keeps a value until the next,
            and those are left out.
    """
    found: dict[str, torch.Tensor] = {}
    seen = {} if seen is None else seen
    for _, item in step_results(trainer).valid_items():
        value, name = item._forward_cache if item.meta.on_step else None, item.meta.name
        if isinstance(value, torch.Tensor) and value.numel() == 1 and seen.get(name) is not value:
            seen[name] = value
            found[name] = value.detach()
    return found


def val_metrics(trainer: L.Trainer) -> dict[str, torch.Tensor]:
    """What the module logged for the validation, or test, that ends, computed."""
    found = {}
    loop, batches = trainer.fit_loop.epoch_loop.val_loop, trainer.num_val_batches
    if trainer.state.fn == TrainerFn.VALIDATING:
        loop = trainer.validate_loop
    elif trainer.state.fn == TrainerFn.TESTING:
        loop, batches = trainer.test_loop, trainer.num_test_batches
    for item in loop._results.values():
        if item.meta.on_epoch and not item.has_reset:
            value = item._computed if item._computed is not None else item.compute()
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                many = batches and len(batches) > 1
                suffix = f"/dataloader_idx_{item.meta.dataloader_idx}" if many else ""
                found[item.meta.name + suffix] = value.detach()
    return found


def hyper_parameters(module: L.LightningModule) -> dict[str, Any]:
    """What the module has saved by ``save_hyperparameters``, unless it is not to be logged."""
    hparams = module.hparams if getattr(module, "_log_hyperparams", True) else {}
    return dict(hparams) if isinstance(hparams, dict) else dict(vars(hparams))


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Stand in for ``log`` and ``log_dict`` while a hook runs the model."""


@contextlib.contextmanager
def quiet(module: L.LightningModule) -> Iterator[None]:
    """Run the module without a trace: no ``self.log``, torchmetrics' states put back."""
    metrics = [m for m in module.modules() if isinstance(m, Metric)]
    states = [
        (m._copy_state_dict(), m._update_count, m._computed, m._forward_cache) for m in metrics
    ]
    names = ("log", "log_dict")
    own: dict[str, Any] = {name: module.__dict__[name] for name in names if name in module.__dict__}
    module.__dict__.update(log=_ignore, log_dict=_ignore)
    try:
        yield
    finally:
        for name in names:
            del module.__dict__[name]
        module.__dict__.update(own)
        for metric, (state, count, computed, cache) in zip(metrics, states, strict=True):
            for name, value in state.items():
                setattr(metric, name, value)
            metric._update_count, metric._computed, metric._forward_cache = count, computed, cache


def in_training_step(module: L.LightningModule) -> bool:
    """Whether Lightning is calling the module's ``training_step``, not a hook."""
    return bool(module._current_fx_name == "training_step")


# -- checkpoints -------------------------------------------------------------------------------


def writes_directories(strategy: Strategy) -> bool:
    """Whether each rank writes a part of a checkpoint, into a directory."""
    by_fsdp = getattr(strategy, "_state_dict_type", "full") == "sharded"
    return by_fsdp or bool(getattr(strategy, "_save_distributed_checkpoint", False))


# -- precision ---------------------------------------------------------------------------------


def has_grad_scaler(trainer: L.Trainer) -> bool:
    """Whether the Trainer scales the loss (``precision="16-mixed"`` on a GPU)."""
    return getattr(trainer.precision_plugin, "scaler", None) is not None


def grad_scaler(trainer: L.Trainer) -> Any:
    """The Trainer's scaler of the loss."""
    return trainer.precision_plugin.scaler  # type: ignore[attr-defined]


def unscales_itself(optimizer: Any) -> bool:
    """Whether an optimizer (a fused one) divides gradients by the loss scale inside its step."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
