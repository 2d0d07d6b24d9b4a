"""BestCheckpointHook: the best by several metrics of the Trainer's validation."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, HookAdapter
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.storage import manifest
from support import training
from support.training import TinyModule, make_loader, make_trainer

nan = math.nan


class Scores(TinyModule):
    """Logs given scores, one row for each validation."""

    def __init__(self, **scores: list[float]) -> None:
        super().__init__()
        self.scores = scores

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            for key, values in self.scores.items():
                self.log(key, values[self.trainer.current_epoch])


fit = partial(training.fit, batches=2, val=1)


def best(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("best_*.pth"))


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_departure_several_keys_each_by_its_own_rule(tmp_path, host):
    hook = BestCheckpointHook(["top1/acc", "val_loss"])
    scores = {"top1/acc": [0.1, 0.5, 0.3, 0.4], "val_loss": [3.0, 2.0, 1.0, 4.0]}
    trainer = fit(tmp_path, hook, module=Scores(**scores), max_epochs=4, host=host)
    assert best(tmp_path) == ["best_top1_acc_epoch_2.pth", "best_val_loss_epoch_3.pth"]
    for name in best(tmp_path):
        checkpoint = torch.load(tmp_path / name, weights_only=True)
        assert checkpoint["meta"]["epoch"] == int(name[-5])
    if host:
        assert trainer.callbacks[0] is not None
        (adapter,) = (c for c in trainer.callbacks if isinstance(c, HookAdapter))
        assert adapter.best_checkpoint == str(tmp_path / "best_top1_acc_epoch_2.pth")
    else:
        assert trainer.checkpoint_callback.best_model_path == hook.best_model_path
        trainer.validate(ckpt_path="best", dataloaders=make_loader(1), verbose=False)
        assert trainer.ckpt_path == str(tmp_path / "best_top1_acc_epoch_2.pth")


@pytest.mark.parametrize(
    ("scores", "keep", "kept"),
    [
        ([0.5, 0.5, 0.5], 1, [1]),  # of equal ones the earlier
        ([0.5, 0.5, 0.5], 2, [1, 2]),
        ([0.1, 0.5, 0.5], 2, [2, 3]),
        ([nan, nan, nan], 1, []),
        ([nan, 0.2, nan], 1, [2]),
        ([0.2, nan, 0.1], 2, [1, 3]),
        ([-math.inf, -5.0, nan], 1, [2]),
        ([0.1, math.inf, 0.2], 1, [2]),
        ([0.3, 0.1, 0.2], 2, [1, 3]),
        ([0.0, -1.0, -2.0], 1, [1]),
    ],
)
def test_departure_ties_nan_and_infinity(tmp_path, scores, keep, kept):
    fit(
        tmp_path, BestCheckpointHook("acc", keep_best=keep), module=Scores(acc=scores), max_epochs=3
    )
    assert best(tmp_path) == [f"best_acc_epoch_{n}.pth" for n in kept]


def test_the_bookkeeping_goes_on_in_a_resumed_run(tmp_path):
    scores = {"acc": [0.3, 0.9, 0.5, 0.6, 0.95], "val_loss": [1.0, 5.0, 2.0, 0.5, 3.0]}

    def hooks() -> list[Any]:
        best_hook = BestCheckpointHook(["acc", "val_loss"], keep_best=2)
        return [CheckpointHook(interval=1, max_keep_ckpts=1, create_symlink=False), best_hook]

    fit(tmp_path / "whole", *hooks(), module=Scores(**scores), max_epochs=5)
    for epochs in (2, 3, 5):
        last = {"ckpt_path": "last"} if epochs > 2 else {}
        trainer = fit(
            tmp_path / "parts", *hooks(), module=Scores(**scores), max_epochs=epochs, **last
        )
    assert (
        best(tmp_path / "parts")
        == best(tmp_path / "whole")
        == [
            *("best_acc_epoch_2.pth", "best_acc_epoch_5.pth"),
            *("best_val_loss_epoch_1.pth", "best_val_loss_epoch_4.pth"),
        ]
    )
    names = {entry.name for entry in manifest.read(str(tmp_path / "parts"))}
    assert names == {*best(tmp_path / "parts"), "epoch_5.pth"}
    messages = Driver.of(trainer).runner.meta["hook_msgs"]
    assert messages["best_score"] == pytest.approx(0.95)
    assert messages["best_score_val_loss"] == 0.5


def test_a_new_run_in_the_directory_leaves_the_others_files(tmp_path):
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(acc=[0.5]), max_epochs=1)
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(acc=[0.1, 0.2, 0.3]), max_epochs=3)
    assert best(tmp_path) == ["best_acc_epoch_3.pth"]  # the first was overwritten, then its own
    (tmp_path / "best_acc_epoch_4.pth").write_text("mine")
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(acc=[0.1, 0.2]), max_epochs=2)
    assert best(tmp_path) == [f"best_acc_epoch_{n}.pth" for n in (2, 3, 4)]


def test_auto_interval_and_out_dir(tmp_path):
    hook = BestCheckpointHook(interval=2, out_dir=tmp_path / "out", rule="less")
    fit(tmp_path / "w", hook, module=Scores(speed=[1.0, 3.0, 0.5, 2.0]), max_epochs=4)
    assert best(tmp_path / "out" / "w") == ["best_speed_epoch_4.pth"]
    assert hook.dirpath == str(tmp_path / "out" / "w")


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_by_iteration(tmp_path):
    hook = BestCheckpointHook("val_loss", by_epoch=False)
    trainer = make_trainer(
        *(tmp_path, hook), max_epochs=1, enable_checkpointing=True, val_check_interval=2
    )
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    (name,) = best(tmp_path)
    assert name in ("best_val_loss_iter_2.pth", "best_val_loss_iter_4.pth")


def test_a_key_that_is_not_logged_says_what_is(tmp_path):
    with pytest.raises(KeyError, match=r"save_best='acc' is no score.*val_acc"):
        fit(tmp_path, BestCheckpointHook("acc"), module=Scores(val_acc=[1.0]), max_epochs=1)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
class OtherNameInTheSanityCheck(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        stage = "sanity_check" if self.trainer.sanity_checking else "val"
        self.log(f"{stage}_loss", self.loss(batch))


def test_a_key_with_another_name_in_the_sanity_check_stops_nothing_and_nothing_says_so(tmp_path):
    hook = BestCheckpointHook("val_loss")
    options = {"module": OtherNameInTheSanityCheck, "num_sanity_val_steps": 1}
    with pytest.warns(UserWarning, match="sanity check has logged no save_best='val_loss'") as told:
        fit(tmp_path, hook, **options)
    (message,) = [str(one.message) for one in told if "sanity check" in str(one.message)]
    assert "first validation" not in message
    assert message.endswith("The run stops at the end of an epoch that has not logged it either")
    assert best(tmp_path) == ["best_val_loss_epoch_1.pth"]


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_a_fit_without_validation_warns(tmp_path):
    trainer = make_trainer(tmp_path, BestCheckpointHook("acc"), enable_checkpointing=True)
    with pytest.warns(UserWarning, match="nothing to compare"):
        trainer.fit(TinyModule(), make_loader())


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"save_best": None}, TypeError, "save_best must be"),
        ({"save_best": ["acc", "acc"]}, ValueError, "different names"),
        ({"save_best": "speed"}, ValueError, "Cannot infer the rule"),
        ({"save_best": "val_los"}, ValueError, r"rule='less'. If the key is misspelt, .*self\.log"),
        ({"save_best": "acc", "rule": "max"}, KeyError, "greater, less"),
        ({"save_best": "acc", "keep_best": 0}, ValueError, "keep_best must be at least 1"),
        ({"save_best": "acc", "out_dir": 3}, TypeError, "out_dir must be a path"),
        ({"save_best": "acc", "interval": 0}, ValueError, "interval must be"),
        ({"save_best": "acc", "background": 1}, TypeError, "background must be a bool"),
        ({"save_best": "acc", "on_saved": "x"}, TypeError, "on_saved must be a function"),
    ],
)
def test_refuses(arguments, error, match):
    with pytest.raises(error, match=match):
        BestCheckpointHook(**arguments)


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
def test_the_last_and_the_best_in_one_callback(tmp_path, host, background):
    scores = {"acc": [0.3, 0.9, 0.5, 0.6, 0.95], "val_loss": [1.0, 5.0, 2.0, 0.5, 3.0]}

    def hook() -> CheckpointHook:
        return CheckpointHook(
            interval=1,
            max_keep_ckpts=2,
            create_symlink=False,
            save_best=["acc", "val_loss"],
            keep_best=2,
            background=background,
        )

    for epochs in (3, 5):
        last = {"ckpt_path": str(tmp_path / "epoch_3.pth")} if epochs > 3 else {}
        trainer = fit(
            tmp_path, hook(), module=Scores(**scores), max_epochs=epochs, host=host, **last
        )
    assert best(tmp_path) == [
        *("best_acc_epoch_2.pth", "best_acc_epoch_5.pth"),
        *("best_val_loss_epoch_1.pth", "best_val_loss_epoch_4.pth"),
    ]
    last_two = {"epoch_4.pth", "epoch_5.pth"}
    assert {p.name for p in tmp_path.glob("epoch_*.pth")} == last_two
    entries = manifest.read(str(tmp_path))
    assert {entry.name for entry in entries} == {*best(tmp_path), *last_two}
    assert not any(manifest.flaw(str(tmp_path), entry) for entry in entries)
    the_best = str(tmp_path / "best_acc_epoch_5.pth")
    if host:
        (adapter,) = (c for c in trainer.callbacks if isinstance(c, HookAdapter))
        assert adapter.best_checkpoint == the_best
        assert adapter.last_checkpoint == str(tmp_path / "epoch_5.pth")  # not the best of epoch 5
    else:
        assert len(trainer.checkpoint_callbacks) == 1
        trainer.validate(ckpt_path="best", dataloaders=make_loader(1), verbose=False)
        assert trainer.ckpt_path == the_best


def test_in_one_callback_by_iteration_and_without_the_optimizer(tmp_path):
    hook = CheckpointHook(*(2, False, False), save_best="val_loss", rule="less", max_keep_ckpts=1)
    trainer = make_trainer(
        *(tmp_path, hook), max_epochs=1, enable_checkpointing=True, val_check_interval=2
    )
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    (name,) = best(tmp_path)
    assert name.startswith("best_val_loss_iter_")
    assert "optimizer_states" not in torch.load(tmp_path / name, weights_only=True)
    assert [p.name for p in tmp_path.glob("iter_*.pth")] == ["iter_4.pth"]


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_in_one_callback_refuses_what_the_other_does(tmp_path):
    with pytest.raises(ValueError, match="Cannot infer the rule"):
        CheckpointHook(save_best="speed")
    with pytest.raises(ValueError, match="keep_best must be at least 1"):
        CheckpointHook(save_best="acc", keep_best=0)
    trainer = make_trainer(tmp_path, CheckpointHook(save_best="acc"), enable_checkpointing=True)
    with pytest.warns(UserWarning, match="nothing to compare"):
        trainer.fit(TinyModule(), make_loader())
