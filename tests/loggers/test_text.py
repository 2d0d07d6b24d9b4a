"""The text log equals mmcv's line by line, except for the listed departures."""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from scripted import DATA_SECONDS, Clock, ScriptedModel, SlowData
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks import BestCheckpointHook, Hook, HookAdapter, IterTimerHook, TrainStepModule
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.loggers.text import TextLoggerHook, console_line, json_line
from support import training
from support.golden import recorded
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
GOLDEN = recorded("text_log")
# in this case mmcv counts iterations in phases of a workflow and treats the end of a phase as the
# end of an epoch; Lightning has no phases
PHASES = {"iter_keep_last"}


class Console(logging.Handler):
    """Keeps the lines of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a line, except the table of hooks and the path of the files."""
        if not re.match(r"Hooks will be|\d+ hooks?, called|the files of", record.getMessage()):
            self.lines.append(record.getMessage())


def make_logger() -> tuple[logging.Logger, Console]:
    logger, console = logging.Logger("test"), Console()
    logger.addHandler(console)
    return logger, console


class Sent(LoggerHook):
    """Records the values that a tracker would send."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sent: list[dict[str, Any]] = []

    def log(self, runner: Any) -> None:
        step, epoch = self.get_iter(runner), self.get_epoch(runner)
        self.sent.append({"step": step, "epoch": epoch, "tags": self.get_loggable_tags(runner)})


class GradNorm(Hook):
    """Adds a gradient norm to the log buffer, as ``OptimizerHook(grad_clip=...)``."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    def after_train_iter(self, runner: Any) -> None:
        rows = self.model.script["train"]
        row = rows[(self.model.played["train"] - 1) % len(rows)]
        runner.log_buffer.update({"grad_norm": row["grad"]}, row["num_samples"])


class Evaluation(Hook):
    """Reports results at the end of each epoch as an EvalHook does."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output.update(self.results, eval_iter_num=5)
        runner.log_buffer.ready = True


def replay(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Run a recorded case under Lightning; return console lines, JSON lines and tags."""
    clock = Clock()
    monkeypatch.setattr(IterTimerHook, "_clock", clock.time)
    model = ScriptedModel(GOLDEN["script"], clock)
    made = {
        k: torch.optim.SGD(model.parameters(), lr=v, momentum=0.9) for k, v in case["lr"].items()
    }
    logger, console = make_logger()
    common = {k: v for k, v in case["logger"].items() if k != "interval_exp_name"}
    sent = Sent(**common)
    hooks: list[Any] = [IterTimerHook(), TextLoggerHook(**case["logger"]), sent]
    if case["max_norm"]:
        hooks.append((GradNorm(model), "ABOVE_NORMAL"))
    if case["evaluation"]:
        hooks.append((Evaluation(case["evaluation"]), "LOW"))
    by_epoch = case["runner"] == "EpochBasedRunner"
    adapter = HookAdapter(
        hooks,
        by_epoch=by_epoch,
        meta=case["meta"],
        attributes={"logger": logger},
        work_dir=str(tmp_path / "work"),
        # several optimizers are never stepped, so this package counts the iterations
        owns_backward="" not in case["lr"],
    )
    limit = (
        {"num_sanity_val_steps": 0, "max_epochs": case["limit"]}
        if by_epoch
        else {"num_sanity_val_steps": 0, "max_steps": case["limit"]}
    )
    loaders = [DataLoader(SlowData(length, clock)) for length in case["loaders"]]
    make_trainer(tmp_path, adapter, **limit).fit(
        TrainStepModule(model, made.get("", made)), *loaders
    )
    (file,) = (tmp_path / "work").glob("*.log.json")
    return console.lines, file.read_text().splitlines(), sent.sent


def as_mmcv(line: str) -> str:
    """Convert a JSON line to mmcv's rounding and NaN."""

    def old(value: Any) -> Any:
        return math.nan if value is None else round(value, 5) if isinstance(value, float) else value

    return json.dumps({key: old(value) for key, value in strictly(line).items()})


