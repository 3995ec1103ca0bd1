"""What the options of `learn` say together: one record, and which of them contradict each other."""

from dataclasses import dataclass

import click

# CRF++'s names for what the penalties say here.
CRFPP_ALGORITHMS = {"crf": "l2", "crf-l2": "l2", "crf-l1": "l1"}
# Those of crftool.trainers, which is not imported before it is needed; a test compares.
ALGORITHMS = ("hybrid", "working-set", "l-bfgs", "owl-qn", "sgd", "sgd-l1", "cg", "cg-fr", "cd", "bcd")
WITHOUT_L1 = ("hybrid", "l-bfgs", "sgd", "cg", "cg-fr")


@dataclass(frozen=True)
class Settings:
    """What decides the model; recorded in it."""

    algorithm: str
    rho1: float
    rho2: float
    min_count: int
    features: str
    begin_label: bool
    tolerance: float
    max_iterations: int
    seed: int
    inference: str
    constrain: str | None
    dev: str | None
    init: str | None
    only: str | None
    path: int | None
    keep: str | None
    group: float
    separate_blocks: bool
    grow: bool
    no_revisit: bool
    exact_hessian: bool


def chosen_penalty(algorithm, rho1, rho2, cost):
    """(algorithm, rho1, rho2) from the options that can say them in several ways."""
    kind = CRFPP_ALGORITHMS.get(algorithm)
    if kind and (rho1 or rho2 is not None):
        raise click.UsageError(f"-a {algorithm} takes its penalty from -c; leave out --rho1 and --rho2.")
    if cost is not None and rho2 is not None:
        raise click.UsageError("-c C means --rho2 1/C; give one of them.")
    if kind == "l1":
        return {"algorithm": "auto", "rho1": 1.0 / (cost or 1.0), "rho2": 0.0}
    if rho2 is None:
        rho2 = 1.0 / cost if cost is not None else 0.0 if rho1 else 1.0
    if kind == "l2":
        algorithm = "auto"
    if algorithm in WITHOUT_L1 and rho1:
        raise click.UsageError(f"{algorithm} cannot have an l1 penalty; use -a working-set or leave out --rho1.")
    return {"algorithm": algorithm, "rho1": rho1, "rho2": rho2}


def check_blocks(settings):
    """Options that only cd or bcd can follow, and one that they cannot."""
    needs = {"group": ("bcd",), "separate_blocks": ("bcd",), "exact_hessian": ("cd",), "grow": ("cd", "bcd"),
             "no_revisit": ("cd", "bcd")}
    for option, algorithms in needs.items():
        if not getattr(settings, option):
            continue
        if settings.algorithm not in algorithms:
            raise click.UsageError(f"--{option.replace('_', '-')} needs -a {' or -a '.join(algorithms)}.")
    if settings.algorithm in ("cd", "bcd") and settings.only:
        raise click.UsageError(f"--only needs another algorithm than {settings.algorithm}.")
    if settings.algorithm in ("cd", "bcd") and settings.inference != "auto":
        raise click.UsageError(f"-a {settings.algorithm} has its own way of inference; leave out "
                               f"--inference {settings.inference}.")
