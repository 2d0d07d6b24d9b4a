"""detectron2's config: its entries, and its scaling to the number of processes."""

from __future__ import annotations

from typing import Any

__all__ = ["auto_scale_workers", "setting"]


def setting(cfg: Any, name: str) -> Any:
    """Return an entry of a config by its dotted name; None if it is not there.

    >>> import types
    >>> cfg = types.SimpleNamespace(SOLVER=types.SimpleNamespace(MAX_ITER=9))
    >>> setting(cfg, "SOLVER.MAX_ITER"), setting(cfg, "SOLVER.AMP.ENABLED")
    (9, None)
    """
    for part in name.split("."):
        cfg = getattr(cfg, part, None)
    return cfg


def auto_scale_workers(cfg: Any, num_workers: int) -> Any:
    """Return a config for a number of processes; the batch of each keeps its size.

    The total batch and the rate grow with the number of processes, the iterations, steps and
    periods shrink. The config itself is returned where ``SOLVER.REFERENCE_WORLD_SIZE`` is 0, not
    there, or that number already.

    Args:
        cfg: The config, a detectron2 ``CfgNode``: it is copied by ``clone()``.
        num_workers: Number of processes.

    Raises:
        ValueError: if the batch cannot be divided among the processes that the config is for.
    """
    reference = setting(cfg, "SOLVER.REFERENCE_WORLD_SIZE") or 0
    if reference in (0, num_workers):
        return cfg
    if cfg.SOLVER.IMS_PER_BATCH % reference:
        raise ValueError(
            f"SOLVER.IMS_PER_BATCH={cfg.SOLVER.IMS_PER_BATCH} must be a multiple of "
            f"SOLVER.REFERENCE_WORLD_SIZE={reference}"
        )
    cfg = cfg.clone()
    frozen = cfg.is_frozen()
    cfg.defrost()
    scale = num_workers / reference
    solver, test = cfg.SOLVER, cfg.TEST
    solver.IMS_PER_BATCH = round(solver.IMS_PER_BATCH * scale)
    solver.BASE_LR = solver.BASE_LR * scale
    solver.MAX_ITER = round(solver.MAX_ITER / scale)
    solver.WARMUP_ITERS = round(solver.WARMUP_ITERS / scale)
    solver.STEPS = tuple(round(step / scale) for step in solver.STEPS)
    solver.CHECKPOINT_PERIOD = round(solver.CHECKPOINT_PERIOD / scale)
    solver.REFERENCE_WORLD_SIZE = num_workers
    test.EVAL_PERIOD = round(test.EVAL_PERIOD / scale)
    if frozen:
        cfg.freeze()
    return cfg
