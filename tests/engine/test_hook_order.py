"""``run_before`` and ``run_after`` order hooks in addition to priorities."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint

from lightning_hooks import (
    CheckpointHook,
    EvalHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    StepLrUpdaterHook,
    register_training_hooks,
)
from lightning_hooks.engine.hook_order import arranged
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class A(Hook):
    def before_train_epoch(self, runner: Any) -> None:
        pass


class B(A):
    pass


class C(A):
    pass


class Old:
    """A hook without our base class."""

    run_before = "StepLrUpdaterHook"

    def before_train_epoch(self, runner: Any) -> None:
        pass


def names(adapter: HookAdapter) -> str:
    return " ".join(type(hook).__name__ for hook in adapter.hooks)


def wishing(hook: Any, **wishes: Any) -> Any:
    vars(hook).update(wishes)
    return hook


LR = StepLrUpdaterHook(step=1)


def test_who_names_others_is_the_one_that_moves() -> None:
    late = wishing(C(), run_before=StepLrUpdaterHook)
    assert names(HookAdapter([LR, A(), B(), late])) == "C StepLrUpdaterHook A B"
    early = wishing(StepLrUpdaterHook(step=1), run_after="B")
    assert names(HookAdapter([early, A(), B(), C()])) == "A B StepLrUpdaterHook C"


def test_who_is_where_it_wishes_to_be_stays() -> None:
    content = wishing(C(), run_after="LrUpdaterHook", run_before=["IterTimerHook"])
    assert names(HookAdapter([IterTimerHook(), B(), content, LR])) == (
        "StepLrUpdaterHook B C IterTimerHook"
    )


def test_the_order_in_which_hooks_are_given_does_not_matter_to_wishes() -> None:
    for given in ("ABC", "ACB", "BAC", "BCA", "CAB", "CBA"):
        hooks = {
            "A": wishing(A(), run_after=C),
            "B": wishing(B(), run_after="StepLrUpdaterHook"),
            "C": wishing(C(), run_after=B),
        }
        adapter = HookAdapter([*(hooks[letter] for letter in given), StepLrUpdaterHook(step=1)])
        assert names(adapter) == "StepLrUpdaterHook B C A"


def test_a_chain_is_pulled_to_the_front_together() -> None:
    first, second = wishing(A(), run_before="B"), wishing(B(), run_before="StepLrUpdaterHook")
    assert names(HookAdapter([C(), LR, second, first])) == "A B StepLrUpdaterHook C"


def test_hooks_that_both_say_it_agree() -> None:
    # B is an A: the name of a base class includes all derived classes
    early, late = wishing(C(), run_before="A"), wishing(B(), run_after="C")
    assert names(HookAdapter([A(), late, early])) == "C A B"


def test_names_that_are_not_there_are_not_missed(tmp_path: Path) -> None:
    hook = wishing(A(), run_before="CheckpointHook", run_after=["EMAHook", "EarlyStopping", B])
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(1))


def test_without_wishes_the_order_is_mmcvs() -> None:
    hooks = [IterTimerHook(), A(), LR, B(), (C(), "HIGH")]
    assert names(HookAdapter(hooks)) == "StepLrUpdaterHook C A B IterTimerHook"


def test_the_printed_table_has_that_order() -> None:
    adapter = HookAdapter([StepLrUpdaterHook(step=1), Old()])
    table = adapter.get_hook_info()
    assert table.splitlines()[table.splitlines().index("before_train_epoch:") + 1 :][:2] == [
        f"(NORMAL      ) {'Old':<35}",
        f"(VERY_HIGH   ) {'StepLrUpdaterHook':<35}",
    ]
    assert names(pickle.loads(pickle.dumps(adapter))) == "Old StepLrUpdaterHook"


def test_one_order_for_all_hooks_of_a_trainer(tmp_path: Path) -> None:
    seen: list[str] = []

    class Note(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            seen.append(type(self).__name__)

    class X(Note):
        run_after = "Z"

    class Y(Note):
        def before_run(self, runner: Any) -> None:
            runner.register_hook(wishing(Late(), run_before=X))

    class Z(Note):
        priority = "LOW"

    class Late(Note):
        priority = "LOWEST"

    trainer = make_trainer(tmp_path, X(), HookAdapter([Y()]), HookAdapter([Z()]))
    trainer.fit(TinyModule(), make_loader(1))
    assert seen == ["Y", "Z", "Late", "X"]


def test_from_configs(tmp_path: Path) -> None:
    config = {"type": "IterTimerHook", "run_before": ["StepLrUpdaterHook"]}
    adapter = HookAdapter([LR, config])
    assert names(adapter) == "IterTimerHook StepLrUpdaterHook"
    assert config == {"type": "IterTimerHook", "run_before": ["StepLrUpdaterHook"]}
    adapter = register_training_hooks(
        lr_config={"policy": "step", "step": [1], "run_after": "CheckpointHook"},
        checkpoint_config={"interval": 1},
        timer_config={"type": "IterTimerHook", "run_before": "CheckpointHook"},
        evaluation={"interval": 1, "run_before": "IterTimerHook"},
    )
    assert names(adapter) == "EvalHook IterTimerHook CheckpointHook StepLrUpdaterHook"


def test_an_evaluation_before_the_checkpoint_and_one_after(tmp_path: Path) -> None:
    seen: list[str] = []

    class Save(CheckpointHook):
        def after_train_epoch(self, runner: Any) -> None:
            seen.append("checkpoint")
            super().after_train_epoch(runner)

    class Judge(EvalHook):
        def _do_evaluate(self, runner: Any) -> None:
            seen.append("evaluation")
            super()._do_evaluate(runner)

    for wish in ({}, {"run_before": "CheckpointHook"}):
        judge = wishing(Judge(make_loader(1), test_fn=lambda *_: [0.0]), **wish)
        judge.evaluate = lambda runner, results: None
        trainer = make_trainer(tmp_path, HookAdapter([Save(1), judge]))
        trainer.fit(TinyModule(), make_loader(1))
    assert seen == ["checkpoint", "evaluation", "evaluation", "checkpoint"]


def test_of_many_wishes_all_are_granted_or_a_circle_is_named() -> None:
    circles = 0
    for seed in range(300):
        draw = random.Random(seed)
        number = draw.randint(2, 8)
        hooks: list[Any] = [type(f"H{i}", (), {})() for i in range(number)]
        for hook in hooks:
            for wish in ("run_before", "run_after"):
                others = [type(other).__name__ for other in hooks if other is not hook]
                if draw.random() < 0.3:
                    setattr(hook, wish, draw.sample(others, min(draw.randint(1, 2), len(others))))
        try:
            order = arranged(hooks)
        except ValueError:
            circles += 1
            continue
        place = {type(hook).__name__: i for i, hook in enumerate(order)}
        assert len(place) == number
        for name, i in place.items():
            assert all(i < place[other] for other in getattr(order[i], "run_before", [])), name
            assert all(i > place[other] for other in getattr(order[i], "run_after", [])), name
        assert arranged(order) == order
    assert 50 < circles < 200


# -- refusals ----------------------------------------------------------------------------------


def test_a_circle_is_refused_with_its_hooks() -> None:
    one, other = wishing(A(), run_before="C"), wishing(C(), run_before=[A])
    with pytest.raises(ValueError, match=r"go in a circle: (A before C before A|C before A bef)"):
        HookAdapter([one, other])


def test_an_unknown_name_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    hook = wishing(A(), run_before=["CheckpontHook"])
    with pytest.raises(ValueError, match=r"A.run_before names 'CheckpontHook', .* 'CheckpointHook"):
        make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(1))


@pytest.mark.parametrize("value", [3, [A()], None, {"A": 1}])
def test_a_wish_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"A.run_after must be a hook's class or name, or a list"):
        HookAdapter([wishing(A(), run_after=value)])


def test_a_method_of_that_name_is_no_wish() -> None:
    class Older:
        def run_before(self) -> None:
            pass

        def before_run(self, runner: Any) -> None:
            pass

    assert names(HookAdapter([LR, Older()])) == "StepLrUpdaterHook Older"


class Plain(Callback):
    pass


def test_callbacks_of_lightning_are_where_they_were_put(tmp_path: Path) -> None:
    def fit(*callbacks: Any) -> None:
        make_trainer(tmp_path, *callbacks).fit(TinyModule(), make_loader(1))

    fit(Plain(), wishing(A(), run_after="Plain"))
    fit(wishing(A(), run_before=Plain), Plain())
    with pytest.raises(ValueError, match=r"A.run_before names Plain: put it behind the hooks"):
        fit(Plain(), wishing(A(), run_before="Plain"))
    with pytest.raises(ValueError, match=r"A.run_after names Plain: put it in front of the hooks"):
        fit(wishing(A(), run_after=Plain), Plain())
    fit(wishing(A(), run_after=LearningRateMonitor))


def test_lightnings_checkpoint_comes_after_all_hooks(tmp_path: Path) -> None:
    def fit(hook: Any) -> None:
        saving = ModelCheckpoint(tmp_path)
        trainer = make_trainer(tmp_path, saving, hook, enable_checkpointing=True)
        trainer.fit(TinyModule(), make_loader(1))

    fit(wishing(A(), run_before="ModelCheckpoint"))
    with pytest.raises(ValueError, match=r"A.run_after names ModelCheckpoint, which"):
        fit(wishing(A(), run_after=ModelCheckpoint))
