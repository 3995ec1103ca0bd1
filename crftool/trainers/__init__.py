"""How it is minimised: one module an algorithm, and the table of their names."""

from dataclasses import dataclass
from typing import Callable

from crftool.trainers import hybrid, lbfgs, owlqn, stochastic


@dataclass(frozen=True)
class Trainer:
    train: Callable                  # see crftool.trainers.base
    allows_l1: bool
    bytes_per_weight: int            # what it keeps in memory for each weight, theta included


TRAINERS = {
    "hybrid": Trainer(hybrid.train, False, hybrid.BYTES_PER_WEIGHT),
    "l-bfgs": Trainer(lbfgs.train, False, lbfgs.BYTES_PER_WEIGHT),
    "owl-qn": Trainer(owlqn.train, True, owlqn.BYTES_PER_WEIGHT),
    "sgd": Trainer(stochastic.train, False, stochastic.BYTES_PER_WEIGHT),
    "sgd-l1": Trainer(stochastic.train, True, stochastic.BYTES_PER_WEIGHT_L1),
}


def default_trainer(penalty):
    return "owl-qn" if penalty.rho1 > 0.0 else "hybrid"
