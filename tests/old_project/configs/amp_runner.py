_base_ = "./base.py"
runner = dict(type="MyRunner", max_epochs=3)
optimizer = dict(
    _delete_=True,
    type="AdamW",
    lr=1e-2,
    betas=(0.9, 0.999),
    weight_decay=0.05,
    constructor="LayerDecay",
    paramwise_cfg=dict(num_layers=2, decay=0.7),
)
momentum_config = dict(
    policy="cyclic", target_ratio=(0.85 / 0.95, 1), cyclic_times=1, step_ratio_up=0.4
)
lr_config = dict(
    _delete_=True, policy="cyclic", target_ratio=(10, 1e-4), cyclic_times=1, step_ratio_up=0.4
)
fp16 = dict(loss_scale=512.0)
