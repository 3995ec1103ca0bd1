"""Arithmetic on long vectors against plain NumPy, around the bounds of the chunks."""

import numpy as np
import pytest

from crftool.kernels.pool import Pool, Vectors
from crftool.kernels.vector import CHUNK
from crftool.trainers import lbfgs

SIZES = [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5]
THREADS = (1, 2, 3)


@pytest.fixture(params=SIZES)
def F(request):
    return request.param


@pytest.fixture(scope="module")
def pools():
    pools = [Pool(threads) for threads in THREADS]
    yield pools
    for pool in pools:
        pool.close()


def draw(F, seed, dtype=float):
    return np.random.default_rng([F, seed]).normal(0, 1, F).astype(dtype)


def sparse(F, seed):
    """About a third of the entries zero."""
    rng = np.random.default_rng([F, seed])
    return np.where(rng.random(F) < 0.3, 0.0, rng.normal(0, 1, F))


def on_all_pools(pools, F, operation):
    """operation(vectors), which must be the same for any number of threads; it returns arrays and numbers."""
    results = [operation(Vectors(pool, F)) for pool in pools]
    packed = {b"".join(np.asarray(part).tobytes() for part in result) for result in results}
    assert len(packed) == 1
    return results[0]


def assert_sum(found, terms):
    """Within the rounding error of any reasonable order of addition."""
    terms = terms.astype(np.longdouble)
    assert abs(found - terms.sum()) <= 1e-13 * np.abs(terms).sum()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dot(F, pools, dtype):
    x, y = draw(F, 1, dtype), draw(F, 2)
    found, = on_all_pools(pools, F, lambda vectors: (vectors.dot(x, y),))
    assert_sum(found, x.astype(np.longdouble) * y)


def test_add_scaled(F, pools):
    x, y = draw(F, 1), draw(F, 2)

    def operation(vectors):
        out = np.full(F, np.nan)
        vectors.add_scaled(0.3, x, y, out)
        return out,

    found, = on_all_pools(pools, F, operation)
    assert found.tobytes() == (0.3 * x + y).tobytes()


def test_add_history(F, pools):
    x = draw(F, 1, np.float32)

    def operation(vectors):
        out = draw(F, 2)
        vectors.add_history(-1.7, x, out)
        return out,

    found, = on_all_pools(pools, F, operation)
    assert found.tobytes() == (draw(F, 2) + -1.7 * x.astype(float)).tobytes()


def test_scale(F, pools):
    def operation(vectors):
        x = draw(F, 1)
        vectors.scale(-0.7, x)
        return x,

    found, = on_all_pools(pools, F, operation)
    assert found.tobytes() == (-0.7 * draw(F, 1)).tobytes()


def test_store_difference(F, pools):
    x, y = draw(F, 1), draw(F, 2)

    def operation(vectors):
        out = np.full(F, np.nan, np.float32)
        vectors.store_difference(x, y, out)
        return out,

    found, = on_all_pools(pools, F, operation)
    assert found.tobytes() == (x - y).astype(np.float32).tobytes()


def test_dots_of_pair(F, pools):
    s, y = draw(F, 1, np.float32), draw(F, 2, np.float32)
    sy, yy = on_all_pools(pools, F, lambda vectors: vectors.dots_of_pair(s, y))
    assert_sum(sy, s.astype(np.longdouble) * y)
    assert_sum(yy, y.astype(np.longdouble) * y)


def test_penalise(F, pools):
    theta = sparse(F, 1)

    def operation(vectors):
        grad = draw(F, 2)
        return *vectors.penalise(theta, 0.9, grad), grad

    l1_norm, squared_norm, active, grad = on_all_pools(pools, F, operation)
    assert_sum(l1_norm, np.abs(theta))
    assert_sum(squared_norm, theta.astype(np.longdouble) ** 2)
    assert active == np.count_nonzero(theta)
    assert grad.tobytes() == (0.9 * theta).tobytes()


# The pseudo-gradient ------------------------------------------------------------------------------------


def least_subgradient(theta, grad, rho1):
    """The element of least norm of grad + rho1 d|theta|: at zero, of the interval grad -+ rho1."""
    at_zero = np.clip(0.0, grad - rho1, grad + rho1)
    return np.where(theta == 0, at_zero, grad + rho1 * np.sign(theta))


@pytest.mark.parametrize("rho1", [0.0, 0.5, 3.0])
def test_pseudo_gradient(F, pools, rho1):
    theta, grad = sparse(F, 1), draw(F, 2)

    def operation(vectors):
        out = np.full(F, np.nan)
        return *vectors.pseudo_gradient(theta, grad, rho1, out), out

    norm, largest, out = on_all_pools(pools, F, operation)
    expected = least_subgradient(theta, grad, rho1)
    np.testing.assert_array_equal(out, expected)
    assert norm == pytest.approx(np.linalg.norm(expected), rel=1e-12)
    assert largest == np.abs(expected).max()


