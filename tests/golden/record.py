"""Record real mmcv's behavior in the JSON files of this folder: `record.py [name ...]`."""

import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

# file to write -> module whose `record()` returns its content
RECORDERS = {
    "traces": "record_traces",
    "training": "record_training",
    "schedules": "record_schedules",
    "text_log": "record_text_log",
    "hook_info": "record_hook_info",
    "log_buffer": "record_log_buffer",
    "evaluation": "record_evaluation",
    "old_script": "record_old_script",
    "old_code": "record_old_code",
    "old_runners": "record_old_runners",
    "old_project": "record_old_project",
    "names": "record_names",
    "hook_names": "record_hook_names",
    "attributes": "record_attributes",
    "dialects": "record_dialects",
    "own_loops": "record_own_loops",
    "param_groups": "record_param_groups",
}
COMMAND = "tests/golden/oracle.sh"
WIDTH = 160


def provenance() -> dict[str, str]:
    """Return the versions behind the numbers; local version labels differ between machines."""
    versions = {name: version(name).split("+")[0] for name in ("mmcv", "torch", "numpy")}
    return {**versions, "command": COMMAND}


def dumps(value: Any, indent: int = 0) -> str:
    """Return JSON with one table row per line: break wide values, but never a list of numbers."""
    # Keys keep their deterministic order, because the order matters in log lines.
    line = json.dumps(value)
    items = list(value.values()) if isinstance(value, dict) else value
    breakable = isinstance(value, (dict, list, tuple)) and any(
        isinstance(item, (dict, list, tuple, str)) for item in items
    )
    if not breakable or indent + len(line) <= WIDTH:
        return line
    parts = [dumps(item, indent + 1) for item in items]
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {part}" for key, part in zip(value, parts, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    margin = "\n" + " " * indent
    return f"{start}{margin} " + f",{margin} ".join(parts) + margin + end


def main(names: list[str]) -> None:
    """Record the named files, or all."""
    for name in names or RECORDERS:
        document = {"provenance": provenance(), **import_module(RECORDERS[name]).record()}
        path = Path(__file__).with_name(f"{name}.json")
        path.write_text(dumps(document) + "\n", encoding="utf-8")
        print(f"{path.name}: {len(document['cases'])} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
