"""Removed names of Python, numpy and torch exist during an old script and only then."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from lightning_hooks import standin
from lightning_hooks.standin.__main__ import main
from support.processes import run_program

SCRIPT = """
import collections, inspect, io, sys
import numpy as np
import torch
from collections import Sequence
import pkg_resources
from torch._six import container_abcs, string_classes
import mmcv

assert (np.int, np.float, np.bool8, np.float_) == (int, float, np.bool_, np.float64)
assert np.int is int
assert np.product([2, 3]) == 6 and np.Inf == np.inf == -np.NINF and np.isnan(np.NAN)
assert {np.float32, np.longdouble} < {*np.sctypes["float"]} and np.uint8 in np.sctypes["uint"]
assert np.in1d([[1, 2], [3, 4]], [2, 3], invert=True).tolist() == [True, False, False, True]
assert np.asfarray([1]).dtype == float and np.math.pi > 3
assert issubclass(list, Sequence) and collections.Mapping is container_abcs.Mapping
assert inspect.getargspec(lambda a, *b: 0).args == ["a"]
assert pkg_resources.parse_version("1.9") < pkg_resources.parse_version("1.10")
assert torch.__version__.startswith(pkg_resources.get_distribution("torch").version)
class Meta: ...
torch.save({"meta": Meta()}, "old.pth")
assert isinstance(torch.load("old.pth")["meta"], Meta)
with open("old.pth", "rb") as file:
    assert isinstance(torch.load(file, map_location="cpu")["meta"], Meta)
for asked in (dict(weights_only=True), {}):
    try:
        torch.load("old.pth", **asked)
    except Exception as error:
        print(type(error).__name__)
    import os
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
for name in ("nonsense", "int_"):
    print(hasattr(np, name))
print(mmcv.__version__, sys.argv[1:])
"""

RUN = """
import os, sys, torch
os.chdir({folder!r})
from lightning_hooks.standin.__main__ import main
try:
    main({arguments!r})
except SystemExit as end:
    print(end)
"""


def run_script(folder: Path, *arguments: str, script: str = SCRIPT) -> list[str]:
    (folder / "train.py").write_text(script)
    program = RUN.format(folder=str(folder), arguments=[*arguments])
    return run_program(program).splitlines()


def test_an_old_script_finds_what_was_dropped_and_a_line_names_each(tmp_path: Path) -> None:
    lines = run_script(tmp_path, "--mmcv", "1.4.0", "train.py", "--mmcv", "mine")
    logged = [line for line in lines if " - lightning_hooks - " in line]
    assert lines[-5:] == [
        "UnpicklingError",
        "UnpicklingError",
        "False",
        "True",
        "1.4.0 ['--mmcv', 'mine']",
    ]
    getargspec = (
        "inspect.getargspec is no longer there: a replacement of lightning_hooks takes its place"
    )
    for start in (
        *([getargspec] if sys.version_info >= (3, 11) else []),  # exists in 3.10
        "numpy.int is no longer there: int takes its place",
        "numpy.NAN is no longer there: nan takes its place",
        "numpy.sctypes is no longer there: a replacement of lightning_hooks takes its place",
        "collections.Sequence is no longer there",
        "torch._six.container_abcs is no longer there: collections.abc takes its place",
        "pkg_resources.parse_version is no longer there: parse takes its place",
        "old.pth holds more than weights: it is read as before torch 2.6",
    ):
        assert sum(f" - {start}" in line for line in logged) == 1, start


def test_without_it_nothing_is_patched() -> None:
    program = """
    import collections, torch, numpy as np
    before = torch.load
    from lightning_hooks import standin
    standin.install()
    import mmcv
    print(hasattr(np, "bool8"), hasattr(collections, "Mapping"), torch.load is before)
    """
    assert run_program(textwrap.dedent(program)).split() == ["False", "False", "True"]


def test_a_version_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("LIGHTNING_HOOKS_MMCV_VERSION", "3")
    standin.uninstall()
    with pytest.raises(SystemExit, match=r"version='3' is no version of mmcv 1.x: give one as"):
        main([str(tmp_path / "train.py")])


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--mmcv"]])
def test_the_usage_names_the_option(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "[--mmcv VERSION] script.py" in capsys.readouterr().out
