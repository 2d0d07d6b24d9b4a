"""Provide what old packages use of setuptools' ``pkg_resources``, which release 82 has dropped."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import types
from typing import Any

__all__ = [
    "DistributionNotFound",
    "get_distribution",
    "iter_entry_points",
    "parse_version",
    "resource_filename",
]

DistributionNotFound = importlib.metadata.PackageNotFoundError


def parse_version(version: str) -> Any:
    """Return a version that compares."""
    from packaging.version import parse

    return parse(version)


def get_distribution(name: str) -> Any:
    """Return an installed distribution's ``project_name``, ``version`` and ``location``.

    Raises:
        DistributionNotFound: if it is not installed.
    """
    found = importlib.metadata.distribution(name)
    location = os.path.abspath(str(found.locate_file("")))
    return types.SimpleNamespace(
        project_name=found.name, key=found.name.lower(), version=found.version, location=location
    )


def iter_entry_points(group: str, name: str | None = None) -> Any:
    """Return the entry points of a group."""
    found = importlib.metadata.entry_points(group=group)
    return iter(found if name is None else found.select(name=name))


def resource_filename(package: Any, resource_name: str) -> str:
    """Return the path of a package's file."""
    spec = importlib.util.find_spec(str(package))
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise ModuleNotFoundError(f"no package {package!r} on the path, of which to give a file")
    return os.path.join(folders[0], resource_name)
