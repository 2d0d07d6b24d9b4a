"""Every hook rejects bad arguments with a message that names the argument, or trains."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision

from lightning_hooks import HOOKS, HookAdapter, InvalidLossError
from lightning_hooks.engine.priority import is_family
from lightning_hooks.storage.layout import DamagedCheckpointError
from support.contract import CASES, TRACKERS
from support.torture.bad_input import arguments_of, odd, plausible, tried, tries
from support.training import TinyNormModule, make_loader, make_trainer

ARGUMENTS = {name: dict(arguments_of(name)) for name in CASES}
USERS = {"dataloader", "fn", "forward", "momentum_fun", "on_trace_ready"}
"""Arguments with the user's functions or data, whose errors are the user's."""
PATHS = {"dump_dir", "json_trace_path", "out_dir"}
REFUSED = (TypeError, ValueError, KeyError)


@st.composite
def calls(draw: Any, name: str) -> tuple[dict[str, Any], set[str]]:
    """Draw a hook's arguments, one or two of them odd, and the names of the odd arguments."""
    arguments = copy.deepcopy(CASES[name][0])
    names = draw(st.sets(st.sampled_from(sorted(ARGUMENTS[name])), min_size=1, max_size=2))
    for one in sorted(names):
        arguments[one] = draw(plausible(ARGUMENTS[name][one]) | odd())
    return arguments, names


class Begun(Callback):
    """Records whether the training has started."""

    yes = False

    def on_train_batch_start(self, *args: Any) -> None:
        self.yes = True


def said(error: BaseException | None) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def train(hook: Any, names: set[str]) -> None:
    """Train two epochs; an error must name an argument or the hook and precede training."""
    begun, error = Begun(), None
    options: dict[str, Any] = {"max_epochs": 2}
    if is_family(hook, "Fp16OptimizerHook"):
        scaler = torch.amp.GradScaler("cpu")
        options["plugins"] = [MixedPrecision("16-mixed", "cpu", scaler)]
    directory = Path(tempfile.mkdtemp())
    try:
        trainer = make_trainer(directory / "work", HookAdapter([hook]), begun, **options)
        trainer.fit(TinyNormModule(), make_loader(2), make_loader(1))
    except InvalidLossError:
        return
    except (*REFUSED, OSError, DamagedCheckpointError) as caught:
        error = caught
    finally:
        found = {path.name for path in directory.iterdir()}
        shutil.rmtree(directory)
    assert names & PATHS or found <= {"work"}
    if error is not None:
        known = isinstance(error, KeyError) and "is not among" in said(error)
        known |= bool(names & USERS)
        assert known or not begun.yes, said(error)  # a key that is never logged is known only later
        assert any(one in said(error) for one in [*names, type(hook).__name__]), said(error)


@pytest.mark.parametrize("name", [name for name in CASES if ARGUMENTS[name]])
def test_a_hook_refuses_its_arguments_at_once_or_trains_with_them(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")

    @tries(4)
    @given(calls(name))
    def holds(drawn: tuple[dict[str, Any], set[str]]) -> None:
        arguments, names = drawn
        tried["hook arguments"] += 1
        refused = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                hook = HOOKS.build({"type": name, **arguments})
            except REFUSED as caught:
                refused = caught
            except ImportError as caught:
                missing.add(caught.name)
                return
            if refused is None and name not in TRACKERS:
                train(hook, names)
        if refused is not None:
            assert any(one in str(refused) for one in names), said(refused)

    missing: set[Any] = set()
    holds()
    assert not any(map(importlib.util.find_spec, missing))  # only missing clients


def hostile(*_: Any, **__: Any) -> Any:
    raise OSError("hostile")


class Shy:
    """An object that raises an error in ``repr``, ``len``, iteration and comparisons."""

    __repr__ = __str__ = __len__ = __iter__ = __bool__ = __eq__ = hostile
    __lt__ = __le__ = __gt__ = __ge__ = hostile
    __hash__ = object.__hash__


def refusal(name: str, arguments: dict[str, Any]) -> Exception | None:
    """Return the error of a hook's arguments, or None; None also without the tracker's client."""
    with contextlib.suppress(ImportError):
        try:
            HOOKS.module_dict[name](**arguments)
        except REFUSED as error:
            return error
    return None


@pytest.mark.parametrize("name", [name for name in CASES if ARGUMENTS[name]])
def test_an_argument_that_cannot_be_shown_is_refused_by_name(name: str) -> None:
    values = [10**5000, [10**5000], {"x": -(10**5000)}, Shy(), [Shy()], {"x": Shy()}]
    values += [torch.tensor(1), torch.zeros(2), np.zeros(2)]
    for argument, value in itertools.product(ARGUMENTS[name], values):
        error = refusal(name, {**CASES[name][0], argument: value})
        # an argument of the client or of the schedule's policy
        is_named = argument in said(error) or argument in ("init_kwargs", "end", "end_ratio")
        assert error is None or is_named, (argument, said(error))
        assert len(str(error)) < 2000


def test_the_adapter_refuses_what_cannot_be_shown_by_name() -> None:
    for argument in ("work_dir", "by_epoch", "meta", "model", "attributes"):
        for value in (10**5000, Shy(), [Shy()], torch.zeros(2), 3):
            with pytest.raises((TypeError, ValueError), match=argument):
                HookAdapter([], **{argument: value})
    for value in (10**5000, Shy(), torch.zeros(2), np.zeros(2)):
        with pytest.raises(ValueError, match="owns_backward must be True, False or"):
            HookAdapter([], owns_backward=value)
    with pytest.raises(TypeError, match="attributes must be a dict or None, got 3"):
        HookAdapter([], attributes=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "when"),
    [
        ("ExpLrUpdaterHook", {"gamma": 1e300}, "1e\\+299 at epoch 1"),
        ("CyclicLrUpdaterHook", {"target_ratio": [1e300, 1]}, "at iteration"),
    ],
)
def test_departure_a_rate_that_no_optimizer_takes_is_refused_at_the_start(
    name: str, arguments: dict[str, Any], when: str, tmp_path: Path
) -> None:
    begun = Begun()
    hook = HOOKS.build({"type": name, **arguments})
    trainer = make_trainer(tmp_path, hook, begun, max_epochs=2)
    with pytest.raises(ValueError, match=rf"{name}: the learning rate of SGD.*{when}"):
        trainer.fit(TinyNormModule(), make_loader(2), make_loader(1))
    assert not begun.yes
