"""The elastic net: rho1 |theta|_1 + (rho2 / 2) |theta|^2, unscaled, once for the whole problem."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ElasticNet:
    rho1: float = 0.0
    rho2: float = 1.0

    def value(self, l1_norm, squared_norm):
        return self.rho1 * l1_norm + 0.5 * self.rho2 * squared_norm
