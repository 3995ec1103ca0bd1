"""Files that appear whole or not at all, and are known to be writable before the work begins."""

import os
import re
import stat
from contextlib import contextmanager

from crftool.errors import CrftoolError

LONGEST_NAME = 40                    # of a file, in the name of its temporary


def check_writable(path):
    """Raise now what would otherwise be raised after hours of training."""
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise CrftoolError(f"{path}: is a directory; name a file")
    if os.path.exists(target):
        if not os.access(target, os.W_OK):
            raise CrftoolError(f"{path}: is not writable; change its permissions or name another file")
        if not stat.S_ISREG(os.stat(target).st_mode):
            return
    with _reported(path), open(_temporary(target), "xb") as file:
        os.unlink(file.name)


def check_distinct(outputs, inputs):
    """Raise if a file would be written over what is read, or over another output; None stands for none."""
    taken = {os.path.realpath(path): f"is read as {what}" for what, path in inputs.items() if path and path != "-"}
    for what, path in outputs.items():
        target = path and os.path.realpath(path)
        if not path or os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            continue
        if target in taken:
            raise CrftoolError(f"{path}: {taken[target]}, and would be overwritten by {what}; name another file")
        taken[target] = f"is {what} already"


def write_atomically(path, pieces):
    """Write a file so that `path` holds the old content or the new, never part of it."""
    target = os.path.realpath(path)
    with _reported(path):
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            with open(target, "wb") as file:         # a device or pipe cannot be replaced
                file.writelines(pieces)
            return
        temporary = _temporary(target)
        with open(temporary, "xb") as file:
            try:
                if os.path.exists(target):
                    os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                os.unlink(temporary)
                raise


def remove_leftovers(path):
    """Remove what killed writers of this file have left beside it."""
    folder, name = os.path.split(os.path.realpath(path))
    pattern = re.compile(re.escape(f".{name}.") + "[0-9a-f]{12}\\.tmp")
    if len(name) > LONGEST_NAME:
        return                                       # may be another file's
    with _reported(path):
        for entry in os.listdir(folder):
            if pattern.fullmatch(entry):
                os.unlink(os.path.join(folder, entry))


def _temporary(target):
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:LONGEST_NAME]}.{os.urandom(6).hex()}.tmp")


@contextmanager
def _reported(path):
    try:
        yield
    except OSError as error:
        raise CrftoolError(f"{path}: cannot be written ({error.strerror or error}); "
                           "check the folder, its permissions and the free space") from None
