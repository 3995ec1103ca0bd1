r"""The small pattern language of %t and %m, as Wapiti has it, on characters instead of bytes.

    .            any character
    \d \a \w     digit, letter, letter or digit      \l \u  lower-case, upper-case letter
    \p \s        punctuation or symbol, white space  upper case (\D, \A, ...): anything else
    \x           the character x itself
    item*        any number of the item, as few as will do
    item?        the item or nothing, the item if that will do
    ^ first, $ last: start and end of the value

Everything else stands for itself. Patterns run once per distinct value, compiled (kernels.patterns). Here is
the parser, and the same search in Python, for the few values that need it.
"""

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
MAX_ITEMS = 200                      # a bound for the depth of backtracking


class PatternSyntaxError(ValueError):
    pass


def _test(character, kind):
    """What tells whether a character fits an item."""
    if kind == ".":
        return lambda c: True
    if not kind:
        return character.__eq__
    test = CLASSES[kind.lower()]
    return test if kind in CLASSES else lambda c: not test(c)


class Pattern:
    """One compiled pattern."""

    def __init__(self, text):
        self.text = text
        self.surprises = []          # unescaped characters that other pattern languages treat as special
        self.items = []              # (character, letter of a class or "." or "", "" or "*" or "?")
        self.from_start = text.startswith("^")
        self.to_end = False
        self._parse(text[1:] if self.from_start else text)
        self._tests = [(_test(character, kind), repeat) for character, kind, repeat in self.items]

    def _parse(self, text):
        i = 0
        while i < len(text):
            if text[i] == "$" and i == len(text) - 1:
                self.to_end = True
                return
            if text[i] in "*?":
                raise PatternSyntaxError(f"nothing for the '{text[i]}' to repeat")
            if text[i] == "\\":
                if i + 1 == len(text):
                    raise PatternSyntaxError("a backslash at the end")
                character = text[i + 1]
                kind = character if character.lower() in CLASSES else ""
                i += 2
            else:
                if text[i] in USUAL_SPECIALS:
                    self.surprises.append(text[i])
                character, kind = text[i], "." if text[i] == "." else ""
                i += 1
            repeat = text[i] if i < len(text) and text[i] in "*?" else ""
            i += len(repeat)
            self.items.append((character, kind, repeat))
            if len(self.items) > MAX_ITEMS:
                raise PatternSyntaxError(f"more than {MAX_ITEMS} items")

    def _match(self, k, text, position, known):
        """Where a match of the items from k ends that starts at `position`; -1 if there is none.

        `known` holds the answers found so far, so that no way is tried twice.
        """
        if k == len(self.items):
            return -1 if self.to_end and position < len(text) else position
        if (k, position) not in known:
            test, repeat = self._tests[k]
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
        known = {}
        for start in range(1 if self.from_start else len(text) + 1):
            end = self._match(0, text, start, known)
            if end >= 0:
                return text[start:end]
        return None
