"""``lightning-hooks report RUN``: a self-contained HTML page of a run."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    HookAdapter,
    IterTimerHook,
    StepLrUpdaterHook,
    TextLoggerHook,
    ThroughputHook,
    WatchHook,
)
from lightning_hooks.cli import main
from lightning_hooks.cli.plot_runs import quantities, read_run
from support.training import TinyModule, make_loader, make_trainer

for package in ("matplotlib", "shtab"):
    pytest.importorskip(package)


def report(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *map(str, arguments)])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


class Page(html.parser.HTMLParser):
    """Parses the tags, addresses and texts of a page; fails on unbalanced tags."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        names = ("src", "href", "xlink:href")
        self.addresses += [v for k, v in attributes if k in names and not v.startswith("#")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work dir of a run with all contents of a report."""
    folder = tmp_path_factory.mktemp("runs") / "digits <1>"
    hooks = [
        StepLrUpdaterHook(step=[1]),
        WatchHook(2, "norms", depth=1),
        ThroughputHook(warmup_iters=0),
        IterTimerHook(),
        CheckpointHook(interval=1),
        BestCheckpointHook("val_loss"),
        TextLoggerHook(interval=2),
    ]
    meta = {"config": "lr = 0.1  # <b>", "api_key": "sk-secret-123456789", "seed": 3}
    adapter = HookAdapter(hooks, work_dir=folder, meta=meta)
    options = {"max_epochs": 3, "num_sanity_val_steps": 0}

    make_trainer(folder, adapter, **options).fit(TinyModule(), make_loader(4), make_loader(1))
    return folder


def test_the_page_has_all_and_loads_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert report(run, "--out", out) == 0
    page, text = Page(out), out.read_text()
    assert page.addresses == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == len(quantities([read_run(run)])) > 6
    titles = ("Curves", "Checkpoints", "Times", "Configuration")
    assert [title for title in page.texts if title in titles] == [*titles]
    assert "digits <1>" in page.texts
    for name in ("epoch_3.pth", "best_val_loss_epoch_1.pth", "data_time", "update_ratio/net"):
        assert name in page.texts
    assert '<tr class="best"><td>best_val_loss_epoch_1.pth' in text
    assert "sk-secret" not in text
    assert "lr = 0.1  # <b>" in page.texts


def written(folder: Path, *, names: int = 1, warnings: int = 0) -> Path:
    """Write the logs of a run."""
    folder.mkdir()
    values = {f"value_{n}": n for n in range(names)}
    rows = [{"mode": "train", "epoch": 1, "iter": n, **values} for n in (1, 2)]
    text = "\n".join(map(json.dumps, rows))
    (folder / "20261123_120000.log.json").write_text(text)
    said = [f"2026-11-23 12:00:00,000 - mmcv - WARNING - <{n}>\n" for n in range(warnings)]
    (folder / "20261123_120000.log").write_text("a line\n" + "".join(said * 2))
    return folder


def test_two_runs_are_beside_each_other(tmp_path: Path) -> None:
    out = tmp_path / "both.html"
    assert report(written(tmp_path / "a"), written(tmp_path / "b", warnings=2), "--out", out) == 0
    page = Page(out)
    assert page.tags.count("svg") == 1
    assert {"1 train", "2 train", "1: a", "2: b", "Warnings of 2: b"} <= {*page.texts}
    assert "Warnings of 1: a" not in page.texts
    assert len([text for text in page.texts if " - WARNING - <" in text]) == 2


def test_a_long_run_is_cut_with_a_line(tmp_path: Path) -> None:
    out = tmp_path / "long.html"
    assert report(written(tmp_path / "a", names=43, warnings=60), "--out", out) == 0
    page = Page(out)
    assert page.tags.count("svg") == 40
    assert "and 3 more: lightning-hooks plot RUN --keys NAME draws one" in page.texts
    assert "and 10 more in 20261123_120000.log" in page.texts


def test_a_folder_without_a_log_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(tmp_path) == 2
    assert "has no .log.json: TextLoggerHook writes one" in capsys.readouterr().err
