"""Coordinate descent (Sokolovska et al. 2010, algorithm 1): one weight after the other.

The reference for block_descent, whose kernel it shares: a visit moves a single weight of the block.
Messages are repaired after each, so a sweep costs about as many block sweeps as a block has weights.
"""

from crftool.trainers.block_descent import Descent


def train(problem, theta, stop, report):
    """Minimise; see crftool.trainers.base for the contract. `theta` may also be SparseWeights."""
    return Descent(problem, theta, stop, report, by_coordinate=True).run()
