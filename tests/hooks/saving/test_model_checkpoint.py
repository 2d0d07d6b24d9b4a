"""To Lightning the hooks are ModelCheckpoints: ckpt_path="last" and "best", and no default one."""

from __future__ import annotations

import copy
import logging
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    EvalHook,
    HookAdapter,
    newest_valid,
)
from lightning_hooks.storage import manifest
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO
from lightning_hooks.storage.checksum import checksum
from support.processes import run_program
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def trainer_of(tmp_path: Path, *hooks: Any, **kwargs: Any) -> L.Trainer:
    return make_trainer(tmp_path, *hooks, enable_checkpointing=True, **kwargs)


@pytest.mark.parametrize("kind", [CheckpointHook, BestCheckpointHook])
def test_no_event_of_a_model_checkpoint_is_inherited(kind):
    assert issubclass(kind, ModelCheckpoint)
    own = {n for n in vars(ModelCheckpoint) if n.startswith("on_")}
    own |= {"setup", "teardown", "state_dict", "load_state_dict", "state_key"} & vars(
        ModelCheckpoint
    ).keys()
    assert "on_exception" in own
    for name in own:
        assert getattr(kind, name) is not getattr(ModelCheckpoint, name), name


@pytest.mark.parametrize(
    ("when", "call"),
    [("before", "validate"), ("before", "fit"), ("after", "test"), ("new", "fit"), ("new", "test")],
)
def test_last(tmp_path, when, call):
    class Module(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.seen = self.net.weight.clone()

    hook = CheckpointHook(interval=1, max_keep_ckpts=2)
    trainer = trainer_of(tmp_path, hook, max_epochs=3)
    if when == "before":
        with pytest.warns(UserWarning, match="there is no last checkpoint available"):
            trainer.fit(Module(), make_loader(), ckpt_path="last")  # set and forget
    else:
        trainer.fit(Module(), make_loader())
    weight = trainer.lightning_module.net.weight
    assert not any(type(c) is ModelCheckpoint for c in trainer.callbacks)
    if when == "new":
        trainer = trainer_of(tmp_path, CheckpointHook(), max_epochs=3)
    trainer.fit_loop.max_epochs = 4
    module = Module(seed=5)
    getattr(trainer, call)(module, make_loader(), ckpt_path="last")
    if call == "fit":
        assert len(module.losses) == 4
    elif call == "test":
        assert torch.equal(module.seen, weight)


SCRIPT = """
import sys, torch, lightning as L
from support.training import TinyModule, make_loader, make_trainer
from lightning_hooks import CheckpointHook
module = TinyModule()
make_trainer(sys.argv[1], CheckpointHook(interval=1), max_epochs=int(sys.argv[2]),
             enable_checkpointing=True).fit(module, make_loader(), ckpt_path="last")
print("steps", len(module.losses))
"""


def test_last_in_a_new_process(tmp_path):
    printed = [run_program(SCRIPT, tmp_path, epochs) for epochs in (2, 3)]
    steps = [int(text.split("steps ")[1]) for text in printed]
    assert steps == [8, 4]


def test_last_is_in_the_adapters_work_dir_and_in_out_dir(tmp_path):
    other = HookAdapter([], work_dir=tmp_path / "work")
    for arguments in ({}, {"out_dir": str(tmp_path / "out")}):
        hook = CheckpointHook(interval=1, **arguments)
        trainer_of(tmp_path / "root", other, hook, max_epochs=1).fit(TinyModule(), make_loader())
        again = CheckpointHook(**arguments)
        trainer = trainer_of(tmp_path / "root", HookAdapter([], work_dir=tmp_path / "work"), again)
        trainer.validate(TinyModule(), make_loader(), ckpt_path="last", verbose=False)


def test_a_hosted_hooks_last_is_found_after_a_fit(tmp_path):
    trainer = make_trainer(tmp_path, HookAdapter([CheckpointHook(interval=1)]))
    trainer.fit(TinyModule(), make_loader())
    trainer.fit_loop.max_epochs = 2
    module = TinyModule()
    trainer.fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 4


def test_unlisted_files_beside_the_file_gone_on_from_are_of_this_run(tmp_path, caplog):
    trainer_of(tmp_path, CheckpointHook(interval=1), max_epochs=2).fit(TinyModule(), make_loader())
    (tmp_path / manifest.NAME).unlink()
    trainer = trainer_of(tmp_path, CheckpointHook(interval=1), max_epochs=3)
    trainer.fit(TinyModule(), make_loader(), ckpt_path=tmp_path / "epoch_2.pth")
    assert "holds checkpoints of another run" not in caplog.text


@pytest.mark.parametrize("hosted", [False, True])
def test_a_resume_reads_one_file_once_and_a_line_says_where_it_goes_on(tmp_path, hosted, caplog):
    caplog.set_level(logging.INFO)
    reads = []

    class Counts(AtomicCheckpointIO):
        def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> Any:
            reads.append(Path(path).name)
            return super().load_checkpoint(path, *args, **kwargs)

    def train(epochs: int, **words: Any) -> None:
        hooks: list[Any] = [BestCheckpointHook("val_loss"), CheckpointHook(interval=1)]
        callbacks = [HookAdapter(hooks)] if hosted else hooks
        words["enable_checkpointing"] = not hosted
        ckpt_path = words.pop("ckpt_path", None)
        trainer = make_trainer(tmp_path, *callbacks, max_epochs=epochs, plugins=[Counts()], **words)
        trainer.fit(TinyModule(), make_loader(), make_loader(), ckpt_path=ckpt_path)

    train(2)
    assert "goes on after" not in caplog.text
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning finds no file of a hosted hook
        train(3, ckpt_path="last")
    path = tmp_path / "epoch_2.pth"
    assert reads == ["epoch_2.pth"]
    restored = [text for text in caplog.messages if text.startswith("Restoring states")]
    assert restored == [f"Restoring states from the checkpoint path at {path}"]
    found = [text for text in caplog.messages if text.startswith('ckpt_path="last"')]
    assert found == [f'ckpt_path="last" is {path}'] * hosted  # no hook that did not write it
    (first,) = [text for text in caplog.messages if "called in this order" in text]
    assert first.endswith(f"; goes on after 2 epochs and 8 iterations; files in {tmp_path}")


def test_best_is_an_eval_hooks_and_without_one_the_last(tmp_path):
    hook = CheckpointHook(interval=1)
    trainer = trainer_of(tmp_path / "a", hook, max_epochs=2)
    trainer.fit(TinyModule(), make_loader())
    trainer.validate(TinyModule(), make_loader(), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == str(tmp_path / "a" / "epoch_2.pth")
    saves = EvalHook(None, save_best="val_loss", rule="less")
    trainer = trainer_of(tmp_path / "b", hook, saves, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    assert hook.best_model_path == saves.best_ckpt_path
    assert Path(hook.best_model_path).name.startswith("best_val_loss_epoch_")
    trainer.validate(TinyModule(), make_loader(), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == hook.best_model_path
    assert hook.dirpath == str(tmp_path / "b")
    assert list(hook.best_k_models) == [hook.best_model_path]


def test_the_trainers_reader_is_put_back(tmp_path):
    trainer = trainer_of(tmp_path, CheckpointHook(interval=1))
    trainer.fit(TinyModule(), make_loader())
    assert type(trainer.strategy.checkpoint_io) is TorchCheckpointIO

    class Fails(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert type(self.trainer.strategy.checkpoint_io) is AtomicCheckpointIO
            raise RuntimeError("x")

    trainer = trainer_of(tmp_path, CheckpointHook(interval=1))
    with pytest.raises(RuntimeError, match="x"):
        trainer.fit(Fails(), make_loader())
    assert type(trainer.strategy.checkpoint_io) is TorchCheckpointIO


class Library(TinyModule):
    """Has its callbacks among the hyper-parameters, as neuralforecast's modules have."""

    def __init__(self, callbacks: list[Any]) -> None:
        super().__init__()
        self.save_hyperparameters()


def test_a_trainer_among_the_hyper_parameters_is_saved(tmp_path: Path) -> None:
    """A progress bar among the callbacks knows its Trainer."""
    callbacks = [CheckpointHook(interval=1), TQDMProgressBar()]
    trainer = trainer_of(tmp_path, *callbacks, enable_progress_bar=True)
    trainer.fit(Library(callbacks), make_loader())
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=False)["hyper_parameters"]
    assert saved["callbacks"][1].trainer.global_step == 4
    assert type(saved["callbacks"][1].trainer.strategy.checkpoint_io) is AtomicCheckpointIO


def test_the_trainers_reader_is_put_back_by_two_hooks_too(tmp_path):
    callbacks = [CheckpointHook(interval=1), BestCheckpointHook("val_loss")]
    trainer = trainer_of(tmp_path, *callbacks, num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    assert type(trainer.strategy.checkpoint_io) is TorchCheckpointIO
    pickle.dumps(trainer.callbacks)


def test_the_users_own_writer_stays_and_its_files_are_kept_count_of(tmp_path):
    class Own(TorchCheckpointIO):
        pass

    hook = CheckpointHook(interval=1, max_keep_ckpts=2, create_symlink=False)
    trainer = trainer_of(tmp_path, hook, max_epochs=4, plugins=[Own()])
    trainer.fit(TinyModule(), make_loader())
    assert {p.name for p in tmp_path.glob("*.pth")} == {"epoch_3.pth", "epoch_4.pth"}
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_4.pth")
    hook = CheckpointHook(interval=1, background=True)
    with pytest.warns(UserWarning, match="background=True has no effect.*with Own writes"):
        trainer_of(tmp_path, hook, plugins=[Own()]).fit(TinyModule(), make_loader())


def test_a_writer_of_the_users_that_is_slow_loses_nothing(tmp_path):
    class Late(TorchCheckpointIO):
        """Writes each file when the next one comes."""

        waiting: Any = None

        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            if self.waiting:
                super().save_checkpoint(*self.waiting)
            self.waiting = args[:2]

    hook = CheckpointHook(interval=1, max_keep_ckpts=2, create_symlink=False)
    best = BestCheckpointHook("val_loss", keep_best=9)
    trainer = trainer_of(tmp_path, hook, best, max_epochs=5, plugins=[Late()])
    with pytest.warns(UserWarning, match=r"epoch_\d.pth has no size and checksum in the list"):
        trainer.fit(TinyModule(), make_loader(), make_loader(1))
    # what was not there when it was listed cannot be told from another file, and stays; the writer
    # has not written the last file, which comes after the best of its epoch
    assert {f"epoch_{n}.pth" for n in range(1, 5)} == {p.name for p in tmp_path.glob("epoch_*")}
    assert (tmp_path / "best_val_loss_epoch_5.pth").exists()


class Slow(TorchCheckpointIO):
    """A disk that takes a while: what is there too early is half a file."""

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(b"half")
        time.sleep(0.1)
        super().save_checkpoint(checkpoint, path)


@pytest.mark.parametrize("inner", [None, Slow()], ids=["lightnings", "own"])
def test_a_writer_in_a_thread_of_the_users_leaves_whole_files_only(tmp_path, inner):
    seen = []

    def look(path: str) -> None:
        seen.append((Path(path).name, torch.load(path, weights_only=True)["meta"]["epoch"]))

    def run(epochs: int) -> CheckpointHook:
        hook = CheckpointHook(interval=1, max_keep_ckpts=1, on_saved=look)
        plugins = [AsyncCheckpointIO(inner)]
        trainer = trainer_of(tmp_path, hook, max_epochs=epochs, plugins=plugins)
        trainer.fit(TinyModule(), make_loader(), ckpt_path="last" if epochs > 2 else None)
        return hook

    run(2)
    assert Path(run(3).last_checkpoint).name == "epoch_3.pth"
    assert seen == [(f"epoch_{n}.pth", n) for n in (1, 2, 3)]
    assert {p.name for p in tmp_path.glob("epoch_*.pth")} == {"epoch_3.pth"}
    (entry,) = manifest.read(str(tmp_path))
    assert entry.size == (tmp_path / entry.name).stat().st_size
    assert entry.crc32 == checksum(str(tmp_path / entry.name))


@pytest.mark.filterwarnings("ignore:CheckInvalidLossHook")
def test_a_restore_waits_for_the_users_asynchronous_writer(tmp_path):
    class Breaks(TinyModule):
        def loss(self, batch: Any) -> torch.Tensor:
            loss = super().loss(batch)
            return loss * float("nan") if self.global_step == 5 and not self.losses[5:] else loss

    own = ModelCheckpoint(tmp_path / "own", every_n_train_steps=4, save_top_k=-1)
    check = CheckInvalidLossHook(interval=1, action="restore")
    trainer = trainer_of(*(tmp_path, own, check), max_epochs=2, plugins=[AsyncCheckpointIO(Slow())])
    trainer.fit(Breaks(), make_loader())
    assert all(p.isfinite().all() for p in trainer.lightning_module.parameters())


def test_enable_checkpointing_false_is_refused_by_lightning(tmp_path):
    with pytest.raises(Exception, match="enable_checkpointing=False"):
        make_trainer(tmp_path, CheckpointHook(), enable_checkpointing=False)


def test_a_launcher_tells_the_best_path_of_a_fit_in_another_process():
    hook = CheckpointHook()
    assert hook.best_model_path == hook.last_model_path == hook.last_checkpoint == ""
    hook.best_model_path = "x"
    assert hook.best_model_path == "x"


def test_export_writes_the_inner_model(tmp_path):
    hook = CheckpointHook(interval=1)
    with pytest.raises(RuntimeError, match="before a fit needs model="):
        hook.export(str(tmp_path / "x.pth"))
    module = TinyModule()
    hosted = HookAdapter([hook], model=lambda module: module.net)
    make_trainer(tmp_path, hosted).fit(module, make_loader())
    for model in (None, module.net, lambda module: module.net):
        path = tmp_path / "x.pth"
        hook.export(path, model=model)
        bare = torch.nn.Linear(4, 2)
        bare.load_state_dict(torch.load(path, weights_only=True))
        assert torch.equal(bare.weight, module.net.weight)
    hook.export("memory://test_export/x.pth")
    for other in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
        assert other.best_model_path == ""  # nothing of the run comes along
