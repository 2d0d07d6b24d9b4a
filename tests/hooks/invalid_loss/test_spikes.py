"""CheckInvalidLossHook(spike=...) treats a loss far above the recent median as bad."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from lightning_hooks import CheckInvalidLossHook, HookAdapter, InvalidLossError
from lightning_hooks.hooks.invalid_loss.spikes import Spikes
from support.device_reads import NoReads
from support.training import make_trainer

WINDOW = {"window": 4, "ratio": 3.0}


class Given(L.LightningModule):
    """A module whose losses and gradients equal the samples."""

    def __init__(self, optimizer: Any = torch.optim.SGD) -> None:
        super().__init__()
        self.weight, self.optimizer = nn.Parameter(torch.zeros(2)), optimizer

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        (loss,) = batch[0]
        return loss + (self.weight - self.weight.detach()).sum() * loss

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters(), lr=0.01)


def loader(losses: Sequence[float]) -> Any:
    samples = torch.utils.data.TensorDataset(torch.tensor(losses, dtype=torch.float32))
    return torch.utils.data.DataLoader(samples, batch_size=1)


def fit(folder: Path, losses: Sequence[float], hook: Any, **options: Any) -> Any:
    """Train on the losses in the given order; return the module."""
    module = Given(options.pop("optimizer", torch.optim.SGD))
    make_trainer(folder, HookAdapter([hook]), **options).fit(module, loader(losses))
    return module


CALM = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0]


@pytest.mark.parametrize("fused", [False, True])
def test_a_spike_is_skipped_without_a_trace(tmp_path: Path, fused: bool) -> None:
    adam = partial(torch.optim.Adam, fused=fused)
    hook = CheckInvalidLossHook(action="skip", spike=WINDOW)
    spiked = fit(tmp_path / "a", [*CALM, 4.0, 1.0, 9.0, 1.1], hook, optimizer=adam)
    plain = fit(tmp_path / "b", [*CALM, 1.0, 1.1], CheckInvalidLossHook(), optimizer=adam)
    assert torch.equal(spiked.weight, plain.weight)


def test_skipping_spikes_of_several_losses_is_refused(tmp_path: Path) -> None:
    class Two(Given):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD([self.weight], lr=0.1) for _ in range(2)]

    hook = CheckInvalidLossHook(action="skip", spike=WINDOW)
    with pytest.raises(ValueError, match="each of the 2 optimizers of Two has a loss of its own"):
        make_trainer(tmp_path, hook).fit(Two(), loader(CALM))


def test_a_step_without_a_returned_loss_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Steps(Given):
        def __init__(self, returns: bool) -> None:
            super().__init__()
            self.automatic_optimization, self.returns = False, returns

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            self.optimizers().step()
            return loss if self.returns else None

    for returns in (True, False):
        hook = CheckInvalidLossHook(action="stop", spike=WINDOW)
        make_trainer(tmp_path, hook).fit(Steps(returns), loader(CALM))
        told = [line for line in caplog.messages if "training_step of Steps returns none" in line]
        assert len(told) == (not returns)


def test_the_message_names_the_loss_and_the_step(tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(interval=2, spike=WINDOW)
    with pytest.raises(InvalidLossError, match=r"the loss rose to 4 at iter 6 .* a spike"):
        fit(tmp_path, [*CALM, 4.0, 1.0, 1.0, 1.0], hook)


@pytest.mark.parametrize("action", ["restore", "stop"])
def test_a_spike_is_gone_back_from(
    tmp_path: Path, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hook = CheckInvalidLossHook(interval=2, action=action, spike=WINDOW)
    module = fit(tmp_path / "a", [*CALM, 40.0, 1.0, 1.1, 1.0], hook)
    # iterations 6 and 7 are undone; after a stop nothing comes
    kept = [*CALM, *([] if action == "stop" else [1.1, 1.0])]
    assert torch.equal(module.weight, fit(tmp_path / "b", kept, CheckInvalidLossHook()).weight)
    assert any("the loss rose to 40 at iter 6" in r.getMessage() for r in caplog.records)


def test_a_series_within_the_patience_is_no_spike(tmp_path: Path) -> None:
    losses = [*CALM, 4.0, 4.0, 1.0, 4.0, 1.0]
    fit(tmp_path, losses, CheckInvalidLossHook(interval=1, spike={**WINDOW, "patience": 3}))
    with pytest.raises(InvalidLossError, match="at iter 7"):
        fit(tmp_path, losses, CheckInvalidLossHook(interval=1, spike={**WINDOW, "patience": 2}))


FALSE_ALARMS: dict[str, Sequence[float]] = {
    "warm-up": [0.1, 5.0, 80.0, 3.0, 3.1, 3.0, 3.2, 3.0],
    "falling": [100 * 0.7**n for n in range(20)],
    "masked": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.1, 0.0, 1.0],
    "negative": [-1.0, -1.2, -0.9, -1.1, -0.1, -3.0, 0.5],
    "slow rise": [1.2**n for n in range(20)],
}


@pytest.mark.parametrize("losses", FALSE_ALARMS.values(), ids=FALSE_ALARMS)
def test_no_false_alarm(losses: Sequence[float], tmp_path: Path) -> None:
    fit(tmp_path, losses, CheckInvalidLossHook(interval=1, spike=WINDOW))
    spikes = Spikes(**WINDOW)
    judged = [spikes.judged(torch.tensor(loss)).item() for loss in losses]
    assert judged == pytest.approx(losses)


def test_a_bad_loss_in_the_first_window_is_no_known_loss() -> None:
    spikes = Spikes(**WINDOW)
    losses = [1.0, math.nan, math.inf, 1.0, 9.0, 1.0, 1.0, 1.1, 9.0]
    judged = [spikes.judged(torch.tensor(loss)).item() for loss in losses]
    # the first four to know are 1.0, 9.0, 1.0 and 1.0
    assert judged == pytest.approx([*losses[:8], math.inf], nan_ok=True)


def test_accumulated_batches_are_judged_each(tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(action="skip", spike=WINDOW)
    losses = [*CALM, 1.0, 9.0, 1.0, 1.1]
    spiked = fit(tmp_path / "a", losses, hook, accumulate_grad_batches=2)
    kept = [*CALM, 1.0, 1.1]
    plain = fit(tmp_path / "b", kept, CheckInvalidLossHook(), accumulate_grad_batches=2)
    assert torch.equal(spiked.weight, plain.weight)


def test_a_new_scale_of_the_gradient_scaler_is_no_spike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_factor=8.0, growth_interval=5)
    hook = CheckInvalidLossHook(action="skip", spike=WINDOW)
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    caplog.set_level(logging.WARNING)
    fit(tmp_path, [*CALM, *CALM, *CALM], hook, plugins=[precision])
    assert scaler.get_scale() > 8
    assert not [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()]


def test_the_median_is_numpys_and_is_not_read() -> None:
    draws = np.random.default_rng(0).lognormal(sigma=1.5, size=300).tolist()
    spikes, expected = Spikes(21, ratio=4.0), []
    losses = torch.tensor(draws)
    with NoReads():
        judged = [spikes.judged(loss) for loss in losses]
    known = [*losses.tolist()]
    window = known[:21]
    for step, loss in enumerate(known):
        is_spike = step >= 21 and loss > 4.0 * sorted(window)[10]
        if not is_spike:
            window[step % 21] = loss
        expected.append(math.inf if is_spike else loss)
    found = [value.item() for value in judged]
    assert found == expected
    assert math.inf in found


@pytest.mark.parametrize(
    ("spike", "message"),
    [
        (3.0, "spike must be a dict or None, got 3.0; write spike=dict"),
        ({"windows": 3}, "unknown key 'windows': did you mean 'window'"),
        ({"window": 1}, r"spike\['window'\] must be an int of at least 2"),
        ({"ratio": 1.0}, r"spike\['ratio'\] must be above 1"),
        ({"patience": 0}, r"spike\['patience'\] must be an int of at least 1"),
    ],
)
def test_bad_arguments(spike: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        CheckInvalidLossHook(spike=spike)
