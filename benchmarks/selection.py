"""Test error against the number of features, for several ways to choose them (figure 6 of the paper).

    python benchmarks/selection.py [--corpus conll2000|conll2002] [--sentences N] [--sizes 1000,10000]
                                   [--methods count,mi,...] [--algorithms auto,bcd,owl-qn] [--page FILE.html]

CRFTOOL_DATA names the corpora. Prints a row for each model (method, features, test error, F1, seconds),
says whether the paper's order holds at each size (l1 >= threshold >= mi >= count), and draws the plot.
Filters and thresholds are trained with --rho2; l1 models follow a path of rho1. All methods but the l1
ones can have any number of features; an l1 model is counted at the sizes that its path passes, the error
between two of its models being read from the straight line between them on the logarithmic axis.
"""

import argparse
import gzip
import math
import os
import sys
import tempfile
import time
from pathlib import Path

from crftool.corpus.dataset import read_labelled_data, read_training_data
from crftool.corpus.template import Template
from crftool.selection import METHODS, plot
from crftool.selection.lab import Lab, Training
from crftool.selection.report import STYLE
from crftool.selection.rows import Plan

CORPORA = {"conll2000": ("train.txt.gz", "test.txt.gz", "chunking"),
           "conll2002": ("esp.train.gz", "esp.testb.gz", "ner")}
FILTERS = ("count", "mi", "chi2")
L1_ALGORITHMS = "auto,bcd,owl-qn"
SIZES = "1000,3000,10000,30000,100000,300000,1000000"
ORDER = ("l1", "threshold", "mi", "count")       # best first, says the paper


def first_sentences(source, n, folder):
    """A file with the first n sentences of a compressed one; n = 0 for all."""
    with gzip.open(source) as file:
        text = file.read()
    if n:
        text = b"\n\n".join(text.split(b"\n\n")[:n]) + b"\n"
    target = os.path.join(folder, source.name.removesuffix(".gz"))
    Path(target).write_bytes(text)
    return target


def points(name, method, plan, lab):
    """[(features, error)] of a method, rising; prints a row for each model as soon as it is scored."""
    found = []
    for row in METHODS[method](lab, plan).rows():
        outcome = row.outcome
        size = outcome.active_u + outcome.active_b
        if size:
            found.append((size, outcome.error))
            print(f"{name}\t{size:.0f}\t{outcome.error:.3f}\t{outcome.f1:.2f}\t{outcome.seconds:.1f}", flush=True)
    lab.close()
    return sorted(found)


def error_at(found, size):
    """The error of a method at a size, between its models; None outside them."""
    for (a, error_a), (b, error_b) in zip(found, found[1:]):
        if a <= size <= b:
            share = math.log(size / a) / math.log(b / a) if b > a else 0.0
            return error_a + share * (error_b - error_a)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", choices=CORPORA, default="conll2000")
    parser.add_argument("--sentences", type=int, default=0, help="of the training data; 0 is all")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--methods", default=",".join((*FILTERS, "threshold", "l1")))
    parser.add_argument("--algorithms", default=L1_ALGORITHMS, help="of l1")
    parser.add_argument("--rho1", type=float, default=0.2, help="the end of the path")
    parser.add_argument("--rho2", type=float, default=1.0, help="of filters and thresholds")
    parser.add_argument("--path", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--page", help="where to write the plot, as HTML")
    options = parser.parse_args()
    data = os.environ.get("CRFTOOL_DATA")
    if not data:
        sys.exit("CRFTOOL_DATA does not name the folder of corpora")
    train, test, template = CORPORA[options.corpus]
    path = Path(__file__).parents[1] / "templates" / f"{template}.template"
    with tempfile.TemporaryDirectory() as folder:
        train, test = (first_sentences(Path(data, options.corpus, name), n, folder)
                       for name, n in ((train, options.sentences), (test, 0)))
        encoder, dataset = read_training_data(train, Template(path.read_bytes(), str(path)))
        dev, labels = read_labelled_data(test, encoder)
    F = encoder.space.F
    print(f"# {options.corpus}: {dataset.S} sequences, {dataset.N} tokens, {F} features", flush=True)
    sizes = [int(size) for size in options.sizes.split(",") if int(size) <= F]
    curves = {}
    print("method\tfeatures\terror\tf1\tseconds")
    for method in options.methods.split(","):
        algorithms = options.algorithms.split(",") if method == "l1" else ["auto"]
        for algorithm in algorithms:
            plan = Plan(method, [options.rho1], [0.0], path=options.path) if method == "l1" else \
                Plan(method, None, [options.rho2], numbers=sizes)
            name = f"l1 {algorithm}" if method == "l1" else method
            begun = time.monotonic()
            curves[name] = points(name, method, plan, Lab(
                encoder, dataset, dev, labels, threads=options.threads,
                training=Training(algorithm, options.tolerance)))
            print(f"# {name}: {time.monotonic() - begun:.1f} s in all", flush=True)
    for size in sizes:
        errors = {name.split()[0]: error_at(found, size) for name, found in curves.items()}
        ranked = [(errors[name], name) for name in ORDER if errors.get(name) is not None]
        verdict = "holds" if [name for _, name in ranked] == [name for _, name in sorted(ranked)] else "does not hold"
        print(f"# {size} features: " + ", ".join(f"{name} {error:.2f}%" for error, name in ranked)
              + (f"; the paper's order {verdict}" if len(ranked) > 1 else ""))
    if options.page:
        series = {name: [(size, error, f"{name}: {size:.0f} features, {error:.2f}%") for size, error in found
                         if 2 * size >= min(sizes)] for name, found in curves.items()}
        svg = plot.lines(series, "features", "test error, %", log_x=True)
        Path(options.page).write_text(f'<!DOCTYPE html><meta charset="utf-8"><title>{options.corpus}</title>'
                                      f"<style>{STYLE}</style><h1>{options.corpus}</h1>{svg}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
