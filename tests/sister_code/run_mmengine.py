"""Hooks of mmengine and of mmdet 3.x: under mmengine's Runner, and in an adapter of ours."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from sister_model import EPOCHS, ITERATIONS, Model, build, loader, loss_of, plain, weights

VERSION = "mmengine_version"
TIMES = ("time", "data_time", "eta", "memory")


@dataclasses.dataclass(frozen=True)
class Case:
    """Hooks and the run of the hooks.

    Args:
        hooks: ``module:class`` of each hook with arguments.
        by_epoch: Whether the run counts epochs.
        val: Whether to validate.
        test: Whether to test after the training.
        samples: Whether each epoch has another order of the data.
        schedules: MMEngine's schedulers, by class name with arguments.
        grows: Whether the batches grow with the model's scale.
        workers: Whether a persistent worker loads the data, which differ while objects are pasted.
    """

    hooks: tuple[tuple[str, dict[str, Any]], ...]
    by_epoch: bool = True
    val: bool = False
    test: bool = False
    samples: bool = False
    schedules: tuple[tuple[str, dict[str, Any]], ...] = ()
    grows: bool = False
    workers: bool = False


def one(name: str, **arguments: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return a hook of MMEngine with arguments."""
    return ((f"mmengine.hooks:{name}", arguments),)


