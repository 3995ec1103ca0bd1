"""crftool learn"""

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import click

from crftool.cli.options import (chosen_inference, constrain_option, inference_options, make_pool, parse_size,
                                 read_config, threads_option)
from crftool.cli.progress import Progress, graceful_interrupts, reading_bar, say
from crftool.errors import CrftoolError

# CRF++'s names for what the penalties say here.
CRFPP_ALGORITHMS = {"crf": "l2", "crf-l2": "l2", "crf-l1": "l1"}


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
    group: float
    separate_blocks: bool
    grow: bool
    no_revisit: bool
    exact_hessian: bool


EXAMPLES = """\b
Examples:
  crftool learn chunking train.txt chunk.model
  crftool learn -c 4 -f 3 my.template train.txt.gz my.model    as CRF++ would
  crftool learn --rho1 1 my.template train.txt small.model     few non-zero weights
  crftool learn -a bcd --rho1 0.2 my.template train.txt my.model   millions of label pairs, few kept
  crftool learn --dev dev.txt my.template train.txt my.model   keep the best on dev.txt
  zcat part*.gz | crftool learn my.template - my.model
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("template")
@click.argument("train")
@click.argument("model")
@click.option("-a", "--algorithm", metavar="NAME", default="auto", show_default=True,
              type=click.Choice(["auto", "l-bfgs", "owl-qn", "cd", "bcd", *CRFPP_ALGORITHMS], case_sensitive=False),
              help="How to minimise: l-bfgs (no --rho1), owl-qn (any penalty), or auto, the one that fits; bcd, "
                   "observation after observation, for very many features under --rho1; cd, weight after weight. "
                   "CRF++'s CRF-L2 and CRF-L1 are understood: the penalty of -c, quadratic or absolute.")
@click.option("--rho1", type=click.FloatRange(min=0.0), metavar="X", default=0.0, show_default=True,
              help="Weight of the l1 penalty, the sum of |weight|. Makes most weights exactly zero.")
@click.option("--rho2", type=click.FloatRange(min=0.0), metavar="X", default=None,
              help="Weight of the l2 penalty, half the sum of squares.  [default: 1, or 0 with --rho1]")
@click.option("-c", "--cost", type=click.FloatRange(min=0.0, min_open=True), metavar="C", default=None,
              help="CRF++'s C: the same as --rho2 1/C (with -a CRF-L1: --rho1 1/C). Large fits closely.")
@click.option("-f", "--min-count", type=click.IntRange(min=1), metavar="N", default=1, show_default=True,
              help="Keep only observations that occur at least N times.")
@click.option("--features", type=click.Choice(["all", "observed"]), default="all", show_default=True,
              help="Give an observation a weight for every label (and label pair), or only for those it was "
                   "seen with: smaller, a little less accurate.")
@click.option("--begin-label", is_flag=True,
              help="Let B templates act at the first token too, as if a begin label stood before it.")
@click.option("-e", "--tolerance", type=click.FloatRange(min=0.0, min_open=True), metavar="X", default=1e-5,
              show_default=True, help="Stop when the objective falls by less than this share in 5 iterations "
                                      "and the gradient is smaller than this share of the feature counts.")
@click.option("-m", "--max-iterations", type=click.IntRange(min=0), metavar="N", default=10_000, show_default=True,
              help="Stop after N iterations, with a warning.")
@click.option("--dev", metavar="FILE", help="Labelled file to score after each iteration; the weights that do "
                                            "best on it are kept.")
@click.option("--init", metavar="MODEL", help="Start from this model's weights. Labels and features may be new.")
@click.option("--group", type=click.FloatRange(min=0.0), metavar="X", default=0.0, show_default=True,
              help="For bcd: weight of a group penalty, the sum over observations of the norm of all their weights. "
                   "Whole observations leave.")
@click.option("--grow", is_flag=True, help="For cd and bcd: a label pair may get a weight only where the U line of the same "
                                           "text gives its second label one.")
@click.option("--no-revisit", is_flag=True, help="For cd and bcd: leave what is zero after its first visit at zero; a "
                                                 "check at the end says whether that was right.")
@click.option("--separate-blocks", is_flag=True, help="For bcd: visit the weights of U and of B lines apart.")
@click.option("--exact-hessian", is_flag=True, help="For cd: exact second derivatives instead of approximate ones (slow).")
@click.option("--seed", type=int, metavar="N", default=1, show_default=True,
              help="Seed of random choices. l-bfgs and owl-qn make none.")
@constrain_option
@inference_options
@threads_option
@click.option("--max-memory", metavar="SIZE", help="Refuse to start if training would need more, such as 800M or "
                                                   "4G.  [default: what is free]")
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=read_config,
              help="YAML file with options, such as `rho2: 0.5`; the command line has the last word.")
@click.option("--log-json", metavar="FILE", help="Write one JSON object an iteration to FILE.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also say which machine level and settings are used.")
def command(template, train, model, algorithm, rho1, rho2, cost, inference, log_domain, threads, max_memory, log_json,
            quiet, verbose, **others):
    """Train a labeller.

    TEMPLATE names the features (a file, or chunking, ner, pos, letter-to-sound for the ready ones). TRAIN
    holds the training sequences: one token a line, columns apart by spaces or tabs, the label last, an
    empty line between sequences; `-` is standard input, .gz, .bz2 and .xz are read as they are. The
    result goes to MODEL.

    What is minimised: the sum over sequences of -log p(labels | tokens), plus rho1 times the sum of
    |weight|, plus rho2/2 times the sum of squared weights.

    A line is printed after each iteration: objective, non-zero weights, share of training tokens whose
    most probable label is wrong, norm of the gradient, time. Ctrl-C stops and saves what there is.
    """
    settings = Settings(**_penalty(algorithm, rho1, rho2, cost),
                        inference=chosen_inference(inference, log_domain), **others)
    _check_blocks(settings)
    limit = None if max_memory is None else parse_size(max_memory)
    Job(template, train, model, settings, make_pool(threads), limit, log_json, quiet, verbose).run()


def _penalty(algorithm, rho1, rho2, cost):
    """(algorithm, rho1, rho2) from the options that can say them in several ways."""
    kind = CRFPP_ALGORITHMS.get(algorithm)
    if kind and (rho1 or rho2 is not None):
        raise click.UsageError(f"-a {algorithm} takes its penalty from -c; leave out --rho1 and --rho2.")
    if cost is not None and rho2 is not None:
        raise click.UsageError("-c C means --rho2 1/C; give one of them.")
    if kind == "l1":
        return {"algorithm": "owl-qn", "rho1": 1.0 / (cost or 1.0), "rho2": 0.0}
    if rho2 is None:
        rho2 = 1.0 / cost if cost is not None else 0.0 if rho1 else 1.0
    if kind == "l2":
        algorithm = "l-bfgs"
    if algorithm == "l-bfgs" and rho1:
        raise click.UsageError("l-bfgs cannot have an l1 penalty; use -a owl-qn or leave out --rho1.")
    return {"algorithm": algorithm, "rho1": rho1, "rho2": rho2}


def _check_blocks(settings):
    """Options that only cd or bcd can follow, and one that they cannot."""
    needs = {"group": ("bcd",), "separate_blocks": ("bcd",), "exact_hessian": ("cd",), "grow": ("cd", "bcd"),
             "no_revisit": ("cd", "bcd")}
    for option, algorithms in needs.items():
        if getattr(settings, option) and settings.algorithm not in algorithms:
            raise click.UsageError(f"--{option.replace('_', '-')} needs -a {' or -a '.join(algorithms)}.")
    if settings.algorithm in ("cd", "bcd") and settings.inference != "auto":
        raise click.UsageError(f"-a {settings.algorithm} has its own way of inference; leave out "
                               f"--inference {settings.inference}.")


def find_template(name):
    """The path of a template: a file, or the name of a ready one."""
    if os.path.exists(name) or name == "-":
        return name
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (os.path.join(package, "templates"), os.path.join(os.path.dirname(package), "templates")):
        path = os.path.join(folder, f"{name}.template")
        if os.sep not in name and os.path.exists(path):
            return path
    return name


class Job:
    """One training, from files to file."""

    def __init__(self, template, train, model, settings, pool, memory_limit, log_json, quiet, verbose):
        self.template, self.train, self.model, self.settings = template, train, model, settings
        self.pool, self.memory_limit, self.log_json = pool, memory_limit, log_json
        self.quiet, self.verbose = quiet, verbose
        self._best, self._best_theta, self._best_iteration = None, None, None

    def _say(self, text):
        if not self.quiet:
            say(text)

    def run(self):
        from crftool.cli import INTERRUPTED, census
        from crftool.corpus.constraints import check_labels, make_constraint, read_rules
        from crftool.corpus.dataset import read_labelled_data, read_training_data
        from crftool.corpus.reader import read_bytes
        from crftool.corpus.template import Template
        from crftool.files import check_writable
        from crftool.model import Model
        from crftool.objectives import ElasticNet, LogLoss
        from crftool.trainers import TRAINERS, default_trainer

        settings = self.settings
        check_writable(self.model)
        if self.log_json:
            check_writable(self.log_json)
        path = find_template(self.template)
        template = Template(read_bytes(path), path)
        for warning in template.warnings:
            say(f"warning: {warning}")
        penalty = ElasticNet(settings.rho1, settings.rho2, settings.group)
        name = default_trainer(penalty) if settings.algorithm == "auto" else settings.algorithm
        trainer = TRAINERS[name]
        initial = Model.load(settings.init) if settings.init else None
        with reading_bar(self.train, self.quiet) as watch:
            encoder, dataset = read_training_data(
                self.train, template, settings.begin_label, settings.min_count,
                initial.labels if initial else (), watch)
        if len(encoder.labels) < 2:
            raise CrftoolError(f"{self.train}: only one label, '{encoder.labels[0].decode('utf-8', 'replace')}'; "
                               "the last column must hold at least two")
        rules = read_rules(settings.constrain) if settings.constrain else b""
        self.constraint = make_constraint(rules, encoder.labels, settings.constrain)
        if self.constraint is not None:
            check_labels(self.constraint, dataset, encoder.labels, self.train)
        self.dev, self.dev_labels = read_labelled_data(settings.dev, encoder) if settings.dev else (None, None)
        estimate = census.estimate_memory(encoder, dataset, trainer.bytes_per_weight + 8 * bool(settings.dev),
                                          trainer.by_blocks)
        census.check_memory(encoder, estimate, self.memory_limit)
        if trainer.by_blocks:
            objective = self._block_loss(encoder, dataset)
        else:
            objective = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), self.pool,
                                settings.features == "observed", settings.inference, self.constraint)
        if not self.quiet:
            census.report(encoder, dataset, objective.candidates, estimate)
        if self.verbose:
            from crftool.kernels.vector import cpu_level
            self._say(f"{name}, rho1={settings.rho1:g}, rho2={settings.rho2:g}, {self.pool.threads} threads, "
                      f"{cpu_level()} instructions")
        result, interrupted = self._train(trainer, objective, penalty, encoder, initial)
        trained = Model.from_training(encoder, self._best_theta, self._record(name, result), rules)
        trained.save(self.model)
        peak = census.peak_memory()
        self._say(f"{self.model}: {trained.active} non-zero weights, {os.path.getsize(self.model)} bytes"
                  + (f"; peak memory {peak / census.MEGABYTE:.0f} MB" if peak else ""))
        if interrupted:
            raise click.exceptions.Exit(INTERRUPTED)

    def _block_loss(self, encoder, dataset):
        from crftool.corpus.occurrences import paired_bigrams
        from crftool.objectives.blockloss import BlockLoss, BlockOptions

        settings = self.settings
        options = BlockOptions(settings.separate_blocks, settings.grow, settings.no_revisit, settings.exact_hessian)
        return BlockLoss(dataset, encoder.space, self.pool, paired_bigrams(encoder),
                         settings.features == "observed", self.constraint, options)

    def _train(self, trainer, objective, penalty, encoder, initial):
        import numpy as np

        from crftool.model import SparseWeights
        from crftool.trainers.base import Problem, Stop, count_scale

        settings, dataset = self.settings, objective.dataset
        theta = SparseWeights(encoder.space) if trainer.by_blocks else np.zeros(objective.F)
        if initial is not None:
            theta, carried = initial.initial_weights(encoder)
            if trainer.by_blocks:
                theta = SparseWeights.from_dense(encoder.space, theta)
            self._say(f"{settings.init}: {carried} observations carried over")
        stop = Stop(settings.tolerance, count_scale(dataset, encoder.space), settings.max_iterations)
        with ExitStack() as stack:
            log = stack.enter_context(open(self.log_json, "w")) if self.log_json else None
            progress = Progress(stop.tolerance * stop.scale, dataset.N, self.quiet, log)
            stack.callback(progress.close)
            requests = stack.enter_context(graceful_interrupts())

            def report(iteration):
                dev = self._score_dev(encoder, theta, iteration)
                progress.iteration(iteration, dev)
                return "interrupted" if requests else None

            result = trainer.train(Problem(objective, penalty, self.pool), theta, stop, report)
        if self.dev is None:
            self._best_theta, self._best_iteration = theta, result.iteration
        self._end(result, bool(requests))
        return result, bool(requests)

    def _end(self, result, interrupted):
        if result.converged:
            self._say(result.reason)
        else:
            remedy = "the model is what training had reached" if interrupted else \
                "the optimum was not reached: raise --max-iterations or --tolerance"
            say(f"warning: {result.reason}; {remedy}")
        if self.dev is not None:
            self._say(f"best on {self.settings.dev}: iteration {self._best_iteration.number}, "
                      f"token error {self._best.token_error:.2f}%, F1 {self._best.f1:.2f}")

    def _score_dev(self, encoder, theta, iteration):
        """Scores on the dev file; keeps the weights that do best: by F1, then by token error."""
        if self.dev is None:
            return None
        from crftool.decode import Lattices, decode
        from crftool.evaluate import score
        from crftool.model import SparseWeights, TrainedWeights

        weights = theta if isinstance(theta, SparseWeights) else TrainedWeights(encoder.space, theta)
        lattices = Lattices(self.dev, weights, self.pool, self.settings.inference,
                            self.constraint)
        scores = score(self.dev.labels, decode(lattices).labels, self.dev.offsets, self.dev_labels)
        if self._best is None or (scores.f1, scores.correct_tokens) > (self._best.f1, self._best.correct_tokens):
            self._best, self._best_iteration = scores, iteration
            if self._best_theta is None or isinstance(theta, SparseWeights):
                self._best_theta = theta.copy()
            else:
                self._best_theta[:] = theta
        return scores

    def _record(self, name, result):
        """Everything about the training that belongs into the model; nothing that changes between equal runs."""
        record = asdict(self.settings)
        record.update(algorithm=name, template=self.template, train=self.train, stopped=result.reason,
                      iterations=self._best_iteration.number, objective=self._best_iteration.objective)
        return record
