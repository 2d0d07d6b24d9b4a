"""CheckpointHook: files written and kept, background writes, and resumes."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import job
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    ClosureHook,
    EMAHook,
    EvalHook,
    Hook,
    HookAdapter,
    TrainStepModule,
    newest_valid,
)
from lightning_hooks.storage import checkpoints, manifest
from support import forks, training
from support.paths import ROOT
from support.processes import environment
from support.training import Counted, TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = [pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")]


def hosting(*hooks: Any, **kwargs: Any) -> list[Any]:
    return [HookAdapter(list(hooks), **kwargs)]


def direct(*hooks: Any, **kwargs: Any) -> list[Any]:
    return list(hooks)


both = pytest.mark.parametrize("host", [direct, hosting])


def trainer_of(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    return make_trainer(
        tmp_path,
        *callbacks,
        enable_checkpointing=callbacks[0] is not None and _has(callbacks),
        **kwargs,
    )


def _has(callbacks: tuple[Any, ...]) -> bool:
    return any(isinstance(c, CheckpointHook) for c in callbacks)


def names(directory: Path) -> list[str]:
    """Return the file names in a directory, without the manifest."""
    found = set(os.listdir(directory)) - {manifest.NAME}
    return sorted(found, key=lambda n: (len(n), n))


def load(path: Any) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


def run(tmp_path: Path, hook: Any, epochs: int = 3, host: Any = direct, **kwargs: Any) -> Any:
    module = kwargs.pop("module", None) or TinyModule()
    fit = {k: kwargs.pop(k) for k in ("ckpt_path",) if k in kwargs}
    loaders = kwargs.pop("loaders", (make_loader(),))
    adapter = {"by_epoch": kwargs.pop("by_epoch")} if "by_epoch" in kwargs else {}
    if "max_steps" not in kwargs:
        kwargs["max_epochs"] = epochs
    trainer = trainer_of(tmp_path, *host(hook, **adapter), **kwargs)
    trainer.fit(module, *loaders, **fit)
    return trainer


# -- files written and kept --------------------------------------------------------------------


@both
def test_by_epoch(tmp_path, host):
    hook = CheckpointHook(interval=2)
    trainer = run(tmp_path, hook, 5, host)
    assert names(tmp_path) == ["latest.pth", "epoch_2.pth", "epoch_4.pth", "epoch_5.pth"]
    assert os.readlink(tmp_path / "latest.pth") == "epoch_5.pth"
    assert hook.last_checkpoint == str(tmp_path / "epoch_5.pth")
    assert not any(type(c) is ModelCheckpoint for c in trainer.callbacks)  # no default one
    for n in (2, 4, 5):
        checkpoint = load(tmp_path / f"epoch_{n}.pth")
        assert (checkpoint["meta"]["epoch"], checkpoint["meta"]["iter"]) == (n, 4 * n)
        # departure: a file names itself
        path = str(tmp_path / f"epoch_{n}.pth")
        assert checkpoint["meta"]["hook_msgs"] == {"last_ckpt": path}


def test_a_subclass_with_settings_as_attributes(tmp_path):
    class Linked(CheckpointHook):
        create_symlink = True

    run(tmp_path, Linked(interval=1), 2)
    assert os.readlink(tmp_path / "latest.pth") == "epoch_2.pth"


@both
def test_by_iteration(tmp_path, host):
    run(tmp_path, CheckpointHook(interval=3, by_epoch=False), 2, host)
    assert names(tmp_path) == ["iter_3.pth", "iter_6.pth", "iter_8.pth", "latest.pth"]
    for n in (3, 6, 8):
        assert load(tmp_path / f"iter_{n}.pth")["meta"]["iter"] == n


@pytest.mark.parametrize(
    ("arguments", "epochs", "kept"),
    [
        ({"interval": 4, "by_epoch": False, "max_keep_ckpts": 1}, 2.5, ["iter_10.pth"]),
        ({"interval": 2, "max_keep_ckpts": 1}, 5, ["epoch_5.pth"]),
        ({"interval": 1, "max_keep_ckpts": 2}, 4, ["epoch_3.pth", "epoch_4.pth"]),
        ({"interval": 2, "max_keep_ckpts": 1, "save_last": False}, 5, ["epoch_4.pth"]),
        ({}, 3, ["epoch_3.pth"]),
        ({"save_last": False}, 3, []),
    ],
)
def test_departure_exactly_k_are_kept(tmp_path, arguments, epochs, kept):
    limits = {"max_steps": 10} if epochs == 2.5 else {"epochs": epochs}
    run(tmp_path, CheckpointHook(create_symlink=False, **arguments), **limits)
    assert names(tmp_path) == kept


def test_departure_a_file_is_lightnings_with_mmcvs_meta_and_names_itself(tmp_path):
    run(tmp_path, CheckpointHook(interval=1), 2)
    for n in (1, 2):
        found = load(tmp_path / f"epoch_{n}.pth")
        assert {"pytorch-lightning_version", "loops", "optimizer_states"} <= found.keys()
        meta = found["meta"]
        assert (meta["mmcv_version"], meta["epoch"], meta["iter"]) == ("1.7.2", n, 4 * n)
        # mmcv's has the path of the file before
        assert meta["hook_msgs"]["last_ckpt"] == str(tmp_path / f"epoch_{n}.pth")


@pytest.mark.parametrize("name", ["interval", "max_keep_ckpts"])
def test_departure_zero_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, or -1 for no limit, got 0"):
        CheckpointHook(**{name: 0})


def test_departure_only_own_files_are_deleted_also_after_a_resume(tmp_path):
    (tmp_path / "epoch_0.pth").write_text("mine")
    arguments = {"interval": 1, "max_keep_ckpts": 2, "create_symlink": False}
    run(tmp_path, CheckpointHook(**arguments), 3)
    (tmp_path / "epoch_1.pth").write_text("mine too")
    hook = CheckpointHook(**arguments)
    run(tmp_path, hook, 5, ckpt_path=tmp_path / "epoch_3.pth")
    assert names(tmp_path)[0] == "epoch_0.pth"
    assert names(tmp_path)[-2:] == ["epoch_4.pth", "epoch_5.pth"]
    assert "epoch_2.pth" not in names(tmp_path)
    assert "epoch_3.pth" not in names(tmp_path)


def test_nothing_is_deleted_before_its_successor_is_there(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    class FillsUp(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 2:
                monkeypatch.setattr(os, "fsync", full)

    hook = CheckpointHook(interval=1, max_keep_ckpts=1, create_symlink=False)
    with pytest.raises(OSError, match="No space"):
        trainer_of(tmp_path, hook, FillsUp(), max_epochs=3).fit(TinyModule(), make_loader())
    assert names(tmp_path) == ["epoch_2.pth"]
    load(tmp_path / "epoch_2.pth")


def test_departure_the_last_is_written_where_training_ends_early(tmp_path):
    class Stops(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 5

    for by_epoch, name in ((True, "epoch_2.pth"), (False, "iter_6.pth")):
        hook = CheckpointHook(by_epoch=by_epoch, create_symlink=False)
        trainer_of(tmp_path / name, hook, Stops(), max_epochs=9).fit(TinyModule(), make_loader())
        assert names(tmp_path / name) == [name]


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
def test_a_tilde_is_the_home_directory(hosted, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    hook = CheckpointHook(interval=1, out_dir="~/out", create_symlink=False)
    hooks = [HookAdapter([hook], work_dir="~/run")] if hosted else [hook]
    trainer = make_trainer("~/run", *hooks, enable_checkpointing=not hosted)
    trainer.fit(TinyModule(), make_loader(1))
    hook.export("~/weights.pth")
    assert newest_valid("~/out/run") == str(tmp_path / "out" / "run" / "epoch_1.pth")
    assert (tmp_path / "weights.pth").exists()
    assert not (tmp_path / "~").exists()


def test_out_dir_is_mmcvs_rule_and_stays_over_two_fits(tmp_path):
    hook = CheckpointHook(interval=1, out_dir=str(tmp_path / "out"), create_symlink=False)
    trainer = run(tmp_path / "work", hook, 1)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, make_loader())
    assert names(tmp_path / "out") == ["work"]
    assert names(tmp_path / "out" / "work") == ["epoch_1.pth", "epoch_2.pth"]


def test_remote_directory(tmp_path):
    hook = CheckpointHook(interval=1, out_dir="memory://test_checkpoint", max_keep_ckpts=2)
    run(tmp_path, hook, 3)
    fs = fsspec.filesystem("memory")
    found = {Path(x["name"]).name for x in fs.ls(f"/test_checkpoint/{tmp_path.name}")}
    assert found == {"epoch_2.pth", "epoch_3.pth", manifest.NAME}
    module = TinyModule(seed=3)
    run(tmp_path, hook, 4, module=module, ckpt_path=hook.last_checkpoint)
    assert len(module.losses) == 4


def test_two_hooks_coexist(tmp_path):
    hooks = [CheckpointHook(interval=2), CheckpointHook(interval=3, by_epoch=False)]
    trainer_of(tmp_path, *hooks, max_epochs=2).fit(TinyModule(), make_loader())
    assert {"epoch_2.pth", "iter_3.pth", "iter_6.pth", "iter_8.pth"} <= set(names(tmp_path))


def test_fast_dev_run_writes_nothing(tmp_path):
    run(tmp_path, CheckpointHook(interval=1), fast_dev_run=2)
    assert names(tmp_path) == []


# -- going on ----------------------------------------------------------------------------------


class Rates(Hook):
    """Sets the learning rate by iteration and records every step."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def before_train_iter(self, runner: Any) -> None:
        for group in runner.optimizer.param_groups:
            group["lr"] = 0.1 / (1 + runner.iter)

    def after_train_iter(self, runner: Any) -> None:
        first = runner.data_batch[0].flatten()[0].item()
        self.rows.append((runner.epoch, runner.iter, runner.current_lr(), first))


