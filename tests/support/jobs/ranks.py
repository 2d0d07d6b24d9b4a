"""Train in two processes with different hooks, for test_ranks.py."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lightning_hooks import (
    CheckpointHook,
    ClosureHook,
    DistSamplerSeedHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    SyncBuffersHook,
    TextLoggerHook,
)
from lightning_hooks.dialects import detectron2
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.standin.utils.dist import master_only
from support.device_reads import Waits
from support.foreign_hooks import OptimizerHook
from support.jobs.ddp import make
from support.processes import write_rank
from support.training import (
    NoValidation,
    TinyModule,
    TinyNormModule,
    make_loader,
    make_trainer,
    two_ranks,
)

RANK = int(os.environ.get("LOCAL_RANK", "0"))


class NormModule(TinyNormModule):
    validation_step = None  # type: ignore[assignment]


class Stops(Hook):
    """A user's hook that stops the run."""

    def __init__(self, point: str, at: int) -> None:
        self.at = at
        setattr(self, point, self._stop)

    def _stop(self, runner: Any) -> None:
        if runner.iter >= self.at:
            runner.should_stop = True

    def get_triggered_stages(self) -> list[str]:
        return [stage for stage in self.stages if stage in vars(self)]


class Joins(Callback):
    """Registers a hook in the middle of the second epoch."""

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 1 and batch_idx == 1:
            Driver.of(trainer).runner.register_hook(Stops("after_train_iter", 6))


class MasterSaves(Hook):
    """mmcv's way to save: in a function for rank 0 only, at every point of an epoch."""

    @master_only
    def _save(self, runner: Any, name: str) -> None:
        runner.save_checkpoint(runner.work_dir, name + "_{}.pth", create_symlink=False)

    def before_train_epoch(self, runner: Any) -> None:
        self._save(runner, "before")

    def after_train_iter(self, runner: Any) -> None:
        self._save(runner, "iter")

    def after_train_epoch(self, runner: Any) -> None:
        self._save(runner, "after")

    def after_val_iter(self, runner: Any) -> None:
        self._save(runner, "val_iter")

    def after_val_epoch(self, runner: Any) -> None:
        self._save(runner, "val")

    def after_run(self, runner: Any) -> None:
        self._save(runner, "run")


class Seeds(Hook):
    """Records the sampler's epochs."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def before_train_iter(self, runner: Any) -> None:
        self.found.append(runner.data_loader.sampler.epoch)


class Buffers(Hook):
    """Records a buffer after each iteration."""

    def __init__(self) -> None:
        self.found: list[list[float]] = []

    def after_train_iter(self, runner: Any) -> None:
        self.found.append(runner.module.net[1].running_mean.tolist())

    def after_run(self, runner: Any) -> None:
        self.after_train_iter(runner)


def iterations(out: Path, *hooks: Any, epochs: int = 3) -> int:
    """Train and return the number of iterations."""
    module = NoValidation()
    make(out, *hooks, epochs=epochs).fit(module, make_loader(8))
    return len(module.losses)


def stopped(out: Path) -> dict[str, int]:
    """Run with a user's hook on only one rank."""
    native = [IterTimerHook(), EMAHook()]
    found = {}
    for rank in (0, 1):
        for point in ("before_train_iter", "after_train_iter", "after_train_epoch"):
            own = [Stops(point, 2)] if rank == RANK else []
            found[f"{point} on {rank}"] = iterations(out, *copy.deepcopy(native), *own)
    found["another number"] = iterations(
        out, HookAdapter([IterTimerHook()] if RANK else [EMAHook(), Stops("after_train_iter", 1)])
    )
    own = [Joins()] if RANK == 1 else []
    found["a hook that came later"] = iterations(out, IterTimerHook(), *own, epochs=4)
    stop = Stops("after_train_iter", 1)._stop if RANK == 0 else repr
    found["a closure"] = iterations(out, ClosureHook("after_train_iter", stop))
    own = [Stops("after_train_iter", 2)] if RANK == 1 else [IterTimerHook()]
    for border, arguments in {
        "a validation": {"val_check_interval": 2},
        "a checkpoint": {"callbacks": [SavesAt(3)]},
        "a pass": {"max_epochs": -1, "max_steps": 20},
    }.items():
        module = TinyModule() if border == "a validation" else NoValidation()
        hooks = [HookAdapter(copy.deepcopy(own), by_epoch=border != "a pass")]
        trainer = make_trainer(out, *hooks, **{"max_epochs": 3, **two_ranks(), **arguments})
        trainer.fit(module, make_loader(16 if border == "a validation" else 8), make_loader(2))
        found[border] = trainer.global_step
    return found


