"""Wrap the model and a step's result in the forms read by mmcv hooks."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.lightning_api.data import batch_size, in_forward, prepare_batch
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.lightning_api.model_state import train_flags
from lightning_hooks.utils import random_state
from lightning_hooks.utils.suggestions import UnknownNameError

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "ModelWrapper",
    "StepOutputs",
    "as_outputs",
    "isolated_model_calls",
    "log_vars_of",
    "takes_batch_idx",
    "unwrap",
]


@contextlib.contextmanager
def isolated_model_calls(runner: Runner) -> Iterator[None]:
    """Undo the side effects of model calls by a hook in the block.

    A step run by a hook is no training step: logging is ignored (Lightning allows logging at few
    points), and torchmetrics' states and the random state are restored.

    Inside a training step owned by hooks the random state is not restored: a second forward (SAM)
    is part of the step, and draws as in mmcv.
    """
    draws = logged_values.in_training_step(runner.module)
    with (
        setting(runner, calls_hooks=False),  # nested calls are isolated already
        logged_values.isolated_logging(runner.module),
        contextlib.nullcontext() if draws else random_state.isolated(),
    ):
        yield


class ModelWrapper(torch.nn.DataParallel):  # type: ignore[type-arg]
    """A module wrapper without parallelism, like mmcv's wrapper around every model.

    A ``DataParallel``, so that mmcv's ``is_module_wrapper`` is True, ``.module`` exists and
    ``state_dict()`` has the ``module.`` prefix. Calls of ``forward``, ``train_step`` and
    ``val_step`` by a hook change neither logged metrics, nor torchmetrics' states, nor the random
    state.
    """

    def __init__(self, module: torch.nn.Module, runner: Runner) -> None:
        torch.nn.Module.__init__(self)  # DataParallel's own would look for devices
        self.module = module
        self.device_ids: list[int] = []
        self.dim = 0
        self._runner_ref: weakref.ref[Runner] | None = weakref.ref(runner)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runner_ref": None}

    @property
    def host(self) -> L.LightningModule | None:
        """The trained LightningModule; None in a copy."""
        runner = self._runner
        return None if runner is None else runner.module

    @property
    def training(self) -> bool:
        """The module's own flag, which may be switched without the wrapper."""
        module = self.__dict__.get("_modules", {}).get("module")
        return True if module is None else bool(module.training)

    @training.setter
    def training(self, mode: bool) -> None:
        """Ignore the flag: ``train()`` switches the module itself."""

    def train(self, mode: bool = True) -> ModelWrapper:
        """Switch the module; keep the train flags on the runner when a hook evaluates."""
        runner = self._runner
        if runner is not None and not mode and self.module.training:
            runner.flags_before_eval = train_flags(self.module)
        super().train(mode)
        return self

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module, with tensors moved to the module's device as in mmcv's wrapper."""
        runner = self._runner
        if runner is None:
            return self.module(*inputs, **kwargs)
        device = runner.trainer.strategy.root_device
        inputs, kwargs = move_data_to_device((inputs, kwargs), device)
        with isolated_model_calls(runner), runner.trainer.precision_plugin.forward_context():
            return in_forward(runner.trainer, self.module, *inputs, **kwargs)

    @property
    def _runner(self) -> Runner | None:
        return self._runner_ref() if self._runner_ref else None

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Run the model's ``train_step``, or the LightningModule's ``training_step``."""
        outputs = self._step("train_step", "training_step", data, optimizer, kwargs)
        wrap = None if self._runner is None else self._runner.wrap_outputs
        return outputs if wrap is None else wrap(outputs)

    def val_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Run the model's ``val_step``, or the LightningModule's ``validation_step``."""
        return self._step("val_step", "validation_step", data, optimizer, kwargs)

    def _step(
        self, ours: str, lightning: str, data: Any, optimizer: Any, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        runner = self._runner
        if runner is None:
            return as_outputs(getattr(self.module, ours)(data, optimizer, **kwargs))
        trainer, host = runner.trainer, runner.module
        if data is not getattr(runner, "data_batch", None):  # the current batch is prepared
            data = prepare_batch(trainer, data)
        with isolated_model_calls(runner), trainer.precision_plugin.forward_context():
            if hasattr(self.module, ours):
                own = getattr(self.module, ours)
                return as_outputs(in_forward(trainer, own, data, optimizer, **kwargs))
            step = getattr(type(host), lightning)  # the class's: the driver listens to the other
            args = (data, 0) if takes_batch_idx(step) else (data,)
            return as_outputs(in_forward(trainer, step, host, *args))


def takes_batch_idx(step: Callable[..., Any]) -> bool:
    """Whether a step function, ``self`` and the batch counted, takes a third argument."""
    parameters = inspect.signature(step).parameters.values()
    return len(parameters) > 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def as_outputs(outputs: Any) -> dict[str, Any]:
    """Return a step's result as mmcv's dict: a tensor or a number as ``loss``.

    Any other result that Lightning accepts (None, a tuple, a dataclass) has no names: the dict is
    empty.

    >>> as_outputs(0.5), as_outputs((0.5, 0.25))
    ({'loss': 0.5}, {})
    """
    if isinstance(outputs, (torch.Tensor, Real)):
        return {"loss": outputs}
    return dict(outputs) if isinstance(outputs, Mapping) else {}


def log_vars_of(outputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return mmcv's ``log_vars`` of a step's dict; None without a dict of that name."""
    values = outputs.get("log_vars")
    return values if isinstance(values, dict) else None


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside a wrapper, or the module itself."""
    wrappers = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, wrappers) else model


class StepOutputs(dict[str, Any]):
    """A step's dict with ``num_samples`` counted on demand, if the step did not return a count.

    Old hooks read ``num_samples``, which a LightningModule need not return. For any other missing
    key the error names the dict to return. A copy is a plain dict.

    >>> StepOutputs(loss=0.5)["log_vars"]
    Traceback (most recent call last):
    lightning_hooks.utils.suggestions.UnknownNameError: the step returned no 'log_vars', only: loss;
    return \
dict(loss=..., log_vars=...) from it
    """

    __slots__ = ("runner",)

    runner: Runner
    """The runner with the batch to count."""

    @classmethod
    def of(cls, runner: Runner, values: dict[str, Any]) -> StepOutputs:
        """Return the values of a step of a run."""
        outputs = cls(values)
        outputs.runner = runner
        return outputs

    def __missing__(self, key: str) -> Any:
        """Count the samples of the batch.

        Raises:
            UnknownNameError: for another key, and where the batch has no tensor to count by.
        """
        batch = getattr(getattr(self, "runner", None), "data_batch", None)
        count = batch_size(batch) if key == "num_samples" else None
        if count is not None:
            return count
        wanted = "loss=..." if key == "loss" else f"loss=..., {key}=..."
        raise UnknownNameError(
            f"the step returned no {key!r}, only: {', '.join(map(str, self)) or 'nothing'}; "
            f"return dict({wanted}) from it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
