"""mmcv's Registry, with scopes, parents and a build function."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lightning_hooks.engine import registry as native
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.warn import warn

__all__ = ["Registry", "build_from_cfg"]


def build_from_cfg(
    cfg: Mapping[str, Any],
    registry: native.Registry,
    default_args: Mapping[str, Any] | None = None,
) -> Any:
    """Build ``cfg["type"](**the rest)``; the caller's dicts are not changed.

    Args:
        cfg: The config; ``type`` is a registered name, a class or a function.
        registry: The registry of the name.
        default_args: Defaults for keys missing from ``cfg``, ``type`` included.

    Raises:
        TypeError: if ``cfg`` is not a dict, or ``type`` neither a name nor callable.
        UnknownNameError: a KeyError; if the name is not registered.
        Exception: the error of the constructor, with a note about the class.
    """
    if not isinstance(registry, native.Registry):
        raise TypeError(f"registry must be an mmcv.Registry object, got {shown(registry)}")
    if not (default_args is None or isinstance(default_args, Mapping)):
        raise TypeError(f"default_args must be a dict or None, got {shown(default_args)}")
    if isinstance(cfg, Mapping) and "type" not in {**(default_args or {}), **cfg}:
        raise KeyError(
            f'`cfg` or `default_args` must contain the key "type", got {shown(dict(cfg))}'
        )
    return native.build_from_cfg(cfg, registry, default_args)


class Registry(native.Registry):
    """A table of classes and functions by name, optionally the child of another table.

    ``get("mmdet.ResNet")`` looks in the child of scope ``mmdet``, or in the topmost parent.

    Args:
        name: The kind of the registered classes.
        build_func: ``build_func(cfg, registry=...)`` builds an object; the parent's by default, or
            :func:`build_from_cfg`.
        parent: The parent registry.
        scope: The name in the parent; by default the package of the caller.

    Raises:
        AssertionError: if the parent already has a child of the same scope.

    >>> MODELS = Registry("models", scope="mmcv")
    >>> DETECTORS = Registry("models", parent=MODELS, scope="mmdet")
    >>> @DETECTORS.register_module()
    ... class ResNet: ...
    >>> MODELS.get("mmdet.ResNet") is ResNet, MODELS.get("ResNet") is None
    (True, True)
    """

    kinds = "classes and functions"

    def __init__(
        self,
        name: str,
        build_func: Callable[..., Any] | None = None,
        parent: Registry | None = None,
        scope: str | None = None,
    ) -> None:
        super().__init__(name)
        if not (parent is None or isinstance(parent, Registry)):
            raise AssertionError(f"parent must be a Registry or None, got {shown(parent)}")
        self._children: dict[str, Registry] = {}
        self._scope = self.infer_scope() if scope is None else scope
        self.parent = parent
        self.build_func: Callable[..., Any] = build_func or (
            build_from_cfg if parent is None else parent.build_func
        )
        if parent is not None:
            parent._add_children(self)

    @staticmethod
    def infer_scope() -> str:
        """Return the package of the code creating a registry."""
        module = sys._getframe(2).f_globals.get("__name__", "__main__")
        return str(module).partition(".")[0]

    @staticmethod
    def split_scope_key(key: str) -> tuple[str | None, str]:
        """Split a name at the first dot.

        >>> Registry.split_scope_key("mmdet.ResNet"), Registry.split_scope_key("ResNet")
        (('mmdet', 'ResNet'), (None, 'ResNet'))
        """
        scope, dot, rest = key.partition(".")
        return (scope, rest) if dot else (None, key)

    @property
    def scope(self) -> str:
        """The name of the registry in the parent."""
        return self._scope

    @property
    def title(self) -> str:
        """The registry's name, with the file of the project's package that defines the registry."""
        file = getattr(sys.modules.get(self.scope), "__file__", None)
        return f"{super().title} of {self.scope} ({file})" if file else super().title

    @property
    def children(self) -> dict[str, Registry]:
        """The child registries, by scope."""
        return self._children

    def get(self, key: str) -> Any:
        """Return the object registered as ``key``, also of another scope, or None."""
        scope, name = self.split_scope_key(key)
        if scope in (None, self._scope):
            return self.module_dict.get(name)
        if scope in self.children:
            return self.children[str(scope)].get(name)
        if self.parent is None:
            return None
        top = self.parent
        while top.parent is not None:
            top = top.parent
        return top.get(key)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Build an object by the registry's build function."""
        return self.build_func(*args, **{**kwargs, "registry": self})

    def _add_children(self, registry: Registry) -> None:
        if registry.scope in self.children:
            raise AssertionError(f"scope {registry.scope} exists in {self.name} registry")
        self.children[registry.scope] = registry

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        """Register a class or a function: as a decorator, bare or called, or by ``module=``.

        Args:
            name: The name, or several; the object's own by default.
            force: Replace an object of the same name instead of raising.
            module: The object, when not used as a decorator.

        Raises:
            KeyError: if the name is taken and ``force`` is false.
            TypeError: for anything but a class or a function.
        """
        if not isinstance(force, bool):
            raise TypeError(f"force must be a bool, got {shown(force)}")
        if inspect.isclass(name):
            return self.deprecated_register_module(name, force)
        return super().register_module(name, force, module)

    def deprecated_register_module(self, cls: Any = None, force: bool = False) -> Any:
        """Register a class in mmcv's old way: ``register_module(cls)``, or as a bare decorator."""
        warn(
            "The old API of register_module(module, force=False) is deprecated, please use "
            "register_module(name=None, force=False, module=None) instead.",
            DeprecationWarning,
        )
        if cls is None:
            return functools.partial(self.deprecated_register_module, force=force)
        return self._register(cls, None, force)

    def _accepts(self, new: object) -> bool:
        return inspect.isclass(new) or inspect.isfunction(new)

    def _register_module(self, module: Any, module_name: Any = None, force: bool = False) -> None:
        self.register_module(module_name, force, module)  # old code calls it
