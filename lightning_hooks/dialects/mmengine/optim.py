"""mmengine's optimizer wrappers and visualizer, with the methods that hooks use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["OptimWrapper", "OptimWrapperDict", "Visualizer", "load_states_of", "states_of"]


class OptimWrapper:
    """``runner.optim_wrapper``: the optimizer, with mmengine's methods besides its own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # missing while a copy is being made
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rate of every group."""
        return {"lr": [group["lr"] for group in self.optimizer.param_groups]}

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momentum, or Adam's first beta, of every group."""
        groups = self.optimizer.param_groups
        return {"momentum": [g.get("momentum", g.get("betas", [0])[0]) for g in groups]}

    def update_params(self, loss: Any, **kwargs: Any) -> None:
        """Run backward and step, for a hook that owns both."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class OptimWrapperDict(dict[str, OptimWrapper]):
    """``runner.optim_wrapper`` of several optimizers, by name."""

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates of every group, as ``{name}.lr``."""
        return {f"{name}.lr": one.get_lr()["lr"] for name, one in self.items()}

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momenta of every group, as ``{name}.momentum``."""
        return {f"{name}.momentum": one.get_momentum()["momentum"] for name, one in self.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all optimizers."""
        return {name: one.state_dict() for name, one in self.items()}

    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients of all optimizers."""
        for one in self.values():
            one.zero_grad(**kwargs)


class Visualizer:
    """``runner.visualizer``, which writes to the Trainer's loggers."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Log a number."""
        self.add_scalars({name: value}, step)

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, **kwargs: Any) -> None:
        """Log several numbers."""
        for logger in self._runner.trainer.loggers:
            logger.log_metrics({k: float(v) for k, v in scalar_dict.items()}, step=step)

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        """Log an image (height, width, channels) to the loggers that take images."""
        for logger in self._runner.trainer.loggers:
            if hasattr(logger.experiment, "add_image"):  # TensorBoard
                logger.experiment.add_image(name, image, step, dataformats="HWC")

    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Log a config."""
        for logger in self._runner.trainer.loggers:
            logger.log_hyperparams(dict(config))

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """Do nothing: Lightning's loggers have their own ``log_graph``."""

    def close(self) -> None:
        """Do nothing: the Trainer closes its loggers."""


def states_of(schedulers: Any) -> Any:
    """Return the states of a list of schedulers, or of a dict of lists."""
    if isinstance(schedulers, dict):
        return {name: states_of(some) for name, some in schedulers.items()}
    return [scheduler.state_dict() for scheduler in schedulers]


def load_states_of(schedulers: Any, states: Any) -> None:
    """Restore a list of schedulers, or a dict of lists."""
    if isinstance(schedulers, dict):
        for name, some in schedulers.items():
            load_states_of(some, states[name])
    else:
        for scheduler, state in zip(schedulers, states, strict=True):
            scheduler.load_state_dict(state)
