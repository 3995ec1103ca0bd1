"""How labelled sequences are written: CRF++'s columns, labels alone, or JSON lines.

CRF++'s layout, byte for byte: every input column followed by a tab, then the label; an empty line after
each sequence. With probabilities: `# P` before the sequence and `LABEL/p` as the label, then, if asked
for, `y/p` of all labels. N-best lists: a block per labelling, headed `# k P`.
"""

import json
from dataclasses import dataclass, field


def _text(value):
    return value.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Details:
    """More about one labelling than CRF++ prints."""

    abstained: dict = field(default_factory=dict)    # token -> the symbol printed instead of its label
    confidence: list | None = None                   # [T]  of the phrase that each token belongs to
    phrases: list | None = None                      # [(first token, last token, type, confidence)]
    entropy: float | None = None                     # of all labellings, in nats


class ConllWriter:
    """CRF++'s output; `level` as its -v: 0 labels, 1 probabilities, 2 those of all labels too."""

    def __init__(self, labels, level=0):
        self.labels, self.level = labels, level

    def sequence(self, tokens, start, path, probability, marginals, rank=None, details=Details()):
        """One labelling of the sequence that starts at token `start`; marginals are those of all tokens."""
        lines = []
        if rank is not None:
            lines.append(b"# %d %f" % (rank, probability))
        elif self.level >= 1:
            lines.append(b"# %f" % probability)
        for t, label in enumerate(path, start):
            fields = self._columns(tokens, t)
            fields.append(details.abstained.get(t, self.labels[label]))
            if self.level >= 1:
                fields[-1] += b"/%f" % marginals[t, label]
            if self.level >= 2:
                fields += [b"%s/%f" % pair for pair in zip(self.labels, marginals[t])]
            if details.confidence is not None:
                fields.append(b"%f" % details.confidence[t - start])
            lines.append(b"\t".join(fields))
        return b"\n".join(lines) + b"\n\n"

    def _columns(self, tokens, t):
        return [tokens.text(t, column) for column in range(tokens.columns)]


class LabelWriter(ConllWriter):
    """The same without the input's columns."""

    def _columns(self, tokens, t):
        return []


class JsonWriter:
    """One JSON object a sequence and line. Bytes that are no UTF-8 appear as lone surrogates."""

    def __init__(self, labels, level=0):
        self.labels, self.level = [_text(label) for label in labels], level

    def sequence(self, tokens, start, path, probability, marginals, rank=None, details=Details()):
        record = {
            "tokens": [[_text(tokens.text(t, column)) for column in range(tokens.columns)]
                       for t in range(start, start + len(path))],
            "labels": [_text(details.abstained[t]) if t in details.abstained else self.labels[label]
                       for t, label in enumerate(path, start)]}
        if rank is not None:
            record["rank"] = rank
        if probability is not None:
            record["probability"] = float(probability)
        if self.level >= 1:
            record["label_probability"] = [float(marginals[t, label]) for t, label in enumerate(path, start)]
        if self.level >= 2:
            record["marginals"] = [dict(zip(self.labels, map(float, marginals[t])))
                                   for t in range(start, start + len(path))]
        if details.phrases is not None:
            record["phrases"] = [{"start": first - start, "end": last - start + 1, "type": _text(kind),
                                  "confidence": float(confidence)}
                                 for first, last, kind, confidence in details.phrases]
        if details.entropy is not None:
            record["entropy"] = float(details.entropy)
        return json.dumps(record).encode() + b"\n"


WRITERS = {"conll": ConllWriter, "labels": LabelWriter, "json": JsonWriter}