def strictly(line: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(line, parse_constant=refuse)


def without_sometimes(found: Any) -> Any:
    """Remove the values that only some iterations log; mmcv averages other values."""
    if isinstance(found, str):
        return re.sub(r'(, "?|\t)(train/|val/)?sometimes"?: [\d.]+', "", found)
    if isinstance(found, dict):
        return {k: without_sometimes(v) for k, v in found.items() if "sometimes" not in k}
    return [*map(without_sometimes, found)] if isinstance(found, list) else found


def without_short_line(found: Any) -> Any:
    """Remove the line of the seventh iteration, and all ETAs, which depend on the line.

    In mmcv, the line averages iterations of the previous line.
    """
    is_short = re.compile(r"\[7/7\]|\"iter\": 7|'step': (7|14), 'epoch': \d, 'tags': {'train/")
    lines = [line for line in found if not is_short.search(str(line))]
    return [re.sub(r"eta: [\d:]+, ", "", x) if isinstance(x, str) else x for x in lines]


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"].keys() - PHASES - {"iter_val"}))
def test_lines_and_tags_equal_those_of_mmcv(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = GOLDEN["cases"][name]
    console, lines, sent = replay(case, tmp_path, monkeypatch)
    case = {**case, **{key: without_sometimes(case[key]) for key in ("console", "json", "sent")}}
    console, lines, sent = map(without_sometimes, (console, lines, sent))
    if not case["logger"].get("ignore_last", True):
        case |= {key: without_short_line(case[key]) for key in ("console", "json", "sent")}
        console, lines, sent = map(without_short_line, (console, lines, sent))
    assert console == case["console"]
    assert [as_mmcv(line) for line in lines] == case["json"]
    assert repr(sent) == repr(case["sent"])  # NaN is not equal to itself
    differ = {
        key
        for ours, theirs in zip(lines, case["json"], strict=True)
        for key, value in json.loads(theirs).items()
        if strictly(ours)[key] != value
    }
    assert differ <= {"tiny", "loss", *(["lr"] if name == "small_lr" else [])}  # 1e-7, NaN, 3e-6


def test_departure_a_validation_of_a_run_by_iteration_has_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lines, _ = replay(GOLDEN["cases"]["iter_val"], tmp_path, monkeypatch)
    found = [line for line in map(strictly, lines) if "mode" in line]
    assert [(x["mode"], x["iter"]) for x in found] == [
        *(("train", 3), ("val", 4), ("train", 6), ("val", 8), ("train", 9)),
        *(("train", 12), ("val", 12)),
    ]
    # in mmcv the steps of the validation are averaged into the next line
    seconds = [DATA_SECONDS + row["seconds"] for row in GOLDEN["script"]["train"]]
    for line in found:
        if line["mode"] == "train":
            mean = sum(seconds[line["iter"] - 3 : line["iter"]]) / 3
            assert line["time"] == pytest.approx(mean, abs=6e-6)


def test_by_iteration_the_last_ones_of_each_pass_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lines, _ = replay(GOLDEN["cases"]["iter_keep_last"], tmp_path, monkeypatch)
    assert [strictly(line)["iter"] for line in lines] == [3, 4, 6, 8, 9, 10]


def fit(tmp_path: Path, *hooks: Any, **arguments: Any) -> tuple[list[str], Any]:
    """Train under hooks; return the console's lines and the parsed JSON lines."""
    logger, console = make_logger()
    work_dir = tmp_path / "work"
    attributes = {"logger": logger, **arguments.pop("attributes", {})}
    arguments |= {"work_dir": str(work_dir), "attributes": attributes, "num_sanity_val_steps": 0}
    training.fit(tmp_path, *hooks, val=2, **arguments)
    lines = [
        strictly(x) for f in sorted(work_dir.glob("*.json")) for x in f.read_text().splitlines()
    ]
    return console.lines, lines


def test_an_ordinary_module_is_logged(tmp_path: Path) -> None:
    module = TinyModule(lr=1.23456789e-6)
    console, lines = fit(tmp_path, IterTimerHook(), TextLoggerHook(interval=2), module=module)
    assert [line.split("\t")[0] for line in console] == [
        "Epoch [1][2/4]",
        "Epoch [1][4/4]",
        "Epoch(val) [1][2]",
    ]
    assert "lr: 1.235e-06, eta: 0:00:00, time: 0." in console[0]
    assert [(x["mode"], x["epoch"], x["iter"]) for x in lines] == [
        ("train", 1, 2),
        ("train", 1, 4),
        ("val", 1, 2),
    ]
    mean = sum(module.losses[2:4]) / 2
    assert lines[1]["loss"] == pytest.approx(mean, abs=6e-6)
    assert all("train_loss" not in line for line in lines)  # equals the loss
    assert lines[2]["val_loss"] > 0


def test_departure_small_numbers_keep_their_digits(tmp_path: Path) -> None:
    module = TinyModule(lr=1.23456789e-6)
    _, lines = fit(tmp_path, TextLoggerHook(interval=2), module=module)
    assert {line["lr"] for line in lines} == {1.23456789e-6}
    assert json_line({"a": 0.0123456, "b": -0.0098765}) == '{"a": 0.01235, "b": -0.0098765}'


def test_departure_what_is_no_number_is_null_in_json() -> None:
    nan, inf = math.nan, math.inf
    record = {"loss": nan, "all": [inf, 1.0], "lr": {"a": -inf, "b": 0.123456789}}
    assert strictly(json_line(record)) == {
        "loss": None,
        "all": [None, 1.0],
        "lr": {"a": None, "b": 0.123456789},
    }


class Exact(TextLoggerHook):
    """Keeps all digits."""

    def _round_float(self, items: Any) -> Any:
        return items


def test_a_subclass_keeps_all_digits_and_no_nan(tmp_path: Path) -> None:
    class Report(Hook):
        priority = "LOW"

        def after_train_epoch(self, runner: Any) -> None:
            runner.log_buffer.output.update(third=1 / 3, nans=[math.nan, 2 / 3])
            runner.log_buffer.ready = True

    _, lines = fit(tmp_path, Report(), Exact(interval=2))
    assert lines[2]["third"] == 1 / 3
    assert lines[2]["nans"] == [None, 2 / 3]


def test_json_takes_what_evaluations_return() -> None:
    record = {
        "array": np.array([0.5, 1.0]),
        "f32": np.float32(0.5),
        "n": np.int64(3),
        "tensor": torch.tensor(2.5),
        "tensors": [torch.tensor([1, 2])],
        "other": Path("x"),
    }
    assert strictly(json_line(record)) == {
        "array": [0.5, 1.0],
        "f32": 0.5,
        "n": 3,
        "tensor": 2.5,
        "tensors": [[1, 2]],
        "other": "x",
    }


def test_memory_is_on_the_line() -> None:
    record = {"mode": "train", "epoch": 1, "iter": 2, "lr": 0.1, "memory": 512, "time": 0.5, "x": 3}
    line = console_line(record, by_epoch=False, total=9, eta="0:00:03")
    assert line == "Iter [2/9]\tlr: 1.000e-01, eta: 0:00:03, time: 0.500, memory: 512, x: 3"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_memory_is_logged_where_there_is_cuda(tmp_path: Path) -> None:
    console, lines = fit(
        tmp_path, IterTimerHook(), TextLoggerHook(interval=2), accelerator="gpu", devices=1
    )
    assert lines[0]["memory"] >= 0
    assert f"memory: {lines[0]['memory']}, " in console[0]


def test_validation_within_an_epoch_is_logged_with_its_epoch_and_not_mixed_in(
    tmp_path: Path,
) -> None:
    module = TinyModule()
    _, lines = fit(
        tmp_path,
        IterTimerHook(),
        TextLoggerHook(interval=4),
        module=module,
        batches=make_loader(8),
        val_check_interval=0.25,
        max_epochs=2,
    )
    modes = [(x["mode"], x["epoch"], x["iter"]) for x in lines]
    one = [
        ("val", 1, 2),
        ("train", 1, 4),
        ("val", 1, 4),
        ("val", 1, 6),
        ("train", 1, 8),
        ("val", 1, 8),
    ]
    assert modes == one + [(mode, 2, i) for mode, _, i in one]
    train = [x for x in lines if x["mode"] == "train"]
    assert all("val_loss" not in x for x in train)
    assert train[0]["loss"] == pytest.approx(sum(module.losses[:4]) / 4, abs=6e-6)


class Endless(IterableDataset[Any]):
    """An iterable dataset of six batches without a length."""

    def __iter__(self) -> Any:
        return iter([(torch.ones(4), torch.ones(2))] * 6)


def test_departure_an_unsized_loader_has_no_total_and_no_eta(tmp_path: Path) -> None:
    loader = DataLoader(Endless(), batch_size=1)
    hooks = IterTimerHook(), TextLoggerHook(interval=4, ignore_last=False)
    console, lines = fit(tmp_path, *hooks, batches=loader)
    assert [x["iter"] for x in lines if x["mode"] == "train"] == [4, 6]
    assert console[0].startswith("Epoch [1][4/?]\tlr: 1.000e-01, time: 0.")


def test_a_limit_of_batches_is_the_total(tmp_path: Path) -> None:
    hooks = IterTimerHook(), TextLoggerHook(interval=2, ignore_last=False)
    console, _ = fit(tmp_path, *hooks, limit_train_batches=3)
    assert [x.split("\t")[0] for x in console[:2]] == ["Epoch [1][2/3]", "Epoch [1][3/3]"]


def test_each_timestamp_has_files_of_its_own(tmp_path: Path) -> None:
    for stamp in ("20300101_000000", "20300101_000001"):
        fit(tmp_path, TextLoggerHook(interval=2), attributes={"timestamp": stamp})
    names = sorted(path.name for path in (tmp_path / "work").glob("*.json"))
    assert names == ["20300101_000000.log.json", "20300101_000001.log.json"]


@pytest.mark.parametrize("keep_local", [True, False])
def test_text_files_are_copied_after_the_run(tmp_path: Path, keep_local: bool) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "config.py").write_text("lr = 1")
    (work / "model.pth").write_text("no text")
    (work / "wandb").mkdir()
    (work / "wandb" / "debug.log").write_text("of a tracker")
    hook = TextLoggerHook(interval=2, out_dir=str(out), keep_local=keep_local)
    fit(tmp_path, hook, attributes={"timestamp": "now"})
    copied = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert copied == ["work/now.log", "work/now.log.json", "work/sub/config.py"]
    assert (work / "now.log.json").exists() == keep_local
    assert (work / "wandb" / "debug.log").exists()
    assert hook.out_dir == str(out)


def test_text_files_are_copied_to_a_url(tmp_path: Path) -> None:
    fit(tmp_path, TextLoggerHook(out_dir="memory://text_log"), attributes={"timestamp": "now"})
    copied = fsspec.filesystem("memory").cat_file("/text_log/work/now.log.json")
    assert strictly(copied.decode().splitlines()[-1])["mode"] == "val"


def test_departure_in_the_current_folder_only_files_of_the_run_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("mine.py").write_text("keep me")
    hook = TextLoggerHook(out_dir=str(tmp_path / "out"), keep_local=False)
    fit(tmp_path, hook, attributes={"timestamp": "now"})
    copied = sorted(p.name for p in (tmp_path / "out" / "work").iterdir())
    assert copied == ["now.log", "now.log.json"]
    assert Path("mine.py").exists()


def test_departure_a_file_that_cannot_be_written_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "work" / "now.log.json").mkdir(parents=True)
    module = TinyModule()
    hook = TextLoggerHook(interval=1)
    logger, console = make_logger()
    adapter = HookAdapter(
        hook, work_dir=str(tmp_path / "work"), attributes={"logger": logger, "timestamp": "now"}
    )
    make_trainer(tmp_path, adapter).fit(module, make_loader(4), make_loader(2))
    assert len(module.losses) == 4
    warned = [line for line in console.lines if "cannot be written" in line]
    assert len(warned) == 1
    assert "now.log.json" in warned[0]
    assert sum(line.startswith("Epoch [1]") for line in console.lines) == 4


