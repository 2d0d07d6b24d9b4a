"""CheckpointHook: which files are written and kept, and that a run goes on from each of them."""

from __future__ import annotations

import copy
import os
import pickle
import time
from pathlib import Path
from typing import Any

import fsspec
import job
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from lightning_hooks import ClosureHook, Hook, HookAdapter, TrainStepModule, newest_valid
from lightning_hooks.hooks.averaging.ema import EMAHook
from lightning_hooks.hooks.saving.last import CheckpointHook
from lightning_hooks.storage import manifest
from support import forks
from support.paths import ROOT
from support.processes import environment
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


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
    """What is there, but for the list of it."""
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


# -- which files -------------------------------------------------------------------------------


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
    """A rate that depends on the iteration, and a record of every step."""

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
    """A loader that says where it stands, as torchdata's."""

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


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize(("make", "seen"), [(make_loader, [0]), (Standing, [3])])
def test_from_within_a_pass_a_plain_loader_begins_anew_and_gradients_are_lost(tmp_path, make, seen):
    class Sees(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            known = [x[0].tolist() for x in Standing().batches]
            steps.append((known.index(batch[0].tolist()), self.net.weight.grad is not None))
            return super().training_step(batch, batch_idx)

    def fit(directory: Path, ckpt_path: Any = None) -> list[Any]:
        steps.clear()
        saves = CheckpointHook(interval=1, by_epoch=False)
        trainer = trainer_of(directory, saves, max_epochs=1, accumulate_grad_batches=2)
        trainer.fit(Sees(), make(4) if make is make_loader else make(), ckpt_path=ckpt_path)
        return [*steps]

    steps: list[Any] = []
    whole = fit(tmp_path / "a")
    assert [batch for batch, _ in whole] == [0, 1, 2, 3]
    assert whole[3] == (3, True)
    assert fit(tmp_path / "b", tmp_path / "a" / "iter_3.pth") == [(seen[0], False)]


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
    assert half[0].exists()  # it was the middle
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
