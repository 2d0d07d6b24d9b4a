"""Hooks of research repositories for mmcv in a plain Trainer: recorded values and files.

``tests/golden_check/test_research_hooks.py`` compares the same hooks with real mmcv.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import GradientCumulativeOptimizerHook, Hook, OptimizerHook
from lightning_hooks.standin._hooks.checkpoint import CheckpointHook
from lightning_hooks.standin.fileio.file_client import FileClient
from support import research_hooks
from support.training import NoValidation, TinyModule, fit, make_loader

COUNTERS = ("_epoch", "_iter", "_max_epochs", "_max_iters")


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_counter_read_and_written_back_changes_nothing(
    by_epoch: bool, accumulated: int, tmp_path: Path
) -> None:
    limit = {"max_epochs": 3} if by_epoch else {"max_steps": 12 // accumulated}
    options: Any = {"accumulate_grad_batches": accumulated, "by_epoch": by_epoch, "val": 2, **limit}
    reads, writes = (research_hooks.writes_back(Hook, names) for names in ((), COUNTERS))
    assert fit(tmp_path, reads, **options).fit_loop.total_batch_idx == 11
    assert fit(tmp_path, writes, **options).fit_loop.total_batch_idx == 11
    assert writes.seen == reads.seen


def test_an_epoch_moved_back_and_forth_in_a_validation_trains_all_epochs(tmp_path: Path) -> None:
    hook = research_hooks.names_by_epoch(Hook)
    trainer = fit(tmp_path, hook, val=1, max_epochs=3)
    assert hook.seen == ["epoch_1.txt", "epoch_2.txt", "epoch_3.txt"]
    assert trainer.current_epoch == 3


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as in torch
@pytest.mark.parametrize("owns_backward", [False, True])
def test_a_loss_is_formatted_compared_and_converted_as_a_number(
    owns_backward: bool, tmp_path: Path
) -> None:
    hook, module = research_hooks.shows_loss(Hook), NoValidation()
    hooks = [(hook, "HIGH"), (OptimizerHook(), "ABOVE_NORMAL")]
    fit(tmp_path, *hooks, module=module, batches=1, owns_backward=owns_backward)
    (loss,) = module.losses
    texts, compared, converted, kept = hook.seen
    assert texts[:4] == (f"{loss:.4f}", f"{loss}", f"{loss:.3e}", f"{loss:.3f}")
    assert texts[5].startswith(f"tensor({loss:.4f}")
    assert compared == (True, True, True, True)
    assert converted == (loss, int(loss), loss, loss, "torch.FloatTensor")
    assert kept[:2] == (loss, 0)


def test_an_iter_loader_has_the_trainings_iterator(tmp_path: Path) -> None:
    hook = research_hooks.reads_iter_loader(Hook)
    fit(tmp_path, hook, module=NoValidation, max_steps=6, by_epoch=False)
    assert hook.seen == [(8, True)] * 6


class Flagged(torch.optim.SGD):
    """An optimizer that scales its step by an attribute and counts the steps."""

    scale, used = 1.0, 0

    def step(self, closure: Any = None) -> Any:
        """Step with a part of the gradients."""
        self.used += 1
        for parameter in self.param_groups[0]["params"]:
            parameter.grad.mul_(self.scale)
        return super().step(closure)


def test_an_attribute_of_the_optimizer_reaches_its_step(tmp_path: Path) -> None:
    class FlaggedModule(NoValidation):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return Flagged(self.parameters(), lr=self.lr)

    hook, half = research_hooks.flags_optimizer(Hook), FlaggedModule()
    fit(tmp_path, OptimizerHook(), hook, module=half, owns_backward=True)
    plain = FlaggedModule(lr=0.05)
    fit(tmp_path, OptimizerHook(), module=plain, owns_backward=True)
    assert hook.seen == [(0.5, 4)]
    torch.testing.assert_close(half.net.weight, plain.net.weight)


def test_the_older_body_of_an_accumulating_hook_divides_the_shorter_window_by_its_length(
    tmp_path: Path,
) -> None:
    hook = research_hooks.old_body(GradientCumulativeOptimizerHook, 4)
    module = NoValidation(lr=0.0)
    fit(tmp_path, hook, module=module, batches=5)
    ((first, _), (last, norm)) = hook.seen
    assert (first, last) == (4, 1)
    batches = list(make_loader(5))
    grads = torch.autograd.grad(module.loss(batches[4]), list(module.parameters()))
    assert norm == pytest.approx(sum(float(g.norm()) ** 2 for g in grads) ** 0.5)


def test_a_checkpoint_hook_with_its_own_before_run_writes_its_files(tmp_path: Path) -> None:
    hook = research_hooks.opens_itself(CheckpointHook, FileClient)
    fit(tmp_path, hook, module=NoValidation, max_epochs=2, host=True)
    assert sorted(path.name for path in tmp_path.glob("epoch_*")) == ["epoch_1.pth", "epoch_2.pth"]
    assert (tmp_path / "latest.pth").resolve().name == "epoch_2.pth"


def test_the_file_names_of_an_old_checkpoint_hook_hold_in_a_trainer(tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, filename_tmpl="old_{}.pth")
    fit(tmp_path, hook, module=NoValidation, max_epochs=2)
    assert [path.name for path in tmp_path.glob("*_*.pth")] == ["old_2.pth"]


def test_the_file_names_of_an_old_checkpoint_hook_stay_in_its_directory(tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1, filename_tmpl="../old_{}.pth")
    with pytest.raises(ValueError, match="filename_tmpl must be the name of a file in out_dir"):
        fit(tmp_path / "run", hook, module=NoValidation, max_epochs=2)
    assert not [*tmp_path.glob("*.pth")]


def test_a_checkpoint_hook_that_saves_at_its_own_iterations(tmp_path: Path) -> None:
    hook = research_hooks.saves_when_it_likes(CheckpointHook)
    fit(tmp_path, hook, module=NoValidation, max_steps=6, by_epoch=False)
    assert sorted(path.name for path in tmp_path.glob("iter_*")) == ["iter_2.pth", "iter_5.pth"]
    found = torch.load(tmp_path / "iter_5.pth")
    assert found["meta"]["iter"] == 4
    assert {"state_dict", "optimizer"} <= found.keys()


def test_departure_after_a_fit_the_model_is_in_train_mode(tmp_path: Path) -> None:
    module = TinyModule()
    fit(tmp_path, Hook(), module=module, val=1)
    assert module.training  # mmcv leaves the model in evaluation mode
