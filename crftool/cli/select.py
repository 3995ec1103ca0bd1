"""crftool select"""

import json
import shlex
from dataclasses import asdict

import click

from crftool.cli.learn import find_template
from crftool.cli.options import (available_cores, chosen_inference, constrain_option, inference_options, parse_size,
                                 threads_option, write_output)
from crftool.cli.progress import RowProgress, duration, graceful_interrupts, reading_bar, say
from crftool.errors import CrftoolError

FILTERS = ("count", "mi", "chi2", "gain", "gain-ratio", "variance", "t")
WRAPPERS = ("forward", "backward", "beam", "anneal")
METHODS = ("l1", "grid", "threshold", *FILTERS, "induce", *WRAPPERS)
DEFAULT_FOLDS = 5

EXAMPLES = """\b
Examples:
  crftool select --dev dev.txt chunking train.txt -o small.model         the best rho1, and its model
  crftool select --folds 5 --one-se --rho2 0,0.1 my.template train.txt   by cross-validation
  crftool select --method mi --number 1000,10000,10% --dev dev.txt my.template train.txt
  crftool select --method backward --dev dev.txt my.template train.txt --write-template short.template
  crftool select --stability 50 --share 0.6 --rho1 1 --dev dev.txt my.template train.txt -o stable.model
"""


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    def __init__(self, name, least, whole=False, share=False):
        self.name, self._least, self._whole, self._share = name, least, whole, share

    def convert(self, value, param, ctx):
        if not isinstance(value, str):
            return value
        return [self._number(part.strip(), param, ctx) for part in value.split(",")]

    def _number(self, text, param, ctx):
        try:
            if self._share and (text.endswith("%") or "." in text):
                number = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
                if 0.0 < number <= 1.0:
                    return number
            else:
                number = int(text) if self._whole else float(text)
                if self._least <= number < float("inf"):
                    return number
        except ValueError:
            pass
        self.fail(f"'{text}' is not {'a whole number' if self._whole else 'a number'} of at least {self._least}"
                  + (", nor a share such as 10% or 0.1" if self._share else ""), param, ctx)


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("template")
@click.argument("train")
@click.option("--method", type=click.Choice(METHODS), default="l1", show_default=True,
              help="How to choose. l1: a path of falling rho1. grid: given penalties. threshold: drop small weights of an l2 model. "
                   "count, mi, chi2, gain, gain-ratio, variance, t: the best features by that measure. induce: add "
                   "the features of largest gain. forward, backward, beam, anneal: search for a set of templates.")
@click.option("--dev", metavar="FILE", help="Labelled file to score models on.")
@click.option("--folds", type=click.IntRange(min=2), metavar="K", help=f"Score by cross-validation with K folds, cut "
              f"between sequences.  [default without --dev: {DEFAULT_FOLDS}]")
@click.option("--by", type=click.Choice(["error", "f1"]), default="error", show_default=True,
              help="What decides: the share of wrong tokens, or the F1 of phrases.")
@click.option("--one-se", is_flag=True, help="Choose the fewest weights within one standard error of the best.")
@click.option("--rho1", type=Numbers("X,X,...", 0.0), metavar="X,X,...", help="Weights of the l1 penalty to try; for l1 "
              "the last of the path.  [default: 0; for l1 a thousandth of the first]")
@click.option("--rho2", type=Numbers("X,X,...", 0.0), metavar="X,X,...", help="Weights of the l2 penalty to try.  "
              "[default: 1; for l1 0]")
@click.option("-f", "--min-count", type=Numbers("N,N,...", 1, True), metavar="N,N,...", default="1", show_default=True,
              help="Cut-offs to try: drop observations that occur less often.")
@click.option("--path", type=click.IntRange(min=1), metavar="N", default=20, show_default=True,
              help="Values of rho1 on the path of l1.")
@click.option("--number", type=Numbers("N,N,...", 1, True, True), metavar="N,N,...", help="How many features to keep, or "
              "which share of them (10%). For induce: when to stop.  [default: 1000, 3162, 10000, ...]")
