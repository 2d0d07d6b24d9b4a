"""List what mmcv 1.x has and the stand-in does not offer, with alternatives."""

from __future__ import annotations

from lightning_hooks.standin.lite.names import LITE, NEEDS_LITE
from lightning_hooks.standin.name_table import PACKAGES
from lightning_hooks.standin.names import names_of
from lightning_hooks.utils.suggestions import suggest

__all__ = ["NOT_OFFERED", "advice_for", "hint_for", "refusal"]

_REFUSED = (
    (
        "mmcv._ext",
        "mmcv's compiled operators are not installed: mmcv.ops has those of the stand-in. Take "
        "an mmcv 2.x with its operators (`pip install onedl-mmcv`, its maintained fork)",
    ),
    ("mmcv.onnx", "mmcv's ONNX tools are not offered by the stand-in: take torch.onnx"),
    (
        "mmcv.tensorrt",
        "mmcv's TensorRT tools are not offered by the stand-in: take torch-tensorrt",
    ),
    (
        "mmcv.device.ipu mmcv.device.mlu mmcv.device.mps mmcv.device.npu mmcv.device._functions "
        "mmcv.device.scatter_gather mmcv.runner.ipu",
        "mmcv's other devices are not offered by the stand-in: Lightning has its own. "
        'Give the runner trainer_kwargs=dict(accelerator="mps"), or take mmcv.parallel',
    ),
    (
        "mmcv.utils.config.add_args",
        "mmcv's making of a command line from a config is not offered by the stand-in: take "
        "DictAction (--cfg-options key=value) and Config.merge_from_dict",
    ),
    (
        "mmcv.transforms",
        "mmcv.transforms is part of mmcv 2.x: take that (`pip install mmcv-lite`, if its "
        "compiled operators are not needed)",
    ),
    (
        "mmcv.model_zoo mmcv.runner.checkpoint.get_deprecated_model_names "
        "mmcv.runner.checkpoint.get_external_models mmcv.runner.checkpoint.get_mmcls_models "
        "mmcv.runner.checkpoint.get_torchvision_models mmcv.runner.checkpoint.load_from_mmcls "
        "mmcv.runner.checkpoint.load_from_openmmlab",
        "the stand-in does not resolve names of OpenMMLab's model zoo: give load_checkpoint a "
        "path, an https:// or an s3:// address",
    ),
)
NOT_OFFERED = {name: advice for names, advice in _REFUSED for name in names.split()}
"""The names that are not offered, with advice for code that imports them."""

_BY_LAST = {name.rpartition(".")[2]: name for name in NOT_OFFERED}


def advice_for(full: str) -> str | None:
    """Return the advice for a name that is not offered; None for any other."""
    for refused, advice in NOT_OFFERED.items():
        if full == refused or full.startswith(f"{refused}."):
            return advice
    if full.rpartition(".")[0] in LITE:
        return NEEDS_LITE
    # another path of the same name: mmcv.image.clahe is mmcv.clahe
    return NOT_OFFERED.get(_BY_LAST.get(full.rpartition(".")[2], ""))


def refusal(full: str) -> str:
    """Return the error message for a use of a name that is in mmcv 1.7.2 and not offered."""
    advice = advice_for(full) or (
        "this is not offered by the stand-in of lightning_hooks: copy it from mmcv 1.7.2 into your "
        "project, or install mmcv itself"
    )
    return f"{full}: {advice}."


def hint_for(module: str, name: str) -> str:
    """Return the error message for a name that mmcv 1.7.2 lacks, with similar names and advice."""
    full = f"{module}.{name}" if module else name
    advice = advice_for(full)
    if advice is not None:
        return f"{full}: {advice}."
    submodules = {p.rpartition(".")[2] for p in PACKAGES if p.rpartition(".")[0] == module}
    names = {*names_of(module), *submodules}
    hint = suggest(name, names, f"dir({module})")
    return (
        f"{module} has no {name!r} in the stand-in of lightning_hooks: {hint}. "
        "For what it does not offer, copy that function into your project, or install mmcv itself"
    )
