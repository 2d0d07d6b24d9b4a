"""The attributes of a ModelCheckpoint, beside a real one; its paths in a new process."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, EvalHook, HookAdapter
from lightning_hooks.engine.priority import Priority
from lightning_hooks.hooks.saving.directory import newest_of
from lightning_hooks.storage import find_checkpoints, manifest
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended", "ignore:Checkpoint directory"
)
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
    """Return the fields, with a file's iteration in place of its path."""

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
    """Compares the fields when an epoch has ended, and what was due is written."""

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
    """Return a Trainer as a new process makes it: an EvalHook stands beside a CheckpointHook."""
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
