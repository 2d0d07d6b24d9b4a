optimizer = dict(type="SGD", lr=0.1, momentum=0.9, weight_decay=1e-3)
optimizer_config = dict(grad_clip=dict(max_norm=5, norm_type=2))
lr_config = dict(policy="step", warmup="linear", warmup_iters=3, warmup_ratio=0.1, step=[2])
runner = dict(type="EpochBasedRunner", max_epochs=4)
