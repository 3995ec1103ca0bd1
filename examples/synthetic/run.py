"""Section 6.1 of Sokolovska, Lavergne, Cappé, Yvon (2010): eight models of sequences drawn from a small HMM.

    python3 run.py [--replications 100] [--seed 1]

The paper shows its HMM only as a picture; this one is made from its description: 6 labels, 5 symbols,
sequences of length 5, transitions uniform except for two label pairs, six dominant emissions, two labels
that share a symbol; a Bayes error of 15.4%.
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

from crftool.corpus.dataset import read_labelled_data, read_training_data
from crftool.corpus.occurrences import paired_bigrams
from crftool.corpus.template import Template
from crftool.decode import Lattices, decode
from crftool.kernels.pool import Pool
from crftool.model import TrainedWeights
from crftool.objectives import BlockLoss, ElasticNet, LogLoss
from crftool.trainers import TRAINERS
from crftool.trainers.base import Problem, Stop, count_scale

Y, X, T, N, TEST = 6, 5, 5, 10, 200
BAYES_ERROR = 0.154
BOTH, BIGRAMS, UNIGRAMS = b"*:%x[0,0]", b"B:%x[0,0]", b"U:%x[0,0]"
SPARSE = {"M4": 0.001, "M5": 0.01, "M6": 0.1, "M7": 1.0, "M8": 2.5}
PAPER = {"M4": (28.5, 50.6), "M5": (15.0, 26.0), "M6": (10.9, 17.2), "M7": (6.2, 4.9), "M8": (5.8, 1.3)}
PAPER_ERRORS = {"M1": (6.4, 18.5), "M7": (10.3, 17.9)}


def hmm(dominant):
    """(transitions [Y][Y], emissions [Y][X]); `dominant` is the probability of a label's own symbol."""
    transitions = np.full((Y, Y), 1 / Y)
    transitions[0] = transitions[1] = 0.08           # what comes before tells labels 4 and 5 apart, which look alike
    transitions[0, 4] = transitions[1, 5] = 0.6
    emissions = np.full((Y, X), (1 - dominant) / (X - 1))
    emissions[np.arange(Y), np.minimum(np.arange(Y), X - 1)] = dominant
    return transitions, emissions


def bayes_error(transitions, emissions):
    """1 - expected probability of the most probable label, over all X^T sequences of symbols."""
    x = np.array(list(itertools.product(range(X), repeat=T)))
    alpha, beta = [np.full(Y, 1 / Y) * emissions[:, x[:, 0]].T], [np.ones((len(x), Y))]
    for t in range(1, T):
        alpha.append(alpha[-1] @ transitions * emissions[:, x[:, t]].T)
    for t in range(T - 1, 0, -1):
        beta.insert(0, (beta[0] * emissions[:, x[:, t]].T) @ transitions.T)
    return 1 - np.mean([(a * b).max(axis=1).sum() for a, b in zip(alpha, beta)])


def fitted_hmm():
    low, high = 0.5, 0.999
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bayes_error(*hmm(middle)) > BAYES_ERROR else (low, middle)
    return hmm(low)


def sample(rng, transitions, emissions, n):
    lines = []
    for _ in range(n):
        y = rng.integers(Y)
        for t in range(T):
            y = rng.choice(Y, p=transitions[y]) if t else y
            lines.append(f"x{rng.choice(X, p=emissions[y])} y{y}\n")
        lines.append("\n")
    return "".join(lines)


