"""``SystemMetricsHook``: log the load of the machine."""

from __future__ import annotations

import contextlib
import importlib.util
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
from lightning_hooks.utils.arguments import check_number

__all__ = ["SystemMetricsHook"]

MIB = 2**20


@HOOKS.register_module()
class SystemMetricsHook(Hook):
    """Logs how busy and how full the machine is, read by a separate thread.

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

    Each line of a logger has the averages of the readings in the line's interval, and none of these
    keys without a reading. The numbers describe rank 0's machine and GPU. A GPU has numbers if NVML
    and the package ``nvidia-ml-py`` are installed; values unknown to NVML are absent.

    Args:
        interval: Seconds between two readings.

    Raises:
        ImportError: if psutil is not installed.
        TypeError, ValueError: for an ``interval`` that is no number above 0.

    Note:
        mmcv has no such hook.
    """

    reads_step = False
    transient = ("_thread",)
    _thread: _Readings | None = None

    def __init__(self, interval: float = 10.0) -> None:
        super().__init__()
        check_number("interval", interval, 0)
        if interval == 0:
            raise ValueError("interval must be above 0, in seconds, got 0")
        if importlib.util.find_spec("psutil") is None:
            raise ImportError("SystemMetricsHook needs psutil: pip install psutil", name="psutil")
        self.interval = interval

    def before_run(self, runner: Runner) -> None:
        """Start the thread."""
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
            reader = SystemReader(self._device)
            if reader.problem:
                self._logger.warning("SystemMetricsHook: %s", reader.problem)
            while not self._ended.wait(self._interval):
                found = reader.read()
                self.values.put({f"system/{name}": value for name, value in found.items()})
        except Exception as error:  # of the operating system: training goes on
            self._logger.warning(
                "SystemMetricsHook: nothing more is read (%s: %s)", type(error).__name__, error
            )

    def stop(self) -> None:
        """End the thread, or leave a thread that hangs in a driver behind."""
        self._ended.set()
        self.join(timeout=1.0)


class SystemReader:
    """Reads the load of this machine; make a new reader in the reading thread.

    Args:
        device: The device of the training; only an NVIDIA GPU has numbers.
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
        """Return the numbers by name, without numbers missing on this machine."""
        values: dict[str, float] = {
            "cpu": self._psutil.cpu_percent(),
            "memory": self._psutil.virtual_memory().percent,
            "process_memory": self._process.memory_info().rss / MIB,
        }
        return {**values, **(self._gpu() if self._gpu is not None else {})}


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
    import pynvml

    pynvml.nvmlInit()
    # CUDA and NVML count differently: CUDA_VISIBLE_DEVICES hides GPUs from one of them
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return lambda: read_gpu(pynvml, handle)
