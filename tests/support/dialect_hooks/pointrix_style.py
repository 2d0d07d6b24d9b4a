"""Hooks in the style of a pointrix user; only the import names another package."""

from __future__ import annotations

import torch

from lightning_hooks.dialects.pointrix import HOOK_REGISTRY, Hook, Writer


@HOOK_REGISTRY.register()
class Trace(Hook):
    """Records calls."""

    def __init__(self):
        self.calls = []


def _noting(point):
    def method(self, trainner, *more):
        self.calls.append((point, trainner.global_step))

    method.__name__ = point
    return method


for _point in Trace.locations:
    setattr(Trace, _point, _noting(_point))


@HOOK_REGISTRY.register()
class GroupLog(Hook):
    """Reads groups by name, an attribute of the model and the losses."""

    def __init__(self):
        self.rows = []

    def before_run(self, trainner):
        trainner.writer.write_config("job", {"lr": 0.1})

    def after_train_iter(self, trainner):
        for i in range(len(trainner.optimizer.param_groups)):
            name = trainner.optimizer.param_groups[i]["name"]
            lr = trainner.optimizer.param_groups[i]["lr"]
            trainner.writer.write_scalar(f"{name}_lr", lr, trainner.global_step)
        points = len(trainner.model.net.weight)
        self.rows.append((trainner.global_step, points, float(trainner.loss_dict["loss"])))

    def before_val(self, trainner):
        self.size = trainner.val_dataset_size
        self.step = trainner.global_step

    def after_val_iter(self, trainner):
        image = torch.zeros(3, 4, 4, device=trainner.device)
        trainner.writer.write_image("view", image, trainner.global_step)

    def after_val(self, trainner):
        self.metrics = dict(trainner.metric_dict)
        trainner.logger.info("in %s", trainner.exp_dir)


@HOOK_REGISTRY.register()
class Densify:
    """A hook without a base class, with a trainer-specific point and an optional bug."""

    def __init__(self):
        self.steps = []

    def after_densify(self, trainner, grow=1):
        self.steps.append((trainner.global_step, grow))

    def after_train_iter(self, trainner):
        if getattr(trainner, "broken", False):
            len(3)


class Memory(Writer):
    """A user's own writer."""

    def __init__(self, logfolder):
        super().__init__(logfolder)
        self.written = []

    def write_scalar(self, name, scalar, step):
        self.written.append((name, scalar, step))

    def write_image(self, name, image, step):
        self.written.append((name, tuple(image.shape), step))

    def write_config(self, name, config_dict, step=0):
        self.written.append((name, config_dict, step))


@HOOK_REGISTRY.register()
class Report(Hook):
    """Logs losses, rates by group, metrics and images, as pointrix's log hook."""

    def __init__(self):
        self.smooth = 0.0
        self.sums = {"L1_loss": 0.0, "psnr": 0.0}
        self.lines = []

    def after_train_iter(self, trainner):
        self.smooth = 0.4 * trainner.loss_dict["loss"].item() + 0.6 * self.smooth
        log = {"num_pt": len(trainner.model.point_cloud)}
        log.update(trainner.loss_dict)
        for group in trainner.optimizer.param_groups:
            log[group["name"] + "_lr"] = group["lr"]
        for key, value in log.items():
            trainner.writer.write_scalar(key, value, trainner.global_step)
        if trainner.global_step % trainner.cfg.bar_upd_interval == 0:
            self.lines.append(f"{self.smooth:.7f}")

    def after_val_iter(self, trainner):
        for key, value in trainner.metric_dict.items():
            if key in self.sums:
                self.sums[key] += value
        name = trainner.metric_dict["rgb_file_name"]
        image = trainner.metric_dict["images"].squeeze()
        trainner.writer.write_image(f"test_view_{name}", image, trainner.global_step)

    def after_val(self, trainner):
        for key in self.sums:
            self.sums[key] /= trainner.val_dataset_size
            trainner.writer.write_scalar(f"test/{key}", self.sums[key], trainner.global_step)
            self.sums[key] = 0.0
