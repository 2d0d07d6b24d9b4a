"""``lightning-hooks``: what it is told to do, it does or explains."""

from __future__ import annotations

import pytest

from lightning_hooks.cli import main


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "replay" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["reply"]])
def test_what_is_no_command_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "replay" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(SystemExit, match=r"^replay: .*nowhere\.jsonl"):
        main(["replay", "nowhere.jsonl"])
