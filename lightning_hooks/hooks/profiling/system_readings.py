"""Read the load of the machine: CPU and memory with psutil, a GPU with NVML."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SystemReader", "read_gpu"]

MIB = 2**20


class SystemReader:
    """Reads the load of this machine; a new one is made in the thread that reads.

    Args:
        device: The device of the training; one that is no NVIDIA GPU has no numbers of its own.
    """

    def __init__(self, device: torch.device) -> None:
        import psutil

        self._psutil, self._process = psutil, psutil.Process()
        self._psutil.cpu_percent()  # the next call measures from here on
        self.problem = ""
        """The reason why a GPU has no numbers, if any."""
        self._gpu: Callable[[], dict[str, float]] | None = None
        if device.type == "cuda":
            try:
                self._gpu = _open_gpu(device)
            except Exception as error:
                self.problem = f"no numbers of {device} ({type(error).__name__}: {error})"

    def read(self) -> dict[str, float]:
        """Return the numbers by name; one that the machine does not have is absent."""
        values: dict[str, float] = {
            "cpu": self._psutil.cpu_percent(),
            "memory": self._psutil.virtual_memory().percent,
            "process_memory": self._process.memory_info().rss / MIB,
        }
        return {**values, **(self._gpu() if self._gpu is not None else {})}


def read_gpu(nvml: Any, handle: Any) -> dict[str, float]:
    """Return the numbers of a GPU; one that it does not report is left out.

    Args:
        nvml: The module ``pynvml``.
        handle: The GPU.
    """

    def memory() -> float:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return float(100 * info.used / info.total)

    celsius = nvml.NVML_TEMPERATURE_GPU
    readers: dict[str, Callable[[], float]] = {
        "gpu": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "gpu_memory": memory,
        "gpu_power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "gpu_temperature": lambda: float(nvml.nvmlDeviceGetTemperature(handle, celsius)),
    }
    values = {}
    for name, read in readers.items():
        with contextlib.suppress(nvml.NVMLError):  # as a part of a GPU (MIG) for most of them
            values[name] = read()
    return values


def _open_gpu(device: torch.device) -> Callable[[], dict[str, float]]:
    import pynvml

    pynvml.nvmlInit()
    # CUDA and NVML count differently: CUDA_VISIBLE_DEVICES hides GPUs from one of them
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return lambda: read_gpu(pynvml, handle)
