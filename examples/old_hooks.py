"""A typical hook for mmcv 1.x, without any code of Lightning or lightning_hooks."""


class WeightStatsHook:
    """Log the model, its data and the norm of the weights.

    Args:
        interval (int): Iterations between two measurements. Default: 10.
    """

    def __init__(self, interval=10):
        self.interval = interval

    def before_run(self, runner):
        """Log the number of trained weights."""
        model = runner.model.module
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        runner.logger.info("%s has %d weights to train", type(model).__name__, count)

    def before_train_epoch(self, runner):
        """Log the epoch and its data."""
        loader = runner.data_loader
        runner.logger.info(
            "epoch %d of %d: %d images in %d batches",
            runner.epoch + 1,
            runner.max_epochs,
            len(loader.dataset),
            len(loader),
        )

    def after_train_iter(self, runner):
        """Log the norm of the weights."""
        if (runner.inner_iter + 1) % self.interval:
            return
        groups = runner.optimizer.param_groups
        squares = sum(float(p.detach().square().sum()) for g in groups for p in g["params"])
        runner.log_buffer.update({"weight_norm": squares**0.5})
