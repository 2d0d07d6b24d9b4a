"""Every name of mmcv 1.7.2 is in the stand-in with the same arguments, or has a placeholder."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import pickle
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from inspected import arguments

from lightning_hooks.standin.cnn.base_module import BaseModule
from lightning_hooks.standin.finder import StandinModule
from lightning_hooks.standin.name_table import FILE, Source
from lightning_hooks.standin.placeholders import placeholder_name
from lightning_hooks.standin.utils.registry import Registry
from support.golden import recorded
from support.mmcv_names import short
from support.standin import needs_lite

NAMES = recorded("names")["cases"]
SLOW = ("BuildExtension", "CppExtension", "CUDAExtension")  # torch's, and slow to import

# differences in public members and arguments, and why old code works nevertheless
DIFFERENT = {
    "BaseRunner.save_checkpoint": "the name of the file has EpochBasedRunner's default",
    "BaseRunner.train": "of the subclasses; mmcv's raises NotImplementedError",
    "BaseRunner.val": "of the subclasses; mmcv's raises NotImplementedError",
    "CornerPool.pool_functions": "the layer's own table",
    "DvcliveLoggerHook.__init__": "*args, which are the arguments of the native hook",
    "EvalHook.__init__": "without a loader, the hook evaluates the Trainer's validation",
    "DistEvalHook.__init__": "as EvalHook",
    "FixedLrUpdaterHook.__init__": "the arguments of LrUpdaterHook in place of **kwargs",
    "FileClient": "an object has the methods of its storage",
    "Fp16OptimizerHook.copy_grads_to_fp32": "of torch before 1.6",
    "Fp16OptimizerHook.copy_params_to_fp16": "of torch before 1.6",
    "GradientCumulativeFp16OptimizerHook": "of torch before 1.6; mmcv's constructor has *args",
    "MMDataParallel.__init__": "the arguments of torch's DataParallel in place of *args",
    "MMDistributedDataParallel.__init__": "the arguments of torch's DistributedDataParallel",
    "OneCycleMomentumUpdaterHook.get_momentum": "mmcv passes the group in place of a number",
    "build_optimizer_constructor": "the registry's build, which takes a config",
    "build_runner_constructor": "the registry's build, which takes a config",
    "symbolic": "of mmcv's ONNX tools, which are not offered",
    "upfirdn2d": "not offered",
}


def takes(theirs: str | None, ours: str | None) -> bool:
    """Whether names, order, kinds and defaults are equal, but for further optional arguments.

    >>> takes("self a b=1", "self a b=1 c=2"), takes("a", "b"), takes("a=1 *args", "a=2 *args")
    (True, False, False)
    >>> takes("a b=1", "a c=2 b=1"), takes("a", "a b"), takes("a * b=1", "a b=1")
    (False, False, False)
    """
    if ours is None or theirs in (None, "(value)", "(property)"):
        return ours != "missing"
    wanted, given = theirs.split(), ours.split()
    placed = list(itertools.takewhile(lambda p: p[0] != "*", wanted))
    further = [p for p in given if p not in wanted]
    equal = given[: len(placed)] == placed and all(p in given for p in wanted)
    return equal and all("=" in p or p[0] == "*" for p in further)


def test_the_list_of_names_is_as_recorded_with_real_mmcv() -> None:
    """``python -m support.mmcv_names`` writes the list."""
    assert FILE.read_text(encoding="utf-8") == short(NAMES)


def names() -> Iterator[tuple[Any, str, Any]]:
    """Yield the module, the name, and the kind or arguments of each recorded name."""
    for path, recorded_names in NAMES.items():
        module = importlib.import_module(path)
        for name, what in recorded_names.items():
            if name not in SLOW:
                yield module, name, what


@needs_lite
def test_every_name_is_there_with_its_kind() -> None:
    for module, name, what in names():
        found = getattr(module, name)
        if what == "module":
            assert inspect.ismodule(found), (module, name)
        elif "class" in what:
            assert inspect.isclass(found), (module, name)
        elif "function" in what:
            assert callable(found), (module, name)


@needs_lite
def test_arguments_and_members_are_as_in_mmcv_but_for_a_list() -> None:
    listed = set()
    for what, names_in_list in differences():
        assert names_in_list & DIFFERENT.keys(), what
        listed |= names_in_list & DIFFERENT.keys()
    assert listed == DIFFERENT.keys()


def differences() -> Iterator[tuple[Any, set[str]]]:
    """Yield each difference from mmcv with its possible names in the list."""
    for module, name, what in names():
        ours = getattr(module, name)
        if not isinstance(what, dict) or placeholder_name(ours):
            continue
        if "function" in what and not takes(what["function"], arguments(ours)):
            yield (what, arguments(ours)), {name}
        for member, theirs in what.get("class", {}).items():
            is_private = member.startswith("_") and not member.startswith("__")
            if not (is_private or takes(theirs, mine := arguments_of(ours, member))):
                yield (theirs, mine), {f"{name}.{member}", name, member}


def arguments_of(cls: type, member: str) -> str | None:
    """Return a method's arguments, None for other attributes, or "missing"."""
    static = inspect.getattr_static(cls, member, "missing")
    bound = isinstance(static, (staticmethod, classmethod))
    found = getattr(cls, member) if bound else static
    return arguments(found) if callable(found) else None if hasattr(cls, member) else "missing"


