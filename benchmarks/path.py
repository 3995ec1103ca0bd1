"""What a path of rho1 costs, in trainings from scratch at its last value.

    python benchmarks/path.py [--sentences N] [--algorithms working-set,owl-qn] [--tolerance X] [--rounds N]

CRFTOOL_DATA names the corpora. CoNLL-2000 with the chunking template: 20 values of rho1, the last one 1, warm
starts; and one training at rho1 = 1, by the same algorithm to the same tolerance. Both by processor time, in
turn, with one thread. The objectives of the last model are printed too: they must agree.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from selection import first_sentences

from crftool.corpus.dataset import read_training_data
from crftool.corpus.template import Template
from crftool.kernels.pool import Pool
from crftool.objectives import ElasticNet, LogLoss
from crftool.trainers import TRAINERS
from crftool.trainers.base import Problem, Stop, count_scale
from crftool.trainers.path import Path as RhoPath, follow, geometric_grid, largest_rho1

LAST, LENGTH = 1.0, 20


def scratch(trainer, loss, make_stop):
    """(processor seconds, Iterations, objective) of one training."""
    begun, seen, theta = time.process_time(), [], np.zeros(loss.F)
    result = trainer.train(Problem(loss, ElasticNet(LAST, 0.0), loss.pool), theta, make_stop(1.0), seen.append)
    return time.process_time() - begun, len(seen), result.iteration.objective


def whole_path(trainer, loss, make_stop):
    """The same of a path, from the search for its first value on."""
    begun, seen, theta = time.process_time(), [], np.zeros(loss.F)
    grid = geometric_grid(largest_rho1(loss, loss.pool), LAST, LENGTH)
    *_, last = follow(RhoPath(trainer.train, loss, 0.0, theta, make_stop, loss.pool, seen.append, least=LAST,
                            merge=trainer.screens), grid)
    return time.process_time() - begun, len(seen), last.objective


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=0, help="of the training data; 0 is all")
    parser.add_argument("--algorithms", default="working-set")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    data = os.environ.get("CRFTOOL_DATA")
    if not data:
        sys.exit("CRFTOOL_DATA does not name the folder of corpora")
    path = Path(__file__).parents[1] / "templates" / "chunking.template"
    with tempfile.TemporaryDirectory() as folder:
        train = first_sentences(Path(data, "conll2000", "train.txt.gz"), options.sentences, folder)
        encoder, dataset = read_training_data(train, Template(path.read_bytes(), str(path)))
    loss = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), Pool())
    scale = count_scale(dataset, encoder.space)

    def make_stop(factor):
        return Stop(factor * options.tolerance, scale, 10_000)

    print(f"# {dataset.S} sequences, {encoder.space.F} features, tolerance {options.tolerance:g}")
    print("algorithm\twhat\tseconds\titerations\tobjective\tratio")
    for name in options.algorithms.split(","):
        for _ in range(options.rounds):
            one, path = (measure(TRAINERS[name], loss, make_stop) for measure in (scratch, whole_path))
            for what, found, ratio in (("scratch", one, 1.0), ("path", path, path[0] / one[0])):
                print(f"{name}\t{what}\t{found[0]:.2f}\t{found[1]}\t{found[2]:.4f}\t{ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
