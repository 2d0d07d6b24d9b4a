"""Real projects of the mmcv 1.x era train, resume and test with none of their lines changed.

``make old-code`` installs them from PyPI, draws tiny data, and runs their own ``tools/train.py``
and ``tools/test.py`` with configs of theirs. Log rows, files, checkpoints and results must be
those under real mmcv 1.7.2.
"""

from __future__ import annotations

import subprocess

import pytest
from record_old_trainers import run

from support.differences import differences
from support.golden import recorded

CASES = recorded("old_trainers")["cases"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_project_trains_resumes_and_tests_as_under_mmcv(name: str) -> None:
    try:
        found = run(name, "standin")
    except subprocess.CalledProcessError as error:
        if "pip" in error.cmd:
            pytest.skip("PyPI cannot be reached")
        raise
    assert differences(found, CASES[name]) == []
