import json
import torch, torch.nn as nn, torch.nn.functional as F
from mmcv.utils import Registry, build_from_cfg
from mmcv.cnn import build_norm_layer, build_conv_layer, ConvModule, MODELS as MMCV_MODELS
from mmcv.runner import (
    BaseModule,
    EpochBasedRunner,
    RUNNERS,
    auto_fp16,
    force_fp32,
    load_checkpoint,
    save_checkpoint,
    weights_to_cpu,
    get_dist_info,
    DefaultOptimizerConstructor,
    OPTIMIZER_BUILDERS,
    OPTIMIZERS,
)
from mmcv.runner.checkpoint import get_state_dict
from torch.utils.data import TensorDataset

MODELS = Registry("models", parent=MMCV_MODELS)
HEADS = MODELS


def build_model(cfg):
    return MODELS.build(cfg)


@MODELS.register_module()
class Head(BaseModule):
    def __init__(
        self, classes, drop=0.0, channels=6, init_cfg=dict(type="Normal", layer="Linear", std=0.05)
    ):
        super().__init__(init_cfg)
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(channels, classes)

    @force_fp32(apply_to=("x",))
    def forward(self, x):
        return self.fc(self.drop(x))

    def loss(self, s, y):
        return dict(loss_cls=F.cross_entropy(s, y), acc0=(s.argmax(1) == y).float().mean())


@MODELS.register_module()
class Net(BaseModule):
    CLASSES = tuple("abcd")

    def __init__(self, width, head, init_cfg=None):
        super().__init__(init_cfg)
        self.conv = ConvModule(
            1,
            width,
            3,
            norm_cfg=dict(type="BN"),
            act_cfg=dict(type="LeakyReLU", negative_slope=0.1),
        )
        self.norm_name, norm = build_norm_layer(dict(type="GN", num_groups=2), width, postfix=2)
        self.add_module(self.norm_name, norm)
        head = dict(head)
        head["channels"] = width
        self.head = MODELS.build(head)
        self.fp16_enabled = False
        self.distill = None

    @auto_fp16(apply_to=("img",))
    def forward(self, img, label=None, return_loss=True):
        self.current = (img, label)
        f = getattr(self, self.norm_name)(self.conv(img)).mean((2, 3))
        s = self.head(f)
        if not return_loss:
            return list(s.softmax(1))
        l = self.head.loss(s, label)
        if self.distill is not None:
            t, w = self.distill
            with torch.no_grad():
                p = torch.stack(t(img=img, return_loss=False))
            l["loss_kd"] = w * F.kl_div(s.log_softmax(1), p, reduction="batchmean")
        return l

    def _parse(self, losses):
        log = {k: v.mean() for k, v in losses.items()}
        loss = sum(v for k, v in log.items() if "loss" in k)
        log["loss"] = loss
        return loss, {k: v.item() for k, v in log.items()}

    def train_step(self, data, optimizer):
        loss, log = self._parse(self(data[0], data[1]))
        return dict(loss=loss, log_vars=log, num_samples=len(data[0]))

    val_step = lambda self, data, optimizer=None: self.train_step(data, optimizer)


class Data(TensorDataset):
    CLASSES = tuple("abcd")

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        x = torch.rand(n, 1, 6, 6, generator=g)
        super().__init__(x, (x.mean((1, 2, 3)) * 400).long() % 4)

    def evaluate(self, results, logger=None, **kw):
        s = torch.stack(list(results))
        y = self.tensors[1]
        return dict(acc=(s.argmax(1) == y).float().mean().item(), ce=F.nll_loss(s.log(), y).item())


@RUNNERS.register_module()
class MyRunner(EpochBasedRunner):
    def run_iter(self, data_batch, train_mode, **kwargs):
        super().run_iter(data_batch, train_mode, **kwargs)
        self.seen = getattr(self, "seen", 0) + 1
        if train_mode:
            self.outputs["loss"] = self.outputs["loss"] * 1.5

    def save_checkpoint(
        self,
        out_dir,
        filename_tmpl="epoch_{}.pth",
        save_optimizer=True,
        meta=None,
        create_symlink=True,
    ):
        import os.path as osp, mmcv

        meta = (
            dict(epoch=self.epoch + 1, iter=self.iter)
            if meta is None
            else dict(meta, epoch=self.epoch + 1, iter=self.iter)
        )
        name = filename_tmpl.format(self.epoch + 1)
        save_checkpoint(
            self.model,
            osp.join(out_dir, name),
            optimizer=self.optimizer if save_optimizer else None,
            meta=meta,
        )
        torch.save(dict(seen=self.seen), osp.join(out_dir, "amp_" + name))
        if create_symlink:
            mmcv.symlink(name, osp.join(out_dir, "latest.pth"))

    def resume(self, checkpoint, resume_optimizer=True, map_location="default"):
        if map_location == "default":
            map_location = "cpu"
        ck = self.load_checkpoint(checkpoint, map_location=map_location)
        self._epoch = ck["meta"]["epoch"]
        self._iter = ck["meta"]["iter"]
        if "optimizer" in ck and resume_optimizer:
            self.optimizer.load_state_dict(ck["optimizer"])
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)


@OPTIMIZER_BUILDERS.register_module()
class LayerDecay(DefaultOptimizerConstructor):
    def add_params(self, params, module, prefix="", is_dcn_module=None):
        groups = {}
        n, d = self.paramwise_cfg.get("num_layers"), self.paramwise_cfg.get("decay")
        for name, p in module.named_parameters():
            if not p.requires_grad:
                continue
            nodecay = p.ndim == 1
            lid = 0 if name.startswith("conv") else 1
            key = f"layer_{lid}_{nodecay}"
            if key not in groups:
                groups[key] = dict(
                    weight_decay=0.0 if nodecay else self.base_wd,
                    params=[],
                    param_names=[],
                    lr_scale=d ** (n - lid - 1),
                    group_name=key,
                    lr=self.base_lr * d ** (n - lid - 1),
                )
            groups[key]["params"].append(p)
            groups[key]["param_names"].append(name)
        params.extend(groups.values())
