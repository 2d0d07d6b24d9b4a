"""Hooks of pointrix-style trainers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import pointrix
from support import training
from support.dialect_hooks.pointrix_style import Densify, GroupLog, Memory, Report, Trace
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


class Named(TinyModule):
    def configure_optimizers(self) -> Any:
        groups = [{"params": [p], "name": name} for name, p in self.net.named_parameters()]
        return torch.optim.SGD(groups, lr=self.lr)


fit = partial(
    training.fit, module=Named, dialect="pointrix", val=2, host=True, batches=3, max_epochs=2
)


def test_the_points_come_as_in_the_loop(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook, val_check_interval=3)
    val = ["before_val", *2 * ["before_val_iter", "after_val_iter"], "after_val"]
    expected = [("before_run", 1), ("before_train", 1)]
    for start in (1, 4):
        for step in range(start, start + 3):
            expected += [("before_train_iter", step), ("after_train_iter", step)]
        expected += [(point, start + 3) for point in val]
    assert hook.calls == [*expected, ("after_train", 7), ("after_run", 7)]


@pytest.mark.parametrize(("steps", "validated"), [(10, [4, 8, 10]), (8, [4, 8])])
def test_the_last_step_is_validated_too(steps: int, validated: list[int], tmp_path: Path) -> None:
    hook = Trace()
    every = {"val_check_interval": 4, "check_val_every_n_epoch": None}
    fit(tmp_path, hook, by_epoch=False, max_epochs=-1, max_steps=steps, **every)
    assert [step - 1 for point, step in hook.calls if point == "before_val"] == validated
    assert hook.calls[-3:] == [
        (name, steps + 1) for name in ("after_val", "after_train", "after_run")
    ]


def test_an_assigned_step_is_counted_on(tmp_path: Path) -> None:
    class Jumps(Trace):
        def after_train_iter(self, trainner: Any) -> None:
            super().after_train_iter(trainner)
            if trainner.global_step == 2:
                trainner.global_step = 100

    hook = Jumps()
    fit(tmp_path, hook, max_epochs=1)
    points = ("before_train_iter", "after_train_iter", "after_val", "after_train")
    steps = [step for point, step in hook.calls if point in points]
    assert steps == [1, 1, 2, 2, 101, 101, 102, 102]  # three iterations, as without the jump


def test_a_hook_that_reads_groups_model_and_losses(tmp_path: Path) -> None:
    hook, writer = GroupLog(), Memory(str(tmp_path))
    trainer = fit(tmp_path, hook, attributes={"writer": writer})
    losses = trainer.lightning_module.losses
    assert [row[:2] for row in hook.rows] == [(step, 2) for step in range(1, 7)]
    assert [row[2] for row in hook.rows] == pytest.approx(losses)
    assert (hook.size, hook.step) == (2, 7)
    assert set(hook.metrics) == {"val_loss"}
    assert writer.written[:3] == [
        ("job", {"lr": 0.1}, 0),
        ("weight_lr", 0.1, 1),
        ("bias_lr", 0.1, 1),
    ]
    assert ("view", (3, 4, 4), 4) in writer.written


class Scene(Named):
    """A module whose validation step returns metrics, an image and a name."""

    point_cloud = range(7)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        image = torch.zeros(1, 3, 4, 4)
        metrics = {"L1_loss": torch.tensor(batch_idx + 1.0), "psnr": 30.0 + batch_idx}
        return {**metrics, "images": image, "rgb_file_name": f"view{batch_idx}.png"}


def test_the_librarys_own_kind_of_report(tmp_path: Path) -> None:
    hook, writer = Report(), Memory(str(tmp_path))
    fit(tmp_path, hook, attributes={"writer": writer}, max_epochs=1, module=Scene())
    assert [row[::2] for row in writer.written if row[0] == "num_pt"] == [
        ("num_pt", 1),
        ("num_pt", 2),
        ("num_pt", 3),
    ]
    assert ("weight_lr", 0.1, 1) in writer.written
    assert ("test_view_view1.png", (3, 4, 4), 4) in writer.written
    assert ("test/L1_loss", 1.5, 4) in writer.written
    assert ("test/psnr", 30.5, 4) in writer.written


def test_a_point_of_the_trainers_own(tmp_path: Path) -> None:
    hook = Densify()
    adapter = HookAdapter([hook, Trace()], dialect="pointrix")

    class Grows(Named):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 1:
                adapter.call_hook("after_densify", grow=5)

    make_trainer(tmp_path, adapter).fit(Grows(), make_loader(3))
    assert hook.steps == [(2, 5)]
    with pytest.raises(RuntimeError, match="needs a run in progress"):
        adapter.call_hook("after_densify")


def test_a_type_error_names_the_hook(tmp_path: Path) -> None:
    class Shows(Densify):
        def __repr__(self) -> str:
            return "the hook Densify"

    with pytest.raises(TypeError, match=r"'int' has no len\(\) in the hook Densify") as caught:
        fit(tmp_path, Shows(), attributes={"broken": True})
    assert caught.value.__notes__ == ["in hook Shows.after_train_iter (epoch 0, iter 0)"]


def test_exception_is_called_on_an_error(tmp_path: Path) -> None:
    class Bad(pointrix.Hook):
        told = 0

        def before_train_iter(self, trainner: Any) -> None:
            raise OSError("full")

        def exception(self) -> None:
            self.told += 1

    hook = Bad()
    with pytest.raises(OSError, match="full"):
        fit(tmp_path, hook)
    assert hook.told == 1


def test_hooks_from_a_dict_and_from_yaml(tmp_path: Path) -> None:
    config = {"a": {"name": "Trace"}, "b": {"name": "LogHook", "interval": 5}}
    hooks = pointrix.parse_hooks(config)
    assert [type(hook).__name__ for hook in hooks] == ["Trace", "LogHook"]
    assert hooks[1].interval == 5
    path = tmp_path / "job.yaml"
    path.write_text(f"trainer: {{hooks: {json.dumps(config)}}}")
    assert [type(h).__name__ for h in pointrix.parse_hooks(path)] == ["Trace", "LogHook"]
    assert pointrix.parse_hooks(None) == pointrix.parse_hooks({}) == []
    with pytest.raises(KeyError, match="did you mean 'LogHook'"):
        pointrix.parse_hooks({"a": {"name": "LogHok"}})
    with pytest.raises(TypeError, match="unexpected keyword argument 'size' in the hook 'a'"):
        pointrix.parse_hooks({"a": {"name": "Trace", "size": 3}})
    with pytest.raises(TypeError, match="the hook 'a' needs a dict with the key 'name'"):
        pointrix.parse_hooks({"a": "Trace"})


def test_the_registry_refuses_another_class_of_the_name() -> None:
    registry = pointrix.HookRegistry()
    registry.register()(Trace)
    registry.register()(Trace)
    with pytest.raises(KeyError, match="Trace is registered already"):
        registry.register()(type("Trace", (), {}))


def test_the_librarys_hooks(tmp_path: Path) -> None:
    writer = Memory(str(tmp_path))
    hooks = [pointrix.LogHook(2), pointrix.CheckPointHook(4), pointrix.ProgressHook(1)]
    trainer = fit(tmp_path, *hooks, attributes={"writer": writer})
    losses = trainer.lightning_module.losses
    logged = [(step, value) for name, value, step in writer.written if name == "loss"]
    assert logged == [(s, pytest.approx(losses[s - 1])) for s in (2, 4, 6)]
    names = {name for name, _, _ in writer.written}
    assert names == {"loss", "train_loss", "lr/weight", "lr/bias", "val/val_loss"}
    assert [s for n, _, s in writer.written if n == "val/val_loss"] == [3, 6]
    files = sorted(path.name for path in tmp_path.glob("chkpnt*"))
    assert files == ["chkpnt4.pth", "chkpnt6.pth"]
    saved = torch.load(tmp_path / "chkpnt6.pth", weights_only=True)
    assert saved["global_step"] == 6
    assert torch.equal(saved["model"]["net.weight"], trainer.lightning_module.net.weight)


def test_a_subclass_reads_the_bar_and_the_sums_of_the_log_hook(tmp_path: Path, capsys: Any) -> None:
    class Reads(pointrix.LogHook):
        seen: Any = None

        def after_train_iter(self, trainner: Any) -> None:
            super().after_train_iter(trainner)
            self.progress_bar.set_postfix({"points": 7})

        def after_val(self, trainner: Any) -> None:
            self.seen = dict(self.losses_test)
            super().after_val(trainner)

    hook, writer = Reads(), Memory(str(tmp_path))
    fit(tmp_path, hook, attributes={"writer": writer}, max_epochs=1, module=Scene())
    assert hook.seen == {"L1_loss": 3.0, "psnr": 61.0}
    assert hook.losses_test == {"L1_loss": 0.0, "psnr": 0.0}
    assert ("test/L1_loss", 1.5, 4) in writer.written
    shown = capsys.readouterr().err
    assert "Training progress: 100%" in shown
    assert "points=7" in shown


def test_the_losses_of_the_step_stay_in_a_validation(tmp_path: Path) -> None:
    class Reads(pointrix.Hook):
        def after_train_iter(self, trainner: Any) -> None:
            trainner.loss_dict["mine"] = 1.0
            self.losses = dict(trainner.loss_dict)

        def after_val(self, trainner: Any) -> None:
            assert trainner.loss_dict == self.losses

    hook = Reads()
    fit(tmp_path, hook, max_epochs=1, module=Scene())
    assert hook.losses.keys() == {"loss", "train_loss", "mine"}


def test_the_log_hook_takes_means_over_a_stream(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(make_loader(2).dataset)

    writer, val = Memory(str(tmp_path)), torch.utils.data.DataLoader(Stream(), 2)
    attributes = {"writer": writer}
    fit(tmp_path, pointrix.LogHook(), attributes=attributes, max_epochs=1, module=Scene(), val=val)
    assert ("test/L1_loss", 1.5, 4) in writer.written


def test_the_log_hook_logs_the_rates_of_several_optimizers(tmp_path: Path) -> None:
    class Two(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
            return loss

        def configure_optimizers(self) -> Any:
            parts = {"points": self.net.weight, "camera": self.net.bias}
            return [
                torch.optim.SGD([{"params": [part], "name": name}], lr=0.1 * number)
                for number, (name, part) in enumerate(parts.items(), 1)
            ]

    writer = Memory(str(tmp_path))
    hook = pointrix.LogHook(3)
    fit(tmp_path, hook, attributes={"writer": writer}, module=Two, max_epochs=1, val=0)
    assert [one for one in writer.written if one[0].startswith("lr/")] == [
        ("lr/points", 0.1, 3),
        ("lr/camera", 0.2, 3),
    ]


def test_the_log_hooks_bar_gives_way_to_lightnings(tmp_path: Path) -> None:
    hook = pointrix.LogHook()
    fit(tmp_path, hook, max_epochs=1, enable_progress_bar=True)
    assert hook.progress_bar.disable


def test_a_writer_from_a_dict_and_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("trainer: {writer: {writer_type: TensorboardWriter}}")
    for config in (path, {"writer_type": "TensorboardWriter"}):
        writer = pointrix.parse_writer(config, str(tmp_path))
        assert type(writer) is pointrix.TensorboardWriter
        assert writer.logfolder == str(tmp_path)
    assert pointrix.parse_writer(None, "") is pointrix.parse_writer({}, "") is None
    pointrix.WRITER_REGISTRY.register()(Memory)
    assert type(pointrix.parse_writer({"writer_type": "Memory"}, "")) is Memory
    with pytest.raises(KeyError, match="no writer 'Memry' is registered; did you mean 'Memory'"):
        pointrix.parse_writer({"writer_type": "Memry"}, "")
    with pytest.raises(TypeError, match="unexpected keyword argument 'size' in the writer"):
        pointrix.parse_writer({"writer_type": "Memory", "size": 3}, "")


def test_the_default_writer_is_tensorboards(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(tmp_path, pointrix.LogHook(3), GroupLog())
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == [3, 6]
    assert len(events.Images("view")) == 4


def test_tensorboard_has_what_is_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = pointrix.TensorboardWriter(str(tmp_path))
    writer.write_config("job", {"lr": 0.1})
    writer.write_scalar("loss", torch.tensor(0.5), 1)
    writer.write_image("view", torch.zeros(3, 4, 4), 1)
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5)]
    assert [e.step for e in events.Images("view")] == [1]
    assert b"job/lr" in b"".join(path.read_bytes() for path in tmp_path.glob("events.*"))
    assert not (tmp_path / "spool").exists()  # all records were taken


def test_tensorboards_files_on_a_remote_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = pointrix.TensorboardWriter("memory://events_of_pointrix")
    writer.write_scalar("loss", 0.5, 1)
    writer.close()
    (found,) = fsspec.filesystem("memory").find("/events_of_pointrix")
    assert "events.out.tfevents" in found
    assert list(tmp_path.iterdir()) == []  # nothing under the name of the URL


def test_a_writer_without_a_place_to_write_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    writer = pointrix.TensorboardWriter(str(tmp_path / "taken" / "run"))
    trainer = fit(tmp_path, pointrix.LogHook(1), attributes={"writer": writer})
    writer.close()
    assert trainer.global_step == 6
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [line for line in warned if line.startswith("TensorboardWriter: ")]


def test_checkpoints_pass_through_the_hooks(tmp_path: Path) -> None:
    class Keeps(pointrix.Hook):
        kept = None

        def before_save_checkpoint(self, trainner: Any, checkpoint: Any) -> None:
            checkpoint["points"] = 12

        def after_load_checkpoint(self, trainner: Any, ckpt: Any) -> None:
            self.kept = ckpt["points"], trainner.global_step

    fit(tmp_path, Keeps(), val=0, max_epochs=1).save_checkpoint(tmp_path / "a.ckpt")
    hook = Keeps()
    fit(tmp_path, hook, val=0, ckpt_path=tmp_path / "a.ckpt")
    assert hook.kept == (12, 4)


def test_the_default_config(tmp_path: Path) -> None:
    class Asks(pointrix.Hook):
        def before_train(self, trainner: Any) -> None:
            assert trainner.cfg.max_steps == trainner.max_steps == 6
            assert trainner.cfg.enable_gui is False
            with pytest.raises(AttributeError, match="config has no 'speed'"):
                _ = trainner.cfg.speed
            with pytest.raises(AttributeError):
                _ = trainner.gui
            trainner.gui = "mine"

        def after_train(self, trainner: Any) -> None:
            trainner.save_model()
            assert trainner.gui == "mine"

    fit(tmp_path, Asks())
    assert (tmp_path / "chkpnt7.pth").exists()
