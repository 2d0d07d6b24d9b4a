"""mmcv's ``Registry``: a table of classes by name, built from config dicts."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from lightning_hooks._exports import HOMES
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["HOOKS", "MMCV_HOOKS", "ORDER_KEYS", "Registry", "build_from_cfg", "build_with_order"]

ORDER_KEYS = ("run_before", "run_after")
"""Attributes of a hook, and keys of a config, that order a hook against other hooks."""

T = TypeVar("T", bound=type)

_MMCV_HOOKS = """
CheckpointHook ClearMLLoggerHook ClosureHook CosineAnnealingLrUpdaterHook
CosineAnnealingMomentumUpdaterHook CosineRestartLrUpdaterHook CyclicLrUpdaterHook
CyclicMomentumUpdaterHook DistSamplerSeedHook DvcliveLoggerHook EMAHook EmptyCacheHook
ExpLrUpdaterHook FixedLrUpdaterHook FlatCosineAnnealingLrUpdaterHook Fp16OptimizerHook
GradientCumulativeFp16OptimizerHook GradientCumulativeOptimizerHook InvLrUpdaterHook
IterTimerHook LinearAnnealingLrUpdaterHook LinearAnnealingMomentumUpdaterHook MlflowLoggerHook
NeptuneLoggerHook OneCycleLrUpdaterHook OneCycleMomentumUpdaterHook OptimizerHook PaviLoggerHook
PolyLrUpdaterHook ProfilerHook SegmindLoggerHook StepLrUpdaterHook StepMomentumUpdaterHook
SyncBuffersHook TensorboardLoggerHook TextLoggerHook WandbLoggerHook
"""
MMCV_HOOKS = frozenset(_MMCV_HOOKS.split())
"""The names in mmcv 1.7.2's own registry of hooks."""


class Registry:
    """A table of classes by name.

    Args:
        name: The kind of the classes, for error messages.
        gives_way: Function of a name, the registered class and a new class: whether the new class
            may take the name without ``force``; by default never, as in mmcv.
        homes: Modules that register classes on import, by class name.

    >>> SHAPES = Registry("shape")
    >>> @SHAPES.register_module()
    ... class Circle:
    ...     def __init__(self, radius=1):
    ...         self.radius = radius
    >>> SHAPES.build(dict(type="Circle", radius=3)).radius
    3
    """

    kinds = "classes"
    """What can be registered, for error messages."""

    def __init__(
        self,
        name: str,
        gives_way: Callable[[str, Any, Any], bool] | None = None,
        homes: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self.gives_way = gives_way
        self.homes = homes or {}
        self._module_dict: dict[str, type] = {}

    def __len__(self) -> int:
        return len(self.module_dict)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name}, items={self.module_dict})"

    @property
    def name(self) -> str:
        """The kind of the classes."""
        return self._name

    @property
    def title(self) -> str:
        """The name of the registry in error messages."""
        return f"{self.name} registry"

    @property
    def module_dict(self) -> dict[str, type]:
        """All classes by name, imported."""
        for module in self.homes.values():
            importlib.import_module(module)
        return self._module_dict

    def get(self, key: str) -> type | None:
        """Return the class registered as ``key``, or None."""
        if key not in self._module_dict and key in self.homes:
            importlib.import_module(self.homes[key])
        return self._module_dict.get(key)

    def spelled(self, name: str) -> str:
        """Return the known name that differs in case alone, else the name as given.

        >>> HOOKS.spelled("emahook")
        'EMAHook'
        """
        known = {name.lower(): name for name in (*self.homes, *self._module_dict)}
        return known.get(name.lower(), name)

    def advice_for(self, name: str) -> str:
        """Return what to write instead of an unknown name.

        >>> HOOKS.advice_for("EarlyStoppingHook")
        "write Lightning's callback instead: EarlyStopping(monitor=..., patience=...)"
        """
        if self.name != "hook":
            return suggest(name, self.module_dict)
        if name in ("EarlyStopping", "EarlyStoppingHook"):
            return "write Lightning's callback instead: EarlyStopping(monitor=..., patience=...)"
        return suggest(name, self.module_dict, "lightning-hooks hooks")

    def build(self, cfg: Mapping[str, Any], default_args: Mapping[str, Any] | None = None) -> Any:
        """Build an object from a config dict; see :func:`build_from_cfg`."""
        return build_from_cfg(cfg, self, default_args)

    @overload
    def register_module(self, name: T, force: bool = False) -> T: ...

    @overload
    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: None = None
    ) -> Callable[[T], T]: ...

    @overload
    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, *, module: T
    ) -> T: ...

    def register_module(
        self,
        name: str | list[str] | type | None = None,
        force: bool = False,
        module: type | None = None,
    ) -> Any:
        """Register a class: as a decorator with or without parentheses, or by ``module=``.

        Args:
            name: The name, or several; the class's own by default.
            force: Replace a class of the same name instead of raising.
            module: The class, when not used as a decorator.

        Raises:
            KeyError: if the name is taken, and ``force`` is false.
            TypeError: if ``module`` is not a class, or the name is not a string.
        """
        if self._accepts(name):  # the bare decorator: @REGISTRY.register_module
            return self._register(name, None, force)  # type: ignore[type-var]
        names = [name] if isinstance(name, str) else name
        is_list = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
        if not (names is None or is_list):
            raise TypeError(f"name must be a str or a sequence of str, got {shown(name)}")
        if module is not None:
            return self._register(module, names, force)
        return functools.partial(self._register, names=names, force=force)

    def _accepts(self, new: object) -> bool:
        return inspect.isclass(new)

    def _register(self, cls: T, names: Any, force: bool) -> T:
        if not self._accepts(cls):
            raise TypeError(
                f"only {self.kinds} can be registered as a {self.name}, got {shown(cls)}"
            )
        for name in names or [cls.__name__]:
            # Registry.get imports the class, which a later import would register again; a
            # subclass's get may read a dot in a name as a scope, or raise
            taken = Registry.get(self, name)
            gives_way = self.gives_way is not None and taken and self.gives_way(name, taken, cls)
            if taken is not None and not (force or gives_way):
                raise KeyError(
                    f"{name} is already registered in {self.name} "
                    f"({taken.__module__}); pass force=True to replace it"
                )
            self._module_dict[name] = cls
        return cls


