"""mmcv's small checks and conversions of plain Python values."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from lightning_hooks.utils.warn import warn

__all__ = [
    "check_prerequisites",
    "concat_list",
    "deprecated_api_warning",
    "has_method",
    "import_modules_from_strings",
    "is_list_of",
    "is_method_overridden",
    "is_seq_of",
    "is_str",
    "is_tuple_of",
    "iter_cast",
    "list_cast",
    "requires_executable",
    "requires_package",
    "slice_list",
    "to_1tuple",
    "to_2tuple",
    "to_3tuple",
    "to_4tuple",
    "to_ntuple",
    "tuple_cast",
]


# -- checks --------------------------------------------------------------------------------------


def is_str(x: object) -> bool:
    """Return whether ``x`` is a string."""
    return isinstance(x, str)


def is_seq_of(
    seq: object, expected_type: type | tuple[type, ...], seq_type: type | None = None
) -> bool:
    """Return whether ``seq`` is a sequence, of ``seq_type``, with items of ``expected_type``.

    >>> is_seq_of([1, 2], int), is_seq_of((1, "a"), int), is_seq_of([1], int, seq_type=tuple)
    (True, False, False)
    """
    if seq_type is not None and not isinstance(seq_type, type):
        raise TypeError(f"seq_type must be a type or None, got {seq_type!r}")
    if not isinstance(seq, Sequence if seq_type is None else seq_type):
        return False
    items: Iterable[Any] = seq  # type: ignore[assignment]  # a type of sequence
    return all(isinstance(item, expected_type) for item in items)


def is_list_of(seq: object, expected_type: type | tuple[type, ...]) -> bool:
    """Return whether ``seq`` is a list with items of ``expected_type``."""
    return is_seq_of(seq, expected_type, seq_type=list)


def is_tuple_of(seq: object, expected_type: type | tuple[type, ...]) -> bool:
    """Return whether ``seq`` is a tuple with items of ``expected_type``."""
    return is_seq_of(seq, expected_type, seq_type=tuple)


def has_method(obj: object, method: str) -> bool:
    """Return whether an object has a callable attribute ``method``."""
    return callable(getattr(obj, method, None))


def is_method_overridden(method: str, base_class: type, derived_class: type | Any) -> bool:
    """Return whether a class, or the class of an object, overrides a method."""
    if not isinstance(base_class, type):
        raise AssertionError(f"base_class must be a class, got {base_class!r}")
    derived = derived_class if isinstance(derived_class, type) else type(derived_class)
    return getattr(derived, method) is not getattr(base_class, method)


# -- conversions ---------------------------------------------------------------------------------


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """Return a function to repeat a value ``n`` times; iterables are returned unchanged."""
    return functools.partial(_repeated, n)


def _repeated(n: int, x: Any) -> Any:
    return x if isinstance(x, Iterable) else (x,) * n


to_1tuple = to_ntuple(1)
to_2tuple = to_ntuple(2)
to_3tuple = to_ntuple(3)
to_4tuple = to_ntuple(4)


def iter_cast(inputs: Any, dst_type: type, return_type: type | None = None) -> Any:
    """Convert each item to ``dst_type``; return an iterator, or a ``return_type``."""
    if not isinstance(inputs, Iterable):
        raise TypeError(f"inputs must be an iterable, got {inputs!r}")
    if not isinstance(dst_type, type):
        raise TypeError(f"dst_type must be a type, got {dst_type!r}")
    items = map(dst_type, inputs)
    return items if return_type is None else return_type(items)


def list_cast(inputs: Any, dst_type: type) -> list[Any]:
    """Convert each item; return a list."""
    return list(iter_cast(inputs, dst_type))


def tuple_cast(inputs: Any, dst_type: type) -> tuple[Any, ...]:
    """Convert each item; return a tuple."""
    return tuple(iter_cast(inputs, dst_type))


def slice_list(in_list: list[Any], lens: int | list[int]) -> list[list[Any]]:
    """Split a list into parts of equal length, or of given lengths.

    >>> slice_list([1, 2, 3, 4], 2), slice_list([1, 2, 3], [1, 2])
    ([[1, 2], [3, 4]], [[1], [2, 3]])
    """
    if isinstance(lens, int):
        if len(in_list) % lens:
            raise ValueError(f"{len(in_list)} items cannot be cut into parts of {lens}")
        lens = [lens] * (len(in_list) // lens)
    if not isinstance(lens, list):
        raise TypeError(f"lens must be an int or a list of ints, got {lens!r}")
    if sum(lens) != len(in_list):
        raise ValueError(f"lens {lens} add up to {sum(lens)}, the list has {len(in_list)}")
    items = iter(in_list)
    return [list(itertools.islice(items, length)) for length in lens]


def concat_list(in_list: Iterable[Iterable[Any]]) -> list[Any]:
    """Join lists."""
    return list(itertools.chain.from_iterable(in_list))


def import_modules_from_strings(
    imports: str | list[str] | None, allow_failed_imports: bool = False
) -> ModuleType | list[ModuleType | None] | None:
    """Import a module or a list of modules by name (``custom_imports`` of a config).

    Raises:
        ImportError: if an import fails and ``allow_failed_imports`` is False; else the module is
            None.
    """
    if not imports:
        return None
    if not (isinstance(imports, str) or is_list_of(imports, str)):
        raise TypeError(f"imports must be a str or a list of str, got {imports!r}")
    names = [imports] if isinstance(imports, str) else imports
    found = [_imported(name, allow_failed_imports) for name in names]
    return found[0] if isinstance(imports, str) else found


def _imported(name: str, may_fail: bool) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not may_fail:
            raise ImportError(f"failed to import {name}: {error}") from error
    warn(f"{name} failed to import and is ignored.", UserWarning)
    return None


# -- decorators ----------------------------------------------------------------------------------


def check_prerequisites(
    prerequisites: str | list[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = 'Prerequisites "{}" are required in method "{}" but not found, '
    "please install them first.",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function to check prerequisites at each call.

    Args:
        prerequisites: Names of the prerequisites.
        checker: Returns whether a prerequisite is available.
        msg_tmpl: The error message, with ``{}`` for the missing names and the function's name.
    """
    names = [prerequisites] if isinstance(prerequisites, str) else list(prerequisites)

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            missing = [name for name in names if not checker(name)]
            if missing:
                message = msg_tmpl.format(", ".join(missing), function.__name__)
                print(message)  # as mmcv does
                raise RuntimeError(message)
            return function(*args, **kwargs)

        return checked

    return decorator


