"""The small training job of training.json, in plain torch: imports neither mmcv nor us."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

TRAIN_SIZE, VAL_SIZE, BATCH_SIZE = 56, 24, 16  # 4 and 2 batches, the last of each half full
SHORT = 160  # tensors up to this size are compared element by element


class Classifier(nn.Module):
    """An image network with the two steps of mmcv's runners."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Return the loss of a batch and the values to log."""
        images, labels = data
        scores = self.network(images)
        loss = functional.cross_entropy(scores, labels)
        accuracy = (scores.argmax(1) == labels).float().mean()
        log_vars = {"loss": loss.item(), "acc": accuracy.item()}
        return {"loss": loss, "log_vars": log_vars, "num_samples": len(images)}

    val_step = train_step


def make_model(seed: int = 0, kind: str = "linear") -> Classifier:
    """Return the "linear" or the "conv" model (one BatchNorm), equal on every machine."""
    networks = {
        "linear": lambda: (nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 10)),
        "conv": lambda: (
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        ),
    }
    model = Classifier(nn.Sequential(*networks[kind]()))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                # uniform numbers and a power of two are exact; normal numbers depend on the kernel
                parameter.copy_((torch.rand(parameter.shape, generator=generator) - 0.5) / 2)
            elif name.endswith("bias"):
                parameter.zero_()
    return model


def make_data(seed: int = 0) -> tuple[DataLoader, DataLoader]:
    """Make the training and validation loader: digits drawn once, then in a fixed order."""
    from sklearn.datasets import load_digits  # imported here, so the rest works without sklearn

    digits = load_digits()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits.target), generator=generator)[: TRAIN_SIZE + VAL_SIZE]
    images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
    labels = torch.tensor(digits.target, dtype=torch.long)[order]
    train = TensorDataset(images[:TRAIN_SIZE], labels[:TRAIN_SIZE])
    val = TensorDataset(images[TRAIN_SIZE:], labels[TRAIN_SIZE:])
    return DataLoader(train, batch_size=BATCH_SIZE), DataLoader(val, batch_size=BATCH_SIZE)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer of the job."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Describe each parameter and buffer: all values, or a summary if there are many."""
    return {name: _describe(tensor) for name, tensor in model.state_dict().items()}


def _describe(tensor: Tensor) -> list[float] | dict[str, Any]:
    # nine digits give every float32 back
    values = [float(f"{value:.9g}") for value in tensor.flatten().tolist()]
    if len(values) <= SHORT:
        return values
    total, size = tensor.double().sum().item(), tensor.double().abs().sum().item()
    return {"sum": total, "abs_sum": size, "first": values[:5]}
