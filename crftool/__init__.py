"""crftool: linear-chain CRF sequence labelling from the command line."""

import time

# The clock that every report of elapsed time counts from; taken before anything heavy is imported.
STARTED = time.monotonic()

__version__ = "0.1.0"
