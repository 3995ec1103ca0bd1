"""What is minimised. An objective has `F` weights and

    value_and_gradient(theta, grad) -> value        the smooth loss, without penalty
    token_errors                                    at the theta of that call

BlockLoss is the same log loss for trainers that work on one observation after the other.
"""

from crftool.objectives.blockloss import BlockLoss
from crftool.objectives.logloss import LogLoss
from crftool.objectives.penalty import ElasticNet

__all__ = ["BlockLoss", "ElasticNet", "LogLoss"]
