"""The name table: what each module of mmcv 1.x has, and where it comes from.

``TABLE[mmcv's module][our module]`` are names, with ``mmcv's=ours`` where they differ. A package
has what its modules have (``PACKAGES``), as in mmcv.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

from lightning_hooks.standin.borrowed import BORROWED

__all__ = ["PACKAGES", "TABLE", "Source", "names_of"]

OURS = "lightning_hooks"
STANDIN = "lightning_hooks.standin"
_LR = "CosineAnnealing CosineRestart Exp Fixed FlatCosineAnnealing Inv LinearAnnealing Poly Step"
_LOGGERS = "ClearML Dvclive Mlflow Neptune Tensorboard Wandb"
_MOMENTUM = "CosineAnnealing LinearAnnealing Step"


def _each(names: str, ending: str) -> str:
    return " ".join([*(f"{name}{ending}" for name in names.split()), ending])


TABLE: dict[str, dict[str, str]] = {
    "mmcv.version": {
        f"{STANDIN}.versions": "__version__=MMCV_VERSION version_info parse_version_info"
    },
    # -- mmcv.runner ---------------------------------------------------------------------------
    "mmcv.runner.hooks.hook": {OURS: "Hook", f"{STANDIN}.hooks": "HOOKS"},
    "mmcv.runner.hooks.checkpoint": {f"{STANDIN}.checkpoint_hook": "CheckpointHook"},
    "mmcv.runner.hooks.closure": {OURS: "ClosureHook"},
    "mmcv.runner.hooks.ema": {f"{STANDIN}.ema": "EMAHook"},
    "mmcv.runner.hooks.evaluation": {
        f"{STANDIN}.eval_hooks": "EvalHook DistEvalHook",
        "math": "inf",
    },
    "mmcv.runner.hooks.iter_timer": {f"{STANDIN}.iter_timer": "IterTimerHook"},
    "mmcv.runner.hooks.lr_updater": {
        OURS: _each(_LR, "LrUpdaterHook"),
        f"{STANDIN}.phases": "CyclicLrUpdaterHook OneCycleLrUpdaterHook",
        f"{OURS}.schedules.anneal": "annealing_cos annealing_linear",
        "math": "pi",
        f"{STANDIN}.rates": "format_param get_position_from_periods",
    },
    "mmcv.runner.hooks.memory": {OURS: "EmptyCacheHook"},
    "mmcv.runner.hooks.momentum_updater": {
        OURS: _each(_MOMENTUM, "MomentumUpdaterHook"),
        f"{STANDIN}.phases": "CyclicMomentumUpdaterHook OneCycleMomentumUpdaterHook",
    },
    "mmcv.runner.hooks.optimizer": {
        OURS: "OptimizerHook GradientCumulativeOptimizerHook Fp16OptimizerHook "
        "GradientCumulativeFp16OptimizerHook"
    },
    "mmcv.runner.hooks.profiler": {OURS: "ProfilerHook"},
    "mmcv.runner.hooks.sampler_seed": {OURS: "DistSamplerSeedHook"},
    "mmcv.runner.hooks.sync_buffer": {OURS: "SyncBuffersHook"},
    "mmcv.runner.hooks.logger.base": {OURS: "LoggerHook"},
    **{
        f"mmcv.runner.hooks.logger.{name.lower()}": {f"{STANDIN}.trackers": f"{name}LoggerHook"}
        for name in _LOGGERS.split()
    },
    "mmcv.runner.hooks.logger.pavi": {OURS: "PaviLoggerHook"},
    "mmcv.runner.hooks.logger.segmind": {OURS: "SegmindLoggerHook"},
    "mmcv.runner.hooks.logger.text": {f"{STANDIN}.text_logger": "TextLoggerHook"},
    "mmcv.runner.base_module": {
        f"{STANDIN}.base_module": "BaseModule ModuleDict ModuleList Sequential"
    },
    "mmcv.runner.base_runner": {f"{STANDIN}.base_runner": "BaseRunner"},
    "mmcv.runner.builder": {
        f"{STANDIN}.runners": "RUNNERS build_runner",
        f"{STANDIN}.builder": "RUNNER_BUILDERS build_runner_constructor",
    },
    "mmcv.runner.checkpoint": {
        f"{STANDIN}.checkpoints": "CheckpointLoader get_state_dict load_checkpoint load_state_dict "
        "save_checkpoint weights_to_cpu _load_checkpoint _load_checkpoint_with_prefix "
        "load_from_http=_load_http load_from_local=_load_local "
        "load_from_torchvision=_load_torchvision",
        f"{STANDIN}.file_io": "load_file=load",
    },
    "mmcv.runner.default_constructor": {f"{STANDIN}.builder": "DefaultRunnerConstructor"},
    "mmcv.runner.dist_utils": {
        f"{STANDIN}.distributed": "allreduce_grads allreduce_params get_dist_info init_dist "
        "master_only"
    },
    "mmcv.runner.epoch_based_runner": {f"{STANDIN}.runners": "EpochBasedRunner Runner"},
    "mmcv.runner.fp16_utils": {
        f"{STANDIN}.fp16": "LossScaler auto_fp16 cast_tensor_type force_fp32 patch_forward_method "
        "patch_norm_fp32 wrap_fp16_model"
    },
    "mmcv.runner.iter_based_runner": {f"{STANDIN}.runners": "IterBasedRunner IterLoader"},
    "mmcv.runner.log_buffer": {OURS: "LogBuffer"},
    "mmcv.runner.optimizer.builder": {
        f"{STANDIN}.optimizers": "OPTIMIZERS OPTIMIZER_BUILDERS TORCH_OPTIMIZERS build_optimizer "
        "build_optimizer_constructor"
    },
    "mmcv.runner.optimizer.default_constructor": {
        f"{STANDIN}.optimizers": "DefaultOptimizerConstructor"
    },
    "mmcv.runner.priority": {OURS: "Priority get_priority"},
    "mmcv.runner.utils": {
        f"{STANDIN}.seeds": "get_host_info get_time_str obj_from_dict set_random_seed"
    },
    "mmcv.engine.test": {
        f"{OURS}.hooks.inference": "single_gpu_test multi_gpu_test",
        f"{STANDIN}.collecting": "collect_results_cpu collect_results_gpu",
    },
    # -- mmcv.utils ----------------------------------------------------------------------------
    "mmcv.utils.config": {
        f"{STANDIN}.config": "Config ConfigDict DictAction BASE_KEY DELETE_KEY "
        "DEPRECATION_KEY RESERVED_KEYS"
    },
    "mmcv.utils.device_type": {
        f"{STANDIN}.environment": "IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE "
        "IS_NPU_AVAILABLE is_ipu_available is_mlu_available is_mps_available is_npu_available"
    },
    "mmcv.utils.ext_loader": {f"{STANDIN}.environment": "check_ops_exist"},
    "mmcv.utils.env": {f"{STANDIN}.environment": "collect_env"},
    "mmcv.utils.hub": {"torch.hub": "load_url=load_state_dict_from_url"},
    "mmcv.utils.logging": {f"{STANDIN}.loggers": "get_logger logger_initialized print_log"},
    "mmcv.utils.misc": {
        f"{STANDIN}.checks": "check_prerequisites concat_list deprecated_api_warning has_method "
        "import_modules_from_strings is_list_of is_method_overridden is_seq_of is_str is_tuple_of "
        "iter_cast list_cast requires_executable requires_package slice_list to_1tuple to_2tuple "
        "to_3tuple to_4tuple to_ntuple tuple_cast"
    },
    "mmcv.utils.parrots_jit": {f"{STANDIN}.environment": "jit skip_no_elena"},
    "mmcv.utils.parrots_wrapper": {
        f"{STANDIN}.environment": "IS_CUDA_AVAILABLE TORCH_VERSION _get_dataloader "
        "get_build_config is_cuda_available is_rocm_pytorch",
        "torch.nn": "SyncBatchNorm",
        "torch.nn.modules.batchnorm": "_BatchNorm",
        "torch.nn.modules.conv": "_ConvNd _ConvTransposeMixin=_ConvTransposeNd",
        "torch.nn.modules.instancenorm": "_InstanceNorm",
        "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd",
        "torch.utils.cpp_extension": "BuildExtension CppExtension CUDAExtension "
        "_get_cuda_home=_find_cuda_home",
        "torch.utils.data": "DataLoader PoolDataLoader=DataLoader",
    },
    "mmcv.utils.path": {
        f"{STANDIN}.paths": "check_file_exist find_vcs_root fopen is_filepath mkdir_or_exist "
        "scandir symlink"
    },
    "mmcv.utils.progressbar": {
        f"{STANDIN}.progress": "ProgressBar init_pool track_iter_progress track_parallel_progress "
        "track_progress"
    },
    "mmcv.utils.registry": {f"{STANDIN}.registry": "Registry build_from_cfg"},
    "mmcv.utils.seed": {f"{STANDIN}.seeds": "worker_init_fn"},
    "mmcv.utils.testing": {
        f"{STANDIN}.assertions": "assert_attrs_equal assert_dict_contains_subset "
        "assert_dict_has_keys assert_is_norm_layer assert_keys_equal assert_params_all_zeros "
        "check_python_script"
    },
    "mmcv.utils.timer": {f"{STANDIN}.timer": "Timer TimerError check_time"},
    "mmcv.utils.torch_ops": {f"{STANDIN}.environment": "torch_meshgrid"},
    "mmcv.utils.trace": {f"{STANDIN}.environment": "is_jit_tracing"},
    "mmcv.utils.version_utils": {f"{STANDIN}.versions": "digit_version get_git_hash"},
    # -- mmcv.parallel, mmcv.fileio ------------------------------------------------------------
    "mmcv.parallel.collate": {f"{STANDIN}.containers": "collate"},
    "mmcv.parallel._functions": {f"{STANDIN}.containers": "Scatter get_input_device"},
    "mmcv.parallel.data_container": {f"{STANDIN}.containers": "DataContainer assert_tensor_type"},
    "mmcv.parallel.data_parallel": {f"{STANDIN}.parallel": "MMDataParallel"},
    "mmcv.parallel.distributed": {f"{STANDIN}.parallel": "MMDistributedDataParallel"},
    "mmcv.parallel.distributed_deprecated": {f"{STANDIN}.parallel": "MMDistributedDataParallel"},
    "mmcv.parallel.registry": {f"{STANDIN}.parallel": "MODULE_WRAPPERS"},
    "mmcv.parallel.scatter_gather": {f"{STANDIN}.containers": "scatter scatter_kwargs"},
    "mmcv.parallel.utils": {f"{STANDIN}.parallel": "is_module_wrapper"},
    "mmcv.fileio.file_client": {
        f"{STANDIN}.file_client": "BaseStorageBackend FileClient HTTPBackend=FsspecBackend "
        "HardDiskBackend"
    },
    "mmcv.fileio.handlers.base": {f"{STANDIN}.file_io": "BaseFileHandler"},
    "mmcv.fileio.handlers.json_handler": {f"{STANDIN}.file_io": "JsonHandler set_default"},
    "mmcv.fileio.handlers.pickle_handler": {f"{STANDIN}.file_io": "PickleHandler"},
    "mmcv.fileio.handlers.yaml_handler": {f"{STANDIN}.file_io": "YamlHandler"},
    "mmcv.fileio.io": {f"{STANDIN}.file_io": "dump file_handlers load register_handler"},
    "mmcv.fileio.parse": {f"{STANDIN}.file_io": "dict_from_file list_from_file"},
    # -- mmcv.cnn, mmcv.image ------------------------------------------------------------------
    "mmcv.cnn.builder": {f"{STANDIN}.layers": "MODELS build_model_from_cfg"},
    "mmcv.cnn.bricks.activation": {
        f"{STANDIN}.layers": "Clamp build_activation_layer",
        "torch.nn": "GELU",
    },
    "mmcv.cnn.bricks.conv": {f"{STANDIN}.bricks": "build_conv_layer"},
    "mmcv.cnn.bricks.conv2d_adaptive_padding": {f"{STANDIN}.bricks": "Conv2dAdaptivePadding"},
    "mmcv.cnn.bricks.conv_ws": {f"{STANDIN}.bricks": "ConvWS2d conv_ws_2d"},
    "mmcv.cnn.bricks.depthwise_separable_conv_module": {
        f"{STANDIN}.bricks": "DepthwiseSeparableConvModule"
    },
    "mmcv.cnn.bricks.conv_module": {f"{STANDIN}.bricks": "ConvModule"},
    "mmcv.cnn.bricks.drop": {f"{STANDIN}.layers": "DropPath Dropout build_dropout drop_path"},
    "mmcv.cnn.bricks.hsigmoid": {f"{STANDIN}.layers": "HSigmoid"},
    "mmcv.cnn.bricks.hswish": {f"{STANDIN}.layers": "HSwish"},
    "mmcv.cnn.bricks.norm": {f"{STANDIN}.layers": "build_norm_layer is_norm infer_abbr"},
    "mmcv.cnn.bricks.padding": {f"{STANDIN}.layers": "build_padding_layer"},
    "mmcv.cnn.bricks.plugin": {f"{STANDIN}.bricks": "build_plugin_layer"},
    "mmcv.cnn.bricks.registry": {
        f"{STANDIN}.layers": "ACTIVATION_LAYERS ATTENTION DROPOUT_LAYERS FEEDFORWARD_NETWORK "
        "NORM_LAYERS PADDING_LAYERS POSITIONAL_ENCODING TRANSFORMER_LAYER "
        "TRANSFORMER_LAYER_SEQUENCE",
        f"{STANDIN}.bricks": "CONV_LAYERS PLUGIN_LAYERS UPSAMPLE_LAYERS",
    },
    "mmcv.cnn.bricks.scale": {f"{STANDIN}.layers": "Scale"},
    "mmcv.cnn.bricks.swish": {f"{STANDIN}.layers": "Swish"},
    "mmcv.cnn.bricks.upsample": {f"{STANDIN}.bricks": "PixelShufflePack build_upsample_layer"},
    "mmcv.cnn.bricks.wrappers": {
        f"{STANDIN}.empty_tensors": "NewEmptyTensorOp obsolete_torch_version",
        "torch.nn": "Conv2d Conv3d ConvTranspose2d ConvTranspose3d Linear MaxPool2d MaxPool3d",
    },
    "mmcv.cnn.utils.fuse_conv_bn": {f"{STANDIN}.bricks": "fuse_conv_bn"},
    "mmcv.cnn.utils.sync_bn": {f"{STANDIN}.bricks": "revert_sync_batchnorm"},
    "mmcv.cnn.vgg": {f"{STANDIN}.networks": "VGG"},
    "mmcv.cnn.utils.weight_init": {
        f"{STANDIN}.initializers": "BaseInit INITIALIZERS Caffe2XavierInit ConstantInit "
        "KaimingInit NormalInit PretrainedInit TruncNormalInit UniformInit XavierInit "
        "bias_init_with_prob caffe2_xavier_init constant_init initialize kaiming_init normal_init "
        "trunc_normal_init uniform_init xavier_init trunc_normal_",
    },
    "mmcv.image.colorspace": {
        f"{STANDIN}.images": "bgr2gray bgr2hls bgr2hsv bgr2rgb gray2bgr gray2rgb hls2bgr hsv2bgr "
        "imconvert rgb2bgr rgb2gray"
    },
    "mmcv.image.geometric": {
        f"{STANDIN}.image_shapes": "bbox_clip bbox_scaling imcrop imflip imflip_ impad "
        "impad_to_multiple imrescale imresize imresize_like imresize_to_multiple imrotate "
        "rescale_size"
    },
    "mmcv.image.io": {
        f"{STANDIN}.image_files": "imfrombytes imread imwrite supported_backends use_backend"
    },
    "mmcv.image.misc": {f"{STANDIN}.images": "tensor2imgs"},
    "mmcv.image.photometric": {
        f"{STANDIN}.images": "imdenormalize iminvert imnormalize imnormalize_ lut_transform"
    },
    # -- mmcv.arraymisc, mmcv.device -------------------------------------------------------------
    "mmcv.arraymisc.quantization": {f"{STANDIN}.arrays": "dequantize quantize"},
    "mmcv.device.utils": {f"{STANDIN}.environment": "get_device"},
}

PACKAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TABLE, ()),
    "mmcv.runner.hooks.logger": ("mmcv.runner.hooks.logger.*",),
    "mmcv.runner.hooks": ("mmcv.runner.hooks.*",),
    "mmcv.runner.optimizer": ("mmcv.runner.optimizer.*",),
    "mmcv.runner": ("mmcv.runner.*",),
    "mmcv.engine": ("mmcv.engine.*",),
    "mmcv.utils": ("mmcv.utils.*",),
    "mmcv.parallel": ("mmcv.parallel.*",),
    "mmcv.fileio.handlers": ("mmcv.fileio.handlers.*",),
    "mmcv.fileio": ("mmcv.fileio.*",),
    "mmcv.cnn.bricks": ("mmcv.cnn.bricks.*",),
    "mmcv.cnn.utils": ("mmcv.cnn.utils.*",),
    "mmcv.cnn": ("mmcv.cnn.*",),
    "mmcv.image": ("mmcv.image.*",),
    "mmcv.arraymisc": ("mmcv.arraymisc.*",),
    "mmcv.device": ("mmcv.device.*",),
    "mmcv": ("mmcv.utils.*", "mmcv.fileio.*", "mmcv.image.*", "mmcv.arraymisc.*", "mmcv.version"),
}
"""Every module, with those whose names it has too; ``.*`` is all that is below."""


class Source(NamedTuple):
    """Where a name comes from."""

    module: str
    name: str
    is_public: bool

    def load(self) -> Any:
        """Return what has the name."""
        found = importlib.import_module(self.module)
        return getattr(found, self.name)


@functools.cache
def names_of(module: str) -> dict[str, Source]:
    """Return the names of a module with their sources."""
    found: dict[str, Source] = {}
    for pattern in PACKAGES.get(module, ()):
        root = pattern.removesuffix(".*")
        for below in TABLE:
            if below == root or (pattern.endswith("*") and below.startswith(f"{root}.")):
                found.update(_own_names(below))
    found.update(_own_names(module))
    for name in BORROWED.get(module, "").split():
        found.setdefault(name, _homes()[name]._replace(is_public=False))
    return found


@functools.cache
def _homes() -> dict[str, Source]:
    """Where each name is at home."""
    return {name: source for module in TABLE for name, source in _own_names(module).items()}


def _own_names(module: str) -> dict[str, Source]:
    found = {}
    for source, names in TABLE.get(module, {}).items():
        for entry in names.split():
            theirs, _, ours = entry.partition("=")
            where = source
            if source == OURS and not hasattr(importlib.import_module(OURS), ours or theirs):
                where = f"{STANDIN}.missing"
            private = theirs.startswith("_") and not theirs.startswith("__")
            found[theirs] = Source(where, ours or theirs, not private or theirs in _STARRED)
    return found


_STARRED = ("_load_checkpoint", "_load_checkpoint_with_prefix", "_BatchNorm", "_InstanceNorm")
