"""The best files by values of the Trainer's validations, within epochs and after a kill too."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    EMAHook,
    EvalHook,
    HookAdapter,
    standin,
)
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.standin._hooks import evaluation as standin_evaluation
from lightning_hooks.storage import manifest
from lightning_hooks.storage.layout import DamagedCheckpointError
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended"),
    pytest.mark.filterwarnings("ignore:.*is taken instead"),
]


nan = math.nan


class Scores(TinyModule):
    """A module that logs a given score in each validation."""

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


# -- the best at the end -----------------------------------------------------------------------


class Rated(TinyModule):
    """A module with its best score in the second of five epochs."""

    stops: str = ""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", [0.1, 0.5, 0.3, 0.2, 0.4][self.trainer.current_epoch % 5])

    def on_train_batch_end(self, *args: Any) -> None:
        if self.trainer.current_epoch == 3 and self.stops == "should_stop":
            self.trainer.should_stop = True
        if self.trainer.current_epoch == 3 and self.stops == "error":
            raise RuntimeError("on purpose")


def same(state: Any, expected: Any) -> None:
    torch.testing.assert_close(dict(state), dict(expected), rtol=0, atol=0)


def weights_of(path: Path) -> Any:
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("stops", ["", "should_stop", "early stop", "max_steps"])
def test_after_the_fit_the_module_has_the_best_weights(tmp_path, host, average, stops):
    hooks: list[Any] = [BestCheckpointHook("acc", load_at_end=True, background=host)]
    hooks += [EMAHook(momentum=0.3, warm_up=0)] if average else []
    module, given = Rated(), {"max_steps": 7} if stops == "max_steps" else {"max_epochs": 5}
    module.stops = stops
    early = [EarlyStopping("acc", mode="max", patience=2)] if stops == "early stop" else []
    trainer = fit(tmp_path, *hooks, module=module, host=host, callbacks=early, **given)
    best_weights = weights_of(tmp_path / "best_acc_epoch_2.pth")
    same(module.state_dict(), best_weights)
    trainer.validate(module, make_loader(1), verbose=False)
    same(module.state_dict(), best_weights)  # not an average


def test_an_error_leaves_the_weights_as_they_are(tmp_path):
    module = Rated()
    module.stops = "error"
    last = CheckpointHook(interval=-1, on_exception=True)
    with pytest.raises(RuntimeError, match="on purpose"):
        fit(
            tmp_path, BestCheckpointHook("acc", load_at_end=True), last, module=module, max_epochs=5
        )
    same(module.state_dict(), weights_of(tmp_path / "iter_7.pth"))


@pytest.mark.parametrize("average", [False, True])
def test_a_further_fit_goes_on_from_the_best_weights(tmp_path, average):
    class First(Rated):
        def on_train_start(self) -> None:
            self.first = {key: value.clone() for key, value in self.state_dict().items()}

    hooks = [BestCheckpointHook("acc", load_at_end=True)]
    hooks += [EMAHook(momentum=0.3, warm_up=0)] if average else []
    module = First()
    fit(tmp_path, *hooks, module=module, max_epochs=5)
    best_weights = weights_of(tmp_path / "best_acc_epoch_2.pth")
    fit(tmp_path / "further", *hooks, module=module, max_epochs=1)
    same(module.first, best_weights)


def test_a_run_that_has_ended_already_gives_the_best_weights(tmp_path):
    def hooks() -> list[Any]:
        return [CheckpointHook(1), BestCheckpointHook("acc", load_at_end=True)]

    fit(tmp_path, *hooks(), module=Rated, max_epochs=3)
    trainer = fit(tmp_path, *hooks(), module=Rated, max_epochs=3, ckpt_path="last")
    same(trainer.lightning_module.state_dict(), weights_of(tmp_path / "best_acc_epoch_2.pth"))


def test_without_a_best_file_the_last_weights_stay_and_a_line_says_so(tmp_path, caplog):
    fit(tmp_path, BestCheckpointHook("acc", load_at_end=True), module=Scores(acc=[nan]))
    assert "there is no best file, so the module has the last weights" in caplog.text


def test_a_damaged_best_file_is_not_loaded_at_the_end(tmp_path):
    class Damages(Rated):
        def on_train_end(self) -> None:
            path = tmp_path / "best_acc_epoch_2.pth"
            path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(DamagedCheckpointError, match="best_acc_epoch_2"):
        fit(tmp_path, BestCheckpointHook("acc", load_at_end=True), module=Damages, max_epochs=3)


def test_an_average_that_leaves_the_module_refuses_load_at_end(tmp_path):
    hooks = BestCheckpointHook("acc", load_at_end=True), EMAHook(after_fit="raw")
    with pytest.raises(ValueError, match=r"EMAHook\(after_fit='raw'\) would test the last"):
        fit(tmp_path, *hooks, module=Rated)


@pytest.mark.parametrize(
    ("scores", "keep", "kept"),
    [
        ([0.5, 0.5, 0.5], 1, [1]),  # of equal scores the earlier
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


def resumed_with(
    tmp_path: Path, first: Any, then: Any, epochs: tuple[int, int], **scores: Any
) -> Any:
    """Train with a hook, then resume with another; return the hook messages in the meta."""
    for hook, end, path in ((first, epochs[0], None), (then, epochs[1], "last")):
        trainer = fit(
            *(tmp_path, CheckpointHook(), hook),
            module=Scores(**scores),
            max_epochs=end,
            ckpt_path=path,
        )
    return Driver.of(trainer).runner.meta["hook_msgs"]


def test_resumed_with_another_key_the_old_best_is_not_the_new_keys(tmp_path):
    scores = {"acc": [0.9, 0.5, 0.6, 0.6], "val_loss": [nan, nan, nan, 2.0]}
    hook = BestCheckpointHook("val_loss")
    messages = resumed_with(tmp_path, BestCheckpointHook("acc"), hook, (2, 3), **scores)
    assert "best_score" not in messages
    assert hook.best_model_score is None
    assert hook.best_model_path.endswith("epoch_3.pth")  # the last, as without any best file
    messages = resumed_with(tmp_path, hook, hook, (3, 4), **scores)
    assert messages["best_score"] == hook.best_model_score == 2.0
    assert best(tmp_path) == ["best_acc_epoch_1.pth", "best_val_loss_epoch_4.pth"]


def test_resumed_with_the_keys_in_another_order_the_first_has_its_own_best(tmp_path):
    scores = {"acc": [0.5, 0.25, 0.25], "auc": [0.75, 0.25, 0.25]}
    first, then = (BestCheckpointHook(keys) for keys in (["acc", "auc"], ["auc", "acc"]))
    messages = resumed_with(tmp_path, first, then, (2, 3), **scores)
    assert (messages["best_score"], messages["best_score_acc"]) == (0.75, 0.5)
    assert messages["best_ckpt"] == then.best_model_path == str(tmp_path / "best_auc_epoch_1.pth")


def test_resumed_with_another_rule_the_best_are_by_the_new_rule(tmp_path):
    first, then = (BestCheckpointHook("m", rule, keep_best=2) for rule in ("greater", "less"))
    scores = {"m": [0.5, 0.75, 0.625, 0.25]}
    messages = resumed_with(tmp_path, first, then, (3, 4), **scores)
    assert [score for score, _ in messages["best_ckpts"]["m"]] == [0.25, 0.625]
    assert messages["best_score"] == then.best_model_score == 0.25
    assert best(tmp_path) == ["best_m_epoch_3.pth", "best_m_epoch_4.pth"]


def test_resumed_with_more_files_to_keep_the_deleted_are_forgotten(tmp_path):
    keeps = [BestCheckpointHook("acc", keep_best=keep) for keep in (3, 1, 3)]
    scores = {"acc": [0.75, 0.5, 0.625, 0.25, 0.375, 0.125]}
    resumed_with(tmp_path, *keeps[:2], (3, 4), **scores)
    assert best(tmp_path) == ["best_acc_epoch_1.pth"]
    resumed_with(tmp_path, keeps[1], keeps[2], (4, 6), **scores)
    names = [f"best_acc_epoch_{epoch}.pth" for epoch in (1, 5, 6)]
    assert best(tmp_path) == names
    assert [Path(path).name for path in keeps[2].best_k_models] == names


def test_a_new_run_in_the_directory_leaves_the_others_files(tmp_path):
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(acc=[0.5]), max_epochs=1)
    fit(tmp_path, BestCheckpointHook("acc"), module=Scores(acc=[0.1, 0.2, 0.3]), max_epochs=3)
    assert best(tmp_path) == ["best_acc_epoch_3.pth"]  # overwritten, then replaced
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
    assert not any(entry.flaw(str(tmp_path)) for entry in entries)
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


fit_validated = partial(training.fit, val=1, num_sanity_val_steps=0)


saves_best = partial(CheckpointHook, save_last=False, create_symlink=False)


class StepScores(TinyModule):
    """Logs the next of the given scores in each validation."""

    def __init__(self, *scores: float, key: str = "acc") -> None:
        super().__init__()
        self.scores, self.key = list(scores), key

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.scores:
            self.log(self.key, self.scores.pop(0))


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
    batches = 5 if every == 2 else 4  # with 5, no validation ends the epoch
    module = StepScores(0.125, 0.5, 0.875, 0.25)
    hook = make(save_best="acc", by_epoch=by_epoch)
    trainer = fit_validated(
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
    module = StepScores(0.4, 0.3, 0.2, 0.1)
    fit_validated(tmp_path, hook, module=module, max_epochs=2, val_check_interval=2, **arguments)
    iters = [f"best_acc_iter_{n}.pth" for n in (2, 4, 6, 8)]
    epochs = ["best_acc_epoch_1.pth", "best_acc_epoch_2.pth", iters[0], iters[2]]
    assert best(tmp_path) == (iters if by_epoch is False else epochs)  # a run by iteration has none
    for name in best(tmp_path):
        found = torch.load(tmp_path / name, weights_only=True)["meta"]
        assert found["iter" if "iter" in name else "epoch"] == int(name[-5])


def test_a_worse_score_of_the_same_epoch_overwrites_nothing(tmp_path):
    fit_validated(
        tmp_path,
        BestCheckpointHook("acc"),
        module=StepScores(0.9, 0.5, 0.4),
        val_check_interval=0.5,
    )
    assert best(tmp_path) == ["best_acc_iter_2.pth"]


def test_a_run_that_a_validation_ends_early_names_the_iteration(tmp_path):
    stop = EarlyStopping("acc", mode="max", patience=1, check_on_train_epoch_end=False)
    module = StepScores(0.5, 0.1, 0.9, 0.9)
    hook = BestCheckpointHook("acc", keep_best=9)
    fit_validated(
        tmp_path, hook, callbacks=[stop], module=module, max_epochs=3, val_check_interval=1
    )
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
        fit_validated(tmp_path, *hooks, module=StepScores(*rest), **options, **more)

    run(1, *scores[:3])
    epoch_1 = "best_acc_epoch_1.pth" if by_epoch else "best_acc_iter_6.pth"
    assert best(tmp_path) == sorted(["best_acc_iter_4.pth", epoch_1])
    with_names = str(tmp_path / "best_acc_iter_4.pth")  # a file written within the epoch
    run(2, *scores[2:], ckpt_path=with_names)
    assert best(tmp_path) == ["best_acc_iter_10.pth", "best_acc_iter_4.pth"]
    assert [path.name for path in tmp_path.glob("epoch_*.pth")] == ["epoch_2.pth"]


def test_interval_and_start_count_the_epoch_that_a_validation_is_in(tmp_path):
    hook = BestCheckpointHook("acc", interval=2, keep_best=9)
    module = StepScores(*[0.5] * 6)
    fit_validated(tmp_path, hook, module=module, max_epochs=3, val_check_interval=2)
    assert best(tmp_path) == ["best_acc_epoch_2.pth", "best_acc_iter_6.pth"]


def test_an_interval_that_fits_no_validation_is_warned_of(tmp_path):
    hook = EvalHook(save_best="acc", interval=3, by_epoch=False)
    with pytest.warns(UserWarning, match=r"interval=3\) compared none of the Trainer's 2 valid"):
        fit_validated(tmp_path, hook, module=StepScores(0.5, 0.6), val_check_interval=2)
    assert best(tmp_path) == []


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "host"), [(BestCheckpointHook, True), (EvalHook, False), (saves_best, False)]
)
def test_a_name_that_is_not_logged_is_reported_at_the_first_validation(tmp_path, make, host):
    with pytest.raises(KeyError, match=r"Hook: save_best='ac' is no score; did you mean 'acc'\?"):
        fit_validated(
            tmp_path,
            make(save_best="ac", rule="greater"),
            module=StepScores(0.5),
            host=host,
        )


def test_a_name_that_may_yet_be_logged_is_warned_of_once(tmp_path):
    hook = BestCheckpointHook("ac", rule="greater")
    module = StepScores(*[0.5] * 4)
    with pytest.warns(UserWarning, match="ac") as said:
        fit_validated(tmp_path, hook, module=module, batches=5, max_epochs=2, val_check_interval=2)
    text = "BestCheckpointHook: save_best='ac' is no score; did you mean 'acc'? Known: acc"
    assert len([w for w in said if text in str(w.message)]) == 1


def test_a_value_logged_in_the_epochs_last_validation_alone_is_compared_there(tmp_path):
    class Late(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("late" if self.global_step % 4 == 0 else "early", 1.0)

    hook = BestCheckpointHook("late", "greater", keep_best=9)
    with pytest.warns(UserWarning, match="'late' is no score"):
        fit_validated(tmp_path, hook, module=Late, val_check_interval=2, max_epochs=2)
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
    trainer.fit(StepScores(0.2, 0.7, 0.6, key="val_acc"), make_loader(), make_loader(1))
    assert re.fullmatch(r"best_val_acc_epoch_\d.pth", Path(str(hook.best_ckpt_path)).name)


SCORES = [0.1, 0.5, 0.3, 0.7, 0.6]


class FixedScores(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", SCORES[self.trainer.current_epoch])


def hooks(order: str, keep: int, background: bool) -> list[Any]:
    options: dict[str, Any] = {"background": background}
    last = CheckpointHook(1, max_keep_ckpts=2, **options)
    best = BestCheckpointHook("acc", keep_best=keep, **options)
    one = CheckpointHook(1, max_keep_ckpts=2, save_best="acc", keep_best=keep, **options)
    return {"last first": [last, best], "best first": [best, last], "one": [one]}[order]


def train(folder: Path, *args: Any, **words: Any) -> None:
    options = {"max_epochs": 5, "num_sanity_val_steps": 0, "enable_checkpointing": True}
    trainer = make_trainer(folder, *hooks(*args), **options)
    trainer.fit(FixedScores(), make_loader(2), make_loader(1), **words)


def result(folder: Path) -> tuple[Any, ...]:
    """Return the ranking and the best file in the newest checkpoint, and the best files on disk."""
    newest = folder / "epoch_5.pth"
    if not newest.exists():  # killed after the best of the last epoch
        newest = folder / "best_acc_epoch_5.pth"
    meta = torch.load(newest, weights_only=True)["meta"]["hook_msgs"]
    ranking = [(score, Path(path).name) for score, path in meta["best_ckpts"]["acc"]]
    return ranking, Path(meta["best_ckpt"]).name, {path.name for path in folder.glob("best_*.pth")}


@pytest.mark.parametrize(
    ("order", "keep", "background"),
    [
        ("last first", 1, False),
        ("last first", 2, True),
        pytest.param("last first", 1, True, marks=pytest.mark.slow),
        pytest.param("last first", 2, False, marks=pytest.mark.slow),
        pytest.param("best first", 2, False, marks=pytest.mark.slow),
        pytest.param("one", 1, True, marks=pytest.mark.slow),
    ],
)
def test_the_best_are_those_of_a_run_without_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, keep: int, background: bool
) -> None:
    folder, states = tmp_path / "run", list[Path]()

    def copied_before(change: Callable[..., None]) -> Callable[..., None]:
        def keep_state(*args: Any, **kwargs: Any) -> None:
            if str(folder) in str(args[-1]):
                states.append(tmp_path / f"state {len(states)}")
                shutil.copytree(folder, states[-1], symlinks=True)
            change(*args, **kwargs)

        return keep_state

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, copied_before(getattr(os, name)))
        train(folder, order, keep, background)
    want = result(folder)
    assert len(want[0]) == keep
    assert len(states) > 20
    for state in states[10:]:  # from the second epoch on
        shutil.rmtree(folder)
        shutil.copytree(state, folder, symlinks=True)
        train(folder, order, keep, background, ckpt_path="last")
        assert result(folder) == want, state
