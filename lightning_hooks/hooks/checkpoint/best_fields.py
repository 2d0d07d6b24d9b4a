"""Show the best files of a run under the attribute names of Lightning's ``ModelCheckpoint``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["BestFields", "Standing"]


class Standing(NamedTuple):
    """The best files by one key so far."""

    key: str | None = None
    rule: str | None = None
    keep: int = -1
    ranking: Sequence[tuple[float, str]] = ()
    """Scores and paths of the best ``keep`` files, best first."""
    current: float | None = None
    """The score of the file written last."""

    @property
    def kth(self) -> tuple[float, str] | None:
        """Score and path of the worst file; None with fewer than ``keep`` files."""
        return self.ranking[-1] if self.ranking and len(self.ranking) == self.keep else None


class BestFields:
    """The attributes of a ``ModelCheckpoint`` for the best files, derived from a standing.

    With several keys, the attributes show the first key.

    ======================  ====================================================================
    attribute               value
    ======================  ====================================================================
    monitor                 the key; None without a comparison
    mode                    "max" or "min"
    save_top_k              the number of files to keep; -1 for all
    current_score           the latest score among the best, as a tensor; None before
    best_model_score        the best score, as a tensor; None before
    best_model_path         the path of the best file; an empty string before
    best_k_models           the scores of the best files by path
    kth_best_model_path     the path of the worst kept file; empty with fewer than save_top_k files
    kth_value               the score of the worst kept file; None with fewer
    ======================  ====================================================================
    """

    save_best: str | list[str] | None = None

    def standing(self) -> Standing:
        """Return the best files so far."""
        return Standing()

    @property
    def monitor(self) -> str | None:
        """The key to compare."""
        return self.standing().key

    @property
    def mode(self) -> str:
        """``"max"`` if greater scores are better, else ``"min"``."""
        return "max" if self.standing().rule == "greater" else "min"

    @property
    def save_top_k(self) -> int:
        """The number of best files to keep."""
        return self.standing().keep

    @property
    def current_score(self) -> torch.Tensor | None:
        """The latest score among the best."""
        return _tensor(self.standing().current)

    @property
    def best_model_score(self) -> torch.Tensor | None:
        """The best score."""
        ranking = self.standing().ranking
        return _tensor(ranking[0][0]) if ranking else None

    @property
    def best_model_path(self) -> str:
        """The path of the file with the best score."""
        ranking = self.standing().ranking
        return ranking[0][1] if ranking else ""

    @property
    def best_k_models(self) -> dict[str, Any]:
        """The scores of the best files by path."""
        return {path: _tensor(score) for score, path in self.standing().ranking}

    @property
    def kth_best_model_path(self) -> str:
        """The path of the worst kept file, replaced by the next file among the best."""
        kth = self.standing().kth
        return kth[1] if kth else ""

    @property
    def kth_value(self) -> torch.Tensor | None:
        """The score of the worst kept file."""
        kth = self.standing().kth
        return _tensor(kth[0]) if kth else None


def _tensor(score: float | None) -> torch.Tensor | None:
    return None if score is None else torch.tensor(float(score))
