_base_ = "./base.py"
optimizer_config = dict(_delete_=True, type="SAMHook")
runner = dict(_delete_=True, type="IterBasedRunner", max_iters=11)
lr_config = dict(policy="poly", power=0.9, min_lr=1e-3, by_epoch=False, _delete_=True)
checkpoint_config = dict(interval=4, by_epoch=False)
evaluation = dict(interval=5, save_best="acc", by_epoch=False)
workflow = [("train", 3), ("val", 2)]
custom_hooks = [
    dict(type="EMAHook", momentum=0.1, interval=2, priority=48),
    dict(type="GradStats", interval=4),
    dict(type="Notes", priority="LOWEST"),
]
