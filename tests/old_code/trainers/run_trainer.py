"""Train, resume and test a project in a folder, under the stand-in or under real mmcv.

``python run_trainer.py PROJECT SITE FOLDER mmcv|standin`` prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draw import DATA
from projects import PROJECTS, Project

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VARYING = {"time", "data_time", "memory", "eval_time", "eta", "mmcv_version"}
"""Keys of log rows that differ from run to run; the version differs for projects with a window."""


def numbers(tensor: Any) -> list[Any]:
    """Return a tensor's shape, sum and norm: equal within rounding, the tensor is."""
    values = torch.as_tensor(tensor).detach().double()
    return [list(values.shape), float(values.sum()), float(values.norm())]


def checkpoint(path: Path) -> dict[str, Any]:
    """Return the keys, counts and weights of a checkpoint."""
    loaded = torch.load(path, map_location="cpu", weights_only=False)
    weights = {key: numbers(value) for key, value in loaded["state_dict"].items()}
    meta = {key: loaded["meta"].get(key) for key in ("epoch", "iter", "CLASSES")}
    return {
        "keys": sorted(loaded),
        "meta_keys": sorted(loaded["meta"]),
        "meta": json.loads(json.dumps(meta)),
        "optimizer": sorted(loaded.get("optimizer", {})),
        "weights": weights,
    }


def saved(directory: Path, name: str) -> Path:
    """Return the path of a run's checkpoint, which some projects write to a subfolder."""
    (path,) = directory.rglob(f"{name}.pth")
    return path


def rows(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's JSON logs without varying values and the environment."""
    found = []
    for path in sorted(directory.glob("*.log.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "env_info" not in row:
                found.append({key: value for key, value in row.items() if key not in VARYING})
    return found


def files(directory: Path) -> list[str]:
    """Return the files of a run, with ``*`` for times of day."""
    names = (str(path.relative_to(directory)) for path in directory.rglob("*"))
    stamped = (re.sub(r"\d{8}_\d{6}|events\.out.*", "*", name) for name in names)
    return sorted({name for name in stamped if not name.endswith("last_checkpoint")})


def flat(value: Any) -> Any:
    """Return a result with each array replaced by a sum."""
    if isinstance(value, dict):
        return {str(key): flat(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return numbers(value)
    if isinstance(value, np.ndarray):
        return numbers(value) if value.dtype != object else str(value)
    return value.item() if isinstance(value, np.generic) else value


class Runs:
    """Runs the scripts of a project in a folder under the stand-in or real mmcv."""

    def __init__(self, project: Project, side: str) -> None:
        self.project, self.side = project, side

    def script(self, name: str, *arguments: str) -> str:
        """Run ``tools/<name>.py`` as a user does; return the output."""
        site = [str(HERE / "habits"), str(Path("site").resolve()), str(ROOT)]
        module = [] if self.side == "mmcv" else ["-m", "lightning_hooks.standin"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*site, os.environ.get("OLD_CODE_PATH", "")]),
            "OLD_SIDE": self.side,
            "OLD_MMCV": self.project.version,
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        package = self.project.package
        tool = f"site/{package}/.mim/tools/{name}.py"
        if not self.project.base:
            tool = str(HERE / f"{name}_{package}.py")
        command = [sys.executable, "-W", "ignore", *module, tool, *arguments]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        Path(f"{name}.{len(list(Path().glob(f'{name}.*.txt')))}.txt").write_text(
            f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}", encoding="utf-8"
        )
        if ended.returncode:
            raise RuntimeError(f"{tool} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
        return ended.stdout

    def train(self, directory: str, *arguments: str) -> dict[str, Any]:
        """Train; return the rows, files and last checkpoint of the run."""
        common = ("--work-dir", directory, "--seed", "0", "--deterministic")
        self.script("train", "config.py", *common, *arguments, *self.project.train)
        left = Path(directory)
        return {
            "rows": rows(left),
            "files": files(left),
            "checkpoint": checkpoint(saved(left, self.project.last)),
        }

    def test(self) -> dict[str, Any]:
        """Test the last checkpoint; return the results and the printed numbers."""
        last = str(saved(Path("work"), self.project.last))
        printed = self.script("test", "config.py", *self.project.tested, last, *self.project.test)
        found: dict[str, Any] = {"printed": re.findall(r"(?m)^\S+ : [\d.]+$", printed)}
        for path in (Path("result.pkl"), Path("result.json")):
            if path.exists() and path.suffix == ".pkl":
                found["result"] = flat(pickle.loads(path.read_bytes()))
            elif path.exists():
                found["result"] = json.loads(path.read_text(encoding="utf-8"))
        images = sorted(str(path) for path in Path("images").rglob("*.png"))
        return {**found, "images": images} if images else found


def lay_out(name: str, site: Path) -> None:
    """Make a project's config and data in the current folder."""
    project = PROJECTS[name]
    Path("site").symlink_to(site)
    config = (HERE / "configs" / f"{name}.py").read_text(encoding="utf-8")
    if project.base:
        base = f"site/{project.package}/.mim/configs/{project.base}"
        config = f"_base_ = {base!r}\n{config}"
    Path("config.py").write_text(config, encoding="utf-8")
    Path("data").mkdir()
    DATA[project.data](Path("data"))


def run(name: str, site: Path, directory: Path, side: str) -> dict[str, Any]:
    """Empty a folder, then train, resume and test a project in the folder."""
    project = PROJECTS[name]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    os.chdir(directory)
    lay_out(name, site)
    runs = Runs(project, side)
    found = {"train": runs.train("work")}
    first = resumed = saved(Path("work"), project.resumed)
    if project.carried:
        resumed = Path("../mmcv").resolve() / first
        found["load"] = runs.train("loaded", "--cfg-options", f"load_from={resumed}")
    found["resume"] = runs.train("resumed", "--resume-from", str(resumed))
    if project.auto:
        Path("auto").mkdir()
        shutil.copy(first, "auto")
        found["auto"] = runs.train("auto", "--auto-resume")
    if project.test:
        found["test"] = runs.test()
    return found


if __name__ == "__main__":
    name, site, directory, side = sys.argv[1:]
    if side == "standin":  # a checkpoint may have a Config of mmcv's
        from lightning_hooks import standin

        standin.install()
    found = run(name, Path(site).resolve(), Path(directory).resolve(), side)
    Path("found.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
