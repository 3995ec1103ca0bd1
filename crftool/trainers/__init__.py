"""How it is minimised: one module an algorithm, and the table of their names."""

from dataclasses import dataclass
from typing import Callable

from crftool.trainers import block_descent, coordinate_descent, quasi_newton


@dataclass(frozen=True)
class Trainer:
    train: Callable                  # see crftool.trainers.base
    allows_l1: bool
    bytes_per_weight: int            # what it keeps in memory for each weight, theta included
    by_blocks: bool = False          # works on a BlockLoss, and takes theta as SparseWeights


TRAINERS = {
    "l-bfgs": Trainer(quasi_newton.train, False, quasi_newton.BYTES_PER_WEIGHT),
    "owl-qn": Trainer(quasi_newton.train, True, quasi_newton.BYTES_PER_WEIGHT + 8),
    "cd": Trainer(coordinate_descent.train, True, 0, by_blocks=True),
    "bcd": Trainer(block_descent.train, True, 0, by_blocks=True),
}


def default_trainer(penalty):
    return "owl-qn" if penalty.rho1 > 0.0 else "l-bfgs"
