"""CheckInvalidLossHook(dump_dir=...) saves the bad batch, and the file reproduces the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_hooks import CheckInvalidLossHook, HookAdapter, InvalidLossError, OptimizerHook
from lightning_hooks import load_batch as load
from lightning_hooks.utils.random_state import set_rng_state
from support.torture.bad_batches import (
    GRADIENTS,
    LOSS,
    BadModule,
    batches,
    loader,
    train_step_module,
)
from support.training import make_trainer


class Dropping(BadModule):
    """A module that draws random numbers in each step and records the numbers."""

    def make_net(self) -> nn.Module:
        return nn.Linear(4, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.dropped = [*getattr(self, "dropped", []), torch.rand(3).tolist()]
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("action", ["raise", "stop", "skip", "restore"])
def test_the_batch_and_all_that_the_step_needs(action: str, tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(interval=4, action=action, dump_dir=str(tmp_path / "bad"))
    module, made = Dropping(), batches(8, {2: LOSS, 3: LOSS})
    trainer = make_trainer(tmp_path, hook, max_epochs=1)
    if action == "raise":
        with pytest.raises(InvalidLossError):
            trainer.fit(module, loader(made))
    else:
        trainer.fit(module, loader(made))
    assert [p.name for p in (tmp_path / "bad").iterdir()] == ["invalid_iter_2_rank_0.pt"]
    found = load(str(tmp_path / "bad" / "invalid_iter_2_rank_0.pt"))
    for one, other in zip(found["batch"], made[2], strict=True):
        assert torch.equal(one, other)
    assert (found["iter"], found["epoch"], found["inner_iter"], found["rank"]) == (2, 0, 2, 0)
    assert set(found["terms"]) == {"loss"}
    assert found["terms"]["loss"] != found["terms"]["loss"]
    with torch.random.fork_rng(devices=[]):
        set_rng_state(found["rng_state"])
        assert torch.rand(3).tolist() == module.dropped[2]


def test_a_batch_whose_gradients_were_bad(tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(interval=4, action="skip", dump_dir=str(tmp_path / "bad"))
    adapter = HookAdapter([OptimizerHook(), hook])
    make_trainer(tmp_path, adapter).fit(train_step_module(), loader(batches(4, {1: GRADIENTS})))
    assert [p.name for p in (tmp_path / "bad").iterdir()] == ["invalid_iter_1_rank_0.pt"]


def test_a_batch_of_other_objects_is_loaded_on_request(tmp_path: Path) -> None:
    class Module(BadModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch["tensors"], batch_idx)

        def transfer_batch_to_device(self, batch: Any, *args: Any) -> Any:
            return batch

    made = [{"tensors": batch, "where": Path("a.png")} for batch in batches(2, {1: LOSS})]
    hook = CheckInvalidLossHook(dump_dir="memory://bad")
    with pytest.raises(InvalidLossError):
        make_trainer(tmp_path, hook).fit(Module(), loader(made))
    path = "memory://bad/invalid_iter_1_rank_0.pt"
    with pytest.raises(Exception, match=r"(?i)weights_only"):
        load(path)
    assert load(path, weights_only=False)["batch"]["where"] == Path("a.png")


def test_a_file_that_cannot_be_written_does_not_hide_the_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    hook = CheckInvalidLossHook(dump_dir=str(tmp_path / "file" / "bad"))
    with pytest.raises(InvalidLossError, match="at iter 1 "):
        make_trainer(tmp_path, hook).fit(BadModule(), loader(batches(2, {1: LOSS})))
    assert "the batch of iter 1 could not be written" in caplog.text


@pytest.mark.parametrize("dump_dir", [None, "bad"])
def test_batches_are_kept_for_an_interval_and_only_for_files(
    dump_dir: str | None, tmp_path: Path
) -> None:
    kept: list[int] = []

    class Look(BadModule):
        def on_train_batch_end(self, *args: Any) -> None:
            kept.append(sum(step.batch is not None for step in hook._history._steps))

    hook = CheckInvalidLossHook(interval=3, dump_dir=dump_dir and str(tmp_path / dump_dir))
    make_trainer(tmp_path, hook).fit(Look(), loader(batches(7)))
    assert kept == ([0] * 7 if dump_dir is None else [1, 2, 0, 1, 2, 0, 1])
    assert hook._history._steps == []
