"""crftool eval"""

import json

import click

from crftool.cli.options import chosen_inference, inference_options, make_pool, threads_option, write_output


EXAMPLES = """\b
Examples:
  crftool tag -m chunk.model test.txt | crftool eval
  crftool eval -m chunk.model test.txt
  crftool eval --json tagged.txt
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.argument("file", default="-")
@click.option("-m", "--model", metavar="MODEL", help="Label FILE with this model first; its last column is the gold "
                                                     "label then.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with sequence accuracy.")
@click.option("-v", "--verbose", is_flag=True, help="Add a line with the accuracy of whole sequences.")
@inference_options
@threads_option
def command(file, model, as_json, verbose, inference, log_domain, threads):
    """Score labelled sequences.

    The last two columns of FILE (standard input if none is named) are the gold and the predicted label.
    Prints what conlleval prints: accuracy over tokens; precision, recall and F1 over phrases, which are
    read from labels such as B-NP, I-NP and O. A precision or recall of nothing is shown as 0.
    """
    from crftool.evaluate import Scores, score

    counts, mode = Scores.empty(), chosen_inference(inference, log_domain)
    for gold, predicted, offsets, labels in _model_labels(file, model, mode, threads) if model else _column_labels(file):
        counts += score(gold, predicted, offsets, labels)
    if as_json:
        write_output(json.dumps(counts.to_dict()).encode() + b"\n")
        return
    write_output(counts.report())
    if verbose:
        write_output(b"sequences: %d; correct: %d; accuracy: %6.2f%%\n"
                     % (counts.sequences, counts.correct_sequences, counts.sequence_accuracy))


def _column_labels(file):
    """(gold, predicted, offsets, labels) of each block, from the last two columns."""
    from crftool.corpus.reader import display_name
    from crftool.corpus.tokens import read_tokens
    from crftool.errors import DataError
    from crftool.kernels.strings import StringTable

    table, seen = StringTable(), False
    for tokens in read_tokens(file):
        if tokens.columns < 2:
            raise DataError(display_name(file), tokens.line(0), "only one column",
                            "the last two columns must be the gold and the predicted label")
        seen = True
        gold = tokens.intern(tokens.columns - 2, table, True)
        predicted = tokens.intern(tokens.columns - 1, table, True)
        yield gold, predicted, tokens.offsets, [table.text(i) for i in range(len(table))]
    if not seen:
        raise DataError(display_name(file), 1, "no token to score", "check the step that writes it")


def _model_labels(file, model, mode, threads):
    """The same, predicted by a model. A gold label that the model does not know counts as an error."""
    from crftool.corpus.dataset import read_labelled_data
    from crftool.decode import Lattices, decode
    from crftool.model import Model

    trained = Model.load(model)
    dataset, labels = read_labelled_data(file, trained.encoder)
    lattices = Lattices(dataset, trained.weights, make_pool(threads), mode, trained.constraint)
    predicted = decode(lattices).labels
    yield dataset.labels, predicted, dataset.offsets, labels
