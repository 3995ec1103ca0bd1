"""How it is minimised: one module an algorithm, and the table of their names."""

from dataclasses import dataclass
from typing import Callable

from crftool.trainers import conjugate_gradient, hybrid, lbfgs, owlqn, stochastic, working_set


@dataclass(frozen=True)
class Trainer:
    train: Callable                  # see crftool.trainers.base
    allows_l1: bool
    bytes_per_weight: int            # what it keeps in memory for each weight, theta included
    summary: str                     # for the help


TRAINERS = {
    "hybrid": Trainer(hybrid.train, False, hybrid.BYTES_PER_WEIGHT, "stochastic start, then scaled L-BFGS"),
    "working-set": Trainer(working_set.train, True, working_set.BYTES_PER_WEIGHT,
                           "stochastic start, then a proximal quasi-Newton method on few weights"),
    "l-bfgs": Trainer(lbfgs.train, False, lbfgs.BYTES_PER_WEIGHT, "as CRF++, CRFsuite and Wapiti"),
    "owl-qn": Trainer(owlqn.train, True, owlqn.BYTES_PER_WEIGHT, "the same for l1 penalties"),
    "sgd": Trainer(stochastic.train, False, stochastic.BYTES_PER_WEIGHT, "stochastic descent alone; stops near the optimum"),
    "sgd-l1": Trainer(stochastic.train, True, stochastic.BYTES_PER_WEIGHT_L1, "the same for l1 penalties"),
    "cg": Trainer(conjugate_gradient.train_polak_ribiere, False, conjugate_gradient.BYTES_PER_WEIGHT,
                  "conjugate gradients, Polak-Ribiere"),
    "cg-fr": Trainer(conjugate_gradient.train_fletcher_reeves, False, conjugate_gradient.BYTES_PER_WEIGHT,
                     "conjugate gradients, Fletcher-Reeves"),
}


def default_trainer(penalty):
    """The fastest road to the optimum."""
    return "working-set" if penalty.rho1 > 0.0 else "hybrid"
