"""``precise_bn``: BatchNorm statistics that are an average's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from lightning_hooks.utils.arguments import check_int

__all__ = ["estimator"]


def estimator(precise_bn: Any, user: str | None = None) -> PreciseBNHook | None:
    """Return the hook that estimates the statistics of an average; None for none.

    Args:
        precise_bn: The argument of every average: False, True, a number of samples, or a dict of
            the arguments of PreciseBNHook.
        user: The class of the average, for messages.

    Raises:
        TypeError: for an argument of another type, and for what PreciseBNHook does not take.
        ValueError: for a number below 1, for an interval, and for what PreciseBNHook refuses.

    >>> estimator(False), estimator(True).num_samples, estimator(512).num_samples
    (None, 8192, 512)
    """
    if isinstance(precise_bn, Mapping):
        if "interval" in precise_bn:
            raise ValueError(
                f"precise_bn={dict(precise_bn)}: the statistics are estimated whenever an average "
                "that has changed is used; leave interval out"
            )
        try:
            found = PreciseBNHook(**precise_bn)
        except TypeError as error:
            raise TypeError(f"precise_bn={dict(precise_bn)}: {error}") from None
        except ValueError as error:
            raise ValueError(f"precise_bn={dict(precise_bn)}: {error}") from None
    elif isinstance(precise_bn, bool):
        if not precise_bn:
            return None
        found = PreciseBNHook()
    elif isinstance(precise_bn, int):
        check_int("precise_bn", precise_bn, 1)
        found = PreciseBNHook(precise_bn)
    else:
        raise TypeError(
            "precise_bn must be True, False, a number of samples or a dict of PreciseBNHook's "
            f"arguments, got {precise_bn!r}"
        )
    found.user = user
    return found
