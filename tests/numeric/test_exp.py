"""The vector exponential of every CPU level against the C library's in extended precision."""

import numpy as np
import pytest

from crftool.kernels import vector

LEVELS = pytest.mark.parametrize("level", vector.cpu_levels())
WIDE = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="long double is no wider than double here")
LARGEST = 709.782712893384           # log of the largest double
SMALLEST = -745.1332191019411        # log of half the smallest subnormal


def exp_at(level, x):
    out = np.full(len(x), 99.0)
    vector.exp(np.ascontiguousarray(x, float), out, level)
    return out


def neighbours(x, n=20):
    """n doubles on either side of x."""
    out = [x]
    for direction in (-np.inf, np.inf):
        y = x
        for _ in range(n):
            y = np.nextafter(y, direction)
            out.append(y)
    return out


def arguments():
    rng = np.random.default_rng(1)
    halfway = np.log(2) * (np.arange(-1075, 1024) + 0.5)     # where the exponent of the result changes by rounding
    edges = [x for centre in (0.0, 1.0, -1.0, 709.7, -708.3964185322641, -745.0, np.log(2) / 2, -np.log(2) / 2)
             for x in neighbours(centre)]
    tiny = np.array([5e-324, 1e-310, 1e-300, 1e-20, 1e-16, 1e-8])
    return np.concatenate([rng.uniform(-745, 709.7, 400_000), rng.normal(0, 1, 100_000), edges, tiny, -tiny,
                           halfway[(halfway > -745) & (halfway < 709.7)], np.arange(-745.0, 710.0)])


def error_in_ulps(found, x):
    exact = np.exp(x.astype(np.longdouble))
    return np.abs(found.astype(np.longdouble) - exact) / np.spacing(exact.astype(float))


@WIDE
@LEVELS
def test_error(level):
    x = arguments()
    assert error_in_ulps(exp_at(level, x), x).max() <= 2.0


@WIDE
@LEVELS
def test_subnormal_results(level):
    x = np.linspace(-745.13, -708.4, 50_001)
    found = exp_at(level, x)
    assert (found > 0).all() and (found < np.finfo(float).tiny).all()
    assert error_in_ulps(found, x).max() <= 2.0


@LEVELS
def test_special_values(level):
    found = exp_at(level, np.array([0.0, -0.0, -np.inf, np.inf, -1e4, 1e4, -1e300, 1e300]))
    assert found.tolist() == [1.0, 1.0, 0.0, np.inf, 0.0, np.inf, 0.0, np.inf]
    assert np.isnan(exp_at(level, np.array([np.nan, -np.nan]))).all()


@LEVELS
def test_range_ends_where_it_should(level):
    inside, outside = exp_at(level, [LARGEST, np.nextafter(LARGEST, np.inf)])
    assert np.isfinite(inside) and np.isinf(outside)
    assert exp_at(level, [SMALLEST])[0] == 5e-324
    assert exp_at(level, [SMALLEST - 0.1])[0] == 0.0


@LEVELS
def test_never_negative_and_nearly_monotonic(level):
    x = np.sort(np.random.default_rng(2).uniform(-800, 720, 200_000))
    found = exp_at(level, x)
    assert (found >= 0).all()
    with np.errstate(invalid="ignore"):              # inf - inf
        drop = found[:-1] - found[1:]
    assert not (drop > 2 * np.spacing(found[1:])).any()


def test_levels_give_the_same_bits():
    x = np.concatenate([arguments(), np.linspace(-810, 730, 100_001), [np.inf, -np.inf]])
    assert len({exp_at(level, x).tobytes() for level in vector.cpu_levels()}) == 1


@LEVELS
def test_no_write_past_the_end(level):
    for n in range(71):
        for start in range(8):                       # any alignment
            buffer = np.full(96, -7.0)
            x = np.linspace(-3, 3, n)
            vector.exp(x, buffer[start:start + n], level)
            np.testing.assert_allclose(buffer[start:start + n], np.exp(x), rtol=1e-15)
            assert (np.delete(buffer, np.s_[start:start + n]) == -7.0).all()


@LEVELS
def test_an_element_does_not_depend_on_its_neighbours(level):
    x = np.random.default_rng(3).normal(0, 50, 70)
    alone = np.concatenate([exp_at(level, x[i:i + 1]) for i in range(len(x))])
    for n in range(71):
        assert exp_at(level, x[:n]).tobytes() == alone[:n].tobytes()


@LEVELS
def test_in_place(level):
    x = np.random.default_rng(4).normal(0, 5, 101)
    expected = exp_at(level, x)
    vector.exp(x, x, level)
    assert x.tobytes() == expected.tobytes()


def test_the_level_in_use_is_one_of_them():
    assert vector.cpu_level() in vector.cpu_levels()
    x = np.linspace(-5, 5, 33)
    assert exp_at(None, x).tobytes() == exp_at(vector.cpu_level(), x).tobytes()


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError):
        vector.exp(np.zeros(3), np.zeros(3), "sse9")
    with pytest.raises(ValueError):
        vector.exp(np.zeros(3), np.zeros(4))
