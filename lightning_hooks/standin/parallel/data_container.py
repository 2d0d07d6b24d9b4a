"""mmcv's DataContainer: fields of a sample with rules for batching."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import default_collate

from lightning_hooks.utils.arguments import shown

__all__ = [
    "DataContainer",
    "Scatter",
    "assert_tensor_type",
    "collate",
    "get_input_device",
    "move",
    "scatter",
    "scatter_kwargs",
]


def assert_tensor_type(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method to require a tensor in the container."""

    @functools.wraps(func)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.data, torch.Tensor):
            name = type(self).__name__
            raise AttributeError(
                f"{name} has no attribute {func.__name__} for type {self.datatype}"
            )
        return func(self, *args, **kwargs)

    return checked


class DataContainer:
    """A sample's field with rules for batching and for moving to a device.

    Args:
        data: The field.
        stack: Whether fields are padded to the same size and stacked into a tensor.
        padding_value: The value of the padding.
        cpu_only: Whether the field is never moved, as for metadata.
        pad_dims: Number of last dimensions to pad: 1 to 3, or None for no padding.
    """

    def __init__(
        self,
        data: Any,
        stack: bool = False,
        padding_value: float = 0,
        cpu_only: bool = False,
        pad_dims: int | None = 2,
    ) -> None:
        if pad_dims not in (None, 1, 2, 3):
            raise AssertionError(f"pad_dims must be None, 1, 2 or 3, got {shown(pad_dims)}")
        self._data = data
        self._stack = stack
        self._padding_value = padding_value
        self._cpu_only = cpu_only
        self._pad_dims = pad_dims

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"

    def __len__(self) -> int:
        return len(self._data)

    data = property(lambda self: self._data)
    stack = property(lambda self: self._stack)
    padding_value = property(lambda self: self._padding_value)
    cpu_only = property(lambda self: self._cpu_only)
    pad_dims = property(lambda self: self._pad_dims)

    @property
    def datatype(self) -> Any:
        """The name of a tensor's type, or the class of another field."""
        return self.data.type() if isinstance(self.data, torch.Tensor) else type(self.data)

    @assert_tensor_type
    def size(self, *args: Any, **kwargs: Any) -> Any:
        """Return the size of the tensor inside."""
        return self.data.size(*args, **kwargs)

    @assert_tensor_type
    def dim(self) -> int:
        """Return the number of dimensions of the tensor inside."""
        return int(self.data.dim())


def collate(batch: Sequence[Any], samples_per_gpu: int = 1) -> Any:
    """Make a batch of samples; containers are merged into a container with a list of groups.

    Args:
        batch: The samples.
        samples_per_gpu: Number of samples in a group.
    """
    if not isinstance(batch, Sequence):
        raise TypeError(f"a batch must be a sequence of samples, got {type(batch).__name__}")
    first = batch[0]
    if isinstance(first, DataContainer):
        groups = [batch[i : i + samples_per_gpu] for i in range(0, len(batch), samples_per_gpu)]
        if first.cpu_only or not first.stack:
            data: list[Any] = [[sample.data for sample in group] for group in groups]
        else:
            data = [_stacked(group) for group in groups]
        return DataContainer(data, first.stack, first.padding_value, cpu_only=first.cpu_only)
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        columns: Any = zip(*batch, strict=True)
        return [collate(samples, samples_per_gpu) for samples in columns]
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in batch], samples_per_gpu) for key in first}
    return default_collate(list(batch))


def _stacked(group: Sequence[DataContainer]) -> Any:
    dims = group[0].pad_dims
    if dims is None:
        return default_collate([sample.data for sample in group])
    if group[0].dim() <= dims:
        raise AssertionError(f"pad_dims={dims} needs a tensor of at least {dims + 1} dimensions")
    if len({sample.data.shape[:-dims] for sample in group}) > 1:
        raise AssertionError(f"samples differ in more than their last {dims} dimensions")
    largest = [max(sample.size(-d) for sample in group) for d in range(1, dims + 1)]
    padded = [
        functional.pad(
            sample.data,
            [n for d, size in enumerate(largest, 1) for n in (0, size - sample.size(-d))],
            value=sample.padding_value,
        )
        for sample in group
    ]
    return default_collate(padded)


def scatter(inputs: Any, target_gpus: Sequence[int], dim: int = 0) -> Any:
    """Return the inputs split into a part for each device.

    Tensors are chunked along ``dim`` and moved; a container's groups are distributed. The device
    ``[-1]`` is the CPU.
    """
    return _scattered(inputs, _devices(target_gpus), dim)


def _devices(target_gpus: Sequence[int]) -> list[torch.device]:
    return [torch.device("cpu" if i == -1 else f"cuda:{i}") for i in target_gpus]


def _scattered(value: Any, devices: list[torch.device], dim: int) -> Any:
    if isinstance(value, torch.Tensor):
        if len(devices) == 1:
            return (_moved(value, devices[0]),)
        chunks = value.chunk(len(devices), dim)
        return tuple(_moved(chunk, d) for chunk, d in zip(chunks, devices, strict=False))
    if isinstance(value, DataContainer):
        return value.data if value.cpu_only else _distributed(value.data, devices)
    if isinstance(value, (tuple, list)) and value:
        parts = zip(*(_scattered(item, devices, dim) for item in value), strict=False)
        return [type(value)(part) if type(value) in (tuple, list) else part for part in parts]
    if isinstance(value, dict) and value:
        scattered = zip(*(_scattered(item, devices, dim) for item in value.items()), strict=False)
        return [type(value)(items) for items in scattered]
    return [value for _ in devices]


def _distributed(groups: Any, devices: list[torch.device]) -> tuple[Any, ...]:
    share = -(-len(groups) // len(devices))
    return tuple(_moved(part, devices[i // share]) for i, part in enumerate(groups))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, (list, tuple)):
        return [_moved(item, device) for item in value]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"only tensors are moved to a device, got {type(value).__name__}")
    if device.type == "cpu":
        return value.contiguous()
    return value.contiguous().to(device, non_blocking=True)


def move(input: Any, devices: Sequence[int], streams: Any = None) -> Any:
    """Return a tensor on the first device, or a list's tensors in equal parts on all.

    Args:
        input: The tensor or list of tensors.
        devices: The GPUs; ``[-1]`` is the CPU.
        streams: Ignored: torch orders the copies.
    """
    targets = _devices(devices)
    return [*_distributed(input, targets)] if isinstance(input, list) else _moved(input, targets[0])


def scatter_kwargs(
    inputs: Any, kwargs: Any, target_gpus: Sequence[int], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Scatter positional and keyword arguments; return equally many of both."""
    args = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    args += [()] * (len(named) - len(args))
    named += [{}] * (len(args) - len(named))
    return tuple(args), tuple(named)


def get_input_device(input: Any) -> int:
    """Return the GPU of tensors in lists, or -1 for the CPU.

    >>> get_input_device([torch.zeros(1)])
    -1
    """
    if isinstance(input, list):
        return next((d for d in map(get_input_device, input) if d != -1), -1)
    if isinstance(input, torch.Tensor):
        return input.get_device() if input.is_cuda else -1
    raise TypeError(f"input must be a tensor or a list of tensors, got {type(input).__name__}")


class Scatter:
    """Distribute the groups of a container over devices."""

    @staticmethod
    def forward(target_gpus: Sequence[int], input: Any) -> tuple[Any, ...]:
        """Return a part for each device; ``[-1]`` is the CPU."""
        return _distributed(input, _devices(target_gpus))
