"""The elastic net: rho1 |theta|_1 + (rho2 / 2) |theta|^2, unscaled, once for the whole problem; and a group
penalty, rho_group times the sum over observations of the 2-norm of all their weights."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ElasticNet:
    rho1: float = 0.0
    rho2: float = 1.0
    rho_group: float = 0.0           # block trainers only

    def value(self, l1_norm, squared_norm, group_norms=0.0):
        return self.rho1 * l1_norm + 0.5 * self.rho2 * squared_norm + self.rho_group * group_norms
