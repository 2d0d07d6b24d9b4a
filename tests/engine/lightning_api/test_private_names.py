"""The private names of Lightning are there; a missing name costs a feature, in one line."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from lightning_hooks.engine import lightning_api
from lightning_hooks.engine.lightning_api.private_names import PRIVATE_NAMES, check_private_names
from support.training import NoValidation, make_trainer


def test_a_missing_name_is_one_line_with_its_feature(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.strategy.connect(NoValidation())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_private_names(trainer)
    del trainer.fit_loop._data_fetcher
    with pytest.warns(match=r"no fit_loop\._data_fetcher: training loaders set by hooks will not"):
        check_private_names(trainer)


def test_every_private_name_of_the_trainers_loops_is_in_the_table() -> None:
    found = {
        name
        for path in Path(lightning_api.__file__).parent.glob("*.py")
        for name in re.findall(r"(?:loop|connector|module)\.(_[a-z]\w+)", path.read_text("utf-8"))
    }
    assert found <= {name for _, names, _ in PRIVATE_NAMES for name in names.split()}
