"""All operators have a name; those that neither torch nor a compiler has refuse when called."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import gradcheck

from lightning_hooks import standin
from lightning_hooks.standin.lite.operators import OPERATORS
from lightning_hooks.standin.ops import extension
from support.paths import ROOT
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


def refuses(name: str) -> bool:
    """Return whether the file of an operator calls one that is not there."""
    homes = [module for module, names in OPERATORS.items() if name in names.split()]
    found = vars(sys.modules[f"mmcv.ops.{homes[0]}"]).values() if homes else ()
    kernels = [vars(one).values() for one in found if isinstance(one, types.SimpleNamespace)]
    return any(getattr(one, "func", None) is extension.refuse for some in kernels for one in some)


def test_the_table_lists_the_operators_that_run(ops: Any) -> None:
    text = (ROOT / "docs" / "standin.md").read_text(encoding="utf-8")
    table = text[text.index("| operators |") : text.index("All others can be imported")]
    listed = set(re.findall(r"`(\w+)`", table))
    runs = {
        name
        for name in ops.__all__
        # sparse convolutions, PointsSampler and scatter_nd call other files'; upfirdn2d is ours
        if not name.startswith(("Sparse", "SubM")) and (name == "upfirdn2d" or not refuses(name))
    }
    assert listed == runs - {"PointsSampler", "scatter_nd", "IS_MLU_AVAILABLE"}


def test_an_operator_that_is_missing_can_be_built_and_refuses_when_it_runs(ops: Any) -> None:
    class Mine(ops.DeformRoIPoolPack):  # type: ignore[misc]
        pass

    layer = Mine((2, 2), 4, deform_fc_channels=8)
    with pytest.raises(NotImplementedError, match=r"'deform_roi_pool_forward'.*onedl-mmcv"):
        layer(torch.zeros(1, 4, 8, 8), torch.tensor([[0.0, 1, 1, 4, 4]]))
    with pytest.raises(NotImplementedError, match="'three_nn_forward'"):
        ops.three_nn(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))


def test_upfirdn2d_has_the_arguments_of_mmcv_1(ops: Any) -> None:
    image = torch.arange(12.0).view(1, 1, 3, 4)
    kernel = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    spread = torch.zeros(6, 8)
    spread[::2, ::2] = image[0, 0]
    padded = torch.zeros(6 + 3, 8 + 1)
    padded[1:7, 1:9] = spread
    expected = torch.zeros(8, 8)
    for row in range(8):
        for column in range(8):  # the filter is turned over: a convolution, no correlation
            window = padded[row : row + 2, column : column + 2]
            expected[row, column] = (window * kernel.flip(0, 1)).sum()
    result = ops.upfirdn2d(image, kernel, up=2, down=(1, 3), pad=(1, 0, 1, 2))
    assert torch.equal(result[0, 0], expected[::3])
    cropped = ops.upfirdn2d(image, torch.ones(1, 1), pad=(-1, 0))
    assert torch.equal(cropped, image[:, :, 1:, 1:])


def test_the_fused_activation_is_that_of_its_parts(ops: Any) -> None:
    # mmcv calls the operator on a GPU only
    module = sys.modules["mmcv.ops.fused_bias_leakyrelu"]
    function: Any = module.FusedBiasLeakyReLUFunction  # type: ignore[attr-defined]
    image = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.leaky_relu(image + bias.view(1, 3, 1, 1), 0.2) * 1.5
    torch.testing.assert_close(function.apply(image, bias, 0.2, 1.5), expected)
    assert gradcheck(lambda *given: function.apply(*given, 0.2, 1.5), (image, bias))


def test_layers_of_torch_alone_work(ops: Any) -> None:
    features = torch.randn(1, 8, 5, 5)
    assert torch.equal(ops.CornerPool("top")(features)[0, 0, 0], features[0, 0].max(0).values)
    assert ops.CrissCrossAttention(8)(features).shape == features.shape
    layer = ops.SAConv2d(8, 8, 3, padding=1)
    assert layer(features).shape == features.shape


def test_sync_bn_of_one_process_normalizes_as_batch_norm(ops: Any, tmp_path: Path) -> None:
    from mmcv.cnn import build_norm_layer
    from mmcv.cnn.utils import revert_sync_batchnorm

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        layer = build_norm_layer({"type": "MMSyncBN"}, 3)[1]
        plain = torch.nn.BatchNorm2d(3)
        plain.load_state_dict(layer.state_dict())
        inputs = [torch.randn(2, 3, 4, 4).requires_grad_() for _ in range(2)]
        inputs[1].data.copy_(inputs[0].data)
        outputs = [one(given) for one, given in zip((layer, plain), inputs, strict=True)]
        torch.testing.assert_close(*outputs)
        for output in outputs:
            (output * torch.arange(96.0).view_as(output)).sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)
        for name in ("weight", "bias"):
            grads = [getattr(one, name).grad for one in (layer, plain)]
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(layer.state_dict(), plain.state_dict())
        reverted = revert_sync_batchnorm(torch.nn.Sequential(layer)).eval()
        assert "SyncBatchNorm" not in str(reverted)
        torch.testing.assert_close(reverted(inputs[0]), plain.eval()(inputs[0]))
    finally:
        dist.destroy_process_group()


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
    with pytest.raises(NotImplementedError, match=r"lightning-hooks\[openmmlab"):
        module.nms()
    assert not importlib.import_module("mmcv.utils.ext_loader").check_ops_exist()
