"""Write and read checkpoints of mmcv's layout: ``{meta, state_dict, optimizer}``.

The calling rank writes alone, without a collective. Files of mmcv's and of Lightning's layout can
be read.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.optimizers import by_optimizer
from lightning_hooks.storage import checkpoints, files, manifest, torch_files, verification
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.storage.layout import RAW, check_weights, entry_of, has_average, raw_weights
from lightning_hooks.utils.dtensors import any_sharded
from lightning_hooks.utils.fsdp import has_slices
from lightning_hooks.utils.plain_types import plain, plain_groups
from lightning_hooks.utils.printable import printable

__all__ = ["MmcvCheckpoints", "file_name", "with_keys_of"]

LAYOUT = "1.7.2"
"""The version of mmcv with the files' layout."""


def file_name(template: str, number: int) -> str:
    """Return the name of a file from mmcv's ``filename_tmpl``.

    Raises:
        ValueError: if the template leaves the directory.

    >>> file_name("epoch_{}.pth", 3)
    'epoch_3.pth'
    """
    name = template.format(number)
    if not is_inside(name):
        raise ValueError(f"filename_tmpl must be the name of a file in out_dir, got {template!r}")
    return name


def with_keys_of(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict with ``model.`` added to or taken from the keys, if needed to match."""
    own = set(model.state_dict())
    if own & set(state):
        return state
    for candidate in (
        {k.removeprefix("model."): v for k, v in state.items()},
        {f"model.{k}": v for k, v in state.items()},
    ):
        if own & set(candidate):
            return candidate
    return state


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimizer, or the states of a dict of optimizers by name."""
    return by_optimizer(lambda one: plain_groups(one.state_dict()), optimizer)  # type: ignore[no-any-return]


def resume_optimizers(runner: Any, checkpoint: dict[str, Any]) -> None:
    """Restore the optimizers from a file of mmcv or Lightning, if the file has them."""
    optimizer = runner.optimizer
    many = optimizer if isinstance(optimizer, dict) else {"": optimizer}
    if "optimizer" in checkpoint:
        found = checkpoint["optimizer"]
        states = found if isinstance(optimizer, dict) else {"": found}
    elif "optimizer_states" in checkpoint:
        states = dict(zip(many, checkpoint["optimizer_states"], strict=True))
    else:
        return
    for name, one in many.items():
        one.load_state_dict(states[name])


class MmcvCheckpoints:
    """The methods of a Runner for checkpoints of mmcv's layout.

    A single rank may call the methods: no collective is used.
    """

    filename_tmpl: str = "epoch_{}.pth"
    meta: dict[str, Any] | None

    def run_meta(
        self: Any, epoch: int, iteration: int, own: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return mmcv's ``meta``: the caller's entries, the runner's, then the run's counters."""
        meta = {**(own or {}), **(self.meta or {})}
        classes = getattr(unwrap(self.model), "CLASSES", None)
        if classes is not None:
            meta["CLASSES"] = classes
        meta["mmcv_version"] = LAYOUT
        meta.update(epoch=epoch, iter=iteration, time=time.asctime())
        return plain(meta)  # type: ignore[no-any-return]

    def _refuse_parts(self: Any, method: str, instead: str) -> None:
        """Raise if the rank holds only parts of the parameters."""
        trainer = self.trainer
        parameters = [*unwrap(self.model).parameters()]
        if any_sharded(parameters) or has_slices(trainer.model or self.module, parameters):
            raise ValueError(
                f"runner.{method}() works on one rank, and with {type(trainer.strategy).__name__} "
                "each has parts of the parameters only: use lightning_hooks.CheckpointHook, or "
                f"{instead}"
            )

    def save_checkpoint(
        self: Any,
        out_dir: str,
        filename_tmpl: str | None = None,
        save_optimizer: bool = True,
        meta: dict[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint of mmcv's layout now, and point ``latest.pth`` at the file.

        ``fast_dev_run`` writes nothing.

        Raises:
            TypeError: if ``meta`` is neither a dict nor None.
            ValueError: if the template leaves ``out_dir``, or the parameters are spread over the
                ranks.
        """
        filename = file_name(filename_tmpl or self.filename_tmpl, self.file_number)
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"meta must be a dict or None, got {type(meta).__name__}")
        if not self.writes_files:
            return
        self._refuse_parts("save_checkpoint", "trainer.save_checkpoint() on all ranks")
        checkpoint: dict[str, Any] = {
            "meta": self.run_meta(self.epoch + 1, self.iter, meta),
            "state_dict": torch_files.to_cpu(unwrap(self.model).state_dict()),
        }
        optimizer = self.optimizer
        if save_optimizer and optimizer is not None:
            checkpoint["optimizer"] = optimizer_state(optimizer)
        torch_files.save_torch(checkpoint, files.join(out_dir, filename))
        if create_symlink and files.is_local(out_dir):
            checkpoints.link_latest(os.path.abspath(out_dir), filename)

    def load_checkpoint(
        self: Any,
        filename: str,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: list[tuple[str, str]] | None = None,
    ) -> dict[str, Any]:
        """Load the weights of a file into the runner's model and return the whole checkpoint.

        For a run with an average, the loaded weights are the average, as validated. The prefixes
        ``module.`` (a wrapped model) and ``model.`` (a LightningModule's attribute) are added to or
        taken from keys as needed.

        Raises:
            RuntimeError: if ``strict`` and keys or shapes differ. Else differences are logged.
            ValueError: if the parameters are spread over the ranks.
        """
        self._refuse_parts("load_checkpoint", "Trainer.fit(ckpt_path=...)")
        checkpoint = verification.load(filename, map_location)
        state = checkpoint.get("state_dict", checkpoint)
        # Lightning's files keep buffers added by hooks apart
        state = {**state, **entry_of(checkpoint).get("buffers", {})}
        for pattern, replacement in revise_keys or [(r"^module\.", "")]:
            state = {re.sub(pattern, replacement, key): value for key, value in state.items()}
        model = unwrap(self.model)
        state = with_keys_of(model, state)
        own = model.state_dict()
        check_weights(state, own, "state_dict", filename)
        wrong = [k for k, v in state.items() if k in own and own[k].shape != v.shape]
        if strict:
            model.load_state_dict(state)
            return checkpoint
        result = model.load_state_dict(
            {k: v for k, v in state.items() if k not in wrong}, strict=False
        )
        missing = [k for k in result.missing_keys if not k.endswith("num_batches_tracked")]
        for what, keys in [
            ("unexpected", result.unexpected_keys),
            ("missing", [k for k in missing if k not in wrong]),
            ("size mismatch", wrong),
        ]:
            if keys:
                self.logger.warning("%s: %s keys: %s", filename, what, printable(", ".join(keys)))
        return checkpoint

    def resume(
        self: Any, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Go on from an mmcv or Lightning checkpoint: weights, meta, counters and optimizers."""
        where = "cpu" if map_location == "default" else map_location
        found = self.load_checkpoint(checkpoint, map_location=where)
        if has_average(found):  # the average is loaded now
            model = unwrap(self.model)
            raw = with_keys_of(model, raw_weights(found))
            check_weights(raw, model.state_dict(), RAW, checkpoint)
            model.load_state_dict(raw, strict=False)
        meta = found.get("meta")
        if meta is None:
            raise ValueError(
                f"{checkpoint} has no 'meta': it is a file of weights; use load_checkpoint() for it"
            )
        self._epoch = meta["epoch"]
        self._iter = meta["iter"]
        self.count_steps_from(found)
        self.meta = dict(meta)
        run = entry_of(found).get("run")
        if manifest.is_run(run):
            self.run_id = str(run)
        if resume_optimizer:
            resume_optimizers(self, found)
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)
