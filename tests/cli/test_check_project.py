"""``lightning-hooks check`` of a whole project: whether the training starts."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from lightning_hooks.cli.check.report import Report, check, show

pytestmark = pytest.mark.usefixtures("forked_checks")

TRAIN = """
    import argparse
    import os
    import sys
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("..",):
        python_path = os.path.join(here, name)
        sys.path.insert(0, python_path)
    from lab.apis import train
    from lab import runners

    args = argparse.ArgumentParser().parse_args()
    print("a script's own work is not done")

    def main():
        raise RuntimeError("trained")

    if __name__ == "__main__":
        main()
"""
PROJECT = {
    "tools/train.py": TRAIN,
    "lab/__init__.py": "",
    "lab/apis/__init__.py": "",
    "lab/apis/train.py": "",
    "lab/models.py": "from mmcv.cnn.bricks.registry import PLUGIN_LAYERS\nprint('hello')",
    "lab/runners.py": "from mmcv.runner import Hook\nclass Count(Hook):\n"
    "    def after_run(self, runner): runner.epoch",
    "configs/net.py": "custom_imports = dict(imports=['lab.models'])",
    "configs/base.py": "raise RuntimeError('configs are no modules')\nmodel = dict()",
    "tests/test_net.py": "raise RuntimeError('tests are not imported')",
    "scripts/run.py": "import beside\nfrom scripts.beside import x",
    "scripts/beside.py": "x = 1",
    "setup.py": "raise RuntimeError('setup.py is not run')",
}


BROKEN_PACKAGE = {
    "lab/core/__init__.py": "from .hook import A\nfrom .ops import nms\n",
    "lab/core/hook.py": "from mmcv.runner import Hook\nclass A(Hook): ...\n",
    "lab/core/ops.py": "\nimport math\nmath.nowhere\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PROJECT)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))


def shown(report: Report) -> str:
    console = pytest.importorskip("rich.console").Console(width=200)
    with console.capture() as text:
        show(report, console)
    return str(text.get())


@pytest.mark.parametrize("target", ["tools/train.py", "configs/net.py"])
def test_a_script_or_config_judges_what_it_loads(
    target: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = check(target)
    assert (report.verdict, report.findings) == ("trains", ())
    assert report.script == "tools/train.py"
    assert [(hook["name"], hook["points"]) for hook in report.hooks] == [("Count", ["after_run"])]
    assert capfd.readouterr() == ("", "")


def test_files_that_training_does_not_need_are_one_line(project: Path) -> None:
    write(
        project,
        {
            **BROKEN_PACKAGE,
            "lab/rest.py": "from lab.models import NoNet",
            "docs/conf.py": "import no_theme",
            "tools/deploy.py": "import no_runtime",
        },
    )
    report = check(".")
    assert (report.verdict, report.starts) == ("trains", True)
    assert report.next_steps == ["python -m lightning_hooks.standin tools/train.py ..."]
    assert [one.path for one in report.of("part")] == [
        "docs/conf.py",
        "lab/core/ops.py",  # once for all files of the package
        "lab/rest.py",
        "tools/deploy.py",
    ]
    (line,) = [one for one in shown(report).splitlines() if "not needed for training" in one]
    assert "docs/conf.py:1: no_theme is not installed" in line
    assert "lab/rest.py:1: cannot import name 'NoNet' from 'lab.models'" in line


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("import os\nos._exit(3)", "ends the process when it is imported", 0),
        ("\nimport time\ntime.sleep(60)", "takes more than 1 s when it is imported", 3),
    ],
)
def test_an_import_that_does_not_return_is_one_line(
    text: str, what: str, line: int, project: Path
) -> None:
    Path("lab/apis/train.py").write_text(text)
    report = check("tools/train.py" if line else "lab/apis/train.py", seconds=1)
    (found,) = report.findings
    assert (found.path, found.line, found.what) == ("lab/apis/train.py", line, what)
    assert report.verdict.startswith(f"does not start because {what} (lab/apis/train.py")


def test_all_missing_packages_are_told_at_once_and_pip_gets_known_names_only(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        project,
        {
            "lab/apis/train.py": """
                from mmseg.apis import train
                import pycocotools.mask, no_such_thing.x as s, mmdet
                from lab.more import x
                class Net(train):
                    @s.cached
                    def f(self): ...
            """,
            "lab/more.py": "from torch._seven import inf\nimport lvis, nunmpy\ninf(1).y",
            "tools/train.py": """
                from lab.apis import train  # found with PYTHONPATH alone
                if __name__ == "__main__":
                    train()
            """,
        },
    )
    report = check("tools/train.py")
    assert report.verdict == (
        "does not start because mmseg, pycocotools, no_such_thing, mmdet, lvis, nunmpy are not "
        "installed, the installed torch has no module torch._seven (lab/more.py:1)"
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert report.next_steps == [
        "pip install --no-deps mmsegmentation==0.30.0 mmdet==2.28.2",
        "pip install pycocotools lvis",
        "find out what provides no_such_thing, nunmpy",
        "PYTHONPATH=. python -m lightning_hooks.standin tools/train.py ...",
    ]


def test_without_mmcv_lite_further_missing_packages_are_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"site{os.pathsep}{os.getenv('PYTHONPATH', '')}")
    write(
        project,
        {
            "site/sitecustomize.py": """
                from lightning_hooks.standin import finder
                finder.find_installed = lambda finders: None
            """,
            "lab/apis/train.py": """
                from mmcv.cnn import ConvModule, build_norm_layer
                norm = build_norm_layer(dict(type="BN"), 4)
                forward = ConvModule.forward
                import mmdet
            """,
        },
    )
    report = check("tools/train.py")
    assert report.verdict == "does not start because mmdet, mmcv-lite are not installed"
    assert report.next_steps[:2] == [
        "pip install --no-deps mmdet==2.28.2",
        "pip install mmcv-lite==2.2.0 mmengine==0.10.7 torchvision",
    ]


def test_names_of_mmcv_that_raise_on_use_and_calls_for_a_gpu_are_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("lab/apis/train.py").write_text(
        "from mmcv.onnx import register_extra_symbolics\ndef f(x):\n    return x.cuda()\n"
    )
    write(
        project,
        {
            "lab/decay.py": "from mmcv.runner.hooks.lr_updater import annealing_cos\n"
            "import no_such_thing\nHALF = annealing_cos(1, '0', 0.5)"
        },
    )
    report = check(".")
    (gpu,), (name,), (_, ours) = map(report.of, ("gpu", "note", "part"))
    assert report.verdict == (
        "trains on a machine with a GPU (lab/apis/train.py:3 calls .cuda(), and here is no GPU); "
        f"{ours.what} (lab/decay.py:3)"
    )
    assert ours.what.startswith("an error inside lightning_hooks, lightning_hooks/")
    assert "TypeError: unsupported operand" in ours.what
    assert (gpu.level, name.level) == ("gpu", "note")
    assert name.what.startswith("mmcv.onnx.")
    assert name.what.endswith("raises an error when it is used")
    assert f"attention: lab/apis/train.py: {name.what}" in shown(report)


def test_a_file_of_a_package_that_cannot_be_imported_does_not_start(project: Path) -> None:
    write(project, BROKEN_PACKAGE)
    report = check("lab/core/hook.py")
    assert report.verdict == (
        "does not start because AttributeError: module 'math' has no attribute 'nowhere' "
        "(lab/core/ops.py:3)"
    )
    assert [hook["name"] for hook in report.hooks] == ["A"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_must_be_positive_and_finite(seconds: float, project: Path) -> None:
    with pytest.raises(ValueError, match="seconds must be above 0"):
        check("lab", seconds)


RUN = {
    "tools/train.py": """
        import argparse
        import mmcv

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("data")
            parser.add_argument("--work-dir", required=True)
            args = parser.parse_args()
            from lab.apis import train  # found with PYTHONPATH alone
            train(args.data, args.work_dir)

        if __name__ == "__main__":
            main()
    """,
    "lab/apis/__init__.py": """
        import logging
        import torch
        from mmcv.runner import EpochBasedRunner
        from lab.data import read

        class Net(torch.nn.Linear):
            def train_step(self, batch, optimizer):
                loss = self(batch).mean()
                print("step", file=open("steps.txt", "a"))
                return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=1)

        def train(path, work_dir):
            net, loader = Net(1, 1), torch.utils.data.DataLoader(read(path))
            sgd = torch.optim.SGD(net.parameters(), 0.1)
            runner = EpochBasedRunner(net, None, sgd, work_dir, logging.getLogger(), max_epochs=2)
            runner.register_training_hooks(dict(policy="step", step=[1]), {})
            runner.run([loader], [("train", 1)])
    """,
    "lab/data.py": """
        import pathlib
        import torch

        def read(path):
            text = pathlib.Path(path).read_text()
            return [torch.tensor([float(number)]) for number in text.split()]
    """,
}


@pytest.fixture
def runnable(project: Path) -> Path:
    write(project, {**RUN, "numbers.txt": "1 2 3", "words.txt": "1 two 3"})
    return project


def test_run_trains_the_first_batch_by_the_command_that_it_prints(
    runnable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check("tools/train.py", run=["numbers.txt", "--work-dir", "a b"])
    assert (report.verdict, report.starts) == ("trains: its first batch was trained", True)
    assert Path("steps.txt").read_text() == "step\n"
    assert Path("a b").is_dir()
    monkeypatch.setenv("PYTHONPATH", "site")
    command = "python -m lightning_hooks.standin tools/train.py numbers.txt --work-dir 'a b'"
    assert report.next_steps == [f"PYTHONPATH=.:$PYTHONPATH {command}"]


@pytest.mark.parametrize(
    ("data", "options", "what"),
    [
        (
            "none.txt",
            ["--work-dir", "work"],
            "needs a file: FileNotFoundError: [Errno 2] No such file or directory: 'none.txt' "
            "(lab/data.py:6)",
        ),
        (
            "words.txt",
            ["--work-dir", "work"],
            "ValueError: could not convert string to float: 'two' (lab/data.py:7)",
        ),
        (
            "numbers.txt",
            [],
            "ends the process: train.py: error: the following arguments are required: --work-dir "
            "(tools/train.py)",
        ),
    ],
)
def test_run_says_where_the_command_stops_before_its_first_batch(
    data: str, options: list[str], what: str, runnable: Path
) -> None:
    report = check("tools/train.py", run=[data, *options])
    assert (report.verdict, report.starts) == (f"stops before its first batch: {what}", False)
    assert shown(report).startswith("stops before its first batch: ")
