"""pointrix's published LogHook, its logger, and checkpoints for pointrix's loader."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import pointrix
from support import training
from support.as_library import load_as
from support.dialect_hooks.pointrix_style import Memory
from support.training import TinyModule

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


class Scene(TinyModule):
    """A module with named groups, whose validation step returns metrics, an image and a name."""

    point_cloud = range(7)

    def configure_optimizers(self) -> Any:
        groups = [{"params": [p], "name": name} for name, p in self.net.named_parameters()]
        return torch.optim.SGD(groups, lr=self.lr)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        metrics = {"L1_loss": torch.tensor(batch_idx + 1.0), "psnr": 30.0 + batch_idx}
        image = torch.zeros(1, 3, 4, 4)
        return {**metrics, "images": image, "rgb_file_name": f"view{batch_idx}.png"}


fit = partial(training.fit, module=Scene, dialect="pointrix", val=2, batches=3)


@pytest.fixture
def printed(monkeypatch: Any) -> Any:
    """Register pointrix's published hook in place of this package's hook for one test."""
    monkeypatch.setattr(pointrix.HOOK_REGISTRY, "_classes", {**pointrix.HOOK_REGISTRY._classes})
    monkeypatch.setitem(sys.modules, "pointrix", pointrix)
    return load_as(monkeypatch, "pointrix_project", "pointrix_printed")


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_its_log_hook_writes_to_the_trainers_logger(
    printed: Any, by_epoch: bool, tmp_path: Path, caplog: Any
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (hook,) = pointrix.parse_hooks({"log": {"name": "LogHook"}})
    assert type(hook) is printed.LogHook
    cfg = type("Config", (), {"bar_upd_interval": 1})()
    with caplog.at_level("INFO"):
        trainer = fit(tmp_path, hook, attributes={"cfg": cfg}, by_epoch=by_epoch)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    losses = trainer.lightning_module.losses
    assert [e.value for e in events.Scalars("loss")] == pytest.approx(losses)
    assert [e.step for e in events.Scalars("num_pt")] == [1, 2, 3]
    assert [e.value for e in events.Scalars("pos_lr")] == pytest.approx([0.1] * 3)
    assert [e.value for e in events.Scalars("test/L1_loss")] == [1.5]
    assert len(events.Images("test_view_view1.png/render")) == 1
    assert hook.reports == ["[ITER 4] Evaluating test: L1_loss 1.50000 psnr 30.50000"]
    assert hook.reports[0] in caplog.messages
    assert hook.bar_info["num_pts"] == 7


def test_a_users_class_replaces_ours_and_no_other(printed: Any) -> None:
    registry = pointrix.HOOK_REGISTRY
    assert registry.get("LogHook") is printed.LogHook
    with pytest.raises(KeyError, match="LogHook is registered already, by pointrix_project"):
        registry.register()(type("LogHook", (), {}))


class Both(Memory):
    """A user's logger with methods for lines and for numbers."""

    def __init__(self, logfolder: str) -> None:
        super().__init__(logfolder)
        self.lines: list[str] = []

    def info(self, line: str, *values: Any) -> None:
        self.lines.append(line % values)

    warning = error = info


@pytest.mark.parametrize("kind", [Memory, Both])
def test_a_users_logger_takes_the_numbers(kind: type, tmp_path: Path) -> None:
    logger = kind(str(tmp_path))
    seen = []

    class Reads(pointrix.Hook):
        def before_train(self, trainner: Any) -> None:
            seen.append((trainner.logger is logger, trainner.writer is logger))

    trainer = fit(tmp_path, Reads(), pointrix.LogHook(1), attributes={"logger": logger})
    assert seen == [(True, True)]
    logged = [value for name, value, _ in logger.written if name == "loss"]
    assert logged == pytest.approx(trainer.lightning_module.losses)
    assert not [*tmp_path.glob("events.out*")]
    if isinstance(logger, Both):
        assert any("called in this order" in line for line in logger.lines)


def test_a_logger_that_a_hook_assigns_is_seen_by_the_others(tmp_path: Path) -> None:
    logger = Memory(str(tmp_path))

    class Assigns(pointrix.Hook):
        def before_run(self, trainner: Any) -> None:
            trainner.logger = logger

    fit(tmp_path, Assigns(), pointrix.LogHook(1))
    assert [step for name, _, step in logger.written if name == "loss"] == [1, 2, 3]


class Loads:
    """Loads a file as pointrix's trainer does: each entry into the attribute of the same name."""

    def __init__(self) -> None:
        self.global_step = 0
        self.model = Scene(seed=1)
        self.optimizer = self.model.configure_optimizers()

    def load_model(self, path: Path) -> None:
        for name, value in torch.load(path, weights_only=True).items():
            found = getattr(self, name)
            if hasattr(found, "load_state_dict"):
                found.load_state_dict(value)
            else:
                setattr(self, name, value)


def test_what_save_model_writes_is_loaded_by_pointrix(tmp_path: Path) -> None:
    class Saves(pointrix.Hook):
        def after_train_iter(self, trainner: Any) -> None:
            trainner.optimizer.param_groups[0]["lr"] = 0.5
            if trainner.global_step == 2:
                trainner.save_model()
                trainner.save_model(str(tmp_path / "named.pth"))
                self.weight = trainner.model.net.weight.detach().clone()

    hook = Saves()
    fit(tmp_path, hook)
    for name in ("chkpnt2.pth", "named.pth"):
        trainer = Loads()
        trainer.load_model(tmp_path / name)
        assert trainer.global_step == 2
        assert torch.equal(trainer.model.net.weight, hook.weight)
        assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.5, 0.1]
