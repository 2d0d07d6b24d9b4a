"""Processes started by "spawn" or "forkserver" in a script have the stand-in and the habits."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import run_python
from support.standin import COMMAND, needs_lite

SCRIPT = """
import multiprocessing, sys
from collections import Mapping
import numpy as np
from mmcv import Config, __version__

prepare = quiet = _SCRIPT = None  # names of what runs the script again


class Found:
    def __init__(self, *values):
        self.values = values


def compute(config):
    daemon = multiprocessing.current_process().daemon
    return Found(config.lr, np.int(2.5), issubclass(dict, Mapping), sys.argv, __version__, daemon)


def in_a_pool(way):
    with multiprocessing.get_context(way).Pool(1) as pool:
        return pool.map(compute, [Config(dict(lr=0.5))])[0].values


def show(way):
    print("below", *in_a_pool(way))


if __name__ == "__main__":
    way = sys.argv[1]
    if way == "nested":
        process = multiprocessing.get_context("spawn").Process(target=show, args=["spawn"])
        process.start()
        process.join(120)
    else:
        print(*in_a_pool(way))
"""


def run(folder: Path, way: str) -> list[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return run_python(*COMMAND[1:], "--mmcv", "1.4.0", script, way).splitlines()


def expected(folder: Path, way: str) -> str:
    return f"0.5 2 True ['{folder / 'script.py'}', '{way}'] 1.4.0 True"


@needs_lite
@pytest.mark.parametrize("way", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_a_pool_of_the_script_computes(way: str, tmp_path: Path) -> None:
    lines = run(tmp_path, way)
    assert expected(tmp_path, way) in lines
    # named once, not by each worker
    assert len([line for line in lines if "collections.Mapping is no longer there" in line]) == 1


@needs_lite
@pytest.mark.slow
def test_a_process_of_the_script_has_workers_of_its_own(tmp_path: Path) -> None:
    assert f"below {expected(tmp_path, 'nested')}" in run(tmp_path, "nested")
