"""The only module that knows threads.

A kernel called through a Pool pulls numbered tasks from a shared counter until none is left. Tasks never
depend on the number of threads, and every sum comes back per task and is added here in task order, so a
result has the same bits for any number of threads.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from crftool.kernels import vector


class Pool:
    def __init__(self, threads=1):
        self.threads = max(1, threads)
        self._others = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def run(self, kernel, *arguments, tasks=None):
        """kernel(*arguments, counter) on every thread at once; with a single task, on one."""
        counter = np.zeros(1, np.int64)
        helpers = self.threads - 1 if tasks is None else min(self.threads, tasks) - 1
        futures = [self._others.submit(kernel, *arguments, counter) for _ in range(helpers)]
        try:
            kernel(*arguments, counter)
        finally:                                  # never leave threads working on borrowed memory
            for future in futures:
                future.exception()
        for future in futures:
            future.result()

    def close(self):
        if self._others:
            self._others.shutdown()


class Vectors:
    """Arithmetic on vectors of F numbers, threaded and repeatable."""

    def __init__(self, pool, F):
        self.pool = pool
        self.chunks = max(1, -(-F // vector.CHUNK))

    def run(self, kernel, *arguments):
        """A kernel that works chunk after chunk."""
        self.pool.run(kernel, *arguments, tasks=self.chunks)

    def sums(self, kernel, *arguments, width=None):
        """[chunks] or [chunks][width]  what such a kernel sums up"""
        sums = np.zeros(self.chunks if width is None else (self.chunks, width))
        self.run(kernel, *arguments, sums)
        return sums

    def dot(self, x, y):
        kernel = vector.dot_single if x.dtype == np.float32 else vector.dot
        return math.fsum(self.sums(kernel, x, y))

    def add_scaled(self, a, x, y, out):
        """out = a x + y"""
        self.run(vector.add_scaled, a, x, y, out)

    def add_history(self, a, x, out):
        """out += a x, x a vector in single precision"""
        self.run(vector.add_scaled_single, a, x, out)

    def scale(self, a, x):
        self.run(vector.scale, a, x)

    def store_difference(self, x, y, out):
        """out = x - y, out in single precision"""
        self.run(vector.store_difference, x, y, out)

    def dots_of_pair(self, s, y):
        """(s . y, y . y)"""
        sums = self.sums(vector.dots_of_pair, s, y, width=2)
        return math.fsum(sums[:, 0]), math.fsum(sums[:, 1])

    def penalise(self, theta, rho2, grad):
        """(|theta|_1, |theta|^2, non-zero weights); sets grad = rho2 theta, the penalty's share of it."""
        sums = self.sums(vector.penalise, theta, rho2, grad, width=3)
        return math.fsum(sums[:, 0]), math.fsum(sums[:, 1]), int(sums[:, 2].sum())

    def norms(self, theta):
        """(|theta|_1, |theta|^2, non-zero weights)"""
        return self.penalise(theta, 0.0, None)

    def pseudo_gradient(self, theta, grad, rho1, out):
        """(norm, largest entry) of the pseudo-gradient, which is written to `out`."""
        sums = self.sums(vector.pseudo_gradient, theta, grad, rho1, out, width=2)
        return math.sqrt(math.fsum(sums[:, 0])), float(sums[:, 1].max())

    def align(self, direction, pseudo_grad):
        self.run(vector.align, direction, pseudo_grad)

    def orthant_step(self, theta, step, direction, pseudo_grad, out):
        """pseudo-gradient . (out - theta), after a step that stays in the orthant of theta."""
        return math.fsum(self.sums(vector.orthant_step, theta, step, direction, pseudo_grad, out))
