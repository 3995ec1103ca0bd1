"""The forecast of training time, on a machine of a known speed."""

from types import SimpleNamespace

import pytest

from crftool.cli import census


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


def test_the_probe_takes_a_moment():
    assert 0 < census._probe() < float("inf")
