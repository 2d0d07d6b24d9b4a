"""Train with DDP, FSDP and FSDP2 in two processes, for test_fsdp.py.

python -m support.jobs.fsdp DIRECTORY PART...
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.precision import FSDPPrecision
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError

import lightning_hooks as lh
from lightning_hooks import HookAdapter, standin
from lightning_hooks.storage import manifest
from support.fsdp_on_cpu import FSDPOnCPU
from support.training import TinyNormModule, fit

KINDS = ("ddp", "fsdp", "fsdp2")
SHARDINGS = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")


class Module(TinyNormModule):
    """A module with an optional NaN as the fifth loss of the second rank."""

    spoils = False
    steps = 0

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy) and not hasattr(
            self.net, "reshard"
        ):
            mesh: Any = self.device_mesh
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.steps += 1
        bad = self.spoils and self.steps == 5 and self.trainer.global_rank == 1
        return self.loss(batch) * (torch.nan if bad else 1)

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("val_loss", loss, batch_size=len(batch[0]), sync_dist=True)
        return loss


class Explodes(Module):
    """A module with an infinite number in the gradient of the third batch."""

    def on_after_backward(self) -> None:
        is_whole = isinstance(self.trainer.strategy, DDPStrategy)
        if self.steps == 3 and (is_whole or self.trainer.global_rank == 0):
            gradient: Any = next(self.parameters()).grad
            getattr(gradient, "_local_tensor", gradient).view(-1)[0] = torch.inf


class Flat(Module):
    """A module whose optimizer has FSDP's flat parameters."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert self.trainer.model is not None
        parameters = self.trainer.model.parameters()
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum)


class InParts(Module):
    """A module that wraps only a part in FSDP."""

    def configure_model(self) -> None:
        if not isinstance(self.net, FullyShardedDataParallel):
            self.net = FullyShardedDataParallel(
                self.net, device_id=torch.device("cpu"), use_orig_params=True
            )


