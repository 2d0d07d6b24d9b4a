"""Keep the checkpoints with the best validation results: ``BestCheckpointHook``."""

from __future__ import annotations

from collections.abc import Callable

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.checkpoint.model_checkpoint import ModelCheckpointHook
from lightning_hooks.hooks.checkpoint.paths import checked_out_dir
from lightning_hooks.hooks.evaluation.eval import EvalHook

__all__ = ["BestCheckpointHook"]


@HOOKS.register_module()
class BestCheckpointHook(EvalHook, ModelCheckpointHook):  # type: ignore[misc,override]  # every_n_epochs
    """Keep the checkpoints with the best of the values logged in the Trainer's validation.

    In each validation of an ``interval``-th epoch every key is compared by its own rule; where
    the score is among the ``keep_best`` best, a file is written, and the one that falls out is
    deleted after that: ``best_<key>_epoch_<n>.pth`` for the validation that ends an epoch,
    ``best_<key>_iter_<n>.pth`` for one within it. The files are like ``CheckpointHook``'s and in
    the same manifest; the ranking is in ``runner.meta``, and so continues in a resumed run.

    To Lightning it is a ``ModelCheckpoint`` with ``monitor``, ``best_model_score`` and the other
    attributes (:class:`~lightning_hooks.hooks.checkpoint.best_fields.BestFields`).
    ``ckpt_path="best"`` is its best file, after a fit of the Trainer; in a new process
    ``HookAdapter(hooks, work_dir=...).best_checkpoint`` finds the file.

    The rule: a score must be better to come before another, so of equal ones the earlier stays,
    and with ``keep_best`` equal ones no later one is written. NaN is never among the best, nor is
    the worst there is (minus infinity where greater is better, else infinity).

    ================================  ========================================================
    key in ``runner.meta``            value
    ================================  ========================================================
    hook_msgs["best_score"]           the best score by the first key of the first such hook
    hook_msgs["best_ckpt"]            the path of its file; ``ckpt_path="best"`` takes it
    hook_msgs["best_score_<key>"]     the same of another key; ``best_ckpt_<key>``
    hook_msgs["best_ckpts"]           ``[score, path]`` by key, best first
    ================================  ========================================================

    Args:
        save_best: The name of a logged value, or a list of names; ``"auto"`` for the first.
        rule: ``"greater"`` or ``"less"``: which scores are better, one or a list as
            ``save_best``; by default inferred from the key, see ``greater_keys``.
        greater_keys: Names, or parts of names, of scores that are better when greater; by
            default acc, top, AR@, auc, precision, mAP, mDice, mIoU, mAcc, aAcc.
        less_keys: The same of scores that are better when less; by default loss, and all names
            that end in loss, error, mse, mae, rmse or perplexity.
        keep_best: How many checkpoints are kept by each key, at least 1.
        interval: Epochs or iterations from one comparison to the next, at least 1.
        by_epoch: Whether epochs or iterations are counted; by iteration, each validation counts.
        out_dir: Where files are written: into the directory in it that has the name of the work
            directory. The work directory by default; fsspec's paths too.
        background: Whether a thread writes the files while the training goes on, as
            ``CheckpointHook``'s.
        on_saved: Called with the path of each file when it is on the disk, as
            ``CheckpointHook``'s.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for values out of range, and where no rule can be inferred from a key.
        KeyError: for an unknown ``rule``; in a run, for a key that is not logged. One that may
            still be logged, within an epoch or before ``interval``, is warned of.

    Source: mmcv's ``EvalHook(save_best=...)``; mmengine's ``CheckpointHook`` for several keys.

    Note:
        Departures from mmcv: a hook of its own; several keys, and several files by each; more
        names are less, as in ``EvalHook``.
    """

    exports_last = False

    def __init__(
        self,
        save_best: str | list[str] = "auto",
        rule: str | list[str] | None = None,
        greater_keys: str | list[str] | None = None,
        less_keys: str | list[str] | None = None,
        keep_best: int = 1,
        interval: int = 1,
        by_epoch: bool = True,
        out_dir: str | None = None,
        background: bool = False,
        on_saved: Callable[[str], object] | None = None,
    ) -> None:
        if save_best is None:
            raise TypeError("save_best must be a str or a list of str, got None")
        super().__init__(
            None,
            interval=interval,
            by_epoch=by_epoch,
            save_best=save_best,
            rule=rule,
            greater_keys=greater_keys,
            less_keys=less_keys,
            out_dir=checked_out_dir(out_dir),
            keep_best=keep_best,
            background=background,
            on_saved=on_saved,
        )

    @property
    def exported_checkpoint(self) -> str:
        """The file with the best score by the first key, as ``best_model_path``."""
        ranking = self.standing().ranking
        return ranking[0][1] if ranking else ""
