"""Paths of the tests and of the repository."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GOLDEN", "ROOT", "TESTS"]

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
"""The recordings under other libraries, and the recorders."""
