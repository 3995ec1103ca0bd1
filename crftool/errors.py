"""What can go wrong for a user, as one family of exceptions.

Every message reads `place: what is wrong; what to do`, where the place is `file` or `file:line`.
The command line prints it as it is and exits with 1; nothing else in the package prints errors.
"""


class CrftoolError(Exception):
    """Base of all errors that a user can cause and mend."""


class DataError(CrftoolError):
    """A corpus, template or configuration file that cannot be used as it is."""

    def __init__(self, path, line, problem, remedy):
        place = path if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {problem}; {remedy}")


class ModelError(CrftoolError):
    """A file that is no model of ours, is damaged, or does not fit the data."""


class ResourceError(CrftoolError):
    """The work cannot fit into this machine."""


class NumericError(CrftoolError):
    """Scores that leave the range of floating-point numbers."""
