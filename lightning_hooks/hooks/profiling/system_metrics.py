"""``SystemMetricsHook``: log the load of the machine."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.logged import warn_unless_logged
from lightning_hooks.utils.arguments import check_number
from lightning_hooks.utils.packages import require

__all__ = ["SystemMetricsHook"]

MIB = 2**20


@HOOKS.register_module()
class SystemMetricsHook(Hook):
    """Logs the load of processors, memory and GPU, read by a separate thread.

    ===========================  ==========================================================
    key                          value
    ===========================  ==========================================================
    ``system/cpu``               percent, of all cores together
    ``system/memory``            percent of the machine's memory in use
    ``system/process_memory``    MiB of this process, without loader workers
    ``system/gpu``               percent of the time in which the GPU computes
    ``system/gpu_memory``        percent of the GPU's memory in use, by all processes
    ``system/gpu_power``         watts
    ``system/gpu_temperature``   degrees Celsius
    ===========================  ==========================================================

    Each line of a logger has the averages of the readings in the line's interval; a line without a
    reading has none of these keys. The numbers describe rank 0's machine and GPU. The numbers of
    a GPU need NVML and the package ``nvidia-ml-py``; values unknown to NVML are absent.

    Args:
        interval: Seconds between two readings.

    Raises:
        ImportError: if psutil is not installed.
        TypeError, ValueError: for an ``interval`` that is no number above 0.

    Note:
        mmcv has no such hook.
    """

    _reads_step = False
    _transient = ("_thread",)
    _thread: _Readings | None = None

    def __init__(self, interval: float = 10.0) -> None:
        super().__init__()
        check_number("interval", interval, 0)
        if interval == 0:
            raise ValueError("interval must be above 0, in seconds, got 0")
        require("psutil", "SystemMetricsHook")
        self.interval = interval

    def before_run(self, runner: Runner) -> None:
        """Start the thread."""
        warn_unless_logged(self, runner)
        if runner.rank == 0:
            self._thread = _Readings(self.interval, runner.module.device, runner.logger)
            self._thread.start()
            Driver.of(runner.trainer).fit.callback(self._thread.stop)

    def after_train_iter(self, runner: Runner) -> None:
        """Pass the readings on to the loggers."""
        if self._thread is not None:
            while not self._thread.values.empty():
                runner.log_buffer.update(self._thread.values.get())


class _Readings(threading.Thread):
    """Puts readings into a queue, until stopped."""

    def __init__(self, interval: float, device: torch.device, logger: logging.Logger) -> None:
        super().__init__(name="lightning_hooks-system", daemon=True)
        self.values: SimpleQueue[dict[str, float]] = SimpleQueue()
        self._interval, self._device, self._logger = interval, device, logger
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            sources = [_open_machine()]
            if self._device.type == "cuda":
                try:
                    sources.append(_open_gpu(self._device))
                except Exception as error:
                    self._warn(f"no numbers of {self._device}", error)
            while not self._ended.wait(self._interval):
                values = {f"system/{k}": value for read in sources for k, value in read().items()}
                self.values.put(values)
        except Exception as error:  # of the operating system: training goes on
            self._warn("nothing more is read", error)

    def _warn(self, message: str, error: Exception) -> None:
        kind = type(error).__name__
        self._logger.warning("SystemMetricsHook: %s (%s: %s)", message, kind, error)

    def stop(self) -> None:
        """End the thread; after a second, leave a thread behind that hangs in a driver."""
        self._ended.set()
        self.join(timeout=1.0)


def _open_machine() -> Callable[[], dict[str, float]]:
    """Return a function that reads the load of the machine."""
    import psutil

    process = psutil.Process()
    psutil.cpu_percent()  # the next call measures from here on

    def read() -> dict[str, float]:
        return {
            "cpu": psutil.cpu_percent(),
            "memory": psutil.virtual_memory().percent,
            "process_memory": process.memory_info().rss / MIB,
        }

    return read


def read_gpu(nvml: Any, handle: Any) -> dict[str, float]:
    """Return the numbers of a GPU, without values unknown to NVML.

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
        with contextlib.suppress(nvml.NVMLError):  # a part of a GPU (MIG) has few values
            values[name] = read()
    return values


def _open_gpu(device: torch.device) -> Callable[[], dict[str, float]]:
    """Return a function that reads the load of an NVIDIA GPU."""
    import pynvml

    pynvml.nvmlInit()
    # CUDA_VISIBLE_DEVICES hides GPUs from CUDA but not from NVML, so the indices differ
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return lambda: read_gpu(pynvml, handle)
