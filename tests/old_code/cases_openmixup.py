"""The cases of openmixup's hooks."""

from __future__ import annotations

from typing import Any

from case import CLUSTERS, TEXT, Case

HOOKS = "openmixup/core/hooks"
LINEAR = dict(warmup="linear", warmup_iters=1, warmup_by_epoch=True)
BY_ITER: dict[str, Any] = dict(by_epoch=False)
RATES: dict[str, dict[str, Any]] = {
    "Fixed": dict(warmup="constant", warmup_iters=3),
    "Step": dict(step=[1, 3], gamma=0.5, **LINEAR),
    "Exp": dict(gamma=0.9, **BY_ITER),
    "Poly": dict(power=0.9, min_lr=0.01, warmup="exp", warmup_iters=4, **BY_ITER),
    "Inv": dict(gamma=0.3),
    "CosineAnnealing": dict(min_lr=0.0, **BY_ITER),
    "FixStepCosineAnnealing": dict(min_lr_ratio=0.1, max_iters=7, **BY_ITER),
    "CosineRestart": dict(periods=[2, 2], restart_weights=[1, 0.5], min_lr=0.001),
    "Cyclic": dict(target_ratio=(4, 0.1), cyclic_times=2),
}
"""Schedules of the second parameter group's rate."""
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Fixed": dict(warmup="constant", warmup_iters=3),
    "Step": dict(step=2),
    "Exp": dict(gamma=0.9, **BY_ITER),
    "Poly": dict(power=0.9, **LINEAR),
    "CosineAnnealing": dict(min_attr=0.1, **BY_ITER),
    "FixStepCosineAnnealing": dict(min_attr=0.1, max_iters=6, **BY_ITER),
}
"""Schedules of a model attribute used in the loss."""
CLUSTERING: dict[str, Any] = dict(
    extractor=dict(dataset="<data>", imgs_per_gpu=4, workers_per_gpu=0),
    clustering=dict(type="Kmeans", k=4),
    unif_sampling=False,
    reweight=True,
    reweight_pow=0.5,
    dist_mode=False,
    data_loaders=["<train>"],
    interval=2,
)
ODD = ("Exp", "CosineAnnealing", "FixStepCosineAnnealing")

OPENMIXUP = (
    *(
        Case(
            f"{HOOKS}/addtional_scheduler.py",
            f"{name}LrAdditionalHook",
            dict(addtional_indice=[1], **arguments),
            by_epoch=name not in ODD,
            priority="VERY_HIGH",
        )
        for name, arguments in RATES.items()
    ),
    *(
        Case(
            f"{HOOKS}/addtional_scheduler.py",
            f"Custom{name}Hook",
            dict(attr_name="loss_lambda", attr_base=0.8, **arguments),
            by_epoch=name not in ODD,
        )
        for name, arguments in ATTRIBUTES.items()
    ),
    Case(
        f"{HOOKS}/ema_hook.py",
        "EMAHook",
        dict(momentum=0.9, warmup="linear", warmup_iters=4),
        val=True,
    ),
    Case(
        f"{HOOKS}/ema_hook.py",
        "SwitchEMAHook",
        dict(momentum=0.9, switch_params=True, switch_interval=2),
    ),
    Case(f"{HOOKS}/momentum_hook.py", "CosineHook", dict(switch_ema=True, switch_interval=3)),
    Case(
        f"{HOOKS}/momentum_hook.py",
        "StepHook",
        dict(step=[0.5, 0.9], update_interval=2),
        by_epoch=False,
    ),
    Case(f"{HOOKS}/momentum_hook.py", "CosineScheduleHook", dict(adjust_scope=[0.25, 0.75])),
    Case(
        f"{HOOKS}/lr_scheduler.py",
        "StepFixCosineAnnealingLrUpdaterHook",
        dict(min_lr=0.01, warmup="linear", warmup_iters=4, **BY_ITER),
        priority="VERY_HIGH",
    ),
    Case(
        f"{HOOKS}/optimizer_hook.py",
        "DistOptimizerHook",
        dict(update_interval=3, cancel_grad=dict(backbone=5), grad_clip=dict(max_norm=0.5)),
        steps=True,
        logs=True,
    ),
    Case(
        f"{HOOKS}/optimizer_hook.py",
        "Fp16OptimizerHook",
        dict(update_interval=2, cancel_grad=dict(backbone=5), loss_scale=512.0),
        steps=True,
    ),
    Case(f"{HOOKS}/precise_bn_hook.py", "PreciseBNHook", dict(num_samples=8)),
    Case(f"{HOOKS}/save_hook.py", "SAVEHook", dict(save_interval=3, iter_per_epoch=4)),
    Case(
        f"{HOOKS}/odc_hook.py",
        "ODCHook",
        CLUSTERS,
    ),
    Case(f"{HOOKS}/swav_hook.py", "SwAVHook", dict(batch_size=4)),
    Case(f"{HOOKS}/deepcluster_hook.py", "DeepClusterHook", CLUSTERING),
    Case(f"{HOOKS}/deepcluster_automix_hook.py", "DeepClusterAutoMixHook", CLUSTERING),
    Case(
        f"{HOOKS}/validate_hook.py",
        "ValidateHook",
        dict(
            dataset="<data>",
            dist_mode=False,
            broadcast_bn_buffer=False,
            save_best="acc",
            save_val=True,
            imgs_per_gpu=8,
            workers_per_gpu=0,
            eval_param={},
        ),
        priority="LOW",
        beside=(TEXT,),
        logs=True,
    ),
)
