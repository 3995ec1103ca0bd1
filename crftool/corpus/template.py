r"""CRF++ templates, with Wapiti's extensions, compiled to literals and fields.

    U02:%x[0,0]/%x[0,1]      a unigram template: literals "U02:", "/", "" and two fields
    B                        a bigram template without fields: the plain label transition
    *05:%x[0,0]              both at once

A field is a row (relative, or absolute with @) of a source; a source is a column as it is (%x),
lower-cased (%X), tested (%t) or cut out (%m) by a pattern. What follows the type letter belongs to the
observation's text, so two templates that expand to the same text share their weights, as in CRF++.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from crftool.corpus.patterns import Pattern, PatternSyntaxError
from crftool.corpus.reader import display_name
from crftool.errors import DataError
from crftool.kernels.keys import MAX_FIELDS
from crftool.kernels.patterns import Macro

MACRO = re.compile(
    rb"""%(?P<command>[xXtTmM])
         \[\s*(?P<absolute>@?)\s*(?P<row>[+-]?\d{1,9})\s*,\s*\+?(?P<column>\d{1,9})\s*
         (?:,\s*"(?P<pattern>(?:[^"\\]|\\.)*)"\s*)?\]""",
    re.VERBOSE | re.DOTALL)
LARGEST_ROW = 100_000
LARGEST_COLUMN = 100_000
# How Wapiti writes positions outside a sequence; its patterns are applied to that text.
WAPITI_PADDING = 4


compiled_pattern = lru_cache(maxsize=None)(Pattern)


@dataclass(frozen=True)
class Source:
    """A column, or what a macro makes of it."""

    column: int
    command: str = "x"               # x, X, t or m (T and M are m with `lower`)
    pattern: str | None = None
    lower: bool = False

    def derive(self, value):
        """The source's value where the column's is `value`; bytes to bytes."""
        text = value.decode("utf-8", "surrogateescape")
        if self.command == "t":
            text = "false" if compiled_pattern(self.pattern).search(text) is None else "true"
        elif self.command == "m":
            text = compiled_pattern(self.pattern).search(text) or ""
        if self.lower:
            text = text.lower()
        return text.encode("utf-8", "surrogateescape")

    def macro(self):
        """The same, compiled: a kernels.patterns.Macro; None for a column as it is."""
        if self.command == "x":
            return None
        pattern = compiled_pattern(self.pattern or "")
        return Macro(self.command, self.lower, pattern.items, pattern.from_start, pattern.to_end, self.derive)

    def padding(self, distance):
        """The value `distance` tokens before the start (negative) or after the end of a sequence."""
        if self.command in "xX":
            return b"_B%+d" % distance
        near = abs(distance) <= WAPITI_PADDING
        return self.derive(b"_x%+d" % distance if near else b"_x-#" if distance < 0 else b"_x+#")


@dataclass(frozen=True)
class Field:
    source: int                      # index into Template.sources
    row: int
    absolute: int = 0                # 1: the row-th token; -1: the row-th from the end


@dataclass(frozen=True)
class TemplateLine:
    """One template: its text is literals[0], field 0, literals[1], field 1, ..."""

    line: int
    text: bytes
    literals: tuple
    fields: tuple

    def expand(self, values):
        """The observation's text for these field values."""
        parts = [self.literals[0]]
        for value, literal in zip(values, self.literals[1:]):
            parts += (value, literal)
        return b"".join(parts)


