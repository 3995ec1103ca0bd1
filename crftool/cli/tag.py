"""crftool tag"""

import os

import click

from crftool.cli.options import (FiniteRange, available_cores, chosen_inference, constrain_option, inference_options,
                                 threads_option, write_output)


EXAMPLES = """\b
Examples:
  crftool tag -m chunk.model test.txt
  crftool tag -m chunk.model < test.txt | crftool eval
  crftool tag -m chunk.model -v 1 test.txt        with probabilities
  crftool tag -m chunk.model -n 5 test.txt        the five best labellings
  crftool tag -m chunk.model --format json -o out.jsonl test.txt.gz
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.option("-m", "--model", required=True, metavar="MODEL", help="Model that `crftool learn` wrote.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-v", "--verbose", "level", type=click.IntRange(0, 2, clamp=True), default=0, show_default=True, metavar="N",
              help="1: print probabilities of the sequence and of each label; 2: of all labels too.")
@click.option("-n", "--nbest", type=click.IntRange(min=1), metavar="N", help="Print the N best labellings of each "
                                                                             "sequence, with probabilities.")
@click.option("--posterior", is_flag=True, help="Choose the most probable label of each token instead of the most "
                                                "probable sequence.")
@constrain_option
@click.option("--force-column", type=int, metavar="K", help="Impose the label in column K (from 0; -1 is the last) "
              "where it is one of the model's; anything else there leaves the token free.")
@click.option("--min-confidence", type=FiniteRange(0.0, 1.0), metavar="P", default=0.0,
              help="Print the symbol of --abstain where the label's probability is below P.")
@click.option("--abstain", metavar="SYMBOL", default="?", show_default=True, help="What to print then.")
@click.option("--phrase-confidence", is_flag=True, help="Add a column: the probability that the token's phrase is "
              "exactly right (outside phrases: its label).")
@inference_options
@click.option("--format", "layout", type=click.Choice(["conll", "labels", "json"]), default="conll",
              show_default=True, help="Columns and label; labels alone; or one JSON object a sequence.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, which appears when all is done, instead of "
                                                     "standard output.")
@threads_option
def command(model, files, level, nbest, posterior, constrain, force_column, min_confidence, abstain,
            phrase_confidence, inference, log_domain, layout, output, threads):
    """Label sequences.

    Reads tokens in the columns of the training data, without the label (if it or other columns follow,
    they are passed through), and prints them with the label that the model gives as a last column. Reads
    standard input if no FILE is named or FILE is `-`; .gz, .bz2 and .xz are read as they are. A sequence
    is answered as soon as its empty line has come. Nothing on standard input gives nothing; a named file
    without tokens is an error. A model trained under --constrain is applied under it.
    """
    for option, given in (("--posterior", posterior), ("--min-confidence", min_confidence > 0.0),
                          ("--phrase-confidence", phrase_confidence)):
        if given and nbest:
            raise click.UsageError(f"{option} speaks of one labelling; it cannot go with --nbest.")
    inference = chosen_inference(inference, log_domain)

    from crftool.corpus.rules import allowed_pairs, read_rules
    from crftool.files import check_writable, write_atomically
    from crftool.model.mapped import MappedModel
    from crftool.stream import Request, tag_stream

    if output:
        check_writable(output)
    mapped = MappedModel.load(model)
    allowed = (allowed_pairs(read_rules(constrain), mapped.labels, constrain) if constrain
               else mapped.allowed_pairs())
    pieces = tag_stream(mapped, files or ("-",), Request(
        layout, level, nbest or 0, posterior, inference, allowed, force_column, min_confidence, os.fsencode(abstain),
        phrase_confidence), threads or available_cores())
    if output:
        write_atomically(output, pieces)
        return
    for piece in pieces:
        write_output(piece)