class SavesAt(Callback):
    """Writes a checkpoint on all ranks."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/border.ckpt")


class Quiet(NoValidation):
    """Reads nothing in a step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(batch)


class Plain:
    """A hook of the user's with a point in each batch."""

    def after_train_iter(self, runner: Any) -> None: ...


class Foreign(Plain, Hook):
    """A user's callback with a point in each batch."""


class Total(Hook):
    """Counts iterations; the count is in checkpoints."""

    total = 0

    def after_train_iter(self, runner: Any) -> None:
        self.total += 1

    def state_dict(self) -> dict[str, int]:
        return {"total": self.total}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.total = state_dict["total"]


def totals(out: Path) -> list[int]:
    """Return a count in a run and in a resumed run, of a hook alone and in an adapter."""
    found = []
    for host in (list, lambda hooks: [HookAdapter(hooks)]):
        for epochs in (1, 2):
            hook = Total()
            trainer = make(out, *host([hook]), epochs=epochs)
            path = None if epochs == 1 else out / "total.ckpt"
            trainer.fit(NoValidation(), make_loader(8), ckpt_path=path)
            trainer.save_checkpoint(out / "total.ckpt", weights_only=False)
            found.append(hook.total)
    return found


def waits(out: Path) -> dict[str, list[str]]:
    """Return the waits of a step, with and without a user's hook."""
    found = {}
    for name, hooks in {
        "none": [],
        "foreign": [Foreign(), EMAHook()],
        "adapted": [HookAdapter([Plain(), EMAHook()])],
    }.items():
        look = Waits()
        make(out, look, *hooks, epochs=1).fit(Quiet(), make_loader(16))
        found[name] = look.collectives + look.reads
    return found


def buffers(out: Path) -> dict[str, Any]:
    """Return the BatchNorm buffers, which differ between ranks without DDP's broadcast."""
    found = {}
    for name, sync in {
        "plain": [],
        "hook": [SyncBuffersHook()],
        "saved": [
            CheckpointHook(
                interval=2,
                by_epoch=False,
                sync_buffer=True,
                filename_tmpl="bn_{}.pth",
                save_last=False,
            )
        ],
    }.items():
        look = Buffers()
        trainer = make(out, HookAdapter([*sync, look], by_epoch=False, work_dir=str(out)))
        trainer.strategy._ddp_kwargs["broadcast_buffers"] = False
        trainer.fit_loop.max_epochs, trainer.fit_loop.epoch_loop.max_steps = -1, 4
        trainer.fit(NormModule(), make_loader(8))
        found[name] = look.found
    found["mid_epoch"] = [validated(out, by_epoch) for by_epoch in (True, False)]
    return found


def validated(out: Path, by_epoch: bool) -> list[list[float]]:
    """Return the buffer in each of the two validations of an epoch."""

    class Validates(TinyNormModule):
        def on_validation_epoch_start(self) -> None:
            found.append(self.net[1].running_mean.tolist())

    found: list[list[float]] = []
    hooks = HookAdapter([SyncBuffersHook()], by_epoch=by_epoch)
    options = {"val_check_interval": 2, "num_sanity_val_steps": 0, **two_ranks()}
    trainer = make_trainer(out, hooks, **options)
    trainer.strategy._ddp_kwargs["broadcast_buffers"] = False
    trainer.fit(Validates(), make_loader(8), make_loader(2))
    return found


