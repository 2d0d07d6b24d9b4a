"""``TrainStepModule``: a LightningModule around a model of mmcv's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch

from lightning_hooks.utils.arguments import shown

__all__ = ["TrainStepModule"]


class TrainStepModule(L.LightningModule):
    """Trains a model with ``train_step(data, optimizer)``, and perhaps ``val_step``.

    ``train_step`` returns ``dict(loss=..., log_vars=dict(...), num_samples=...)``. A hook that owns
    backward (an OptimizerHook) does backward and step; without such a hook Lightning does. As in
    mmcv, ``model.train()`` is called before every epoch (before every iteration in a run counted in
    iterations).

    The state dict has the model's own keys, so that mmcv's ``load_checkpoint(strict=True)`` fills
    the bare model from Lightning's files. Keys are loaded with or without the prefix ``model.``.

    Args:
        model: The model.
        optimizer: The model's optimizer, or a dict of optimizers by name; with several, hooks or
            the model's own ``train_step`` do backward and step.

    Raises:
        TypeError: if the model has no ``train_step``, or an optimizer is not from torch.
    """

    trains_like_mmcv = True

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer] | None = None,
    ) -> None:
        super().__init__()
        if not callable(getattr(model, "train_step", None)):
            raise TypeError(
                f"{type(model).__name__} has no train_step(data, optimizer); "
                "give an mmcv-style model, or write a LightningModule"
            )
        self._set_model(model, optimizer)
        self.automatic_optimization = len(self._optimizers) == 1

    def _set_model(self, model: Any, optimizer: Any) -> None:
        """Set the model and its optimizers: one, or several by name."""
        self.model: Any = model
        named = isinstance(optimizer, Mapping)
        self._optimizers = dict(optimizer) if isinstance(optimizer, Mapping) else {"": optimizer}
        for name, value in self._optimizers.items():
            if not (isinstance(value, torch.optim.Optimizer) or (value is None and not named)):
                where = f"optimizer[{name!r}]" if named else "optimizer"
                raise TypeError(f"{where} must be a torch.optim.Optimizer, got {shown(value)}")
        self.optimizer_names: list[str] | None = list(self._optimizers) if named else None

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning sets the name of the running event 44 times in a step, and torch would search
        # the parameters, buffers and submodules for an attribute of that name each time
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def inner_model(self) -> Any:
        """The model, shown to hooks as ``runner.model.module``."""
        return self.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Call ``model.train_step``; hooks see the whole dict in ``runner.outputs``."""
        return self._checked(self.model.train_step(batch, self._optimizer()), "train_step")

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Call ``model.val_step``."""
        return self._checked(self.model.val_step(batch, self._optimizer()), "val_step")

    def _optimizer(self) -> Any:
        own = [*self._optimizers.values()]
        optimizers: Any = own if self.automatic_optimization else self.optimizers()
        many: list[Any] = optimizers if isinstance(optimizers, list) else [optimizers]
        if self.optimizer_names is None:
            return many[0] if many else None
        return dict(zip(self.optimizer_names, many, strict=True))

    def _checked(self, outputs: Any, step: str) -> dict[str, Any]:
        if not isinstance(outputs, dict):
            raise TypeError(
                f"{type(self.model).__name__}.{step}() must return a dict, got {shown(outputs)}"
            )
        return outputs

    def configure_optimizers(self) -> Any:
        """Return the given optimizers."""
        return [
            optimizer for optimizer in self._optimizers.values() if optimizer is not None
        ] or None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's state dict, by the model's own keys."""
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state dict of the model, with or without the prefix ``model.``."""
        has_prefix = all(key.startswith("model.") for key in state_dict)
        if has_prefix and not self.model.state_dict().keys() & state_dict.keys():
            state_dict = {k.removeprefix("model."): v for k, v in state_dict.items()}
        return self.model.load_state_dict(state_dict, strict=strict, assign=assign)
