"""The best of all validations that the Trainer runs, also of those within an epoch."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader

from lightning_hooks import BestCheckpointHook, CheckpointHook, EvalHook, HookAdapter, standin
from lightning_hooks.standin._hooks import evaluation as standin_evaluation
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended")
fit = partial(training.fit, val=1, num_sanity_val_steps=0)
saves_best = partial(CheckpointHook, save_last=False, create_symlink=False)


class Scores(TinyModule):
    """Logs the next of the given scores in each validation."""

    def __init__(self, *scores: float, key: str = "acc") -> None:
        super().__init__()
        self.scores, self.key = list(scores), key

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.scores:
            self.log(self.key, self.scores.pop(0))


def best(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("best_*.pth"))


@pytest.mark.parametrize(
    ("make", "host", "by_epoch", "every"),
    [
        (BestCheckpointHook, False, True, 2),
        (EvalHook, True, False, 2),
        (saves_best, True, True, 0.5),
        (BestCheckpointHook, False, False, 0.5),
    ],
)
def test_validations_within_an_epoch_are_compared(tmp_path, make, by_epoch, host, every):
    batches = 5 if every == 2 else 4  # 5: none of them ends the epoch
    module = Scores(0.125, 0.5, 0.875, 0.25)
    hook = make(save_best="acc", by_epoch=by_epoch)
    trainer = fit(
        *(tmp_path, hook),
        **{"module": module, "host": host, "batches": batches, "max_epochs": 2},
        val_check_interval=every,
    )
    iteration = {5: 7, 4: 6}[batches]
    assert best(tmp_path) == [f"best_acc_iter_{iteration}.pth"]
    file = torch.load(tmp_path / best(tmp_path)[0], weights_only=True)
    assert (file["meta"]["iter"], file["meta"]["hook_msgs"]["best_score"]) == (iteration, 0.875)
    assert trainer.state.finished


@pytest.mark.parametrize("by_epoch", [None, True, False], ids=["epochs", "hosted", "iters"])
def test_file_names_tell_the_validations_of_an_epoch_apart(tmp_path, by_epoch):
    hook = BestCheckpointHook("acc", keep_best=9)
    arguments = {} if by_epoch is None else {"by_epoch": by_epoch}
    module = Scores(0.4, 0.3, 0.2, 0.1)
    fit(tmp_path, hook, module=module, max_epochs=2, val_check_interval=2, **arguments)
    iters = [f"best_acc_iter_{n}.pth" for n in (2, 4, 6, 8)]
    epochs = ["best_acc_epoch_1.pth", "best_acc_epoch_2.pth", iters[0], iters[2]]
    assert best(tmp_path) == (iters if by_epoch is False else epochs)  # a run by iteration has none
    for name in best(tmp_path):
        found = torch.load(tmp_path / name, weights_only=True)["meta"]
        assert found["iter" if "iter" in name else "epoch"] == int(name[-5])


def test_a_worse_score_of_the_same_epoch_overwrites_nothing(tmp_path):
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(0.9, 0.5, 0.4), val_check_interval=0.5)
    assert best(tmp_path) == ["best_acc_iter_2.pth"]


def test_a_run_that_a_validation_ends_early_names_the_iteration(tmp_path):
    stop = EarlyStopping("acc", mode="max", patience=1, check_on_train_epoch_end=False)
    module = Scores(0.5, 0.1, 0.9, 0.9)
    hook = BestCheckpointHook("acc", keep_best=9)
    fit(tmp_path, hook, callbacks=[stop], module=module, max_epochs=3, val_check_interval=1)
    assert best(tmp_path) == ["best_acc_iter_1.pth", "best_acc_iter_2.pth"]


@pytest.mark.parametrize(("by_epoch", "host"), [(True, False), (False, True)])
def test_the_k_best_go_on_in_a_run_resumed_within_an_epoch(tmp_path, by_epoch, host):
    scores = [0.3, 0.9, 0.5, 0.6, 0.95, 0.1]

    def run(epochs: int, *rest: float, **more: Any) -> None:
        hooks = [
            CheckpointHook(interval=1, max_keep_ckpts=1, create_symlink=False),
            BestCheckpointHook("acc", keep_best=2, by_epoch=by_epoch),
        ]
        options = {"batches": 6, "val_check_interval": 2, "max_epochs": epochs, "host": host}
        fit(tmp_path, *hooks, module=Scores(*rest), **options, **more)

    run(1, *scores[:3])
    epoch_1 = "best_acc_epoch_1.pth" if by_epoch else "best_acc_iter_6.pth"
    assert best(tmp_path) == sorted(["best_acc_iter_4.pth", epoch_1])
    with_names = str(tmp_path / "best_acc_iter_4.pth")  # a file written within the epoch
    run(2, *scores[2:], ckpt_path=with_names)
    assert best(tmp_path) == ["best_acc_iter_10.pth", "best_acc_iter_4.pth"]
    assert [path.name for path in tmp_path.glob("epoch_*.pth")] == ["epoch_2.pth"]


def test_interval_and_start_count_the_epoch_that_a_validation_is_in(tmp_path):
    hook = BestCheckpointHook("acc", interval=2, keep_best=9)
    module = Scores(*[0.5] * 6)
    fit(tmp_path, hook, module=module, max_epochs=3, val_check_interval=2)
    assert best(tmp_path) == ["best_acc_epoch_2.pth", "best_acc_iter_6.pth"]


def test_an_interval_that_fits_no_validation_is_warned_of(tmp_path):
    hook = EvalHook(save_best="acc", interval=3, by_epoch=False)
    with pytest.warns(UserWarning, match=r"interval=3\) compared none of the Trainer's 2 valid"):
        fit(tmp_path, hook, module=Scores(0.5, 0.6), val_check_interval=2)
    assert best(tmp_path) == []


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "host"), [(BestCheckpointHook, True), (EvalHook, False), (saves_best, False)]
)
def test_a_name_that_is_not_logged_is_reported_at_the_first_validation(tmp_path, make, host):
    with pytest.raises(KeyError, match=r"Hook: save_best='ac' is no score; did you mean 'acc'\?"):
        fit(tmp_path, make(save_best="ac", rule="greater"), module=Scores(0.5), host=host)


def test_a_name_that_may_yet_be_logged_is_warned_of_once(tmp_path):
    hook = BestCheckpointHook("ac", rule="greater")
    module = Scores(*[0.5] * 4)
    with pytest.warns(UserWarning, match="ac") as said:
        fit(tmp_path, hook, module=module, batches=5, max_epochs=2, val_check_interval=2)
    text = "BestCheckpointHook: save_best='ac' is no score; did you mean 'acc'? Known: acc"
    assert len([w for w in said if text in str(w.message)]) == 1


def test_a_value_logged_in_the_epochs_last_validation_alone_is_compared_there(tmp_path):
    class Late(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("late" if self.global_step % 4 == 0 else "early", 1.0)

    hook = BestCheckpointHook("late", "greater", keep_best=9)
    with pytest.warns(UserWarning, match="'late' is no score"):
        fit(tmp_path, hook, module=Late, val_check_interval=2, max_epochs=2)
    assert best(tmp_path) == ["best_late_epoch_1.pth", "best_late_epoch_2.pth"]


@pytest.mark.parametrize(
    "key",
    ["val_loss", "val/RMSE", "MeanSquaredError", "val_mse", "MAE", "top1_error", "val_Perplexity"],
)
def test_departure_a_name_that_ends_as_an_error_does_is_less(key):
    for hook in (BestCheckpointHook(key), EvalHook(save_best=key), CheckpointHook(save_best=key)):
        assert hook.mode == "min"
    assert BestCheckpointHook(f"{key}_epoch/dataloader_idx_1").rule == "less"
    assert BestCheckpointHook(key, rule="greater").rule == "greater"
    assert BestCheckpointHook(key, greater_keys=key.lower()[-3:]).rule == "greater"
    assert BestCheckpointHook(key, greater_keys="speed").rule == "less"


def test_mmcvs_own_inference_stays_in_the_stand_in():
    assert standin is not None
    loader = DataLoader([0])
    assert standin_evaluation.EvalHook(loader, save_best="top1_error").rule == "greater"
    with pytest.raises(ValueError, match="Cannot infer the rule"):
        standin_evaluation.EvalHook(loader, save_best="val_rmse")


def test_an_eval_hook_takes_the_name_alone(tmp_path):
    hook = EvalHook(save_best="val_acc")
    trainer = make_trainer(tmp_path, HookAdapter([hook]), max_epochs=2)
    trainer.fit(Scores(0.2, 0.7, 0.6, key="val_acc"), make_loader(), make_loader(1))
    assert re.fullmatch(r"best_val_acc_epoch_\d.pth", Path(str(hook.best_ckpt_path)).name)
