"""Train with DDP in two processes, for test_ddp.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lightning_hooks import Hook, TensorboardLoggerHook, TrainStepModule
from support.foreign_hooks import OptimizerHook
from support.processes import write_rank
from support.training import NoValidation, fit, make_loader, make_trainer, two_ranks


class Look(Hook):
    """Records the batches, counters and weights of the rank."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"batches": []}

    def before_run(self, runner: Any) -> None:
        self.found.update(rank=runner.rank, world_size=runner.world_size)
        self.found["bare"] = type(runner.model.module).__name__

    def after_train_iter(self, runner: Any) -> None:
        self.found["batches"].append(runner.data_batch[0][:, 0].tolist())
        self.found["iters"] = runner.iter + 1

    def after_run(self, runner: Any) -> None:
        self.found["weights"] = runner.model.module.net.weight.tolist()


class SaveOnRank0(Hook):
    """Saves as in mmcv: on rank 0 only, without a barrier."""

    def after_train_epoch(self, runner: Any) -> None:
        if runner.rank == 0:
            runner.save_checkpoint(runner.work_dir, create_symlink=False)


class StopOnRank0(Hook):
    def after_train_iter(self, runner: Any) -> None:
        if runner.rank == 0 and runner.iter == 1:
            runner.should_stop = True


class StopBeforeTheStepOnRank0(Hook):
    _reads_step = False

    def before_train_iter(self, runner: Any) -> None:
        if runner.rank == 0 and runner.iter == 1:
            runner.should_stop = True


class ReplaceModelForAMoment(Hook):
    def before_run(self, runner: Any) -> None:
        kept, runner.model = runner.model, NoValidation(seed=5)
        runner.model = kept


class ReplaceModel(Hook):
    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 1:
            runner.model = NoValidation(seed=5)


class TwoOptimizers(torch.nn.Module):
    """A model that runs backward and the optimizer steps in ``train_step``."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = torch.nn.ModuleList([torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)])

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        for net, one in zip(self.nets, optimizer.values(), strict=True):
            one.zero_grad()
            torch.nn.functional.mse_loss(net(data[0]), data[1]).backward()
            one.step()
        return {"log_vars": {}, "num_samples": len(data[0])}


class Replace(Hook):
    def before_run(self, runner: Any) -> None:
        data = TensorDataset(torch.arange(8.0)[:, None].repeat(1, 4), torch.zeros(8, 2))
        runner.data_loader = DataLoader(data, batch_size=2)

    def before_train_iter(self, runner: Any) -> None:
        self.sampler = type(runner.data_loader.sampler).__name__
        assert isinstance(runner.data_loader.sampler, DistributedSampler)


def make(out: Path, *callbacks: Any, epochs: int = 2) -> Any:
    """Make a Trainer of two processes."""
    return make_trainer(out, *callbacks, max_epochs=epochs, **two_ranks())


def train(out: Path, *hooks: Any, epochs: int = 2) -> tuple[Any, Any]:
    """Train; return the Trainer and the results of the rank."""
    look = Look()
    options = {"work_dir": str(out), "max_epochs": epochs, **two_ranks()}
    return fit(out, *hooks, look, module=NoValidation, **options), look.found


def stopped_before_the_step(out: Path) -> int:
    module = NoValidation()
    make(out, StopBeforeTheStepOnRank0()).fit(module, make_loader(4))
    return len(module.losses)


def refused(out: Path) -> str:
    try:
        train(out, ReplaceModel())
    except RuntimeError as error:
        return str(error)
    return ""


def warned_of_a_model_that_does_backward(out: Path) -> list[str]:
    model = TwoOptimizers()
    optimizers = {
        str(i): torch.optim.SGD(net.parameters(), 0.1) for i, net in enumerate(model.nets)
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(out, SaveOnRank0(), epochs=1).fit(TrainStepModule(model, optimizers), make_loader(2))
    return [str(one.message) for one in caught]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    writers = []
    if importlib.util.find_spec("tensorboard") is not None:
        writers = [TensorboardLoggerHook(interval=1, strict=True)]
    trainer, found["owned"] = train(out, OptimizerHook(), SaveOnRank0(), *writers)
    torch.manual_seed(trainer.global_rank)
    trainer.save_checkpoint(out / "lightning.ckpt")
    found["global_step"] = trainer.global_step
    _, found["automatic"] = train(out, ReplaceModelForAMoment())
    _, found["stopped"] = train(out, StopOnRank0())
    found["stopped before the step"] = stopped_before_the_step(out)
    found["warned"] = warned_of_a_model_that_does_backward(out)
    found["refused"] = refused(out)
    _, found["replaced"] = train(out, Replace(), epochs=1)
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
