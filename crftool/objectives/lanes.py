"""Columns of the unigram matrix shared out to threads."""

import numpy as np


def lanes_of_columns(groups, n):
    """(bounds [lanes + 1], columns): at most n lanes of columns, about equally long. `groups`: columns that may
    hold the same observation, together; they stay so, in their order, so that what is added up lane by lane
    depends on neither n nor the number of threads."""
    lanes = [[] for _ in range(min(n, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(lanes, key=len).extend(group)
    return np.cumsum([0] + [len(lane) for lane in lanes]).astype(np.int32), np.array(
        [k for lane in lanes for k in lane], np.int32)
