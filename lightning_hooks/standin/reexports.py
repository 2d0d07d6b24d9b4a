"""Table of the names that modules of mmcv 1.x import from other modules.

Old code imports them from there: ``from mmcv.runner.hooks.ema import HOOKS, Hook`` works, as
``ema.py`` imports both.
"""

from __future__ import annotations

__all__ = ["BORROWED"]

BORROWED: dict[str, str] = {
    "mmcv.cnn.bricks.activation": "ACTIVATION_LAYERS TORCH_VERSION build_from_cfg digit_version",
    "mmcv.cnn.bricks.conv": "CONV_LAYERS",
    "mmcv.cnn.bricks.conv2d_adaptive_padding": "CONV_LAYERS",
    "mmcv.cnn.bricks.conv_module": (
        "PLUGIN_LAYERS build_activation_layer build_conv_layer build_norm_layer "
        "build_padding_layer constant_init kaiming_init"
    ),
    "mmcv.cnn.bricks.conv_ws": "CONV_LAYERS",
    "mmcv.cnn.bricks.depthwise_separable_conv_module": "ConvModule",
    "mmcv.cnn.bricks.drop": "DROPOUT_LAYERS build_from_cfg",
    "mmcv.cnn.bricks.hsigmoid": "ACTIVATION_LAYERS",
    "mmcv.cnn.bricks.hswish": "ACTIVATION_LAYERS TORCH_VERSION digit_version",
    "mmcv.cnn.bricks.norm": "NORM_LAYERS SyncBatchNorm is_tuple_of",
    "mmcv.cnn.bricks.padding": "PADDING_LAYERS",
    "mmcv.cnn.bricks.plugin": "PLUGIN_LAYERS infer_abbr",
    "mmcv.cnn.bricks.registry": "Registry",
    "mmcv.cnn.bricks.swish": "ACTIVATION_LAYERS",
    "mmcv.cnn.bricks.transformer": (
        "ATTENTION BaseModule ConfigDict FEEDFORWARD_NETWORK Linear ModuleList "
        "MultiScaleDeformableAttention POSITIONAL_ENCODING Sequential TRANSFORMER_LAYER "
        "TRANSFORMER_LAYER_SEQUENCE build_activation_layer build_conv_layer build_dropout "
        "build_from_cfg build_norm_layer deprecated_api_warning to_2tuple"
    ),
    "mmcv.cnn.bricks.upsample": "UPSAMPLE_LAYERS xavier_init",
    "mmcv.cnn.bricks.wrappers": "CONV_LAYERS TORCH_VERSION UPSAMPLE_LAYERS",
    "mmcv.cnn.builder": "Registry Sequential build_from_cfg",
    "mmcv.cnn.utils.weight_init": "Registry build_from_cfg get_logger print_log",
    "mmcv.cnn.vgg": "constant_init kaiming_init normal_init",
    "mmcv.device": "scatter scatter_kwargs",
    "mmcv.device.utils": "IS_CUDA_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE IS_NPU_AVAILABLE",
    "mmcv.engine.test": "get_dist_info",
    "mmcv.fileio.file_client": "has_method is_filepath",
    "mmcv.fileio.handlers.json_handler": "BaseFileHandler",
    "mmcv.fileio.handlers.pickle_handler": "BaseFileHandler",
    "mmcv.fileio.handlers.yaml_handler": "BaseFileHandler",
    "mmcv.fileio.io": (
        "BaseFileHandler FileClient JsonHandler PickleHandler YamlHandler is_list_of"
    ),
    "mmcv.fileio.parse": "FileClient",
    "mmcv.image.geometric": "to_2tuple",
    "mmcv.image.io": "FileClient is_filepath is_str",
    "mmcv.image.photometric": "bgr2gray gray2bgr is_tuple_of",
    "mmcv.parallel.collate": "DataContainer",
    "mmcv.parallel.data_parallel": "scatter_kwargs",
    "mmcv.parallel.distributed": "TORCH_VERSION digit_version print_log scatter_kwargs",
    "mmcv.parallel.distributed_deprecated": (
        "MODULE_WRAPPERS TORCH_VERSION digit_version scatter_kwargs"
    ),
    "mmcv.parallel.registry": "Registry",
    "mmcv.parallel.scatter_gather": "DataContainer Scatter",
    "mmcv.parallel.utils": "MODULE_WRAPPERS",
    "mmcv.runner.base_module": "get_logger logger_initialized master_only print_log",
    "mmcv.runner.base_runner": (
        "HOOKS Hook LogBuffer Priority get_dist_info get_priority get_time_str "
        "is_module_wrapper load_checkpoint"
    ),
    "mmcv.runner.builder": "Registry",
    "mmcv.runner.checkpoint": (
        "FileClient digit_version get_dist_info is_module_wrapper mkdir_or_exist"
    ),
    "mmcv.runner.default_constructor": "RUNNERS RUNNER_BUILDERS",
    "mmcv.runner.dist_utils": "IS_MLU_AVAILABLE IS_NPU_AVAILABLE",
    "mmcv.runner.epoch_based_runner": "BaseRunner RUNNERS get_host_info save_checkpoint",
    "mmcv.runner.fp16_utils": "IS_NPU_AVAILABLE TORCH_VERSION allreduce_grads digit_version",
    "mmcv.runner.hooks.checkpoint": "FileClient HOOKS Hook allreduce_params master_only",
    "mmcv.runner.hooks.closure": "HOOKS Hook",
    "mmcv.runner.hooks.ema": "HOOKS Hook is_module_wrapper",
    "mmcv.runner.hooks.evaluation": "FileClient Hook LoggerHook is_seq_of",
    "mmcv.runner.hooks.hook": "Registry is_method_overridden",
    "mmcv.runner.hooks.iter_timer": "HOOKS Hook",
    "mmcv.runner.hooks.logger.base": "Hook",
    "mmcv.runner.hooks.logger.clearml": "HOOKS LoggerHook master_only",
    "mmcv.runner.hooks.logger.dvclive": "HOOKS LoggerHook master_only",
    "mmcv.runner.hooks.logger.mlflow": "HOOKS LoggerHook TORCH_VERSION master_only",
    "mmcv.runner.hooks.logger.neptune": "HOOKS LoggerHook master_only",
    "mmcv.runner.hooks.logger.pavi": "HOOKS LoggerHook is_module_wrapper master_only scatter",
    "mmcv.runner.hooks.logger.segmind": "HOOKS LoggerHook master_only",
    "mmcv.runner.hooks.logger.tensorboard": (
        "HOOKS LoggerHook TORCH_VERSION digit_version master_only"
    ),
    "mmcv.runner.hooks.logger.text": "FileClient HOOKS LoggerHook is_tuple_of scandir",
    "mmcv.runner.hooks.logger.wandb": "HOOKS LoggerHook master_only scandir",
    "mmcv.runner.hooks.lr_updater": "HOOKS Hook",
    "mmcv.runner.hooks.memory": "HOOKS Hook",
    "mmcv.runner.hooks.momentum_updater": (
        "HOOKS Hook annealing_cos annealing_linear format_param"
    ),
    "mmcv.runner.hooks.optimizer": (
        "HOOKS Hook IS_NPU_AVAILABLE LossScaler TORCH_VERSION allreduce_grads digit_version "
        "wrap_fp16_model"
    ),
    "mmcv.runner.hooks.profiler": "HOOKS Hook master_only",
    "mmcv.runner.hooks.sampler_seed": "HOOKS Hook",
    "mmcv.runner.hooks.sync_buffer": "HOOKS Hook allreduce_params",
    "mmcv.runner.iter_based_runner": (
        "BaseRunner IterTimerHook RUNNERS get_host_info save_checkpoint"
    ),
    "mmcv.runner.optimizer.builder": "IS_NPU_AVAILABLE Registry build_from_cfg",
    "mmcv.runner.optimizer.default_constructor": (
        "OPTIMIZERS OPTIMIZER_BUILDERS build_from_cfg check_ops_exist is_list_of"
    ),
    "mmcv.utils.config": "check_file_exist digit_version import_modules_from_strings",
    "mmcv.utils.env": "get_build_config",
    "mmcv.utils.hub": "TORCH_VERSION digit_version mkdir_or_exist",
    "mmcv.utils.parrots_jit": "TORCH_VERSION",
    "mmcv.utils.path": "is_str",
    "mmcv.utils.progressbar": "Timer",
    "mmcv.utils.registry": "deprecated_api_warning is_seq_of",
    "mmcv.utils.torch_ops": "TORCH_VERSION digit_version",
    "mmcv.utils.trace": "digit_version",
}
"""Names by the module that imports them."""
