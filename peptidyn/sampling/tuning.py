"""Step sizes that adapt during a warm-up, which is recorded and then over."""

from __future__ import annotations

import math

import numpy as np

FORGET = 0.6
"""The gain of update n is n to the power of minus this: it sums to infinity, its square does not."""


class StepTuner:
    """Robbins-Monro search for the step that has a wanted acceptance.

    After proposal n the logarithm of the step grows by gain(n) (accepted - target). `final` averages it over the second
    half of the warm-up, which is steadier than its last value.

    Parameters
    ----------
    step : float
        Where to start.
    target : float
        Wanted acceptance.
    largest : float
        Never go beyond this.

    Attributes
    ----------
    steps : list of float
        Step that was used for every proposal.
    outcomes : list of bool
        Whether it was accepted.
    """

    def __init__(self, step: float, target: float, largest: float = math.inf):
        self.target = target
        self.largest = largest
        self.steps: list[float] = []
        self.outcomes: list[bool] = []
        self._log = math.log(step)

    def update(self, accepted: bool) -> float:
        """Note the outcome of a proposal; return the step for the next one."""
        self.steps.append(math.exp(self._log))
        self.outcomes.append(accepted)
        gain = len(self.steps) ** -FORGET
        self._log = min(self._log + gain * (accepted - self.target), math.log(self.largest))
        return math.exp(self._log)

    @property
    def final(self) -> float:
        """The step to freeze."""
        if not self.steps:
            return math.exp(self._log)
        return float(np.exp(np.log(self.steps[len(self.steps) // 2 :]).mean()))
