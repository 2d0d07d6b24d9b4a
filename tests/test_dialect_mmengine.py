"""MMEngine's hooks in a Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dialect_hooks.mmengine_style import MeanLoss, StopEarly, SwitchOff, Trace
from helpers import TinyModule, make_loader, make_trainer
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import HookAdapter
from lightning_hooks.dialects.mmengine import Hook, MessageHub

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


def fit(tmp_path: Path, *hooks: Any, val: bool = True, ckpt: Any = None, **kwargs: Any) -> Any:
    adapter = HookAdapter(list(hooks), **kwargs.pop("adapter", {}))
    trainer = make_trainer(tmp_path, adapter, **{"max_epochs": 2, **kwargs})
    trainer.fit(TinyModule(), make_loader(3), make_loader(2) if val else None, ckpt_path=ckpt)
    return trainer


def epoch(e: int, start: int, *, val: bool) -> list[Any]:
    points: list[Any] = [("before_train_epoch", e, start)]
    for i in range(3):
        points += [(f"{when}_train_iter", e, start + i, i) for when in ("before", "after")]
    points.append(("after_train_epoch", e, start + 3))
    if val:
        here = e + 1, start + 3
        points += [("before_val", *here), ("before_val_epoch", *here)]
        for i in range(2):
            points += [(f"{when}_val_iter", *here, i) for when in ("before", "after")]
        points += [("after_val_epoch", *here, ["val_loss"]), ("after_val", *here)]
    return points


@pytest.mark.parametrize("val", [True, False])
def test_the_points_come_as_in_mmengines_loop(tmp_path: Path, val: bool) -> None:
    hook = Trace()
    fit(tmp_path, hook, val=val)
    assert hook.calls == [
        *(("before_run", 0, 0), ("before_train", 0, 0)),
        *epoch(0, 0, val=val),
        *epoch(1, 3, val=val),
        *(("after_train", 2, 6), ("after_run", 2, 6)),
    ]


def test_each_point_is_finished_for_all_before_the_next(tmp_path: Path) -> None:
    one, two = Trace(), Trace()
    one.calls = two.calls
    fit(tmp_path, one, two, max_epochs=1)
    names = [call[0] for call in one.calls]
    assert names[:6:2] == names[1:6:2] == ["before_run", "before_train", "before_train_epoch"]
    assert names[-4::2] == names[-3::2] == ["after_train", "after_run"]


def test_a_run_counted_in_iterations_is_one_epoch(tmp_path: Path) -> None:
    hook = Trace()
    fit(tmp_path, hook, adapter={"by_epoch": False}, max_steps=4, max_epochs=-1, val=False)
    names = [call[0] for call in hook.calls]
    assert names[:3] == ["before_run", "before_train", "before_train_epoch"]
    assert names[3:-3] == 4 * ["before_train_iter", "after_train_iter"]
    assert names[-3:] == ["after_train_epoch", "after_train", "after_run"]


def test_a_class_priority_counts(tmp_path: Path) -> None:
    late, early = MeanLoss(), SwitchOff()
    assert HookAdapter([late, Trace(), early]).hooks[0] is early
    assert HookAdapter([late, Trace(), early]).hooks[-1] is late


def test_the_message_hub_has_the_steps_scalars(tmp_path: Path) -> None:
    hook = MeanLoss()
    logger = CSVLogger(str(tmp_path))
    trainer = fit(tmp_path, hook, logger=logger, log_every_n_steps=1)
    losses = trainer.lightning_module.losses
    assert hook.means == pytest.approx([np.mean(losses[0:2]), np.mean(losses[3:5])])
    assert hook.modes == 2 * (3 * ["train"] + 2 * ["val"])
    assert "mean" in (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]


def test_a_hook_that_stops_and_one_that_changes_the_data(tmp_path: Path) -> None:
    trainer = fit(tmp_path, StopEarly(), max_epochs=5)
    assert trainer.current_epoch == 1
    trainer = fit(tmp_path, SwitchOff(), max_epochs=2)
    assert trainer.train_dataloader.dataset.augment is False


class Shadow(Hook):
    """Keeps a copy of the weights, and has it in the model's place in checkpoints."""

    def before_run(self, runner: Any) -> None:
        self.copy = {k: v.clone() for k, v in runner.model.state_dict().items()}
        self.loaded = False

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["raw"], checkpoint["state_dict"] = checkpoint["state_dict"], self.copy

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self.copy, checkpoint["state_dict"] = checkpoint["state_dict"], checkpoint.pop("raw")
        self.loaded = True

    def before_train(self, runner: Any) -> None:
        assert self.loaded == (runner.iter > 0)


def test_checkpoints_pass_through_the_hooks(tmp_path: Path) -> None:
    hook = Shadow()
    trainer = make_trainer(tmp_path, HookAdapter([hook, Save()]), max_epochs=1)
    trainer.fit(TinyModule(), make_loader(3))
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert not torch.equal(saved["raw"]["net.weight"], saved["state_dict"]["net.weight"])
    resumed = Shadow()
    rest = fit(tmp_path, resumed, ckpt=tmp_path / "a.ckpt", val=False)
    whole = fit(tmp_path, val=False)
    assert torch.equal(resumed.copy["net.weight"], hook.copy["net.weight"])
    for one, other in zip(
        rest.lightning_module.parameters(), whole.lightning_module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


class Save:
    """An mmcv hook beside it."""

    def after_train_epoch(self, runner: Any) -> None:
        runner.trainer.save_checkpoint(Path(runner.work_dir) / "a.ckpt")


def test_an_error_names_hook_and_point(tmp_path: Path) -> None:
    class Bad(Hook):
        def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
            raise OSError("full")

    with pytest.raises(OSError, match="full") as caught:
        fit(tmp_path, Bad())
    assert caught.value.__notes__ == ["in hook Bad.after_val_epoch (epoch 1, iter 3)"]


def test_hooks_without_the_base_class_are_told_by_their_arguments(tmp_path: Path) -> None:
    class Plain:
        seen = ()

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any
        ) -> None:
            self.seen = (*self.seen, batch_idx)

    hook = Plain()
    fit(tmp_path, hook)
    assert hook.seen == (0, 1, 2, 0, 1, 2)


def test_message_hub_alone() -> None:
    hub = MessageHub()
    hub.update_scalars({"loss": 2.0, "acc": {"value": 3.0, "count": 2}})
    hub.update_scalar("loss", torch.tensor(4.0))
    assert hub.get_scalar("loss").mean() == 3.0
    assert hub.get_scalar("acc").mean() == 1.5
    assert hub.get_scalar("loss").min() == 2.0
    assert hub.get_info("epoch", 7) == 7
    hub.update_info("epoch", 1)
    assert hub.pop_info("epoch") == 1
    with pytest.raises(KeyError, match="no scalar 'lost'"):
        hub.get_scalar("lost")
    with pytest.raises(KeyError, match="unknown statistic 'median'"):
        hub.get_scalar("loss").statistics("median")
