"""How it is minimised: one module an algorithm, and the table of their names."""

from dataclasses import dataclass
from typing import Callable

from crftool.trainers import (block_descent, conjugate_gradient, coordinate_descent, hybrid, lbfgs, owlqn, stochastic,
                              working_set)


@dataclass(frozen=True)
class Trainer:
    train: Callable                  # see crftool.trainers.base
    allows_l1: bool
    bytes_per_weight: int            # what it keeps in memory for each weight, theta included
    by_blocks: bool = False          # works on a BlockLoss, and takes theta as SparseWeights
    screens: bool = False            # leaves out what an l1 penalty keeps at zero, and works on what is left


TRAINERS = {
    "hybrid": Trainer(hybrid.train, False, hybrid.BYTES_PER_WEIGHT),
    "working-set": Trainer(working_set.train, True, working_set.BYTES_PER_WEIGHT, screens=True),
    "l-bfgs": Trainer(lbfgs.train, False, lbfgs.BYTES_PER_WEIGHT),
    "owl-qn": Trainer(owlqn.train, True, owlqn.BYTES_PER_WEIGHT),
    "sgd": Trainer(stochastic.train, False, stochastic.BYTES_PER_WEIGHT),
    "sgd-l1": Trainer(stochastic.train, True, stochastic.BYTES_PER_WEIGHT_L1),
    "cg": Trainer(conjugate_gradient.train_polak_ribiere, False, conjugate_gradient.BYTES_PER_WEIGHT),
    "cg-fr": Trainer(conjugate_gradient.train_fletcher_reeves, False, conjugate_gradient.BYTES_PER_WEIGHT),
    "cd": Trainer(coordinate_descent.train, True, 0, by_blocks=True),
    "bcd": Trainer(block_descent.train, True, 0, by_blocks=True),
}


def default_trainer(penalty):
    """The fastest road to the optimum."""
    return "working-set" if penalty.rho1 > 0.0 else "hybrid"
