"""crftool select: its options."""

from types import SimpleNamespace

import click
from click.core import ParameterSource

from crftool.cli.options import constrain_option, inference_options, threads_option

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
  crftool select --method induce --conjunctions 5 --dev dev.txt my.template train.txt --write-template longer.template
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
              help="How to choose. l1: a path of falling rho1. grid: given penalties. threshold: drop small weights "
                   "of an l2 model. count, mi, chi2, gain, gain-ratio, variance, t: the best features by that "
                   "measure. induce: add the features of largest gain. forward, backward, beam, anneal: search for "
                   "a set of templates.")
@click.option("--dev", metavar="FILE", help="Labelled file to score models on.")
@click.option("--folds", type=click.IntRange(min=2), metavar="K", help=f"Score by cross-validation with K folds, cut "
              f"between sequences.  [default without --dev: {DEFAULT_FOLDS}]")
@click.option("--by", type=click.Choice(["error", "f1"]), default="error", show_default=True,
              help="What decides: the share of wrong tokens, or the F1 of phrases.")
@click.option("--one-se", is_flag=True, help="Choose the fewest weights within one standard error of the best.")
@click.option("--rho1", type=Numbers("X,X,...", 0.0), metavar="X,X,...",
              help="Weights of the l1 penalty to try; for l1 the last of the path.  "
                   "[default: 0; for l1 0.5, or less on small data]")
@click.option("--rho2", type=Numbers("X,X,...", 0.0), metavar="X,X,...", help="Weights of the l2 penalty to try.  "
              "[default: 1; for l1 0]")
@click.option("-f", "--min-count", type=Numbers("N,N,...", 1, True), metavar="N,N,...", default="1", show_default=True,
              help="Cut-offs to try: drop observations that occur less often.")
@click.option("--path", type=click.IntRange(min=1), metavar="N", default=20, show_default=True,
              help="Values of rho1 on the path of l1.")
@click.option("--number", type=Numbers("N,N,...", 1, True, True), metavar="N,N,...",
              help="How many features to keep, or which share of them (10%). For induce: when to stop.  "
                   "[default: 1000, 3162, 10000, ...]")
@click.option("--delta", type=Numbers("X,X,...", 0.0), metavar="X,X,...", help="For threshold: drop weights up to this "
              "size.  [default: 0.01 to 2]")
@click.option("--retrain", is_flag=True, help="For threshold: train again what is left.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="For induce: features to add at a time.  "
              "[default: a twentieth of --number, 10 to 500]")
@click.option("--conjunctions", type=click.IntRange(min=1), metavar="N",
              help="For induce: first add up to N lines to the template, each made of a line that has features in the "
                   "model and one of TEMPLATE, as long as --dev gains.")
@click.option("--lines", type=Numbers("N,N,...", 1, True), metavar="N,N,...",
              help="Use only the templates on these lines of TEMPLATE.")
@click.option("--over", type=click.Choice(["lines", "columns"]), default="lines", show_default=True,
              help="What searches for templates take in and leave out: single lines, or columns of the data with all "
                   "lines that need them.")
@click.option("--beam", type=click.IntRange(min=1), metavar="N", default=3, show_default=True,
              help="For beam: how many sets go on.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", default=50, show_default=True,
              help="For anneal: how many sets to try.")
@click.option("--stability", type=click.IntRange(min=2), metavar="B",
              help="Repeat the choice of features on B halves of the data, with penalties halved, and tell "
                   "how much the choices agree; --json and --report tell how often each feature was chosen.")
@click.option("--share", type=click.FloatRange(0.0, 1.0, min_open=True), metavar="X",
              help="With --stability: the model keeps the features that this share of the runs chose.")
@click.option("-a", "--algorithm", metavar="NAME", default="auto", show_default=True,
              help="How to train, by the names of learn.")
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
@click.option("--resume", is_flag=True, help="Go on where an interrupted search has stopped. (Rounds of "
                                             "--conjunctions begin anew.)")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
def command(**options):
    """Choose features, templates and penalties.

    Trains models that TEMPLATE and TRAIN allow, scores each on --dev or by cross-validation, and prints a
    table: method, setting, non-zero weights of U and of B templates, token error, F1, seconds, and the
    command that gives this row again (with others, if a path of rho1 led to it). Files are as in
    `crftool learn`.

    The chosen model is trained on all of TRAIN. What is chosen, and how to train it with `crftool learn`,
    is said at the end. Ctrl-C keeps what was found; with --resume the search goes on.
    """
    from crftool.cli.search import Job

    _check(options)
    _check_method(options)
    if not options["dev"] and not options["folds"]:
        options["folds"] = DEFAULT_FOLDS
    Job(SimpleNamespace(**options)).run()


def _check(options):
    """Contradictions, before anything is read."""
    method, features = options["method"], options["method"] in (*FILTERS, "threshold", "induce")
    if options["dev"] and options["folds"]:
        raise click.UsageError("--dev and --folds are two ways to score; give one of them.")
    if options["one_se"] and options["by"] == "f1" and options["dev"]:
        raise click.UsageError("--one-se with --by f1 needs --folds, to know the standard error.")
    if options["delta"] and options["number"]:
        raise click.UsageError("--delta and --number are two ways to cut; give one of them.")
    if options["conjunctions"]:
        if not options["dev"]:
            raise click.UsageError("--conjunctions needs --dev: lines are chosen on all of TRAIN.")
        if options["lines"] or options["train"] == "-":
            raise click.UsageError("--conjunctions reads TRAIN again for every line and takes all of TEMPLATE; give a "
                                   "file, and leave out --lines.")
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


# What only some methods look at.
OPTIONS_OF = {"path": ("l1",), "batch": ("induce",), "over": WRAPPERS, "beam": ("beam",), "steps": ("anneal",),
              "number": (*FILTERS, "threshold", "induce"), "delta": ("threshold",), "retrain": ("threshold",),
              "conjunctions": ("induce",)}


def _check_method(options):
    """Options that the method does not look at."""
    context, method = click.get_current_context(), options["method"]
    for name, methods in OPTIONS_OF.items():
        if method not in methods and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} does not apply to --method {method}, but to {', '.join(methods)}.")
    if options["algorithm"] in ("cd", "bcd") and (method in (*FILTERS, "induce") or options["retrain"] or options["share"]):
        raise click.UsageError(f"-a {options['algorithm']} trains all weights of an observation, not a choice of them; "
                               "take another algorithm.")


def _check_algorithm(name, l1):
    from crftool.trainers import TRAINERS

    if name != "auto" and name not in TRAINERS:
        raise click.UsageError(f"-a {name}: no such algorithm; there are auto, {', '.join(TRAINERS)}.")
    if name != "auto" and l1 and not TRAINERS[name].allows_l1:
        raise click.UsageError(f"{name} cannot have an l1 penalty; use -a working-set or leave out --rho1.")
