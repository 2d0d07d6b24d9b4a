"""A warning names the user's line, in the constructor of a hook and in a fit."""

from __future__ import annotations

import linecache
import warnings
from pathlib import Path

from lightning_hooks import CheckpointHook, HookAdapter, OptimizerHook
from lightning_hooks.config import register_training_hooks
from support.training import NoValidation, make_loader, make_trainer


def lines(caught: list[warnings.WarningMessage], text: str) -> list[str]:
    """Return the source lines of warnings with the given text, all from this file."""
    found = [one for one in caught if text in str(one.message)]
    assert [one.filename for one in found] == [__file__] * len(found)
    return [linecache.getline(one.filename, one.lineno).strip() for one in found]


def test_of_a_fit(tmp_path: Path) -> None:
    hooks = [OptimizerHook(grad_clip={"max_norm": 1.0}), OptimizerHook({"max_norm": 2.0})]
    trainer = make_trainer(tmp_path, *hooks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(NoValidation(), make_loader(1))
    assert lines(caught, "each clip") == ["trainer.fit(NoValidation(), make_loader(1))"]


def test_of_a_config() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        register_training_hooks(evaluation={"interval": 1, "metric": "bbox"})
    wanted = 'register_training_hooks(evaluation={"interval": 1, "metric": "bbox"})'
    assert lines(caught, "is for a data set's evaluate()") == [wanted]


def test_of_an_adapter_beside_lightnings_own_checkpoints(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, HookAdapter([CheckpointHook()]), enable_checkpointing=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(NoValidation(), make_loader(1))
    assert [one.filename for one in caught if "lightning_hooks/" in one.filename] == []
    assert lines(caught, "enable_checkpointing=False") == [
        "trainer.fit(NoValidation(), make_loader(1))"
    ]
