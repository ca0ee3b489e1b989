"""Step sizes that adapt during a warm-up, which is recorded and then over."""

from __future__ import annotations

import math

import numpy as np

FORGET = 0.6
"""The gain falls as the number of updates to the power of minus this: it sums to infinity, its square does not."""

FIRST = math.log(2.0)
"""Most that the first update changes the logarithm of the step."""


class StepTuner:
    """Robbins-Monro search for the step that has a wanted acceptance.

    After proposal n the logarithm of the step grows by gain(n) (accepted - target), with

        gain(n) = (n0 + n)^-0.6 / (2 min(target, 1 - target)) .

    The acceptance of hybrid Monte Carlo is about 1 - c step^2 where it is high, so its slope over the logarithm of the
    step is -2 (1 - target): the factor in front makes the search as quick for a target of 0.95 as for 0.5. n0 keeps the
    first updates small, where one rejection says little. `final` averages the logarithm over the second half of the
    warm-up, which is steadier than its last value.

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
        rare, often = sorted((target, 1.0 - target))
        self._scale = 0.5 / rare
        self._offset = max(0.0, (self._scale * often / FIRST) ** (1.0 / FORGET) - 1.0)

    def update(self, accepted: bool) -> float:
        """Note the outcome of a proposal; return the step for the next one."""
        self.steps.append(math.exp(self._log))
        self.outcomes.append(accepted)
        gain = self._scale * (self._offset + len(self.steps)) ** -FORGET
        self._log = min(self._log + gain * (accepted - self.target), math.log(self.largest))
        return math.exp(self._log)

    @property
    def final(self) -> float:
        """The step to freeze."""
        if not self.steps:
            return math.exp(self._log)
        return float(np.exp(np.log(self.steps[len(self.steps) // 2 :]).mean()))
