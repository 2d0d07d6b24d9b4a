"""Disk faults in a run are reported and lose no saved checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.torture import fault_job
from support.torture.kills import JobStarter

STARTER = JobStarter(fault_job.__name__)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work dir of an undisturbed run."""
    path = tmp_path_factory.mktemp("whole")
    STARTER.start(directory=str(path), background=False, by_epoch=True)
    assert STARTER.answer() == 0, (path / "error.txt").read_text()
    return path


SOON = ("no_space_for_a_checkpoint", "a_flipped_bit")
CASES = [
    pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in fault_job.FAULTS
]


@pytest.mark.parametrize("name", CASES)
def test_fault(whole: Path, tmp_path: Path, name: str) -> None:
    if not fault_job.can_mount():
        pytest.skip("small disks cannot be mounted here")
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)  # the test is about the last folder, not its parents
    STARTER.start(job=name, directory=str(tmp_path), whole=str(whole))
    status = STARTER.answer()
    error = tmp_path / "error.txt"
    assert status == 0, error.read_text() if error.exists() else status
