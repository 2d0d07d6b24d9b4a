"""Keep the checkpoints with the best scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks.engine.driver.collect import is_lightnings_default
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.hooks.checkpoint.best_fields import BestFields, Standing
from lightning_hooks.hooks.checkpoint.model_checkpoint import ModelCheckpointHook
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.hooks.evaluation.best_rule import BestRules, best_name, number, ranked
from lightning_hooks.storage import files
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.earlier_files import best_series
from lightning_hooks.storage.manifest import Entry

__all__ = ["BestCheckpoints"]


class _Due(NamedTuple):
    """A file to be written."""

    key: str
    path: str
    when: str
    """For the log, as in "3 epoch"."""


class BestCheckpoints(BestRules, BestFields, CheckpointWriter):
    """Compare scores by mmcv's rules, and write a checkpoint where one is among the best.

    The scores and paths are in ``runner.meta``, and so in every checkpoint. A file that is no
    longer among the best is deleted when its successor is on the disk.

    ================================  ========================================================
    key in ``runner.meta``            value
    ================================  ========================================================
    hook_msgs["best_score"]           the best score by the first key of the first such hook
    hook_msgs["best_ckpt"]            the path of its file
    hook_msgs["best_score_<key>"]     the same of another key; ``best_ckpt_<key>``
    hook_msgs["best_ckpts"]           ``[score, path]`` by key, best first
    ================================  ========================================================

    A subclass sets ``out_dir``, calls ``_init_comparison`` and, with every score, ``_save_ckpt``;
    it defines ``_evaluated_at``.
    """

    keeps = "best"
    best_ckpt_path: str | None = None
    _due: list[_Due] | None = None
    _current: float | None = None
    _deleted: set[str]
    """Files that the writer, perhaps a thread, has deleted, until the rankings are updated."""

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files: with ``save_best``."""
        return self.save_best is not None

    # -- which are the best ----------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Take the best so far from ``runner.meta``."""
        super().before_run(runner)
        self._due, self._deleted, self._current = None, set(), None
        if self.save_best is None:
            return
        if runner.meta is None:
            warnings.warn("runner.meta is None. Creating an empty one.", stacklevel=2)
            runner.meta = {}
        messages = runner.meta.setdefault("hook_msgs", {})
        self.best_ckpt_path = messages.get(f"best_ckpt{self._suffix(runner, self.key_indicator)}")
        self._require_distinct_keys(runner)
        self._warn_of_lightnings_best(runner.trainer.callbacks)
        self._open_directory(runner)

    def _open_directory(self, runner: Any) -> None:
        """Check the directory of the files, and make it if it is one of their own."""
        directory = self._prepare_directory(runner, make=bool(self.out_dir))
        if self.out_dir:
            runner.logger.info("The best checkpoint will be saved to %s", directory)

    def keeper_of_best(self, hooks: Sequence[Any]) -> BestFields:
        """Return the hook itself."""
        return self

    def standing(self) -> Standing:
        """Return the best by the first key."""
        key, ranking = self.key_indicator, []
        if key not in self._rules:  # "auto", before the first score
            return Standing(keep=self.keep_best)
        if self._runner is not None and self._runner.meta:
            ranking = self._ranking(self._runner, key)[: self.keep_best]
        kept = [(score, path) for score, path in ranking if path]
        return Standing(key, self.rule, self.keep_best, kept, self._current)

    def _all_of_run(self, runner: Any) -> list[Any]:
        return [h for h in runner.hooks if isinstance(h, BestCheckpoints) and h.save_best]

    def _suffix(self, runner: Any, key: str) -> str:
        """Return the end of mmcv's names in ``hook_msgs``: none for the first key of all."""
        is_first = next(iter(self._all_of_run(runner)), self) is self and key == self.key_indicator
        return "" if is_first else f"_{key}"

    def _require_distinct_keys(self, runner: Any) -> None:
        others = [hook for hook in self._all_of_run(runner) if hook is not self]
        for key in self._rules:
            if any(key in other._rules for other in others):
                raise ValueError(
                    f"two hooks save the best by {key!r}: they would take each other's scores and "
                    "files for their own; give one of them another key"
                )

    def _warn_of_lightnings_best(self, callbacks: list[Any]) -> None:
        """Warn where ``ckpt_path="best"`` is another file."""
        found = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint)]
        is_ours = any(isinstance(callback, ModelCheckpointHook) for callback in found)
        if found and is_lightnings_default(found[0]) and not is_ours:
            warnings.warn(
                f"{type(self).__name__}(save_best={self.save_best!r}) runs beside Lightning's "
                'default ModelCheckpoint, whose newest file ckpt_path="best" is. Give the Trainer '
                'a CheckpointHook() too: then "best" is this hook\'s; or '
                "Trainer(enable_checkpointing=False), and ckpt_path=hook.best_ckpt_path",
                stacklevel=2,
            )

    def _ranking(self, runner: Any, key: str) -> list[list[Any]]:
        """Return the ``[score, path]`` by a key so far; a run of mmcv's has one."""
        messages = runner.meta["hook_msgs"]
        if "best_ckpts" in messages or "best_score" not in messages or self._suffix(runner, key):
            return [*messages.get("best_ckpts", {}).get(key, [])]
        return [[messages["best_score"], messages.get("best_ckpt") or ""]]

    def _save_ckpt(self, runner: Any, key_score: Any) -> None:
        """Mark a checkpoint as due if a score, or any of a dict of scores, is among the best."""
        done, unit = self._evaluated_at(runner)
        scores = key_score if isinstance(key_score, Mapping) else {self.key_indicator: key_score}
        messages = runner.meta["hook_msgs"]
        self._forget_deleted(runner)
        for key, value in scores.items():
            score = number(value)
            if key not in self._rules:  # "auto" is resolved by the first score
                self._add_rule()
                self._require_distinct_keys(runner)
            better, worst = self._rules[key]
            if score is None or not better(score, worst):  # NaN is never better
                continue
            path = files.join(self.directory(runner), best_name(key, unit, done))
            before = self._ranking(runner, key)
            ranking = ranked(before, score, path, better)
            if ranking == before or [score, path] not in ranking[: self.keep_best]:
                continue
            messages["best_ckpts"] = {**messages.get("best_ckpts", {}), key: ranking}
            suffix = self._suffix(runner, key)
            messages[f"best_score{suffix}"], messages[f"best_ckpt{suffix}"] = ranking[0]
            if key == self.key_indicator:
                self.best_ckpt_path, self._current = ranking[0][1], score
            self._due = [*(self._due or []), _Due(key, path, f"{done} {unit}")]

    def _evaluated_at(self, runner: Any) -> tuple[int, str]:
        """Return the epochs or iterations that the weights of a score have done, and which."""
        raise NotImplementedError(f"{type(self).__name__} must define _evaluated_at(runner)")

    def _take_rank_0s_decision(self, runner: Any) -> None:
        """Have all ranks write a checkpoint, or none."""
        if self.save_best is None or runner.world_size == 1:
            return
        messages = runner.meta["hook_msgs"]
        own = {k: v for k, v in messages.items() if k.startswith("best_")}
        decision = self._due, own, self.best_ckpt_path, self._current
        found = runner.trainer.strategy.broadcast(decision)
        for key in own:
            del messages[key]
        self._due, of_rank_0, self.best_ckpt_path, self._current = found
        messages.update(of_rank_0)

    # -- the files -------------------------------------------------------------------------

    def _write(self, trainer: L.Trainer) -> None:
        due, self._due = self._due or [], None
        runner = Driver.of(trainer).runner
        if not runner.writes_files:
            return
        for one in due:
            directory, name = self.directory(runner), os.path.basename(one.path)
            ranking = self._ranking(runner, one.key)
            target = Target(
                *(directory, name, runner.run_id, best_series(one.key), self.save_optimizer),
                score=next((score for score, path in ranking if path == one.path), None),
                rule="greater" if self._rules[one.key][1] < 0 else "less",
            )
            old = {
                path: os.path.basename(path)
                for _, path in ranking[self.keep_best :]
                if path.startswith(files.join(directory, ""))
            }
            choose_old = partial(_of_names, names=old.values(), new=name)
            report = partial(self._report, runner, one, ranking, old)
            self._write_file(trainer, one.path, target, choose_old, report)
        self._forget_deleted(runner)

    def _report(
        self,
        runner: Any,
        one: _Due,
        ranking: list[list[Any]],
        old: dict[str, str],
        deleted: list[str],
    ) -> None:
        """Log that a file has been written, and others deleted."""
        directory, name = os.path.split(one.path)
        best, path = ranking[0]
        if path == one.path:
            runner.logger.info("Now best checkpoint is saved as %s.", name)
            runner.logger.info("Best %s is %0.4f at %s.", one.key, best, one.when)
        else:
            among = f"Checkpoint among the best {self.keep_best}"
            runner.logger.info("%s is saved as %s.", among, name)
        for other in deleted:
            path = files.join(directory, other)
            runner.logger.info("The previous best checkpoint %s was removed", path)
        if files.exists(one.path):
            self._deleted |= old.keys()

    def _forget_deleted(self, runner: Any) -> None:
        """Remove deleted files from the rankings, on the training's thread."""
        rankings = runner.meta["hook_msgs"].get("best_ckpts", {})
        for key in self._rules.keys() & rankings.keys():
            kept, rest = rankings[key][: self.keep_best], rankings[key][self.keep_best :]
            rankings[key] = [*kept, *(entry for entry in rest if entry[1] not in self._deleted)]

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the thread."""
        super().on_train_end(trainer, pl_module)
        if self.save_best is not None:
            self._forget_deleted(Driver.of(trainer).runner)


def _of_names(existing: list[Entry], names: Collection[str], new: str) -> list[Entry]:
    """Return the entries of some files; none if a writer of the user's has not finished ``new``."""
    is_written = any(entry.name == new for entry in existing)
    return [entry for entry in existing if is_written and entry.name in names]
