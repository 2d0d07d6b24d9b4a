"""Record an old training script under real mmcv: the calls, the log and the files."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "old_project" / "old_script.py"
TRAIN_VAL = "[('train', 1), ('val', 1)]"
BY_ITER = "[('train', 4), ('val', 2)]"

# the runs of a case, each with the arguments of the script; {} is the work directory
CASES: dict[str, list[list[str]]] = {
    "epoch_val_evaluate_ema": [
        ["--limit", "4", "--workflow", TRAIN_VAL, "--evaluate", "--ema", "--wrapped"]
    ],
    "epoch_two_loaders": [
        ["--limit", "5", "--workflow", "[('val', 1), ('train', 1), ('train', 1), ('val', 2)]"]
    ],
    "epoch_resumed": [
        ["--limit", "2"],
        ["--limit", "4", "--workflow", TRAIN_VAL, "--resume-from", "{}/epoch_2.pth"],
    ],
    "iter_val_evaluate": [
        shlex.split("--runner iter --limit 13 --evaluate --workflow \"[('train', 4), ('val', 2)]\"")
    ],
    "epoch_two_processes": [
        ["--limit", "3", "--launcher", "pytorch", "--evaluate", "--workflow", TRAIN_VAL]
    ],
    "iter_resumed": [
        ["--runner", "iter", "--limit", "6"],
        ["--runner", "iter", "--limit", "11", "--resume-from", "{}/iter_6.pth"],
    ],
    "iter_val_resumed": [
        ["--runner", "iter", "--limit", "4", "--workflow", BY_ITER],
        [
            *shlex.split("--runner iter --limit 9 --resume-from {}/iter_4.pth"),
            "--workflow",
            BY_ITER,
        ],
    ],
    "epoch_two_processes_resumed": [
        ["--limit", "2", "--launcher", "pytorch", "--workflow", TRAIN_VAL],
        [
            *shlex.split("--limit 4 --launcher pytorch --resume-from {}/epoch_2.pth"),
            "--workflow",
            TRAIN_VAL,
        ],
    ],
    "iter_two_processes": [
        [
            *shlex.split("--runner iter --limit 9 --launcher pytorch --evaluate"),
            "--workflow",
            BY_ITER,
        ]
    ],
    "iter_two_processes_resumed": [
        shlex.split("--runner iter --limit 4 --launcher pytorch"),
        [
            *shlex.split("--runner iter --limit 9 --launcher pytorch --resume-from {}/iter_4.pth"),
            "--workflow",
            BY_ITER,
        ],
    ],
}
KEPT = ("at", "of", "lr", "momentum", "loss", "weight", "buffers", "training")
TIMES = ("eta", "time", "data_time")


def launched(command: list[str], environments: list[dict[str, str]]) -> None:
    """Run a command in all environments in parallel, to the end."""
    ranks = [
        subprocess.Popen(
            command, env=one, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for one in environments
    ]
    errors = [one.communicate(timeout=240)[1] for one in ranks]
    assert not any(one.returncode for one in ranks), "\n".join(errors)[-3000:]


def run(
    command: list[str],
    runs: list[list[str]],
    work_dir: str,
    script: Path = SCRIPT,
    launch: Callable[[list[str], list[dict[str, str]]], object] = launched,
) -> None:
    """Run the script by ``command``, once per list of arguments; with a launcher, on two ranks."""
    common = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    for arguments in runs:
        filled = [a.format(work_dir) for a in arguments]
        groups = process_group() if "--launcher" in arguments else [{}]
        environments = [{**common, **group} for group in groups]
        launch([*command, str(script), work_dir, *filled], environments)


def process_group() -> list[dict[str, str]]:
    """Return the environment of each of two ranks."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]


def results(work_dir: str) -> dict[str, Any]:
    """Return the notes and logs of the script without times and paths."""
    where = Path(work_dir)
    notes = json.loads((where / "notes.json").read_text())
    logs = [line for path in sorted(where.glob("*.log")) for line in path.read_text().splitlines()]
    records = [
        json.loads(line)
        for path in sorted(where.glob("*.log.json"))
        for line in path.read_text().splitlines()
    ]
    return {
        "notes": [{key: note[key] for key in KEPT} for note in notes],
        "log": [_plain(line, work_dir) for line in logs],
        "json": [
            {k: _without(v, work_dir) for k, v in r.items() if k not in TIMES} for r in records
        ],
        "files": {
            path.name: describe(path, work_dir)
            for path in sorted(where.glob("*.pth"))
            if not path.is_symlink()
        },
        "latest": os.path.basename(os.path.realpath(where / "latest.pth")),
    }


def describe(path: Path, work_dir: str) -> dict[str, Any]:
    """Describe a checkpoint: the meta, the size of each tensor, and the optimizer's groups."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    if "state_dict" not in checkpoint:
        return {"keys": list(checkpoint)}
    meta = {k: v for k, v in checkpoint["meta"].items() if k != "time"}
    sizes = {k: v.double().abs().sum().item() for k, v in checkpoint["state_dict"].items()}
    optimizer = checkpoint.get("optimizer", {"param_groups": [], "state": {}})
    groups = optimizer["param_groups"]
    return {
        "keys": list(checkpoint),
        "meta": _without(meta, work_dir),
        "state_dict": sizes,
        "lr": [group["lr"] for group in groups],
        "states": len(optimizer["state"]),
    }


def _plain(line: str, work_dir: str) -> str:
    line = re.sub(r"^\d{4}-\d\d-\d\d [\d:,]+ - ", "", _without(line, work_dir))
    line = re.sub(r"host: \S+,", "host: ,", line)
    return ", ".join(p for p in line.split(", ") if p.lstrip().partition(":")[0] not in TIMES)


def _without(value: Any, work_dir: str) -> Any:
    return json.loads(json.dumps(value).replace(work_dir, "WORK_DIR"))


def record() -> dict[str, Any]:
    """Record every case."""
    cases = {}
    for name, runs in CASES.items():
        with tempfile.TemporaryDirectory() as work_dir:
            run(
                [sys.executable, "-W", "ignore", str(HERE / "run_script.py"), "mmcv"],
                runs,
                work_dir,
            )
            cases[name] = {"runs": runs, **results(work_dir)}
    return {"cases": cases}
