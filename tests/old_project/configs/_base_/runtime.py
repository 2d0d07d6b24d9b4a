checkpoint_config = dict(interval=1, max_keep_ckpts=2)
log_config = dict(interval=2, hooks=[dict(type="TextLoggerHook")])
custom_hooks = [dict(type="Notes", priority="LOWEST")]
dist_params = dict(backend="gloo")
log_level = "INFO"
load_from = None
resume_from = None
workflow = [("train", 1)]
opencv_num_threads = 0
