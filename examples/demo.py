"""The demo: mmcv's hooks, and an old hook file, in a Lightning Trainer on handwritten digits.

``python examples/demo.py`` trains for 5 epochs, in well under a minute on two cores.
``python examples/demo.py --resume demo_output/epoch_3.pth`` goes on from a checkpoint: the
weights, their average, the learning rates and the log equal the uninterrupted run's, bit for bit.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import curves
import lightning as L
import torch
from old_hooks import WeightStatsHook
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

import lightning_hooks as lh

__all__ = ["DigitNet", "main", "make_loaders", "train"]

BATCH_SIZE = 32
MAX_NORM = 2.0  # of the gradients
TRACKERS = ("wandb", "mlflow", "neptune")


class ShiftedDigits(Dataset[tuple[Tensor, Tensor]]):
    """Digits, each moved by up to one pixel in a random direction when it is read."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = nn.functional.pad(images, (1, 1, 1, 1))
        self.labels = labels

    def __len__(self) -> int:
        """Return the number of digits."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return an image of 8x8 pixels and its label."""
        row, column = torch.randint(0, 3, (2,)).tolist()
        return self.images[index, :, row : row + 8, column : column + 8], self.labels[index]


def make_loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Return the shuffled loader of the training part and that of the part held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    train, held_out = train_test_split(
        torch.arange(len(labels)), test_size=0.2, random_state=0, stratify=labels
    )
    return (
        DataLoader(ShiftedDigits(images[train], labels[train]), BATCH_SIZE, shuffle=True),
        DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=120),
    )


class DigitNet(L.LightningModule):
    """A small convolutional net with BatchNorm: an ordinary LightningModule."""

    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            *self._block(1, 16),
            *self._block(16, 32),
            nn.MaxPool2d(2),
            *self._block(32, 64),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 10),
        )
        self.train_accuracy = MulticlassAccuracy(num_classes=10, average="micro")
        self.val_accuracy = MulticlassAccuracy(num_classes=10, average="micro")

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(images)
        return logits

    @staticmethod
    def _block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss; hooks log it."""
        images, labels = batch
        logits = self(images)
        self.log("accuracy", self.train_accuracy(logits, labels))
        return nn.functional.cross_entropy(logits, labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log loss and accuracy of the epoch."""
        images, labels = batch
        logits = self(images)
        self.val_accuracy(logits, labels)
        self.log("accuracy", self.val_accuracy, prog_bar=True)
        self.log("loss", nn.functional.cross_entropy(logits, labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an SGD optimizer; hooks set its learning rate and momentum."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, weight_decay=1e-4)


def schedules() -> tuple[lh.Hook, lh.Hook]:
    """Return the hooks for learning rate and momentum: one falls while the other rises."""
    return (
        lh.OneCycleLrUpdaterHook(max_lr=0.1, pct_start=0.2),
        lh.OneCycleMomentumUpdaterHook(base_momentum=0.85, max_momentum=0.95, pct_start=0.2),
    )


def make_callbacks(
    held_out: DataLoader[Any], trackers: Sequence[str] = TRACKERS, interval: int = 9
) -> list[L.Callback]:
    """Return native hooks, each a Callback, and an adapter with the old one."""
    loggers = {
        "wandb": lambda: lh.WandbLoggerHook(dict(project="digits", mode="offline"), interval),
        "mlflow": lambda: lh.MlflowLoggerHook(exp_name="digits", interval=interval),
        "neptune": lambda: lh.NeptuneLoggerHook(dict(mode="offline"), interval),
    }
    accuracy = MetricCollection({"raw_accuracy": MulticlassAccuracy(10, average="micro")})
    return [
        *schedules(),
        lh.OptimizerHook(grad_clip=dict(max_norm=MAX_NORM)),
        lh.CheckInvalidLossHook(interval=interval, action="restore"),
        lh.EMAHook(momentum=0.05, warm_up=10, precise_bn=640),
        lh.CheckpointHook(interval=1, max_keep_ckpts=3),
        lh.IterTimerHook(),
        lh.StepTimeHook(),
        lh.EvalHook(None, save_best="accuracy"),  # of what the Trainer validates: the average
        lh.TextLoggerHook(interval=interval),
        *(loggers[name]() for name in trackers),
        lh.HookAdapter(
            [
                # before EMAHook, of NORMAL, puts the average in: for the raw weights
                (lh.EvalHook(held_out, metric=accuracy), "ABOVE_NORMAL"),
                WeightStatsHook(interval),
            ]
        ),
    ]


def train(
    out: str | Path,
    *,
    epochs: int = 5,
    resume: str | Path | None = None,
    trackers: Sequence[str] = TRACKERS,
    **trainer_arguments: Any,
) -> L.Trainer:
    """Train, and write everything below ``out``.

    Args:
        out: The folder for logs, checkpoints and the trackers' files.
        epochs: How many.
        resume: A checkpoint of an earlier run to go on from.
        trackers: Which of W&B, MLflow and Neptune record the run.
        trainer_arguments: More for the Trainer.
    """
    L.seed_everything(0, verbose=False)
    training, held_out = make_loaders()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=make_callbacks(held_out, trackers),
        default_root_dir=out,
        logger=False,  # hooks do that
        enable_model_summary=False,
        **trainer_arguments,
    )
    trainer.fit(DigitNet(), training, held_out, ckpt_path=resume)
    return trainer


def where(out: Path) -> dict[str, list[Path]]:
    """Return the paths of the checkpoints kept, and of the newest file of each other kind."""
    places = {
        "text log": "*.log.json",
        "checkpoints": "epoch_*.pth",
        "best": "best_*.pth",
        "figure": "*.png",
        "W&B, offline": "wandb/offline-run-*",
        "MLflow": "mlflow.db",
        "Neptune, offline": ".neptune/offline/*",
    }
    found: dict[str, list[Path]] = {}
    for name, pattern in places.items():
        newest_last = sorted(out.glob(pattern), key=lambda path: path.stat().st_mtime)
        found[name] = newest_last if name == "checkpoints" else newest_last[-1:]
    return {name: paths for name, paths in found.items() if paths}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, draw, and print the paths of all files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo_output"), help="where to write")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--resume", type=Path, metavar="PATH", help="go on from this checkpoint")
    parser.add_argument("--no-trackers", action="store_true", help="no W&B, MLflow and Neptune")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # more would wait for each other: the net is that small

    trackers = () if given.no_trackers else TRACKERS
    with warnings.catch_warnings():
        # the data are in memory: worker processes would only slow it down
        warnings.filterwarnings("ignore", "The '.*_dataloader' does not have many workers")
        # Lightning's own, with the newest torch
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        trainer = train(given.out, epochs=given.epochs, resume=given.resume, trackers=trackers)
    rows = curves.read_log(given.out, earlier=given.resume is not None)
    batches = int(trainer.num_training_batches)
    momentum = lh.schedules.sample(
        schedules()[1], max_epochs=given.epochs, iters_per_epoch=batches, base_momentum=0.9
    )
    curves.draw(
        rows, given.out / "curves.png", batches=batches, momentum=momentum, max_norm=MAX_NORM
    )

    last = [row for row in rows if row["mode"] == "val"][-1]
    print(f"\nepoch {last['epoch']}: accuracy {last['accuracy']:.4f} on the digits held out\n")
    for name, paths in where(given.out).items():
        for title, path in zip_longest([name], paths, fillvalue=""):
            print(f"{title:<18}{path}")


if __name__ == "__main__":
    main()
