"""CheckInvalidLossHook(action="skip"): a bad batch has no effect, with any optimizer."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    ClosureHook,
    EMAHook,
    GradientCumulativeOptimizerHook,
    HookAdapter,
    InvalidLossError,
    OptimizerHook,
    TextLoggerHook,
)
from lightning_hooks.standin.runner.epoch_based_runner import EpochBasedRunner
from support.torture.bad_batches import (
    GRADIENTS,
    INPUT,
    LOSS,
    BadModule,
    NormModel,
    batches,
    loader,
    norm_module,
    train_step_module,
)
from support.training import NoValidation, make_loader, make_trainer

OPTIM = torch.optim
OPTIMIZERS = {
    "sgd": partial(OPTIM.SGD, lr=0.1, weight_decay=0.1),
    "sgd-momentum": partial(OPTIM.SGD, lr=0.1, momentum=0.9),
    "sgd-fused": partial(OPTIM.SGD, lr=0.1, fused=True),
    "sgd-momentum-fused": partial(OPTIM.SGD, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "sgd-dampening-fused": partial(OPTIM.SGD, lr=0.1, momentum=0.9, dampening=0.5, fused=True),
    "adam": partial(OPTIM.Adam, lr=0.1),
    "adam-fused": partial(OPTIM.Adam, lr=0.1, fused=True),
    "adamw-amsgrad-fused": partial(OPTIM.AdamW, lr=0.1, amsgrad=True, fused=True),
    "adagrad-fused": partial(OPTIM.Adagrad, lr=0.1, fused=True),
    "rmsprop": partial(OPTIM.RMSprop, lr=0.01, momentum=0.9),
    "nadam": partial(OPTIM.NAdam, lr=0.01),
}


def trained(tmp_path: Path, make: Any, made: list[Any], *hooks: Any, **kwargs: Any) -> Any:
    """Fit a module; return the module's state dict and the optimizer's state."""
    trainer = make_trainer(tmp_path, HookAdapter(list(hooks)), **kwargs)
    module = make()
    trainer.fit(module, loader(made))
    return module.state_dict(), trainer.optimizers[0].state_dict()["state"]


def assert_equal(one: Any, other: Any) -> None:
    """Assert that weights and optimizer states are bit-equal."""
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=0)
    torch.testing.assert_close(one[1], other[1], rtol=0, atol=0)


def without(made: list[Any], *bad: int) -> list[Any]:
    return [batch for index, batch in enumerate(made) if index not in bad]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, INPUT) for name in OPTIMIZERS),
        *((name, kind) for name in ("adam", "sgd-momentum-fused") for kind in (LOSS, GRADIENTS)),
    ],
)
def test_as_if_the_bad_batches_had_not_been_there(name: str, kind: float, tmp_path: Path) -> None:
    make = partial(norm_module, OPTIMIZERS[name])
    made = batches(7, dict.fromkeys((0, 3, 4), kind))
    hook = CheckInvalidLossHook(interval=4, action="skip")
    assert_equal(
        trained(tmp_path, make, made, hook),
        trained(tmp_path, make, without(made, 0, 3, 4)),
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "norm"},
    ],
    ids=["value", "norm"],
)
def test_a_skipped_step_is_not_clipped(kwargs: dict[str, Any], tmp_path: Path) -> None:
    made = batches(4, {0: INPUT, 2: INPUT})
    hook = CheckInvalidLossHook(interval=4, action="skip")
    for name in ("adam", "sgd-momentum-fused"):
        make = partial(norm_module, OPTIMIZERS[name])
        assert_equal(
            trained(tmp_path, make, made, hook, **kwargs),
            trained(tmp_path, make, without(made, 0, 2), **kwargs),
        )


def test_skips_in_float64_where_a_hook_steps(tmp_path: Path) -> None:
    make = partial(norm_module, OPTIMIZERS["adam"])
    made = batches(4, {0: INPUT, 2: INPUT})
    skip = CheckInvalidLossHook(interval=4, action="skip")
    run = partial(trained, tmp_path, make, precision="64-true")
    step = GradientCumulativeOptimizerHook(cumulative_iters=1)
    assert_equal(run(made, skip, step), run(without(made, 0, 2), step))


def test_a_first_step_of_fused_sgd_that_is_skipped_leaves_zeroed_momentum(tmp_path: Path) -> None:
    make = partial(norm_module, OPTIMIZERS["sgd-momentum-fused"])
    hook = CheckInvalidLossHook(action="skip")
    _, state = trained(tmp_path, make, batches(1, {0: INPUT}), hook)
    buffers = [one["momentum_buffer"] for one in state.values()]
    assert buffers
    assert all((buffer == 0).all() for buffer in buffers)


@pytest.mark.parametrize(("fused", "kind"), [(False, LOSS), (True, GRADIENTS), (True, INPUT)])
def test_with_an_optimizer_hook_that_owns_backward(
    kind: float, fused: bool, tmp_path: Path
) -> None:
    make = partial(train_step_module, OPTIMIZERS["adam-fused" if fused else "adam"])
    made = batches(5, {0: kind, 3: kind})
    owner = partial(OptimizerHook, grad_clip={"max_norm": 1.0})
    hook = CheckInvalidLossHook(interval=2, action="skip")
    assert_equal(
        trained(tmp_path, make, made, owner(), hook),
        trained(tmp_path, make, without(made, 0, 3), owner()),
    )


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [GRADIENTS, INPUT])
@pytest.mark.parametrize("owner", ["lightning", "hook"])
def test_a_step_of_accumulated_batches_goes_as_a_whole(
    owner: str, kind: float, fused: bool, tmp_path: Path
) -> None:
    make = partial(norm_module, OPTIMIZERS["adam-fused" if fused else "adam"])
    made = batches(8, {2: kind})
    hooks: list[Any] = []
    kwargs = {"accumulate_grad_batches": 2}
    if owner == "hook":
        hooks, kwargs = [GradientCumulativeOptimizerHook(cumulative_iters=2)], {}
    hook = CheckInvalidLossHook(interval=3, action="skip")
    assert_equal(
        trained(tmp_path, make, made, *hooks, hook, **kwargs),
        trained(tmp_path, make, without(made, 2, 3), *hooks, **kwargs),
    )


def test_with_clipping_by_lightning_and_by_a_hook(tmp_path: Path) -> None:
    make = partial(norm_module, OPTIMIZERS["sgd-momentum"])
    made = batches(5, {1: INPUT})
    skip = partial(CheckInvalidLossHook, action="skip")
    by_lightning = {"gradient_clip_val": 0.5}
    assert_equal(
        trained(tmp_path, make, made, skip(), **by_lightning),
        trained(tmp_path, make, without(made, 1), **by_lightning),
    )
    clip = partial(OptimizerHook, grad_clip={"max_norm": 0.5})
    for hooks in ([clip(), skip()], [skip(), clip()]):
        assert_equal(
            trained(tmp_path, make, made, *hooks),
            trained(tmp_path, make, without(made, 1), clip()),
        )


def test_counted_in_iterations_over_several_epochs(tmp_path: Path) -> None:
    def fit(made: list[Any], *hooks: Any) -> Any:
        adapter = HookAdapter(list(hooks), by_epoch=False)
        trainer = make_trainer(tmp_path, adapter, max_steps=2 * len(made))
        module = norm_module(OPTIMIZERS["adam-fused"])
        trainer.fit(module, loader(made))
        return module.state_dict(), trainer.optimizers[0].state_dict()["state"]

    made = batches(5, {2: INPUT})
    hook = CheckInvalidLossHook(interval=4, action="skip")
    assert_equal(fit(made, hook), fit(without(made, 2)))


@pytest.mark.parametrize("is_late", [False, True])
def test_modules_that_step_several_optimizers_themselves(is_late: bool, tmp_path: Path) -> None:
    class Two(BadModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.other = torch.nn.Linear(4, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            for optimizer, net in zip(self.optimizers(), (self.net, self.other), strict=True):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(net(batch[0]), batch[1])
                self.manual_backward(loss)
                optimizer.step()
            if is_late:  # not of the next batch
                self.log("loss_of_other", loss)
            return {"loss": loss, "other_loss": loss} if is_late else loss

        def configure_optimizers(self) -> Any:
            return [
                torch.optim.Adam(self.net.parameters(), fused=True),
                torch.optim.Adam(self.other.parameters()),
            ]

    made = batches(4, {1: INPUT})
    torch.manual_seed(0)
    one = trained(tmp_path, Two, made, CheckInvalidLossHook(action="skip"))
    torch.manual_seed(0)
    assert_equal(one, trained(tmp_path, Two, without(made, 1)))


def test_a_loss_logged_after_its_step_is_not_of_the_next_batch(tmp_path: Path) -> None:
    class AtEnd(BadModule):
        def on_train_batch_end(self, outputs: Any, *args: Any) -> None:
            self.log("loss_at_end", outputs["loss"])

    made = batches(4, {1: INPUT})
    torch.manual_seed(0)
    one = trained(tmp_path, AtEnd, made, CheckInvalidLossHook(action="skip"))
    torch.manual_seed(0)
    assert_equal(one, trained(tmp_path, AtEnd, without(made, 1)))


@pytest.mark.parametrize("fused", [False, True])
def test_beside_a_gradient_scaler_which_judges_gradients(fused: bool, tmp_path: Path) -> None:
    def fit(made: list[Any], *hooks: Any) -> Any:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
        plugins = [MixedPrecision("16-mixed", "cpu", scaler=scaler)]
        return trained(tmp_path, make, made, *hooks, plugins=plugins), scaler.get_scale()

    make = partial(norm_module, OPTIMIZERS["adam-fused" if fused else "adam"])
    made = batches(6, {1: LOSS, 3: INPUT})
    hook = CheckInvalidLossHook(action="skip", interval=2)
    (one, scale), (other, _) = fit(made, hook), fit(without(made, 1, 3))
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)  # the scales differ
    assert scale < 1024  # the scaler has seen the bad gradients of one batch
    (state, _), scale = fit(batches(4, {2: GRADIENTS}), hook)
    assert scale == 512
    assert all(torch.isfinite(value).all() for value in state.values())


def test_an_average_is_not_spoilt(tmp_path: Path) -> None:
    ema, hook = EMAHook(momentum=0.5, warm_up=0), CheckInvalidLossHook(action="skip")
    trained(tmp_path, norm_module, batches(6, {1: INPUT, 4: GRADIENTS}), ema, hook)
    average = ema.ema_state_dict()
    assert all(torch.isfinite(value).all() for value in average.values())


@pytest.mark.parametrize("fused", [False, True])
def test_too_many_in_a_row_raise(fused: bool, tmp_path: Path) -> None:
    make = partial(norm_module, OPTIMIZERS["adam-fused" if fused else "adam"])
    bad = dict.fromkeys((1, 2, 4, 5, 6, 7), LOSS)
    hook = CheckInvalidLossHook(interval=3, action="skip", max_skips=3)
    with pytest.raises(InvalidLossError, match=r"max_skips=3: 4 .* from iter 4 to iter 7"):
        trained(tmp_path, make, batches(12, bad), hook)
    del bad[7]
    trained(tmp_path, make, batches(12, bad), hook)


def test_says_which_were_skipped_and_logs_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = batches(8, {1: LOSS, 6: GRADIENTS})
    hooks = CheckInvalidLossHook(interval=4, action="skip"), TextLoggerHook(interval=4)
    with caplog.at_level(logging.INFO):
        trained(tmp_path, norm_module, made, *hooks)
    text = caplog.text
    assert "skipped the optimizer steps of iters 1\nthe loss became nan at iter 1 " in text
    assert "iters 6\ntheir losses were finite, their gradients were not" in text
    assert "skipped 2 of 8 optimizer steps: those of iters 1, 6" in text
    assert "skipped_steps: 1.0000" in text
    assert "skipped_steps: 2.0000" in text
    assert "Epoch(val)" not in text


def train_lines(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("*.log.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if line.get("mode") == "train"]


@pytest.mark.parametrize("name", ["adam-fused", "sgd"])
@pytest.mark.parametrize("reading", [1, 50])
def test_the_log_has_no_nan_and_counts_on_the_line_of_the_step(
    name: str, reading: int, tmp_path: Path
) -> None:
    made = batches(12, {1: LOSS, 6: LOSS, 7: LOSS, 8: LOSS, 9: GRADIENTS})
    hooks = CheckInvalidLossHook(interval=reading, action="skip"), TextLoggerHook(interval=3)
    trained(tmp_path, partial(norm_module, OPTIMIZERS[name]), made, *hooks)
    lines = train_lines(tmp_path)
    assert [line.get("skipped_steps") for line in lines] == [1, 1, 4, 5]
    assert [math.isfinite(line.get("loss", math.inf)) for line in lines] == [
        True,
        True,
        False,
        True,
    ]
    assert "loss" not in lines[2], "each of its steps was skipped"

    clean = tmp_path / "clean"
    trained(clean, partial(norm_module, OPTIMIZERS[name]), [made[0], made[2]], hooks[1])
    (line,) = train_lines(clean)
    assert line["loss"] == lines[0]["loss"], "the average of the steps made"


def test_the_log_within_the_batches_of_a_skipped_step_has_no_nan(tmp_path: Path) -> None:
    made = batches(8, {1: LOSS})
    hooks = CheckInvalidLossHook(action="skip"), TextLoggerHook(interval=2)
    trained(tmp_path, BadModule, made, *hooks, accumulate_grad_batches=4)
    lines = train_lines(tmp_path)
    assert all(math.isfinite(line["loss"]) for line in lines)
    assert [line.get("skipped_steps") for line in lines] == [None, 1, 1, 1]


def test_the_log_of_an_old_runner_has_no_nan(tmp_path: Path) -> None:
    model = NormModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logger = logging.getLogger("old runner")
    runner = EpochBasedRunner(
        model, optimizer=optimizer, work_dir=str(tmp_path), logger=logger, max_epochs=1
    )
    log = {"interval": 2, "hooks": [{"type": "TextLoggerHook"}]}
    runner.register_training_hooks({"policy": "fixed"}, {"grad_clip": None}, None, log)
    runner.register_hook(CheckInvalidLossHook(action="skip"))
    runner.run([loader(batches(6, {3: LOSS}))], [("train", 1)])
    lines = train_lines(tmp_path)
    assert all(math.isfinite(line["loss"]) for line in lines)
    assert [line.get("skipped_steps") for line in lines] == [None, 1, 1]


@pytest.mark.parametrize("every", [4, 100])  # 100: the file is the interrupt's, without a reading
def test_a_resumed_run_goes_on_counting(
    every: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(runner: Any) -> None:
        if runner.iter == 4:
            raise KeyboardInterrupt

    made = batches(8, {1: LOSS, 3: LOSS, 6: LOSS})
    cut = ClosureHook("before_train_iter", interrupt)
    for ckpt, hooks in ((None, [cut]), ("last", [])):
        keep = CheckpointHook(every, by_epoch=False, on_exception=True)
        hooks += [CheckInvalidLossHook(action="skip"), TextLoggerHook(interval=1), keep]
        trainer = make_trainer(tmp_path, *hooks, enable_checkpointing=True)
        with contextlib.suppress(SystemExit):
            trainer.fit(norm_module(OPTIMIZERS["sgd"]), loader(made), ckpt_path=ckpt)
    counts = [line.get("skipped_steps") for line in train_lines(tmp_path)]
    assert counts == [None, 1, 1, 2, 2, 2, 3, 3]
    assert "skipped 3 of 8 optimizer steps: those of iters 1, 3, 6" in caplog.text


@pytest.mark.parametrize(("name", "per_step"), [("adam-fused", 0), ("sgd", 1)])
def test_reads_of_the_device(
    name: str, per_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    for method in ("item", "tolist", "__float__", "__bool__", "__int__"):
        own = getattr(torch.Tensor, method)

        def counting(tensor: Any, *args: Any, own: Any = own, method: str = method) -> Any:
            reads.append(method)
            return own(tensor, *args)

        monkeypatch.setattr(torch.Tensor, method, counting)

    class Quiet(BadModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def count(*hooks: Any) -> int:
        reads.clear()
        make_trainer(tmp_path, *hooks).fit(Quiet(OPTIMIZERS[name]), loader(batches(12)))
        return len(reads)

    hook = CheckInvalidLossHook(interval=4, action="skip")
    # weights before the run, 3 intervals, the epoch's averages for Lightning's callbacks, weights
    # once at the end, and at most once in each of 12 steps
    assert count(hook) - count() == 1 + 3 + 1 + 1 + 12 * per_step


def test_optimizers_are_left_as_they_were(tmp_path: Path) -> None:
    class Breaking(BadModule):
        def on_train_batch_end(self, *args: Any) -> None:
            raise KeyError("mine")

    for module, error in ((BadModule(OPTIMIZERS["adam-fused"]), None), (Breaking(), KeyError)):
        trainer = make_trainer(tmp_path, CheckInvalidLossHook(action="skip"))
        if error is None:
            trainer.fit(module, loader(batches(2)))
        else:
            with pytest.raises(error):
                trainer.fit(module, loader(batches(2)))
        optimizer = trainer.optimizers[0]
        assert not {"found_inf", "grad_scale"} & set(vars(optimizer))
        assert not optimizer._optimizer_step_post_hooks
        assert "save_checkpoint" not in vars(trainer)


def test_lbfgs_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(action="skip"))
    with pytest.raises(ValueError, match="does not work with LBFGS"):
        trainer.fit(BadModule(torch.optim.LBFGS), loader(batches(1)))


@pytest.mark.parametrize("way", ["returned", "logged"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_bad_component_of_a_good_loss_skips_the_step(
    way: str, accumulated: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Parts(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.at_start.append(self.net.weight.detach().clone())
            loss = self.loss(batch)
            part = torch.tensor(float("nan") if batch_idx == 2 else 1.0)
            if way == "returned":
                return {"loss": loss, "loss_cls": part}
            self.log("loss_cls", part)
            return loss

    module = Parts()
    module.at_start = []
    hook = CheckInvalidLossHook(interval=1, action="skip")
    trainer = make_trainer(tmp_path, hook, accumulate_grad_batches=accumulated)
    trainer.fit(module, make_loader(6))
    assert "not finite: loss_cls=nan" in caplog.text
    weights = [*module.at_start, module.net.weight]
    begins, ends = {1: (2, 3), 2: (2, 4)}[accumulated]
    assert torch.equal(weights[begins], weights[ends])
    assert not torch.equal(weights[4], weights[6])


def test_gradients_that_go_bad_in_the_last_step_are_named(tmp_path: Path) -> None:
    class BadGradients(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            if batch_idx == 3:
                loss.register_hook(lambda gradient: gradient * torch.nan)
            return loss

    hook = CheckInvalidLossHook(interval=1)
    with pytest.raises(InvalidLossError, match="which was finite: gradients were not"):
        make_trainer(tmp_path, hook).fit(BadGradients(), make_loader(4))