@click.option("--delta", type=Numbers("X,X,...", 0.0), metavar="X,X,...", help="For threshold: drop weights up to this "
              "size.  [default: 0.01 to 2]")
@click.option("--retrain", is_flag=True, help="For threshold: train again what is left.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="For induce: features to add at a time.  "
              "[default: a twentieth of --number, 10 to 500]")
@click.option("--lines", type=Numbers("N,N,...", 1, True), metavar="N,N,...",
              help="Use only the templates on these lines of TEMPLATE.")
@click.option("--over", type=click.Choice(["lines", "columns"]), default="lines", show_default=True,
              help="What searches for templates take in and leave out: single lines, or columns of the data with all "
                   "lines that need them.")
@click.option("--beam", type=click.IntRange(min=1), metavar="N", default=3, show_default=True,
              help="For beam: how many sets go on.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", default=50, show_default=True,
              help="For anneal: how many sets to try.")
@click.option("--stability", type=click.IntRange(min=2), metavar="B", help="Repeat the choice of features on B halves of "
              "the data, with penalties halved, and tell how much the choices agree.")
@click.option("--share", type=click.FloatRange(0.0, 1.0, min_open=True), metavar="X",
              help="With --stability: keep the features that this share of the runs chose.")
@click.option("-a", "--algorithm", metavar="NAME", default="auto", show_default=True,
              help="How to train, as in learn.")
@click.option("--features", type=click.Choice(["all", "observed"]), default="all", show_default=True,
              help="As in learn: every label for an observation, or only those it was seen with.")
@click.option("--begin-label", is_flag=True, help="As in learn: let B templates act at the first token too.")
@click.option("-e", "--tolerance", type=click.FloatRange(min=0.0, min_open=True), metavar="X", default=1e-4,
              show_default=True, help="When to stop training, as in learn.")
@click.option("-m", "--max-iterations", type=click.IntRange(min=1), metavar="N", default=10_000, show_default=True,
              help="Stop each training after N iterations.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", default=1, show_default=True,
              help="Seed of folds, subsamples and anneal.")
@constrain_option
@inference_options
@threads_option
@click.option("--max-memory", metavar="SIZE", help="Refuse to start if more would be needed, such as 800M or 4G.  "
                                                   "[default: what is free]")
@click.option("-o", "--output", metavar="MODEL", help="Write the chosen model, trained on all of TRAIN.")
@click.option("--write-template", metavar="FILE", help="Write the template with the chosen lines.")
@click.option("--report", metavar="FILE", help="Write a page with plots (HTML) of what was tried and chosen.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of the table.")
@click.option("--state", metavar="FILE", help="Where scores are kept for --resume.  [default: beside the output, until "
                                              "it is written]")
