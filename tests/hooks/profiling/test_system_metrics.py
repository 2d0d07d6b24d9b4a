"""SystemMetricsHook: the machine's load reaches the loggers and no thread stays behind."""

from __future__ import annotations

import importlib.util
import json
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_hooks import HookAdapter, SystemMetricsHook, TextLoggerHook
from lightning_hooks.hooks.profiling.system_metrics import read_gpu
from support.training import NoValidation, make_loader, make_trainer

psutil = pytest.importorskip("psutil")


class SlowModule(NoValidation):
    """A module whose steps take longer than a reading of the metrics."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.02)
        return super().training_step(batch, batch_idx)


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "lightning_hooks-system"]


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_the_load_is_in_the_log(tmp_path: Path, adapted: bool, by_epoch: bool) -> None:
    hooks = [SystemMetricsHook(interval=0.01), TextLoggerHook(by_epoch, interval=2)]
    callbacks = [HookAdapter(hooks, by_epoch=by_epoch)] if adapted else hooks
    make_trainer(tmp_path, *callbacks).fit(SlowModule(), make_loader())
    (log,) = tmp_path.glob("**/*.log.json")
    last = json.loads(log.read_text().splitlines()[-1])
    assert 0 <= last["system/cpu"] <= 100
    assert 0 < last["system/memory"] <= 100
    used = psutil.Process().memory_info().rss / 2**20
    assert last["system/process_memory"] == pytest.approx(used, rel=0.5)
    assert not [name for name in last if "gpu" in name]
    assert not threads()


def test_the_training_thread_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = set()
    real = psutil.virtual_memory
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: (readers.add(threading.current_thread().name), real())[1]
    )
    trainer = make_trainer(tmp_path, SystemMetricsHook(interval=0.005))
    trainer.fit(SlowModule(), make_loader())
    assert readers == {"lightning_hooks-system"}


def test_an_error_in_the_training_ends_the_thread(tmp_path: Path) -> None:
    class Failing(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert threads()
            raise RuntimeError("broken step")

    with pytest.raises(RuntimeError, match="broken step"):
        make_trainer(tmp_path, SystemMetricsHook()).fit(Failing(), make_loader())
    assert not threads()


def test_an_error_of_the_system_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise PermissionError("no /proc here")

    monkeypatch.setattr(psutil, "virtual_memory", broken)
    trainer = make_trainer(tmp_path, SystemMetricsHook(interval=0.005), TextLoggerHook())
    trainer.fit(SlowModule(), make_loader())
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warning == ("SystemMetricsHook: nothing more is read (PermissionError: no /proc here)")


def test_a_gpu_reports_what_it_has() -> None:
    class NVMLError(Exception):
        pass

    def unsupported(handle: Any) -> Any:
        raise NVMLError("Not Supported")

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=20, total=80),
        nvmlDeviceGetUtilizationRates=unsupported,
        nvmlDeviceGetPowerUsage=lambda handle: 250_500,
        nvmlDeviceGetTemperature=lambda handle, kind: 61,
    )
    assert read_gpu(nvml, "handle") == {
        "gpu_memory": 25.0,
        "gpu_power": 250.5,
        "gpu_temperature": 61.0,
    }


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "psutil" else real(name)
    )
    with pytest.raises(ImportError, match="pip install psutil"):
        SystemMetricsHook()


def test_wrong_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="interval must be above 0, in seconds, got 0"):
        SystemMetricsHook(interval=0)
    with pytest.raises(TypeError, match="interval"):
        SystemMetricsHook(interval="10")  # type: ignore[arg-type]


def test_a_hook_can_be_pickled_after_a_run(tmp_path: Path) -> None:
    hook = SystemMetricsHook(interval=5)
    make_trainer(tmp_path, hook).fit(NoValidation(), make_loader())
    assert pickle.loads(pickle.dumps(hook)).interval == 5
