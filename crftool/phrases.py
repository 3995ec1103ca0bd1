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


def has_phrases(labels):
    """Whether labels are of a phrase scheme: one has a type, as in B-NP, or all are bare tags. (A single O may be
    a phoneme.) Where not, the F1 of phrases means nothing."""
    tags = {b"B", b"I", b"E", b"S", b"L", b"U"}
    parsed = [parse_label(label) for label in labels]
    return any(tag in tags and kind for tag, kind in parsed) or \
        any(label in tags for label in labels) and all(label in tags or label == b"O" for label in labels)


def _starts(previous, tag, changed):
    """Whether a phrase starts at the second of two tags (b"" for an unknown one); `changed`: their types differ."""
    return (len(previous) == 1 and previous + tag in START_PAIRS or tag != b"" and tag in SINGLE_TOKEN_TAGS
            or changed and (tag == b"" or tag not in OUTSIDE_TAGS))


def _ends(previous, tag, changed):
    """Whether a phrase ends at the first of two tags."""
    return (len(previous) == 1 and previous + tag in END_PAIRS or previous != b"" and previous in SINGLE_TOKEN_TAGS
            or changed and (previous == b"" or previous not in OUTSIDE_TAGS))


def boundary_tables(labels):
    """(starts, ends [Y + 1][Y + 1] as bytes, types [Y]) of labels; the last row and column are the outside."""
    known = [b"", *(bytes([tag]) for tag in b"BIEO" + SINGLE_TOKEN_TAGS + OUTSIDE_TAGS)]
    parsed = [(known.index(tag) if tag in known else 0, kind) for tag, kind in [*map(parse_label, labels), (b"O", b"")]]
    tags = bytes(tag for tag, _ in parsed)
    of_type = {}
    for k, (_, kind) in enumerate(parsed):
        of_type.setdefault(kind, []).append(k)
    tables = []
    for test in (_starts, _ends):
        changed, equal = ([bytes(bool(test(a, b, differ)) for b in known).ljust(256, b"\0") for a in known]
                          for differ in (True, False))
        rows = []
        for tag, kind in parsed:
            row = bytearray(tags.translate(changed[tag]))
            for k in of_type[kind]:
                row[k] = equal[tag][tags[k]]
            rows.append(row)
        tables.append(b"".join(rows))
    return *tables, [kind for _, kind in parsed[:-1]]
