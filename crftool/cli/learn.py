"""crftool learn"""

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import click

from crftool.cli.keeper import Keeper
from crftool.cli.options import (FiniteRange, chosen_inference, constrain_option, inference_options, make_pool, parse_size,
                                 read_config, threads_option)
from crftool.cli.progress import Progress, graceful_interrupts, reading_bar, say
from crftool.errors import CrftoolError

# CRF++'s names for what the penalties say here.
CRFPP_ALGORITHMS = {"crf": "l2", "crf-l2": "l2", "crf-l1": "l1"}
# Those of crftool.trainers, which is not imported before it is needed; a test compares.
ALGORITHMS = ("hybrid", "working-set", "l-bfgs", "owl-qn", "sgd", "sgd-l1", "cg", "cg-fr", "cd", "bcd")
WITHOUT_L1 = ("hybrid", "l-bfgs", "sgd", "cg", "cg-fr")
PATH_LENGTH = 20                     # values of rho1, if --path does not say how many


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


EXAMPLES = """\b
Examples:
  crftool learn chunking train.txt chunk.model
  crftool learn -c 4 -f 3 my.template train.txt.gz my.model    as CRF++ would
  crftool learn --rho1 1 my.template train.txt small.model     few non-zero weights
  crftool learn -a bcd --rho1 0.2 my.template train.txt my.model   millions of label pairs, few kept
  crftool learn --dev dev.txt my.template train.txt my.model   keep the best on dev.txt
  crftool learn --path 20 --rho1 0.5 --dev dev.txt my.template train.txt my.model > path.tsv
  crftool learn --checkpoint my.state my.template train.txt my.model   after a crash, --resume my.state
  zcat part*.gz | crftool learn my.template - my.model
"""


class PathCommand(click.Command):
    """`--path` may stand without its number, even before an argument."""

    def parse_args(self, ctx, args):
        following = [*args[1:], ""]
        return super().parse_args(ctx, [
            f"--path={PATH_LENGTH}" if argument == "--path" and not next_one.isdigit() else argument
            for argument, next_one in zip(args, following)])


@click.command(cls=PathCommand, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("template")
@click.argument("train")
@click.argument("model")
@click.option("-a", "--algorithm", metavar="NAME", default="auto", show_default=True,
              type=click.Choice(["auto", *ALGORITHMS, *CRFPP_ALGORITHMS], case_sensitive=False),
              help="How to minimise. Without --rho1: hybrid (stochastic start, then scaled L-BFGS), l-bfgs, sgd, cg, "
                   "cg-fr. With any penalty: working-set (stochastic start, then a proximal quasi-Newton method), "
                   "owl-qn, sgd-l1. All come to the same model, but sgd and sgd-l1 stop near it. auto is the "
                   "fastest: hybrid, or working-set with --rho1. bcd works observation after observation, for very many "
                   "features under --rho1; cd weight after weight. "
                   "CRF++'s CRF-L2 and CRF-L1 are understood: the penalty of -c, quadratic or absolute.")
@click.option("--rho1", type=FiniteRange(min=0.0), metavar="X", default=0.0, show_default=True,
              help="Weight of the l1 penalty, the sum of |weight|. Makes most weights exactly zero.")
@click.option("--rho2", type=FiniteRange(min=0.0), metavar="X", default=None,
              help="Weight of the l2 penalty, half the sum of squares.  [default: 1, or 0 with --rho1]")
@click.option("-c", "--cost", type=FiniteRange(min=0.0, min_open=True), metavar="C", default=None,
              help="CRF++'s C: the same as --rho2 1/C (with -a CRF-L1: --rho1 1/C). Large fits closely.")
@click.option("-f", "--min-count", type=click.IntRange(min=1), metavar="N", default=1, show_default=True,
              help="Keep only observations that occur at least N times.")
@click.option("--features", type=click.Choice(["all", "observed"]), default="all", show_default=True,
              help="Give an observation a weight for every label (and label pair), or only for those it was "
                   "seen with: smaller, a little less accurate.")
@click.option("--begin-label", is_flag=True,
              help="Let B templates act at the first token too, as if a begin label stood before it.")
@click.option("-e", "--tolerance", type=FiniteRange(min=0.0, min_open=True), metavar="X", default=1e-5,
              show_default=True, help="Stop when the objective falls by less than this share in 5 iterations "
                                      "and the gradient is smaller than this share of the feature counts.")
@click.option("-m", "--max-iterations", type=click.IntRange(min=0), metavar="N", default=10_000, show_default=True,
              help="Stop after N iterations, with a warning.")
@click.option("--dev", metavar="FILE", help="Labelled file to score after each iteration; the weights that do "
                                            "best on it are kept.")
@click.option("--keep", type=click.Choice(["best", "last"]), default=None,
              help="Which weights to keep: best on --dev (by F1 if labels make phrases, then token error), or the last.  [default: best "
                   "with --dev]")
@click.option("--path", type=click.IntRange(min=1), metavar="[N]", default=None,
              help=f"Train for N values of rho1 ({PATH_LENGTH} if not given), from the smallest one that gives an "
                   "empty model down to --rho1, each from the one before; print a row for each. --dev then scores "
                   "each value of rho1.")
@click.option("--only", metavar="MODEL", help="Train only the weights that are not zero in this model; the others "
                                              "stay zero.")
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
              help="Seed of random choices: the order of sequences in stochastic descent.")
