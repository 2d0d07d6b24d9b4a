"""Run the runners of real packages: ``run_runners.py mmcv|runner packages_directory out.json``.

``mmcv``: on real mmcv; ``runner``: on the stand-in. Each runner trains, then a second runner
resumes from the first checkpoint.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "golden")]
from packages import load, stub  # noqa: E402

Data = torch.Tensor


def install_files(source: Path) -> None:
    """Replace easycv's file modules, which need clients of services, with local file functions."""
    stub(source)
    rates = load(source, "mmrazor/core/utils/lr.py")
    importlib.import_module("mmrazor.core.utils").set_lr = rates.set_lr  # type: ignore[attr-defined]
    files = importlib.import_module("easycv.file")
    files.io = SimpleNamespace(isdir=os.path.isdir, makedirs=os.makedirs, open=open)  # type: ignore[attr-defined]
    sys.modules["easycv.file.utils"] = utils = ModuleType("easycv.file.utils")
    utils.is_url_path = lambda path: False  # type: ignore[attr-defined]


def loader(seed: int, sampler: Any = None) -> DataLoader[Data]:
    """Return eight rows in batches of two."""
    rows: Any = torch.rand(8, 2, generator=torch.Generator().manual_seed(seed))
    return DataLoader(rows, batch_size=2, sampler=sampler)


class Endless(Sampler[int]):
    """An endless sampler whose length is a single pass."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(8)

    def __len__(self) -> int:
        return 8


class Net(nn.Module):
    """A linear layer stepped by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)

    def train_step(self, data: Data, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        """Compute the loss of a batch."""
        loss = self.net(data).square().mean()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data)}

    val_step = train_step

    def optimizers(self) -> Any:
        """Return the runner's optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Searched(Net):
    """Steps two parts on separate batches, as an architecture search does."""

    def __init__(self) -> None:
        super().__init__()
        self.mutator = nn.Linear(2, 1)
        self.mutator.search_subnet = self.search_subnet = lambda: {"choice": 1}

    def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        """Step both parts."""
        for part, batch in zip(("mutator", "net"), data, strict=True):
            loss = getattr(self, part)(batch).square().mean()
            optimizer[part].zero_grad()
            loss.backward()
            optimizer[part].step()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data[0])}

    def optimizers(self) -> Any:
        """Return an optimizer for each part."""
        parts = {"mutator": self.mutator, "net": self.net}
        return {name: torch.optim.SGD(of.parameters(), lr=0.1) for name, of in parts.items()}


class Generator(Net):
    """Creates and steps its optimizers, as mmgen's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = {"net": torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)}

    def train_step(self, data: Data, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        """Step with a gradient that grows with the iteration."""
        outputs = super().train_step(data, optimizer)
        optimizer["net"].zero_grad()
        (outputs["loss"] * (1 + kwargs["running_status"]["iteration"])).backward()
        optimizer["net"].step()
        return outputs

    def optimizers(self) -> Any:
        """Return None, because the model creates the optimizers."""
        return None


@dataclass(frozen=True)
class Case:
    """A runner and its run."""

    file: str
    made: dict[str, Any]
    loaders: Callable[[], list[Any]]
    workflow: Any = (("train", 1),)
    model: type[Any] = Net
    run: dict[str, Any] = field(default_factory=dict)
    lr: dict[str, Any] = field(default_factory=dict)
    first: str = "epoch_1.pth"


TWO_EPOCHS = {"max_epochs": 2}
FROZEN = {"freeze_optimizers": ["mutator"]}
CASES = {
    "easycv.EVRunner": Case(
        "easycv/runner/ev_runner.py",
        {},
        lambda: [loader(1), loader(2)],
        (("train", 1), ("val", 1)),
        run=TWO_EPOCHS,
    ),
    "mmaction.OmniSourceRunner": Case(
        "mmaction/core/runner/omnisource_runner.py",
        TWO_EPOCHS,
        lambda: [loader(1), loader(2)],
        run={"train_ratio": [2, 2]},
    ),
    "mmfewshot.InfiniteEpochBasedRunner": Case(
        "mmfewshot/utils/runner.py", TWO_EPOCHS, lambda: [loader(1, Endless())]
    ),
    "mmgen.DynamicIterBasedRunner": Case(
        "mmgen/core/runners/dynamic_iterbased_runner.py",
        {"max_iters": 6, "pass_training_status": True},
        lambda: [loader(1)],
        model=Generator,
        first="iter_3.pth",
    ),
    "mmrazor.MultiLoaderEpochBasedRunner": Case(
        "mmrazor/core/runners/epoch_based_runner.py",
        TWO_EPOCHS,
        lambda: [[loader(1), loader(2)]],
        model=Searched,
        lr=FROZEN,
    ),
    "mmrazor.MultiLoaderIterBasedRunner": Case(
        "mmrazor/core/runners/iter_based_runner.py",
        {"max_iters": 4},
        lambda: [[loader(1), loader(2)]],
        model=Searched,
        lr=FROZEN,
        first="iter_3.pth",
    ),
}


def run(name: str, source: Path, folder: Path, resumed: Path | None = None) -> dict[str, Any]:
    """Train, from a checkpoint or anew; return the calls, the weights, the files and the rows."""
    import own_loops
    from mmcv.parallel import MMDataParallel

    case, kind = CASES[name], name.partition(".")[2]
    torch.manual_seed(0)
    model = case.model()
    runner = getattr(load(source, case.file), kind)(
        MMDataParallel(model, device_ids=[]),
        optimizer=model.optimizers(),
        **own_loops.given(folder),
        **case.made,
    )
    by_epoch = "max_iters" not in case.made
    rates = {"policy": "step", "step": [1], "by_epoch": by_epoch, **case.lr}
    calls = own_loops.register(runner, rates, by_epoch, case.model is Net)
    if resumed:
        runner.resume(str(resumed), map_location="cpu")
    with mock.patch("time.sleep"):
        runner.run(case.loaders(), list(case.workflow), **case.run)
    if kind.startswith("MultiLoader"):
        runner.search_subnet(str(folder))
    found = {"calls": calls, "weights": own_loops.weights(model), **own_loops.left(folder)}
    return {**found, "subnets": sorted(path.name for path in folder.glob("*.yaml"))}


def main(source: Path, out: Path) -> None:
    """Run and resume every case."""
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder, "first"), Path(folder, "second")
            first.mkdir()
            second.mkdir()
            trained = run(name, source, first)
            again = run(name, source, second, resumed=first / case.first)
            results[name] = {"trained": trained, "resumed": again}
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    which, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if which == "mmcv":
        import oracle  # noqa: F401
    else:
        from lightning_hooks.standin.finder import Finder

        sys.meta_path.insert(0, Finder())  # also before a real mmcv
    install_files(source)
    main(source, out)