class Scores(TensorDataset):
    """A dataset of four samples with targets for a :class:`torchmetrics.Metric`."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        super().__init__(*(torch.randn(4, n, generator=generator) for n in (4, 2)))


def strategy_of(kind: str, **kwargs: Any) -> Any:
    if kind == "ddp":
        return "ddp"
    if kind == "fsdp":
        return FSDPOnCPU(**{"auto_wrap_policy": ModuleWrapPolicy([nn.Linear]), **kwargs})
    sizes = {"data_parallel_size": 2, "tensor_parallel_size": 1}
    return ModelParallelStrategy(process_group_backend="gloo", **sizes, **kwargs)


def train(kind: str, out: Path, *hooks: Any, strategy: Any = None, **options: Any) -> L.Trainer:
    """Train with hooks in an adapter, by a kind of strategy."""
    options = {"module": Module, "max_epochs": 2, "num_sanity_val_steps": 0, **options}
    options |= {"devices": 2, "strategy": strategy_of(kind, **(strategy or {}))}
    return fit(out, *hooks, batches=6, val=2, work_dir=str(out), **options)


def whole(trainer: L.Trainer) -> list[torch.Tensor]:
    """Return copies of the unsharded parameters and the buffers."""
    module = trainer.lightning_module
    is_flat = isinstance(trainer.model, FullyShardedDataParallel)
    if is_flat:
        with FullyShardedDataParallel.summon_full_params(trainer.model, writeback=False):
            found = [p.detach().clone() for p in module.parameters()]
    else:
        found = [
            (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
            for p in module.parameters()
        ]
    if len(found) == 1:  # FSDP's flat parameter, with padding at the end
        found = [found[0][:58]]
    return [*found, *(buffer.clone() for buffer in module.buffers())]


# -- same results as with DDP ------------------------------------------------------------------


def acts(kind: str, out: Path) -> dict[str, Any]:
    """Run each action of CheckInvalidLossHook on a NaN loss of one rank."""
    found: dict[str, Any] = {}
    for action in ("skip", "restore", "stop"):
        module = Module()
        module.spoils = True
        hook = lh.CheckInvalidLossHook(interval=1, action=action)
        trainer = train(kind, out, hook, module=module, val_check_interval=1)
        found[action] = {"whole": whole(trainer), "steps": trainer.global_step}
    module = Module()
    module.spoils = True
    try:
        train(kind, out, lh.CheckInvalidLossHook(interval=1), module=module)
    except lh.InvalidLossError as error:
        found["raise"] = {"said": str(error).splitlines()[0]}
    return found


def measures(kind: str, out: Path) -> dict[str, Any]:
    """Run the hooks that call the model; return the BatchNorm statistics and scores."""
    scores: list[float] = []

    class Look(lh.Hook):
        priority = "LOWEST"

        def after_train_epoch(self, runner: Any) -> None:
            scores.append(float(runner.log_buffer.output["MeanSquaredError"]))

    loader = DataLoader(Scores(), batch_size=2)
    hooks = [
        lh.PreciseBNHook(num_iters=3),
        lh.SyncBuffersHook(),
        lh.EvalHook(loader, metric=MeanSquaredError(), save_best="MeanSquaredError", rule="less"),
        Look(),
    ]
    trainer = train(kind, out, *hooks)
    best = [path.name for path in out.glob("best_*")]
    return {"whole": whole(trainer), "scores": scores, "best": best}


def clips(kind: str, out: Path) -> dict[str, Any]:
    """Clip gradients under accumulation, and clip infinite gradients."""
    found = {}
    recipes = {"norm": {"max_norm": 0.05}, "value": {"type": "value", "clip_value": 0.01}}
    recipes |= {"auto": {"type": "auto", "percentile": 40}}
    for name, recipe in recipes.items():
        trainer = train(kind, out, lh.OptimizerHook(recipe), accumulate_grad_batches=2)
        found[name] = whole(trainer)
    trainer = train(kind, out, lh.OptimizerHook(recipes["value"]), module=Explodes())
    found["infinite"] = whole(trainer)
    return found


def norms(kind: str, out: Path) -> dict[str, Any]:
    """The norms of weights, gradients and updates, by layer."""
    hooks = lh.WatchHook(2, "norms", depth=3), lh.TextLoggerHook(interval=2)
    train(kind, out, *hooks)
    if torch.distributed.get_rank():
        return {}
    (log,) = out.glob("*.log.json")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return {"rows": [{k: v for k, v in row.items() if "/" in k} for row in rows if "loss" in row]}


def owns(kind: str, out: Path) -> dict[str, Any]:
    """Run hooks that own backward; FSDP refuses these hooks."""
    hooks = {
        "cumulative": lh.GradientCumulativeOptimizerHook(2, grad_clip={"max_norm": 0.05}),
        "scaled": lh.Fp16OptimizerHook(grad_clip={"max_norm": 0.05}, loss_scale=64.0),
        "both": lh.GradientCumulativeFp16OptimizerHook(2, loss_scale=64.0),
    }
    if kind == "fsdp":
        return {name: _said(kind, out, hook, owns_backward=True) for name, hook in hooks.items()}
    return {name: whole(train(kind, out, hook, owns_backward=True)) for name, hook in hooks.items()}


def scales(kind: str, out: Path) -> dict[str, Any]:
    """Return the norms of gradients, unscaled by FSDP's scaler, or plain with DDP."""
    if kind == "fsdp2":
        return {}
    hook: Any = lh.OptimizerHook({"max_norm": 0.05})
    kwargs: dict[str, Any] = {}
    if kind == "fsdp":
        hook = lh.Fp16OptimizerHook(grad_clip={"max_norm": 0.05}, loss_scale=512.0)
        precision = FSDPPrecision("16-mixed")
        precision.scaler = ShardedGradScaler(device="cpu")  # the default scaler needs a GPU
        kwargs["plugins"] = [precision]
    norms: list[float] = []

    class Look(lh.Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner: Any) -> None:
            norms.append(float(runner.log_buffer.val_history["grad_norm"][-1]))

    trainer = train(kind, out, hook, Look(), **kwargs)
    scaler: Any = getattr(trainer.precision_plugin, "scaler", None)
    return {"norms": norms, "scale": None if scaler is None else scaler.get_scale()}