@constrain_option
@inference_options
@threads_option
@click.option("--max-memory", metavar="SIZE", help="Refuse to start if training would need more, such as 800M or "
                                                   "4G.  [default: what is free]")
@click.option("--dry-run", is_flag=True, help="Only read TRAIN and say what training would take: observations, weights "
                                              "and memory of every template. MODEL is not touched.")
@click.option("--checkpoint", metavar="FILE", help="Keep the state of training in FILE, so that --resume can go on after a "
                                                   "crash or Ctrl-C.")
@click.option("--checkpoint-every", type=FiniteRange(min=0.0), metavar="N", default=60.0, show_default=True,
              help="Seconds between two states; 0 keeps every iteration.")
@click.option("--resume", metavar="FILE", help="Go on from the state in FILE, to the very model that the same command would "
                                               "have made without a break; new states go there, unless --checkpoint "
                                               "names another file.")
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=read_config,
              help="YAML file with options, such as `rho2: 0.5`; the command line has the last word.")
@click.option("--log-json", metavar="FILE", help="Write one JSON object an iteration to FILE.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also say which machine level and settings are used.")
def command(template, train, model, algorithm, rho1, rho2, cost, inference, log_domain, threads, max_memory, dry_run,
            checkpoint, checkpoint_every, resume, log_json, quiet, verbose, **others):
    """Train a labeller.

    TEMPLATE names the features (a file, or chunking, ner, pos, letter-to-sound for the ready ones). TRAIN
    holds the training sequences: one token a line, columns apart by spaces or tabs, the label last, an
    empty line between sequences; `-` is standard input, .gz, .bz2 and .xz are read as they are. The
    result goes to MODEL.

    What is minimised: the sum over sequences of -log p(labels | tokens), plus rho1 times the sum of
    |weight|, plus rho2/2 times the sum of squared weights.

    A line is printed after each iteration: objective (~ where it is a running estimate), non-zero weights,
    share of training tokens whose most probable label is wrong, norm of the gradient, time. Ctrl-C stops
    and saves what there is.
    """
    settings = Settings(**_penalty(algorithm, rho1, rho2, cost),
                        inference=chosen_inference(inference, log_domain), **others)
    if settings.keep == "best" and not settings.dev:
        raise click.UsageError("--keep best needs --dev FILE to tell what is best.")
    if settings.path and not settings.rho1:
        raise click.UsageError("--path ends at --rho1; give one above 0.")
    _check_blocks(settings)
    keeper = Keeper(checkpoint or resume, checkpoint_every, resume)
    keeper.check_options(model, settings)
    limit = None if max_memory is None else parse_size(max_memory)
    Job(template, train, model, settings, make_pool(threads), limit, dry_run, keeper, log_json, quiet, verbose).run()


def _penalty(algorithm, rho1, rho2, cost):
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


