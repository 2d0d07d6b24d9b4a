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
    """Keep the checkpoints with the best values logged in the Trainer's validation.

    Each validation in an ``interval``-th epoch compares every key by its own rule. For a score
    among the ``keep_best`` best, a file is written, and then the worst kept file is deleted. The
    file is ``best_<key>_epoch_<n>.pth`` for a validation at the end of an epoch, or
    ``best_<key>_iter_<n>.pth`` for a validation within an epoch. The files are like
    ``CheckpointHook``'s and listed in the same manifest. The ranking is in ``runner.meta``, and so
    continues in a resumed run.

    To Lightning, the hook is a ``ModelCheckpoint`` with ``monitor``, ``best_model_score`` and the
    other attributes (:class:`~lightning_hooks.hooks.checkpoint.best_fields.BestFields`).
    After a fit of the Trainer, ``ckpt_path="best"`` is the best file; in a new process,
    ``HookAdapter(hooks, work_dir=...).best_checkpoint`` finds the file.

    A score must be better to rank before another score: on ties the older file stays first. NaN is
    never among the best, and neither is the worst possible score (minus infinity where greater is
    better, else infinity).

    ================================  ========================================================
    key in ``runner.meta``            value
    ================================  ========================================================
    hook_msgs["best_score"]           the best score by the first key of the first such hook
    hook_msgs["best_ckpt"]            the path of the best file, for ``ckpt_path="best"``
    hook_msgs["best_score_<key>"]     the best score by another key; ``best_ckpt_<key>``
    hook_msgs["best_ckpts"]           ``[score, path]`` by key, best first
    ================================  ========================================================

    Args:
        save_best: The name of a logged value, or a list of names; ``"auto"`` for the first.
        rule: ``"greater"`` or ``"less"``: which scores are better, a string or a list as
            ``save_best``; by default inferred from the key, see ``greater_keys``.
        greater_keys: Names, or parts of names, of scores where greater is better; by default acc,
            top, AR@, auc, precision, mAP, mDice, mIoU, mAcc, aAcc.
        less_keys: Names, or parts of names, of scores where less is better; by default loss, and
            all names ending in loss, error, mse, mae, rmse or perplexity.
        keep_best: The number of checkpoints to keep by each key, at least 1.
        interval: Epochs or iterations between comparisons, at least 1.
        by_epoch: Whether to count epochs, else iterations; by iteration, each validation counts.
        out_dir: The parent directory of the files; files are written to a subdirectory with the
            work directory's name. By default the work directory itself; fsspec paths are allowed.
        background: Whether a thread writes the files while training goes on, as
            ``CheckpointHook``'s.
        on_saved: Called with the path of each file on the disk, as ``CheckpointHook``'s.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for values out of range, and for a key without a rule.
        KeyError: for an unknown ``rule``; in a run, for a key that is not logged. A key that may
            still be logged, within an epoch, is warned of.

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
        """The path of the best file by the first key, as ``best_model_path``."""
        ranking = self.standing().ranking
        return ranking[0][1] if ranking else ""
