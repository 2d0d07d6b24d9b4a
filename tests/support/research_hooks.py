"""Hooks in the style of research repositories for mmcv; ``seen`` has the recorded values.

Each function creates a hook from a base class of real mmcv or of this package, so the same code
runs in mmcv's runner and in a plain Trainer.
"""

from __future__ import annotations

import pickle
from typing import Any


def writes_back(base: Any, names: tuple[str, ...]) -> Any:
    """Read and write back attributes of the runner at every point."""

    def touch(self: Any, runner: Any) -> None:
        for name in names:
            setattr(runner, name, getattr(runner, name))
        self.seen.append((runner.epoch, runner.iter, runner.inner_iter, runner.max_iters))

    points = [p for p in base.stages if p not in ("before_epoch", "after_epoch")]
    return type("WritesBack", (base,), {"seen": [], **dict.fromkeys(points, touch)})()


def names_by_epoch(base: Any) -> Any:
    """Move ``_epoch`` back to name a file of the validated epoch."""

    class NamesByEpoch(base):  # type: ignore[misc]
        seen: list[Any] = []  # noqa: RUF012

        def after_val_epoch(self, runner: Any) -> None:
            runner._epoch -= 1
            self.seen.append(f"epoch_{runner.epoch + 1}.txt")
            runner._epoch += 1

    return NamesByEpoch()


def shows_loss(base: Any) -> Any:
    """Format, print, compare and convert the loss."""

    class ShowsLoss(base):  # type: ignore[misc]
        seen: list[Any] = []  # noqa: RUF012

        def after_train_iter(self, runner: Any) -> None:
            loss = runner.outputs["loss"]
            number = loss.item()
            self.seen += [
                (
                    f"{loss:.4f}",
                    f"{loss}",
                    f"{loss.detach():.3e}",
                    "%.3f" % loss,  # noqa: UP031  # as in old files
                    str(2 * loss),
                    str(loss),
                ),
                (bool(loss < 1e9), bool(loss == number), bool(number >= loss), loss in [loss]),
                (float(loss), int(loss), loss.tolist(), float(loss.detach().numpy()), loss.type()),
                (pickle.loads(pickle.dumps(loss.detach())).item(), loss.dim(), loss.requires_grad),
            ]

    return ShowsLoss()


def reads_iter_loader(base: Any) -> Any:
    """Find the data set through mmcv's IterLoader."""

    class ReadsLoader(base):  # type: ignore[misc]
        seen: list[Any] = []  # noqa: RUF012

        def after_train_iter(self, runner: Any) -> None:
            dataset = runner.data_loader.iter_loader._dataset
            self.seen.append((len(dataset), dataset is runner.data_loader._dataloader.dataset))

    return ReadsLoader()


def flags_optimizer(base: Any) -> Any:
    """Set an optimizer attribute read by ``step``, and read an attribute set by ``step``."""

    class FlagsOptimizer(base):  # type: ignore[misc]
        seen: list[Any] = []  # noqa: RUF012

        def before_run(self, runner: Any) -> None:
            runner.optimizer.scale = 0.5

        def after_train_epoch(self, runner: Any) -> None:
            self.seen.append((runner.optimizer.scale, runner.optimizer.used))

    return FlagsOptimizer()


def old_body(base: Any, length: int) -> Any:
    """Accumulate gradients in the body of mmcv 1.3, with ``_init`` and ``remainder_iters``."""

    class OldBody(base):  # type: ignore[misc]
        seen: list[Any] = []  # noqa: RUF012

        def after_train_iter(self, runner: Any) -> None:
            if not self.initialized:
                self._init(runner)
            factor = self.cumulative_iters
            if runner.iter >= self.divisible_iters:
                factor = self.remainder_iters
            (runner.outputs["loss"] / factor).backward()
            if self.every_n_iters(runner, self.cumulative_iters) or self.is_last_iter(runner):
                grads = [p.grad.norm() for p in runner.model.parameters()]
                self.seen.append((factor, sum(float(g) ** 2 for g in grads) ** 0.5))
                runner.optimizer.step()
                runner.optimizer.zero_grad()

    return OldBody(cumulative_iters=length)


def opens_itself(base: Any, client: Any) -> Any:
    """Set the directory and the storage in ``before_run`` without ``super()``."""

    class OpensItself(base):  # type: ignore[misc]
        def before_run(self, runner: Any) -> None:
            if not self.out_dir:
                self.out_dir = runner.work_dir
            self.file_client = client.infer_client(None, self.out_dir)

    return OpensItself(interval=1)


def saves_when_it_likes(base: Any) -> Any:
    """Save by ``_save_checkpoint`` at two iterations chosen by the subclass."""

    class Saves(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(2**30, False)
            self.save_last = False

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter in (1, 4):
                self._save_checkpoint(runner)

    return Saves()
