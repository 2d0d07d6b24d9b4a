"""``lightning-hooks`` runs each command or explains the error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import lightning_hooks
from lightning_hooks import HOOKS, DvcliveLoggerHook
from lightning_hooks.cli import main
from lightning_hooks.cli.plot_config import curves_of
from lightning_hooks.schedules import sample
from support.training import NoValidation, make_loader, make_trainer

for package in ("plotext", "rich", "shtab"):
    pytest.importorskip(package)

CONFIG = """
optimizer = dict(type="SGD", lr=0.5, momentum=0.9)
lr_config = dict(policy="step", step=[2], warmup="linear", warmup_iters=4)
momentum_config = dict(policy="CosineAnnealing", min_momentum_ratio=0.5)
optimizer_config = dict(grad_clip=dict(max_norm=35, norm_type=2))
checkpoint_config = dict(interval=1, max_keep_ckpts=3)
log_config = dict(interval=50, hooks=[dict(type="TextLoggerHook")])
custom_hooks = [dict(type="EMAHook", momentum=0.0002, priority="VERY_LOW")]
evaluation = dict(interval=2, save_best="auto")
runner = dict(type="EpochBasedRunner", max_epochs=4)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(CONFIG)
    return "config.py"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    told = capsys.readouterr().out
    for command in ("check", "plot", "convert", "files", "hooks", "replay", "report"):
        assert command in told


