"""How it is minimised: one module an algorithm, and the table of their names."""

from crftool.trainers import quasi_newton

# name -> (train function, needs an l1 penalty, allows an l1 penalty)
TRAINERS = {
    "l-bfgs": (quasi_newton.train, False, False),
    "owl-qn": (quasi_newton.train, False, True),
}
