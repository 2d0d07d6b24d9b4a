"""Run test programs in forked processes that have torch and Lightning imported.

A new interpreter takes seconds to import torch, Lightning and the package. A single process, the
fork server, imports ``support.imported_once`` and forks. Each fork behaves like ``python -W ignore
<arguments>``, except that all forks share the seed of ``hash()``.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
import runpy
import sys
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from support.paths import ROOT, TESTS

__all__ = ["HAS_FORKS", "exit_code", "start", "start_server", "wait"]

HAS_FORKS = "forkserver" in multiprocessing.get_all_start_methods()
_processes = multiprocessing.get_context("forkserver" if HAS_FORKS else "spawn")
if HAS_FORKS:
    _processes.set_forkserver_preload(["support.imported_once"])
_reading = threading.Lock()
"""A start reads the exit codes of earlier processes; a code read by two threads is lost."""


def start_server() -> None:
    """Start the fork server if none runs, with the package and the tests on its path."""
    if HAS_FORKS:
        with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, (ROOT, TESTS)))):
            forkserver.ensure_running()


def start(
    arguments: Sequence[str], environment: Mapping[str, str], output: Path, folder: Path
) -> BaseProcess:
    """Start a program.

    Args:
        arguments: ``-m`` and a module, ``-c`` and code, or a script; then the program's arguments.
        environment: All environment variables of the program.
        output: The file for the program's output.
        folder: The working directory of the program.
    """
    given = (list(arguments), dict(environment), str(output), str(folder))
    start_server()
    process = _processes.Process(target=_run, args=given)
    with _reading:
        process.start()
    return process


def exit_code(process: BaseProcess) -> int | None:
    """Wait for the end of a process; safe while another thread starts a process."""
    multiprocessing.connection.wait([process.sentinel])
    with _reading:
        process.join()
        return process.exitcode


def wait(processes: Sequence[BaseProcess], timeout: float) -> list[int | None]:
    """Wait until all processes end or one fails; kill the rest and return the exit codes."""
    end = time.monotonic() + timeout
    while any(one.is_alive() for one in processes) and time.monotonic() < end:
        if any(one.exitcode for one in processes):
            break
        multiprocessing.connection.wait([one.sentinel for one in processes if one.is_alive()], 0.5)
    for one in processes:
        if one.is_alive():
            one.kill()
        one.join()
    return [one.exitcode for one in processes]


def _run(arguments: list[str], environment: dict[str, str], output: str, folder: str) -> None:
    multiprocessing.set_start_method(None, force=True)  # else loaders start fork servers of theirs
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    variable = environment.get("PYTHONPATH", "")
    paths = variable.split(os.pathsep) if variable else []  # [""] would be the working directory
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as a new interpreter's, by chance
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    how, rest = arguments[0], arguments[1:]
    sys.modules.pop("sitecustomize", None)  # the fork server's module, if a distribution brings one
    with contextlib.suppress(ModuleNotFoundError):  # as a new interpreter does
        importlib.import_module("sitecustomize")
    sys.path.insert(0, folder if how in ("-m", "-c") else os.path.dirname(os.path.abspath(how)))
    try:
        if how == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif how == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), vars(main))
        else:
            sys.argv = arguments
            runpy.run_path(how, run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # a fork runs no exit functions
