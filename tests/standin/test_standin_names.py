"""Every name of mmcv 1.7.2 is in the stand-in with the arguments it had, or is refused in words."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from inspected import arguments

from lightning_hooks.standin.finder import StandinModule
from lightning_hooks.standin.names import Source
from lightning_hooks.standin.refused import NOT_OFFERED
from support.golden import recorded
from support.standin import is_here

NAMES = recorded("names")["cases"]
SLOW = ("BuildExtension", "CppExtension", "CUDAExtension")  # torch's, and slow to import

# members of classes that differ, and why nothing of an old file is lost
OTHER = {
    "FileClient": "its storage's methods are found on the object",
    "get_momentum": "mmcv gives OneCycleMomentumUpdaterHook the group in the place of a number",
    "deprecated_register_module": "mmcv's way to an error",
    "auto_argparser": "refused: see NOT_OFFERED",
    "import_segmind": "the hook is refused: see its docstring",
    "train": "Lightning's loop: see BaseRunner",
    "val": "Lightning's loop: see BaseRunner",
    "forward": "torch's own layers call their argument input",
    "copy_grads_to_fp32": "of torch before 1.6",
    "arch_settings": "VGG's own table",
    "copy_params_to_fp16": "of torch before 1.6",
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


@pytest.mark.parametrize("path", [path for path in NAMES if is_here(path)])
def test_every_name_is_there_or_refused(path: str) -> None:
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        refused = str(error).partition(":")[0]
        if not (path.startswith(refused) and refused in NOT_OFFERED):
            raise
        return
    for name, what in NAMES[path].items():
        if name in SLOW or not is_here(path, name):
            continue
        try:
            found = getattr(module, name)
        except AttributeError as error:
            said = str(error)
            assert f"{path}.{name}:" in said or f"{path} has no {name!r}" in said
            assert re.search(r"\b(take|give|copy)\b", said, re.I), said
            continue
        if isinstance(what, dict) and "function" in what:
            assert takes(what["function"], arguments(found)), (name, what, arguments(found))
        elif isinstance(what, dict):
            assert inspect.isclass(found)
            assert [*lost(found, what["class"])] == []


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


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_what_is_refused_is_refused_by_its_name_with_a_way_out(name: str) -> None:
    parent, _, last = name.rpartition(".")
    with pytest.raises(ImportError, match=rf"^{re.escape(name)}: .*([Tt]ake|[Gg]ive|copy)\b"):
        exec(f"from {parent} import {last}")
    with pytest.raises(ImportError, match=re.escape(name)):
        importlib.import_module(name)


def test_a_name_that_cannot_be_loaded_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(self: Source) -> Any:
        raise AttributeError("torch has no attribute 'x'")

    monkeypatch.setattr(Source, "load", load)
    module = StandinModule("mmcv.runner")
    with pytest.raises(ImportError, match=r"mmcv\.runner\.HOOKS: torch has no attribute 'x'"):
        module.HOOKS  # noqa: B018
