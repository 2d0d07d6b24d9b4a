"""The cases of EasyCV's hooks."""

from __future__ import annotations

from case import EPOCH_CHECKPOINTS, EVAL, TEXT, TIMER, YOLOX_RATE, Case

HOOKS = "easycv/hooks"
EVALUATION = (f"{HOOKS}/eval_hook.py", "EvalHook", dict(dataloader=EVAL), "LOW")
BEST = (
    f"{HOOKS}/best_ckpt_saver_hook.py",
    "BestCkptSaverHook",
    dict(best_metric_name=["acc"], best_metric_type=["max"]),
    "VERY_LOW",
)
LATE = dict(priority="VERY_LOW", logs=True)

EASYCV = (
    Case(f"{HOOKS}/show_time_hook.py", "TIMEHook", {}),
    Case(
        f"{HOOKS}/export_hook.py",
        "ExportHook",
        dict(cfg=dict(work_dir="<work_dir>"), export_after_each_ckpt=True),
    ),
    Case(f"{HOOKS}/byol_hook.py", "BYOLHook", {}),
    Case(f"{HOOKS}/dino_hook.py", "DINOHook", {}),
    Case(
        f"{HOOKS}/yolox_lr_hook.py",
        "YOLOXLrUpdaterHook",
        YOLOX_RATE,
        priority="VERY_HIGH",
    ),
    Case(
        f"{HOOKS}/lr_update_hook.py",
        "StepFixCosineAnnealingLrUpdaterHook",
        dict(min_lr=0.0, warmup="exp", warmup_iters=4, warmup_ratio=0.1),
        priority="VERY_HIGH",
    ),
    Case(
        f"{HOOKS}/lr_update_hook.py",
        "CosineAnnealingWarmupByEpochLrUpdaterHook",
        dict(min_lr=0.0, warmup="linear", warmup_iters=8, warmup_ratio=0.1),
        priority="VERY_HIGH",
    ),
    Case(f"{HOOKS}/throughput_hook.py", "ThroughputHook", dict(warmup_iters=1), logs=True),
    Case(f"{HOOKS}/ema_hook.py", "EMAHook", dict(decay=0.9), beside=(EVALUATION, BEST)),
    Case(
        f"{HOOKS}/eval_hook.py",
        "EvalHook",
        dict(dataloader=EVAL, initial=True, interval=2),
        priority="LOW",
        beside=(TEXT,),
        logs=True,
    ),
    Case(*BEST[:3], priority="VERY_LOW", beside=(EVALUATION,)),
    Case(f"{HOOKS}/sync_norm_hook.py", "SyncNormHook", dict(no_aug_epochs=1)),
    Case(
        f"{HOOKS}/sync_random_size_hook.py",
        "SyncRandomSizeHook",
        dict(device="cpu", interval=3),
    ),
    Case(f"{HOOKS}/yolox_mode_switch_hook.py", "YOLOXModeSwitchHook", dict(no_aug_epochs=1)),
    Case(
        f"{HOOKS}/swav_hook.py",
        "SWAVHook",
        dict(gpu_batch_size=4, dump_path="<work_dir>/queues"),
    ),
    Case(
        f"{HOOKS}/oss_sync_hook.py",
        "OSSSyncHook",
        dict(work_dir="<work_dir>", oss_work_dir="oss://b", iter_interval=3),
        priority="VERY_LOW",
        in_trainer=False,
        beside=(EPOCH_CHECKPOINTS, TEXT),
    ),
    Case(
        f"{HOOKS}/logger.py",
        "PreLoggerHook",
        dict(interval=2),
        priority="LOW",
        beside=(TEXT,),
        logs=True,
    ),
    Case(
        f"{HOOKS}/tensorboard.py",
        "TensorboardLoggerHookV2",
        dict(interval=2),
        beside=(EVALUATION,),
        **LATE,
    ),
    Case(
        f"{HOOKS}/wandb.py",
        "WandbLoggerHookV2",
        dict(interval=2, init_kwargs=dict(project="p"), log_artifact=False),
        beside=(EVALUATION, TIMER),
        **LATE,
    ),
    Case(
        f"{HOOKS}/optimizer_hook.py",
        "OptimizerHook",
        dict(
            update_interval=2,
            grad_clip=dict(max_norm=0.5),
            ignore_key=["backbone"],
            ignore_key_epoch=[1],
            multiply_key=["head"],
            multiply_rate=[0.5],
        ),
        steps=True,
    ),
    Case(
        f"{HOOKS}/optimizer_hook.py",
        "AMPFP16OptimizerHook",
        dict(grad_clip=dict(max_norm=0.5), loss_scale=64.0),
        steps=True,
    ),
)
