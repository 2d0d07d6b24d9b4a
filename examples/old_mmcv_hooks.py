"""A hook file of an mmcv project, untouched: it imports mmcv, which need not be installed."""

from mmcv.runner import Hook


class ReportHook(Hook):
    """Print the progress of the training."""

    def before_train_epoch(self, runner):
        """Print the coming epoch and its length."""
        batches = len(runner.data_loader)
        print(f"epoch {runner.epoch + 1} of {runner.max_epochs}: {batches} batches")

    def after_train_epoch(self, runner):
        """Print the iterations done and the learning rate."""
        if self.is_last_epoch(runner):
            print(f"{runner.iter} iterations done, the learning rate is {runner.current_lr()}")
