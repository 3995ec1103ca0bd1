"""What is minimised. An objective has `F` weights and

    value_and_gradient(theta, grad) -> value        the smooth loss, without penalty
    token_errors                                    at the theta of that call
"""

from crftool.objectives.logloss import LogLoss
from crftool.objectives.penalty import ElasticNet

__all__ = ["ElasticNet", "LogLoss"]
