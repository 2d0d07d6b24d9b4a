"""Show the best files of a run by the names of Lightning's ``ModelCheckpoint``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["BestFields", "Standing"]


class Standing(NamedTuple):
    """The best by one key so far."""

    key: str | None = None
    rule: str | None = None
    keep: int = -1
    ranking: Sequence[tuple[float, str]] = ()
    """Scores and paths of the best ``keep`` files, best first."""
    current: float | None = None
    """The score of the file that was written last."""


class BestFields:
    """The attributes of a ``ModelCheckpoint`` that others read, derived from a standing.

    Of several keys they show the first.

    ======================  ====================================================================
    attribute               value
    ======================  ====================================================================
    monitor                 the key; None where none is compared
    mode                    "max" or "min"
    save_top_k              how many files are kept; -1 for all
    current_score           the score that last was among the best, as a tensor; None before
    best_model_score        the best score
    best_model_path         the path of its file; an empty string before
    best_k_models           the scores of the best files by path
    kth_best_model_path     the worst of them, once there are as many as are kept
    kth_value               its score
    ======================  ====================================================================
    """

    save_best: str | list[str] | None = None

    def standing(self) -> Standing:
        """Return the best so far."""
        return Standing()

    @property
    def monitor(self) -> str | None:
        """The key that is compared."""
        return self.standing().key

    @property
    def mode(self) -> str:
        """Whether greater scores are better, ``"max"``, or less, ``"min"``."""
        return "max" if self.standing().rule == "greater" else "min"

    @property
    def save_top_k(self) -> int:
        """The number of the best files that are kept."""
        return self.standing().keep

    @property
    def current_score(self) -> torch.Tensor | None:
        """The score that last was among the best."""
        current = self.standing().current
        return None if current is None else _tensor(current)

    @property
    def best_model_score(self) -> torch.Tensor | None:
        """The best score."""
        ranking = self.standing().ranking
        return _tensor(ranking[0][0]) if ranking else None

    @property
    def best_model_path(self) -> str:
        """The file with the best score."""
        ranking = self.standing().ranking
        return ranking[0][1] if ranking else ""

    @property
    def best_k_models(self) -> dict[str, Any]:
        """The scores of the best files by path."""
        return {path: _tensor(score) for score, path in self.standing().ranking}

    @property
    def kth_best_model_path(self) -> str:
        """The file that the next one among the best replaces."""
        standing = self.standing()
        return standing.ranking[-1][1] if len(standing.ranking) == standing.keep else ""

    @property
    def kth_value(self) -> torch.Tensor | None:
        """The score of that file."""
        standing = self.standing()
        is_full = len(standing.ranking) == standing.keep
        return _tensor(standing.ranking[-1][0]) if is_full else None


def _tensor(score: float) -> torch.Tensor:
    return torch.tensor(float(score))
