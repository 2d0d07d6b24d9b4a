"""``setup`` checks each private name of Lightning; a missing name disables only its feature."""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import lightning as L
import pytest
import torch
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector
from lightning.pytorch.trainer.connectors.logger_connector import logger_connector
from torch.utils.data import DataLoader

from lightning_hooks import CheckpointHook, EMAHook, Hook, HookAdapter, TextLoggerHook
from lightning_hooks.engine import lightning_api
from lightning_hooks.engine.lightning_api.private_names import PRIVATE_NAMES, check_private_names
from support.probes import Numbers, Seen
from support.training import NoValidation, TinyModule, make_loader, make_trainer

PACKAGE = str(Path(lightning_api.__file__).parents[2])


def hide(monkeypatch: pytest.MonkeyPatch, kind: type, *names: str) -> None:
    """Hide attributes of a Lightning class from this package, as after a rename."""
    own = kind.__getattribute__

    def find(self: Any, name: str) -> Any:
        if name in names and sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
            raise AttributeError(name)
        return own(self, name)

    monkeypatch.setattr(kind, "__getattribute__", find)


def test_this_version_of_lightning_has_all(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.strategy.connect(NoValidation())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_private_names(trainer)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
@pytest.mark.parametrize("name", ["_data_fetcher", "_load_combined_loader_states"])
def test_without_the_training_data_hooks_train_on_what_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Replaces(Hook):
        def before_run(self, runner: Any) -> None:
            runner.data_loader = DataLoader(Numbers(10.0, 2), batch_size=1)

    hide(monkeypatch, _FitLoop, name)
    module, average = Seen(), EMAHook()
    with pytest.warns(match=rf"no fit_loop\.{name}; switched off: training data changed by hooks"):
        make_trainer(tmp_path, Replaces(), average).fit(
            module, DataLoader(Numbers(size=8), batch_size=2)
        )
    assert module.epochs == [[float(i) for i in range(8)]]
    assert average.steps == 4


def test_without_the_logged_values_the_log_has_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, _TrainingEpochLoop, "_results")
    with pytest.warns(match=r"_results; switched off: the module's logged values in loggers"):
        make_trainer(tmp_path, TextLoggerHook(interval=2)).fit(
            TinyModule(), make_loader(4), make_loader(1)
        )
    (log,) = tmp_path.glob("*.log.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    train = [line for line in lines if line.get("mode") == "train"]
    assert len(train) == 2
    assert all("loss" in line and "train_loss" not in line for line in train)


@pytest.mark.filterwarnings("ignore:.*switched off. a second validation")
def test_without_the_metrics_a_run_is_saved_and_resumed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, logger_connector._LoggerConnector, "_callback_metrics")
    for epochs, ckpt_path in ((1, None), (2, "last")):
        hooks = [CheckpointHook(interval=1), TextLoggerHook()]
        options: dict[str, Any] = {"max_epochs": epochs, "enable_checkpointing": True}
        trainer = make_trainer(tmp_path, *hooks, **options)
        with pytest.warns(match=r"_callback_metrics; switched off: values of hooks in callback_m"):
            trainer.fit(TinyModule(), make_loader(4), make_loader(1), ckpt_path=ckpt_path)
    assert torch.load(tmp_path / "epoch_2.pth", weights_only=True)["meta"]["iter"] == 8


