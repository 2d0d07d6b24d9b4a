"""Statements of the documentation about Lightning, torch and W&B, tested with the libraries.

A test's docstring is the claim. ``make peers`` runs the tests about packages that ``make`` does not
install, in ``tests/peers``.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import lightning as L
import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from lightning.pytorch.profilers import PassThroughProfiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CyclicLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    StepLR,
)
from torch.optim.swa_utils import get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, DistributedSampler

import lightning_hooks
from lightning_hooks import CheckpointHook, EMAHook, OptimizerHook, TextLoggerHook
from lightning_hooks.engine.usage_errors import SAME_ELSEWHERE
from lightning_hooks.standin.name_table import mmcv_modules
from support.lightning_releases import ema_weight_averaging
from support.paths import ROOT, TESTS
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended", "ignore:Checkpoint directory"
)


def test_second_module() -> None:
    """Lightning's `EMAWeightAveraging` keeps a second module, copies both ways in every validation,
    and leaves the average in the model after an error there.
    """

    class Watched(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[torch.Tensor] = []

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.raw = self.net.weight.detach().clone()
            self.place = self.net.weight.data_ptr()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            assert self.net.weight.data_ptr() == self.place
            self.seen.append(self.net.weight.detach().clone())
            raise RuntimeError

    module, average = Watched(), ema_weight_averaging(decay=0.5)
    trainer = make_trainer(None, average, max_epochs=1, num_sanity_val_steps=0)
    with pytest.raises(RuntimeError):
        trainer.fit(module, make_loader(), make_loader(1))
    assert [type(child) for child in vars(average)["_average_model"].children()] == [Watched]
    assert not torch.equal(module.seen[0], module.raw)
    assert torch.equal(module.net.weight, module.seen[0])


def test_average_of_nan(tmp_path: Path) -> None:
    """A step to NaN makes its average NaN."""

    class Broken(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return super().training_step(batch, batch_idx) * (torch.nan if batch_idx == 3 else 1)

    ours, peer = EMAHook(momentum=0.1, warm_up=0), Broken()
    with pytest.warns(UserWarning, match="left 1 updates out"):
        fit(tmp_path, ours, module=Broken)
    fit(tmp_path, ema_weight_averaging(decay=0.5), module=peer)
    assert peer.net.weight.isnan().all()
    assert all(value.isfinite().all() for value in ours.ema_state_dict().values())


def test_old_curve() -> None:
    """torch's schedulers, which Lightning steps, count their calls, and a resume with another
    number of epochs goes on along the old curve.
    """

    def make(epochs: int) -> CosineAnnealingLR:
        return CosineAnnealingLR(torch.optim.SGD([torch.zeros(1)], lr=1.0), T_max=epochs)

    first, resumed = make(4), make(8)
    first.optimizer.step()
    first.step()
    resumed.load_state_dict(first.state_dict())
    resumed.optimizer.load_state_dict(first.optimizer.state_dict())
    assert resumed.T_max == 4
    for _ in range(3):
        resumed.optimizer.step()
        resumed.step()
    assert resumed.get_last_lr() == [0.0]


def test_momentum_with_the_rate() -> None:
    """torch's `OneCycleLR` and `CyclicLR` move the momentum against the rate."""
    for make in (lambda o: OneCycleLR(o, 1.0, total_steps=10), lambda o: CyclicLR(o, 0.1, 1.0, 4)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)
        scheduler, seen = make(optimizer), []
        for _ in range(3):
            seen.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
            optimizer.step()
            scheduler.step()
        assert seen == sorted(seen)
        assert [m for _, m in seen] == sorted((m for _, m in seen), reverse=True)


