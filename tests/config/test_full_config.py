"""A whole mmcv config or config file becomes an adapter with Trainer arguments, and trains."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from lightning_hooks import (
    HOOKS,
    EvalHook,
    Hook,
    IterTimerHook,
    OptimizerHook,
    hooks_from_config,
    register_training_hooks,
)
from lightning_hooks.config import from_file
from support.training import TinyModule, make_loader, make_trainer

SCHEDULE = """
optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0001)
optimizer_config = dict(grad_clip=dict(max_norm=35))
lr_config = dict(policy='step', step=[1], warmup='linear', warmup_iters=3)
runner = dict(type='EpochBasedRunner', max_epochs=100)
"""
RUNTIME = """
checkpoint_config: {interval: 1, max_keep_ckpts: 1}
log_config:
  interval: 2
  hooks:
    - {type: TextLoggerHook}
custom_hooks: [{type: EMAHook, priority: 49}]
dist_params: {backend: nccl}
log_level: INFO
load_from: null
resume_from: null
workflow: [[train, 1]]
"""
MINE = """
_base_ = ['./schedule.py', './runtime.yaml']
model = dict(type='ImageClassifier', backbone=dict(type='ResNet', depth=50))
data = dict(samples_per_gpu=32, train=dict(type='ImageNet'))
runner = dict(max_epochs=2)
evaluation = dict(interval=1, save_best='val_loss', rule='less')
work_dir = 'WORK'
"""


def write_config(directory: Path) -> Path:
    (directory / "schedule.py").write_text(SCHEDULE)
    (directory / "runtime.yaml").write_text(RUNTIME)
    path = directory / "mine.py"
    path.write_text(MINE.replace("WORK", (directory / "work").as_posix()))
    return path


def names(adapter: Any) -> list[tuple[str, int]]:
    return [(type(hook).__name__, hook.priority) for hook in adapter.hooks]


def test_a_file_with_its_bases_trains(tmp_path: Path) -> None:
    hooks = hooks_from_config(write_config(tmp_path))
    assert names(hooks) == [
        ("StepLrUpdaterHook", 10),
        ("OptimizerHook", 40),
        ("EMAHook", 49),
        ("CheckpointHook", 50),
        ("IterTimerHook", 70),
        ("EvalHook", 70),
        ("TextLoggerHook", 90),
    ]
    assert hooks.trainer_kwargs == {
        "check_val_every_n_epoch": 1,
        "enable_checkpointing": False,
        "max_epochs": 2,
    }
    trainer = make_trainer(tmp_path / "root", hooks, **hooks.trainer_kwargs)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    assert trainer.current_epoch == 2
    files = sorted(path.name for path in (tmp_path / "work").glob("*.pth"))
    assert files == ["best_val_loss_epoch_2.pth", "epoch_2.pth", "latest.pth"]
    (log,) = (tmp_path / "work").glob("*.log.json")
    assert [json.loads(line).get("mode") for line in log.read_text().splitlines()].count("val") == 2


def test_from_file_reads_a_config_file(tmp_path: Path) -> None:
    path = str(write_config(tmp_path))
    found, same = from_file(path), hooks_from_config(path)
    assert names(found) == names(same)
    assert found.trainer_kwargs == same.trainer_kwargs


def test_a_dict_and_an_object_are_taken_too_and_stay_as_they_are(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "model": {"type": "ResNet"},
        "lr_config": {"policy": "CosineAnnealing", "min_lr": 0.0},
        "optimizer_config": {"grad_clip": {"max_norm": 35}},
        "evaluation": {"interval": 2},
        "total_epochs": 3,
        "work_dir": str(tmp_path),
    }
    before = copy.deepcopy(config)

    class Config:  # as mmcv's and mmengine's: not a dict, but with a dict's methods
        def items(self) -> Any:
            return config.items()

    for given in (config, Config()):
        adapter = hooks_from_config(given)
        assert adapter.trainer_kwargs == {"check_val_every_n_epoch": 2, "max_epochs": 3}
        assert adapter._runner_options().work_dir == str(tmp_path)
        adapter.hooks[1].grad_clip["max_norm"] = 1
        assert config == before


def test_mmengines_config(tmp_path: Path) -> None:
    mmengine = pytest.importorskip("mmengine")
    adapter = hooks_from_config(mmengine.Config.fromfile(write_config(tmp_path)))
    assert adapter.trainer_kwargs["max_epochs"] == 2


def test_arguments_go_before_the_config(tmp_path: Path) -> None:
    config = {"work_dir": "work", "total_epochs": 3, "lr_config": {"policy": "fixed"}}
    adapter = hooks_from_config(config, work_dir=str(tmp_path), total_epochs=5, lr_config=None)
    assert adapter._runner_options().work_dir == str(tmp_path)
    assert adapter.trainer_kwargs == {"max_epochs": 5}
    assert names(adapter) == [("IterTimerHook", 70)]


def test_custom_imports_register_old_hooks(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "old_hooks_of_a_project.py").write_text(
        "from lightning_hooks import HOOKS, Hook\n"
        "@HOOKS.register_module()\nclass OldHookOfAProject(Hook):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config: dict[str, Any] = {
        "custom_imports": {"imports": ["old_hooks_of_a_project"], "allow_failed_imports": False},
        "custom_hooks": [{"type": "OldHookOfAProject", "priority": "LOW"}],
        "timer_config": None,
    }
    try:
        assert names(hooks_from_config(config)) == [("OldHookOfAProject", 70)]
    finally:
        HOOKS.module_dict.pop("OldHookOfAProject", None)
        sys.modules.pop("old_hooks_of_a_project", None)
    config = {"custom_imports": {"imports": "not_there_at_all", "allow_failed_imports": True}}
    hooks_from_config(config)
    config["custom_imports"]["allow_failed_imports"] = False
    with pytest.raises(ImportError, match="not_there_at_all") as caught:
        hooks_from_config(config)
    assert caught.value.__notes__ == ["in custom_imports of the config"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (3, TypeError, "cfg must be a dict, a Config or the path of a file, got 3"),
        ({"lr_config": "step"}, TypeError, "lr_config must be a dict, a hook or None, got 'step'"),
        ({"optimizer_config": [1]}, TypeError, "optimizer_config must be"),
        ({"checkpoint_config": 1}, TypeError, "checkpoint_config must be"),
        ({"momentum_config": IterTimerHook}, TypeError, "momentum_config must be"),
        (
            {"custom_hooks": ["EMAHook"]},
            TypeError,
            r"custom_hooks must be .*, got 'EMAHook'; write dict\(type='EMAHook'\)",
        ),
        (
            {"log_config": {"interval": 1, "hooks": [{"type": "TextLoggerHook"}, "TextLogger"]}},
            TypeError,
            r'log_config\["hooks"\]\[1\] must be a dict',
        ),
        ({"evaluation": 1}, TypeError, "evaluation must be"),
        ({"timer_config": True}, TypeError, "timer_config must be"),
        ({"log_config": []}, TypeError, "log_config must be"),
        ({"log_config": {"hooks": []}}, ValueError, 'log_config needs the key "interval"'),
        ({"log_config": {"interval": 1}}, ValueError, 'log_config needs the key "hooks"'),
        ({"fp16": True}, TypeError, "fp16 must be"),
        ({"runner": "EpochBasedRunner"}, TypeError, "runner must be"),
        ({"total_epochs": "12"}, TypeError, "max_epochs must be an int, got '12'"),
        ({"total_epochs": 2, "runner": {"max_epochs": 3}}, ValueError, "contradict each other"),
        ({"workflow": [("train", 1), ("val", 2)]}, ValueError, "workflow must be"),
        ({"workflow": "train"}, ValueError, "workflow must be"),
        ({"custom_imports": ["hooks"]}, TypeError, "custom_imports must be a dict"),
        ({"fp16": {}, "optimizer_config": OptimizerHook()}, ValueError, "fp16 goes with a dict"),
        (
            {"fp16": {}, "optimizer_config": {"type": "EMAHook"}},
            ValueError,
            "fp16 goes with an optimizer_config of OptimizerHook",
        ),
    ],
)
def test_wrong_items_are_named_by_key(config: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hooks_from_config(config)


def test_an_error_of_a_hook_says_in_which_item() -> None:
    with pytest.raises(ValueError, match="interval") as caught:
        hooks_from_config({"checkpoint_config": {"interval": 0}})
    assert caught.value.__notes__[-1] == "in checkpoint_config of the config"  # type: ignore[attr-defined]


# -- how long, and how often is validated ------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        ({"total_iters": 9}, {"max_epochs": -1, "max_steps": 9}),
        ({"runner": {"max_epochs": 2}, "total_epochs": 2}, {"max_epochs": 2}),
        ({"evaluation": {"interval": 3}}, {"check_val_every_n_epoch": 3}),
        # every epoch validates; evaluations after 3, 8, 13, ... count
        ({"evaluation": {"interval": 5, "start": 3}}, {"check_val_every_n_epoch": 1}),
        (
            {"evaluation": {"interval": 10, "dynamic_intervals": [(20, 4)]}},
            {"check_val_every_n_epoch": 2},
        ),
        # the workflow of every mmcv config: no pass for the validation's loss
        (
            {"evaluation": {"interval": 2}, "workflow": [("train", 1)]},
            {"check_val_every_n_epoch": 2},
        ),
        (
            {"evaluation": {"interval": 6}, "workflow": [("train", 4), ("val", 1)]},
            {"check_val_every_n_epoch": 2},
        ),
        (
            {"total_iters": 9, "workflow": [("train", 3), ("val", 2)]},
            {
                "check_val_every_n_epoch": None,
                "limit_val_batches": 2,
                "max_epochs": -1,
                "max_steps": 9,
                "val_check_interval": 3,
            },
        ),
        (
            {"total_iters": 9, "evaluation": {"interval": 3}, "workflow": [("train", 1)]},
            {
                "check_val_every_n_epoch": None,
                "max_epochs": -1,
                "max_steps": 9,
                "val_check_interval": 3,
            },
        ),
    ],
)
def test_trainer_kwargs(config: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert hooks_from_config(config).trainer_kwargs == kwargs
    L.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, **kwargs)


class Judged(EvalHook):
    """Records the iterations of the evaluations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.at: list[int] = []

    def _do_evaluate(self, runner: Any) -> None:
        self.at.append(runner.iter + (self.dataloader is not None))
        super()._do_evaluate(runner)


