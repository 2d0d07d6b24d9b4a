"""Limits of the gradient norm from the norms of earlier steps: AutoClip and ZClip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from lightning_hooks.utils.arguments import check_count, check_number, shown

__all__ = ["HISTORIES", "NormHistory", "Percentile", "ZScore"]


class NormHistory(Protocol):
    """A limit of the norm, from the norms seen so far; all numbers stay on their device."""

    def limit(self, norm: torch.Tensor) -> torch.Tensor:
        """Take in the norm of a step, and return the limit for the step."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what a resumed run needs."""

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a :meth:`state_dict`.

        Raises:
            ValueError: for the state of another kind.
        """


class Percentile:
    """Limit the norm to a percentile of the last norms, the present among them (AutoClip).

    NaN and infinite norms are not taken in.

    Args:
        percentile: The percentile, above 0 and below 100.
        window: The number of norms, at least 1.

    Source: "AutoClip: Adaptive Gradient Clipping for Source Separation Networks" (Seetharaman et
    al., 2020), which keeps all norms.

    >>> history = Percentile(percentile=50, window=3)
    >>> [history.limit(torch.tensor(norm)).item() for norm in (1.0, 3.0, 8.0, 9.0)]
    [1.0, 2.0, 3.0, 8.0]
    """

    def __init__(self, percentile: float = 10.0, window: int = 1000) -> None:
        check_number("grad_clip['percentile']", percentile, above=0)
        if percentile >= 100:
            raise ValueError(f"grad_clip['percentile'] must be below 100, got {shown(percentile)}")
        check_count("grad_clip['window']", window)
        self._share, self._window = percentile / 100, window
        self._norms = torch.empty(0)
        self._steps = 0

    def limit(self, norm: torch.Tensor) -> torch.Tensor:
        """Take in a norm, and return the percentile; infinity before the first finite norm."""
        if len(self._norms) < self._window or self._norms.device != norm.device:
            missing = torch.full((self._window - len(self._norms),), torch.nan)
            self._norms = torch.cat([self._norms.to(norm.device), missing.to(norm.device)])
        self._norms[self._steps % self._window] = torch.where(norm.isfinite(), norm, torch.nan)
        self._steps += 1
        limit = self._norms[: self._steps].nanquantile(self._share)
        return limit.nan_to_num(torch.inf)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the norms, oldest first."""
        known = min(self._steps, self._window)
        oldest = self._steps % known if known else 0
        return {"norms": self._norms[:known].roll(-oldest).cpu()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from other norms; of more than the window has, from the last."""
        norms = state.get("norms")
        if norms is None or norms.ndim != 1:
            raise ValueError('the state of a percentile has a vector "norms"')
        self._norms = norms[-self._window :].float()
        self._steps = len(self._norms)


class ZScore:
    """Limit a norm that is an outlier among the norms seen before (ZClip).

    With mean ``m`` and standard deviation ``s`` of the norms, averaged exponentially, and the score
    ``z = (norm - m) / s``, a norm with ``z > z_thresh`` is limited to
    ``m + z_thresh ** 2 / z * s``. The limited norm is taken in. In the first steps no norm is
    limited, but by ``max_norm``.

    Args:
        z_thresh: The score above which a norm is limited, above 0.
        alpha: The weight of the past in mean and variance, in (0, 1).
        warmup_steps: The steps whose norms give the first mean and variance, at least 2.
        max_norm: The limit in these steps; 0 for none.

    Source: "ZClip: Adaptive Spike Mitigation for LLM Pre-Training" (Kumar et al., 2025).

    >>> history = ZScore(z_thresh=2.0, warmup_steps=2)
    >>> [round(history.limit(torch.tensor(norm)).item(), 4) for norm in (1.0, 3.0, 10.0)]
    [inf, inf, 2.5]
    """

    def __init__(
        self,
        z_thresh: float = 2.5,
        alpha: float = 0.97,
        warmup_steps: int = 25,
        max_norm: float = 0.0,
    ) -> None:
        check_number("grad_clip['z_thresh']", z_thresh, above=0)
        check_number("grad_clip['alpha']", alpha, above=0)
        if alpha >= 1:
            raise ValueError(f"grad_clip['alpha'] must be below 1, got {shown(alpha)}")
        check_count("grad_clip['warmup_steps']", warmup_steps, 2)
        check_number("grad_clip['max_norm']", max_norm, 0)
        self._z_thresh, self._alpha, self._warmup_steps = z_thresh, alpha, warmup_steps
        self._first_limit = max_norm or torch.inf
        self._moments = torch.zeros(3)  # number of norms in the first steps, mean and variance

    def limit(self, norm: torch.Tensor) -> torch.Tensor:
        """Take in a norm, and return the limit; the norm itself where there is none."""
        norm = norm.float()
        count, mean, variance = self._moments.to(norm.device).unbind()
        deviation = variance.sqrt()
        score = (norm - mean) / (deviation + 1e-6)
        begins, is_high = count < self._warmup_steps, score > self._z_thresh
        allowed = mean + self._z_thresh**2 / score * deviation
        limit = torch.where(is_high & ~begins, allowed, torch.inf)
        taken = torch.minimum(norm, limit)
        # Welford's mean and variance in the first steps
        delta = norm - mean
        first_mean = mean + delta / (count + 1)
        first_variance = (variance * count + delta * (norm - first_mean)) / (count + 1)
        new_mean = self._alpha * mean + (1 - self._alpha) * taken
        new_variance = self._alpha * variance + (1 - self._alpha) * (taken - new_mean) ** 2
        new = torch.where(
            begins,
            torch.stack([count + 1, first_mean, first_variance]),
            torch.stack([count, new_mean, new_variance]),
        )
        self._moments = torch.where(norm.isfinite(), new, self._moments.to(norm.device))
        return torch.where(begins, self._first_limit, limit)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the number of norms, their mean and variance."""
        return {"moments": self._moments.cpu()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from another mean and variance."""
        moments = state.get("moments")
        if moments is None or moments.shape != (3,):
            raise ValueError('the state of a z-score has a vector "moments" of three numbers')
        self._moments = moments.float()


HISTORIES: Mapping[str, Callable[..., NormHistory]] = {"auto": Percentile, "zclip": ZScore}
"""The values of ``grad_clip["type"]`` with a history; the other keys are the arguments."""
