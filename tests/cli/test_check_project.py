"""``lightning-hooks check``: a whole project, judged by importing it in a process of its own."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from lightning_hooks.cli.check.check import check

TRAIN = """
    import argparse
    import sys
    sys.path.append(".")
    from lab.models import Net
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
    "lab/models.py": """
        import torch
        from mmcv.cnn.bricks.registry import PLUGIN_LAYERS

        @PLUGIN_LAYERS.register_module()
        class Net(torch.nn.Module):
            def forward(self, x):
                if torch.cuda.is_available():
                    x.cuda()
                return x.cuda()
    """,
    "lab/runners.py": "from mmcv.runner import Hook\nclass Count(Hook):\n"
    "    def after_run(self, runner): runner.epoch",
    "lab/rest.py": "from lab.models import NoNet",
    "configs/net.py": "model = dict(type='Net', init=dict(type='nms'))",
    "configs/net.yaml": "model: {type: Net}",
    "tests/test_net.py": "raise RuntimeError('tests are not imported')",
    "configs/base.py": "raise RuntimeError('configs are no modules')\nmodel = dict()",
    "scripts/run.py": "import beside\nfrom scripts.beside import x",
    "scripts/beside.py": "x = 1",
    "setup.py": "raise RuntimeError('setup.py is not run')",
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


@pytest.mark.parametrize("target", ["tools/train.py", "configs/net.py", "configs/net.yaml"])
def test_a_script_or_config_judges_what_it_loads(target: str, project: Path) -> None:
    report = check(target)
    assert report.verdict == "trains"
    assert report.script == "tools/train.py"
    assert [hook.name for hook in report.hooks] == ["Count"]
    ((path, line, what),) = {(one.path, one.line, one.what) for one in report.findings}
    assert (path, line) == ("lab/models.py", 10)
    assert what == "calls .cuda(), which raises an error on this machine without a GPU"


def test_a_folder_judges_all_its_files(project: Path) -> None:
    report = check(".")
    assert report.verdict == "trains except lab/rest.py"
    (found,) = (one for one in report.findings if one.level == "part")
    assert (found.path, found.line) == ("lab/rest.py", 1)
    assert found.what.startswith("cannot import name 'NoNet' from 'lab.models'")


# how an import ends: the reason, and its line
ENDINGS = {
    "import sys\nsys.exit(3)": ("ends the process when it is imported: SystemExit(3)", 2),
    "import os\nos._exit(3)": ("ends the process when it is imported", 0),
    "\nimport time\ntime.sleep(60)": ("takes more than 1 s when it is imported", 3),
    "input()": ("EOFError: EOF when reading a line", 1),
    "assert 1 > 2, 'a reason'": ("AssertionError: a reason", 1),
}


@pytest.mark.parametrize("text", ENDINGS)
def test_an_import_that_does_not_return_is_one_line(text: str, project: Path) -> None:
    Path("lab/models.py").write_text(text)
    what, line = ENDINGS[text]
    report = check("tools/train.py" if line else "lab/models.py", seconds=1)
    (found,) = (one for one in report.findings if one.level == "start")
    assert (found.path, found.line, found.what) == ("lab/models.py", line, what)
    assert report.verdict == f"does not start because {what} ({report.place(found)})"


