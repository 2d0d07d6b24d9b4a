"""The memory of an average of the weights, and the size of a file with it, as parts of the weights.

Either all parameters of a net are trained, or a low-rank adapter with 0.1 % of the parameters. A
figure is the bytes of all live tensors after a step, minus the bytes of a run without an average; a
file has no optimizer states.

    python -m benchmarks memory
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging

from benchmarks.measure import Bench, Figures, has, make_loader, quiet_trainer
from benchmarks.precise_bn import loaded_by_path
from lightning_hooks import EMAHook

WIDTH, LAYERS = 1024, 8


class Net(L.LightningModule):
    """Linear layers, with or without an adapter; frozen with one."""

    def __init__(self, adapts: bool) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        )
        self.layers.requires_grad_(not adapts)
        self.adapter = torch.nn.Linear(WIDTH, 8, bias=False)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return a loss."""
        return self.adapter(self.layers(batch)).square().mean()

    def configure_optimizers(self) -> Any:
        """Return an optimizer without a state."""
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)


class Measured(Callback):
    """Counts the bytes of the tensors after the steps."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Count the bytes."""
        gc.collect()
        tensors = [x for x in gc.get_objects() if isinstance(x, torch.Tensor)]
        memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
        self.bytes = sum(memory.values())


class OfTimm(Callback):
    """Keeps timm's average and adds the average to the checkpoint, as timm's script does."""

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Copy the model."""
        kind = loaded_by_path("timm", "utils/model_ema.py").ModelEmaV3
        layers = torch.nn.ModuleList([module.layers, module.adapter])  # type: ignore[list-item]
        self.average = kind(layers, decay=0.99)

    def on_save_checkpoint(self, *arguments: Any) -> None:
        """Add the average."""
        arguments[-1]["state_dict_ema"] = self.average.module.state_dict()


def measured(adapts: bool, make: Callable[[], Any] | None) -> tuple[float, float]:
    """Return the bytes in memory, and of a file, as parts of the weights."""
    net, count = Net(adapts), Measured()
    weights = sum(p.numel() * p.element_size() for p in net.parameters())
    with tempfile.TemporaryDirectory() as directory:
        callbacks = [*([make()] if make else []), count]
        trainer = quiet_trainer(directory, *callbacks)
        trainer.fit(net, make_loader([torch.ones(WIDTH)] * 2))
        path = Path(directory, "run.ckpt")
        trainer.save_checkpoint(path)
        return count.bytes / weights, path.stat().st_size / weights


def run(rounds: int = 1) -> Iterator[Bench]:
    """Measure each average."""
    cases: dict[str, Callable[[], Any] | None] = {
        "no average": None,
        "EMAHook": lambda: EMAHook(0.01),
        "Lightning EMAWeightAveraging": lambda: EMAWeightAveraging(decay=0.99),
    }
    if has("timm"):
        cases["timm ModelEmaV3"] = OfTimm
    for adapts, what in ((False, "all parameters train"), (True, "an adapter of 0.1 % trains")):
        memory: dict[str, Figures] = {}
        files: dict[str, Figures] = {}
        for case, make in cases.items():
            found = [measured(adapts, make) for _ in range(rounds)]
            memory[case], files[case] = ([one[i] for one in found] for i in (0, 1))
        for name, figures in (("Memory", memory), ("A file", files)):
            bench = Bench(f"{name}, {what}", "times the weights", figures)
            if adapts:
                what_of = f"{name.lower()} with an average of an adapter"
                bench.compare(what_of, figures["EMAHook"], "none", figures["no average"], 1.01)
            yield bench
