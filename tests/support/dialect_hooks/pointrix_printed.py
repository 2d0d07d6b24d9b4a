"""pointrix's LogHook, with the names of the module ``pointrix``.

Source: pointrix (pointrix-project), the ``LogHook`` of ``pointrix/hook``.
"""

from __future__ import annotations

from pointrix import HOOK_REGISTRY, Hook


@HOOK_REGISTRY.register()
class LogHook(Hook):
    """A hook to log the training and validation losses."""

    def __init__(self):
        self.ema_loss_for_log = 0.0
        self.bar_info = {}
        self.losses_test = {"L1_loss": 0.0, "psnr": 0.0}
        self.reports = []

    def after_train_iter(self, trainner):
        log_dict = {"num_pt": len(trainner.model.point_cloud)}
        log_dict.update(trainner.loss_dict)
        loss = trainner.loss_dict["loss"].item()
        self.ema_loss_for_log = 0.4 * loss + 0.6 * self.ema_loss_for_log

        for param_group in trainner.optimizer.param_groups:
            name = param_group["name"]
            if name == "weight":
                log_dict["pos_lr"] = param_group["lr"]
                break

        for key, value in log_dict.items():
            if trainner.logger and key != "optimizer_params":
                trainner.logger.write_scalar(key, value, trainner.global_step)

        if trainner.global_step % trainner.cfg.bar_upd_interval == 0:
            self.bar_info.update(
                {
                    "num_pts": len(trainner.model.point_cloud),
                    "loss": f"{self.ema_loss_for_log:.7f}",
                }
            )

    def after_val_iter(self, trainner):
        for key, value in trainner.metric_dict.items():
            if key in self.losses_test:
                self.losses_test[key] += value
        image_name = trainner.metric_dict["rgb_file_name"]
        if trainner.logger:
            trainner.logger.write_image(
                f"test_view_{image_name}/render",
                trainner.metric_dict["images"].squeeze(),
                trainner.global_step,
            )

    def after_val(self, trainner):
        log_info = f"[ITER {trainner.global_step}] Evaluating test:"
        for key in self.losses_test:
            self.losses_test[key] /= trainner.val_dataset_size
            log_info += f" {key} {self.losses_test[key]:.5f}"
            if trainner.logger:
                trainner.logger.write_scalar(
                    "test/" + key, self.losses_test[key], trainner.global_step
                )
        self.reports.append(log_info)
        trainner.logger.info(log_info)
        for key in self.losses_test:
            self.losses_test[key] = 0.0