def _check_blocks(settings):
    """Options that only cd or bcd can follow, and one that they cannot."""
    needs = {"group": ("bcd",), "separate_blocks": ("bcd",), "exact_hessian": ("cd",), "grow": ("cd", "bcd"),
             "no_revisit": ("cd", "bcd")}
    for option, algorithms in needs.items():
        if not getattr(settings, option):
            continue
        if settings.algorithm not in algorithms:
            raise click.UsageError(f"--{option.replace('_', '-')} needs -a {' or -a '.join(algorithms)}.")
        if settings.path:
            raise click.UsageError(f"--{option.replace('_', '-')} and --path do not go together.")
    if settings.algorithm in ("cd", "bcd") and settings.only:
        raise click.UsageError(f"--only needs another algorithm than {settings.algorithm}.")
    if settings.algorithm in ("cd", "bcd") and settings.path and settings.features == "observed":
        raise click.UsageError(f"--path with -a {settings.algorithm} needs --features all.")
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

    def __init__(self, template, train, model, settings, pool, memory_limit, dry_run, keeper, log_json, quiet, verbose):
        self.template, self.train, self.model, self.settings = template, train, model, settings
        self.pool, self.memory_limit, self.dry_run, self.log_json = pool, memory_limit, dry_run, log_json
        self.keeper, self.quiet, self.verbose = keeper, quiet, verbose
        self._best, self._best_theta, self._best_iteration = None, None, None

    def _say(self, text):
        if not self.quiet:
            say(text)

    def run(self):
        from crftool.cli import INTERRUPTED, census
        from crftool.corpus.constraints import check_labels, make_constraint
        from crftool.corpus.rules import read_rules
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
        self.keeper.open()
        path = find_template(self.template)
        template = Template(read_bytes(path), path)
        for warning in template.warnings:
            say(f"warning: {warning}")
        penalty = ElasticNet(settings.rho1, settings.rho2, settings.group)
        name = default_trainer(penalty) if settings.algorithm == "auto" else settings.algorithm
        trainer = TRAINERS[name]
        initial = Model.load(settings.init) if settings.init else None
        only = Model.load(settings.only) if settings.only else None
        with reading_bar(self.train, self.quiet) as watch:
            encoder, dataset = read_training_data(
                self.train, template, settings.begin_label, settings.min_count,
                [label for known in (initial, only) if known for label in known.labels], watch)
        census.give_back_memory()
        if len(encoder.labels) < 2:
            raise CrftoolError(f"{self.train}: only one label, '{encoder.labels[0].decode('utf-8', 'replace')}'; "
                               "the last column must hold at least two")
        rules = read_rules(settings.constrain) if settings.constrain else b""
        self.constraint = make_constraint(rules, encoder.labels, settings.constrain)
        if self.constraint is not None:
            check_labels(self.constraint, dataset, encoder.labels, self.train)
        self.dev, self.dev_labels = read_labelled_data(settings.dev, encoder) if settings.dev else (None, None)
        by_blocks = trainer.by_blocks and not settings.path          # a path works on all weights
        per_weight = trainer.bytes_per_weight + 8 * bool(settings.dev)
        estimate = census.estimate_memory(encoder, dataset, per_weight, by_blocks)
        if self.dry_run:
            census.report(encoder, dataset, encoder.space.F, estimate, per_weight)
        census.check_memory(encoder, estimate, self.memory_limit, per_weight)
        if self.dry_run:
            return
        allowed = self._allowed(only, encoder) if only else None
        if by_blocks:
            objective = self._block_loss(encoder, dataset)
        else:
            objective = LogLoss(dataset, encoder.space, encoder.unigrams.groups(), self.pool,
                                settings.features == "observed", settings.inference, self.constraint, allowed)
        if not self.quiet:
            census.report(encoder, dataset, objective.candidates, estimate, per_weight)
        if self.verbose:
            from crftool.kernels.vector import cpu_level
            self._say(f"{name}, rho1={settings.rho1:g}, rho2={settings.rho2:g}, {self.pool.threads} threads, "
                      f"{cpu_level()} instructions")
        self.keeper.describe(name, settings, template, rules, dataset, encoder.space, allowed, self.dev, self.dev_labels)
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
        by_blocks = trainer.by_blocks and not settings.path
        theta = SparseWeights(encoder.space) if by_blocks else np.zeros(objective.F)
        if initial is not None:
            theta, carried = initial.initial_weights(encoder)
            if by_blocks:
                theta = SparseWeights.from_dense(encoder.space, theta)
            self._say(f"{settings.init}: {carried} observations carried over")
        stop = Stop(settings.tolerance, count_scale(dataset, encoder.space), settings.max_iterations)
        with ExitStack() as stack:
            log = stack.enter_context(open(self.log_json, "a" if self.keeper.resumes else "w")) if self.log_json else None
            progress = Progress(stop.tolerance * stop.scale, dataset.N, self.quiet, log)
            stack.callback(progress.close)
            requests = stack.enter_context(graceful_interrupts())

            def report(iteration):
                dev = self._score_dev(encoder, theta, iteration)
                progress.iteration(iteration, dev)
                return "interrupted" if requests else None

            if settings.path:
                result = self._follow_path(trainer, objective, encoder, theta, stop, requests, progress)
            else:
                checkpoints = self.keeper.checkpoints(theta, self._best_state, self._say)
                self._restore_best(encoder, theta)
                result = trainer.train(Problem(objective, penalty, self.pool, settings.seed, checkpoints), theta, stop,
                                       report)
        if self._best_theta is None:
            self._best_theta, self._best_iteration = theta, result.iteration
        self._end(result, bool(requests))
        return result, bool(requests)

    def _follow_path(self, trainer, objective, encoder, theta, stop, requests, progress):
        """Train for each rho1 of a path; the table of them goes to standard output as it grows."""
        from dataclasses import replace

        from crftool.cli.options import write_output
        from crftool.trainers.base import Stop
        from crftool.trainers.path import follow_path, geometric_grid, largest_rho1

        settings = self.settings
        grid = geometric_grid(largest_rho1(objective, self.pool), settings.rho1, settings.path)

        def report(iteration):
            if self.verbose:
                progress.iteration(iteration)
            return "interrupted" if requests else None

        write_output(b"rho1\tactive_mu\tactive_lambda\tobjective\tdev_error\tdev_f1\tseconds\ttolerance\n")
        for step in follow_path(trainer.train, objective, settings.rho2, grid, theta,
                                lambda factor: Stop(factor * stop.tolerance, stop.scale, stop.max_iterations),
                                self.pool, report,
                                settings.seed):
            best = self._best
            dev = self._score_dev(encoder, theta, step.result.iteration)
            if self._best is not best or self._best is None or settings.keep == "last":
                self.settings = replace(settings, rho1=step.rho1, tolerance=step.tolerance)      # what the model shall tell of itself
            scores = "\t" if dev is None else f"{dev.token_error:.4f}\t{dev.f1:.4f}"
            write_output(f"{step.rho1:.10g}\t{step.active_mu}\t{step.active_lam}\t{step.objective:.10g}\t{scores}\t"
                         f"{step.seconds:.3f}\t{step.tolerance:.3g}\n".encode())
        return step.result

    def _allowed(self, only, encoder):
        """[F] bool: the weights that the model of --only has."""
        theta, carried = only.initial_weights(encoder)
        if not theta.any():
            raise CrftoolError(f"{self.settings.only}: no weight of this model is one of the template's on "
                               f"{self.train}; name a model of the same template and data")
        self._say(f"{self.settings.only}: only its weights of {carried} observations may be non-zero")
        return theta != 0.0

    def _end(self, result, interrupted):
        if result.converged:
            self._say(result.reason)
        else:
            remedy = "the optimum was not reached: raise --max-iterations or --tolerance"
            if interrupted:
                remedy = "the model is what training had reached"
            elif self.settings.algorithm.startswith("sgd"):
                remedy = "other algorithms go on to the optimum"
            say(f"warning: {result.reason}; {remedy}")
        if self._best is not None:
            where = f"rho1 {self.settings.rho1:.10g}" if self.settings.path else \
                f"iteration {self._best_iteration.number}"
            self._say(f"best on {self.settings.dev}: {where}, "
                      f"token error {self._best.token_error:.2f}%, F1 {self._best.f1:.2f}")

    def _dev_scores(self, encoder, theta):
        from crftool.decode import Lattices, decode
        from crftool.evaluate import score
        from crftool.model import SparseWeights, TrainedWeights

        weights = theta if isinstance(theta, SparseWeights) else TrainedWeights(encoder.space, theta)
        lattices = Lattices(self.dev, weights, self.pool, self.settings.inference,
                            self.constraint)
        return score(self.dev.labels, decode(lattices).labels, self.dev.offsets, self.dev_labels)

    def _score_dev(self, encoder, theta, iteration):
        """Scores on the dev file; keeps the weights that do best: by F1, if labels make phrases, then by token error."""
        if self.dev is None:
            return None
        from crftool.model import SparseWeights
        from crftool.phrases import has_phrases

        scores = self._dev_scores(encoder, theta)
        if self.settings.keep == "last":
            return scores
        phrases = has_phrases(self.dev_labels)
        rank, best = ((phrases and judged.f1, judged.correct_tokens) for judged in (scores, self._best or scores))
        if self._best is None or rank > best:
            self._best, self._best_iteration = scores, iteration
            if self._best_theta is None or isinstance(theta, SparseWeights):
                self._best_theta = theta.copy()
            else:
                self._best_theta[:] = theta
        return scores

    def _best_state(self):
        """For a checkpoint."""
        if self._best_theta is None:
            return {}
        return self.keeper.best_state(self._best_theta, self._best_iteration)

    def _restore_best(self, encoder, theta):
        """What an earlier run has found best; its scores are computed again."""
        if self.dev is None:
            return
        self._best_theta, self._best_iteration = self.keeper.saved_best(encoder.space, theta)
        if self._best_theta is not None:
            self._best = self._dev_scores(encoder, self._best_theta)

    def _record(self, name, result):
        """Everything about the training that belongs into the model; nothing that changes between equal runs."""
        record = asdict(self.settings)
        record.update(algorithm=name, template=self.template, train=self.train, stopped=result.reason,
                      iterations=self._best_iteration.number, objective=self._best_iteration.objective)
        return record
