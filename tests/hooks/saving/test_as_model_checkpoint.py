"""Lightning and its loggers treat the hooks as ModelCheckpoints with the same attributes."""

from __future__ import annotations

import contextlib
import copy
import logging
import pickle
import random
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import Logger, MLFlowLogger, WandbLogger
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    EvalHook,
    HookAdapter,
    newest_valid,
)
from lightning_hooks.engine.priority import Priority
from lightning_hooks.hooks.saving.directory import newest_of
from lightning_hooks.storage import checkpoints, find_checkpoints, manifest
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO
from lightning_hooks.storage.checksum import checksum
from support import training
from support.processes import run_program
from support.training import Counted, TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings(
        "ignore:You're resuming from a checkpoint that ended", "ignore:Checkpoint directory"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def trainer_of(tmp_path: Path, *hooks: Any, **kwargs: Any) -> L.Trainer:
    return make_trainer(tmp_path, *hooks, enable_checkpointing=True, **kwargs)


@pytest.mark.parametrize("kind", [CheckpointHook, BestCheckpointHook])
def test_no_event_of_a_model_checkpoint_is_inherited(kind):
    assert issubclass(kind, ModelCheckpoint)
    own = {n for n in vars(ModelCheckpoint) if n.startswith("on_")}
    own |= {"setup", "teardown", "state_dict", "load_state_dict", "state_key"} & vars(
        ModelCheckpoint
    ).keys()
    assert "on_train_batch_end" in own
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
    assert found == [f'ckpt_path="last" is {path}'] * hosted  # only the hook that wrote the file
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
    """A module with its callbacks among the hyperparameters, as in neuralforecast."""

    def __init__(self, callbacks: list[Any]) -> None:
        super().__init__()
        self.save_hyperparameters()


def test_a_trainer_among_the_hyper_parameters_is_saved(tmp_path: Path) -> None:
    """A progress bar among the callbacks holds its Trainer."""
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
        """A checkpoint IO that delays each file until the next save."""

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
    # a file missing when listed cannot be distinguished from a foreign file, and stays; the late
    # writer has not written the last file, which follows the best file of the epoch
    assert {f"epoch_{n}.pth" for n in range(1, 5)} == {p.name for p in tmp_path.glob("epoch_*")}
    assert (tmp_path / "best_val_loss_epoch_5.pth").exists()


class Slow(TorchCheckpointIO):
    """A slow checkpoint IO, which writes a partial file before the complete file."""

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


fit = partial(training.fit, val=1, num_sanity_val_steps=0)


KINDS = {
    "BestCheckpointHook": BestCheckpointHook,
    "CheckpointHook": partial(CheckpointHook, save_last=False, create_symlink=False),
    "EvalHook": EvalHook,
}


kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


SCORES = [0.5, 0.75, 0.25, 0.875, 0.125, 0.625, 0.9375, 0.0625]


class Scores(TinyModule):
    """Logs a given score in each validation; the weight is the score."""

    def __init__(self, key: str = "acc", scores: Any = SCORES) -> None:
        super().__init__()
        self.key, self.scores = key, scores
        self.seen: list[float] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.trainer.state.fn == "fit":
            self.log(self.key, self.scores[self.global_step // 2 - 1])
        self.seen.append(float(self.net.weight[0, 0]))

    test_step = validation_step

    def on_validation_start(self) -> None:
        if self.trainer.state.fn == "fit":
            torch.nn.init.constant_(self.net.weight, self.scores[self.global_step // 2 - 1])


def fields(callback: Any) -> dict[str, Any]:
    """Return the fields with each file path replaced by the file's iteration."""

    def number(path: Any) -> Any:
        return torch.load(path, weights_only=True)["global_step"] if path else path

    scores = {name: getattr(callback, name) for name in ("current_score", "best_model_score")}
    return {
        **scores,
        "best_k_models": {number(p): s for p, s in callback.best_k_models.items()},
        "best_model_path": number(callback.best_model_path),
        "of_the_run": [callback.monitor, callback.mode, callback.save_top_k],
    }


class Compare(Callback):
    """Compares the fields of both callbacks after each epoch."""

    def __init__(self, ours: Any, real: ModelCheckpoint) -> None:
        self.ours, self.real, self.compared = ours, real, 0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.current_epoch:
            self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        found, want = fields(self.ours), fields(self.real)
        assert found == want
        assert found["best_model_score"].dtype == want["best_model_score"].dtype
        self.compared += 1


@pytest.mark.parametrize(
    ("make", "rule", "keep", "every", "by_epoch"),
    [
        (KINDS["BestCheckpointHook"], "less", 2, 0.5, None),
        (KINDS["CheckpointHook"], "greater", 1, 1.0, True),
        (KINDS["EvalHook"], "less", 2, 0.5, None),
    ],
)
def test_fields_are_filled_as_a_model_checkpoints(tmp_path, make, rule, keep, every, by_epoch):
    ours = make(save_best="acc", rule=rule, keep_best=keep)
    mode = "max" if rule == "greater" else "min"
    options = {"module": Scores, "val_check_interval": every} | (
        {} if by_epoch else {"by_epoch": False}
    )
    for epochs, ckpt_path in ((2, None), (4, tmp_path / "last.ckpt")):
        ours = make(save_best="acc", rule=rule, keep_best=keep)
        real = ModelCheckpoint(tmp_path / "real", monitor="acc", mode=mode, save_top_k=keep)
        real.filename = "{step}"
        compare = Compare(ours, real)
        trainer = fit(
            *(tmp_path, ours),
            callbacks=[compare, real],
            max_epochs=epochs,
            ckpt_path=ckpt_path,
            **options,
        )
        assert compare.compared == (2 if epochs == 2 else 3)
        trainer.save_checkpoint(tmp_path / "last.ckpt")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_fields_in_random_runs(tmp_path, seed):
    chance = random.Random(seed)
    scores = [chance.random() for _ in range(40)]
    keep, rule = chance.choice([1, 2, 3]), chance.choice(["greater", "less"])
    options = {
        "batches": chance.choice([3, 5, 6]),
        "val_check_interval": chance.choice([1.0, 0.5, 2]),
    }
    if chance.random() < 0.5:
        options["by_epoch"] = chance.random() < 0.5
    elif chance.random() < 0.5:
        options["host"] = True
    if options["val_check_interval"] == 1.0:
        options["accumulate_grad_batches"] = 2

    class Logs(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            done = self.trainer.fit_loop.epoch_loop.batch_progress.total.completed
            self.log("acc", scores[done])

    make = chance.choice([*KINDS.values()])
    arguments = {"by_epoch": chance.random() < 0.5, "background": chance.random() < 0.3}
    for epochs, ckpt_path in ((2, None), (3, tmp_path / "last.ckpt")):
        ours = make(save_best="acc", rule=rule, keep_best=keep, **arguments)
        mode = "max" if rule == "greater" else "min"
        real = ModelCheckpoint(
            *(tmp_path / "real", "{step}", "acc"),
            mode=mode,
            save_top_k=keep,
            save_on_train_epoch_end=False,
        )
        trainer = fit(
            *(tmp_path, ours),
            module=Logs,
            callbacks=[real],
            max_epochs=epochs,
            ckpt_path=ckpt_path,
            **options,
        )
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        assert sorted(ours.best_k_models.values()) == sorted(real.best_k_models.values())
        assert ours.best_model_score == real.best_model_score
        assert ours.current_score == real.current_score
        assert {str(path) for path in tmp_path.glob("best_*")} == {*ours.best_k_models}
        for path, score in ours.best_k_models.items():
            done = torch.load(path, weights_only=True)["meta"]["iter"]
            assert float(score) == pytest.approx(scores[done])


@pytest.mark.parametrize(("host", "every"), [(False, 3), (True, 1.0)])
def test_the_best_file_gives_its_score_with_an_average_too(tmp_path, host, every):
    hooks = BestCheckpointHook("val_loss", keep_best=2), EMAHook(momentum=0.3)
    options = {"batches": 4, "val": 2, "max_epochs": 2, "val_check_interval": every, "host": host}
    fit(tmp_path, *hooks, module=TinyModule, **options)
    assert len(hooks[0].best_k_models) == 2
    for path, score in hooks[0].best_k_models.items():
        trainer = make_trainer(tmp_path)
        loader = make_loader(2)
        (found,) = trainer.validate(TinyModule(seed=7), loader, ckpt_path=path, verbose=False)
        assert found["val_loss"] == float(score)


def test_fields_before_a_fit_and_in_copies(tmp_path):
    for make in KINDS.values():
        hook = make(save_best="acc", keep_best=3)
        assert [hook.monitor, hook.mode, hook.save_top_k] == ["acc", "max", 3]
        assert hook.best_model_path == ""
        assert hook.best_model_score is hook.current_score is None
        fit(tmp_path, hook, module=Scores)
        for other in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
            assert (other.best_model_path, other.best_k_models) == ("", {})
        if isinstance(hook, ModelCheckpoint):
            hook.to_yaml()
            path, score = hook.best_model_path, hook.best_model_score
            assert (tmp_path / "best_k_models.yaml").read_text() == f"{path}: {score}\n"
    plain = CheckpointHook()
    assert (plain.monitor, plain.mode, plain.best_k_models) == (None, "min", {})
    assert BestCheckpointHook("auto", "less").monitor is None
    assert CheckpointHook(save_optimizer=False).save_weights_only


def test_each_of_several_hooks_shows_its_own_best(tmp_path):
    class Both(Scores):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            self.log("val_loss", SCORES[self.global_step // 2 - 1])

    hooks = [BestCheckpointHook("acc"), BestCheckpointHook("val_loss"), CheckpointHook()]
    trainer = fit(tmp_path, *hooks, module=Both, max_epochs=3)
    shown = [Path(c.best_model_path).name for c in trainer.checkpoint_callbacks]
    assert shown == ["best_acc_epoch_2.pth", "best_val_loss_epoch_3.pth", "best_acc_epoch_2.pth"]
    assert [c.mode for c in trainer.checkpoint_callbacks] == ["max", "min", "max"]


# -- a new process -------------------------------------------------------------------------------


def new_trainer(tmp_path: Path, make: Any, **arguments: Any) -> L.Trainer:
    """Return a Trainer as in a new process; an EvalHook gets a CheckpointHook beside it."""
    hook = make(save_best="acc")
    callbacks = [hook, CheckpointHook()] if type(hook) is EvalHook else [hook]
    return make_trainer(
        *(tmp_path, *callbacks), enable_checkpointing=True, num_sanity_val_steps=0, **arguments
    )


@pytest.mark.parametrize(("make", "every"), [*zip(KINDS.values(), [1.0, 0.5, 1.0], strict=True)])
def test_best_goes_on_with_the_trainer_of_the_fit(tmp_path, make, every):
    loaders = make_loader(), make_loader(1)
    trainer = new_trainer(tmp_path, make, max_epochs=3, val_check_interval=every)
    trainer.fit(Scores(), *loaders)
    best = trainer.checkpoint_callback.best_model_path
    for call in ("validate", "test"):
        module = Scores()
        getattr(trainer, call)(module, loaders[1], ckpt_path="best", verbose=False)
        assert (trainer.ckpt_path, module.seen) == (best, [0.875])
    trainer = new_trainer(tmp_path, make, max_epochs=4, val_check_interval=every)
    trainer.fit(Scores(), *loaders, ckpt_path=best)
    assert Path(trainer.checkpoint_callback.best_model_path).name == "best_acc_iter_14.pth" or (
        every == 1.0 and trainer.checkpoint_callback.best_model_path == best
    )


def test_best_in_a_new_process_in_an_adapter(tmp_path):
    hook = BestCheckpointHook("acc", out_dir=tmp_path / "out")
    fit(tmp_path / "w", hook, module=Scores, max_epochs=2)
    no_best = EvalHook(make_loader(1))
    for hosted in (BestCheckpointHook("acc"), CheckpointHook(save_best="acc"), no_best):
        adapter = HookAdapter([hosted], work_dir=tmp_path / "out" / "w")
        want = None if hosted is no_best else hook.best_model_path
        assert adapter.best_checkpoint == want


def test_the_best_that_is_damaged_is_passed_over(tmp_path):
    fit(tmp_path, BestCheckpointHook("acc", keep_best=2), module=Scores, max_epochs=4)
    best = Path(str(find_checkpoints.best_valid(str(tmp_path), "acc")))
    assert best.name == "best_acc_epoch_2.pth"
    best.write_bytes(best.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"has \d+ bytes of.*epoch_1.pth is taken instead"):
        assert find_checkpoints.best_valid(str(tmp_path)).endswith("epoch_1.pth")
    (tmp_path / "best_acc_epoch_1.pth").unlink()
    with pytest.warns(UserWarning, match="no valid checkpoint is left"):
        assert find_checkpoints.best_valid(str(tmp_path)) is None
    assert find_checkpoints.best_valid(str(tmp_path), "val_loss") is None


def test_without_a_best_file_best_is_the_last_and_in_a_new_process_lightnings_error(tmp_path):
    hook = CheckpointHook(interval=1)
    fit(tmp_path, hook, module=Scores, max_epochs=2)
    assert hook.best_model_path == str(tmp_path / "epoch_2.pth")
    trainer = make_trainer(tmp_path, CheckpointHook(), enable_checkpointing=True)
    with pytest.raises(ValueError, match="not configured to save the best model"):
        trainer.validate(Scores(), make_loader(1), ckpt_path="best", verbose=False)


# -- files without a manifest --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "template", "link"),
    [(False, None, True), (True, None, False), (False, "sub/run_{:03d}.pth", False)],
)
def test_last_finds_files_that_no_manifest_lists(tmp_path, host, template, link):
    arguments = {"interval": 1, "filename_tmpl": template, "create_symlink": False}
    fit(tmp_path, CheckpointHook(**arguments), module=TinyModule, max_epochs=10, batches=1)
    (tmp_path / manifest.NAME).unlink()
    (tmp_path / "epoch_99.pth.tmp").write_text("none of ours")
    names = [(template or "epoch_{}.pth").format(n) for n in (10, 9)]
    if link:
        (tmp_path / manifest.LATEST).symlink_to(names[1])
    want = str(tmp_path / names[link])
    module, hook = TinyModule(), CheckpointHook(**arguments)
    with pytest.warns(UserWarning, match="is in no checkpoints.json beside it"):
        path: Any = HookAdapter([hook], work_dir=tmp_path).last_checkpoint
    assert path == want
    options = {"module": module, "max_epochs": 11, "batches": 1, "host": host}
    if not host:
        path = "last"
        warned = pytest.warns(UserWarning, match="is in no checkpoints.json beside it")
    with contextlib.nullcontext() if host else warned:
        assert fit(tmp_path, hook, ckpt_path=path, **options).ckpt_path == want
    assert len(module.losses) == 11 - (9 if link else 10)


def test_last_of_files_elsewhere_and_of_other_templates(tmp_path):
    path = f"memory://{tmp_path.name}/run"
    hook = CheckpointHook(interval=2, by_epoch=False, out_dir=path, save_last=False)
    fit(tmp_path / "run", hook, module=TinyModule, batches=4)
    fs, target = manifest.files.filesystem(f"{path}/run/{manifest.NAME}")
    fs.rm(target)
    with pytest.warns(UserWarning, match="iter_4.pth is in no"):
        assert newest_of([("", f"{path}/run")]) == f"{path}/run/iter_4.pth"
    assert newest_of([("", str(tmp_path / "nothing"))]) is None


def test_last_passes_over_files_that_no_manifest_lists_and_no_trainer_loads(tmp_path):
    fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), module=TinyModule, max_epochs=2)
    (tmp_path / manifest.NAME).unlink()
    (tmp_path / "epoch_99.pth").write_bytes((tmp_path / "epoch_2.pth").read_bytes()[:-9])
    torch.save({"state_dict": {}}, tmp_path / "epoch_98.pth")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "epoch_97.pth")
    (tmp_path / "epoch_96.pth").symlink_to(tmp_path / "gone.pth")
    place = "", str(tmp_path)
    passed = (
        "epoch_2.pth is in no .*epoch_99.pth .*epoch_98.pth.*epoch_97.pth has no optimizer_states"
    )
    with pytest.warns(UserWarning, match=passed):
        assert newest_of([place], for_fit=True) == str(tmp_path / "epoch_2.pth")
    for number in (1, 2):
        (tmp_path / f"epoch_{number}.pth").unlink()
    assert newest_of([place]) == str(tmp_path / "epoch_99.pth")  # loading says why not


def test_last_is_a_file_with_objects_of_the_users_own_class(tmp_path):
    class Keeping(TinyModule):
        def on_save_checkpoint(self, checkpoint):
            checkpoint["mine"] = Priority.LOW

    hook = CheckpointHook(interval=1, create_symlink=False)
    fit(tmp_path, hook, module=Keeping, max_epochs=2)
    (tmp_path / manifest.NAME).unlink()
    with pytest.warns(UserWarning, match=r"epoch_2.pth is in no"):
        assert newest_of([("", str(tmp_path))]) == str(tmp_path / "epoch_2.pth")


EPOCHS = 3


def run(folder: Path, logger: Any, *callbacks: Any, **words: Any) -> None:
    words = {"enable_checkpointing": True, "max_epochs": EPOCHS, **words}
    trainer = make_trainer(folder, *callbacks, logger=logger, **words)
    trainer.fit(TinyModule(lr=0.01), make_loader(4), make_loader(2))


@pytest.fixture
def wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Run W&B offline; yield the list of logged artifacts."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    given: list[Any] = []
    log_artifact = wandb.sdk.wandb_run.Run.log_artifact

    def keep(run: Any, artifact: Any, *args: Any, **kwargs: Any) -> Any:
        given.append(artifact)
        return log_artifact(run, artifact, *args, **kwargs)

    monkeypatch.setattr(wandb.sdk.wandb_run.Run, "log_artifact", keep)
    yield given
    wandb.finish()


def uploads(artifacts: list[Any]) -> list[str]:
    """Return the names of the uploaded files; each artifact holds a whole file."""
    for artifact in artifacts:
        (entry,) = artifact.manifest.entries.values()
        assert entry.size > 1000
    return [artifact.metadata["original_filename"] for artifact in artifacts]


@pytest.mark.parametrize("background", [False, True])
def test_wandb_gets_each_file(tmp_path: Path, wandb_offline: list[Any], background: bool) -> None:
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, background=background)
    run(tmp_path, WandbLogger(save_dir=tmp_path, log_model="all"), hook)
    assert uploads(wandb_offline) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert wandb_offline[-1].metadata["CheckpointHook"] == {
        **{"monitor": None, "mode": "min", "save_last": True},
        **{"save_top_k": 1, "save_weights_only": False},
    }


@pytest.mark.parametrize("how", ["hooks", "adapter", "one hook"])
def test_wandb_gets_the_best_and_the_last_at_the_end(
    tmp_path: Path, wandb_offline: list[Any], how: str
) -> None:
    hooks: list[Any] = [
        CheckpointHook(interval=1, max_keep_ckpts=2),
        BestCheckpointHook("val_loss"),
    ]
    if how == "one hook":
        hooks = [CheckpointHook(interval=1, max_keep_ckpts=2, save_best="val_loss")]
    callbacks = [HookAdapter(hooks)] if how == "adapter" else hooks
    words = {"enable_checkpointing": False} if how == "adapter" else {}
    run(tmp_path, WandbLogger(save_dir=tmp_path, log_model=True), *callbacks, **words)
    assert sorted(uploads(wandb_offline)) == ["best_val_loss_epoch_3.pth", "epoch_3.pth"]


def test_mlflow_gets_each_file(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    where = {"tracking_uri": store, "artifact_location": str(tmp_path / "artifacts")}
    logger = MLFlowLogger("digits", **where, log_model="all")
    run(tmp_path, logger, CheckpointHook(interval=1), BestCheckpointHook("val_loss", keep_best=3))
    client = mlflow.MlflowClient(store)
    for n in range(1, EPOCHS + 1):
        for name in (f"epoch_{n}", f"best_val_loss_epoch_{n}"):
            found = {Path(one.path).name for one in client.list_artifacts(logger.run_id, name)}
            assert found == {f"{name}.pth", "metadata.yaml", "aliases.txt"}


class Seen(Logger):
    """Records each call from a checkpoint callback, or raises the given error."""

    name, version = "seen", 0

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, bool]] = []
        self.error = error

    def log_metrics(self, metrics: Any, step: int | None = None) -> None: ...

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None: ...

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        hook: ModelCheckpoint = checkpoint_callback
        path = hook.last_model_path if isinstance(hook, CheckpointHook) else hook.best_model_path
        self.calls.append((hook.__class__.__name__, Path(path).name, Path(path).is_file()))
        if self.error is not None:
            raise self.error


def test_each_saving_hook_shows_itself_after_its_own_files(tmp_path: Path) -> None:
    logger = Seen()
    evaluated = EvalHook(save_best="train_loss", rule="less", out_dir=str(tmp_path / "elsewhere"))
    run(
        tmp_path,
        logger,
        BestCheckpointHook("val_loss"),
        CheckpointHook(interval=2),
        evaluated,
        num_sanity_val_steps=0,
    )
    assert [call for call in logger.calls if call[0] == "CheckpointHook"] == [
        ("CheckpointHook", "epoch_2.pth", True),
        ("CheckpointHook", "epoch_3.pth", True),
    ]
    best = [call for call in logger.calls if call[0] == "BestCheckpointHook"]
    assert best[0] == ("BestCheckpointHook", "best_val_loss_epoch_1.pth", True)
    assert {call[0] for call in logger.calls} == {
        "CheckpointHook", "BestCheckpointHook", "EvalHook",
    }  # fmt: skip
    assert all(is_file for *_, is_file in logger.calls)


def test_a_failing_logger_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lightning_hooks")
    logger = Seen(OSError("http://me:1234@host is down"))
    run(tmp_path, logger, CheckpointHook(interval=1))
    assert (
        caplog.messages
        == [
            "CheckpointHook: Seen.after_save_checkpoint() raised OSError: http://host is down; "
            "training goes on"
        ]
        * EPOCHS
    )
    assert sorted(path.name for path in tmp_path.glob("epoch*.pth")) == [
        f"epoch_{n + 1}.pth" for n in range(EPOCHS)
    ]


def test_a_background_save_is_told_by_the_writing_thread(tmp_path: Path) -> None:
    threads = []

    class Threads(Seen):
        def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
            super().after_save_checkpoint(checkpoint_callback)
            threads.append(threading.current_thread() is threading.main_thread())

    logger = Threads()
    run(tmp_path, logger, CheckpointHook(interval=1, background=True))
    assert [name for _, name, _ in logger.calls] == [f"epoch_{n + 1}.pth" for n in range(EPOCHS)]
    assert threads == [False] * EPOCHS


def test_a_best_file_written_beyond_the_next_validation_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoints.save

    def save_late(checkpoint: Any, target: checkpoints.Target) -> list[str]:
        time.sleep(0.5)
        return save(checkpoint, target)

    monkeypatch.setattr(checkpoints, "save", save_late)
    logger = Seen()
    hook = BestCheckpointHook("epoch", "greater", background=True)
    trainer = make_trainer(
        tmp_path, hook, logger=logger, enable_checkpointing=True, max_epochs=EPOCHS
    )
    trainer.fit(Counted(), make_loader(1), make_loader(1))
    assert logger.calls == [
        ("BestCheckpointHook", f"best_epoch_epoch_{n + 1}.pth", True) for n in range(EPOCHS)
    ]


def test_fast_dev_run_tells_nothing(tmp_path: Path) -> None:
    logger = Seen()
    run(tmp_path, logger, CheckpointHook(interval=1), fast_dev_run=True)
    assert logger.calls == []
