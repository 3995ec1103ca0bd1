"""The forecast of training time, on a machine of a known speed."""

from types import SimpleNamespace

import numpy as np
import pytest

from crftool.cli import census
from crftool.trainers import TRAINERS


@pytest.fixture
def forecast(monkeypatch):
    """Seconds for a training of 5,000 tokens and 30 labels that converges, but for what a test changes."""
    monkeypatch.setattr(census, "_probe", lambda: census.PROBE_SECONDS)

    def seconds(tokens=5_000, labels=30, templates=10, weights=30_000, algorithm="hybrid", tolerance=1e-5,
                max_iterations=10_000, path=None, threads=1, dev_tokens=0):
        return census.estimate_seconds(
            algorithm, SimpleNamespace(space=SimpleNamespace(Y=labels, F=weights)),
            SimpleNamespace(N=tokens, unigrams=SimpleNamespace(shape=(tokens, templates))),
            SimpleNamespace(tolerance=tolerance, max_iterations=max_iterations, path=path), threads, dev_tokens)
    return seconds


@pytest.mark.parametrize("change, least, most", [
    ({"tokens": 20_000}, 2, 4), ({"labels": 120}, 4, 16), ({"templates": 20}, 1.05, 2), ({"weights": 3_000_000}, 4, 100),
    ({"algorithm": "owl-qn"}, 3, 10), ({"tolerance": 1e-9}, 1.2, 3), ({"path": 20}, 2, 4), ({"dev_tokens": 5_000}, 1.2, 2),
    ({"threads": 2}, 0.5, 0.9), ({"max_iterations": 3}, 0.01, 0.1)])
def test_the_forecast_of_time_follows_the_work(forecast, change, least, most):
    usual = forecast()
    assert 0.1 < usual < 10
    assert least <= forecast(**change) / usual <= most


def test_a_machine_of_half_the_speed_takes_twice_the_time(forecast, monkeypatch):
    usual = forecast()
    monkeypatch.setattr(census, "_probe", lambda: 2 * census.PROBE_SECONDS)
    assert forecast() == pytest.approx(2 * usual)


@pytest.fixture
def memory():
    """Bytes for 1,000 weights: ten labels, 80 observations that occur twice and 20 that occur once."""
    encoder = SimpleNamespace(space=SimpleNamespace(F=1000, Y=10), unigrams=SimpleNamespace(counts=np.repeat([2, 1], [80, 20])))
    dataset = SimpleNamespace(unigrams=np.zeros((30, 4), np.int32))

    def of(algorithm, **settings):
        known = {"rho1": 0.0, "rho2": 1.0, "path": None, "dev": None}
        return census.memory_of_weights(TRAINERS[algorithm], encoder, dataset, SimpleNamespace(**{**known, **settings}))
    return of


def test_the_forecast_of_memory_counts_what_each_weight_takes(memory):
    for name in ("hybrid", "owl-qn"):
        assert memory(name, rho1=1.0) == 1000 * TRAINERS[name].bytes_per_weight
    assert memory("hybrid", dev="dev.txt") - memory("hybrid") == 8000


def test_the_forecast_of_memory_knows_what_an_l1_penalty_leaves_out(memory):
    each = TRAINERS["working-set"].bytes_per_weight
    assert memory("working-set", rho1=0.5) == 1000 * each
    assert memory("working-set", rho1=1.0) == 8000 + 800 * each + 480
    assert memory("working-set", rho1=2.0) == 8000 + 480
    assert memory("working-set", rho1=0.5, rho2=0.0) == 8000 + 1000 * each + 480     # a merged problem is one of its own
    assert memory("owl-qn", rho1=1.0, path=20) == 8000 + 800 * (TRAINERS["owl-qn"].bytes_per_weight + 32) + 480


def test_the_probe_takes_a_moment():
    assert 0 < census._probe() < float("inf")