def build_from_cfg(
    cfg: Mapping[str, Any], registry: Registry, default_args: Mapping[str, Any] | None = None
) -> Any:
    """Build ``cfg["type"](**the rest)``; the caller's dicts are not changed.

    Args:
        cfg: The config; ``type`` is a registered name, a class or a callable.
        registry: The registry of the name.
        default_args: Default arguments, ``type`` included.

    Raises:
        TypeError: if ``cfg`` is not a dict with a usable ``type``.
        UnknownNameError: if the name is not registered, with the closest name.
        Exception: from the constructor, with the class in a note.
    """
    if not isinstance(cfg, Mapping):
        raise TypeError(f"a {registry.name} config must be a dict, got {shown(masked(cfg))}")
    args = {**(default_args or {}), **cfg}
    if "type" not in args:
        hint = "; write register_training_hooks(lr_config=...)" if "policy" in args else ""
        raise UnknownNameError(
            f'a {registry.name} config needs the key "type", got {shown(masked(dict(cfg)))}{hint}'
        )
    kind = args.pop("type")
    factory: Any = registry.get(kind) if isinstance(kind, str) else kind
    if factory is None and isinstance(kind, str):
        advice = registry.advice_for(kind)
        raise UnknownNameError(f"{kind} is not in the {registry.title}; {advice}")
    if not callable(factory):
        raise TypeError(f"type must be a registered name or a class, got {shown(kind)}")
    try:
        return factory(**args)
    except Exception as error:
        name = getattr(factory, "__name__", factory)
        add_note(error, f"while building {name} from {shown(masked(dict(cfg)))}")
        raise


def build_with_order(
    registry: Registry, config: Mapping[str, Any], priority: Any = None
) -> tuple[Any, Any]:
    """Build a hook; return the hook and the priority.

    Args:
        registry: The registry of hooks.
        config: The hook's config, with the optional keys ``priority``, ``run_before`` and
            ``run_after``, which are not passed to the constructor.
        priority: The priority for a config without the key.
    """
    arguments = dict(config)
    priority = arguments.pop("priority", priority)
    order = {key: arguments.pop(key) for key in ORDER_KEYS if key in arguments}
    hook = registry.build(arguments)
    for key, value in order.items():
        setattr(hook, key, value)
    return hook, priority


def _gives_way(name: str, taken: Any, new: Any) -> bool:
    """Whether a hook is ours beyond mmcv, or defined again in ``__main__``, as by a notebook."""
    again = taken.__module__ == new.__module__ == "__main__"
    is_same = again and taken.__qualname__ == new.__qualname__
    return is_same or (is_ours(taken) and name not in MMCV_HOOKS)


HOOKS = Registry(
    "hook",
    gives_way=_gives_way,
    homes={name: home for name, home in HOMES.items() if name.endswith("Hook")},
)
"""Every hook class by name, for ``dict(type="EMAHook", ...)``.

A name of mmcv, or registered by a project, is taken: another class needs ``force=True``.

Note:
    Departures from mmcv: the hooks beyond mmcv give way, so that a project beside mmcv may register
    its own ``PreciseBNHook`` or ``CheckInvalidLossHook``. A class of ``__main__`` replaces an
    earlier class of the same qualified name, so that a notebook's cell can run again (a KeyError in
    mmcv).
"""
