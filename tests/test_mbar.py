"""Overlap of temperatures and averages over all of them, against harmonic systems whose energies are known."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import ndtri
from scipy.stats import gamma, norm

from peptidyn.core.units import BOLTZMANN
from peptidyn.sampling.mbar import MOST_FRAMES, TemperatureMBAR, energies_by_level
from peptidyn.sampling.storage import ENERGY_ROW

SHAPE = 50
"""V / kT of 100 harmonic coordinates has a gamma distribution of this shape: mean 50, variance 50."""


def harmonic(rng, temperatures, frames, memory=0.0):
    """Energies of harmonic systems; the normal scores of successive frames have the correlation `memory`."""
    x = rng.standard_normal((len(temperatures), frames))
    for n in range(1, frames):
        x[:, n] = memory * x[:, n - 1] + np.sqrt(1 - memory**2) * x[:, n]
    return list(BOLTZMANN * temperatures[:, None] * gamma.ppf(norm.cdf(x), SHAPE))


def test_overlap_of_equal_and_of_distant_temperatures():
    T = np.array([300.0, 310.0, 3000.0])
    overlap = TemperatureMBAR(harmonic(np.random.default_rng(0), T, 1000), T).overlap
    assert np.allclose(overlap.sum(axis=1), 1, atol=1e-6)
    assert 0.4 < overlap[0, 1] < 0.5 and overlap[0, 2] < 1e-6


def test_overlap_of_two_temperatures_is_the_integral():
    """O_12 = integral of p1 p2 / (p1 + p2) for equal numbers of frames."""
    T = np.array([300.0, 360.0])
    V = np.linspace(50.0, 300.0, 4001)
    p, r = (gamma.pdf(V, SHAPE, scale=BOLTZMANN * t) for t in T)
    expected = trapezoid(p * r / (p + r), V)
    overlap = TemperatureMBAR(harmonic(np.random.default_rng(1), T, MOST_FRAMES), T).overlap
    assert overlap[0, 1] == pytest.approx(expected, abs=0.018)  # 4 standard errors


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_mean_energies_and_their_errors(memory):
    """<V> = 50 kT at sampled temperatures and between them; deviations are as large as the errors say.

    Errors of correlated frames are meant to be careful: they take the slowest of three temperatures for all.
    """
    T, asked = np.array([300.0, 340.0, 380.0]), np.array([300.0, 320.0, 380.0])
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(30):
        mean, error = TemperatureMBAR(harmonic(rng, T, 300, memory), T).mean_energy(asked)
        scores.append((mean - SHAPE * BOLTZMANN * asked) / error)
    size = np.sqrt(np.mean(np.square(scores), axis=0))
    # 30 squares: their root lies between 0.6 and 1.45 of its value in all but 1 of 1000 cases
    assert (size < 1.45).all() and (size > 0.6 * (1.0 if memory == 0 else 0.75)).all()
    assert np.abs(np.mean(scores, axis=0)).max() < -ndtri(0.0005) / np.sqrt(30)


def test_frames_are_sorted_by_temperature_and_iteration():
    rows = np.zeros(5, ENERGY_ROW)
    rows["iteration"], rows["level"], rows["potential"] = [0, 1, 2, 0, 1], [0, 1, 0, 1, 0], [1, 2, 3, 4, 5]
    assert [e.tolist() for e in energies_by_level(rows, 3)] == [[1, 5, 3], [4, 2], []]


def test_a_temperature_without_frames_is_predicted_from_the_others():
    T = np.array([300.0, 320.0, 330.0])
    energies = harmonic(np.random.default_rng(4), T, 400)
    mean, error = TemperatureMBAR([*energies[:2], np.empty(0)], T).mean_energy(T)
    assert abs(mean[2] - SHAPE * BOLTZMANN * 330) < 4 * error[2]


def test_a_handful_of_frames_needs_no_patience(caplog):
    """pymbar's most robust way took 40 s of three frames at two temperatures, and said that it had not converged."""
    T = np.array([300.0, 301.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            overlap = TemperatureMBAR(harmonic(np.random.default_rng(seed), T, 3), T).overlap
            assert np.allclose(overlap, 0.5, atol=0.02)
    assert not caplog.records


def test_weights_that_do_not_sum_to_one_are_told(monkeypatch):
    """A first answer that is no solution is not taken; if the second is none either, a warning says so."""
    import pymbar

    for offs, ways, told in (
        ([5e-8], 1, False),
        ([2e-7, 5e-8], 2, False),
        ([1.0, 2e-7], 2, True),
        ([np.nan] * 2, 2, True),
    ):
        asked = []

        def solve(reduced, counts, solver_protocol, initial_f_k, offs=offs, asked=asked):
            asked.append(solver_protocol)
            # the last temperature has no frame
            return SimpleNamespace(W_nk=np.full((6, 3), 1.0 / 6.0) * [1.0, 1.0 - offs[len(asked) - 1], 7.0])

        monkeypatch.setattr(pymbar, "MBAR", solve)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            TemperatureMBAR([np.arange(3.0), np.arange(3.0), np.empty(0)], np.array([300.0, 350.0, 400.0]))
        assert len(asked) == ways and asked[1:] in ([], ["robust"])
        assert [f"sum to 1 only to {offs[-1]:.1g}" in str(one.message) for one in caught] == [True] * told


def test_the_library_is_quiet_and_needs_no_jax():
    code = (
        "import sys\n"
        "class NoJax:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('jax', 'jaxlib'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoJax())\n"
        "import numpy as np; from peptidyn.sampling.mbar import TemperatureMBAR\n"
        "assert 'pymbar' not in sys.modules\n"
        "TemperatureMBAR([np.arange(5.0), np.arange(6.0)], np.array([300.0, 350.0])).overlap"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
