"""Every statement in SECURITY.md names an existing test."""

from __future__ import annotations

import re

from support.paths import ROOT, TESTS


def test_each_row_names_a_test_that_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if re.match(r"\| (?!-|input|file |where )", row)]
    assert len(rows) > 15
    for row in rows:
        file, _, name = row.rpartition("| `")[2].rstrip("` |").partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), row
