"""Every name of mmcv 1.7.2 is in the stand-in with the arguments it had, or has a placeholder."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pickle
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from inspected import arguments

from lightning_hooks.standin.cnn.base_module import BaseModule
from lightning_hooks.standin.finder import StandinModule
from lightning_hooks.standin.mmcv_names import FILE
from lightning_hooks.standin.name_table import Source
from lightning_hooks.standin.placeholders import placeholder_name
from lightning_hooks.standin.utils.registry import Registry
from support.golden import recorded
from support.mmcv_names import short

NAMES = recorded("names")["cases"]
SLOW = ("BuildExtension", "CppExtension", "CUDAExtension")  # torch's, and slow to import

# members of classes that differ, and why nothing of an old file is lost
OTHER = {
    "FileClient": "its storage's methods are found on the object",
    "get_momentum": "mmcv gives OneCycleMomentumUpdaterHook the group in the place of a number",
    "deprecated_register_module": "mmcv's way to an error",
    "auto_argparser": "not offered: add_args of mmcv.utils.config",
    "import_segmind": "the hook is refused: see its docstring",
    "train": "Lightning's loop: see BaseRunner",
    "val": "Lightning's loop: see BaseRunner",
    "forward": "torch's own layers call their argument input",
    "copy_grads_to_fp32": "of torch before 1.6",
    "arch_settings": "VGG's own table",
    "copy_params_to_fp16": "of torch before 1.6",
    "symbolic": "of mmcv's ONNX tools, which are not offered",
    "pool_functions": "CornerPool's own table",
}


def takes(theirs: str | None, ours: str | None) -> bool:
    """Whether every call of theirs is one of ours.

    >>> takes("self a b=", "self a b= c="), takes("a", "b"), takes("a= **kwargs", "**kwargs")
    (True, False, True)
    """
    if theirs is None or ours is None:
        return True
    wanted, given = theirs.split(), ours.split()
    rest, named = any(re.match(r"\*\w", p) for p in given), "**" in ours
    places = [p for p in given if not p.startswith("*")]
    for place, parameter in enumerate(p for p in wanted if not p.startswith("*")):
        name = parameter.rstrip("=")
        mine = places[place] if place < len(places) else ""
        if mine.rstrip("=") == name:
            if parameter.endswith("=") and not mine.endswith("="):
                return False
        elif not (rest or named or name in [p.rstrip("=") for p in places]):
            return False
    needed = {p for p in places if not p.endswith("=")}
    return needed <= {p.rstrip("=") for p in wanted} or "*args" in theirs


def test_the_list_of_names_is_as_recorded_with_real_mmcv() -> None:
    """Write it anew with ``python -m support.mmcv_names``."""
    assert FILE.read_text(encoding="utf-8") == short(NAMES)


def names() -> Iterator[tuple[Any, str, Any]]:
    """Yield each module with its names, and the kind or the arguments of each name."""
    for path, recorded_names in NAMES.items():
        module = importlib.import_module(path)
        for name, what in recorded_names.items():
            if name not in SLOW:
                yield module, name, what


def test_every_name_is_there_with_its_kind() -> None:
    for module, name, what in names():
        found = getattr(module, name)
        if what == "module":
            assert inspect.ismodule(found), (module, name)
        elif "class" in what:
            assert inspect.isclass(found), (module, name)
        elif "function" in what:
            assert callable(found), (module, name)
        if isinstance(what, dict) and not placeholder_name(found):
            if inspect.isclass(found):
                assert [*lost(found, what["class"])] == [], module
            else:
                ours = arguments(found)
                assert takes(what["function"], ours), (module, name, what, ours)


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


def lost(cls: type, theirs: dict[str, str | None]) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class that ours does not have, or with other arguments."""
    for member, wanted in theirs.items():
        private = member.startswith("_") and not member.startswith("__")
        if member in OTHER or cls.__name__ in OTHER or private:
            continue
        if not hasattr(cls, member):
            yield f"{cls.__name__}.{member}", wanted
        elif wanted not in ("(property)", "(value)"):
            ours = arguments(getattr(cls, member))
            static = inspect.getattr_static(cls, member)
            bound = isinstance(static, (staticmethod, classmethod))
            mine = ours if bound or ours is None else f"self {ours.removeprefix('self').strip()}"
            if not takes(wanted, mine if not bound else ours):
                yield f"{cls.__name__}.{member}", (wanted, ours)


def test_a_name_that_cannot_be_loaded_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(self: Source) -> Any:
        raise AttributeError("torch has no attribute 'x'")

    monkeypatch.setattr(Source, "load", load)
    module = StandinModule("mmcv.runner")
    with pytest.raises(ImportError, match=r"mmcv\.runner\.HOOKS: torch has no attribute 'x'"):
        module.HOOKS  # noqa: B018