def shuffled(own_generator: bool = False, workers: int = 0) -> Any:
    loader = make_loader(4)
    generator = torch.Generator().manual_seed(7) if own_generator else None
    return torch.utils.data.DataLoader(
        loader.dataset, batch_size=2, shuffle=True, generator=generator, num_workers=workers
    )


@pytest.mark.parametrize(
    ("host", "val", "own", "workers"),
    [
        (direct, True, False, 0),
        (hosting, False, True, 0),
        (hosting, True, True, 0),
        pytest.param(direct, False, False, 2, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_from_every_kept_file_bit_for_bit(tmp_path, host, val, own, workers):
    def fit(directory: Path, ckpt_path: Any = None) -> Any:
        torch.manual_seed(3 if ckpt_path is None else 99)
        ema, rates, module = EMAHook(momentum=0.1, warm_up=7), Rates(), TinyNormModule()
        saves = CheckpointHook(interval=1, max_keep_ckpts=3)
        trainer = trainer_of(directory, *host(ema, rates, saves), max_epochs=4)
        loaders = [shuffled(own, workers), *([make_loader(1)] if val else [])]
        trainer.fit(module, *loaders, ckpt_path=ckpt_path)
        return module, ema, rates.rows, trainer

    module, ema, rows, trainer = fit(tmp_path / "whole")
    assert len(rows) == 16
    for n in (2, 3):
        again, ema2, rows2, trainer2 = fit(tmp_path / str(n), tmp_path / "whole" / f"epoch_{n}.pth")
        assert rows2 == rows[4 * n :]
        same(again.state_dict(), module.state_dict())
        same(ema2.ema_state_dict(), ema.ema_state_dict())
        same(flat(trainer2), flat(trainer))
        last = [load(tmp_path / d / "epoch_4.pth")["meta"] for d in ("whole", str(n))]
        assert [(m["epoch"], m["iter"]) for m in last] == [(4, 16), (4, 16)]


def flat(trainer: L.Trainer) -> dict[str, torch.Tensor]:
    states = trainer.optimizers[0].state_dict()["state"]
    return {f"{i}.{k}": v for i, s in states.items() for k, v in s.items()}


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


class Points(Hook):
    def __init__(self) -> None:
        self.calls: list[Any] = []


def _noting(point: str) -> Any:
    def note(self: Points, runner: Any) -> None:
        self.calls.append((point, runner.epoch, runner.iter))

    return note


for _point in Hook.stages[1:-1]:
    setattr(Points, _point, _noting(_point))


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize(("host", "val"), [(direct, None), (hosting, 1.0), (hosting, 2)])
def test_by_iteration_no_point_is_lost(tmp_path, host, val):
    """Each point of the whole run is called before the file or after the resume."""

    def fit(directory: Path, ckpt_path: Any = None) -> list[Any]:
        points = Points()
        saves = CheckpointHook(interval=1, by_epoch=False)
        kwargs = {"val_check_interval": val} if val else {}
        trainer = trainer_of(
            directory, *host(points, saves), max_epochs=2, num_sanity_val_steps=0, **kwargs
        )
        loaders = [make_loader(4), *([make_loader(1)] if val else [])]
        trainer.fit(TinyModule(), *loaders, ckpt_path=ckpt_path)
        return points.calls

    whole = fit(tmp_path / "whole")
    for n in range(1, 8):
        calls = fit(tmp_path / str(n), tmp_path / "whole" / f"iter_{n}.pth")
        if n % 4:  # in mid-epoch the epoch is begun once more
            assert calls.pop(0)[0] == "before_train_epoch"
        assert calls == whole[-len(calls) :], n
        assert calls[0][2] == n
        assert ("after_train_epoch", 0, 4) in calls or n >= 4
        vals = [c for c in whole if c[0] == "before_val_epoch" and c[2] > n]
        assert vals == [c for c in calls if c[0] == "before_val_epoch"]


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("val", [None, 3])
def test_a_run_counted_in_iterations_goes_on(tmp_path, val):
    def fit(directory: Path, ckpt_path: Any = None) -> list[Any]:
        points = Points()
        saves = CheckpointHook(interval=1, by_epoch=False)
        kwargs = {"val_check_interval": val, "check_val_every_n_epoch": None} if val else {}
        trainer = trainer_of(
            directory,
            *hosting(points, saves, by_epoch=False),
            max_steps=10,
            num_sanity_val_steps=0,
            **kwargs,
        )
        loaders = [make_loader(4), *([make_loader(1)] if val else [])]
        trainer.fit(TinyModule(), *loaders, ckpt_path=ckpt_path)
        return points.calls

    whole = fit(tmp_path / "whole")
    for n in range(1, 10):
        calls = fit(tmp_path / str(n), tmp_path / "whole" / f"iter_{n}.pth")
        trains = [c for c in whole if c[0] == "after_train_iter" and c[2] >= n]
        vals = [c for c in whole if c[0] == "before_val_iter" and c[2] > n]
        assert trains == [c for c in calls if c[0] == "after_train_iter"], n
        assert vals == [c for c in calls if c[0] == "before_val_iter"], n


class Standing:
    """A loader with ``state_dict``, as torchdata's StatefulDataLoader."""

    def __init__(self) -> None:
        self.batches, self.at, self.given = [*make_loader(4)], 0, 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Any:
        self.given, self.at = self.at, 0
        for batch in self.batches[self.given :]:
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["given"]


@pytest.mark.parametrize("make", [partial(make_loader, 4), Standing])
def test_a_file_waits_for_the_optimizer_and_the_pass_goes_on(tmp_path, make):
    class Sees(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            known = [x[0].tolist() for x in Standing().batches]
            steps.append(known.index(batch[0].tolist()))
            return super().training_step(batch, batch_idx)

    def fit(directory: Path, ckpt_path: Any = None) -> Any:
        saves = CheckpointHook(interval=1, by_epoch=False)
        trainer = trainer_of(directory, saves, max_epochs=1, accumulate_grad_batches=2)
        trainer.fit(Sees(), make(), ckpt_path=ckpt_path)
        return trainer.lightning_module

    steps: list[Any] = []
    whole = fit(tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").glob("iter_*")} == {"iter_2.pth", "iter_4.pth"}
    assert steps == [0, 1, 2, 3]
    resumed = fit(tmp_path / "b", tmp_path / "a" / "iter_2.pth")
    assert steps == [0, 1, 2, 3, 2, 3]
    same(resumed.state_dict(), whole.state_dict())


def test_of_a_file_at_an_error_a_line_tells_the_lost_gradients(tmp_path, caplog):
    class Fails(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3:
                raise RuntimeError("on purpose")
            return super().training_step(batch, batch_idx)

    def fit(module: Any, ckpt_path: Any = None) -> None:
        saves = CheckpointHook(by_epoch=False, on_exception=True)
        trainer = trainer_of(tmp_path, saves, max_epochs=1, accumulate_grad_batches=2)
        trainer.fit(module, make_loader(4), ckpt_path=ckpt_path)

    with pytest.raises(RuntimeError, match="on purpose"):
        fit(Fails())
    fit(TinyModule(), tmp_path / "iter_3.pth")
    assert "the next step has no gradients of the 1 batches before the file" in caplog.text


def test_without_the_optimizer_it_is_a_file_of_weights(tmp_path):
    hook = CheckpointHook(interval=1, save_optimizer=False)
    ema = EMAHook(momentum=0.1, after_fit="raw")
    trainer = trainer_of(tmp_path, ema, hook, max_epochs=2)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    checkpoint = load(tmp_path / "epoch_2.pth")
    assert "optimizer_states" not in checkpoint
    assert checkpoint["meta"]["iter"] == 8
    same(checkpoint["current_model_state"], trainer.lightning_module.state_dict())
    same(checkpoint["state_dict"], ema.ema_state_dict())
    with pytest.raises(KeyError, match="checkpoint contains only the model"):
        run(tmp_path, CheckpointHook(), ckpt_path=tmp_path / "epoch_2.pth")


@both
def test_files_hold_raw_weights_whatever_validates(tmp_path, host):
    class Raw(Callback):
        def on_train_batch_end(self, trainer, module, *args: Any) -> None:
            self.raw = copy.deepcopy(module.state_dict())

        def on_validation_batch_end(self, trainer, module, *args: Any) -> None:
            assert not torch.equal(module.net.weight, self.raw["net.weight"])

    raw = Raw()
    hooks = host(CheckpointHook(interval=2, by_epoch=False), EMAHook(momentum=0.1))
    trainer = trainer_of(
        tmp_path, *hooks, raw, max_epochs=1, val_check_interval=4, num_sanity_val_steps=0
    )
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    same(load(tmp_path / "iter_4.pth")["current_model_state"], raw.raw)


# -- killed ------------------------------------------------------------------------------------


CHILD = """
import sys, torch, lightning as L
from lightning_hooks import CheckpointHook

class Big(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
        self.register_buffer("big", torch.zeros(6_000_000))
    def training_step(self, batch, i):
        self.big += 1
        return self.net(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

loader = torch.utils.data.DataLoader(torch.ones(2, 1))
L.Trainer(max_epochs=1000, accelerator="cpu", logger=False, enable_progress_bar=False,
          enable_model_summary=False, default_root_dir=sys.argv[1],
          callbacks=[CheckpointHook(interval=1, max_keep_ckpts=2)]).fit(Big(), loader)
"""


def test_a_kill_in_the_middle_of_a_save_leaves_whole_files_only(tmp_path):
    command = ["-c", CHILD, str(tmp_path)]
    child = forks.start(command, environment(), Path(os.devnull), ROOT)
    try:
        deadline = time.monotonic() + 60
        half: list[Path] = []
        while time.monotonic() < deadline and not half:
            assert child.is_alive()
            if (tmp_path / "epoch_3.pth").exists():
                time.sleep(0.0005)
                half = [p for p in tmp_path.glob("*.tmp") if p.is_file() and 1e6 < size(p) < 2e7]
    finally:
        child.kill()
        child.join()
    assert half, "never seen in the middle of a save"
    assert half[0].exists()  # the process was killed in the middle of the save
    files = list(tmp_path.glob("epoch_*.pth"))
    assert 2 <= len(files) <= 3
    for path in files:
        n = int(path.stem.split("_")[1])
        state = load(path)["state_dict"]
        assert torch.all(state["big"] == 2 * n)
    assert load(tmp_path / "latest.pth")


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed meanwhile
        return 0


# -- the layout of the files -------------------------------------------------------------------


def test_a_train_step_modules_file_has_the_bare_models_keys(tmp_path):
    model = job.make_model(0, "conv")
    hooks = HookAdapter([CheckpointHook(interval=1), EMAHook(momentum=0.1, after_fit="raw")])
    make_trainer(tmp_path, hooks, max_epochs=1).fit(
        TrainStepModule(model, job.make_optimizer(model)), *job.make_data(0)
    )
    checkpoint = load(tmp_path / "epoch_1.pth")
    assert checkpoint["state_dict"].keys() == model.state_dict().keys()
    assert checkpoint["current_model_state"].keys() == model.state_dict().keys()
    assert {"epoch", "iter", "hook_msgs"} <= checkpoint["meta"].keys()
    bare = job.make_model(5, "conv")
    bare.load_state_dict(checkpoint["current_model_state"])
    same(bare.state_dict(), model.state_dict())


# -- the rest ----------------------------------------------------------------------------------


def test_a_file_of_mmcvs_layout_is_gone_on_from_as_the_error_says(tmp_path):
    def fit(*hooks: Any, **kwargs: Any) -> list[Any]:
        rates, module = Rates(), TinyModule(seed=len(hooks))
        adapter = HookAdapter([rates, *hooks], model=lambda module: module.net)
        trainer = trainer_of(tmp_path / str(len(hooks)), adapter, max_epochs=4)
        trainer.fit(module, make_loader(), **kwargs)
        return [rates.rows, module.net.weight.tolist()]

    path = str(tmp_path / "epoch_2.pth")

    class Saves(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner.save_checkpoint(str(tmp_path), create_symlink=False)

    rows, weight = fit(Saves())
    assert load(path).keys() == {"meta", "state_dict", "optimizer"}
    with pytest.raises(KeyError, match=r"of mmcv's layout.*runner\.resume\("):
        fit(CheckpointHook(), ckpt_path=path)
    goes_on = ClosureHook("before_run", lambda runner: runner.resume(path))
    assert fit(goes_on, Hook()) == [rows[8:], weight]


def test_a_copy_and_a_pickle_have_the_arguments(tmp_path):
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, out_dir=str(tmp_path / "o"))
    run(tmp_path, hook, 1)
    for other in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
        assert (other.interval, other.max_keep_ckpts, other.out_dir) == (1, 1, hook.out_dir)
        run(tmp_path, other, 2)
        assert names(tmp_path / "o" / tmp_path.name) == ["latest.pth", "epoch_2.pth"]


def test_positional_arguments_are_mmcvs():
    hook = CheckpointHook(2, False, False, "out", 3, False, True, {"backend": "disk"})
    assert (hook.interval, hook.by_epoch, hook.save_optimizer) == (2, False, False)
    assert (hook.out_dir, hook.max_keep_ckpts, hook.save_last) == ("out", 3, False)
    assert hook.sync_buffer


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"interval": 0}, ValueError, "interval must be at least 1, or -1"),
        ({"interval": -2}, ValueError, "got -2"),
        ({"interval": 1.0}, TypeError, "interval must be an int"),
        ({"interval": True}, TypeError, "interval must be an int"),
        ({"max_keep_ckpts": 0}, ValueError, "max_keep_ckpts must be at least 1"),
        ({"by_epoch": 1}, TypeError, "by_epoch must be a bool"),
        ({"out_dir": 3}, TypeError, "out_dir must be a path"),
        ({"out_dir": "nowhere://x"}, ValueError, "out_dir='nowhere://x'"),
        ({"background": 1}, TypeError, "background must be a bool"),
        ({"create_symlink": "x"}, TypeError, "create_symlink must be a bool"),
        ({"filename_tmpl": "latest.pth/{}"}, ValueError, "must leave checkpoints.json and latest"),
        ({"filename_tmpl": "./checkpoints.json/{}"}, ValueError, "must leave checkpoints.json"),
        ({"filename_tmpl": 3}, TypeError, "filename_tmpl must be a str"),
        ({"filename_tmpl": "last.pth"}, ValueError, "filename_tmpl must have one"),
        ({"filename_tmpl": "{a}.pth"}, ValueError, "filename_tmpl must have one"),
        ({"file_client_args": {"backend": "petrel"}}, ValueError, "only the backend 'disk'"),
        ({"file_client_args": "disk"}, TypeError, "file_client_args must be a dict"),
    ],
)
def test_refuses(arguments, error, match):
    with pytest.raises(error, match=match):
        CheckpointHook(**arguments)


def hook_of(**kwargs: Any) -> CheckpointHook:
    return CheckpointHook(**{"interval": 1, "background": True, "create_symlink": False, **kwargs})


fit = partial(training.fit, max_epochs=3)


def file_names(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*.pth")}


@pytest.fixture
def slow_disk(monkeypatch: Any) -> list[float]:
    """Slow down fsync; return the list of its call times."""
    calls, sync = [], os.fsync

    def wait(descriptor: int) -> None:
        calls.append(time.monotonic())
        time.sleep(0.1)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    return calls


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_the_files_are_those_of_the_other_way(tmp_path, host):
    for background in (False, True):
        hooks = [EMAHook(momentum=0.1), hook_of(background=background, max_keep_ckpts=2)]
        fit(tmp_path / str(background), *hooks, host=host)
    ours, others = ({p.name: p for p in (tmp_path / n).glob("*.pth")} for n in ("True", "False"))
    assert ours.keys() == others.keys() == {"epoch_2.pth", "epoch_3.pth"}
    for name in ours:
        a, b = (torch.load(files[name], weights_only=True) for files in (ours, others))
        assert a.keys() == b.keys()
        for part in ("state_dict", "current_model_state"):
            assert all(torch.equal(a[part][k], b[part][k]) for k in b[part])
        assert str(a["optimizer_states"]) == str(b["optimizer_states"])
        assert a["loops"] == b["loops"]


@pytest.mark.usefixtures("slow_disk")
def test_training_goes_on_and_the_next_save_waits(tmp_path):
    seen: list[Any] = []

    class Looks(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            writing = any(t.name.startswith("save ") for t in threading.enumerate())
            seen.append((runner.epoch, writing, file_names(tmp_path)))

    fit(tmp_path, hook_of(max_keep_ckpts=1), Looks(), max_epochs=4)
    # a file is deleted only after its successor is complete
    assert [(epoch, writing) for epoch, writing, _ in seen[1:]] == [(1, True), (2, True), (3, True)]
    assert [files for *_, files in seen] == [set(), set(), {"epoch_1.pth"}, {"epoch_2.pth"}]
    assert file_names(tmp_path) == {"epoch_4.pth"}  # the end of the fit waits


@pytest.mark.parametrize(("kind", "fails_at"), [("last", 1), ("last", 2), ("best", 2)])
def test_an_error_comes_up_after_the_next_step_or_at_the_end(tmp_path, monkeypatch, kind, fails_at):
    class FillsUp(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            for thread in threading.enumerate():
                if thread.name.startswith("save "):
                    thread.join()

        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch + 1 == fails_at:
                hook.teardown(runner.trainer, runner.module, "fit")
                monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    hook = hook_of(max_keep_ckpts=1)
    if kind == "best":
        hook = BestCheckpointHook("epoch", "greater", background=True)
    module = Counted()
    trainer = make_trainer(tmp_path, hook, FillsUp(), max_epochs=2, enable_checkpointing=True)
    with pytest.raises(OSError, match="No space") as caught:
        trainer.fit(module, make_loader(), make_loader(1))
    if sys.version_info >= (3, 11):
        assert f"epoch_{fails_at}.pth was written in the background" in caught.value.__notes__[0]
    assert len(module.losses) == (5 if fails_at == 1 else 8)
    first = "epoch_1.pth" if kind == "last" else "best_epoch_epoch_1.pth"
    assert file_names(tmp_path) == ({first} if fails_at == 2 else set())
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.usefixtures("slow_disk")
def test_an_exception_waits_for_the_file(tmp_path):
    class Fails(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                raise RuntimeError("x")

    with pytest.raises(RuntimeError, match="x"):
        fit(tmp_path, hook_of(), Fails())
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")


def test_an_exceptions_own_error_is_raised_and_the_writers_logged(tmp_path, monkeypatch, caplog):
    class Fails(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                raise RuntimeError("x")
            monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RuntimeError, match="x"):
        fit(tmp_path, hook_of(), Fails())
    assert "A checkpoint was not written" in caplog.text
    assert "No space" in caplog.text


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize(("kind", "keep"), [(BestCheckpointHook, 2), (EvalHook, 1)])
def test_the_best_is_written_beside_the_training_too(tmp_path, kind, keep):
    seen: list[Any] = []

    class Looks(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            writing = any(t.name.startswith("save ") for t in threading.enumerate())
            seen.append((writing, file_names(tmp_path)))

    arguments = {"save_best": "epoch", "rule": "greater", "keep_best": keep, "background": True}
    hook = kind(**arguments) if kind is BestCheckpointHook else kind(None, **arguments)
    trainer = make_trainer(tmp_path, HookAdapter([hook, Looks()]), max_epochs=4)
    trainer.fit(Counted(), make_loader(), make_loader(1))
    # a file is deleted only after its successor is complete
    files = [{f"best_epoch_epoch_{n}.pth" for n in which} for which in ([], [1], [2], [4])]
    if keep == 2:
        files = [
            {f"best_epoch_epoch_{n}.pth" for n in which} for which in ([], [1], [1, 2], [3, 4])
        ]
    assert [writing for writing, _ in seen] == [False, True, True, True]
    assert [there for _, there in seen[1:]] == files[:3]
    assert file_names(tmp_path) == files[3]
    runner = next(c for c in trainer.callbacks if hasattr(c, "runner")).runner
    ranking = runner.meta["hook_msgs"]["best_ckpts"]["epoch"]
    assert {Path(path).name for _, path in ranking} == files[3]


@pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
def test_a_function_is_told_of_each_file_that_is_there(tmp_path, background):
    told: list[tuple[str, bool, str]] = []

    def tell(path: str) -> None:
        on_training_thread = threading.current_thread() is threading.main_thread()
        told.append((Path(path).name, on_training_thread, str(newest_valid(tmp_path))))

    last = hook_of(background=background, on_saved=tell, max_keep_ckpts=1)
    fit(tmp_path, last, max_epochs=2)
    assert told == [(n, not background, str(tmp_path / n)) for n in ("epoch_1.pth", "epoch_2.pth")]
    told.clear()
    best = BestCheckpointHook("epoch", "greater", background=background, on_saved=tell)
    trainer = make_trainer(tmp_path, best, max_epochs=2, enable_checkpointing=True)
    trainer.fit(Counted(), make_loader(), make_loader(1))
    assert [name for name, *_ in told] == [f"best_epoch_epoch_{n}.pth" for n in (1, 2)]


def test_an_error_of_the_function_is_the_runs(tmp_path):
    def fail(path: str) -> None:
        raise ConnectionError("no such bucket")

    with pytest.raises(ConnectionError, match="no such bucket"):
        fit(tmp_path, hook_of(on_saved=fail))
    assert file_names(tmp_path) == {"epoch_1.pth"}


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_an_older_file_that_is_written_slowly_is_not_the_last(tmp_path, monkeypatch, host):
    save, newer_is_there = checkpoints.save, threading.Event()

    def save_late(checkpoint: Any, target: checkpoints.Target) -> list[str]:
        if target.name == "epoch_1.pth":
            assert newer_is_there.wait(10)
        old = save(checkpoint, target)
        if target.name == "iter_6.pth":
            newer_is_there.set()
        return old

    monkeypatch.setattr(checkpoints, "save", save_late)
    slow = CheckpointHook(interval=1, background=True, save_last=False)
    hooks = [slow, CheckpointHook(interval=6, by_epoch=False, save_last=False)]
    monkeypatch.setattr(slow, "every_n_epochs", lambda runner, n: runner.epoch == 0)
    fit(tmp_path, *([HookAdapter(hooks)] if host else hooks), max_epochs=2)
    assert file_names(tmp_path) == {"epoch_1.pth", "iter_6.pth", "latest.pth"}
    assert newest_valid(tmp_path) == str(tmp_path / "iter_6.pth")
    assert (tmp_path / "latest.pth").resolve() == tmp_path / "iter_6.pth"


@pytest.mark.parametrize("fails", [False, True])
def test_the_memory_of_the_copies_is_free_after_the_fit(tmp_path: Path, fails: bool) -> None:
    class Module(TinyModule):
        def make_net(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(4, 997), torch.nn.Linear(997, 2))

        def on_train_epoch_start(self) -> None:
            if fails and self.current_epoch == 2:
                raise ValueError("bad")

    def copies() -> int:
        gc.collect()
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        return sum(t.dtype == torch.uint8 and t.numel() == 4 * 997 * 4 for t in tensors)

    hook = hook_of(on_exception=True)
    with pytest.raises(ValueError, match="bad") if fails else contextlib.nullcontext():
        fit(tmp_path, hook, module=Module)
    assert hook.last_model_path
    assert copies() == 0