@click.option("--resume", is_flag=True, help="Go on where an interrupted search has stopped.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
def command(**options):
    """Choose features, templates and penalties.

    Trains models that TEMPLATE and TRAIN allow, scores each on --dev or by cross-validation, and prints a
    table: method, setting, non-zero weights of U and of B templates, token error, F1, seconds, and the
    command that gives this row again. Files are as in `crftool learn`.

    The chosen model is trained on all of TRAIN. What is chosen, and how to train it with `crftool learn`,
    is said at the end. Ctrl-C keeps what was found; with --resume the search goes on.
    """
    _check(options)
    Job(**options).run()


def _check(options):
    """Contradictions, before anything is read."""
    method, features = options["method"], options["method"] in (*FILTERS, "threshold", "induce")
    if options["dev"] and options["folds"]:
        raise click.UsageError("--dev and --folds are two ways to score; give one of them.")
    if options["one_se"] and options["by"] == "f1" and options["dev"]:
        raise click.UsageError("--one-se with --by f1 needs --folds, to know the standard error.")
    if options["number"] and not features:
        raise click.UsageError(f"--number does not apply to {method}.")
    if options["delta"] and (method != "threshold" or options["number"]):
        raise click.UsageError("--delta applies to threshold, without --number.")
    if options["retrain"] and method != "threshold":
        raise click.UsageError("--retrain applies to threshold; other methods train what they keep anyway.")
    if options["stability"] and method in WRAPPERS:
        raise click.UsageError(f"--stability is about features; {method} chooses templates.")
    if options["share"] and not options["stability"]:
        raise click.UsageError("--share needs --stability B.")
    if method not in ("l1", "grid"):
        for name in ("rho1", "rho2"):
            if options[name] and len(options[name]) > 1:
                raise click.UsageError(f"{method} takes one --{name}; search penalties with --method grid.")
    if method == "l1" and options["rho1"] and (len(options["rho1"]) > 1 or not options["rho1"][0]):
        raise click.UsageError("for l1, --rho1 is the end of the path, a single value above 0.")
    if features and options["min_count"] != [1]:
        raise click.UsageError(f"{method} ranks features itself; leave out --min-count.")
    if method in WRAPPERS and len(options["min_count"]) > 1:
        raise click.UsageError(f"{method} takes one --min-count.")
    _check_algorithm(options["algorithm"], method == "l1" or any(options["rho1"] or ()))
    if options["resume"] and not any(options[name] for name in ("state", "output", "write_template", "report")):
        raise click.UsageError("--resume needs --state, or the output beside which the state was kept.")


def _check_algorithm(name, l1):
    from crftool.trainers import TRAINERS

    if name != "auto" and name not in TRAINERS:
        raise click.UsageError(f"-a {name}: no such algorithm; there are auto, {', '.join(TRAINERS)}.")
    if name != "auto" and l1 and not TRAINERS[name].allows_l1:
        raise click.UsageError(f"{name} cannot have an l1 penalty; use -a owl-qn or leave out --rho1.")


class Job:
    """One search, from files to table, model, template and page."""

    def __init__(self, **options):
        self.options = options
        self.quiet, self.rows = options["quiet"], []
        self.threads = options["threads"] or available_cores()
        self.inference = chosen_inference(options["inference"], options["log_domain"])
        if not options["dev"] and not options["folds"]:
            options["folds"] = DEFAULT_FOLDS

    def __getattr__(self, name):
        try:
            return self.__dict__["options"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _say(self, text):
        if not self.quiet:
            say(text)

    def run(self):
        from crftool.cli import INTERRUPTED
        from crftool.selection import METHODS as TABLE
        from crftool.selection.lab import Interrupted

        self._read()
        with graceful_interrupts() as requests:
            lab, plan = self._lab(requests), self._plan()
            self.searcher, self.lab = TABLE[self.method](lab, plan), lab
            stability, fit, interrupted = None, None, False
            try:
                self._try_settings()
                self.chosen = lab.best(self.rows, self.one_se)
                if self.stability:
                    stability = self._repeat()
                if self.output or self.report or self.write_template and self.chosen.setting.lines is None:
                    fit = self._final(stability)
            except Interrupted:
                interrupted = True
            finally:
                self.known.save()
                lab.close()
        if lab.unfinished:
            say(f"warning: {len(lab.unfinished)} trainings did not reach their optimum ({lab.unfinished[0]}); raise "
                "--max-iterations or --tolerance")
        if self.rows:
            self.chosen = lab.best(self.rows, self.one_se)
            self._write(fit, stability)
        if interrupted:
            say("interrupted: the table holds what was found so far"
                + (f"; go on with --resume ({self.state_path})" if self.state_path else "; --state FILE would keep it"))
            raise click.exceptions.Exit(INTERRUPTED)
        if not self.state:
            self.known.remove()

    # Before -----------------------------------------------------------------------------------------------

    def _read(self):
        """Read and check everything; nothing is trained before all is known to be well."""
        from crftool.cli import census
        from crftool.corpus.constraints import check_labels, make_constraint, read_rules
        from crftool.corpus.dataset import read_labelled_data, read_training_data
        from crftool.corpus.reader import read_bytes
        from crftool.corpus.template import Template
        from crftool.files import check_writable
        from crftool.trainers import TRAINERS

        outputs = [self.output, self.write_template, self.report]
        self.state_path = self.state or next((f"{path}.state" for path in outputs if path), None)
        for path in (*outputs, self.state_path):
            if path:
                check_writable(path)
        path = find_template(self.template)
        self.compiled = Template(read_bytes(path), path)
        for warning in self.compiled.warnings:
            say(f"warning: {warning}")
        with reading_bar(self.train, self.quiet) as watch:
            self.encoder, self.dataset = read_training_data(self.train, self.compiled, self.begin_label, watch=watch)
        if len(self.encoder.labels) < 2:
            raise CrftoolError(f"{self.train}: only one label; the last column must hold at least two")
        if self.folds and self.folds > self.dataset.S:
            raise CrftoolError(f"{self.train}: {self.dataset.S} sequences cannot make {self.folds} folds; "
                               "take fewer, or name a --dev file")
        self.rules = read_rules(self.constrain) if self.constrain else b""
        self.constraint = make_constraint(self.rules, self.encoder.labels, self.constrain)
        if self.constraint is not None:
            check_labels(self.constraint, self.dataset, self.encoder.labels, self.train)
        self.dev_data, self.dev_labels = read_labelled_data(self.dev, self.encoder) if self.dev else (None, None)
        self._check_lines()
        bytes_per_weight = max(trainer.bytes_per_weight for trainer in TRAINERS.values())
        side_by_side = min(self.threads, self.folds or (len(self.compiled.unigrams) if self.method in WRAPPERS else 1))
        kept = 24 * (self.folds or 1)                # weights, gradient and mask of every fold
        estimate = census.estimate_memory(self.encoder, self.dataset, bytes_per_weight * side_by_side + kept)
        census.check_memory(self.encoder, estimate, None if self.max_memory is None else parse_size(self.max_memory))
        self._say(f"{self.dataset.S} sequences, {self.dataset.N} tokens, {len(self.encoder.labels)} labels, "
                  f"{self.encoder.space.F} features; scored "
                  + (f"on {self.dev}" if self.dev else f"by {self.folds} folds"))

    def _check_lines(self):
        from crftool.selection.wrappers import template_lines

        known = template_lines(self.compiled)
        for number in self.lines or ():
            if number not in known:
                raise CrftoolError(f"{self.compiled.path}:{number}: no template on this line; --lines takes lines such "
                                   f"as {next(iter(known))}")

    def _lab(self, requests):
        from crftool.selection.lab import Lab, Training
        from crftool.selection.state import State, fingerprint

        training = Training(self.algorithm, self.tolerance, self.max_iterations, self.features == "observed",
                            self.inference)
        job = {**asdict(training), "folds": self.folds, "seed": self.seed, "by": self.by,
               "constrain": self.rules.decode("utf-8", "replace")}
        self.known = State(self.state_path, fingerprint(self.compiled, self.dataset, self.dev_data, job))
        if self.resume:
            self.known.load(self.encoder.space.F)
        return Lab(self.encoder, self.dataset, self.dev_data, self.dev_labels, self.folds, self.seed, training,
                   self.constraint, self.by, self.threads, requests, self.known)

    def _plan(self):
        from crftool.selection.rows import Plan

        candidates = self._candidates()
        numbers = None
        if self.number:
            numbers = sorted({max(1, round(n * candidates)) if isinstance(n, float) else n for n in self.number})
            if numbers[-1] > candidates:
                raise CrftoolError(f"--number {numbers[-1]}: {self.compiled.path} gives only {candidates} features on "
                                   f"{self.train}; ask for fewer")
        l1 = self.method == "l1"
        return Plan(self.method, self.rho1, self.rho2 or [0.0 if l1 else 1.0], self.min_count, numbers, self.delta,
                    self.retrain, tuple(sorted(set(self.lines))) if self.lines else None, self.path,
                    over=self.over, beam=self.beam, steps=self.steps, batch=self.batch, seed=self.seed)

    def _candidates(self):
        """How many features there are to choose from; an error if none."""
        from crftool.selection.lab import frequent_weights
        from crftool.corpus.subset import Columns, Subproblem

        space, groups = self.encoder.space, self.encoder.unigrams.groups()
        columns = Columns.of_lines(self.compiled, self.lines) if self.lines else Columns.all(self.compiled)
        least = min(self.min_count)
        allowed = frequent_weights(self.dataset, space, least) if least > 1 else None
        F = Subproblem(self.dataset, space, groups, columns, allowed).space.F
        if not F:
            raise CrftoolError(f"{self.compiled.path}: no feature is left to choose from; lower --min-count, or use "
                               "more lines")
        return F

    # The search -------------------------------------------------------------------------------------------

    def _common(self):
        """The words of the command that all rows share."""
        words = ["--dev", self.dev] if self.dev else ["--folds", str(self.folds)]
        for name, plain in (("by", "error"), ("algorithm", "auto"), ("features", "all"), ("tolerance", 1e-4),
                            ("max_iterations", 10_000), ("seed", 1), ("constrain", None)):
            if self.options[name] != plain:
                words += ["--" + name.replace("_", "-"), str(self.options[name])]
        if self.inference != "auto":
            words += ["--inference", self.inference]
        return words + ["--begin-label"] * self.begin_label + [self.template, self.train]

    def _try_settings(self):
        from crftool.selection.rows import HEADER

        common = self._common()
        progress = RowProgress(self.searcher.rows_planned, self.quiet)
        try:
            if not self.as_json:
                write_output("\t".join(HEADER).encode() + b"\n")
            for row in self.searcher.rows():
                self.rows.append(row)
                if not self.as_json:
                    write_output("\t".join(row.cells(common)).encode() + b"\n")
                outcome = row.outcome
                progress.row(f"{row.setting} error={outcome.error:.2f}% F1={outcome.f1:.2f} "
                             f"active={outcome.active_u + outcome.active_b:.0f}")
                self.lab.check_requests()
        finally:
            progress.close()

    def _repeat(self):
        """--stability: the choice on halves of the data."""
        from crftool.selection import stability

        key, progress = self.chosen.setting.key, RowProgress(self.stability, self.quiet)
        try:
            def told(run, features):
                self.known.add_set(key, run, features)
                progress.row(f"subsample {run + 1}: {len(features)} features")
            return stability.repeat(self.searcher, self.chosen.setting, self.stability, self.seed,
                                    self.known.sets(key), told)
        finally:
            progress.close()

    def _final(self, stability):
        """The Fit of what was chosen, on all data."""
        setting = self.chosen.setting
        if not self.share:
            return self.searcher.final(setting)
        from crftool.selection.lab import Fit, Split

        allowed = stability.frequency >= self.share - 1e-9
        if not allowed.any():
            raise CrftoolError(f"--share {self.share:g}: no feature was chosen that often; lower it")
        fit = Fit(self.lab, Split(self.dataset, None), self.lab.pool, self.searcher.columns, allowed)
        fit.train(setting.rho1, setting.rho2)
        return fit

    # After ------------------------------------------------------------------------------------------------

    def _write(self, fit, stability):
        from crftool.corpus.subset import encoder_of_lines

        setting, outcome = self.chosen.setting, self.chosen.outcome
        self._say(f"chosen: {setting.method} {setting}: error {outcome.error:.2f}%, F1 {outcome.f1:.2f}, "
                  f"{outcome.active_u:.10g} + {outcome.active_b:.10g} weights, {duration(outcome.seconds)}")
        if stability is not None:
            self._say(f"stability over {self.stability} halves: Jaccard {stability.jaccard:.3f}, Kuncheva "
                      f"{stability.kuncheva:.3f}")
        self._say(f"again: {self._again()}")
        if self.as_json:
            write_output(json.dumps(self._summary(stability)).encode() + b"\n")
        if self.write_template and (setting.lines or fit is not None):
            self._write_template(fit)
        if fit is None:
            return
        encoder = encoder_of_lines(self.encoder, setting.lines) if setting.lines else self.encoder
        if self.output:
            from crftool.model import Model
            model = Model.from_training(encoder, fit.weights(), self._record(fit), self.rules)
            model.save(self.output)
            self._say(f"{self.output}: {model.active} non-zero weights")
        if self.report:
            from crftool.files import write_atomically
            from crftool.selection.report import page
            facts = (f"{self.dataset.S:,} sequences, {self.dataset.N:,} tokens, {len(self.encoder.labels)} labels, "
                     f"{self.encoder.space.F:,} features; scored "
                     + (f"on {self.dev}." if self.dev else f"by cross-validation, {self.folds} folds."))
            write_atomically(self.report, [page(
                f"crftool select: {self.template} on {self.train}", facts, self.rows, self.chosen, self._again(),
                encoder, fit.weights(), stability, self.by).encode("utf-8", "replace")])

    def _write_template(self, fit):
        """The chosen lines; or, if features were chosen, the lines that still have any."""
        from crftool.corpus.subset import active_lines, template_of_lines
        from crftool.files import write_atomically

        lines = self.chosen.setting.lines or active_lines(self.compiled, self.dataset, self.encoder.space, fit.weights())
        if not lines:
            raise CrftoolError(f"{self.write_template}: the chosen model is empty, so is its template; lower --rho1")
        write_atomically(self.write_template, [self._template_head() + template_of_lines(self.compiled, lines)])

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
        """What the model tells of its making; nothing that changes between equal runs."""
        from crftool.selection.rows import Setting

        setting: Setting = self.chosen.setting
        return {"algorithm": self.algorithm, "rho1": setting.rho1, "rho2": setting.rho2, "min_count": setting.min_count,
                "features": self.features, "begin_label": self.begin_label, "tolerance": self.tolerance,
                "inference": self.inference, "constrain": self.constrain, "selection": setting.method,
                "setting": str(setting), "template": self.template, "train": self.train,
                "stopped": fit.result.reason if fit.result else "nothing to train"}

    def _again(self):
        """The `learn` command of what was chosen; or that of `select`, where learn cannot do it."""
        setting = self.chosen.setting
        if setting.method in ("l1", "grid", *WRAPPERS) and not self.share:
            template = self.write_template if setting.lines else self.template
            words = ["--rho1", repr(setting.rho1), "--rho2", repr(setting.rho2)]
            if setting.min_count > 1:
                words += ["--min-count", str(setting.min_count)]
        elif self.output and not (setting.method == "threshold" and not setting.retrain):
            template, words = self.template, ["--only", self.output, "--rho1", repr(setting.rho1),
                                              "--rho2", repr(setting.rho2)]
        else:
            template = None
        if template is None:
            return self.chosen.cells(self._common())[-1]
        for name, plain in (("algorithm", "auto"), ("features", "all"), ("constrain", None)):
            if self.options[name] != plain:
                words += ["--" + name, str(self.options[name])]
        words += ["--tolerance", f"{self.tolerance:g}"] + ["--begin-label"] * self.begin_label
        return shlex.join(["crftool", "learn", *words, template, self.train, "MODEL"])

    def _summary(self, stability):
        """What --json prints."""
        common = self._common()
        summary = {"rows": [row.to_dict(common) for row in self.rows], "chosen": self.chosen.to_dict(common),
                   "again": self._again()}
        if stability is not None:
            from crftool.corpus.names import Names

            names = Names(self.encoder)
            order = [int(f) for f in (-stability.frequency).argsort(kind="stable") if stability.frequency[f] > 0.0]
            summary["stability"] = {
                "runs": self.stability, "jaccard": stability.jaccard, "kuncheva": stability.kuncheva,
                "sizes": stability.sizes,
                "frequencies": [[*names.feature(f), float(stability.frequency[f])] for f in order]}
        return summary