class FirstIsBest(Module):
    """A module with the best score in the first validation; records the validated weights."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", 1.0 - self.trainer.current_epoch)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.current_epoch == 0:
            self.best = whole(self.trainer)


def loads_best(kind: str, out: Path) -> dict[str, Any]:
    """Return the weights after a fit and the weights of the best validation."""
    found = {}
    strategies = {"file": {}} if kind == "ddp" else written(kind)
    for what, strategy in strategies.items():
        for average in [[], [lh.EMAHook(momentum=0.3, warm_up=0)]]:
            hooks, module = [lh.BestCheckpointHook("acc", load_at_end=True)], FirstIsBest()
            here = out / f"{what} {len(average)}"
            trainer = train(kind, here, *hooks, *average, module=module, strategy=strategy)
            found[here.name] = {"after": whole(trainer), "best": module.best}
    return found


# -- saved files -------------------------------------------------------------------------------


def resumes(kind: str, out: Path, module: Any = Module, **kwargs: Any) -> dict[str, Any]:
    """Run once with a resume and once without interruption."""
    given = {k: kwargs.pop(k) for k in ("background", "save_best") if k in kwargs}

    def hooks() -> list[Any]:
        clip, look = lh.OptimizerHook({"max_norm": 0.05}), lh.CheckInvalidLossHook(interval=2)
        save = lh.CheckpointHook(1, max_keep_ckpts=1, sync_buffer=True, **given)
        return [save, clip, look]

    train(kind, out, *hooks(), module=module(), **kwargs)
    adapter = HookAdapter([lh.CheckpointHook()], work_dir=str(out))
    last = adapter.last_checkpoint
    torch.distributed.barrier()  # the other rank may still be looking
    trainer = train(
        kind, out, *hooks(), module=module(seed=7), ckpt_path=last, max_epochs=3, **kwargs
    )
    files = sorted(path.name for path in out.glob("*_*.pth"))
    listed = [entry.name for entry in manifest.read(str(out))]
    found = {"went on": whole(trainer), "last": last, "files": files, "listed": listed}
    found["is directory"] = (out / files[-1]).is_dir()
    plain = train(kind, out / "other", *hooks(), module=module(), max_epochs=3, **kwargs)
    found["not interrupted"] = whole(plain)
    return found


def saves(kind: str, out: Path) -> dict[str, Any]:
    """Save both kinds of checkpoint with FSDP."""
    return {} if kind != "fsdp" else both_kinds(kind, out)


def both_kinds(kind: str, out: Path) -> dict[str, Any]:
    return {
        what: resumes(kind, out / what, strategy=strategy, save_best="val_loss")
        for what, strategy in written(kind).items()
    }


def written(kind: str) -> dict[str, dict[str, Any]]:
    """Return the strategy arguments to write checkpoint directories and to write files."""
    name = "state_dict_type" if kind == "fsdp" else "save_distributed_checkpoint"
    values = ("sharded", "full") if kind == "fsdp" else (True, False)
    return {what: {name: value} for what, value in zip(("directory", "file"), values, strict=True)}


def saves_all(kind: str, out: Path) -> dict[str, Any]:
    """Save with every sharding and wrapping of FSDP, and in a background thread."""
    if kind != "fsdp":
        return both_kinds(kind, out) if kind == "fsdp2" else {}
    found = {}
    for state in ("sharded", "full"):
        cases: dict[str, Any] = {
            sharding: {"strategy": {"sharding_strategy": sharding}} for sharding in SHARDINGS
        }
        cases["not nested"] = {"strategy": {"auto_wrap_policy": None}}
        cases["background"] = {"background": True}
        for name, case in cases.items():
            strategy = {"state_dict_type": state, **case.pop("strategy", {})}
            found[f"{state} {name}"] = resumes(kind, out / state / name, strategy=strategy, **case)
    flat = {"state_dict_type": "sharded", "use_orig_params": False, "auto_wrap_policy": None}
    found["flat"] = resumes(kind, out / "flat", module=Flat, strategy=flat)
    return found


def weights(kind: str, out: Path) -> dict[str, Any]:
    """Files without the optimizer's state are not gone on from; the model's alone."""
    if kind == "ddp":
        return {}
    found: dict[str, Any] = {}
    for what, strategy in written(kind).items():
        here = out / what
        hook = lh.CheckpointHook(save_optimizer=False, max_keep_ckpts=1)
        trainer = train(kind, here, hook, strategy=strategy)
        last = str(here / "epoch_2.pth")
        found[f"export {what}"] = _exported(hook, trainer, out / f"export_{what}.pth")
        found[f"whole {what}"] = whole(trainer)
        if what == "directory":
            hook._last.kind = "best"  # as a BestCheckpointHook's
            found["export best"] = _exported(hook, trainer, out / "export_best.pth")
        found[what] = _said(kind, here, lh.CheckpointHook(), strategy=strategy, ckpt_path=last)
    found["whole"] = whole(trainer)
    return found


def _exported(hook: Any, trainer: Any, path: Path) -> Any:
    """Return the parameters exported by a hook, or the error."""
    try:
        hook.export(str(path))
    except ValueError as error:
        return str(error)
    exported = torch.load(path, weights_only=True)
    keys = [name for name, _ in trainer.lightning_module.named_parameters()]
    return [exported[key.replace("_fsdp_wrapped_module.", "")] for key in keys]


# -- refusals ----------------------------------------------------------------------------------


def _said(kind: str, out: Path, hook: Any, **kwargs: Any) -> str:
    """Return the error of a refused hook with the step of the error."""
    module = kwargs.pop("module", None) or Module()
    try:
        train(kind, out, hook, module=module, **kwargs)
    except Exception as error:
        torch.distributed.barrier()
        return f"{type(error).__name__} in step {module.steps}: {error}"
    return ""


class Saves(lh.Hook):
    """An old hook that saves a checkpoint on one rank."""

    def after_train_iter(self, runner: Any) -> None:
        if runner.rank == 0:
            runner.save_checkpoint(runner.work_dir)
        else:
            raise ValueError("the other rank")


class Loads(lh.Hook):
    """An old hook that loads a checkpoint."""

    def before_run(self, runner: Any) -> None:
        runner.load_checkpoint("a.pth")


def refuses(kind: str, out: Path) -> dict[str, Any]:
    """Return the errors of all unsupported hooks."""
    if kind == "ddp":
        return {}
    mmcv_ema = __import__("lightning_hooks.standin._hooks.ema", fromlist=["EMAHook"]).EMAHook
    remote = {"state_dict_type": "sharded"} if kind == "fsdp" else {}
    cases: dict[str, Callable[[], str]] = {
        "mmcv's EMA": lambda: _said(kind, out, mmcv_ema()),
        "remote": lambda: _said(
            kind, out, lh.CheckpointHook(out_dir="memory://there"), strategy=remote
        ),
        "remote best": lambda: _said(
            kind, out, lh.BestCheckpointHook("val_loss", out_dir="memory://it"), strategy=remote
        ),
        "save": lambda: _said(kind, out, Saves()),
        "load": lambda: _said(kind, out, Loads()),
    }
    if kind == "fsdp":
        flat: dict[str, Any] = {"strategy": {"use_orig_params": False}}
        groups: Any = [{"max_norm": 1.0}]
        cases |= {
            "backward": lambda: _said(kind, out, lh.GradientCumulativeOptimizerHook(2)),
            "groups": lambda: _said(kind, out, lh.OptimizerHook(groups)),
            "parts": lambda: _said(
                kind, out, lh.OptimizerHook({"max_norm": 1.0}), module=InParts()
            ),
            "scaled": lambda: _said(
                kind, out, lh.Fp16OptimizerHook(), module=InParts(), owns_backward=True
            ),
            "one state": lambda: _said(kind, out, lh.CheckpointHook(), module=Flat(), **flat),
        }
    return {name: case() for name, case in cases.items()}


def main(out: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    standin.install()
    warnings.simplefilter("ignore")
    parts = (
        acts,
        measures,
        clips,
        norms,
        owns,
        scales,
        loads_best,
        saves,
        saves_all,
        weights,
        refuses,
    )
    found: dict[str, Any] = {
        part.__name__: {kind: part(kind, out / part.__name__ / kind) for kind in KINDS}
        for part in parts
        if part.__name__ in names
    }
    torch.save(found, out / f"found{os.environ.get('LOCAL_RANK', 0)}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
