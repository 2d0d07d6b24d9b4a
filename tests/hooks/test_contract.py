"""Every native hook constructs, pickles, trains, resumes, fits twice, coexists and refuses."""

from __future__ import annotations

import pickle
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HOOKS
from support import training
from support.contract import CASES, TRACKERS, build, needs
from support.training import TinyNormModule, make_loader

EVENTS = [name for name in vars(Callback) if name.startswith("on_")]

every = pytest.mark.parametrize("name", CASES)
hosted = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
pytestmark = [
    # the trackers' own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The epoch-end checkpoint|Resume iterations|.*cumulative"),
    pytest.mark.filterwarnings("ignore:.*BatchNorm"),
    pytest.mark.filterwarnings("ignore:.*UpdaterHook of "),  # schedules longer than the short runs
]


@pytest.fixture(autouse=True)
def mlflow_begins_with_a_database(request: Any, tmp_path: Path) -> None:
    """Copy an empty MLflow database, because creating the tables takes seconds."""
    called = getattr(request.node, "callspec", None)
    if called is not None and called.params["name"] == "MlflowLoggerHook":
        for directory in (tmp_path, tmp_path / "other"):
            directory.mkdir(exist_ok=True)
            shutil.copy(request.getfixturevalue("empty_db"), directory / "mlflow.db")


def fit(tmp_path: Path, *hooks: Any, host: bool, ckpt: Any = None, epochs: int = 2) -> Any:
    """Train with the hooks and their requirements; save a checkpoint after every epoch."""
    options = {"val": 1, "callbacks": [Save()], "ckpt_path": ckpt, "max_epochs": epochs}
    options |= {"batches": make_loader(4, shuffle=True), "module": TinyNormModule, "host": host}
    return training.fit(tmp_path, *hooks, **options, **needs(*hooks))


class Save(Callback):
    """Saves at the end of every epoch."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        file = f"saved_{trainer.current_epoch + 1}.ckpt"
        trainer.save_checkpoint(Path(trainer.default_root_dir) / file)


def state(trainer: Any) -> list[list[float]]:
    module = trainer.lightning_module
    rates = [[g["lr"] for g in o.param_groups] for o in trainer.optimizers]
    return [v.flatten().tolist() for v in module.state_dict().values()] + rates


def test_every_hook_is_here() -> None:
    ours = {n for n, c in HOOKS.module_dict.items() if c.__module__.startswith("lightning_hooks.")}
    gone = {"PaviLoggerHook", "SegmindLoggerHook"}  # loggers of discontinued services
    extra = {"HubCheckpointHook"} - set(CASES)  # without huggingface_hub
    assert ours - gone - extra == set(CASES)


@every
@hosted
def test_trains_and_resumes_as_if_it_had_not_ended(name: str, host: bool, tmp_path: Path) -> None:
    """A pickled hook trains and resumes; a used hook trains again and with another Trainer."""
    torch.manual_seed(0)
    hook = pickle.loads(pickle.dumps(build(name)))
    whole = fit(tmp_path, hook, host=host)
    assert whole.state.finished
    if name not in TRACKERS:  # trackers only write; test_trackers.py resumes tracked runs
        torch.manual_seed(1)
        resumed = fit(tmp_path, build(name), host=host, ckpt=tmp_path / "saved_1.ckpt")
        assert state(resumed) == state(whole)
    if host:
        return
    whole.fit_loop.max_epochs = 3
    whole.fit(whole.lightning_module, make_loader(4), make_loader(1))
    assert whole.current_epoch == 3
    again = pickle.loads(pickle.dumps(hook))
    assert type(again) is type(hook)
    fit(tmp_path / "other", again, host=True, epochs=1)


def owns_one_thing(name: str) -> bool:
    """Return whether two hooks of the class would conflict; see also test_best_checkpoint.py."""
    return bool(re.search("Updater|Optimizer|^ProfilerHook$|^BestCheckpointHook$", name))


@pytest.mark.parametrize("name", [name for name in CASES if not owns_one_thing(name)])
def test_two_coexist(name: str, tmp_path: Path) -> None:
    # an adapter distinguishes two equal stateful hooks by position
    host = bool(build(name).state_dict())
    trainer = fit(tmp_path, build(name), build(name), host=host, epochs=1)
    assert trainer.state.finished


def listening(base: type, heard: Counter[str]) -> Any:
    """Return a subclass that counts each event and then calls the base class's method."""

    def counted(event: str) -> Any:
        def method(self: Any, *args: Any) -> None:
            heard[event] += 1
            getattr(super(subclass, self), event)(*args)

        return method

    subclass = type(f"MethodPatch{base.__name__}", (base,), {e: counted(e) for e in EVENTS})
    return subclass


@every
def test_a_subclass_hears_every_event(name: str, tmp_path: Path) -> None:
    ours: Counter[str] = Counter()
    stock: Counter[str] = Counter()
    hook = listening(HOOKS.get(name), ours)(**CASES[name][0])
    fit(tmp_path, hook, listening(Callback, stock)(), host=False, epochs=2)
    assert ours == stock
    assert ours["on_train_batch_end"] == 8


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][1] is not None])
def test_refuses_bad_arguments(name: str) -> None:
    bad = CASES[name][1]
    with pytest.raises((ValueError, TypeError)) as caught:
        HOOKS.build({"type": name, **bad})
    assert len(str(caught.value)) > 20
