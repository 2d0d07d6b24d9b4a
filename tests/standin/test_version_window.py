"""Old packages see the version set by the user, or a version within the package's window."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

import pytest

from lightning_hooks import standin
from lightning_hooks.standin.utils.notice import notice

OLD = """
import mmcv
from mmcv import digit_version

{minimum_name} = {minimum!r}
{maximum_name} = {maximum!r}
mmcv_version = digit_version(mmcv.__version__)
assert digit_version({minimum!r}) <= mmcv_version {less} digit_version({maximum!r}), 'MMCV'
read = mmcv.__version__
"""


def package(
    folder: Path, minimum: str, maximum: str, less: str = "<=", names: str = "mmcv_minimum_version"
) -> None:
    text = OLD.format(
        minimum=minimum,
        maximum=maximum,
        less=less,
        minimum_name=names,
        maximum_name=names.replace("min", "max").replace("MIN", "MAX"),
    )
    (folder / "oldlab").mkdir()
    (folder / "oldlab" / "__init__.py").write_text(text)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "oldlab", raising=False)
    monkeypatch.delenv("LIGHTNING_HOOKS_MMCV_VERSION", raising=False)
    standin.uninstall()


@pytest.mark.parametrize(
    ("minimum", "maximum", "less", "read", "names"),
    [
        ("1.1.4", "1.3.0", "<=", "1.1.4", "mmcv_minimum_version"),
        ("1.3.8", "1.4.0", "<", "1.3.8", "MMCV_MIN"),
        ("1.4.0", "1.4.0", "<=", "1.4.0", "MMCV_MIN"),
        ("1.3.17", "1.8.0", "<", "1.7.2", "mmcv_minimum_version"),
    ],
)
def test_a_package_reads_a_version_within_its_window_and_one_line_says_so(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    minimum: str,
    maximum: str,
    less: str,
    read: str,
    names: str,
) -> None:
    package(tmp_path, minimum, maximum, less, names)
    standin.install()
    notice.cache_clear()
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        assert importlib.import_module("oldlab").read == read
    lines = [line for line in caplog.messages if "oldlab" in line]
    assert len(lines) == (read != "1.7.2")
    assert all(f"mmcv {minimum} to {maximum}" in line and read in line for line in lines)
    assert importlib.import_module("mmcv").__version__ == "1.7.2"


def test_a_package_for_mmcv_2_still_fails(tmp_path: Path) -> None:
    package(tmp_path, "2.0.0rc4", "2.2.0")
    standin.install()
    with pytest.raises(AssertionError, match="MMCV"):
        importlib.import_module("oldlab")


def test_a_version_that_the_user_sets_is_for_all(tmp_path: Path) -> None:
    package(tmp_path, "1.3.8", "1.5.0")
    standin.install(version="1.4.0")
    import mmcv
    from mmcv.version import __version__, version_info

    assert (mmcv.__version__, mmcv.version_info) == ("1.4.0", (1, 4, 0))
    assert (__version__, version_info) == ("1.4.0", (1, 4, 0))
    assert "1.4.0 (stand-in" in mmcv.collect_env()["MMCV"]
    assert importlib.import_module("oldlab").read == "1.4.0"
    standin.install()
    assert mmcv.__version__ == "1.4.0"
    standin.install(version="1.5.0")
    assert mmcv.__version__ == "1.5.0"


def test_the_environment_sets_it_too_and_the_argument_goes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package(tmp_path, "1.3.8", "1.4.0")
    monkeypatch.setenv("LIGHTNING_HOOKS_MMCV_VERSION", "1.6.1")
    with standin.installed():
        assert importlib.import_module("mmcv").__version__ == "1.6.1"
        with pytest.raises(AssertionError, match="MMCV"):  # the user's version is for all files
            importlib.import_module("oldlab")
    standin.install(version="1.3.9")
    assert importlib.import_module("mmcv").__version__ == "1.3.9"


@pytest.mark.parametrize("version", ["2.0.0", "1", "new"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"version='{version}' is no version of mmcv 1.x"):
        standin.install(version=version)
    assert "mmcv" not in sys.modules
