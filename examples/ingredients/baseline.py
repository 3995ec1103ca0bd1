#!/usr/bin/env python3
"""Label each token with the label it had most often in the training data.

Usage: baseline.py TRAIN TEST

Writes the columns of TEST, whose last one is the gold label, and the guess as
a further column.  Tokens are compared in lower case.  A token that TRAIN does
not contain gets the label that is most frequent for rare tokens, because new
tokens are rare ones.
"""

import collections
import sys


def read_rows(path):
    """Yield the columns of each line; none for a blank line."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield line.split()


def count_labels(path):
    """Return {token: Counter of its labels}."""
    counts = collections.defaultdict(collections.Counter)
    for row in read_rows(path):
        if row:
            counts[row[0].lower()][row[-1]] += 1
    return counts


def most_frequent(counter):
    # Ties go to the label that comes first in the alphabet, so that the
    # result does not depend on the order of the training data.
    return min(counter, key=lambda label: (-counter[label], label))


def label_of_rare_tokens(counts):
    labels = collections.Counter()
    for counter in counts.values():
        if sum(counter.values()) == 1:
            labels.update(counter)
    return most_frequent(labels)


def main():
    train, test = sys.argv[1:]
    counts = count_labels(train)
    usual = {token: most_frequent(counter)
             for token, counter in counts.items()}
    unknown = label_of_rare_tokens(counts)
    for row in read_rows(test):
        if row:
            row.append(usual.get(row[0].lower(), unknown))
        print("\t".join(row))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main()
