_base_ = "./base.py"
model = dict(width=6, head=dict(_delete_=True, type="Head", classes=4, drop=0.1))
optimizer_config = dict(
    _delete_=True, type="CumulativeHook", cumulative_iters=2, grad_clip=dict(max_norm=3)
)
lr_config = dict(
    _delete_=True,
    policy="ExpWarmCosine",
    min_lr=0.001,
    by_epoch=False,
    warmup="exp",
    warmup_iters=1,
    warmup_by_epoch=True,
    warmup_ratio=0.5,
)
momentum_config = dict(policy="Half")
custom_hooks = [
    dict(type="Installer"),
    dict(type="ModelEMA", priority=49),
    dict(type="DistillHook"),
    dict(type="GradientStatistics", interval=3, priority="BELOW_NORMAL"),
    dict(type="Notes", priority="LOWEST"),
]
workflow = [("train", 1), ("val", 1)]
log_config = dict(
    interval=2,
    hooks=[dict(type="VerboseText"), dict(type="CsvLogger", interval=3, ignore_last=False)],
)
checkpoint_config = dict(type="KeepLatest", interval=2, max_keep_ckpts=1)
base_lr = {{_base_.optimizer.lr}}
evaluation = dict(interval=1, save_best="acc", start=1)
