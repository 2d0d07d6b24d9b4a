"""mmcv's model wrappers, for batches with containers, with ``train_step`` and ``val_step``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from lightning_hooks.standin.parallel.data_container import scatter_kwargs
from lightning_hooks.standin.utils.registry import Registry

__all__ = ["MODULE_WRAPPERS", "MMDataParallel", "MMDistributedDataParallel", "is_module_wrapper"]

MODULE_WRAPPERS = Registry("module wrapper", scope="mmcv")
"""The classes of wrappers with the model as ``module``."""
MODULE_WRAPPERS.register_module(module=DataParallel)
MODULE_WRAPPERS.register_module(module=DistributedDataParallel)


def is_module_wrapper(module: nn.Module) -> bool:
    """Return whether a model is a wrapper from :data:`MODULE_WRAPPERS` or a child registry."""

    def is_in(registry: Registry) -> bool:
        wrappers = tuple(c for c in registry.module_dict.values() if isinstance(c, type))
        return isinstance(module, wrappers) or any(map(is_in, registry.children.values()))

    return is_in(MODULE_WRAPPERS)


class MMDataParallel(DataParallel):  # type: ignore[type-arg]
    """Wrap a model on a single device, for batches with containers.

    Args:
        module: The model.
        device_ids: A list with a GPU; by default the current GPU, or the CPU without a GPU.
        output_device: Ignored.
        dim: Dimension for chunking tensors.

    Raises:
        ValueError: for several devices: use MMDistributedDataParallel.

    Note:
        Departure from mmcv: several devices are refused at construction, not at the first step.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Sequence[int] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        nn.Module.__init__(self)  # DataParallel's own uses all devices
        if device_ids is None:
            device_ids = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        if len(device_ids) > 1:
            raise ValueError(
                f"MMDataParallel trains on a single device, got device_ids={list(device_ids)}; "
                "use MMDistributedDataParallel for several"
            )
        here = [i for i in device_ids if i != -1 and torch.cuda.is_available()]
        self.module = module
        self.dim = dim
        self.device_ids: list[int] = here
        if here:
            self.src_device_obj = torch.device("cuda", here[0])
            self.output_device = here[0]
            module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self._run(self.module, inputs, kwargs)

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model's ``train_step``."""
        return self._run(self.module.train_step, inputs, kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model's ``val_step``."""
        return self._run(self.module.val_step, inputs, kwargs)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> tuple[Any, Any]:
        """Unpack containers and move tensors."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def _run(self, method: Callable[..., Any], inputs: Any, kwargs: Any) -> Any:
        args, named = self.scatter(inputs, kwargs, self.device_ids or [-1])
        return method(*args[0], **named[0])


class MMDistributedDataParallel(DistributedDataParallel):
    """``DistributedDataParallel`` for containers, with ``train_step`` and ``val_step``.

    Takes the arguments of torch's class, and averages the gradients under the stand-in's runners
    too.

    Note:
        Departure from mmcv: ranks take rank 0's buffers at each step, also after a validation, as
        torch does; mmcv stops after a validation.
    """

    _method: Callable[..., Any] | None = None

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> tuple[Any, Any]:
        """Unpack containers and move tensors."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def to_kwargs(self, inputs: Any, kwargs: Any, device_id: int) -> tuple[Any, Any]:
        """Unpack containers and move tensors to a device."""
        return self.scatter(inputs, kwargs, [device_id])

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model's ``train_step``; gradients are averaged."""
        return self._through_forward(self.module.train_step, inputs, kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model's ``val_step``."""
        return self._through_forward(self.module.val_step, inputs, kwargs)

    def _through_forward(self, method: Callable[..., Any], inputs: Any, kwargs: Any) -> Any:
        """Run a method through ``forward``, where torch's class synchronizes."""
        self._method = method
        return self(*inputs, **kwargs)

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        method, self._method = self._method or self.module, None
        args, named = self.scatter(inputs, kwargs, self.device_ids or [-1])
        return method(*args[0], **named[0])