def test_copies_in_the_work_dir_are_not_copied_again(tmp_path: Path) -> None:
    out = tmp_path / "work" / "out"
    for run in ("first", "second"):
        fit(tmp_path, TextLoggerHook(interval=2, out_dir=str(out)), attributes={"timestamp": run})
    written = {path.name for path in (tmp_path / "work").glob("*.log*")}
    assert {path.name for path in (out / "work").iterdir()} == written


def test_departure_a_copy_that_fails_costs_one_warning_and_out_dir_stays(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    hook = TextLoggerHook(interval=4, out_dir=str(tmp_path / "out"), keep_local=False)
    console, lines = fit(tmp_path, hook, attributes={"timestamp": "now"})
    assert [line["mode"] for line in lines] == ["train", "val"]  # still in the log file
    (warning,) = [line for line in console if "could not all be copied" in line]
    assert str(tmp_path / "out" / "work") in warning
    assert hook.out_dir == str(tmp_path / "out")


def test_meta_is_the_first_line_if_there_is_some(tmp_path: Path) -> None:
    _, lines = fit(tmp_path, TextLoggerHook(interval=2), meta={"seed": 7, "env": np.float64(0.5)})
    assert lines[0] == {"seed": 7, "env": 0.5}


def test_a_hook_logs_two_fits_and_pickles(tmp_path: Path) -> None:
    hook = pickle.loads(pickle.dumps(TextLoggerHook(interval=2)))
    for _ in range(2):
        _, lines = fit(tmp_path, hook, attributes={"timestamp": "now"})
    assert [x["mode"] for x in lines] == ["train", "train", "val"] * 2
    assert pickle.loads(pickle.dumps(hook)).interval == 2


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"interval": -1}, ValueError, "interval must be at least 0, got -1"),
        ({"interval": "2"}, TypeError, "interval must be an int, got '2'"),
        ({"file_client_args": {"backend": "disk"}}, ValueError, "without out_dir"),
        ({"out_dir": 3}, TypeError, "out_dir must be a path or None, got 3"),
        ({"out_dir": "x", "out_suffix": 3}, TypeError, "out_suffix must be a string"),
        ({"out_dir": "x", "file_client_args": {"backend": "nowhere"}}, ValueError, "nowhere"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        TextLoggerHook(**arguments)


def test_a_name_with_control_characters_forges_no_line(tmp_path: Path) -> None:
    class Named(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.output["a\n2030 - INFO - Epoch [9]\x1b[2J\a\r"] = "x\ny"

    console, _ = fit(tmp_path, Named(), TextLoggerHook(interval=4), meta={"exp_name": "e\nf"})
    (path,) = (tmp_path / "work").glob("*.log")
    text = path.read_text()
    assert len(text.splitlines()) == len(console) == 4  # two lines name the experiment
    assert r"a\n2030 - INFO - Epoch [9]\x1b[2J\x07\r: x\ny" in text
    assert not {"\x1b", "\a", "\r"} & {*text, *"".join(console)}


def test_a_best_by_a_name_with_control_characters_forges_no_line(tmp_path: Path) -> None:
    key = "a\n2030 - INFO\x1b[2J\a\r\x85\u202e"

    class Named(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log(key, 1.0, batch_size=2)

    logger, console = make_logger()
    options: dict[str, Any] = {"module": Named(), "val": 2, "attributes": {"logger": logger}}
    training.fit(tmp_path, BestCheckpointHook(key, rule="less"), **options)
    (line,) = (line for line in console.lines if line.startswith("Best"))
    (best,) = tmp_path.glob("best_*.pth")
    assert best.name == "best_a_2030 - INFO_[2J_____epoch_1.pth"
    assert line == (
        r"Best a\n2030 - INFO\x1b[2J\x07\r\x85\u202e is 1.0000 at 1 epoch: saved " + best.name
    )
