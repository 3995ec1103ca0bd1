r"""The small pattern language of %t and %m, as Wapiti has it, on characters instead of bytes.

    .            any character
    \d \a \w     digit, letter, letter or digit      \l \u  lower-case, upper-case letter
    \p \s        punctuation or symbol, white space  upper case (\D, \A, ...): anything else
    \x           the character x itself
    item*        any number of the item, as few as will do
    item?        the item or nothing, the item if that will do
    ^ first, $ last: start and end of the value

Everything else stands for itself. Patterns run once per distinct value. Those without letter classes are
handed to `re`, which means the same by them and is faster; the others are matched here, by backtracking.
"""

import re
import unicodedata

CLASSES = {
    "d": str.isdecimal,
    "a": str.isalpha,
    "w": lambda c: c.isalpha() or c.isdecimal(),
    "l": lambda c: c.isalpha() and c.islower(),
    "u": lambda c: c.isalpha() and c.isupper(),
    "s": str.isspace,
    "p": lambda c: unicodedata.category(c)[0] in "PS",
}
# Special in most regular expressions, ordinary here: worth a word to whoever expects the former.
USUAL_SPECIALS = "[](){}|+"
IN_RE = {"d": r"\d", "D": r"\D", "s": r"\s", "S": r"\S"}           # classes that `re` has too
MAX_REPEATS = 8                      # with more, the backtracking of `re` might explode
MAX_ITEMS = 200                      # a bound for the depth of backtracking


class PatternSyntaxError(ValueError):
    pass


class Pattern:
    """One compiled pattern."""

    def __init__(self, text):
        self.text = text
        self.surprises = []          # unescaped characters that other pattern languages treat as special
        self._from_start = text.startswith("^")
        self._to_end = False
        self._items = []             # (test of one character, "" or "*" or "?")
        self._in_re = []             # the same for `re`; None: it cannot say it
        self._parse(text[1:] if self._from_start else text)
        self._re = None
        if None not in self._in_re and sum(repeat != "" for _, repeat in self._items) <= MAX_REPEATS:
            self._re = re.compile((r"\A" if self._from_start else "") + "".join(self._in_re)
                                  + (r"\Z" if self._to_end else ""), re.DOTALL)

    def _parse(self, text):
        i = 0
        while i < len(text):
            if text[i] == "$" and i == len(text) - 1:
                self._to_end = True
                return
            if text[i] in "*?":
                raise PatternSyntaxError(f"nothing for the '{text[i]}' to repeat")
            if text[i] == "\\":
                if i + 1 == len(text):
                    raise PatternSyntaxError("a backslash at the end")
                test = self._escape(text[i + 1])
                known = IN_RE.get(text[i + 1], None if text[i + 1].lower() in CLASSES else re.escape(text[i + 1]))
                i += 2
            else:
                if text[i] in USUAL_SPECIALS:
                    self.surprises.append(text[i])
                test = (lambda c: True) if text[i] == "." else text[i].__eq__
                known = "." if text[i] == "." else re.escape(text[i])
                i += 1
            repeat = text[i] if i < len(text) and text[i] in "*?" else ""
            i += len(repeat)
            self._items.append((test, repeat))
            self._in_re.append(known and known + {"*": "*?", "?": "?", "": ""}[repeat])
            if len(self._items) > MAX_ITEMS:
                raise PatternSyntaxError(f"more than {MAX_ITEMS} items")

    @staticmethod
    def _escape(letter):
        if letter in CLASSES:
            return CLASSES[letter]
        if letter.lower() in CLASSES:
            test = CLASSES[letter.lower()]
            return lambda c: not test(c)
        return letter.__eq__

    def _match(self, k, text, position, known):
        """Where a match of the items from k ends that starts at `position`; -1 if there is none.

        `known` holds the answers found so far, so that no way is tried twice.
        """
        if k == len(self._items):
            return -1 if self._to_end and position < len(text) else position
        if (k, position) not in known:
            test, repeat = self._items[k]
            here = position < len(text) and test(text[position])
            if repeat == "*":
                end, at = self._match(k + 1, text, position, known), position
                while end < 0 and at < len(text) and test(text[at]):     # one more of the item, then the rest
                    at += 1
                    end = self._match(k + 1, text, at, known)
            else:
                end = self._match(k + 1, text, position + 1, known) if here else -1
                if end < 0 and repeat == "?":
                    end = self._match(k + 1, text, position, known)
            known[k, position] = end
        return known[k, position]

    def search(self, text):
        """The leftmost match, or None."""
        if self._re is not None:
            found = self._re.search(text)
            return found and found[0]
        return self._search(text)

    def _search(self, text):
        known = {}
        for start in range(1 if self._from_start else len(text) + 1):
            end = self._match(0, text, start, known)
            if end >= 0:
                return text[start:end]
        return None