def mmdet(file: str, name: str, **arguments: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return a hook of mmdet with arguments."""
    return ((f"mmdet.engine.hooks.{file}:{name}", arguments),)


def of(name: str, **arguments: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return a hook of another package, ``package.file:class``, with arguments."""
    package, _, rest = name.partition(".")
    return ((f"{package}.engine.hooks.{rest}", arguments),)


STEPS = (
    ("LinearLR", dict(start_factor=0.1, by_epoch=False, begin=0, end=5)),
    ("MultiStepLR", dict(milestones=[2], gamma=0.5, by_epoch=True)),
)
LOGS = (*one("RuntimeInfoHook"), *one("IterTimerHook"), *one("LoggerHook", interval=2))
SAVES = one("CheckpointHook", interval=1, max_keep_ckpts=2, save_best="val_loss", rule="less")
BY_ITER = dict(interval=3, by_epoch=False, save_last=False)

CASES = {
    "EMAHook": Case(one("EMAHook", momentum=0.3), val=True, test=True),
    "EMAHook, buffers, later": Case(
        one("EMAHook", momentum=0.3, begin_epoch=2, update_buffers=True), val=True
    ),
    "EMAHook, annealed, by iterations": Case(
        one("EMAHook", ema_type="MomentumAnnealingEMA", gamma=3, begin_iter=2), by_epoch=False
    ),
    "ParamSchedulerHook": Case(one("ParamSchedulerHook"), schedules=STEPS),
    "ParamSchedulerHook, plateau": Case(
        one("ParamSchedulerHook"),
        val=True,
        schedules=(("ReduceOnPlateauLR", dict(monitor="val_loss", patience=0, threshold=9.0)),),
    ),
    "ParamSchedulerHook, by iterations": Case(
        one("ParamSchedulerHook"),
        by_epoch=False,
        schedules=(("CosineAnnealingLR", dict(T_max=ITERATIONS, by_epoch=False)),),
    ),
    "ParamSchedulerHook, momentum": Case(
        one("ParamSchedulerHook"),
        schedules=(("LinearMomentum", dict(start_factor=0.5, by_epoch=False, end=6)),),
    ),
    "IterTimerHook": Case(one("IterTimerHook"), val=True, test=True),
    "RuntimeInfoHook": Case(one("RuntimeInfoHook"), val=True, test=True),
    "LoggerHook": Case(LOGS, val=True, test=True),
    "LoggerHook, by iterations": Case(LOGS, by_epoch=False, val=True),
    "CheckpointHook": Case(SAVES, val=True, schedules=STEPS),
    "CheckpointHook, by iterations": Case(one("CheckpointHook", **BY_ITER), by_epoch=False),
    "CheckpointHook, published": Case(
        one("CheckpointHook", interval=2, published_keys=["meta", "state_dict"])
    ),
    "CheckpointHook with EMAHook": Case((*SAVES, *one("EMAHook", momentum=0.3)), val=True),
    "EarlyStoppingHook": Case(
        one("EarlyStoppingHook", monitor="val_loss", patience=1, min_delta=99), val=True
    ),
    "DistSamplerSeedHook": Case(one("DistSamplerSeedHook"), samples=True),
    "EmptyCacheHook": Case(one("EmptyCacheHook", before_epoch=True, after_iter=True), val=True),
    "SyncBuffersHook": Case(one("SyncBuffersHook"), val=True),
    "ProfilerHook": Case(one("ProfilerHook", json_trace_path="trace.json")),
    "the default hooks with EMAHook": Case(
        (
            *LOGS,
            *one("DistSamplerSeedHook"),
            *one("ParamSchedulerHook"),
            *SAVES,
            *one("EMAHook", momentum=0.3),
        ),
        val=True,
        test=True,
        samples=True,
        schedules=STEPS,
    ),
    "the length of a run with another loader": Case(
        (("run_mmengine:reads_length", {}), *one("RuntimeInfoHook"))
    ),
    "mmdet.CheckInvalidLossHook": Case(mmdet("checkloss_hook", "CheckInvalidLossHook", interval=2)),
    "mmdet.MeanTeacherHook": Case(
        mmdet("mean_teacher_hook", "MeanTeacherHook", momentum=0.2, skip_buffer=False)
    ),
    "mmdet.PipelineSwitchHook": Case(
        mmdet("pipeline_switch_hook", "PipelineSwitchHook", switch_epoch=1, switch_pipeline=[])
    ),
    "mmdet.SetEpochInfoHook": Case(mmdet("set_epoch_info_hook", "SetEpochInfoHook")),
    "mmdet.SyncNormHook": Case(mmdet("sync_norm_hook", "SyncNormHook"), val=True),
    "mmpretrain.EMAHook": Case(
        of("mmpretrain.ema_hook:EMAHook", momentum=0.3, evaluate_on_origin=True),
        val=True,
        test=True,
    ),
    "mmpretrain.WarmupParamHook": Case(
        of(
            "mmpretrain.warmup_param_hook:WarmupParamHook",
            param_name="momentum",
            module_name="student.1",
            warmup_epochs=2,
        )
    ),
    "mmpretrain.SimSiamHook": Case(
        of("mmpretrain.simsiam_hook:SimSiamHook", fix_pred_lr=True, lr=0.5)
    ),
    "mmpretrain.DenseCLHook": Case(of("mmpretrain.densecl_hook:DenseCLHook", start_iters=5)),
    "mmpretrain.SwitchRecipeHook": Case(
        of(
            "mmpretrain.switch_recipe_hook:SwitchRecipeHook",
            schedule=[dict(action_epoch=2, train_pipeline=[])],
        )
    ),
    "mmselfsup.SimSiamHook": Case(
        of("mmselfsup.simsiam_hook:SimSiamHook", fix_pred_lr=True, lr=0.5)
    ),
    "mmselfsup.DenseCLHook": Case(of("mmselfsup.densecl_hook:DenseCLHook", start_iters=5)),
    "mmyolo.YOLOXModeSwitchHook": Case(
        of(
            "mmyolo.yolox_mode_switch_hook:YOLOXModeSwitchHook",
            num_last_epochs=1,
            new_train_pipeline=[],
        ),
        val=True,
    ),
    "mmyolo.YOLOv5ParamSchedulerHook": Case(
        (
            *one("RuntimeInfoHook"),
            *of(
                "mmyolo.yolov5_param_scheduler_hook:YOLOv5ParamSchedulerHook",
                max_epochs=3,
                warmup_epochs=1,
                warmup_mim_iter=3,
            ),
        )
    ),
    "mmpose.YOLOXPoseModeSwitchHook": Case(
        of(
            "mmpose.mode_switch_hooks:YOLOXPoseModeSwitchHook",
            num_last_epochs=1,
            new_train_pipeline=[],
        )
    ),
    "mmpose.ExpMomentumEMA": Case(
        (
            ("mmpose.engine.hooks.ema_hook", {}),
            *one("EMAHook", ema_type="mmpose.ExpMomentumEMA", gamma=5),
        ),
        val=True,
    ),
    "mmpose.SyncNormHook": Case(of("mmpose.sync_norm_hook:SyncNormHook"), val=True),
    "mmpretrain.PreciseBNHook": Case(
        of("mmpretrain.precise_bn_hook:PreciseBNHook", num_samples=12), val=True
    ),
    "mmpretrain.PreciseBNHook, by iterations": Case(
        of("mmpretrain.precise_bn_hook:PreciseBNHook", num_samples=8, interval=3), by_epoch=False
    ),
    "mmrazor.StopDistillHook": Case(
        of("mmrazor.stop_distillation_hook:StopDistillHook", stop_epoch=1)
    ),
    "mmagic.IterTimerHook": Case(of("mmagic.iter_time_hook:IterTimerHook"), val=True, test=True),
    "mmagic.ReduceLRSchedulerHook": Case(
        of("mmagic.reduce_lr_scheduler_hook:ReduceLRSchedulerHook", val_metric="val_loss"),
        val=True,
        schedules=(("ReduceOnPlateauLR", dict(monitor="value", patience=0, threshold=9.0)),),
    ),
    "mmagic.PGGANFetchDataHook": Case(
        (
            *one("DistSamplerSeedHook"),
            *of("mmagic.pggan_fetch_data_hook:PGGANFetchDataHook"),
        ),
        grows=True,
    ),
    "mmagic.PGGANFetchDataHook, by iterations": Case(
        of("mmagic.pggan_fetch_data_hook:PGGANFetchDataHook"), by_epoch=False, grows=True
    ),
    "mmdet3d.DisableObjectSampleHook": Case(
        of("mmdet3d.disable_object_sample_hook:DisableObjectSampleHook", disable_after_epoch=1)
    ),
    "mmdet3d.DisableObjectSampleHook, workers": Case(
        of("mmdet3d.disable_object_sample_hook:DisableObjectSampleHook", disable_after_epoch=1),
        workers=True,
    ),
    "mmdet.YOLOXModeSwitchHook": Case(
        mmdet("yolox_mode_switch_hook", "YOLOXModeSwitchHook", num_last_epochs=1)
    ),
}


def config_of() -> Any:
    """Return a config for mode switches, with a registered dataset."""
    from mmengine.config import Config
    from mmengine.registry import DATASETS

    if "Switched" not in DATASETS.module_dict:

        @DATASETS.register_module()
        class Switched(torch.utils.data.Dataset[Any]):
            def __init__(self, pipeline: Any) -> None:
                self.pipeline, self.data = pipeline, loader(2, 9).dataset
                self.skipped: list[str] = []

            def __len__(self) -> int:
                return 8

            def __getitem__(self, index: int) -> Any:
                return self.data[index]

    made = dict(batch_size=4, num_workers=0, collate_fn=dict(type="default_collate"))
    sampler = dict(type="DefaultSampler", shuffle=False)
    data = dict(type="Switched", pipeline=["old"])
    return Config(dict(train_dataloader=dict(**made, sampler=sampler, dataset=data)))


def hooks_of(case: Case) -> list[Any]:
    """Make the hooks of a case."""
    made = []
    for name, arguments in case.hooks:
        module, _, cls = name.partition(":")
        if not cls:  # a file that only registers classes for a hook
            import_module(module)
            continue
        made.append(getattr(import_module(module), cls)(**arguments))
    return [*growing(case), *made]


class Pasting(torch.utils.data.Dataset[Any]):
    """A dataset with different samples while objects are pasted."""

    def __init__(self, data: Any) -> None:
        self.data, self.dataset, self.skipped, self.pipeline = data, data.dataset, [], ["old"]
        self.metainfo = data.metainfo

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        (pasting,) = self.dataset.pipeline.transforms
        x, y = self.data[index]
        return (x if pasting.disabled else x.abs()), y


def batches_of(case: Case) -> Any:
    """Return the training loader with the attributes used by hooks."""
    made = loader(4, samples=case.samples)
    data: Any = made.dataset
    pasting = import_module("mmdet3d.datasets.transforms").ObjectSample()
    pasting.disabled = False
    data.dataset.pipeline.transforms = [pasting]
    if case.workers:
        return torch.utils.data.DataLoader(
            Pasting(data), 4, num_workers=1, persistent_workers=True, multiprocessing_context="fork"
        )
    if not case.grows:
        return made
    data.scale = 0

    def update_annotations(scale: int) -> bool:
        changed = scale != data.scale
        data.scale, data.samples_per_gpu = scale, 4 + 2 * scale
        return changed

    data.update_annotations = update_annotations
    kind = "DefaultSampler" if case.by_epoch else "InfiniteSampler"
    sampler = getattr(import_module("mmengine.dataset"), kind)(data, shuffle=True, seed=3)
    return torch.utils.data.DataLoader(data, 4, sampler=sampler)


def growing(case: Case) -> list[Any]:
    """Return a hook that changes the model's scale every few iterations."""
    from mmengine.hooks import Hook

    def before_train_iter(self: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        model = getattr(runner.model, "module", runner.model)
        model._next_scale_int = runner.iter // 3

    made = type("Grows", (Hook,), {"before_train_iter": before_train_iter, "priority": 10})
    return [made()] if case.grows else []


def reads_length() -> Any:
    """Return a hook that doubles later epochs and reads the run's length and the hub's state."""
    from mmengine.hooks import Hook

    class ReadsLength(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner.train_loop.dataloader = loader(8, seed=5)

        def after_train_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
            hub = runner.message_hub
            hub.update_scalar("length", runner.max_iters)
            hub.update_scalar("length of the loop", runner.train_loop.max_iters)
            hub.update_info("is last", self.is_last_train_iter(runner))
            state = hub.state_dict()
            history = state["log_scalars"]["length"]
            hub.update_info(
                "history", [type(history).__name__, *(part.tolist() for part in history.data)]
            )
            hub.update_info("state", [sorted(state), state["resumed_keys"]["length"]])
            hub.update_scalar("length", 0.0)
            hub.update_info("length of a copy", len(history.data[0]))

    return ReadsLength()


def schedulers_of(case: Case, optimizer: Any, length: int) -> list[Any]:
    """Make the schedulers of a case."""
    from mmengine.optim import scheduler

    return [getattr(scheduler, name)(optimizer, **given) for name, given in case.schedules]


def noting(notes: list[Any]) -> Any:
    """Return a hook that records the state of the run at every point, after all other hooks."""
    from mmengine.hooks import Hook

    def note(point: str) -> Any:
        def method(self: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
            metrics = kwargs.pop("metrics", None) or (args[0] if "epoch" in point and args else {})
            outputs = kwargs.get("outputs")
            notes.append(
                {
                    "at": [point, runner.epoch, runner.iter, kwargs.get("batch_idx")],
                    "training": runner.model.training,
                    "lr": runner.optim_wrapper.get_lr()["lr"] if "test" not in point else [],
                    "weights": weights(runner.model),
                    "metrics": plain(dict(metrics)),
                    "outputs": plain(outputs) if "train" in point else None,
                }
            )

        method.__name__ = point
        return method

    points = {point: note(point) for point in Hook.stages}
    return type("Notes", (Hook,), {**points, "priority": 100})()


def files_of(folder: str) -> dict[str, Any]:
    """Return the contents of each checkpoint by name."""
    found: dict[str, Any] = {}
    for path in sorted(Path(folder).rglob("*.pth")):
        name = re.sub(r"-[0-9a-f]{8}\.pth$", "-HASH.pth", path.name)
        state = torch.load(path, weights_only=False)
        found[name] = {
            "keys": sorted(state),
            "meta": {k: state["meta"][k] for k in ("epoch", "iter")},
            "classes": plain(state["meta"].get("dataset_meta")),
            **{k: _sum(state[k]) for k in ("state_dict", "ema_state_dict") if k in state},
            "schedulers": len(state.get("param_schedulers", [])),
            "hub": sorted({*state.get("message_hub", {}).get("runtime_info", {})} - {VERSION}),
        }
    return found


def _sum(state: dict[str, Any]) -> float:
    return float(sum(value.double().abs().sum() for value in state.values()))


def hub_of(hub: Any) -> dict[str, Any]:
    """Return the contents of a message hub, with only the number of times."""
    scalars = {}
    for name, history in hub.log_scalars.items():
        values, counts = history.data
        timed = name.rpartition("/")[2] in TIMES
        scalars[name] = len(values) if timed else [values.tolist(), counts.tolist()]
    infos = {k: plain(v) for k, v in hub.runtime_info.items() if k not in TIMES}
    for name in ("cfg", "experiment_name", "seed"):
        if name in infos:
            infos[name] = "there"
    infos.pop(VERSION, None)
    for name in ("last_ckpt", "best_ckpt"):
        if name in infos:
            infos[name] = Path(infos[name]).name
    return {"scalars": scalars, "infos": infos}


def without_times(line: str) -> str:
    """Return a log line without parts that differ from run to run."""
    line = re.sub(r"(eta|time|data_time|memory): \S+", r"\1: T", line)
    return re.sub(r"(Exp name:|will be saved to|saved to) \S+", r"\1 NAME", line)


class Lines(logging.Handler):
    """Keeps the lines of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a line."""
        line = without_times(record.getMessage())
        if re.match(r"Exp name|Epoch\(|Iter\(|Saving|The best|The previous best", line):
            self.lines.append(re.sub(r"/\S*/", "", line))


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k.rpartition("/")[2] not in TIMES}


def under_library(name: str, case: Case, folder: str) -> dict[str, Any]:
    """Run a case under mmengine's own Runner."""
    from mmengine.evaluator import BaseMetric
    from mmengine.model import BaseModel
    from mmengine.optim import OptimWrapper
    from mmengine.runner import Runner

    class Own(BaseModel, Model):
        def __init__(self) -> None:
            BaseModel.__init__(self)
            build(self)

        def forward(self, x: Any, y: Any, mode: str = "tensor") -> Any:
            loss = loss_of(self, x, y)
            return {"loss": loss} if mode == "loss" else [{"loss": loss.item()}]

    class Mean(BaseMetric):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.append(data_samples[0]["loss"])

        def compute_metrics(self, results: Any) -> dict[str, float]:
            return {self.key: sum(results) / len(results)}

    torch.manual_seed(0)
    model = Own()
    notes: list[Any] = []
    length: dict[str, Any] = {"max_epochs": EPOCHS} if case.by_epoch else {"max_iters": ITERATIONS}
    if case.val:
        length["val_interval"] = 1 if case.by_epoch else 4
    sgd = torch.optim.SGD(model.student.parameters(), lr=0.1, momentum=0.9)
    wrapper = OptimWrapper(sgd)
    more: dict[str, Any] = {}
    if case.val:
        more |= dict(val_dataloader=loader(2, 1), val_cfg={}, val_evaluator=[Mean("val_loss")])
    if case.test:
        more |= dict(test_dataloader=loader(3, 2), test_cfg={}, test_evaluator=[Mean("test_loss")])
    schedulers = schedulers_of(case, sgd, len(loader(4)))
    own = hooks_of(case)
    informed = any(type(hook).__name__ == "RuntimeInfoHook" for hook in own)
    none = ("timer", "logger", "param_scheduler", "checkpoint", "sampler_seed")
    runner = Runner(
        model=model,
        work_dir=folder,
        train_dataloader=batches_of(case),
        train_cfg={"by_epoch": case.by_epoch, **length},
        optim_wrapper=wrapper,
        param_scheduler=schedulers or None,
        default_hooks=dict.fromkeys((*none, *(["runtime_info"] if informed else []))),
        custom_hooks=[*own, noting(notes)],
        cfg=config_of(),
        log_processor=dict(by_epoch=case.by_epoch),
        experiment_name=re.sub(r"\W", "_", name),
        **more,
    )
    runner.logger.handlers = [lines := Lines()]
    runner.train()
    rows = _rows(Path(runner.log_dir) / "vis_data" / "scalars.json")
    if case.test:
        runner.test()
    return {
        **_found(model, notes, runner.message_hub, folder, lines),
        "rows": rows,
        "skipped": runner.train_dataloader.dataset.skipped,
        "pipeline": _pipeline(runner.train_dataloader),
        "pasting": _pasting(runner.train_dataloader),
    }


def _pasting(made: Any) -> Any:
    """Return whether the data paste objects, for each transform."""
    transforms = getattr(made.dataset, "dataset", made.dataset)
    found = getattr(getattr(transforms, "pipeline", None), "transforms", [])
    return [not transform.disabled for transform in found]


def _pipeline(made: Any) -> str:
    return str(plain(made.dataset.pipeline))


def _rows(path: Path) -> list[Any]:
    if not path.is_file():
        return []
    return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]


def under_us(name: str, case: Case, folder: str) -> dict[str, Any]:
    """Run a case in a ``lightning.Trainer``."""
    import lightning as L
    from lightning.pytorch.loggers.logger import DummyLogger

    from lightning_hooks import HookAdapter

    rows: list[Any] = []

    class Rows(DummyLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            rows.append(_timeless({**metrics, "step": step}))

    class Own(L.LightningModule, Model):
        def __init__(self) -> None:
            L.LightningModule.__init__(self)
            build(self)
            self.sgd = torch.optim.SGD(self.student.parameters(), lr=0.1, momentum=0.9)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return loss_of(self, *batch)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", loss_of(self, *batch), batch_size=len(batch[0]), logger=False)

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("test_loss", loss_of(self, *batch), batch_size=len(batch[0]), logger=False)

        def configure_optimizers(self) -> Any:
            return self.sgd

    torch.manual_seed(0)
    model = Own()
    notes: list[Any] = []
    schedulers = schedulers_of(case, model.sgd, len(loader(4)))
    logger = logging.Logger("sisters")
    logger.addHandler(lines := Lines())
    adapter = HookAdapter(
        [*hooks_of(case), noting(notes), hub := KeepHub()],
        by_epoch=case.by_epoch,
        work_dir=folder,
        attributes={
            "logger": logger,
            "cfg": config_of(),
            **({"param_schedulers": schedulers} if schedulers else {}),
        },
    )
    length: dict[str, Any] = {"max_epochs": EPOCHS}
    if not case.by_epoch:
        length = {"max_steps": ITERATIONS, "max_epochs": -1}
        if case.val:
            length |= {"val_check_interval": 4, "check_val_every_n_epoch": None}
    trainer = L.Trainer(
        **length,
        callbacks=[adapter],
        accelerator="cpu",
        logger=Rows(),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    train = batches_of(case)
    trainer.fit(model, train, loader(2, 1) if case.val else None)
    logged, last = list(rows), trainer.train_dataloader
    if case.test:
        trainer.test(model, loader(3, 2), verbose=False)
    return {
        **_found(model, notes, hub.hub, folder, lines),
        "rows": logged,
        "skipped": train.dataset.skipped,
        "pipeline": _pipeline(last),
        "pasting": _pasting(last),
    }


class KeepHub:
    """Keeps the message hub."""

    hub: Any = None

    def before_run(self, runner: Any) -> None:
        """Store the message hub."""
        self.hub = runner.message_hub

    def before_test(self, runner: Any) -> None:
        """Store the message hub."""
        self.hub = runner.message_hub


def _found(model: Any, notes: list[Any], hub: Any, folder: str, lines: Lines) -> dict[str, Any]:
    return {
        "notes": notes,
        "hub": hub_of(hub),
        "files": files_of(folder),
        "lines": lines.lines,
        "epochs": model.epochs,
        "use_l1": model.bbox_head.use_l1,
        "switched": [
            *(model.bbox_head.use_bbox_aux, model.bbox_head.use_aux_loss),
            *(model.loss_lambda, model.distillation_stopped),
        ],
        "trace": any(Path(folder).rglob("trace.json")),
    }
