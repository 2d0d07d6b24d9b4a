"""A project of mmengine's, whole: its script under mmengine's Runner, and under ours."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

EPOCHS = dict(by_epoch=True, max_epochs=3, val_interval=2)
ITERATIONS = dict(by_epoch=False, max_iters=10, val_interval=4)
CASES: dict[str, dict[str, Any]] = {
    "Runner": dict(train_cfg=EPOCHS),
    "Runner, resumed": dict(train_cfg=EPOCHS, resumed_to=5),
    "Runner, by iterations": dict(train_cfg=ITERATIONS),
    "Runner, by iterations, resumed": dict(train_cfg=ITERATIONS, resumed_to=14),
    "Runner, stopped early": dict(
        train_cfg={**EPOCHS, "max_epochs": 6, "val_interval": 1},
        hooks=[
            dict(type="EarlyStoppingHook", monitor="m/mse", patience=1, min_delta=99, rule="less")
        ],
    ),
    "Runner, dynamic intervals": dict(
        train_cfg={**EPOCHS, "max_epochs": 5, "val_begin": 2, "dynamic_intervals": [(4, 1)]}
    ),
    "Runner, another loader": dict(train_cfg=EPOCHS, hooks=[dict(type="OtherLoader")]),
    "Runner, own iteration": dict(train_cfg={"type": "LargeLoop", "max_epochs": 2}),
    "Runner, own loop": dict(train_cfg={"type": "OwnLoop", "max_epochs": 2}),
    "Runner, as its page shows": dict(train_cfg=EPOCHS, start="script"),
    "Runner, by its config": dict(train_cfg=EPOCHS, start="config"),
    "Runner, two processes": dict(train_cfg=EPOCHS, processes=2, points=20),
    "Runner, two processes, by iterations": dict(train_cfg=ITERATIONS, processes=2),
}
POINTS: list[Any] = []


def register() -> None:
    """Define the project's classes, as its files do."""
    from mmengine.evaluator import BaseMetric
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.registry import DATASETS, HOOKS, LOOPS, METRICS, MODELS
    from mmengine.runner import EpochBasedTrainLoop

    if "Points" in DATASETS.module_dict:
        return

    @DATASETS.register_module()
    class Points(torch.utils.data.Dataset[Any]):
        def __init__(self, number: int, seed: int) -> None:
            self.metainfo = dict(classes=("a", "b"))
            drawn = torch.Generator().manual_seed(seed)
            self.x = torch.randn(number, 4, generator=drawn)
            self.y = torch.randn(number, 2, generator=drawn)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return dict(inputs=self.x[index], y=self.y[index])

    @MODELS.register_module()
    class Net(BaseModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                *(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2))
            )

        def forward(self, inputs: Any, y: Any, mode: str = "tensor") -> Any:
            errors = ((self.net(inputs) - y) ** 2).mean(1)
            if mode == "loss":
                return dict(loss_mse=errors.mean(), loss_max=0.1 * errors.max())
            return [dict(error=float(error)) for error in errors]

    @METRICS.register_module()
    class MSE(BaseMetric):  # type: ignore[misc]
        default_prefix = "m"

        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results += [sample["error"] for sample in data_samples]

        def compute_metrics(self, results: Any) -> dict[str, float]:
            return {"mse": sum(results) / len(results)}

    @HOOKS.register_module()
    class OtherLoader(Hook):  # type: ignore[misc]
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner.train_loop.dataloader = runner.build_dataloader(batches(10, 7, 2))

    @LOOPS.register_module()
    class LargeLoop(EpochBasedTrainLoop):  # type: ignore[misc]
        def run_iter(self, idx: int, data_batch: Any) -> None:
            super().run_iter(idx, {name: 2 * value for name, value in data_batch.items()})

    @LOOPS.register_module()
    class OwnLoop(EpochBasedTrainLoop):  # type: ignore[misc]
        def run(self) -> Any:
            self.runner.call_hook("before_train")
            self.run_epoch()
            self.runner.call_hook("after_train")
            return self.runner.model

    def noting(point: str) -> Any:
        def note(self: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
            weights = [float(value.double().abs().sum()) for value in runner.model.parameters()]
            outputs = kwargs.get("outputs")
            POINTS.append(
                {
                    "at": [point, runner.epoch, runner.iter, kwargs.get("batch_idx")],
                    "training": runner.model.training,
                    "weights": sum(weights),
                    "lr": runner.optim_wrapper.get_lr()["lr"] if "train" in point else None,
                    "outputs": [float(v) for v in outputs.values()]
                    if "train" in point and outputs
                    else None,
                    "metrics": kwargs.get("metrics"),
                }
            )

        return note

    points = {point: noting(point) for point in Hook.stages}
    HOOKS.register_module(module=type("Notes", (Hook,), {**points, "priority": "LOWEST"}))


def batches(number: int, seed: int, size: int = 4, sampler: str = "DefaultSampler") -> Any:
    """Return the config of a loader."""
    return dict(
        batch_size=size,
        num_workers=0,
        collate_fn=dict(type="default_collate"),
        dataset=dict(type="Points", number=number, seed=seed),
        sampler=dict(type=sampler, shuffle=seed != 1),
    )


def config(folder: str, train_cfg: dict[str, Any], hooks: Any = (), **more: Any) -> Any:
    """Return the config file of the project."""
    from mmengine.config import Config

    by_epoch = "max_iters" not in train_cfg
    steps = [
        dict(type="LinearLR", start_factor=0.1, by_epoch=False, begin=0, end=4),
        dict(type="MultiStepLR", milestones=[2], by_epoch=True),
    ]
    own = dict(save_best="m/mse", rule="less", by_epoch=by_epoch, interval=1 if by_epoch else 4)
    return Config(
        dict(
            model=dict(type="Net"),
            work_dir=folder,
            train_dataloader=batches(
                more.get("points", 18), 0, 4, "DefaultSampler" if by_epoch else "InfiniteSampler"
            ),
            val_dataloader=batches(10, 1),
            test_dataloader=batches(6, 1),
            train_cfg=train_cfg,
            val_cfg={},
            test_cfg={},
            val_evaluator=dict(type="MSE"),
            test_evaluator=dict(type="MSE"),
            optim_wrapper=dict(
                optimizer=dict(type="SGD", lr=0.1, momentum=0.9),
                clip_grad=dict(max_norm=1.0),
                accumulative_counts=2,
            ),
            param_scheduler=steps if by_epoch else [dict(type="PolyLR", by_epoch=False, end=10)],
            default_hooks=dict(
                logger=dict(type="LoggerHook", interval=2),
                checkpoint=dict(type="CheckpointHook", **own),
            ),
            custom_hooks=[dict(type="Notes"), dict(type="EMAHook", momentum=0.3), *hooks],
            log_processor=dict(by_epoch=by_epoch),
            randomness=dict(seed=3),
            default_scope="mmengine",
            env_cfg=dict(mp_cfg=dict(mp_start_method="fork")),
            **more,
        )
    )


def _run(runner_class: Any, name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    register()
    POINTS.clear()
    case = dict(case)
    if case.pop("processes", None):
        wrapper = dict(type="MMDistributedDataParallel", device_ids=None)  # no GPU
        case |= dict(launcher="pytorch", model_wrapper_cfg=wrapper)
        first, second = in_two(lambda rank: _run(runner_class, name, case, folder))
        return {**first, "second": second["points"]}
    longer, start = case.pop("resumed_to", None), case.pop("start", "class")

    def run(case: dict[str, Any], which: str, **more: Any) -> Any:
        named = f"{name} {which}".replace(" ", "_").replace(",", "")
        cfg = config(folder, **case, experiment_name=named, **more)
        if start != "class" and runner_class.__module__.startswith("lightning_hooks"):
            return {"script": _script_of_page, "config": _config_of_page}[start](cfg)
        runner = runner_class.from_cfg(cfg)
        runner.train()
        return runner

    runner = run(case, "first")
    if longer:
        length = "max_epochs" if "max_epochs" in case["train_cfg"] else "max_iters"
        case["train_cfg"] = {**case["train_cfg"], length: longer}
        runner = run(case, "second", resume=True)
    metrics = [runner.test(), runner.val()]
    # a folder for each run, by the second of its start: two may share one
    files = sorted(Path(folder).rglob("vis_data/scalars.json"))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {
        "points": list(POINTS),
        "metrics": metrics,
        "rows": [{k: v for k, v in row.items() if not k.endswith("time")} for row in rows],
        "files": sorted(path.name for path in Path(folder).glob("*.pth")),
    }


def _blocks() -> list[str]:
    page = Path(__file__).parents[2] / "docs" / "dialects" / "mmengine.md"
    return re.findall(r"^```py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def _script_of_page(cfg: Any) -> Any:
    """Train as the first lines of the page do."""
    names = {"cfg": cfg}
    exec(_blocks()[0], names)
    return names["runner"]


def _config_of_page(cfg: Any) -> Any:
    """Train as a ``tools/train.py`` does, with the lines for the config in its file."""
    from mmengine.config import Config
    from mmengine.registry import RUNNERS

    path = Path(cfg.work_dir) / "config.py"
    path.write_text(f"{cfg.pretty_text}\n{_blocks()[1]}")
    runner = RUNNERS.build(Config.fromfile(path))
    assert type(runner).__module__.startswith("lightning_hooks")
    runner.train()
    return runner


def under_library(name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run the script with mmengine's own Runner."""
    from mmengine.runner import Runner

    return _run(Runner, name, case, folder)


def under_us(name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run the script with ours."""
    from lightning_hooks.dialects.mmengine.runner import Runner

    return _run(Runner, name, case, folder)


def in_two(function: Callable[[int], Any]) -> list[Any]:
    """Call a function with the rank in each of two forks; return what each has returned."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    forks = [context.Process(target=_run_rank, args=(function, n, port, results)) for n in (0, 1)]
    for fork in forks:
        fork.start()
    for fork in forks:
        fork.join(120)
        if fork.exitcode != 0:
            for other in forks:
                other.kill()
            raise RuntimeError(f"a rank has ended with {fork.exitcode}")
    return [result for _, result in sorted(results.get() for _ in forks)]


def _run_rank(function: Callable[[int], Any], rank: int, port: int, results: Any) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID="none",
    )
    torch.distributed.init_process_group("gloo")
    results.put((rank, function(rank)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
