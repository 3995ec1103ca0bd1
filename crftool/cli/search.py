"""One search for features, templates or penalties, from files to table, model, template and page."""

import json
import shlex
from dataclasses import asdict

import click

from crftool.cli.options import available_cores, chosen_inference, find_template, parse_size, write_output
from crftool.cli.progress import RowProgress, duration, graceful_interrupts, reading_bar, say
from crftool.cli.select import FILTERS, WRAPPERS
from crftool.errors import CrftoolError


class Job:
    """See above."""

    def __init__(self, given):
        """`given`: the options, by name."""
        self.given, self.quiet, self.rows = given, given.quiet, []
        self.final = None                             # what the model trained on all data has: {score: number}
        self.empty = None                             # the error of a choice that leaves nothing, told at the end
        self.longer = False                           # whether --conjunctions has found a line
        self.threads = given.threads or available_cores()
        self.inference = chosen_inference(given.inference, given.log_domain)

    def _say(self, text):
        if not self.quiet:
            say(text)

    def run(self):
        from crftool.cli import INTERRUPTED
        from crftool.selection import METHODS as TABLE
        from crftool.selection.lab import Interrupted

        given = self.given
        self._read()
        with graceful_interrupts() as requests:
            if given.conjunctions:
                self._join_lines(requests)
            self.lab = lab = self._lab(requests, self._open_state())
            self.searcher = TABLE[given.method](lab, self._plan())
            stability, fit, interrupted = None, None, False
            try:
                self._try_settings()
                self.chosen = lab.best(self.rows, given.one_se)
                if given.stability:
                    stability = self._repeat()
                if given.output or given.report or given.share or \
                        given.write_template and self.chosen.setting.lines is None:
                    fit = self._final(stability)
                    self.final = self._scores_of(fit)
            except Interrupted:
                interrupted = True
            finally:
                self.known.save()
                lab.close()
        if lab.unfinished:
            say(f"warning: {len(lab.unfinished)} trainings did not reach their optimum ({lab.unfinished[0]}); raise "
                "--max-iterations or --tolerance")
        if self.rows:
            self.chosen = lab.best(self.rows, given.one_se)
            self._write(fit, stability)
        if interrupted:
            say("interrupted: the table holds what was found so far"
                + (f"; go on with --resume ({self.state_path})" if self.state_path else "; --state FILE would keep it"))
            raise click.exceptions.Exit(INTERRUPTED)
        if not given.state:
            self.known.remove()
        if self.empty:
            raise self.empty

    # Before -----------------------------------------------------------------------------------------------

    def _read(self):
        """Read and check everything; nothing is trained before all is known to be well."""
        from crftool.corpus.constraints import check_labels, make_constraint
        from crftool.corpus.rules import read_rules
        from crftool.corpus.reader import read_bytes
        from crftool.corpus.template import Template
        from crftool.files import check_distinct, check_writable
        from crftool.phrases import has_phrases
        from crftool.selection.state import refuse_old

        given = self.given
        outputs = {"-o": given.output, "--write-template": given.write_template, "--report": given.report}
        self.state_path = given.state or next((f"{path}.state" for path in outputs.values() if path), None)
        outputs["--state"] = self.state_path
        path = find_template(given.template)
        check_distinct(outputs, {"TEMPLATE": path, "TRAIN": given.train, "--dev": given.dev, "--constrain": given.constrain})
        for target in outputs.values():
            if target:
                check_writable(target)
        if self.state_path and not given.resume:
            refuse_old(self.state_path)
        self.compiled = Template(read_bytes(path), path)
        for warning in self.compiled.warnings:
            say(f"warning: {warning}")
        self._load(self.compiled)
        if len(self.encoder.labels) < 2:
            raise CrftoolError(f"{given.train}: only one label; the last column must hold at least two")
        if given.by == "f1" and not has_phrases(self.encoder.labels):
            raise CrftoolError(f"{given.train}: no label is part of a phrase, such as B-NP; leave out --by f1")
        if given.folds and given.folds > self.dataset.S:
            raise CrftoolError(f"{given.train}: {self.dataset.S} sequences cannot make {given.folds} folds; "
                               "take fewer, or name a --dev file")
        self.rules = read_rules(given.constrain) if given.constrain else b""
        self.constraint = make_constraint(self.rules, self.encoder.labels, given.constrain)
        if self.constraint is not None:
            check_labels(self.constraint, self.dataset, self.encoder.labels, given.train)
        if given.stability and self.dataset.S < 2:
            raise CrftoolError(f"{given.train}: --stability draws halves of the sequences, but there is only one")
        self._check_lines()
        self._check_memory()
        self._say(f"{self.dataset.S} sequences, {self.dataset.N} tokens, {len(self.encoder.labels)} labels, "
                  f"{self.encoder.space.F} features; scored "
                  + (f"on {given.dev}" if given.dev else f"by {given.folds} folds"))

    def _load(self, template):
        """Read the files with a template."""
        from crftool.corpus.dataset import read_labelled_data, read_training_data

        given, self.compiled = self.given, template
        with reading_bar(given.train, self.quiet) as watch:
            self.encoder, self.dataset = read_training_data(given.train, template, given.begin_label, watch=watch)
        self.dev_data, self.dev_labels = read_labelled_data(given.dev, self.encoder) if given.dev else (None, None)

    def _check_memory(self):
        from crftool.cli import census
        from crftool.trainers import TRAINERS

        given = self.given
        bytes_per_weight = max(trainer.bytes_per_weight for trainer in TRAINERS.values())
        jobs = len(self.compiled.unigrams) if given.method in WRAPPERS else given.folds or 1
        side_by_side = min(self.threads, jobs)
        kept = 32 * (given.folds or 1)                # weights, two gradients and mask of every fold
        per_weight = bytes_per_weight * side_by_side + kept
        estimate = census.estimate_memory(self.encoder, self.dataset, per_weight * self.encoder.space.F)
        limit = None if given.max_memory is None else parse_size(given.max_memory)
        census.check_memory(self.encoder, estimate, limit, per_weight, "or use --lines")

    def _check_lines(self):
        from crftool.selection.wrappers import template_lines

        known = template_lines(self.compiled)
        for number in self.given.lines or ():
            if number not in known:
                raise CrftoolError(f"{self.compiled.path}:{number}: no template on this line; --lines takes lines such "
                                   f"as {next(iter(known))}")

    def _join_lines(self, requests):
        """--conjunctions: a longer template, and the data read with it."""
        from crftool.cli import INTERRUPTED
        from crftool.files import write_atomically
        from crftool.selection.conjunctions import add_lines
        from crftool.selection.features import default_batch
        from crftool.selection.lab import Interrupted
        from crftool.selection.rows import Plan

        given, first = self.given, self.compiled

        def make_lab(template):
            self._load(template)
            self._check_memory()
            return self._lab(requests)

        plan = Plan("induce", given.rho1, given.rho2 or [1.0], batch=given.batch,
                    numbers=[n for n in given.number or () if isinstance(n, int)])
        # The same in every round, and in the commands of rows.
        given.batch = plan.batch = plan.batch or default_batch(max(plan.numbers, default=self.encoder.space.F))
        plan.numbers, template = None, first
        try:
            for found in add_lines(first, make_lab, plan, given.conjunctions):
                self._say(f"{found.line.decode('utf-8', 'replace')}: promises {found.gain:.1f} of log-likelihood; "
                          f"error {found.without.error:.2f}% without, {found.outcome.error:.2f}% with it: "
                          + ("taken" if found.accepted else "not taken"))
                template = found.template if found.accepted else template
        except Interrupted:
            kept = template is not first and given.write_template
            if kept:
                write_atomically(kept, [template.text])
            say("interrupted before the first row" + (f"; {kept} holds the lines found so far" if kept else ""))
            raise click.exceptions.Exit(INTERRUPTED) from None
        self.longer = template is not first
        self._load(template)

    def _training(self):
        from crftool.selection.lab import Training

        given = self.given
        return Training(given.algorithm, given.tolerance, given.max_iterations, given.features == "observed",
                        self.inference)

    def _open_state(self):
        """Scores that are known already, or will be kept."""
        from crftool.selection.state import State, fingerprint

        given, training = self.given, self._training()
        job = {**asdict(training), "folds": given.folds, "seed": given.seed, "by": given.by,
               "constrain": self.rules.decode("utf-8", "replace")}
        self.known = State(self.state_path, fingerprint(self.compiled, self.dataset, self.dev_data, job))
        if given.resume:
            if not self.known.load(self.encoder.space.F):
                self._say(f"{self.state_path}: no search has left anything here; beginning anew")
        return self.known

    def _lab(self, requests, memory=None):
        from crftool.selection.lab import Lab

        given = self.given
        return Lab(self.encoder, self.dataset, self.dev_data, self.dev_labels, given.folds, given.seed,
                   self._training(), self.constraint, given.by, self.threads, requests, memory)

    def _plan(self):
        from crftool.selection.rows import Plan

        from crftool.selection.features import default_numbers

        given = self.given
        self.candidates = {min_count: self._candidates(min_count) for min_count in given.min_count}
        candidates = self.candidates[given.min_count[0]]
        numbers = default_numbers(candidates) if given.method in FILTERS else \
            [candidates] if given.method == "induce" else None
        if given.number:
            numbers = sorted({max(1, round(n * candidates)) if isinstance(n, float) else n for n in given.number})
            if numbers[-1] > candidates:
                raise CrftoolError(f"--number {numbers[-1]}: {self.compiled.path} gives only {candidates} features on "
                                   f"{given.train}; ask for fewer")
        l1 = given.method == "l1"
        return Plan(given.method, given.rho1, given.rho2 or [0.0 if l1 else 1.0], given.min_count, numbers, given.delta,
                    given.retrain, tuple(sorted(set(given.lines))) if given.lines else None, given.path,
                    over=given.over, beam=given.beam, steps=given.steps, batch=given.batch, seed=given.seed)

    def _candidates(self, min_count):
        """How many features there are to choose from; an error if none."""
        from crftool.corpus.subset import Columns, Subproblem
        from crftool.objectives import LogLoss
        from crftool.selection.lab import frequent_weights

        given = self.given
        space, groups = self.encoder.space, self.encoder.unigrams.groups()
        columns = Columns.of_lines(self.compiled, given.lines) if given.lines else Columns.all(self.compiled)
        allowed = frequent_weights(self.dataset, space, min_count) if min_count > 1 else None
        sub = Subproblem(self.dataset, space, groups, columns, allowed)
        F = sub.space.F
        if given.features == "observed":
            F = LogLoss(sub.dataset, sub.space, sub.groups, self.lab.pool, True).candidates
        if not F:
            raise CrftoolError(f"{self.compiled.path}: no feature is left to choose from with --min-count {min_count}; "
                               "lower it, or use more lines")
        return F

    # The search -------------------------------------------------------------------------------------------

    def _common(self):
        """The words of the command that all rows share."""
        given = self.given
        words = ["--dev", given.dev] if given.dev else ["--folds", str(given.folds)]
        for name, plain in (("by", "error"), ("algorithm", "auto"), ("features", "all"), ("tolerance", 1e-4),
                            ("max_iterations", 10_000), ("seed", 1), ("constrain", None), ("conjunctions", None)):
            if getattr(given, name) != plain:
                words += ["--" + name.replace("_", "-"), str(getattr(given, name))]
        if self.inference != "auto":
            words += ["--inference", self.inference]
        return words + ["--begin-label"] * given.begin_label + [given.template, given.train]

    def _try_settings(self):
        from crftool.selection.rows import HEADER

        given = self.given
        progress = RowProgress(self.searcher.rows_planned, self.quiet)
        try:
            if not given.as_json:
                write_output("\t".join(HEADER).encode() + b"\n")
            for row in self.searcher.rows():
                self.rows.append(row)
                if not given.as_json:
                    write_output("\t".join(row.cells(self._common())).encode() + b"\n")
                outcome = row.outcome
                progress.row(f"{row.setting} error={outcome.error:.2f}% F1={outcome.f1:.2f} "
                             f"active={outcome.active_u + outcome.active_b:.0f}")
                self.lab.check_requests()
        finally:
            progress.close()

    def _repeat(self):
        """--stability: the choice on halves of the data."""
        from crftool.selection import stability

        given = self.given
        key, progress = self.chosen.setting.key, RowProgress(given.stability, self.quiet)
        try:
            def told(run, features):
                self.known.add_set(key, run, features)
                progress.row(f"subsample {run + 1}: {len(features)} features")
            return stability.repeat(self.searcher, self.chosen.setting, self.candidates[self.chosen.setting.min_count],
                                    given.stability, given.seed, self.known.sets(key), told)
        finally:
            progress.close()

    def _final(self, stability):
        """The Fit of what was chosen, on all data; None if that is nothing."""
        given = self.given
        setting = self.chosen.setting
        if not given.share:
            return self.searcher.final(setting)
        from crftool.selection.lab import Fit

        allowed = stability.frequency >= given.share - 1e-9
        if not allowed.any():
            self.empty = CrftoolError(f"--share {given.share:g}: no feature was chosen that often; lower it")
            return None
        fit = Fit(self.lab, self.lab.whole(), self.lab.pool, self.searcher.columns, allowed)
        fit.train(setting.rho1, setting.rho2)
        return fit

    def _scores_of(self, fit):
        """{score: number} of the model trained on all data; with folds its size alone."""
        if fit is None:
            return None
        scores = dict(zip(("active_u", "active_b"), fit.active))
        if self.given.dev:
            counts, _ = fit.score()
            scores |= {"error": counts.token_error, "f1": counts.f1}
        return scores

    # After ------------------------------------------------------------------------------------------------

    def _write(self, fit, stability):
        given = self.given
        setting, outcome = self.chosen.setting, self.chosen.outcome
        self._say(f"chosen: {setting.method} {setting}: error {outcome.error:.2f}%, F1 {outcome.f1:.2f}, "
                  f"{outcome.active_u:.10g} + {outcome.active_b:.10g} weights, {duration(outcome.seconds)}")
        if stability is not None:
            self._say(f"stability over {given.stability} halves: Jaccard {stability.jaccard:.3f}, Kuncheva "
                      f"{stability.kuncheva:.3f}")
        if self.final:
            self._say("trained on all of TRAIN: "
                      + ("error {error:.2f}%, F1 {f1:.2f}, " * bool(given.dev)
                         + "{active_u} + {active_b} weights").format(**self.final))
        self._say(f"again: {self._again(fit)}")
        if given.as_json:
            write_output(json.dumps(self._summary(fit, stability)).encode() + b"\n")
        if fit is not None:
            self._write_model(fit, stability)
        if given.write_template and (setting.lines or fit is not None):
            self._write_template(fit)

    def _write_model(self, fit, stability):
        """The model, and the page about it."""
        from crftool.corpus.subset import encoder_of_lines

        given, setting = self.given, self.chosen.setting
        encoder = encoder_of_lines(self.encoder, setting.lines) if setting.lines else self.encoder
        if given.output:
            from crftool.model import Model
            model = Model.from_training(encoder, fit.weights(), self._record(fit), self.rules)
            model.save(given.output)
            self._say(f"{given.output}: {model.active} non-zero weights")
        if given.report:
            from crftool.files import write_atomically
            from crftool.selection.report import page
            facts = (f"{self.dataset.S:,} sequences, {self.dataset.N:,} tokens, {len(self.encoder.labels)} labels, "
                     f"{self.encoder.space.F:,} features; scored "
                     + (f"on {given.dev}." if given.dev else f"by cross-validation, {given.folds} folds."))
            write_atomically(given.report, [page(
                f"crftool select: {given.template} on {given.train}", facts, self.rows, self.chosen, self._again(fit),
                encoder, fit.weights(), stability, given.by).encode("utf-8", "replace")])

    def _write_template(self, fit):
        """The chosen lines; or, if features were chosen, the lines that still have any."""
        from crftool.corpus.subset import active_lines, template_of_lines
        from crftool.files import write_atomically

        given = self.given
        lines = self.chosen.setting.lines or \
            active_lines(self.compiled, self.dataset, self.encoder.space, fit.weights())
        if not lines:
            self.empty = CrftoolError(f"{given.write_template}: the chosen model is empty, so is its template; lower "
                                      + ("--delta" if self.chosen.setting.delta is not None else "--rho1"))
            return
        write_atomically(given.write_template, [self._template_head() + template_of_lines(self.compiled, lines)])

    def _template_head(self):
        """Comments that say what each set of templates on the way to this one has earned."""
        lines = [f"# {self.chosen.setting}"]
        best = None
        for row in self.rows:
            if row.setting.lines and (best is None or self.lab.better(row.outcome, best)):
                best = row.outcome
                lines.append(f"# error {row.outcome.error:.2f}% F1 {row.outcome.f1:.2f} lines "
                             f"{','.join(map(str, row.setting.lines))}")
        return "\n".join(lines).encode() + b"\n"

    def _record(self, fit):
        """What the model tells of its making; see training.Job."""
        from crftool.corpus.rules import as_one_line
        from crftool.selection.rows import Setting

        given = self.given
        setting: Setting = self.chosen.setting
        return {"algorithm": given.algorithm, "rho1": setting.rho1, "rho2": setting.rho2,
                "min_count": setting.min_count, "features": given.features, "begin_label": given.begin_label,
                "tolerance": given.tolerance,
                "inference": self.inference, "constrain": as_one_line(self.rules), "selection": setting.method,
                "setting": str(setting), "seed": given.seed, "train": self.dataset.digest(),
                "stopped": fit.result.reason if fit.result else "nothing to train"}

    def _again(self, fit):
        """The `learn` command of the chosen model; or that of `select`, where learn cannot do it."""
        given = self.given
        setting = self.chosen.setting
        if setting.method in ("l1", "grid", *WRAPPERS) and not given.share:
            template = given.write_template if setting.lines else given.template
            words = ["--rho1", repr(setting.rho1), "--rho2", repr(setting.rho2)]
            if setting.min_count > 1:
                words += ["--min-count", str(setting.min_count)]
        elif given.output and fit is not None and not (setting.method == "threshold" and not setting.retrain):
            template = given.write_template if self.longer else given.template
            words = ["--only", given.output, "--rho1", repr(setting.rho1), "--rho2", repr(setting.rho2)]
        else:
            template = None
        if template is None:
            more = ["--stability", str(given.stability), "--share", f"{given.share:g}"] if given.share else []
            return f"{self.chosen.cells(self._common())[-1]} {shlex.join([*more, '-o', 'MODEL'])}"
        for name, plain in (("algorithm", "auto"), ("features", "all"), ("constrain", None), ("max_iterations", 10_000)):
            if getattr(given, name) != plain:
                words += ["--" + name.replace("_", "-"), str(getattr(given, name))]
        if self.inference != "auto":
            words += ["--inference", self.inference]
        words += ["--tolerance", f"{given.tolerance:g}"] + ["--begin-label"] * given.begin_label
        return shlex.join(["crftool", "learn", *words, template, given.train, "MODEL"])

    def _summary(self, fit, stability):
        """What --json prints."""
        common = self._common()
        summary = {"rows": [row.to_dict(common) for row in self.rows], "chosen": self.chosen.to_dict(common),
                   "again": self._again(fit)}
        if self.final:
            summary["final"] = self.final
        if stability is not None:
            from crftool.corpus.names import Names

            names = Names(self.encoder)
            order = [int(f) for f in (-stability.frequency).argsort(kind="stable") if stability.frequency[f] > 0.0]
            summary["stability"] = {
                "runs": self.given.stability, "jaccard": stability.jaccard, "kuncheva": stability.kuncheva,
                "sizes": stability.sizes,
                "frequencies": [[*names.feature(f), float(stability.frequency[f])] for f in order]}
        return summary