def test_pseudo_gradient_cases():
    theta = np.array([2.0, -2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.0])
    grad = np.array([0.3, 0.3, -1.0, 0.3, -0.3, 1.0, -1.0, 1.5, -1.5, -1.5])
    expected = [1.3, -0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, -0.5, -0.5]
    out = np.empty(10)
    norm, largest = Vectors(Pool(), 10).pseudo_gradient(theta, grad, 1.0, out)
    np.testing.assert_allclose(out, expected, atol=1e-15)
    assert norm == pytest.approx(np.linalg.norm(expected))
    assert largest == pytest.approx(1.3)


def test_pseudo_gradient_in_place():
    F = CHUNK + 1
    theta, grad = sparse(F, 1), draw(F, 2)
    expected = least_subgradient(theta, grad, 0.5)
    Vectors(Pool(), F).pseudo_gradient(theta, grad, 0.5, grad)
    np.testing.assert_array_equal(grad, expected)


@pytest.mark.parametrize("rho1", [0.0, 0.5])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("where", [0, 7, CHUNK - 1, CHUNK, CHUNK + 9])
def test_nan_in_the_gradient_is_not_hidden(where, weight, rho1):
    """A trainer must not take a broken gradient for a small one."""
    F = CHUNK + 10
    theta, grad = np.full(F, weight), draw(F, 2)
    grad[where] = np.nan
    norm, largest = Vectors(Pool(), F).pseudo_gradient(theta, grad, rho1, np.empty(F))
    assert np.isnan(norm)
    assert np.isnan(largest)


# Steps in an orthant ------------------------------------------------------------------------------------


def test_align(F, pools):
    pseudo = sparse(F, 2)

    def operation(vectors):
        direction = sparse(F, 1)
        vectors.align(direction, pseudo)
        return direction,

    found, = on_all_pools(pools, F, operation)
    before = sparse(F, 1)
    np.testing.assert_array_equal(found, np.where(np.sign(before) == -np.sign(pseudo), before, 0.0))


def test_orthant_step(F, pools):
    theta, direction, pseudo = sparse(F, 1), draw(F, 2), sparse(F, 3)

    def operation(vectors):
        out = np.full(F, np.nan)
        return vectors.orthant_step(theta, 0.8, direction, pseudo, out), out

    predicted, out = on_all_pools(pools, F, operation)
    orthant = np.where(theta != 0, np.sign(theta), -np.sign(pseudo))
    moved = theta + 0.8 * direction
    np.testing.assert_array_equal(out, np.where(np.sign(moved) == orthant, moved, 0.0) * (orthant != 0))
    assert_sum(predicted, pseudo * (out.astype(np.longdouble) - theta))
    assert not np.signbit(out[out == 0]).any()


def test_no_weights():
    vectors, empty = Vectors(Pool(3), 0), np.empty(0)
    assert vectors.dot(empty, empty) == 0.0
    assert vectors.penalise(empty, 1.0, empty) == (0.0, 0.0, 0)
    assert vectors.pseudo_gradient(empty, empty, 1.0, empty) == (0.0, 0.0)


def test_threads_beyond_the_chunks():
    pool = Pool(3)
    x = draw(5, 1)
    assert Vectors(pool, 5).dot(x, x) == Vectors(Pool(), 5).dot(x, x)
    pool.close()


def test_an_error_in_a_kernel_is_raised():
    pool = Pool(2)
    with pytest.raises(ValueError):
        Vectors(pool, 3 * CHUNK).scale(2.0, np.zeros(3 * CHUNK, np.float32))
    pool.close()


# L-BFGS on dot products ---------------------------------------------------------------------------------


def test_history_is_the_two_loop_recursion(F, pools):
    """Direction, slope and products of crftool.trainers.lbfgs.History against the textbook."""
    rng = np.random.default_rng(F)
    w = rng.uniform(0.5, 2.0, F).astype(np.float32)
    scale = rng.uniform(0.5, 3.0, F)                 # the gradient is that of scale x^2 / 2
    start = rng.normal(0, 1, F)

    def run(vectors):
        history, x, pairs = lbfgs.History(vectors, w), start.copy(), []
        history.remember(scale * x)
        for _ in range(6):
            before, grad = x.copy(), scale * x
            slope = history.move(x, grad, 0.1)
            expected = -two_loops(grad, pairs, w.astype(float) ** 2, 0.1)
            np.testing.assert_allclose(x - before, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
            assert slope == pytest.approx(grad @ expected, rel=1e-3)
            norm, largest = history.remember(scale * x)
            assert norm == pytest.approx(np.linalg.norm(scale * x)) and largest == np.abs(scale * x).max()
            history.accept()
            pairs.append((x - before, scale * x - grad))
        return (x,)

    on_all_pools(pools, F, run)


def two_loops(grad, pairs, D, first):
    """H grad, by Nocedal & Wright, alg. 7.4, with H0 = gamma D."""
    q, alphas = grad.copy(), []
    for s, y in reversed(pairs):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    gamma = first if not pairs else pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ (D * pairs[-1][1]))
    q *= gamma * D
    for s, y in pairs:
        q += (alphas.pop() - y @ q / (s @ y)) * s
    return q