def test_what_an_import_prints_is_one_line(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("lab/models.py").write_text("import os\nNet = 1\nprint('hello')\nprint('hello')\n"
                                     "os.system('echo hello')")  # fmt: skip
    report = check("tools/train.py")
    assert report.verdict == "trains"
    (found,) = report.findings
    assert (found.path, found.what) == ("tools/train.py", "prints 'hello' when it is imported")
    assert capfd.readouterr() == ("", "")


def test_all_missing_packages_are_told_at_once(project: Path) -> None:
    Path("lab/models.py").write_text(
        "from pycocotools_no.coco import COCO\nimport skimage_no as s\nfrom lab.more import x\n"
        "class Net(COCO):\n    @s.cached\n    def f(self): ...\n"
    )
    Path("lab/more.py").write_text("from sklearn_no import x\nx(1, 2).y")
    report = check("tools/train.py")
    assert report.verdict == (
        "does not start because these are not installed: pycocotools_no, skimage_no, sklearn_no"
    )
    assert [(one.path, one.line, one.write) for one in report.findings] == [
        ("lab/models.py", 1, "pip install pycocotools_no"),
        ("lab/models.py", 2, "pip install skimage_no"),
        ("lab/more.py", 1, "pip install sklearn_no"),
    ]


def test_a_placeholder_matters_to_the_types_that_reach_it(project: Path) -> None:
    write(
        project,
        {
            "lab/models.py": """
                from mmcv.cnn.bricks.registry import PLUGIN_LAYERS
                from mmcv.device.mlu import MLUDataParallel
                from mmcv.onnx import register_extra_symbolics
                from lab import exports

                @PLUGIN_LAYERS.register_module()
                class Net: ...

                class Base:
                    def forward(self):
                        return exports.export()

                @PLUGIN_LAYERS.register_module()
                class Exported(Base): ...

                @PLUGIN_LAYERS.register_module()
                class Asks:
                    def forward(self, model):
                        return isinstance(model, MLUDataParallel)

                @PLUGIN_LAYERS.register_module()
                class Heir(MLUDataParallel): ...
            """,
            "lab/exports.py": """
                def export():
                    from mmcv.onnx import register_extra_symbolics
                    register_extra_symbolics()
            """,
            "configs/exported.py": "model = dict(type='Exported')",
            "configs/heir.py": "model = [dict(head=dict(type='mmcv.Heir'))]",
            "configs/asks.py": "model = dict(type='Asks')",
        },
    )
    (project / "lab" / "rest.py").unlink()
    report = check(".")
    assert report.verdict == "trains except type='Heir', type='Exported'"
    found = [(one.path, one.line) for one in report.findings if one.topic == "placeholders"]
    assert found == [("lab/models.py", 23), ("lab/exports.py", 3)]
    assert check("configs/asks.py").verdict == "trains"
    assert check("configs/exported.py").verdict == "trains except type='Exported'"
    assert check("configs/heir.py").verdict == (
        "does not start because mmcv.device.mlu.data_parallel.MLUDataParallel raises an error when "
        "type='Heir' uses it (lab/models.py:23)"
    )


def test_versions_runners_and_missing_names_are_told(project: Path) -> None:
    write(
        project,
        {
            "lab/__init__.py": """
                import mmcv
                mmcv_minimum_version = '1.3.8'
                mmcv_maximum_version = '1.6.0'
                assert mmcv.__version__ <= '1.6.0'
            """,
            "lab/rest.py": """
                import numpy as np
                from mmcv.runner import EpochBasedRunner
                class Own(EpochBasedRunner):
                    def train(self, data_loader, **kwargs):
                        return np.bool8(0)
            """,
        },
    )
    report = check("lab")
    assert not any("prints" in one.what for one in report.findings)  # a line of log is no print
    found = {one.topic: (one.path, one.line, one.what) for one in report.findings}
    what = (
        "mmcv_minimum_version is 1.3.8, mmcv_maximum_version is 1.6.0, and mmcv's version reads as"
    )
    assert found["version"] == ("lab/__init__.py", 3, f"{what} 1.5.3")
    assert found["runners"] == ("lab/rest.py", 4, "Own has its own train, which runs as written")
    gone = "numpy.bool8 is gone, but is there under"
    assert found["numpy and Python"] == ("lab/rest.py", 6, f"{gone} -m lightning_hooks.standin")


def test_what_a_runner_of_the_project_has_its_hooks_may_read(project: Path) -> None:
    write(
        project,
        {
            "lab/runners.py": """
                from mmcv.runner import EpochBasedRunner, Hook
                class Own(EpochBasedRunner):
                    def train(self, data_loaders, **kwargs):
                        self.data_loaders = data_loaders
                    def search_subnet(self): pass
                class Search(Hook):
                    def after_run(self, runner):
                        runner.search_subnet()
                        return runner.data_loaders, runner.data_loadres
            """
        },
    )
    (attention,) = [one.what for one in check("lab").findings if one.topic == "hooks"]
    assert attention.startswith("reads runner.data_loadres")
