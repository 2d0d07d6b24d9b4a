"""Handwritten digits, a small net, and a Trainer that prints nothing itself."""

import logging
import warnings

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class Shifted(Dataset):
    """Digits, each moved by up to one pixel when it is read."""

    def __init__(self, images, labels):
        self.images, self.labels = nn.functional.pad(images, (1, 1, 1, 1)), labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        row, column = torch.randint(0, 3, (2,)).tolist()
        return self.images[index, :, row : row + 8, column : column + 8], self.labels[index]


def make_loaders():
    """Return a loader of 1437 digits, shuffled, 45 batches, and one of the 360 held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held_out, train = order.split(1437)[::-1]
    return (
        DataLoader(Shifted(images[train], labels[train]), 32, shuffle=True),
        DataLoader(TensorDataset(images[held_out], labels[held_out]), 120),
    )


class DigitNet(L.LightningModule):
    """A small convolutional net with BatchNorm: an ordinary LightningModule."""

    def __init__(self, lr=0.05):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)),
            *(nn.ReLU(), nn.Flatten(), nn.Linear(64 * 4 * 4, 10)),
        )
        self.accuracy = MulticlassAccuracy(num_classes=10, average="micro")

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.log("accuracy", (logits.argmax(1) == labels).float().mean())
        return nn.functional.cross_entropy(logits, labels)

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.accuracy(logits, labels)
        self.log("accuracy", self.accuracy)
        self.log("loss", nn.functional.cross_entropy(logits, labels))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.9, weight_decay=1e-4)


def make_trainer(*callbacks, **options):
    """Make a Trainer on the CPU, without a logger, checkpoints or a progress bar of its own."""
    for name in ("lightning.pytorch", "lightning_hooks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "The '.*_dataloader' does not have many workers")
    warnings.filterwarnings("ignore", "The number of training batches .* is smaller than")
    warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
    torch.set_num_threads(1)  # the net is small
    L.seed_everything(0, verbose=False)
    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    quiet |= {"enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(**{**quiet, **options}, callbacks=list(callbacks))