@needs_lite
def test_what_is_not_offered_raises_on_use_with_what_to_do() -> None:
    for module, name, what in names():
        found = getattr(module, name)
        full = placeholder_name(found)
        if not full:
            continue
        assert full.startswith("mmcv.")
        assert full.endswith(f".{name}")
        words = rf"{re.escape(full)}\b.*\b([Tt]ake|[Gg]ive|[Cc]opy|pip install)\b"
        if inspect.isclass(found):
            child = type("Child", (found,), {})
            Registry("test").register_module(module=child)
            with pytest.raises(AttributeError, match=words):
                found.apply  # noqa: B018
        if what == "value":
            with pytest.raises(AttributeError, match=words):
                found.anything  # noqa: B018
        else:
            with pytest.raises(NotImplementedError, match=words):
                found(1, a=2)


def test_a_subclass_of_a_placeholder_names_what_is_missing_when_it_is_made() -> None:
    from mmcv.device.npu import NPUDataParallel

    class Child(BaseModule, NPUDataParallel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

    assert placeholder_name(Child) == "mmcv.device.npu.data_parallel.NPUDataParallel"
    with pytest.raises(NotImplementedError, match=r"^mmcv\.device\.npu\.data_parallel\.NPUData"):
        Child()


def test_a_placeholder_is_one_object_by_all_paths_and_can_be_pickled() -> None:
    import mmcv.device.ipu
    from mmcv.device.ipu.dataloader import IPUDataLoader

    assert mmcv.device.ipu.IPUDataLoader is IPUDataLoader
    assert pickle.loads(pickle.dumps(IPUDataLoader)) is IPUDataLoader
    assert not isinstance(3, IPUDataLoader)
    assert not hasattr(IPUDataLoader, "_private")


@pytest.mark.parametrize("package", ["mmcv.ops.roi_align", "mmcv.parallel.collate"])
def test_a_function_named_as_its_module_stays_a_function(package: str) -> None:
    parent, _, name = package.rpartition(".")
    with fresh(parent):
        exec(f"from {package} import {name}")
        exec(f"from {parent} import {name} as found", scope := {})
        assert inspect.isroutine(scope["found"])


@contextlib.contextmanager
def fresh(package: str) -> Iterator[None]:
    """Import a package anew in the block."""
    kept = {name: m for name, m in sys.modules.items() if f"{name}.".startswith(f"{package}.")}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(kept)


def test_a_name_that_cannot_be_loaded_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(self: Source) -> Any:
        raise AttributeError("torch has no attribute 'x'")

    monkeypatch.setattr(Source, "load", load)
    module = StandinModule("mmcv.runner")
    with pytest.raises(ImportError, match=r"mmcv\.runner\.HOOKS: torch has no attribute 'x'"):
        module.HOOKS  # noqa: B018
