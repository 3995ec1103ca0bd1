"""crftool: linear-chain CRF sequence labelling from the command line.

For programs: `crftool.Model`, loaded when first asked for.
"""

import time

# The clock that every report of elapsed time counts from; taken before anything heavy is imported.
STARTED = time.monotonic()

__version__ = "0.1.0"
__all__ = ["Model"]


def __getattr__(name):
    if name == "Model":
        from crftool.api import Model
        return Model
    raise AttributeError(f"module 'crftool' has no attribute '{name}'")