def test_remainder_of_an_epoch() -> None:
    """Lightning's `accumulate_grad_batches` divides each epoch's remainder by $c$: with 5 batches
    and $c=3$ its last step of every epoch is two thirds of what it should be.
    """

    class Constant(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[float] = []

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net.bias.sum()

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.sizes.append(self.net.bias.grad[0].item())

    module = Constant()
    trainer = make_trainer(None, max_epochs=2, accumulate_grad_batches=3)
    trainer.fit(module, make_loader(5))
    assert module.sizes == pytest.approx([1, 2 / 3, 1, 2 / 3])


def test_best_and_last_after_a_resume(tmp_path: Path) -> None:
    """Lightning's `ModelCheckpoint` keeps the best `save_top_k` and the last one, and knows its
    files after a resume.
    """

    class Falling(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("score", abs(self.current_epoch - 1.2))

    def run(epochs: int, **given: Any) -> ModelCheckpoint:
        saver = ModelCheckpoint(tmp_path, monitor="score", save_top_k=2, save_last=True)
        trainer = make_trainer(
            tmp_path, saver, max_epochs=epochs, num_sanity_val_steps=0, enable_checkpointing=True
        )
        trainer.fit(Falling(), make_loader(2), make_loader(1), **given)
        return saver

    def epochs_of(files: Any) -> list[str]:
        return sorted(re.sub(r"-step.*", "", Path(file).name) for file in files)

    run(2)
    assert epochs_of(tmp_path.glob("*.ckpt")) == ["epoch=0", "epoch=1", "last.ckpt"]
    saver = run(4, ckpt_path=tmp_path / "last.ckpt")
    assert epochs_of(saver.best_k_models) == ["epoch=1", "epoch=2"]
    assert epochs_of(tmp_path.glob("*.ckpt")) == ["epoch=1", "epoch=2", "last.ckpt"]


def test_damaged_last_file(tmp_path: Path) -> None:
    """Of a damaged last file its `ckpt_path="last"` ends with an error, where `CheckpointHook`'s
    goes on from the file before.
    """
    folders = [tmp_path / "peer", tmp_path / "ours"]
    savers = [
        ModelCheckpoint(folders[0], save_last=True),
        CheckpointHook(interval=1, out_dir=str(folders[1])),
    ]
    for folder, saver in zip(folders, savers, strict=True):
        fit(folder, saver, module=NoValidation, batches=2, max_epochs=2)
    newest = [folders[0] / "last.ckpt", next(folders[1].rglob("epoch_2.pth"))]
    for file in newest:
        file.write_bytes(file.read_bytes()[:-300])
    again: dict[str, Any] = {"module": NoValidation, "batches": 2, "ckpt_path": "last"}
    with pytest.raises((OSError, RuntimeError)):
        fit(folders[0], ModelCheckpoint(folders[0], save_last=True), max_epochs=3, **again)
    hook = CheckpointHook(interval=1, out_dir=str(folders[1]))
    with pytest.warns(UserWarning, match="epoch_2"):
        trainer = fit(folders[1], hook, max_epochs=3, **again)
    assert trainer.current_epoch == 3


def test_no_score_before_the_first_step() -> None:
    """Lightning keeps no value of its sanity check, validates after the last epoch only if
    `check_val_every_n_epoch` divides its number, and has one interval for the whole run.
    """

    class Counts(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.before: list[Any] = []
            self.validated: list[int] = []

        def on_train_start(self) -> None:
            self.before.append(dict(self.trainer.callback_metrics))

        def on_validation_end(self) -> None:
            if not self.trainer.sanity_checking:
                self.validated.append(self.current_epoch)

    module = Counts()
    trainer = make_trainer(None, max_epochs=3, check_val_every_n_epoch=2, num_sanity_val_steps=1)
    trainer.fit(module, make_loader(2), make_loader(1))
    assert module.before == [{}]
    assert module.validated == [1]
    assert trainer.check_val_every_n_epoch == 2


def test_where_lightning_looks_for_nan(tmp_path: Path) -> None:
    """Lightning's `detect_anomaly` looks at the gradients alone, and its
    `EarlyStopping(check_finite=True)` looks once an epoch.
    """

    class Infinite(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx) * 0 + torch.inf
            self.log("loss", loss)
            return loss

    module = Infinite()
    stop = EarlyStopping("loss", check_finite=True, check_on_train_epoch_end=True)
    fit(tmp_path, stop, module=module, max_epochs=2, detect_anomaly=True)
    assert module.trainer.global_step == 4  # all of an epoch
    assert module.trainer.current_epoch == 1


def test_profiled_works() -> None:
    """Lightning's `PyTorchProfiler` profiles validations and tests too, `ProfilerHook` the training
    alone.
    """
    assert {"validation_step", "test_step"} < PyTorchProfiler.STEP_FUNCTIONS


def test_seeded_samplers() -> None:
    """Lightning seeds samplers itself: `DistSamplerSeedHook` is for old configs only."""
    data = make_loader(4).dataset
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=1, rank=0)
    trainer = make_trainer(None, max_epochs=3)
    trainer.fit(NoValidation(), DataLoader(data, 2, sampler=sampler))
    assert sampler.epoch == 2


def test_timer_and_profiler() -> None:
    """Lightning's `Timer` ends a run, and its `SimpleProfiler` prints totals of its own calls when
    the fit is over.
    """
    module, profiler = NoValidation(), SimpleProfiler()
    trainer = make_trainer(
        None, Timer({"milliseconds": 1}, interval="epoch"), profiler=profiler, max_epochs=5
    )
    trainer.fit(module, make_loader(2))
    assert trainer.current_epoch == 1
    assert "run_training_batch" in profiler.summary()


def test_watched_gradients() -> None:
    """`wandb.watch` puts a hook on each gradient, which is called in every backward pass; here
    nothing is, and other trackers have the histograms too.
    """
    watching = pytest.importorskip("wandb.integration.torch.wandb_torch")
    net = torch.nn.Linear(2, 2)
    watching.TorchHistory().add_log_gradients_hook(net)  # as wandb.watch() does
    assert all(parameter._backward_hooks for parameter in net.parameters())


def test_variance_between_batches() -> None:
    """`torch.optim.swa_utils.update_bn(loader, averaged_model)` does this once, where you call it,
    and leaves out the variance between batches.
    """
    norm = torch.nn.BatchNorm1d(1)
    batches = [torch.tensor([[0.0], [2.0]]), torch.tensor([[10.0], [12.0]])]
    update_bn(batches, norm)
    assert norm.running_mean.item() == pytest.approx(6.0)
    assert norm.running_var.item() == pytest.approx(2.0)  # of all four it is 26


def test_decay() -> None:
    """The decay of timm and torch is $1 - m$, so a decay of 0.999 is `EMAHook(momentum=0.001)`."""
    average, model = [torch.zeros(1)], [torch.ones(1)]
    get_ema_multi_avg_fn(0.999)(average, model, torch.tensor(1))
    assert average[0].item() == pytest.approx(0.001)


def test_sharded_on_a_cpu() -> None:
    """Lightning refuses `FSDPStrategy` without a GPU."""
    with pytest.raises(ValueError, match="`fsdp` requires a GPU"):
        make_trainer(None, strategy="fsdp", accelerator="cpu")


def test_clipped_without_a_line(tmp_path: Path) -> None:
    """`Trainer(gradient_clip_val=...)` logs no norm; here each clipping logs `grad_norm`."""
    ours = OptimizerHook(grad_clip={"max_norm": 0.1})
    logged = fit(tmp_path, ours, TextLoggerHook(interval=1), module=NoValidation).callback_metrics
    assert "grad_norm" in logged
    trainer = make_trainer(None, max_epochs=1, gradient_clip_val=0.1)
    trainer.fit(NoValidation(), make_loader(2))
    assert [*trainer.callback_metrics] == ["train_loss"]


def test_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be reached stops a run with `MLFlowLogger`."""
    exceptions = pytest.importorskip("mlflow.exceptions")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    logger = MLFlowLogger(tracking_uri="http://127.0.0.1:9")
    with pytest.raises(exceptions.MlflowException):
        make_trainer(None, logger=logger, max_epochs=1).fit(NoValidation(), make_loader(2))


def test_recorded_schedules() -> None:
    """The numbers are mmcv's to the last bit (600 recorded configurations)."""
    cases = json.loads((TESTS / "golden" / "schedules.json").read_text())
    assert len(cases["cases"]) >= 600


def test_events_of_a_step() -> None:
    """Lightning calls every event of every callback in every batch, unless it is None; its default
    profiler records nothing, but enters a generator at about twenty places of a step.
    """

    class Counts(PassThroughProfiler):
        def __init__(self) -> None:
            super().__init__()
            self.entered: list[str] = []

        @contextmanager
        def profile(self, action_name: str) -> Iterator[None]:
            self.entered.append(action_name)
            yield

    def entered(batches: int, callback: Callback) -> list[str]:
        profiler = Counts()
        make_trainer(None, callback, max_epochs=1, profiler=profiler).fit(
            NoValidation(), make_loader(batches)
        )
        return profiler.entered

    idle, muted = Callback(), Callback()
    muted.on_before_backward = None  # type: ignore[assignment, method-assign]
    step = len(entered(4, idle)) - len(entered(3, idle))
    assert 15 < step < 30
    assert entered(3, idle).count("[Callback]Callback.on_before_backward") == 3
    assert not any("Callback.on_before_backward" in name for name in entered(3, muted))


def test_rate_in_the_log() -> None:
    """`LearningRateMonitor` needs a logger of the Trainer's."""
    with pytest.raises(MisconfigurationException, match="has no logger"):
        make_trainer(None, LearningRateMonitor(), logger=False).fit(NoValidation(), make_loader(1))


def test_second_module_of_swa() -> None:
    """Lightning's `StochasticWeightAveraging` keeps a second module."""
    average = StochasticWeightAveraging(0.1, swa_epoch_start=1)
    make_trainer(None, average, max_epochs=2).fit(NoValidation(), make_loader(2))
    assert type(vars(average)["_average_model"]) is NoValidation


def test_file_with_another_bit(tmp_path: Path) -> None:
    """Lightning's own way of writing makes the file in a temporary directory and moves it, and
    reads a file with a flipped bit.
    """
    path, io = tmp_path / "a.ckpt", TorchCheckpointIO()
    with mock.patch("shutil.move", side_effect=shutil.move) as moved:
        io.save_checkpoint({"weight": torch.zeros(1000)}, path)
    ((source, target), _) = moved.call_args
    assert Path(target) == path
    assert Path(source).parent != tmp_path
    content = bytearray(path.read_bytes())
    content[content.index(bytes(3000)) + 1000] ^= 1
    path.write_bytes(content)
    assert io.load_checkpoint(path)["weight"].any()


class MyHook:
    """A hook of mmcv's form."""

    def after_train_iter(self, runner: Any) -> None: ...


class WithState(Callback):
    def state_dict(self) -> dict[str, Any]:
        return {"a": 1}


class TrainStep(torch.nn.Linear):
    def train_step(self, data: Any, optimizer: Any) -> None: ...


@pytest.mark.parametrize(
    ("row", "module", "callbacks", "given"),
    [
        (0, NoValidation, lambda: [MyHook()], {}),
        (1, NoValidation, lambda: [[EMAHook()]], {}),
        (3, NoValidation, MyHook, {}),
        (4, NoValidation, lambda: [WithState(), WithState()], {}),
        (5, NoValidation, lambda: [CheckpointHook(1)], {"enable_checkpointing": False}),
        (6, lambda: TrainStep(1, 1), lambda: [EMAHook()], {}),
    ],
)
def test_errors_before_any_hook(
    row: int, module: Any, callbacks: Any, given: dict[str, Any], tmp_path: Path
) -> None:
    """The errors that Lightning raises before any hook runs."""
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    table = page.partition("| Lightning's error |")[2]
    error = table.splitlines()[2 + row].split("`")[1]
    options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": True, **given}
    with pytest.raises(Exception, match=r"\w") as raised:
        L.Trainer(callbacks=callbacks(), default_root_dir=tmp_path, **options).fit(
            module(), make_loader(1)
        )
    assert error in str(raised.value).replace("`", "")


def test_hooks_of_our_own() -> None:
    """mmcv has no such hook."""
    theirs = {name for module in mmcv_modules().values() for name in module.own}
    hooks = [name for name in lightning_hooks.__all__ if name.endswith("Hook")]
    texts = {name: inspect.getdoc(getattr(lightning_hooks, name)) or "" for name in hooks}
    ours = {name for name, text in texts.items() if "mmcv has no such" in text}
    assert ours
    assert not ours & theirs
    assert "EMAHook" in theirs


def test_arguments_elsewhere() -> None:
    """Arguments of Lightning and torch, with those for the same here; others in tests/peers."""
    made = [
        L.Trainer,
        ModelCheckpoint,
        type(ema_weight_averaging()),
        WandbLogger,
        MLFlowLogger,
        StepLR,
    ]
    made += [CosineAnnealingLR, MultiStepLR, LinearLR, torch.nn.utils.clip_grad_norm_]
    theirs = {name for each in made for name in inspect.signature(each).parameters}
    named = {name for names in SAME_ELSEWHERE.values() for name in names.split()}
    assert len(named & theirs) > 0.4 * len(named)