@pytest.mark.parametrize(
    ("config", "at"),
    [
        ({"total_epochs": 4, "evaluation": {"interval": 2}}, [8, 16]),
        ({"total_epochs": 5, "evaluation": {"interval": 3, "start": 2}}, [8, 20]),
        ({"total_iters": 9, "evaluation": {"interval": 3}}, [3, 6, 9]),
        ({"total_iters": 9, "evaluation": {"interval": 6}, "workflow": [("train", 3)]}, [6]),
    ],
)
def test_departure_an_evaluation_without_a_loader_judges_the_trainers_validation(
    tmp_path: Path, config: dict[str, Any], at: list[int]
) -> None:
    config = {**config, "evaluation": {"type": Judged, **config["evaluation"]}}
    adapter = hooks_from_config(config)
    trainer = make_trainer(tmp_path, adapter, **adapter.trainer_kwargs)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    judged = next(hook for hook in adapter.hooks if isinstance(hook, Judged))
    assert judged.at == at
    assert "val_loss" in judged.latest_results


class Numbers(Dataset):  # type: ignore[type-arg]
    """A data set with mmcv's ``evaluate``."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4) * index

    def evaluate(self, results: Any, metric: str, logger: Any = None) -> dict[str, float]:
        return {metric: float(len(results))}


class Forward(TinyModule):
    def forward(self, data: Any, return_loss: bool = False) -> Any:
        return list(self.net(data))


@pytest.mark.parametrize(("by_epoch", "at"), [(True, [4, 8]), (False, [4, 8])])
@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_evaluation_on_a_loader_of_its_own_counts_as_the_runner_does(
    tmp_path: Path, by_epoch: bool, at: list[int]
) -> None:
    class Loader(DataLoader[Any]):
        def __iter__(self) -> Any:
            return ({"data": batch} for batch in super().__iter__())

    limit = {"total_epochs": 2} if by_epoch else {"total_iters": 8}
    adapter = hooks_from_config(
        {
            **limit,
            "workflow": [("train", 1)],
            "evaluation": {
                "type": Judged,
                "interval": 1 if by_epoch else 4,
                "metric": "accuracy",
                "save_best": "auto",
                # as in mmdetection the runner decides
                "by_epoch": not by_epoch,
            },
        },
        val_dataloader=Loader(Numbers()),
        work_dir=str(tmp_path),
    )
    assert adapter.trainer_kwargs["limit_val_batches"] == 0
    trainer = make_trainer(tmp_path, adapter, **adapter.trainer_kwargs)
    trainer.fit(Forward(), make_loader(4))
    judged = next(hook for hook in adapter.hooks if isinstance(hook, Judged))
    assert (judged.by_epoch, judged.key_indicator) == (by_epoch, "accuracy")
    assert len(judged.at) == 2
    assert len(list(tmp_path.glob("best_accuracy_*.pth"))) == 1


def test_evaluation_is_called_last_at_low() -> None:
    class Late(Hook):
        pass

    adapter = register_training_hooks(
        custom_hooks_config=[(Late(), "LOW")], evaluation={"interval": 1}
    )
    assert names(adapter) == [("IterTimerHook", 70), ("Late", 70), ("EvalHook", 70)]


def test_the_loader_tells_which_evaluation_hook_it_is() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=1, rank=0)
    dealt, whole = DataLoader(Numbers(), sampler=sampler), DataLoader(Numbers())
    config = {"evaluation": {"interval": 1}, "timer_config": None}
    assert names(hooks_from_config(config, val_dataloader=dealt)) == [("DistEvalHook", 70)]
    assert names(hooks_from_config(config, val_dataloader=whole)) == [("EvalHook", 70)]
    config["evaluation"] = {"type": "DistEvalHook", "interval": 1}
    assert names(hooks_from_config(config, val_dataloader=whole)) == [("DistEvalHook", 70)]


def test_arguments_for_a_data_set_are_named_without_a_loader() -> None:
    config = {"evaluation": {"interval": 1, "metric": "bbox", "classwise": True}}
    with pytest.warns(UserWarning, match=r"evaluation: classwise, metric are for a data set"):
        adapter = hooks_from_config(config)
    assert adapter.hooks[1].eval_kwargs == {}
    with pytest.warns(UserWarning, match=r"evaluation: metric is for a data set"):
        hooks_from_config({"evaluation": {"metric": "bbox"}})


# -- half precision ----------------------------------------------------------------------------


class Fp16OptimizerHook(OptimizerHook):
    """A stub with the arguments of the hook of the same name."""

    def __init__(self, loss_scale: Any = 512.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss_scale = loss_scale


class GradientCumulativeFp16OptimizerHook(Fp16OptimizerHook):
    """A stub with the arguments of the hook of the same name."""

    def __init__(self, cumulative_iters: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cumulative_iters = cumulative_iters


@pytest.mark.parametrize(
    ("config", "kind", "scale"),
    [
        ({"fp16": {"loss_scale": 128.0}}, Fp16OptimizerHook, 128.0),
        (
            {"fp16": {}, "optimizer_config": {"grad_clip": {"max_norm": 1}}},
            Fp16OptimizerHook,
            512.0,
        ),
        (
            {"optimizer_config": {"type": "Fp16OptimizerHook", "loss_scale": "dynamic"}},
            Fp16OptimizerHook,
            "dynamic",
        ),
        (
            {
                "fp16": {"loss_scale": {"init_scale": 8.0}},
                "optimizer_config": {
                    "type": "GradientCumulativeOptimizerHook",
                    "cumulative_iters": 4,
                },
            },
            GradientCumulativeFp16OptimizerHook,
            {"init_scale": 8.0},
        ),
    ],
)
def test_half_precision(config: Any, kind: type, scale: Any, monkeypatch: Any) -> None:
    for cls in (Fp16OptimizerHook, GradientCumulativeFp16OptimizerHook):
        monkeypatch.setitem(HOOKS.module_dict, cls.__name__, cls)
    adapter = hooks_from_config(config)
    assert adapter.trainer_kwargs == {"precision": "16-mixed"}
    assert type(adapter.hooks[0]) is kind
    assert (adapter.hooks[0].priority, adapter.hooks[0].loss_scale) == (40, scale)
    assert hooks_from_config({"fp16": None}).trainer_kwargs == {}
