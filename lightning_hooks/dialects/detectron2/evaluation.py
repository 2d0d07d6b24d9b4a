"""``inference_on_dataset``: run a model over a loader, with detectron2's evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["DatasetEvaluator", "inference_on_dataset"]


class DatasetEvaluator:
    """The base of evaluators: override the three methods."""

    def reset(self) -> None:
        """Begin anew."""

    def process(self, inputs: Any, outputs: Any) -> None:
        """Take the inputs of the model, and its outputs for them."""

    def evaluate(self) -> Any:
        """Return a dict of numbers by task."""


def inference_on_dataset(
    model: torch.nn.Module,
    data_loader: Iterable[Any],
    evaluator: DatasetEvaluator | Sequence[DatasetEvaluator] | None,
) -> dict[str, Any]:
    """Run a model over a loader, in evaluation and without gradients; return the results.

    Args:
        model: The model; it is in training again afterwards if it was.
        data_loader: Its inputs.
        evaluator: What evaluates the outputs: one, several, or None.

    Raises:
        ValueError: if two evaluators have results of the same name.

    Note:
        Departures from detectron2: no time is measured, and there are no ``callbacks``.
    """
    several = evaluator if isinstance(evaluator, Sequence) else [evaluator]
    evaluators = [one for one in several if one is not None]
    for one in evaluators:
        one.reset()
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for inputs in data_loader:
                outputs = model(inputs)
                for one in evaluators:
                    one.process(inputs, outputs)
    finally:
        model.train(was_training)
    results: dict[str, Any] = {}
    for one in evaluators:
        found = one.evaluate() or {}
        twice = sorted(results.keys() & found.keys())
        if twice:
            raise ValueError(f"two evaluators have results of the name {twice[0]!r}")
        results.update(found)
    return results
