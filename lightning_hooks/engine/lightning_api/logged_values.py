"""Read a module's values logged with ``self.log``; add values for Lightning's callbacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import lightning as L
import torch
from torchmetrics import Metric

from lightning_hooks.engine.lightning_api.method_patch import FitChanges, setting
from lightning_hooks.engine.lightning_api.private_names import needs
from lightning_hooks.engine.lightning_api.progress import batch_ends
from lightning_hooks.utils.concatenated import concatenated, separated
from lightning_hooks.utils.secrets import masked

__all__ = [
    "RAW",
    "CallbackValues",
    "LossNames",
    "epoch_means",
    "epoch_names",
    "epoch_values",
    "hyper_parameters",
    "in_training_step",
    "is_isolated",
    "isolated_logging",
    "loader_suffix",
    "logged_by",
    "names_for_loggers",
    "step_metrics",
    "step_names",
    "step_results",
]


RAW = "raw/"
"""What the names of the raw weights' scores begin with."""


def logged_by(loop: Any) -> Any:
    """Return a loop's collection of the module's logged values; empty where Lightning has none."""
    return getattr(loop, "_results", {})


def step_results(trainer: L.Trainer) -> Any:
    """Return Lightning's collection of the module's logged values in training.

    The object stays the same for the life of the Trainer's loop.
    """
    return logged_by(trainer.fit_loop.epoch_loop)


