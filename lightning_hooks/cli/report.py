"""``lightning-hooks report``: a run, or two beside each other, in one HTML file."""

from __future__ import annotations

import html
import io
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from lightning_hooks.cli.list_files import COLUMNS, listed_files
from lightning_hooks.cli.plot_runs import RunLog, changed_most, figure_of, quantities, read_run
from lightning_hooks.cli.terminal import shown
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.secrets import masked

__all__ = ["report"]

MOST_CURVES = 40
"""A picture takes a fifth of a second."""
MOST_WARNINGS = 50

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 1240px; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.curves { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); }
.curves svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8886; padding: .2rem .8rem .2rem 0; text-align: left; }
tr.best { font-weight: 600; }
pre { background: #8882; overflow-x: auto; padding: .6rem; }
@media (prefers-color-scheme: dark) { .curves svg { filter: invert(.9) hue-rotate(180deg); } }
"""


def report(paths: Sequence[str], out: str | Path) -> Path:
    """Write curves, files, times, configuration and warnings of runs into one HTML file.

    The file holds all that it shows, runs no script and loads nothing.

    Args:
        paths: The work directories of a run, or of several to compare.
        out: The HTML file.

    Raises:
        FileNotFoundError: for a folder without a ``.log.json`` of a ``TextLoggerHook``.
        ValueError: for a log without a row, or another ending of ``out``.
        ModuleNotFoundError: if matplotlib is not installed.
    """
    runs = [read_run(path) for path in paths]
    names = [run.path.parent.name or str(run.path.parent) for run in runs]
    parts = [
        f"<h1>{_text(' and '.join(names))}</h1>",
        "<h2>Curves</h2>",
        f'<div class="curves">{"".join(_curves(runs))}</div>',
    ]
    for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        of_run = f" of {number}: {name}" if len(runs) > 1 else ""
        for title, part in (
            ("Checkpoints", _files(run)),
            ("Times", _times(run)),
            ("Configuration", _configuration(run)),
            ("Warnings", _warnings(run)),
        ):
            if part:
                parts += [f"<h2>{_text(title + of_run)}</h2>", f'<div class="wide">{part}</div>']
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(' and '.join(names))}</title><style>{STYLE}</style></head><body>"
    )
    if Path(out).suffix not in (".html", ".htm"):
        raise ValueError(f"a report is a file .html, got {str(out)!r}")
    Path(out).write_text("\n".join([head, *parts, "</body></html>"]), encoding="utf-8")
    return Path(out)


def _text(value: object) -> str:
    return html.escape(printable(str(masked(value))))


def _curves(runs: Sequence[RunLog]) -> Iterable[str]:
    """Yield a picture of each quantity, as SVG inside the page."""
    from matplotlib import rc_context

    keys = quantities(runs)
    for key in changed_most(runs, MOST_CURVES):
        picture = io.StringIO()
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
            figure_of(runs, [key], width=4.5).savefig(
                picture, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
        svg = picture.getvalue()
        yield svg[svg.index("<svg") :]
    if len(keys) > MOST_CURVES:
        left = f"and {len(keys) - MOST_CURVES} more: lightning-hooks plot RUN --keys NAME draws one"
        yield f"<p>{_text(left)}</p>"


def _table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]) -> str:
    """Return a table; each row has a class and cells."""
    lines = [f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in head)}</tr>"]
    for kind, cells in rows:
        line = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="{kind}">{line}</tr>')
    return f"<table>{''.join(lines)}</table>"


def _files(run: RunLog) -> str:
    """Return the checkpoints, with the best marked."""
    try:
        files = listed_files(str(run.path.parent))
    except FileNotFoundError:
        return ""
    rows = [
        ("best" if "best" in row["what"] else "", [shown(row[name]) for name in COLUMNS])
        for row in files
    ]
    return _table(COLUMNS, rows)


def _times(run: RunLog) -> str:
    """Return the seconds of an iteration, and what they went to."""
    values: dict[str, list[float]] = {}
    for row in run.rows:
        for key, value in row.items():
            is_time = key in ("time", "data_time") or key.startswith("step_time/")
            if is_time and row["mode"] == "train" and isinstance(value, (int, float)):
                values.setdefault(key, []).append(value)
    means = {key: statistics.fmean(numbers) for key, numbers in values.items()}
    whole = means.get("time") or sum(v for k, v in means.items() if k.startswith("step_time/"))
    rows = [
        ("", (key, f"{mean:.4f}", f"{mean / whole:.1%}" if whole else ""))
        for key, mean in means.items()
    ]
    return _table(("", "seconds of an iteration", "share"), rows) if rows else ""


def _configuration(run: RunLog) -> str:
    """Return the first line of the log, the run's ``meta``, without secrets."""
    with open(run.path, encoding="utf-8", errors="replace", opener=regular) as file:
        first = file.readline()
    try:
        meta = json.loads(first)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(meta, dict) or "mode" in meta:
        return ""
    config = meta.pop("config", None)
    lines = json.dumps(masked(meta), indent=2, default=str) if meta else ""
    texts = [lines, config if isinstance(config, str) else ""]
    return "".join(f"<pre>{html.escape(str(masked(text)))}</pre>" for text in texts if text)


def _warnings(run: RunLog) -> str:
    """Return the warnings and errors in the text log, each once."""
    log = run.path.with_name(run.path.name.removesuffix(".json"))
    if not log.is_file():
        return ""
    with open(log, encoding="utf-8", errors="replace", opener=regular) as file:
        found = dict.fromkeys(
            line.strip() for line in file if re.search(r" - (WARNING|ERROR|CRITICAL) - ", line)
        )
    shown_lines = [*found][:MOST_WARNINGS]
    more = len(found) - len(shown_lines)
    shown_lines += [f"and {more} more in {log.name}"] if more else []
    return "".join(f"<pre>{_text(line)}</pre>" for line in shown_lines)
