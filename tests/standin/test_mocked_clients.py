"""Mock clients in ``sys.modules`` get the same calls as from mmcv."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_hooks.utils.packages import require
from support.standin import Idle, make
from support.training import NoValidation, fit


def test_a_module_without_a_spec_counts_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "some_client", MagicMock())
    require("some_client", "Mine")


def test_a_module_that_is_blocked_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "some_client", None)
    with pytest.raises(ImportError, match="Mine needs some_client"):
        require("some_client", "Mine")


class Counted(Idle):
    """A model with the losses 1, 2, 3, ..."""

    steps = 0

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        self.steps += 1
        return super().train_step(self.steps)

    val_step = train_step


RATES = {"learning_rate": 0.1, "momentum": 0}
BY_EPOCH = [("train", 1.5, 2), ("val", 5.0, 4)]
"""The mode, the loss and the step of each record, as of mmcv 1.7.2."""
BY_ITERATION = [("train", 1.5, 2), ("train", 4.5, 4)]


def tags(mode: str, loss: float) -> dict[str, float]:
    return {f"{mode}/loss": loss, **RATES}


def run(name: str, unit: str, work_dir: Path, **arguments: Any) -> tuple[Any, Any]:
    """Train with a logger; return the logger and the model."""
    from mmcv.runner import HOOKS

    by_epoch, model = unit == "EpochBasedRunner", Counted()
    runner = make(unit, 1 if by_epoch else 5, work_dir, model)
    runner.register_hook(HOOKS.build({"type": "IterTimerHook"}))
    hook = HOOKS.build({"type": name, "interval": 2, "by_epoch": by_epoch, **arguments})
    runner.register_hook(hook, "VERY_LOW")
    data = DataLoader(range(3))
    runner.run([data, data], [("train", 1 if by_epoch else 2), ("val", 1)])
    return hook, model


UNITS = pytest.mark.parametrize(
    ("unit", "records"), [("EpochBasedRunner", BY_EPOCH), ("IterBasedRunner", BY_ITERATION)]
)


@pytest.fixture
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    found = MagicMock()
    monkeypatch.setitem(sys.modules, request.param, found)
    monkeypatch.setitem(sys.modules, f"{request.param}.pytorch", found.pytorch)
    return found


@UNITS
@pytest.mark.parametrize("client", ["mlflow"], indirect=True)
def test_mlflow(client: MagicMock, unit: str, records: Any, tmp_path: Path) -> None:
    given = {"exp_name": "e", "tags": {"a": 1}, "params": {"p": 2}}
    _, model = run("MlflowLoggerHook", unit, tmp_path, **given)
    assert client.mock_calls == [
        *(call.set_experiment("e"), call.set_tags({"a": 1}), call.log_params({"p": 2})),
        *(call.log_metrics(tags(mode, loss), step=step) for mode, loss, step in records),
        call.pytorch.log_model(model, "models", pip_requirements=[f"torch=={torch.__version__}"]),
    ]
    client.reset_mock()
    run("MlflowLoggerHook", unit, tmp_path, log_model=False)
    assert {name for name, _, _ in client.mock_calls} == {"log_metrics"}


@UNITS
@pytest.mark.parametrize("client", ["wandb"], indirect=True)
def test_wandb(client: MagicMock, unit: str, records: Any, tmp_path: Path) -> None:
    (tmp_path / "config.py").touch()
    given = {"init_kwargs": {"project": "p"}, "define_metric_cfg": {"val/loss": "min"}}
    run("WandbLoggerHook", unit, tmp_path, **given)
    assert client.mock_calls == [
        *(call.init(project="p"), call.define_metric("val/loss", summary="min")),
        *(call.log(tags(mode, loss), step=step, commit=True) for mode, loss, step in records),
        call.Artifact(name="artifacts", type="model"),
        call.Artifact().add_file(str(tmp_path / "config.py")),
        *(call.log_artifact(client.Artifact.return_value), call.join()),
    ]
    client.reset_mock()
    given = {"with_step": False, "commit": False, "log_artifact": False}
    run("WandbLoggerHook", unit, tmp_path, **given)
    assert client.mock_calls == [
        call.init(),
        *(
            call.log({**tags(mode, loss), "global_step": step}, commit=False)
            for mode, loss, step in records
        ),
        call.join(),
    ]


@UNITS
@pytest.mark.parametrize("client", ["neptune"], indirect=True)
def test_neptune(client: MagicMock, unit: str, records: Any, tmp_path: Path) -> None:
    hook, _ = run("NeptuneLoggerHook", unit, tmp_path, init_kwargs={"mode": "debug"})
    assert hook.neptune is client.new
    assert client.new.init.mock_calls[0] == call(mode="debug")
    logged = hook.run.__getitem__.return_value.log.mock_calls
    assert logged == [
        call(value, step=step)
        for mode, loss, step in records
        for value in tags(mode, loss).values()
    ]
    hook.run.stop.assert_called_once_with()


@UNITS
@pytest.mark.parametrize("client", ["clearml"], indirect=True)
def test_clearml(client: MagicMock, unit: str, records: Any, tmp_path: Path) -> None:
    hook, _ = run("ClearMLLoggerHook", unit, tmp_path, init_kwargs={"project_name": "p"})
    client.Task.init.assert_called_once_with(project_name="p")
    assert hook.task is client.Task.init.return_value
    assert hook.task_logger.report_scalar.mock_calls == [
        call(name, name, value, step)
        for mode, loss, step in records
        for name, value in tags(mode, loss).items()
    ]


@UNITS
@pytest.mark.parametrize("client", ["dvclive"], indirect=True)
def test_dvclive(client: MagicMock, unit: str, records: Any, tmp_path: Path) -> None:
    hook, _ = run("DvcliveLoggerHook", unit, tmp_path, dir="x")
    if unit == "EpochBasedRunner":  # mmcv logs the validation alone, with the epoch
        records = [("val", 5.0, 1)]
    want = [call.Live(dir="x")]
    for mode, loss, step in records:
        want += [call.Live().set_step(step)]
        want += [call.Live().log(name, value) for name, value in tags(mode, loss).items()]
    assert client.mock_calls == want
    assert hook.dvclive is client.Live.return_value
    own = MagicMock()
    assert type(hook)(dvclive=own).dvclive is own


@pytest.mark.parametrize("client", ["wandb"], indirect=True)
def test_a_subclass_and_a_second_run_find_the_client_as_in_mmcv(
    client: MagicMock, tmp_path: Path
) -> None:
    from mmcv.runner import WandbLoggerHook

    class Named(WandbLoggerHook):
        def before_run(self, runner: Any) -> None:
            super().before_run(runner)
            self.wandb.run.name = "mine"

        def log(self, runner: Any) -> None:
            super().log(runner)
            assert self.wandb.log.called

    for _ in range(2):
        runner = make("EpochBasedRunner", 1, tmp_path)
        runner.register_hook(Named(interval=2, log_artifact=False), "VERY_LOW")
        runner.run([DataLoader(range(2))], [("train", 1)])
    assert client.run.name == "mine"
    assert client.init.call_count == client.join.call_count == client.log.call_count == 2


@pytest.mark.parametrize("host", [False, True])
def test_a_module_with_the_old_functions_serves_in_a_trainer_too(
    host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmcv.runner import MlflowLoggerHook

    logged: list[Any] = []
    module: Any = types.ModuleType("mlflow")
    module.log_metrics = lambda values, step: logged.append((sorted(values), step))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    fit(tmp_path, MlflowLoggerHook(interval=2, log_model=False), host=host, module=NoValidation)
    assert [step for _, step in logged] == [2, 4]
    assert not (tmp_path / "mlflow.db").exists()
