"""Common features of the hooks of detectron2, cvpods and Pet in a Trainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter, update_bn_stats
from lightning_hooks.dialects import cvpods, pet
from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*have no .val_dataloader"),
    pytest.mark.parametrize("library", [d2, cvpods, pet], ids=["detectron2", "cvpods", "pet"]),
]

fit = partial(training.fit, host=True, batches=3, max_epochs=2)


def precise_bn(library: Any, model: torch.nn.Module, loader: Any, num_iter: int) -> Any:
    if library is pet:
        return pet.PreciseBN((model, loader), period=3, num_iter=num_iter, max_iter=6)
    return library.PreciseBN(3, model, loader, num_iter)


def test_precise_bn_begins_again_at_the_end_of_its_loader(library: Any, tmp_path: Path) -> None:
    module = TinyNormModule()
    loader = make_loader(4, seed=3)
    loader.collate_fn = lambda items: torch.stack([x for x, _ in items])  # type: ignore[method-assign]
    fit(tmp_path, precise_bn(library, module.net, loader, 3), module=module)
    mean, batches = module.net[1].running_mean.clone(), [*loader]
    update_bn_stats(module.net.train(), [batches[i] for i in (3, 0, 1)])
    assert torch.equal(mean, module.net[1].running_mean)


def test_precise_bn_says_that_its_iterator_has_ended(library: Any, tmp_path: Path) -> None:
    module = TinyNormModule()
    batches = iter([x for x, _ in make_loader(4, seed=3)])
    with pytest.raises(ValueError, match=r"gives no batch .*: list_iterator"):
        fit(tmp_path, precise_bn(library, module.net, batches, 3), module=module)


class Scheduled(TinyModule):
    """A module that creates its optimizer and scheduler in the constructor."""

    def __init__(self, interval: str = "step") -> None:
        super().__init__()
        self.sgd = torch.optim.SGD(self.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.sgd, 2)
        self.interval = interval

    def configure_optimizers(self) -> Any:
        scheduler = {"scheduler": self.scheduler, "interval": self.interval}
        return {"optimizer": self.sgd, "lr_scheduler": scheduler}


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_scheduler_of_both_hook_and_lightning_is_refused(
    interval: str, library: Any, tmp_path: Path
) -> None:
    module = Scheduled(interval)
    stepper = library.LRScheduler(module.sgd, module.scheduler)
    with pytest.raises(ValueError, match="StepLR would be stepped twice, by the hook LRScheduler"):
        fit(tmp_path, stepper, module=module)


def test_a_model_stores_scalars_outside_of_a_run_too(library: Any, tmp_path: Path) -> None:
    seen = []

    class Stores(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            storage = library.get_event_storage()
            storage.put_scalar("mean", batch[0].mean())
            seen.append(storage)

        test_step = validation_step

        def predict_step(self, batch: Any, batch_idx: int) -> int:
            self.validation_step(batch, batch_idx)
            return batch_idx

    if library is pet:

        class Reads(pet.TrainHook):
            def after_step(self, storage: Any, **kwargs: Any) -> None:
                self.read = "mean" in storage.histories(), storage
    else:

        class Reads(library.HookBase):  # type: ignore[no-redef, name-defined, misc]
            def after_step(self) -> None:
                self.read = "mean" in self.trainer.storage.histories(), self.trainer.storage

    hook = Reads()
    trainer = make_trainer(tmp_path, HookAdapter([hook]), num_sanity_val_steps=1)
    trainer.fit(Stores(), make_loader(3), make_loader(1))
    assert hook.read[0] is False  # a scalar of the sanity check is not the run's
    assert seen[1] is hook.read[1]
    trainer.validate(Stores(), make_loader(1))
    trainer.test(Stores(), make_loader(1))
    trainer.predict(Stores(), make_loader(1))
    assert len(set(map(id, seen))) == 5
    with pytest.raises(AssertionError, match="works inside"):
        library.get_event_storage()


def test_a_fast_dev_run_writes_no_files(library: Any, tmp_path: Path) -> None:
    folder, length = tmp_path / "written", (2,) if library is pet else ()
    writers = [library.JSONWriter(str(folder / "m.json")), d2.TensorboardXWriter(str(folder))]
    fit(tmp_path, library.PeriodicWriter(writers, *length, 1), fast_dev_run=2)
    assert not folder.exists()
    fit(tmp_path, library.PeriodicWriter(writers, *length, 1))
    assert len([*folder.iterdir()]) == 2
