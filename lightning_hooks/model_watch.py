"""What hooks do with the model: run it without a trace, or put another in its place."""

from __future__ import annotations

from lightning_hooks.model import unwrap
from lightning_hooks.ownership import is_ours
from lightning_hooks.replaced_model import ReplacedModel
from lightning_hooks.runner import Runner
from lightning_hooks.traceless import Guards

__all__ = ["ModelWatch"]


class ModelWatch:
    """Watches a run's model on behalf of hooks from elsewhere."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._replaced = ReplacedModel(runner)
        self._guards: Guards | None = None
        self.is_assigned = False
        """Whether a hook has assigned ``runner.model`` since the last step."""
        self.takes_at_once = False
        """Whether a model is taken when it is assigned, rather than before the next step."""

    def take(self) -> None:
        """Train and validate with the model that a hook has assigned."""
        if self._replaced.take() and self._guards is not None:
            self.unguard()
            self.guard()
        self.is_assigned = False

    def guard(self) -> None:
        """See to it that what hooks from elsewhere run of the model leaves no trace."""
        runner = self._runner
        foreign = not all(is_ours(hook) for hook in runner.hooks)
        if runner.guards_model and foreign and self._guards is None:
            self._guards = Guards(runner, runner.module, unwrap(runner.model))

    def unguard(self) -> None:
        """Give the model its methods back; doing it twice does no harm."""
        if self._guards is not None:
            self._guards.remove()
            self._guards = None
