"""An unchanged project has the same results under the stand-in as under real mmcv.

``old_project/`` has the parts of old projects: configs with bases and ``custom_imports``, custom
hooks, policies, loggers and checkpoint hooks, a runner with ``run_iter``, ``save_checkpoint`` and
``resume``, an optimizer constructor, and a ``train.py`` with ``DictAction``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from record_old_project import TRAIN

from support.golden import recorded
from support.standin import check_results, needs_lite, run_forked

GOLDEN = recorded("old_project")["cases"]


SLOW = ("own_runner_and_constructor_resumed", "two_backwards_by_iteration")


@needs_lite
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in GOLDEN],
)
def test_the_project_equals_mmcv(case: str, tmp_path: Path) -> None:
    want = GOLDEN[case]
    run_forked(want["runs"], tmp_path, TRAIN)
    check_results(tmp_path, want, absolute=1e-4)
