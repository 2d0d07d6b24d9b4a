"""Scripts of detectron2's shape, with its trainers on Lightning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.dialects import detectron2 as d2
from support.dialect_hooks.detectron2_script import DATA, Net, Trainer, by_hand, config
from support.dialect_hooks.detectron2_style import Trace


def test_a_script_with_a_default_trainer_trains(tmp_path: Path) -> None:
    trainer = Trainer(config(tmp_path))
    trainer.resume_or_load(resume=False)
    results = trainer.train()
    torch.testing.assert_close(trainer.model.weight.detach(), by_hand(6))  # type: ignore[arg-type]
    assert results == {"norm": pytest.approx(float(by_hand(6).norm()))}
    assert (tmp_path / "last_checkpoint").read_text() == "model_final.pth"
    last = json.loads((tmp_path / "metrics.json").read_text().splitlines()[0])
    assert last["iteration"] == 5
    assert {"total_loss", "loss_a", "loss_b", "lr", "data_time"} <= set(last)


def test_it_resumes_where_it_was(tmp_path: Path) -> None:
    Trainer(config(tmp_path, 4)).train()
    trainer = Trainer(config(tmp_path, 6, first=4))
    trainer.resume_or_load(resume=True)
    assert trainer.start_iter == 4
    trainer.train()
    torch.testing.assert_close(trainer.model.weight.detach(), by_hand(6))  # type: ignore[arg-type]


class Doubles(d2.SimpleTrainer):
    """A stranger's step: the loss counts twice."""

    def run_step(self) -> None:
        loss = 2 * self.model(next(self._data_loader_iter))["loss_a"]
        self.optimizer.zero_grad()
        loss.backward()
        self._write_metrics({"double": loss}, 0.0)
        self.optimizer.step()


def simple(cls: type[d2.SimpleTrainer], hooks: list[Any]) -> Any:
    net = Net()
    trainer = cls(net, DATA, torch.optim.SGD(net.parameters(), lr=0.01))
    trainer.register_hooks([*hooks, None])
    return trainer


def test_a_strangers_step_is_run(tmp_path: Path) -> None:
    trainer = simple(Doubles, [])
    trainer.train(0, 1)
    assert trainer.model.weight.tolist() == pytest.approx([1 - 0.04, 1.0])
    assert trainer.storage.latest() == {
        "rank_data_time": (0.0, 0),
        "data_time": (0.0, 0),
        "total_loss": (2.0, 0),
    }


def test_hooks_are_called_as_in_detectron2() -> None:
    hook = Trace()
    trainer = simple(d2.SimpleTrainer, [hook])
    trainer.train(3, 5)
    points = ("before_step", "after_backward", "after_step")
    steps = [(point, i) for i in (3, 4) for point in points]
    assert hook.calls == [("before_train", 3), *steps, ("after_train", 5)]
    assert (trainer.iter, trainer.start_iter, trainer.max_iter) == (5, 3, 5)


def test_the_backward_of_a_default_trainer_is_seen(tmp_path: Path) -> None:
    hook = Trace()
    trainer = Trainer(config(tmp_path, 1))
    trainer.register_hooks([hook])
    trainer.train()
    assert ("after_backward", 0) in hook.calls


def test_after_train_comes_also_after_an_error() -> None:
    class Fails(Trace):
        def after_step(self) -> None:
            super().after_step()
            raise ArithmeticError("boom")

    hook = Fails()
    with pytest.raises(ArithmeticError, match="boom"):
        simple(d2.SimpleTrainer, [hook]).train(0, 3)
    assert hook.calls[-1] == ("after_train", 0)
    assert not d2.has_event_storage()


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    class Bad(d2.SimpleTrainer):
        def run_step(self) -> None:
            self._write_metrics({"loss": torch.tensor(float("nan"))}, 0.0)

    with pytest.raises(FloatingPointError, match="infinite or NaN at iteration=0"):
        simple(Bad, []).train(0, 1)


def test_callbacks_of_lightning_run_beside() -> None:
    class Steps(Callback):
        seen: list[int]

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            self.seen.append(trainer.global_step)

    steps = Steps()
    steps.seen = []

    class Own(d2.SimpleTrainer):
        lightning_options = {"callbacks": [steps]}  # noqa: RUF012

    simple(Own, []).train(0, 2)
    assert steps.seen == [1, 2]


def test_what_is_not_defined_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"DefaultTrainer must define .* build_model"):
        d2.DefaultTrainer(config(tmp_path))
    with pytest.raises(TypeError, match="derive it from HookBase"):
        simple(d2.SimpleTrainer, [object()])
    with pytest.raises(NotImplementedError, match=r"must define run_step\(\)"):
        d2.TrainerBase().run_step()


def test_a_state_without_its_hook_is_named(caplog: Any) -> None:
    trainer = simple(d2.SimpleTrainer, [])
    state = trainer.state_dict()
    with caplog.at_level("WARNING"):
        trainer.load_state_dict({**state, "iteration": 7, "hooks": {"Gone": {"a": 1}}})
    assert trainer.iter == 7
    assert "'Gone'" in caplog.text