def step_metrics(trainer: L.Trainer, seen: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the values logged with ``self.log(on_step=True)`` in the current step.

    Args:
        trainer: The Trainer.
        seen: The values of earlier steps by name, still kept by Lightning and left out here;
            updated.
    """
    results, new = step_results(trainer), dict[str, torch.Tensor]()
    for _, item in results.valid_items() if results else ():
        value, name = item._forward_cache if item.meta.on_step else None, item.meta.name
        if isinstance(value, torch.Tensor) and value.numel() == 1 and seen.get(name) is not value:
            seen[name] = value
            new[name] = value.detach()
    return new


class LossNames:
    """Find the names under which a module logs the returned loss itself.

    Found in the first step that returns a loss, of the first two steps.

    Args:
        module: The module; ``log`` and ``training_step`` are patched until the names are found.
        found: Called with the names.
        fit: The fit of the patches.
    """

    def __init__(
        self, module: L.LightningModule, report: Callable[[frozenset[str]], None], fit: FitChanges
    ) -> None:
        self._module, self._found = module, report
        self._logged: list[tuple[str, Any]] = []  # held, so that no memory is reused
        self._steps_left = 2
        self._patches = fit.part()
        # a compiled step would be compiled twice
        if getattr(module, "_compiler_ctx", module) is None:
            fit.patch(module, "log", before=self._note, until=self._patches)
            fit.patch(module, "training_step", after=self._compare, until=self._patches)
            self._patches.callback(setattr, self, "_logged", [])

    def _note(self, name: str = "", value: Any = None, *args: Any, **kwargs: Any) -> None:
        # a module's own log() may have other argument names
        if isinstance(value, (torch.Tensor, Metric)) and in_training_step(self._module):
            self._logged.append((name, value))

    def _compare(self, outputs: Any) -> None:
        if not in_training_step(self._module):
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        logged, self._logged = self._logged, []
        self._steps_left -= 1
        if isinstance(loss, torch.Tensor):
            names = {name for name, value in logged if _is_same(value, loss)} - {"loss"}
            self._found(frozenset(names))
            self._patches.close()
        elif not self._steps_left:
            self._patches.close()


def _is_same(value: torch.Tensor | Metric, loss: torch.Tensor) -> bool:
    """Whether two tensors share memory, also if detached; a metric, whether its step has the loss.

    The value of a metric is read from the device, once in a fit.
    """
    if isinstance(value, Metric):
        step_value = value._forward_cache
        return isinstance(step_value, torch.Tensor) and torch.equal(
            step_value, loss.detach().to(step_value)
        )
    if value is loss:
        return True
    return value.shape == loss.shape and value.data_ptr() == loss.data_ptr()


def step_names(trainer: L.Trainer) -> dict[str, str]:
    """Return the names of the module's values by step for loggers, such as ``loss_step``."""
    metas = (item.meta for item in step_results(trainer).values())
    return {meta.name: f"{meta.name}_step" for meta in metas if meta.on_step and meta.on_epoch}


def epoch_names(trainer: L.Trainer) -> set[str]:
    """Return the names of the module's values of training that Lightning logs by epoch alone."""
    metas = (item.meta for item in step_results(trainer).values())
    return {meta.name for meta in metas if meta.on_epoch and not meta.on_step}


def names_for_loggers(trainer: L.Trainer) -> tuple[set[str], set[str]]:
    """Return the names of values logged to the Trainer's loggers, and of values kept from loggers.

    A value is kept from loggers by ``self.log(..., logger=False)``. Names come in all forms.
    """
    logged = [*_logged(trainer)]
    there = _in_all_forms(_names(meta for meta in logged if meta.logger))
    return there, _in_all_forms(_names(logged)) - there


def _logged(trainer: L.Trainer) -> Iterator[Any]:
    """Yield Lightning's description of each logged value of the module."""
    fit = trainer.fit_loop.epoch_loop
    for loop in (fit, fit.val_loop, trainer.validate_loop, trainer.test_loop):
        yield from (item.meta for item in logged_by(loop).values())


def _names(logged: Iterable[Any]) -> set[str]:
    """Return the names, per loader."""
    return {meta.name + loader_suffix(meta) for meta in logged}


def _in_all_forms(names: Iterable[str]) -> set[str]:
    """Return names in all forms: plain, per step, per epoch.

    >>> sorted(_in_all_forms(["loss", "acc/dataloader_idx_0"]))[:3]
    ['acc/dataloader_idx_0', 'acc_epoch/dataloader_idx_0', 'acc_step/dataloader_idx_0']
    """
    parts = [name.partition(_OF_LOADER) for name in names]
    forms = ("", "_step", "_epoch")
    return {f"{name}{form}{suffix}{idx}" for name, suffix, idx in parts for form in forms}


_OF_LOADER = "/dataloader_idx_"


def loader_suffix(meta: Any) -> str:
    """Return Lightning's suffix of a value's name for several data loaders."""
    several = meta.add_dataloader_idx and meta.dataloader_idx is not None
    return f"{_OF_LOADER}{meta.dataloader_idx}" if several else ""


def epoch_means(results: Any) -> dict[str, torch.Tensor]:
    """Return the numbers of a whole pass in a collection of Lightning's logged values."""
    means = {}
    for item in results.values():
        if item.meta.on_epoch and not item.has_reset:
            value = item.compute()  # once: Lightning keeps the result
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                means[item.meta.name + loader_suffix(item.meta)] = value.detach()
    return means


def epoch_values(trainer: L.Trainer) -> dict[str, torch.Tensor]:
    """Return the module's logged values of the ending training epoch, by Lightning's names.

    Lightning caches each computed value for Lightning's own loggers. All ranks must call the
    function: metrics are computed over all ranks.
    """
    results = step_results(trainer)
    if not results:
        return {}
    names = [item.meta.forked_name(on_step=False) for _, item in results.valid_items()]
    metrics = results.metrics(on_step=False)
    values = {**metrics["callback"], **metrics["log"]}  # the former has second names, too
    return {name: values[name] for name in names if name in values and values[name].numel() == 1}


class CallbackValues:
    """The numbers in ``trainer.callback_metrics``: the module's, and those of hooks.

    A value of a hook never replaces a value that the module itself logs, before a resume too.

    Args:
        trainer: The Trainer.
    """

    logged_before: frozenset[str] = frozenset()
    """The names of the values that the module had logged when the resumed file was written."""

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer

    def logged(self) -> set[str]:
        """Return the names of the values that the module has logged so far."""
        return _names(_logged(self._trainer)) | self.logged_before

    @property
    def _shown(self) -> dict[str, torch.Tensor]:
        # the properties of the Trainer would compute the module's metrics now
        return self._trainer._logger_connector._callback_metrics

    @needs("values of hooks in callback_metrics")
    def publish(self, values: Mapping[str, Any]) -> None:
        """Add a hook's values.

        No progress bar shows the numbers; a hook asks with ``module.log(..., prog_bar=True)``.

        Args:
            values: Numbers, or tensors of a single element, not read from the device; other values
                are left out.
        """
        own = _in_all_forms(self.logged())
        for name, value in values.items():
            is_tensor = isinstance(value, torch.Tensor) and value.numel() == 1
            if name not in own and (is_tensor or isinstance(value, Real)):
                self._shown[name] = (
                    value.detach().squeeze()
                    if is_tensor
                    else torch.tensor(value, dtype=torch.float64)
                )

    @needs("values of hooks in callback_metrics")
    def withdraw_raw(self) -> None:
        """Remove the raw weights' scores, of a resumed file too."""
        own = _in_all_forms(self.logged())
        for name in [name for name in self._shown if name.startswith(RAW) and name not in own]:
            del self._shown[name]

    @needs("values of hooks in callback_metrics")
    def state(self) -> list[dict[str, Any]]:
        """Return the numbers; all ranks call it, unless after an error.

        The values of the step, or epoch, are computed, where Lightning is about to; after an error
        in a run of one process alone. The tensors stay on their device.
        """
        trainer = self._trainer
        is_whole = not trainer.interrupted or (trainer.world_size == 1 and batch_ends(trainer))
        values = trainer.callback_metrics if is_whole else self._shown
        return concatenated({name: value for name, value in values.items() if value.numel() == 1})

    @needs("values of hooks in callback_metrics")
    def restore(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Go on with a file's :meth:`state`; Lightning saves no numbers."""
        device = self._trainer.lightning_module.device
        values = {name: value.squeeze().to(device) for name, value in separated(state).items()}
        self._shown.update(values)


def hyper_parameters(module: L.LightningModule) -> dict[str, Any]:
    """Return the module's hyper-parameters, without secrets; empty if not to be logged."""
    hparams = module.hparams if getattr(module, "_log_hyperparams", True) else {}
    return dict(masked(hparams if isinstance(hparams, dict) else vars(hparams)))


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Replace ``log`` and ``log_dict`` while a hook runs the model."""


@contextlib.contextmanager
def isolated_logging(module: L.LightningModule) -> Iterator[None]:
    """Ignore ``self.log`` in the block, and restore torchmetrics' states afterwards."""
    metrics = [m for m in module.modules() if isinstance(m, Metric)]
    states = [{name: _copy(value) for name, value in vars(metric).items()} for metric in metrics]
    try:
        with setting(module, log=_ignore, log_dict=_ignore):
            yield
    finally:
        for metric, state in zip(metrics, states, strict=True):
            vars(metric).update(state)


def _copy(value: Any) -> Any:
    """Return a copy of a metric's tensor, or list of tensors; any other value is returned as is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value[:] if isinstance(value, list) else value


def is_isolated(module: Any) -> bool:
    """Whether the module is in a block of :func:`isolated_logging`."""
    return vars(module).get("log") is _ignore


def in_training_step(module: L.LightningModule) -> bool:
    """Whether Lightning is calling the module's ``training_step``, not a hook."""
    return bool(getattr(module, "_current_fx_name", "training_step") == "training_step")