def requires_package(prerequisites: str | list[str]) -> Callable[..., Any]:
    """Decorate a function to require packages."""
    return check_prerequisites(prerequisites, _is_importable)


def requires_executable(prerequisites: str | list[str]) -> Callable[..., Any]:
    """Decorate a function to require programs."""
    return check_prerequisites(prerequisites, lambda name: shutil.which(name) is not None)


def _is_importable(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def deprecated_api_warning(
    name_dict: dict[str, str], cls_name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function to accept old names of arguments, with a warning.

    Args:
        name_dict: The new name by old name.
        cls_name: The class of a method, for the warning.
    """

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        title = f"{cls_name}.{function.__name__}" if cls_name else function.__name__

        def report(old: str) -> None:
            warn(
                f'"{old}" is deprecated in `{title}`, please use "{name_dict[old]}" instead',
                DeprecationWarning,
            )

        @functools.wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            positional = inspect.getfullargspec(function).args[: len(args)]
            for old in name_dict.keys() & set(positional):
                report(old)
            for old in [name for name in name_dict if name in kwargs]:
                if name_dict[old] in kwargs:
                    raise AssertionError(
                        f"{title} got both `{old}` and `{name_dict[old]}`, its new name"
                    )
                report(old)
                kwargs[name_dict[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return renamed

    return decorator
