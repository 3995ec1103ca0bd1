"""crftool learn"""

import click

from crftool.cli.keeper import Keeper
from crftool.cli.options import (FiniteRange, chosen_inference, constrain_option, inference_options, make_pool, parse_size,
                                 read_config, threads_option)
from crftool.cli.settings import ALGORITHMS, CRFPP_ALGORITHMS, Settings, check_blocks, chosen_penalty
from crftool.cli.training import Job

PATH_LENGTH = 20                     # values of rho1, if --path does not say how many

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
              help="Which weights to keep: best on --dev (by F1 if labels make phrases, then token error), or the "
                   "last.  [default: best with --dev]")
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
    settings = Settings(**chosen_penalty(algorithm, rho1, rho2, cost),
                        inference=chosen_inference(inference, log_domain), **others)
    if settings.keep == "best" and not settings.dev:
        raise click.UsageError("--keep best needs --dev FILE to tell what is best.")
    if settings.path and not settings.rho1:
        raise click.UsageError("--path ends at --rho1; give one above 0.")
    check_blocks(settings)
    keeper = Keeper(checkpoint or resume, checkpoint_every, resume)
    keeper.check_options(model, settings)
    limit = None if max_memory is None else parse_size(max_memory)
    Job(template, train, model, settings, make_pool(threads), limit, dry_run, keeper, log_json, quiet, verbose).run()
