"""mmdet's printed CheckInvalidLossHook, in the mmcv and the mmengine dialect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lightning_hooks
from lightning_hooks import HookAdapter, standin
from lightning_hooks.dialects import mmengine
from support.training import NoValidation, fit

MMCV = """
import torch
from mmcv.runner.hooks import HOOKS, Hook


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):

    def __init__(self, interval=50):
        self.interval = interval

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, self.interval):
            assert torch.isfinite(runner.outputs['loss']), \\
                runner.logger.info('loss become infinite or NaN!')
"""

MMENGINE = """
from typing import Optional

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmdet.registry import HOOKS


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):

    def __init__(self, interval: int = 50) -> None:
        self.interval = interval

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Optional[dict] = None,
                         outputs: Optional[dict] = None) -> None:
        if self.every_n_train_iters(runner, self.interval):
            assert torch.isfinite(outputs['loss']), \\
                runner.logger.info('loss become infinite or NaN!')
"""

BARE, OBJECT, CONFIG = "bare", "object", "config"


class TurnsBad(NoValidation):
    """A module with an infinite loss from a given step on."""

    first_bad = 2

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return loss * float("inf") if self.global_step >= self.first_bad else loss


@pytest.fixture
def mmcv_form() -> Iterator[Any]:
    kept = lightning_hooks.HOOKS.module_dict["CheckInvalidLossHook"]
    with standin.installed():
        try:
            yield module_of(MMCV).CheckInvalidLossHook
        finally:
            lightning_hooks.HOOKS.module_dict["CheckInvalidLossHook"] = kept


@pytest.fixture
def mmengine_form(monkeypatch: pytest.MonkeyPatch) -> Any:
    registry: dict[str, Any] = {**mmengine.HOOKS.module_dict}
    monkeypatch.setattr(mmengine.HOOKS, "_module_dict", registry)
    for name, content in {
        "mmengine": {},
        "mmengine.hooks": {"Hook": mmengine.Hook},
        "mmengine.runner": {"Runner": object},
        "mmdet": {},
        "mmdet.registry": {"HOOKS": mmengine.HOOKS},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return module_of(MMENGINE).CheckInvalidLossHook


def module_of(text: str) -> Any:
    module = ModuleType("project.checkloss_hook")
    exec(text, vars(module))
    return module


CASES = [
    *(("mmcv_form", way) for way in (BARE, OBJECT, CONFIG)),
    *(("mmengine_form", way) for way in (OBJECT, CONFIG)),
]


@pytest.mark.parametrize(
    ("form", "way", "by_epoch"),
    [*((*case, True) for case in CASES), *((*case, False) for case in CASES[::2])],
)
def test_it_stops_at_the_next_check_and_logs_its_line(
    form: str,
    way: str,
    by_epoch: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cls = request.getfixturevalue(form)
    hook: Any = cls(interval=2)
    if way != BARE:
        given = hook if way == OBJECT else dict(type="CheckInvalidLossHook", interval=2)
        dialect = form.removesuffix("_form") if way == CONFIG else "auto"
        hook = HookAdapter([given], dialect=dialect, by_epoch=by_epoch)
        assert isinstance(hook.hooks[0], cls)
    length = {"max_epochs": 2} if by_epoch else {"max_steps": 6, "max_epochs": -1}
    with caplog.at_level("INFO"), pytest.raises(AssertionError) as caught:
        fit(tmp_path, hook, module=TurnsBad, batches=3, **length)
    counted = by_epoch or way == BARE  # a hook alone counts the Trainer's epochs
    place = f"epoch {int(counted)}, iter 3"  # the 3rd step is not checked
    assert f"in hook CheckInvalidLossHook.after_train_iter ({place})" in caught.value.__notes__
    assert caplog.messages.count("loss become infinite or NaN!") == 1


@pytest.mark.parametrize(("form", "way"), CASES[1::2])
def test_a_finite_loss_goes_on(
    form: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    hook = request.getfixturevalue(form)(interval=1)
    trainer = fit(tmp_path, hook, host=True, module=NoValidation, batches=3, max_epochs=1)
    assert trainer.global_step == 3
