"""Beginners' mistakes: each error comes before the first step and says what to write."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.rank_zero import WarningCache
from torch.utils.data import DataLoader, IterableDataset

import lightning_hooks
from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    CosineRestartLrUpdaterHook,
    EMAHook,
    EvalHook,
    FieldUpdaterHook,
    Fp16OptimizerHook,
    FreezeHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    OneCycleLrUpdaterHook,
    OptimizerHook,
    PhasesLrUpdaterHook,
    PreciseBNHook,
    ScheduleFreeHook,
    StepLrUpdaterHook,
    TextLoggerHook,
    ThroughputHook,
    TimeLimitHook,
    WandbLoggerHook,
    WatchHook,
    WSDLrUpdaterHook,
    average_checkpoints,
    best_checkpoint,
    last_checkpoint,
    param_groups,
    register_training_hooks,
)
from support.lightning_releases import ema_weight_averaging
from support.training import NoValidation, TinyModule, make_loader, make_trainer


def cosine(**arguments: Any) -> CosineAnnealingLrUpdaterHook:
    return CosineAnnealingLrUpdaterHook(**{"min_lr": 0, "by_epoch": False, **arguments})


MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "a misspelt hook": (lambda: lightning_hooks.EMAHok, "did you mean 'EMAHook'"),
    "a list in the list": (lambda: HookAdapter([[EMAHook()]]), "HookAdapter([*hooks])"),
    "a schedule's config for a hook's": (
        lambda: HookAdapter(dict(policy="cosine", min_lr=0)),
        "write register_training_hooks(lr_config=...)",
    ),
    "a misspelt type": (lambda: HookAdapter([dict(type="EmaHok")]), "did you mean 'EMAHook'"),
    "no minimum": (CosineAnnealingLrUpdaterHook, "give either min_lr or min_lr_ratio"),
    "a warm-up that is none": (
        lambda: cosine(warmup=True, warmup_iters=5),
        'warmup must be None, "constant", "linear" or "exp"',
    ),
    "a warm-up without length": (lambda: cosine(warmup="linear"), "warmup_iters must be an int of"),
    "a path as the interval": (
        lambda: CheckpointHook("checkpoints"),  # type: ignore[arg-type]
        "write CheckpointHook(out_dir='checkpoints')",
    ),
    "an interval first": (
        lambda: TextLoggerHook(50),  # type: ignore[arg-type]
        "the first argument of TextLoggerHook is by_epoch, got 50; write "
        "TextLoggerHook(interval=50)",
    ),
    "a score first": (
        lambda: EvalHook("accuracy"),  # type: ignore[arg-type]
        "write EvalHook(save_best='accuracy')",
    ),
    "half an epoch": (
        lambda: CheckpointHook(interval=0.5),  # type: ignore[arg-type]
        "interval must be an int, got 0.5",
    ),
    "never": (lambda: CheckpointHook(interval=0), "at least 1, or -1 for no limit, got 0"),
    "which is better": (
        lambda: BestCheckpointHook("score"),
        "must be specified: rule='greater' or rule='less'",
    ),
    "a rule of Lightning's": (
        lambda: BestCheckpointHook("accuracy", rule="max"),
        "rule must be greater, less or None, but got 'max'. Write greater.",
    ),
    "a number to clip at": (
        lambda: OptimizerHook(grad_clip=1.0),  # type: ignore[arg-type]
        "write dict(max_norm=1.0)",
    ),
    "a module first": (
        lambda: EMAHook(torch.nn.Linear(1, 1)),  # type: ignore[arg-type]
        "EMAHook takes no Linear: it works on the Trainer's; its first argument is momentum",
    ),
    "an optimizer first": (
        lambda: StepLrUpdaterHook(torch.optim.SGD([torch.ones(1)]), 3),  # type: ignore[arg-type]
        "StepLrUpdaterHook takes no SGD: it works on the Trainer's; its first argument is step",
    ),
    "a folder first": (
        lambda: TextLoggerHook("logs"),  # type: ignore[arg-type]
        "write TextLoggerHook(out_dir='logs')",
    ),
    "an action first": (
        lambda: CheckInvalidLossHook("skip"),  # type: ignore[arg-type]
        "write CheckInvalidLossHook(action='skip')",
    ),
    "a misspelt action": (
        lambda: CheckInvalidLossHook(action="skipp"),
        "must be one of ['raise', 'stop', 'skip', 'restore']",
    ),
    "a project first": (
        lambda: WandbLoggerHook("digits"),  # type: ignore[arg-type]
        "write WandbLoggerHook(project='digits')",
    ),
    "an exponent in YAML": (
        lambda: EMAHook(momentum="1e-4"),  # type: ignore[arg-type]
        "write 1.0e-4",
    ),
    "one phase": (
        lambda: PhasesLrUpdaterHook(dict(policy="fixed")),  # type: ignore[arg-type]
        'write [dict(policy="fixed", length=0.5), ...]',
    ),
    "a phase with epochs": (
        lambda: PhasesLrUpdaterHook([dict(policy="fixed", epochs=4), dict(policy="fixed")]),
        "phases[0] needs the key \"length\", got {'policy': 'fixed', 'epochs': 4}",
    ),
    "a constant phase": (
        lambda: PhasesLrUpdaterHook([dict(policy="ConstantLR")]),
        "did you mean 'Fixed'?",
    ),
    "percent": (lambda: WSDLrUpdaterHook(decay=20.0), "share of the run must be in (0, 1]"),
    "what to watch first": (
        lambda: WatchHook("norms"),  # type: ignore[arg-type]
        "write WatchHook(log='norms')",
    ),
    "the moments of no norms": (
        lambda: WatchHook(moments=True),
        'moments=True has no effect without log="norms"',
    ),
    "a depth of no norms": (lambda: WatchHook(depth=1), "depth=1 has no effect without log="),
    "a share of no operations": (
        lambda: ThroughputHook(peak_flops=1e12),
        "has no effect without flops",
    ),
    "how many of no best": (
        lambda: CheckpointHook(keep_best=3),
        "keep_best=3 has no effect without save_best",
    ),
    "what is better of no best": (
        lambda: CheckpointHook(rule="less"),
        "rule='less' has no effect without save_best",
    ),
    "a warm-up in words": (
        lambda: EMAHook(warm_up="linear"),  # type: ignore[arg-type]
        "warm_up must be an int of at least 0 or 'fast', got 'linear'",
    ),
    "an optimizer in words": (
        lambda: CheckpointHook(save_optimizer="never"),  # type: ignore[arg-type]
        "save_optimizer must be True, False or 'last', got 'never'",
    ),
    "a device of no values": (lambda: EMAHook(device="meta"), "such as 'cuda', got 'meta'"),
    "an optimizer for a hook of none": (
        lambda: ScheduleFreeHook(torch.optim.SGD([torch.ones(1)])),  # type: ignore[call-arg]
        "ScheduleFreeHook takes no SGD: it works on the Trainer's; it takes no arguments",
    ),
    "a path for paths": (
        lambda: average_checkpoints("a.pth"),
        "paths must be a list of paths, got 'a.pth'",
    ),
    "numbers for paths": (
        lambda: average_checkpoints([1, 2]),  # type: ignore[list-item]
        "paths[0] must be a path",
    ),
    "parameters for a model": (
        lambda: param_groups(torch.nn.Linear(1, 1).parameters(), lr=1),  # type: ignore[arg-type]
        "module must be an nn.Module, got <generator",
    ),
    "MMEngine's schedules": (
        lambda: register_training_hooks(param_scheduler=[]),
        "hooks_from_config(dict(param_scheduler=[...])) reads MMEngine's lists",
    ),
}


@pytest.mark.parametrize("mistake", MADE)
def test_a_hook_is_not_made(mistake: str) -> None:
    make, answer = MADE[mistake]
    if mistake == "a project first":
        pytest.importorskip("wandb")
    with pytest.raises((AttributeError, TypeError, ValueError), match=re.escape(answer)):
        make()


ELSEWHERE: dict[str, tuple[Callable[..., Any], str]] = {
    "monitor": (BestCheckpointHook, "save_best"),
    "mode": (BestCheckpointHook, "rule"),
    "save_top_k": (CheckpointHook, "max_keep_ckpts"),
    "dirpath": (CheckpointHook, "out_dir"),
    "every_n_epochs": (CheckpointHook, "interval"),
    "train_time_interval": (CheckpointHook, "every_minutes"),
    "decay": (EMAHook, "momentum"),
    "warmup_steps": (StepLrUpdaterHook, "warmup_iters"),
    "milestones": (StepLrUpdaterHook, "step"),
    "eta_min": (CosineAnnealingLrUpdaterHook, "min_lr"),
    "gradient_clip_val": (OptimizerHook, "grad_clip"),
    "experiment_name": (MlflowLoggerHook, "exp_name"),
    "project": (MlflowLoggerHook, "exp_name"),
    "update_every_n_steps": (EMAHook, "interval"),
    "update_starting_at_epoch": (EMAHook, "begin_epoch"),
    "use_buffers": (EMAHook, "buffers"),
    "total_iters": (CosineAnnealingLrUpdaterHook, "warmup_iters"),
    "offline": (WandbLoggerHook, "mode"),
    "log_model": (WandbLoggerHook, "upload"),
    "id": (WandbLoggerHook, "init_kwargs"),
    "T_0": (CosineRestartLrUpdaterHook, "periods"),
    "clip_val": (OptimizerHook, "grad_clip"),
    "layers": (FreezeHook, "names"),
    "train_bn": (FreezeHook, "eval_mode"),
    "save_total_limit": (CheckpointHook, "max_keep_ckpts"),
    "n_saved": (BestCheckpointHook, "keep_best"),
    "load_best": (BestCheckpointHook, "load_at_end"),
    "async_save": (CheckpointHook, "background"),
    "save_weights_only": (CheckpointHook, "save_optimizer"),
    "max_time": (TimeLimitHook, "hours"),
    "batch_size_fn": (ThroughputHook, "samples"),
    "length_fn": (ThroughputHook, "tokens"),
    "log_freq": (WatchHook, "interval"),
    "warmup_t": (CosineAnnealingLrUpdaterHook, "warmup_iters"),
    "max_grad_norm": (OptimizerHook, "grad_clip"),
    "cpu_offload": (EMAHook, "device"),
    "evaluate_ema_weights_instead": (EMAHook, "validate"),
}
NOT_NEEDED: dict[str, tuple[Callable[..., Any], str]] = {
    "T_max": (CosineAnnealingLrUpdaterHook, "the length of the run is the Trainer's"),
    "epochs": (OneCycleLrUpdaterHook, "the length of the run is the Trainer's"),
    "optimizer": (CosineAnnealingLrUpdaterHook, "it is the Trainer's"),
    "model": (EMAHook, "it is the Trainer's"),
    "patience": (BestCheckpointHook, "stopping is for Lightning's EarlyStopping(monitor=..., pat"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_argument_of_another_library_is_answered_by_ours(name: str) -> None:
    hook, ours = ELSEWHERE[name]
    with pytest.raises(TypeError, match=rf"no|unexpected keyword argument '{name}'") as raised:
        hook(**{name: 1})
    assert f"did you mean '{ours}'?" in str(raised.value)


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_an_argument_that_is_not_needed_here_is_to_be_left_out(name: str) -> None:
    hook, why = NOT_NEEDED[name]
    with pytest.raises(TypeError, match=re.escape(f"'{name}'; leave it out: {why}")):
        hook(**{name: 1})


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(make_loader(4))


class Scheduled(TinyModule):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class TwoLoaders(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> torch.Tensor:
        return super().validation_step(batch, batch_idx)


class ByAdam(TinyModule):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class WrongName(Hook):
    def after_train_iter(self, runner: Any) -> None:
        runner.global_step  # noqa: B018


def is_class(*classes: Any) -> list[Any]:
    return [*classes]


STARTED: dict[str, tuple[Callable[[], list[Any]], dict[str, Any], str]] = {
    "two schedules": (
        lambda: [cosine(), StepLrUpdaterHook(step=[1])],
        {},
        "StepLrUpdaterHook set the learning rate of SGD (group 0): each step takes the value that "
        "was set last; leave out all but one",
    ),
    "a schedule of torch's too": (
        lambda: [cosine()],
        {"module": Scheduled},
        "CosineAnnealingLrUpdaterHook and StepLR set the learning rate of SGD (group 0)",
    ),
    "milestones beyond the end": (
        lambda: [StepLrUpdaterHook(step=[8, 11])],
        {},
        "StepLrUpdaterHook of SGD (group 0) never moves the learning rate",
    ),
    "milestones beyond the last step": (
        lambda: [StepLrUpdaterHook(step=[8, 11])],
        {"max_steps": 6},
        "StepLrUpdaterHook of SGD (group 0) never moves the learning rate",
    ),
    "a warm-up longer than the run": (
        lambda: [cosine(warmup="linear", warmup_iters=500)],
        {},
        "the warm-up of 500 iterations is longer than the run of 8",
    ),
    "a warm-up longer than the steps": (
        lambda: [cosine(warmup="linear", warmup_iters=500)],
        {"max_steps": 6},
        "the warm-up of 500 iterations is longer than the run of 6",
    ),
    "a loader without length": (
        lambda: [cosine()],
        {"train": DataLoader(Endless(), batch_size=None)},
        "needs the length of the run: give max_epochs and a loader with a length, or max_steps",
    ),
    "steps for a schedule of epochs": (
        lambda: [cosine(by_epoch=True)],
        {"max_steps": 6},
        "give max_epochs; with max_steps, by_epoch=False",
    ),
    "a warm-up of epochs without length": (
        lambda: [
            StepLrUpdaterHook(step=[1], warmup="linear", warmup_iters=1, warmup_by_epoch=True)
        ],
        {"train": DataLoader(Endless(), batch_size=None)},
        "count iterations (by_epoch=False, warmup_by_epoch=False)",
    ),
    "a warm-up's length alone": (
        lambda: [WSDLrUpdaterHook(warmup_iters=0.05)],
        {},
        'warmup_iters=0.05 has no effect without warmup: write warmup="linear"',
    ),
    "a phase that is too short": (
        lambda: [PhasesLrUpdaterHook([dict(policy="fixed", length=0.01), dict(policy="fixed")])],
        {},
        "phases[0], 'fixed', never comes: the run of 2 is too short for its share",
    ),
    "a pair for a number": (
        lambda: [FieldUpdaterHook("betas", "LinearAnnealing", end=0.9)],
        {"module": ByAdam},
        "AdamW (group 0) has no number betas; did you mean 'betas.0'?",
    ),
    "a place of a pair in brackets": (
        lambda: [FieldUpdaterHook("betas[1]", "LinearAnnealing", end=0.9)],
        {"module": ByAdam},
        "did you mean 'betas.1'?",
    ),
    "a switch for a number": (
        lambda: [FieldUpdaterHook("nesterov", "LinearAnnealing", end=0.9)],
        {},
        "has no number nesterov; known: dampening, lr, momentum, weight_decay",
    ),
    "a device that is not there": (
        lambda: [EMAHook(device="cuda:99")],
        {},
        "EMAHook: device='cuda:99' is not there",
    ),
    "a file for a folder": (
        lambda: [CheckpointHook(out_dir=__file__)],
        {"enable_checkpointing": True},
        f"a folder is needed, and this is a file: {__file__!r}",
    ),
    "SWA of Lightning's too": (
        lambda: [EMAHook()],
        {"callbacks": [StochasticWeightAveraging(0.1)]},
        "StochasticWeightAveraging and EMAHook both set the weights of the module to an average",
    ),
    "clipped by the Trainer too": (
        lambda: [OptimizerHook(grad_clip=dict(max_norm=1))],
        {"gradient_clip_val": 1.0},
        "gradients would be clipped twice; give one of them",
    ),
    "clipped by two hooks": (
        lambda: [OptimizerHook(grad_clip=dict(max_norm=1)) for _ in range(2)],
        {},
        "OptimizerHook and OptimizerHook each clip the gradients",
    ),
    "accumulated by the Trainer too": (
        lambda: [GradientCumulativeOptimizerHook(cumulative_iters=2)],
        {"accumulate_grad_batches": 2},
        "accumulate there, with GradientCumulativeOptimizerHook(cumulative_iters=...)",
    ),
    "half precision by the hook alone": (
        lambda: [Fp16OptimizerHook()],
        {},
        'give Trainer(precision="16-mixed")',
    ),
    "a score that is not logged": (
        lambda: [BestCheckpointHook("val_los", rule="less")],
        {"enable_checkpointing": True, "num_sanity_val_steps": 1},
        "the sanity check has logged no save_best='val_los'; did you mean 'val_loss'?",
    ),
    "the best without a validation": (
        lambda: [BestCheckpointHook("val_loss")],
        {"enable_checkpointing": True, "module": NoValidation, "val": None},
        "the Trainer does not validate in this fit; give it a validation loader",
    ),
    "the best of no data": (
        lambda: [BestCheckpointHook("val_loss")],
        {"enable_checkpointing": True, "val": make_loader(0)},
        "the Trainer has a validation loader without a batch; give it data",
    ),
    "the best of validations after the end": (
        lambda: [BestCheckpointHook("val_loss")],
        {"enable_checkpointing": True, "check_val_every_n_epoch": 5},
        "validates every 5 epochs, and the run has 2; give it check_val_every_n_epoch=2 at most",
    ),
    "a score of one of two loaders": (
        lambda: [BestCheckpointHook("val_loss")],
        {
            "enable_checkpointing": True,
            "num_sanity_val_steps": 1,
            "module": TwoLoaders,
            "val": [make_loader(1), make_loader(1)],
        },
        "did you mean 'val_loss/dataloader_idx_0'?",
    ),
    "statistics of no BatchNorm": (
        lambda: [PreciseBNHook(num_samples=2)],
        {},
        "there is no BatchNorm layer",
    ),
    "a file that is not there": (
        lambda: [EMAHook()],
        {"ckpt_path": "nothing.pth"},
        "Checkpoint file not found: nothing.pth",
    ),
    "a file of text": (
        lambda: [EMAHook()],
        {"ckpt_path": __file__},
        "is no checkpoint: it begins with",
    ),
}
ALONE: dict[str, tuple[Callable[[], list[Any]], dict[str, Any], str]] = {
    "a class": (
        lambda: is_class(TextLoggerHook(), EMAHook),
        {},
        "EMAHook is a class; pass an object: Trainer(callbacks=[EMAHook(...)])",
    ),
    "a logger of Lightning's": (
        lambda: [TextLoggerHook(), CSVLogger("logs")],
        {},
        "CSVLogger is not a Lightning Callback; if it is a hook, write "
        "Trainer(callbacks=[HookAdapter([CSVLogger(...)])])",
    ),
    "one object twice": (lambda: [EMAHook()] * 2, {}, "a hook takes part in a Trainer once"),
}


def train(root: Path, hooks: list[Any], module: Any = TinyModule, **given: Any) -> TinyModule:
    """Fit and return the module; ``given`` has arguments of the Trainer and of ``fit``."""
    made = module()
    loaders = given.pop("train", make_loader(4)), given.pop("val", make_loader(1))
    path = given.pop("ckpt_path", None)
    length = {} if "max_steps" in given else {"max_epochs": 2}
    trainer = make_trainer(root, *hooks, **{"num_sanity_val_steps": 0, **length, **given})
    try:
        trainer.fit(made, *loaders, ckpt_path=path)
    except Exception:
        assert not made.losses, "answered after a step"
        raise
    return made


@pytest.mark.filterwarnings("ignore:Total length of `.*` across ranks is zero")
@pytest.mark.parametrize(
    ("mistake", "hosted"),
    [
        *((mistake, False) for mistake in STARTED),
        ("two schedules", True),
        ("a score that is not logged", True),
    ],
)
def test_a_fit_begins_with_an_answer(mistake: str, hosted: bool, tmp_path: Path) -> None:
    hooks, given, answer = STARTED[mistake]
    made = [HookAdapter(hooks())] if hosted else hooks()
    own = given if not hosted else {**given, "enable_checkpointing": False}
    with pytest.raises(Exception, match=re.escape(answer)):
        train(tmp_path, made, **own)


def test_one_average_is_enough(tmp_path: Path) -> None:
    rival = ema_weight_averaging()
    answer = "EMAWeightAveraging and EMAHook both set the weights of the module to an average"
    with pytest.raises(Exception, match=answer):
        train(tmp_path, [EMAHook()], callbacks=[rival])


@pytest.mark.parametrize("mistake", ALONE)
def test_what_is_no_hook_is_refused(mistake: str, tmp_path: Path) -> None:
    hooks, given, answer = ALONE[mistake]
    with pytest.raises((TypeError, ValueError), match=re.escape(answer)):
        train(tmp_path, hooks(), **given)


def test_an_average_that_the_run_is_too_short_for(tmp_path: Path, caplog: Any) -> None:
    train(tmp_path, [EMAHook()])
    assert "100% of the average is still its first weights" in caplog.text
    assert "a larger momentum, or a smaller warm_up, follows the model faster" in caplog.text
    caplog.clear()
    train(tmp_path, [EMAHook(momentum=0.5, warm_up=0)])
    assert "momentum" not in caplog.text


TOLD: dict[str, tuple[Callable[[], Any], str]] = {
    "epochs to freeze": (
        lambda: FreezeHook("net.weight", until_epoch=10),
        "FreezeHook: until_epoch=10 is not reached in this run of 2 epochs: the parts stay frozen",
    ),
    "iterations to freeze": (
        lambda: FreezeHook("net.weight", until_iter=8),
        "until_iter=8 is not reached in this run of 8 iterations",
    ),
    "iterations before an average": (
        lambda: EMAHook(begin_iter=100),
        "EMAHook: begin_iter=100 is not reached in this run of 8 iterations: the average is the",
    ),
    "epochs before an average": (
        lambda: EMAHook(begin_epoch=2),
        "begin_epoch=2 is not reached in this run of 2 epochs",
    ),
    "iterations that do not count": (
        lambda: ThroughputHook(warmup_iters=100),
        "warmup_iters=100 is not reached in this run of 8 iterations: nothing is logged",
    ),
    "losses before a spike": (
        lambda: CheckInvalidLossHook(spike={}),
        "window=100 is not reached in this run of 8 iterations: no loss is a spike",
    ),
    "moments of SGD": (
        lambda: WatchHook(1, log="norms", moments=True),
        "WatchHook(moments=True) logs no moments: no optimizer has Adam's exp_avg",
    ),
}


@pytest.mark.parametrize("mistake", TOLD)
def test_what_never_comes_is_told_once(mistake: str, tmp_path: Path, caplog: Any) -> None:
    make, line = TOLD[mistake]
    train(tmp_path, [make()])
    assert [line in record.getMessage() for record in caplog.records].count(True) == 1


@pytest.mark.parametrize("name", ["samples", "tokens"])
def test_a_size_that_is_no_number_is_named(name: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {name: lambda batch: batch[0]}
    trainer = make_trainer(tmp_path, ThroughputHook(warmup_iters=0, **sizes))
    with pytest.raises(TypeError, match=rf"{name}\(batch\) must return a number or a 0-d tensor"):
        trainer.fit(TinyModule(), make_loader(2), make_loader(1))


@pytest.mark.parametrize("find", [best_checkpoint, last_checkpoint])
def test_a_file_has_no_files(find: Any) -> None:
    with pytest.raises(NotADirectoryError, match="a folder is needed, and this is a file"):
        find(__file__)


def test_an_attribute_of_the_trainer_is_found_on_it(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, WrongName())
    with pytest.raises(AttributeError) as raised:
        trainer.fit(TinyModule(), make_loader(1), make_loader(1))
    assert "it is the Trainer's: runner.trainer.global_step" in raised.value.__notes__


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("loss", "runner.outputs['loss']"),
        ("log", "runner.log_buffer.update({'name': value})"),
        ("lr", "runner.current_lr()"),
    ],
)
def test_what_a_module_or_a_trainer_has_is_found_on_the_runner(
    name: str, write: str, hosted: bool, tmp_path: Path
) -> None:
    point = {"after_train_iter": lambda self, runner: getattr(runner, name), "__module__": "m"}
    hook = type("Mine", (Hook,), point)()
    trainer = make_trainer(tmp_path, HookAdapter([hook]) if hosted else hook)
    with pytest.raises(AttributeError) as raised:
        trainer.fit(TinyModule(), make_loader(1), make_loader(1))
    assert f"write {write}" in raised.value.__notes__


def test_a_misspelt_point_is_named(tmp_path: Path, caplog: Any) -> None:
    hook = type(
        "Mine", (Hook,), {"after_train_iters": lambda self, runner: None, "__module__": "m"}
    )
    train(tmp_path, [hook()])
    assert "Mine.after_train_iters() is called at no point; did you mean after_train_iter()?" in (
        caplog.text
    )


class WithoutLoss(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.loss(batch)


class WithoutItsName(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"cross_entropy": self.loss(batch)}


@pytest.mark.parametrize(
    ("module", "hosted", "answer"),
    [
        (WithoutLoss, False, "`training_step` returned `None`"),
        (WithoutLoss, True, "`training_step` returned `None`"),
        (WithoutItsName, False, "the 'loss' key needs to be present"),
        (WithoutItsName, True, "the 'loss' key needs to be present"),
    ],
)
def test_a_step_without_a_loss_is_answered_by_lightning(
    module: Any, hosted: bool, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = "lightning.pytorch.loops.optimization.automatic.Closure"
    monkeypatch.setattr(f"{loop}.warning_cache", WarningCache())  # once per process
    hooks = [EMAHook(), OptimizerHook(grad_clip=dict(max_norm=1)), CheckInvalidLossHook()]
    with pytest.raises(Exception, match=answer):
        train(tmp_path, [HookAdapter(hooks)] if hosted else hooks, module)


class SometimesWithoutLoss(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return None if batch_idx % 2 else loss


class StepsItself(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.manual_backward(self.loss(batch))
        self.optimizers().step()  # type: ignore[union-attr]


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
@pytest.mark.parametrize("hook", [TextLoggerHook, CheckInvalidLossHook])
def test_steps_that_return_no_loss_are_named_once_a_fit(
    hook: Any, hosted: bool, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    warnings.simplefilter("always")
    train(tmp_path, [HookAdapter([hook()])] if hosted else [hook()], SometimesWithoutLoss)
    said = [str(w.message) for w in recwarn if "in iteration" in str(w.message)]
    assert said == [
        "`training_step` returned `None` in iteration 2 of epoch 1: it trains nothing, and the log "
        "has no loss of it; to train with it, end training_step with `return loss`"
    ]
    recwarn.clear()
    StepsItself.automatic_optimization = False  # type: ignore[assignment]
    train(tmp_path, [hook()], StepsItself)
    assert not [w for w in recwarn if "in iteration" in str(w.message)]


def test_a_config_with_other_keys_is_answered_by_those_of_hooks() -> None:
    with pytest.warns(UserWarning, match="'custom_hook' stands for no hook; did you mean 'custom"):
        lightning_hooks.hooks_from_config({"custom_hook": [{"type": "EMAHook"}]})


def test_a_file_of_weights_alone_is_no_run(tmp_path: Path) -> None:
    path = str(tmp_path / "weights.pth")
    torch.save(TinyModule().state_dict(), path)
    with pytest.raises(Exception, match=r"module.load_state_dict\(torch.load\("):
        train(tmp_path, [EMAHook()], ckpt_path=path)


def test_a_folder_is_answered_by_the_newest_file_in_it(tmp_path: Path) -> None:
    train(tmp_path, [CheckpointHook(1)], enable_checkpointing=True)
    with pytest.raises(Exception, match=r"is a folder or a pipe, not a file; .* is .*epoch_2.pth"):
        train(tmp_path, [EMAHook()], ckpt_path=str(tmp_path))


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_what_is_no_mistake_is_quiet(tmp_path: Path, caplog: Any) -> None:
    hooks = [cosine(), EMAHook(momentum=0.3, warm_up=0), TextLoggerHook(interval=2)]
    trainer = make_trainer(tmp_path, *hooks, max_epochs=1)
    for _ in range(2):  # the same Trainer and hooks, twice
        trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    other = make_trainer(
        tmp_path, EMAHook(), BestCheckpointHook("val_loss"), enable_checkpointing=True
    )
    other.validate(TinyModule(), make_loader(1), verbose=False)  # without a fit
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_many_names_are_listed_by_a_command(capsys: Any) -> None:
    with pytest.raises(ValueError, match=r"zzz is not in .* `lightning-hooks hooks` lists"):
        HookAdapter([dict(type="zzz")])
    with pytest.raises(AttributeError, match=r"`dir\(lightning_hooks\)` lists the \d+ known names"):
        lightning_hooks.zzz  # noqa: B018
    with pytest.raises(TypeError, match=r"`help\(CheckpointHook\)` lists the \d+ known names"):
        CheckpointHook(zzz=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"did you mean '\w+'(, '\w+')*( or '\w+')?\?$") as raised:
        HookAdapter([dict(type="LrUpdater")])
    assert str(raised.value).count("'") <= 6