def seeds(out: Path) -> list[int]:
    data = TensorDataset(torch.randn(8, 4), torch.randn(8, 2))
    loader = DataLoader(data, 2, sampler=DistributedSampler(data, 2, RANK))
    look = Seeds()
    trainer = make(out, DistSamplerSeedHook(), look, epochs=2)
    trainer.fit(NoValidation(), loader)
    return look.found


def copies(out: Path) -> int:
    """Train further with pickled copies of a Trainer's callbacks, including the driver."""
    trainer = make(out, HookAdapter([EMAHook()]), Stops("after_train_iter", 9), epochs=1)
    trainer.fit(NoValidation(), make_loader(4))
    again = pickle.loads(pickle.dumps(trainer.callbacks))
    return iterations(out, *again, epochs=2)


class LastLoss(detectron2.HookBase):
    """Records the last loss in the storage."""

    def after_train(self) -> None:
        self.found = self.trainer.storage.latest()["total_loss"][0]


def averages(out: Path) -> dict[str, Any]:
    """Return the rank's averages of weights and buffers."""
    found = {}
    for buffers in ("copy", "average"):
        ema = EMAHook(momentum=0.1, warm_up=0, buffers=buffers)
        module = NormModule()
        make(out, HookAdapter([ema, CheckpointHook(filename_tmpl=buffers + "_{}.pth")])).fit(
            module, make_loader(8)
        )
        state = ema.ema_state_dict()
        names = {name for name, _ in module.named_parameters()}
        found[buffers] = {
            kind: {k: v.tolist() for k, v in state.items() if (k in names) == (kind == "weights")}
            for kind in ("weights", "buffers")
        }
    return found


class Watched(NormModule):
    """Records BatchNorm's mean at the start of each step, after DDP's broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.means: list[list[float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.means.append(self.net[1].running_mean.tolist())
        return super().training_step(batch, batch_idx)


class AfterSteps(Hook):
    """Records BatchNorm's mean after each step."""

    def __init__(self) -> None:
        self.means: list[list[float]] = []

    def after_train_iter(self, runner: Any) -> None:
        self.means.append(runner.module.net[1].running_mean.tolist())


def statistics(out: Path) -> dict[str, Any]:
    """Return the rank's BatchNorm statistics and averages, with automatic and owned backward."""
    found = {}
    for backward, owners in {"automatic": [], "owned": [OptimizerHook()]}.items():
        ema = EMAHook(momentum=0.1, warm_up=0, buffers="average")
        module, look, save = Watched(), AfterSteps(), CheckpointHook(filename_tmpl="stats_{}.pth")
        hooks = HookAdapter([*owners, ema, look, save], work_dir=str(out / backward))
        make(out, hooks, epochs=1).fit(module, make_loader(8))
        average = ema.ema_state_dict()["net.1.running_mean"].tolist()
        found[backward] = {"before": module.means, "after": look.means, "average": average}
    return found


def one_with_a_dialect(out: Path) -> list[float]:
    """Return the last loss with detectron2's hooks on only the first rank."""
    last, module = LastLoss(), NoValidation()
    hooks = [IterTimerHook(), last] if RANK == 0 else [IterTimerHook()]
    make(out, HookAdapter(hooks), epochs=1).fit(module, make_loader(8))
    return [module.losses[-1], last.found if RANK == 0 else 0.0]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {"stopped": stopped(out), "seeds": seeds(out), "copies": copies(out)}
    found["waits"] = waits(out)
    found["totals"] = totals(out)
    found["buffers"] = buffers(out)
    found["averages"] = averages(out)
    found["statistics"] = statistics(out)
    found["dialect"] = one_with_a_dialect(out)
    logs = out / "logs"
    others = [EMAHook(), CheckpointHook(interval=1), IterTimerHook(), TextLoggerHook(interval=1)]
    adapter = HookAdapter([MasterSaves(), *others], work_dir=str(logs))
    make(logs, adapter, epochs=2).fit(TinyModule(), make_loader(4), make_loader(2))
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