class Experiment:
    def __init__(self, folder, seed):
        self.train, self.test = folder / "train.txt", folder / "test.txt"
        self.rng, self.model, self.pool = np.random.default_rng(seed), fitted_hmm(), Pool(1)

    def draw(self):
        self.train.write_text(sample(self.rng, *self.model, N))
        self.test.write_text(sample(self.rng, *self.model, TEST))

    def fit(self, template, algorithm, rho1, rho2, iterations=500, tolerance=1e-4):
        """(train error, test error, active mu, active lam, objective after each iteration)"""
        labels = [f"y{y}".encode() for y in range(Y)]
        encoder, data = read_training_data(str(self.train), Template(template), more_labels=labels)
        space, theta, values = encoder.space, np.zeros(encoder.space.F), []
        trainer = TRAINERS[algorithm]
        loss = BlockLoss(data, space, self.pool, paired_bigrams(encoder)) if trainer.by_blocks else \
            LogLoss(data, space, encoder.unigrams.groups(), self.pool)

        def report(iteration):
            values.append(iteration.objective)

        trainer.train(Problem(loss, ElasticNet(rho1, rho2), self.pool), theta,
                      Stop(tolerance, count_scale(data, space), iterations), report)
        mu, lam = space.split(theta)
        return (self.error(encoder, theta, self.train), self.error(encoder, theta, self.test),
                np.count_nonzero(mu), np.count_nonzero(lam), values)

    def error(self, encoder, theta, path):
        data, _ = read_labelled_data(str(path), encoder)
        found = decode(Lattices(data, TrainedWeights(encoder.space, theta), self.pool)).labels
        return 100 * np.mean(found != data.labels)

    def best_rho2(self, template):
        """The l2 penalty with the lowest error on 20 draws of their own."""
        grid = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
        errors = np.zeros(len(grid))
        for _ in range(20):
            self.draw()
            errors += [self.fit(template, "l-bfgs", 0.0, rho2)[1] for rho2 in grid]
        return grid[int(errors.argmin())]


def quartiles(values):
    return "{:5.1f} {:5.1f} {:5.1f}".format(*np.percentile(values, [25, 50, 75]))


def figure3(experiment, sweeps=10):
    """Objective and test error after each sweep, coordinate by coordinate and block by block, on one draw."""
    experiment.draw()
    print("\nFigure 3: M7 after each sweep, objective and test error")
    print(f"{'':10}" + "".join(f"{n:9d}" for n in range(sweeps + 1)))
    for algorithm in ("cd", "bcd"):
        fits = [experiment.fit(BOTH, algorithm, 1.0, 0.001, n, 1e-12) for n in range(sweeps + 1)]
        print(f"{algorithm:10}" + "".join(f"{values[-1]:9.4f}" for *_, values in fits))
        print(f"{algorithm + ' test%':10}" + "".join(f"{test:9.1f}" for _, test, *_ in fits))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(Path(folder), arguments.seed)
        print(f"Bayes error {100 * bayes_error(*experiment.model):.1f}% (paper: 15.4%)")
        models = {name: (template, "l-bfgs", 0.0, experiment.best_rho2(template))
                  for name, template in (("M1", BOTH), ("M2", BIGRAMS), ("M3", UNIGRAMS))}
        models |= {name: (BOTH, "bcd", rho1, 0.001) for name, rho1 in SPARSE.items()}
        rows = {name: [] for name in models}
        for _ in range(arguments.replications):
            experiment.draw()
            for name, settings in models.items():
                rows[name].append(experiment.fit(*settings)[:4])
        print("\nTable 1 and figure 2: means over the replications; quartiles of the errors")
        print("model   rho1    rho2 | active mu  lam  (paper)       | train%  test%  (paper)       | train 25, 50, 75% "
              "| test 25, 50, 75%")
        for name, (_, _, rho1, rho2) in models.items():
            train, test, mu, lam = np.array(rows[name], float).T
            active = "({:.1f} {:.1f})".format(*PAPER[name]) if name in PAPER else ""
            errors = "({:.1f} {:.1f})".format(*PAPER_ERRORS[name]) if name in PAPER_ERRORS else ""
            print(f"{name:5}  {rho1:5g}  {rho2:6g} | {mu.mean():9.1f} {lam.mean():5.1f}  {active:12} | "
                  f"{train.mean():5.1f}  {test.mean():5.1f}  {errors:12} | {quartiles(train)} | {quartiles(test)}")
        figure3(experiment)


if __name__ == "__main__":
    main()