@pytest.mark.parametrize("command", ["check", "convert", "plot"])
def test_help_says_which_commands_run_code(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    assert re.search(r"Run\s+a\s+\w+'s\s+code", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [[], ["reply"], ["plot", "a.py", "--epochs", "-1"]])
def test_an_unknown_command_or_option_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert "replay" in said or "--epochs" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "nowhere.jsonl", "--to", "mlflow"], "nowhere.jsonl"),
        (["check", "nowhere"], "no file, folder or module 'nowhere'"),
        (["check", "nowhere/to/be.py"], "nowhere/to/be.py"),
        (["convert", "nowhere.py"], "nowhere.py"),
        (["convert", "notes.txt"], "must end in .py, .yaml, .yml or .json"),
        (["convert", "broken.py"], "broken.py"),
        (["convert", "misspelt.py"], "did you mean 'Step'? (in lr_config of the config)"),
        (["convert", "."], "must end in .py, .yaml, .yml or .json"),
        (["check", "notes.txt", "--seconds", "0"], "seconds must be above 0 and at most 9"),
        (
            ["check", "made.py", "--run", "a.py", "--lr", "1"],
            "no training script to run in made.py",
        ),
        (["convert", "wrong.py"], "gama"),
        (["convert", "made.py"], "is an object already"),
        (["plot", "empty.py", "--iters-per-epoch", "2"], "no lr_config, momentum_config or"),
        (["plot", "endless.py", "--iters-per-epoch", "2"], "--epochs"),
        (["plot", "config.py"], "--iters-per-epoch"),
        (["plot", "config.py", "--keys", "loss"], "--keys is for runs"),
        (["plot", ".", "--epochs", "2"], "--epochs and --iters-per-epoch are for a config"),
    ],
)
def test_wrong_input_is_reported_in_one_line(
    arguments: list[str], message: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes.txt").write_text("")
    Path("broken.py").write_text("lr_config = dict(")
    Path("misspelt.py").write_text("lr_config = dict(policy='stp')")
    Path("wrong.py").write_text("lr_config = dict(policy='step', step=1, gama=2)")
    Path("made.py").write_text(
        "import lightning_hooks as h\ncustom_hooks = [h.EMAHook()]\nlr_config = None"
    )
    Path("empty.py").write_text("a = 1")
    Path("endless.py").write_text("lr_config = dict(policy='fixed')")
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert said.startswith("lightning-hooks: ")


def test_a_warning_is_printed_once_and_without_a_line_of_code(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = "policy='fixed', warmup='linear', warmup_iters=9"
    Path("long.py").write_text(f"lr_config = dict({policy})\ntotal_epochs = 2")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("plot", "long.py", "--iters-per-epoch", "2") == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("lightning-hooks: FixedLrUpdaterHook")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(SystemExit, match="needs rich: pip install rich"):
        main(["hooks"])


def test_hooks_lists_all_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hooks", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    ours = {n for n, c in HOOKS.module_dict.items() if c.__module__.startswith("lightning_hooks.")}
    assert {row["name"] for row in rows} == {*ours, "EvalHook", "DistEvalHook"}
    assert all(row["what"].endswith((".", ":")) for row in rows)
    assert not any(mark in row["what"] for row in rows for mark in ("`", ":func:", ":class:"))
    assert run("hooks") == 0
    lines = capsys.readouterr().out.splitlines()  # no terminal: a whole line for each, for grep
    assert lines == ["\t".join((row["name"], row["origin"], row["what"])) for row in rows]


def test_a_reader_that_closes_the_pipe_ends_the_command_in_silence() -> None:
    command = [sys.executable, "-m", "lightning_hooks", "hooks"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as head does after its last line
    assert process.communicate()[1] == b""
    assert process.returncode == 1


def test_convert_leaves_unknown_hooks_out_with_a_comment(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = "\ncustom_hooks += [dict(type='EMAHok'), dict(type='IterTimerHook')]"
    Path(config).write_text(f"{CONFIG}{unknown}\ncustom_imports = dict(imports=['no_lab'])")
    assert run("convert", config) == 0
    first, second, *code = capsys.readouterr().out.splitlines()
    assert first == "# custom_imports: ModuleNotFoundError: No module named 'no_lab'"
    assert second.startswith("# not converted: EMAHok is not registered; did you mean 'EMAHook'")
    compile("\n".join(code), "code", "exec")
    assert "EMAHook(momentum=0.0002)" in "".join(code)


def test_a_run_by_iterations_is_drawn_whole_with_epochs_too(config: str) -> None:
    Path("iters.py").write_text(
        "runner = dict(type='IterBasedRunner', max_iters=20)\n"
        "lr_config = dict(policy='step', step=[3], by_epoch=True)"
    )
    for given, epochs in ((None, 1), (5, 4), (6, 4), (50, 1)):
        (hook,), drawn = curves_of("iters.py", iters_per_epoch=given)
        assert drawn["max_epochs"] == epochs
    (hook,), drawn = curves_of("iters.py", iters_per_epoch=5)
    assert sample(hook, **drawn) == pytest.approx([0.1] * 15 + [0.01] * 5)


def test_schedules_among_the_custom_hooks_are_drawn(tmp_path: Path) -> None:
    config = {
        "lr_config": {"policy": "fixed"},
        "custom_hooks": [
            {"type": "EMAHook"},
            {"type": "StepMomentumUpdaterHook", "step": [1]},
            {"type": "FieldUpdaterHook", "name": "eps", "policy": "exp", "gamma": 0.5},
        ],
        "total_epochs": 2,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    hooks, _ = curves_of(path, iters_per_epoch=5)
    names = sorted(type(hook).__name__ for hook in hooks)
    assert names == ["FieldUpdaterHook", "FixedLrUpdaterHook", "StepMomentumUpdaterHook"]


def test_plot_draws_a_picture_and_the_terminal(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plot", config, "--iters-per-epoch", "5", "--out", "curves.png") == 0
    shown = capsys.readouterr().out
    assert "learning rate: StepLrUpdaterHook" in shown
    assert "momentum: CosineAnnealingMomentumUpdaterHook" in shown
    assert "0.50" in shown  # the optimizer's rate is the config's
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_config_that_counts_in_iterations_needs_no_lengths(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("by_iter.py").write_text(
        "lr_config = dict(policy='poly', power=0.9, min_lr=1e-4, by_epoch=False)\n"
        "runner = dict(type='IterBasedRunner', max_iters=80)"
    )
    assert run("plot", "by_iter.py") == 0
    assert "PolyLrUpdaterHook" in capsys.readouterr().out
    assert Path("schedule.png").exists()


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"lightning-hooks {lightning_hooks.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_files(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--print-completion", shell) == 0
    script = capsys.readouterr().out
    for name in ("check", "replay", "--iters-per-epoch"):
        assert name.lstrip("-") in script


def test_help_hooks_and_wrong_paths_need_neither_torch_nor_lightning() -> None:
    """The answer is printed at once; importing torch or Lightning takes seconds."""
    code = (
        "import sys\n"
        "from lightning_hooks.cli.app import parser, run\n"
        "parser().format_help()\n"
        "run(['plot', 'nowhere.py'])\n"
        "run(['convert', 'nowhere.py'])\n"
        "run(['check', 'nowhere.py'])\n"
        "run(['replay', 'nowhere.py', '--to', 'mlflow'])\n"
        "run(['hooks'])\n"
        "print(sorted({'torch', 'lightning', 'matplotlib'} & {*sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.splitlines()[-1] == b"[]"
    assert found.stderr.count(b"nowhere.py") == 4


def test_help_of_a_number_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", "--help") == 0
    assert "<function" not in capsys.readouterr().out
    assert run("plot", "a.py", "--epochs", "two") == 2
    assert "--epochs: must be a whole number of at least 1, got 'two'" in capsys.readouterr().err


def test_a_replay_to_dvclive_keeps_the_folders_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dvclive")
    with monkeypatch.context() as patch:
        patch.setattr("lightning_hooks.loggers.trackers.dvclive._begin", lambda options: 1 / 0)
        hook = DvcliveLoggerHook(interval=1, timeout=0.2)
        make_trainer(tmp_path, hook).fit(NoValidation(), make_loader())
    (spool,) = tmp_path.glob("spool/*dvclive.jsonl")
    folder = tmp_path / "of the user"
    folder.mkdir()
    for name in ("report.html", "mine.txt"):
        (folder / name).write_text("mine")
    assert run("replay", str(spool), "--to", "dvclive", "--dir", str(folder)) == 0
    assert "records sent" in capsys.readouterr().out
    kept = {path.name for path in folder.iterdir() if path.is_file() and path.read_text() == "mine"}
    assert kept == {"report.html", "mine.txt"}


def test_a_name_in_a_list_is_no_markup_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[b]epoch_1[/red].pth"
    entry = {"name": name, "size": 4, "crc32": None, "epoch": 1, "iter": 4, "time": ""}
    listed = {"version": 1, "files": [{**entry, "run": "0123456789ab", "series": "x"}]}
    (tmp_path / "checkpoints.json").write_text(json.dumps(listed))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    assert run("files", str(tmp_path)) == 0
    assert name in capsys.readouterr().out
