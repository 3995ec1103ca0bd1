"""One training by `crftool learn`, from files to file."""

import os
from contextlib import ExitStack
from dataclasses import asdict, replace

import click

from crftool.cli.held_out import HeldOut
from crftool.cli.options import find_template, write_output
from crftool.cli.progress import Progress, graceful_interrupts, reading_bar, say
from crftool.errors import CrftoolError


class Job:
    """See above."""

    def __init__(self, template, train, model, settings, pool, memory_limit, dry_run, keeper, log_json, quiet, verbose):
        self.template, self.train, self.model, self.settings = template, train, model, settings
        self.pool, self.memory_limit, self.dry_run, self.log_json = pool, memory_limit, dry_run, log_json
        self.keeper, self.quiet, self.verbose = keeper, quiet, verbose

    def _say(self, text):
        if not self.quiet:
            say(text)

    def run(self):
        from crftool.cli import INTERRUPTED, census
        from crftool.model import Model
        from crftool.objectives import ElasticNet
        from crftool.trainers import TRAINERS, default_trainer

        settings = self.settings
        self.penalty = ElasticNet(settings.rho1, settings.rho2, settings.group)
        self.algorithm = default_trainer(self.penalty) if settings.algorithm == "auto" else settings.algorithm
        self.trainer = TRAINERS[self.algorithm]
        self.by_blocks = self.trainer.by_blocks
        self._read()
        per_weight = self.trainer.bytes_per_weight + 8 * bool(settings.dev)
        forecast = census.Forecast(
            census.estimate_memory(self.encoder, self.dataset, census.memory_of_weights(
                self.trainer, self.encoder, self.dataset, settings), self.by_blocks),
            census.estimate_seconds(self.algorithm, self.encoder, self.dataset, settings, self.pool.threads,
                                    self.held_out.data.N if self.held_out else 0))
        if self.dry_run:
            census.report(self.encoder, self.dataset, self.encoder.space.F, forecast, per_weight)
        census.check_memory(self.encoder, forecast.memory, self.memory_limit, per_weight)
        if self.dry_run:
            return
        objective = self._objective()
        if not self.quiet:
            census.report(self.encoder, self.dataset, objective.candidates, forecast, per_weight)
        if self.verbose:
            from crftool.kernels.vector import cpu_level
            self._say(f"{self.algorithm}, rho1={settings.rho1:g}, rho2={settings.rho2:g}, {self.pool.threads} threads, "
                      f"{cpu_level()} instructions")
        self.keeper.describe(self.algorithm, settings, self.encoder.template, self.rules, self.dataset,
                             self.encoder.space, self.allowed, self.held_out)
        result, theta, best, interrupted = self._train(objective)
        trained = Model.from_training(self.encoder, theta, self._record(result, best), self.rules)
        trained.save(self.model)
        peak = census.peak_memory()
        self._say(f"{self.model}: {trained.active} non-zero weights, {os.path.getsize(self.model)} bytes"
                  + (f"; peak memory {peak / census.MEGABYTE:.0f} MB" if peak else ""))
        if interrupted:
            raise click.exceptions.Exit(INTERRUPTED)

    # Before -----------------------------------------------------------------------------------------------

    def _read(self):
        """Read and check everything; nothing is trained before all is known to be well."""
        from crftool.cli import census
        from crftool.corpus.constraints import check_labels, make_constraint
        from crftool.corpus.dataset import read_training_data
        from crftool.corpus.reader import read_bytes
        from crftool.corpus.rules import read_rules
        from crftool.corpus.template import Template
        from crftool.files import check_distinct, check_writable, remove_leftovers
        from crftool.model import Model

        settings = self.settings
        path = find_template(self.template)
        check_distinct({"MODEL": self.model, "--log-json": self.log_json, "--checkpoint": self.keeper.path},
                       {"TEMPLATE": path, "TRAIN": self.train, "--dev": settings.dev, "--constrain": settings.constrain})
        check_writable(self.model)
        if self.keeper.resumes:                      # the run before may have been killed while it wrote the model
            remove_leftovers(self.model)
        if self.log_json:
            check_writable(self.log_json)
        self.keeper.open()
        template = Template(read_bytes(path), path)
        for warning in template.warnings:
            say(f"warning: {warning}")
        self.initial = Model.load(settings.init) if settings.init else None
        self.only = Model.load(settings.only) if settings.only else None
        with reading_bar(self.train, self.quiet) as watch:
            self.encoder, self.dataset = read_training_data(
                self.train, template, settings.begin_label, settings.min_count,
                [label for known in (self.initial, self.only) if known for label in known.labels], watch)
        census.give_back_memory()
        labels = self.encoder.labels
        if len(labels) < 2:
            raise CrftoolError(f"{self.train}: only one label, '{labels[0].decode('utf-8', 'replace')}'; "
                               "the last column must hold at least two")
        self.rules = read_rules(settings.constrain) if settings.constrain else b""
        self.constraint = make_constraint(self.rules, labels, settings.constrain)
        if self.constraint is not None:
            check_labels(self.constraint, self.dataset, labels, self.train)
        self.held_out = HeldOut(settings.dev, self.encoder, settings.keep, self.pool, settings.inference,
                                self.constraint) if settings.dev else None

    def _objective(self):
        from crftool.objectives import LogLoss

        settings, encoder = self.settings, self.encoder
        self.allowed = self._allowed() if self.only else None
        if self.by_blocks:
            return self._block_loss()
        return LogLoss(self.dataset, encoder.space, encoder.unigrams.groups(), self.pool, settings.features == "observed",
                       settings.inference, self.constraint, self.allowed)

    def _block_loss(self):
        from crftool.corpus.occurrences import paired_bigrams
        from crftool.objectives.blockloss import BlockLoss, BlockOptions

        settings = self.settings
        options = BlockOptions(settings.separate_blocks, settings.grow, settings.no_revisit, settings.exact_hessian)
        return BlockLoss(self.dataset, self.encoder.space, self.pool, paired_bigrams(self.encoder),
                         settings.features == "observed", self.constraint, options)

    def _allowed(self):
        """[F] bool: the weights that the model of --only has."""
        theta, carried = self.only.initial_weights(self.encoder)
        if not theta.any():
            raise CrftoolError(f"{self.settings.only}: no weight of this model is one of the template's on "
                               f"{self.train}; name a model of the same template and data")
        self._say(f"{self.settings.only}: only its weights of {carried} observations may be non-zero")
        return theta != 0.0

    # Training ---------------------------------------------------------------------------------------------

    def _train(self, objective):
        """(result, weights to keep, their iteration, whether it was interrupted)"""
        from crftool.trainers.base import Problem, Stop, count_scale

        settings, held_out, theta = self.settings, self.held_out, self._start(objective)
        stop = Stop(settings.tolerance, count_scale(self.dataset, self.encoder.space), settings.max_iterations)
        with ExitStack() as stack:
            log = stack.enter_context(open(self.log_json, "a" if self.keeper.resumes else "w")) if self.log_json else None
            progress = Progress(stop.tolerance * stop.scale, self.dataset.N, self.quiet, log)
            stack.callback(progress.close)
            requests = stack.enter_context(graceful_interrupts())

            def report(iteration):
                progress.iteration(iteration, held_out.look(theta, iteration) if held_out else None)
                return "interrupted" if requests else None

            if settings.path:
                result = self._follow_path(objective, theta, stop, requests, progress)
            else:
                checkpoints = self.keeper.checkpoints(theta, held_out.state if held_out else dict, self._say)
                saved = self.keeper.take_saved()
                if held_out:
                    held_out.restore(saved, theta)
                del saved
                result = self.trainer.train(Problem(objective, self.penalty, self.pool, settings.seed, checkpoints), theta,
                                            stop, report)
        self._say_end(result, bool(requests))
        if held_out and held_out.theta is not None:
            return result, held_out.theta, held_out.iteration, bool(requests)
        return result, theta, result.iteration, bool(requests)

    def _start(self, objective):
        """The weights to begin with: zero, or those of --init."""
        import numpy as np

        from crftool.model import SparseWeights
        from crftool.objectives.logloss import unobserved_weights

        if self.initial is None:
            return SparseWeights(self.encoder.space) if self.by_blocks else np.zeros(objective.F)
        theta, carried = self.initial.initial_weights(self.encoder)
        if self.settings.features == "observed":
            theta[unobserved_weights(self.dataset, self.encoder.space)] = 0.0
        self._say(f"{self.settings.init}: {carried} observations carried over")
        return SparseWeights.from_dense(self.encoder.space, theta) if self.by_blocks else theta

    def _follow_path(self, objective, theta, stop, requests, progress):
        """Train for each rho1 of a path; the table of them goes to standard output as it grows."""
        from crftool.trainers.base import Stop
        from crftool.trainers.path import BlockPath, Path, follow, geometric_grid, largest_rho1

        settings, held_out = self.settings, self.held_out
        grid = geometric_grid(largest_rho1(objective, self.pool), settings.rho1, settings.path)

        def report(iteration):
            if self.verbose:
                progress.iteration(iteration)
            return "interrupted" if requests else None

        write_output(b"rho1\tactive_mu\tactive_lambda\tobjective\tdev_error\tdev_f1\tseconds\ttolerance\n")
        common = (theta, lambda factor: Stop(factor * stop.tolerance, stop.scale, stop.max_iterations), self.pool, report,
                  settings.seed)
        path = BlockPath(self.trainer.train, objective, self.penalty, *common) if self.by_blocks else \
            Path(self.trainer.train, objective, settings.rho2, *common, least=grid[-1], merge=self.trainer.screens)
        for step in follow(path, grid):
            scores = "\t"
            if held_out:
                dev = held_out.look(theta, step.result.iteration)
                scores = f"{dev.token_error:.4f}\t{dev.f1:.4f}"
            if not held_out or held_out.iteration is None or held_out.iteration is step.result.iteration:  # it is kept
                # what the model shall tell of itself
                self.settings = replace(settings, rho1=step.rho1, tolerance=step.tolerance)
            write_output(f"{step.rho1:.10g}\t{step.active_mu}\t{step.active_lam}\t{step.objective:.10g}\t{scores}\t"
                         f"{step.seconds:.3f}\t{step.tolerance:.3g}\n".encode())
        return step.result

    # After ------------------------------------------------------------------------------------------------

    def _say_end(self, result, interrupted):
        if result.converged:
            self._say(result.reason)
        else:
            remedy = "the optimum was not reached: raise --max-iterations or --tolerance"
            if interrupted:
                remedy = "the model is what training had reached"
            elif self.settings.algorithm.startswith("sgd"):
                remedy = "other algorithms go on to the optimum"
            say(f"warning: {result.reason}; {remedy}")
        held_out = self.held_out
        if held_out and held_out.best:
            where = f"rho1 {self.settings.rho1:.10g}" if self.settings.path else f"iteration {held_out.iteration.number}"
            self._say(f"best on {held_out.path}: {where}, "
                      f"token error {held_out.best.token_error:.2f}%, F1 {held_out.best.f1:.2f}")

    def _record(self, result, best):
        """What the model tells of its making: options, and of files a hash of what they say. Nothing that changes
        between equal runs, such as names of files, threads or times; template and rules are in the model."""
        from crftool.corpus.dataset import digest
        from crftool.corpus.rules import as_one_line

        record = asdict(self.settings)
        record.update(algorithm=self.algorithm, stopped=result.reason, iterations=best.number, objective=best.objective,
                      train=self.dataset.digest(), constrain=as_one_line(self.rules),
                      dev=self.held_out.digest() if self.held_out else None,
                      init=digest(self.initial.to_bytes()) if self.initial else None,
                      only=digest(self.only.to_bytes()) if self.only else None)
        return record
