"""Long comparisons: replica exchange on dask with a killed worker, and capped alanine. Slow."""

from __future__ import annotations

import os
import signal
import threading
import time

import butane
import numpy as np
import openmm
import pytest
from correlated_samples import EDGES, agree, check_ratio, histogram_p_value, histograms_agree, mean_and_error
from real_structures import DATA

import peptidyn as ptd

pytestmark = pytest.mark.slow


# ---------------------------------------------------------------------------- replica exchange on dask, a worker killed


def test_eight_replicas_on_two_dask_workers_with_one_killed(tmp_path):
    """The known answer at three temperatures, the ratio of energies, and every frame once although a worker died."""
    distributed = pytest.importorskip("distributed")
    T, n = ptd.geometric_temperatures(300, 900, 8), 80
    common = {
        "moves": [ptd.TorsionMove(turn=120), ptd.CartesianHMC(0.009, 6)], "sweeps": 60, "every": 10, "seed": 1,
        "platform": "Reference", "topology": butane.make_topology(),
    }  # fmt: skip
    model = butane.make_tree(), butane.make_system(), T
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        ptd.ReplicaExchange(*model, folder=tmp_path / "dask", backend=client, **common) as exchange,
    ):
        killed = []

        def kill():
            while exchange.iterations < 20:
                time.sleep(0.05)
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        exchange.run(n)
        thread.join()
        assert killed and exchange.iterations == n
        acceptance, trips = exchange.acceptance, exchange.round_trips
        frames = [exchange.at_temperature(k) for k in range(8)]
        per_replica = [exchange.frames_of(r)[0]["iteration"] for r in range(8)]
    assert all(np.array_equal(found, np.repeat(np.arange(n), 6)) for found in per_replica)
    assert (acceptance > 0.3).all() and trips.sum() > 0
    for k in (0, 3, 7):
        rows, q = frames[k]
        exact = butane.exact(T[k], EDGES, 1_000_000)
        assert histogram_p_value(q[20:, 0], exact["torsion"]) > 1e-4, T[k]
        mean, error = mean_and_error(rows["potential"][20:])
        assert abs(mean - exact["total"]) < 4 * error, T[k]
    check_ratio(frames[1][0]["potential"][20:], frames[4][0]["potential"][20:], T[1], T[4])
    # the first iterations again in this process: what was reported is what was computed
    with ptd.ReplicaExchange(*model, **common) as again:
        again.run(25)
        for r in range(8):
            stored = np.load(tmp_path / f"dask/replica-{r:02d}/torsions.npy")[:150]
            assert np.array_equal(stored, again.frames_of(r)[1])


# ---------------------------------------------------------------------------- capped alanine, real force field


def test_gibbs_sampling_of_capped_alanine_equals_cartesian_dynamics():
    """amber14 in vacuum at 600 K, where wells mix: torsions and energies against OpenMM's Langevin at 0.5 fs.

    Means within 4 standard errors (false-alarm rate 6e-5 each), histograms of phi and psi at a rate of 1e-5 each.
    The rigid model, with all bonds and angles where they were relaxed, differs as docs/theory.md says: in its energy,
    and in phi, since its geometry cannot relax.
    """
    T = 600.0
    structure = ptd.load_structure(DATA / "ala1.pdb")
    system = ptd.make_system(structure.topology, "vacuum")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    tree = ptd.build_tree(structure, "phi psi chi")
    atoms = {c.kind: c.atoms for c in tree.torsions if c.kind in ("phi", "psi")}

    reference = openmm.LangevinMiddleIntegrator(T, 2.0, 0.0005)
    reference.setRandomNumberSeed(4)
    context = openmm.Context(system, reference, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(structure.positions)
    openmm.LocalEnergyMinimizer.minimize(context)
    relaxed = context.getState(positions=True).getPositions(asNumpy=True)._value
    reference.step(4000)
    count, every = 8000, 150
    energy, angles = np.empty(count), np.empty((count, 2))
    for i in range(count):
        reference.step(every)
        state = context.getState(positions=True, energy=True)
        energy[i] = state.getPotentialEnergy()._value
        x = state.getPositions(asNumpy=True)._value
        angles[i] = [_dihedral(x[list(atoms[kind])]) for kind in ("phi", "psi")]

    def sampled(moves, sweeps):
        sampler = ptd.GibbsSampler(moves, tree, system, T, positions=relaxed, platform="Reference", seed=8)
        sampler.warm_up(200)
        samples = sampler.run(sweeps)
        return samples.energy, np.stack([samples.column("phi"), samples.column("psi")], axis=1)

    gibbs_energy, gibbs = sampled([ptd.TorsionalHMC(0.01, 5), ptd.CartesianHMC(0.001, 20)], 5000)
    rigid_energy, rigid = sampled([ptd.TorsionalHMC(0.02, 5)], 3000)
    assert agree(energy, gibbs_energy)
    for column in range(2):
        for function in (np.cos, np.sin, lambda f: np.cos(2 * f), lambda f: np.sin(2 * f)):
            assert agree(function(angles[:, column]), function(gibbs[:, column])), column
        assert histograms_agree(angles[:, column], gibbs[:, column]), column
    assert not histograms_agree(angles[:, 0], rigid[:, 0])
    assert not agree(energy, rigid_energy)


def _dihedral(x: np.ndarray) -> float:
    u, v, w = np.diff(x, axis=0)
    return float(np.arctan2(np.linalg.norm(v) * u @ np.cross(v, w), np.cross(u, v) @ np.cross(v, w)))