def test_without_the_end_of_training_epochs_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, _TrainingEpochLoop, "_is_training_done")
    points: list[str] = []

    class Notes(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            points.append("after_train_epoch")

        def after_val_epoch(self, runner: Any) -> None:
            points.append("after_val_epoch")

    with pytest.warns(match=r"switched off: after_train_epoch before the last validation"):
        make_trainer(tmp_path, Notes()).fit(TinyModule(), make_loader(4), make_loader(1))
    assert points == ["after_train_epoch", "after_val_epoch"]


@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")
def test_without_the_loading_of_files_last_names_the_file_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(epochs: int, path: str | None) -> Any:
        hosted = HookAdapter([CheckpointHook(interval=1)])
        trainer = make_trainer(tmp_path, hosted, max_epochs=epochs)
        trainer.fit(NoValidation(), make_loader(4), ckpt_path=path)
        return trainer

    train(1, None)
    written = (tmp_path / "epoch_1.pth").read_bytes()
    hide(monkeypatch, _CheckpointConnector, "resume_start")
    file = re.escape(str(tmp_path / "epoch_1.pth"))
    with (
        pytest.warns(match=r'resume_start; switched off: ckpt_path="last" for hooks in a HookAd'),
        pytest.raises(ValueError, match=f'finds no hook.*: write ckpt_path="{file}"'),
    ):
        train(2, "last")
    assert (tmp_path / "epoch_1.pth").read_bytes() == written
    with pytest.warns(match=r"resume_start; switched off"):
        assert train(2, str(tmp_path / "epoch_1.pth")).global_step == 8


@pytest.mark.parametrize(
    ("owner", "name", "feature"),
    [
        (call, "_call_callback_hooks", "callbacks that call the module's setup"),
        (L.Trainer, "_run", 'ckpt_path="last" for hooks'),
        (_MultiProcessingLauncher, "_wrapping_function", 'ckpt_path="last" for hooks'),
    ],
)
def test_a_line_tells_of_a_renamed_function(
    owner: Any, name: str, feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(tmp_path)
    trainer.strategy.connect(NoValidation())
    monkeypatch.delattr(owner, name)
    with pytest.warns(match=rf"no .*{name}; switched off: {feature}"):
        check_private_names(trainer)


OF_TORCH = {
    "_forward_cache",
    "_get_iterator",
    "_index_sampler",
    "_num_yielded",
    "_sampler_iter",
    "_send_idx",
    "_iterator",
    "_step_supports_amp_scaling",
}
"""Private names of loaders, optimizers and metrics."""


def private_names(source: str) -> set[str]:
    """Return the private attributes and the names of looked-up frames in a source."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: list[Any] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            found.append(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in READERS:
            given = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            found += [*given, *(keyword.arg for keyword in node.keywords)]
        elif isinstance(node, ast.Compare) and "co_name" in ast.unparse(node.left):
            for value in node.comparators:
                found.append(getattr(value, "value", constants.get(getattr(value, "id", ""))))
        elif isinstance(node, ast.Assign) and "co_name" in ast.unparse(node.value):
            found += [value for value in constants.values() if isinstance(value, str)]
    return {name for name in found if re.fullmatch("_[a-z]\\w*", str(name))}


READERS = ("getattr", "private_import", "setting")


def test_every_private_name_of_lightning_is_in_the_table() -> None:
    files = [*Path(lightning_api.__file__).parent.glob("*.py")]
    found = set().union(*(private_names(file.read_text("utf-8")) for file in files))
    own = {node for file in files for node in defined_names(file.read_text("utf-8"))}
    listed = [name for names in PRIVATE_NAMES.values() for name in names]
    table = {part for name in listed for part in re.split(r"[.:]", name)}
    assert {"_run", "_wrapping_function", "_call_callback_hooks", "_iterator"} <= found
    assert found - own - OF_TORCH <= table


def defined_names(source: str) -> set[str]:
    """Return the names of a file's functions, classes and private attributes of ``self``."""
    names = {getattr(node, "name", "") for node in ast.walk(ast.parse(source))}
    return names | {*re.findall(r"self\.(_[a-z]\w*)", source)}


FRAMES = {
    *("co_name", "f_code", "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame"),
    *("_getframe", "currentframe", "walk_stack", "extract_stack", "getouterframes"),
}
"""Names for finding or inspecting a frame, as an attribute or a name."""

CALLERS = {
    "_exports.py": "the file that asks for a name",
    "standin/finder.py": "the file that imports mmcv",
    "standin/utils/registry.py": "the module that registers a class, as in mmcv",
    "utils/warn.py": "the line of the user to warn of",
}
"""The files that inspect callers, but not by a function's name."""

LIGHTNINGS = "trainer|strategy|loop|connector|precision|module|callback|logger|progress|result"
"""Words in the names of Lightning's objects."""


def reads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the object and the name of each attribute read in a file, including ``getattr``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node.value), node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in LOOKUPS:
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            source = ast.unparse(node.args[0]) if node.args else ""
            yield from (
                (source, name) for name in [*words, *(k.arg for k in node.keywords)] if name
            )


LOOKUPS = ("getattr", "hasattr", "setattr", "delattr", "attrgetter", *READERS)


def elsewhere() -> Iterator[tuple[str, ast.AST]]:
    """Yield the files of the package outside of ``engine/lightning_api``, parsed."""
    home = Path(lightning_api.__file__).parent
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        if path.parent != home:
            name = path.relative_to(PACKAGE).as_posix()
            yield name, ast.parse(path.read_text("utf-8"))


def test_no_frame_is_sought_elsewhere() -> None:
    frames = {
        (file, name)
        for file, tree in elsewhere()
        for owner, name in reads(tree)
        if name in FRAMES or (owner, name) == ("inspect", "stack")
    }
    assert {file for file, _ in frames} == set(CALLERS)
    assert "co_name" not in {name for _, name in frames}


def test_no_private_name_of_lightning_is_read_elsewhere() -> None:
    files = Path(lightning.__file__).parent.rglob("*.py")
    private = set().union(*(private_definitions(path.read_text("utf-8")) for path in files))
    assert {"_run", "_callback_connector", "_results"} <= private
    ours = {
        name
        for file in Path(PACKAGE).rglob("*.py")
        for name in private_definitions(file.read_text("utf-8"))
    }
    private_reads = [
        f"{file}: {owner}.{name}"
        for file, tree in elsewhere()
        for owner, name in reads(tree)
        if name in private and not re.match(r"(self|cls|super\(\))$|torch\b", owner)
        if name not in ours or re.search(LIGHTNINGS, owner)
    ]
    assert private_reads == []


def private_definitions(source: str) -> set[str]:
    """Return the private names of definitions, assigned attributes and fields in a source."""
    names = re.findall(r"(?:def |class |\.|^ +)(_[a-z]\w*)(?=\(| *=[^=]|: )", source, re.MULTILINE)
    return set(names)
