_base_ = "./base.py"
custom_hooks = [
    dict(type="FreezeUntil", names=("conv",), epochs=2),
    dict(type="EarlyStop", patience=0, priority="VERY_LOW"),
    dict(type="NoBiasDecay"),
    dict(type="SwapData", at=2),
    dict(type="Notes", priority="LOWEST"),
]
evaluation = dict(interval=1, save_best="auto", rule="greater")
lr_config = dict(_delete_=True, policy="Plateau", by_epoch=True)
runner = dict(max_epochs=6)
