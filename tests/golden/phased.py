"""Old subclasses that write phases of their own; imported with mmcv, or with the stand-in."""

from mmcv.runner.hooks.lr_updater import CyclicLrUpdaterHook, LrUpdaterHook, OneCycleLrUpdaterHook
from mmcv.runner.hooks.momentum_updater import (
    CyclicMomentumUpdaterHook,
    OneCycleMomentumUpdaterHook,
)


class ThreePhases(CyclicLrUpdaterHook):
    """Writes its phases itself, without CyclicLrUpdaterHook.before_run."""

    def before_run(self, runner):
        LrUpdaterHook.before_run(self, runner)
        self.max_iter_per_phase = runner.max_iters // self.cyclic_times
        self.lr_phases.append([0, 2, 1, self.target_ratio[0]])
        self.lr_phases.append([2, 4, self.target_ratio[0], self.target_ratio[0]])
        self.lr_phases.append(
            [4, self.max_iter_per_phase, self.target_ratio[0], self.target_ratio[1]]
        )


class OwnCurve(CyclicMomentumUpdaterHook):
    """Replaces the curve between two momenta."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.anneal_func = lambda start, end, factor: start + (end - start) * factor**2


class Shifted(OneCycleLrUpdaterHook):
    """Moves the end of the first phase."""

    def before_run(self, runner):
        super().before_run(runner)
        self.lr_phases[0][0] += 1


class Lower(OneCycleMomentumUpdaterHook):
    """Adds a phase before the others."""

    def before_run(self, runner):
        super().before_run(runner)
        stay = {
            "end_iter": 1,
            "start_momentum": "max_momentum",
            "end_momentum": "max_momentum",
        }
        self.momentum_phases.insert(0, stay)


HOOKS = {
    "three_phases": lambda: ThreePhases(cyclic_times=2, gamma=0.5),
    "own_curve": lambda: OwnCurve(cyclic_times=2),
    "shifted": lambda: Shifted(max_lr=0.5),
    "lower": lambda: Lower(three_phase=True, pct_start=0.4),
}