class Template:
    """A compiled template file."""

    def __init__(self, text, path="template"):
        self.text, self.path = text, path
        self.sources, self.unigrams, self.bigrams, self.warnings = [], [], [], []
        for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
            line = line.removesuffix(b"\r")
            if not line.strip(b" \t") or line.startswith(b"#"):
                continue
            self._add(number, line)
        if not self.unigrams and not self.bigrams:
            raise DataError(path, None, "no template in this file", "add lines such as U00:%x[0,0] and B")

    def _add(self, number, line):
        kind = line[:1]
        if kind not in (b"U", b"B", b"*"):
            shown = line[:1].decode("utf-8", "backslashreplace")
            raise DataError(self.path, number, f"a template cannot start with '{shown}'",
                            "begin the line with U, B, * or, for a comment, #")
        compiled = self._compile(number, line)
        if kind in (b"U", b"*"):
            self.unigrams.append(compiled)
        if kind in (b"B", b"*"):
            self.bigrams.append(compiled)

    def _compile(self, number, line):
        literals, fields, position = [], [], 0
        while (percent := line.find(b"%", position)) >= 0:
            macro = MACRO.match(line, percent)
            if macro is None:
                shown = line[percent:percent + 12].decode("utf-8", "backslashreplace")
                raise DataError(self.path, number, f"'{shown}' is not a macro",
                                "write %x[row,column], %X[...], %t[row,column,\"pattern\"] or %m[...]")
            literals.append(line[position:percent])
            fields.append(self._field(number, macro))
            position = macro.end()
        literals.append(line[position:])
        if len(fields) > MAX_FIELDS:
            raise DataError(self.path, number, f"{len(fields)} fields", f"use at most {MAX_FIELDS} in a template")
        return TemplateLine(number, line, tuple(literals), tuple(fields))

    def _field(self, number, macro):
        command = macro["command"].decode()
        row, column = int(macro["row"]), int(macro["column"])
        if abs(row) > LARGEST_ROW or column > LARGEST_COLUMN:
            raise DataError(self.path, number, f"{macro[0].decode('utf-8', 'backslashreplace')} is out of range",
                            f"rows and columns end at {LARGEST_ROW}")
        source = Source(column, command.lower() if command in "TM" else command,
                        self._pattern(number, command, macro["pattern"]), command in "XTM")
        if source not in self.sources:
            self.sources.append(source)
        absolute = 0
        if macro["absolute"]:
            absolute = -1 if row < 0 else 1
        return Field(self.sources.index(source), abs(row) if absolute < 0 else row, absolute)

    def _pattern(self, number, command, text):
        if command in "xX":
            if text is not None:
                raise DataError(self.path, number, f"%{command} takes no pattern", "use %t or %m for patterns")
            return None
        if text is None:
            raise DataError(self.path, number, f"%{command} needs a pattern",
                            f'write %{command}[row,column,"pattern"]')
        text = text.decode("utf-8", "surrogateescape")
        try:
            surprises = Pattern(text).surprises
        except PatternSyntaxError as error:
            raise DataError(self.path, number, f'pattern "{text}": {error}', "see the README on patterns") from None
        for character in dict.fromkeys(surprises):
            self.warnings.append(f"{self.path}:{number}: '{character}' in a pattern stands for itself; "
                                 f"write \\{character} to say that this is meant")
        return text

    @property
    def columns(self):
        """How many columns the fields need."""
        return 1 + max((source.column for source in self.sources), default=-1)

    @property
    def reach(self):
        """The largest row number: how much padding may be asked for."""
        return max((abs(field.row) for line in self.unigrams + self.bigrams for field in line.fields),
                   default=0) + 1

    def line_needing(self, column):
        """The first template that asks for this column or a later one."""
        for line in sorted(self.unigrams + self.bigrams, key=lambda line: line.line):
            if any(self.sources[field.source].column >= column for field in line.fields):
                return line
        return None


def may_collide(a, b):
    """Whether templates with different literals a, b might spell the same text."""
    if len(a) == 1 and len(b) == 1:
        return False                                 # two constants
    if len(a) == 1:
        return a[0].startswith(b[0])
    if len(b) == 1:
        return b[0].startswith(a[0])
    return a[0].startswith(b[0]) or b[0].startswith(a[0])


class Spelling:
    """How the texts of some template lines may coincide.

    Lines with the same literals share a table of observations. Texts of one table can only coincide where a
    value holds the first byte of an inner literal, which might shift a boundary between fields.
    """

    def __init__(self, lines):
        self.literals = list(dict.fromkeys(line.literals for line in lines))            # one entry a table
        self.table_of = [self.literals.index(line.literals) for line in lines]
        self.separators = bytes(sorted({inner[0] for literals in self.literals for inner in literals[1:-1] if inner}))
        self.always_ambiguous = [
            any(not inner for inner in literals[1:-1])
            or any(may_collide(literals, other) for other in self.literals if other != literals)
            for literals in self.literals]


def check_columns(template, path, line, columns):
    """An error unless data with this many columns will do for a template."""
    if columns < template.columns:
        needing = template.line_needing(columns)
        raise DataError(display_name(path), line,
                        f"{columns} column{'s' * (columns != 1)}, but the template needs {template.columns}",
                        f"give it the columns of the training data (template line {needing.line}: "
                        f"{needing.text.decode('utf-8', 'backslashreplace')})")
