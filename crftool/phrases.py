"""Phrases in label sequences, as conlleval reads them: from labels such as B-NP, I-NP and O.

A label is a tag and, after the first dash, a type. Which pairs of neighbours a phrase starts or ends between is
written down here once; evaluation and tagging make their tables from it.
"""

# A phrase starts / ends between the first and the second of two adjacent tags, whatever their types. The pairs
# that are missing (E B, for one) are missing in conlleval: there only a change of type makes a difference.
START_PAIRS = (b"BB", b"IB", b"OB", b"OI", b"EE", b"EI", b"OE")
END_PAIRS = (b"BB", b"BO", b"IB", b"IO", b"EE", b"EI", b"EO")
SINGLE_TOKEN_TAGS = b"[]"
OUTSIDE_TAGS = b"O."


def parse_label(label):
    """Split a label into its tag and its type."""
    tag, _, phrase_type = label.partition(b"-")
    # conlleval tests the type for truth, and in Perl the text "0" is false.
    return tag, b"" if phrase_type == b"0" else phrase_type


def _among(tag, tags):
    return len(tag) == 1 and tag in tags


def starts_between(previous, current):
    """Whether a phrase starts at `current`, both being (tag, type)."""
    return (previous[0] + current[0] in START_PAIRS and len(current[0]) == 1
            or _among(current[0], SINGLE_TOKEN_TAGS)
            or previous[1] != current[1] and not _among(current[0], OUTSIDE_TAGS))


def ends_between(previous, current):
    """Whether a phrase ends at `previous`."""
    return (previous[0] + current[0] in END_PAIRS and len(current[0]) == 1
            or _among(previous[0], SINGLE_TOKEN_TAGS)
            or previous[1] != current[1] and not _among(previous[0], OUTSIDE_TAGS))


def boundary_tables(labels):
    """(starts, ends [Y + 1][Y + 1] as bytes, types [Y]) of labels; the last row and column are the outside."""
    parsed = [*map(parse_label, labels), (b"O", b"")]
    distinct = list(dict.fromkeys(parsed))           # many labels, few kinds of pairs: ask once for each
    rows = [distinct.index(pair) for pair in parsed]
    tables = []
    for test in (starts_between, ends_between):
        small = [bytes(test(a, b) for b in distinct) for a in distinct]
        wide = [bytes(row[k] for k in rows) for row in small]
        tables.append(b"".join(wide[k] for k in rows))
    return *tables, [kind for _, kind in parsed[:-1]]
