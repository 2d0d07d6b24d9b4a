"""Wrong arguments raise what mmcv raises for them, and what the native hooks raise."""

from __future__ import annotations

from typing import Any

__all__ = ["ArgumentError", "AssertsArguments"]


class ArgumentError(AssertionError, ValueError, TypeError):
    """A wrong argument: mmcv asserts where native hooks raise ValueError or TypeError.

    >>> issubclass(ArgumentError, AssertionError) and issubclass(ArgumentError, ValueError)
    True
    """


class AssertsArguments:
    """A mixin in front of a native hook whose arguments mmcv asserts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except KeyError:  # an unknown name, in mmcv too
            raise
        except (TypeError, ValueError) as error:
            raise ArgumentError(*error.args) from error
