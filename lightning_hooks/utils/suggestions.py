"""Suggest the closest name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UnknownNameError", "closest", "suggest"]


FEW = 12
"""So many names a message can list."""


ELSEWHERE = {
    "accumulate_grad_batches": ("cumulative_iters",),
    "beta": ("momentum",),
    "clip_grad_norm": ("grad_clip",),
    "clip_val": ("grad_clip",),
    "config": ("init_kwargs",),
    "decay": ("momentum",),
    "dirpath": ("out_dir",),
    "eta_min": ("min_lr",),
    "epochs": ("total_epochs",),
    "every_n_epochs": ("interval",),
    "every_n_steps": ("interval",),
    "every_n_train_steps": ("interval",),
    "experiment": ("exp_name",),
    "experiment_name": ("exp_name",),
    "filename": ("filename_tmpl",),
    "gradient_clip_val": ("grad_clip",),
    "id": ("init_kwargs",),
    "job_type": ("init_kwargs",),
    "layers": ("names",),
    "log_every_n_steps": ("interval",),
    "log_model": ("upload",),
    "lr_min": ("min_lr",),
    "max_epochs": ("total_epochs",),
    "max_norm": ("grad_clip",),
    "milestones": ("step",),
    "mode": ("rule",),
    "modules": ("names",),
    "monitor": ("save_best",),
    "offline": ("mode",),
    "project": ("exp_name", "project_name"),
    "save_dir": ("out_dir", "log_dir"),
    "save_top_k": ("max_keep_ckpts", "keep_best"),
    "start_factor": ("warmup_ratio",),
    "step_size": ("step",),
    "t_0": ("periods",),
    "total_iters": ("warmup_iters",),
    "update_after_step": ("begin_iter",),
    "update_every": ("interval",),
    "update_every_n_steps": ("interval",),
    "update_starting_at_epoch": ("begin_epoch",),
    "update_starting_at_step": ("begin_iter",),
    "use_buffers": ("buffers",),
    "warmup_epochs": ("warmup_iters",),
    "warmup_steps": ("warmup_iters",),
}
"""Arguments elsewhere, most of them Lightning's and torch's, with those for the same here."""


class UnknownNameError(KeyError, ValueError):
    """A name that is not in its table.

    A KeyError, as mmcv raises, and a ValueError, as bad input is elsewhere in this package.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a wrong one, if any is.

    >>> closest("nevr", ["allow", "never"]), closest("zzz", ["allow", "never"])
    ('never', None)
    """
    return next(iter(_alike(name, known)), None)


def suggest(name: str, known: Iterable[str], listed_by: str = "") -> str:
    """Return up to three close names; all of them if they are few, else what lists them.

    Args:
        name: The wrong name.
        known: The right ones.
        listed_by: A command or an expression that lists them; without one some are listed.

    >>> suggest("EMAHok", ["EMAHook", "StepLrUpdaterHook"])
    "did you mean 'EMAHook'? Known: EMAHook, StepLrUpdaterHook"
    >>> suggest("linear", [f"linear_{n}" for n in range(40)])
    "did you mean 'linear_0', 'linear_1' or 'linear_10'?"
    >>> suggest("acc", ["accuracy", "loss"]), suggest("zzz", ["EMAHook"])
    ("did you mean 'accuracy'? Known: accuracy, loss", 'known: EMAHook')
    >>> suggest("mode", [f"model_{n}" for n in range(40)] + ["rule"])
    "did you mean 'rule'?"
    >>> suggest("zzz", [f"linear_{n}" for n in range(40)], "dir(module)")
    '`dir(module)` lists the 40 known names'
    """
    names = sorted(known)
    close = [repr(one) for one in _alike(name, names)]
    if len(names) > FEW:
        if close:
            return f"did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"
        if listed_by:
            return f"`{listed_by}` lists the {len(names)} known names"
        names[FEW:] = [f"... ({len(names)} names)"]
    listing = ", ".join(names) or "none"
    return f"did you mean {close[0]}? Known: {listing}" if close else f"known: {listing}"


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names: one with the same meaning, else those with similar letters."""
    folded = {n.lower(): n for n in known}
    wrong = name.lower()
    meant = [n for n in ELSEWHERE.get(wrong, ()) if n in folded][:1]
    longer = [n for n in folded if len(wrong) > 2 and n.startswith(wrong)]
    parts = [n for n in folded if min(len(n), len(wrong)) > 2 and (wrong in n or n in wrong)]
    found = meant or dict.fromkeys([*longer, *difflib.get_close_matches(wrong, folded), *parts])
    return [folded[n] for n in found][:3]
