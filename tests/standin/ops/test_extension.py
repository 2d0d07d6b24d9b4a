"""Every operator has a name; an operator in neither torch nor compiled code refuses calls."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
import torch

from lightning_hooks import standin
from lightning_hooks.standin.ops import extension
from support.standin import needs_lite

pytestmark = needs_lite

PLAIN = "lightning_hooks.standin.ops"


def test_names_of_modules_and_functions_are_those_of_mmcv(ops: Any) -> None:
    from mmcv.ops.nms import batched_nms
    from mmcv.ops.roi_align import RoIAlign

    assert ops.nms is sys.modules["mmcv.ops.nms"].nms  # type: ignore[attr-defined]
    assert (ops.batched_nms, ops.RoIAlign) == (batched_nms, RoIAlign)
    assert ops.get_compiler_version()
    assert ops.get_compiling_cuda_version() == (torch.version.cuda or "not available")
    assert ops.get_onnxruntime_op_path() == ""
    assert {"nms", "Conv2d", "SAConv2d", "upfirdn2d"} <= set(ops.__all__)
    assert "filtered_lrelu" not in ops.__all__, "of mmcv 2.x"


@pytest.mark.parametrize("name", ["softnms", "roi_pool_forward", "ms_deform_attn_forward"])
def test_an_operator_that_the_stand_in_lacks_is_named_when_called(name: str) -> None:
    extension_module = importlib.import_module("mmcv._ext")
    assert extension.load_ext("_ext", [name, "nms"]) is extension_module
    assert extension_module.nms is extension.OFFERED["nms"]
    with pytest.raises(NotImplementedError, match=rf"{name!r}.*onedl-mmcv"):
        getattr(extension_module, name)(torch.zeros(1))


def test_a_layer_without_operator_is_subclassed_and_built_and_refuses_to_run(ops: Any) -> None:
    class Mine(ops.DeformRoIPoolPack):  # type: ignore[misc]
        pass

    layer = Mine((2, 2), 4, deform_fc_channels=8)
    with pytest.raises(NotImplementedError, match=r"'deform_roi_pool_forward'.*onedl-mmcv"):
        layer(torch.zeros(1, 4, 8, 8), torch.tensor([[0.0, 1, 1, 4, 4]]))
    with pytest.raises(NotImplementedError, match=r"'upfirdn2d'.* other arguments"):
        ops.upfirdn2d(torch.zeros(1, 1, 2, 2), torch.ones(1, 1), pad=(1, 0))


def test_layers_of_torch_alone_work(ops: Any) -> None:
    features = torch.randn(1, 8, 5, 5)
    assert torch.equal(ops.CornerPool("top")(features)[0, 0, 0], features[0, 0].max(0).values)
    assert ops.CrissCrossAttention(8)(features).shape == features.shape
    layer = ops.SAConv2d(8, 8, 3, padding=1)
    assert layer(features).shape == features.shape


def test_operators_are_loaded_with_mmcv_ops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith(PLAIN)]:
        monkeypatch.delitem(sys.modules, name)
    standin.uninstall()
    standin.install()
    import mmcv
    import mmcv.runner

    assert mmcv.Config
    assert mmcv.runner.EpochBasedRunner
    assert not any(name.startswith(PLAIN) for name in sys.modules)


def test_compiled_operators_for_another_torch_are_named_and_not_used(
    ops: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str) -> Any:
        raise ImportError("undefined symbol: _ZN3c10")

    monkeypatch.setattr(extension.importlib, "import_module", broken)
    assert extension.load_ext("_ext", ["nms"]).nms is extension.OFFERED["nms"]
    assert "mmcv's compiled operators are not used: undefined symbol: _ZN3c10" in caplog.text


def test_without_the_wheel_a_use_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lightning_hooks.standin.finder.find_installed", lambda _: None)
    standin.uninstall()
    standin.install()
    module = importlib.import_module("mmcv.ops")
    with pytest.raises(NotImplementedError, match="pip install mmcv-lite=="):
        module.nms()
    assert not importlib.import_module("mmcv.utils.ext_loader").check_ops_exist()
