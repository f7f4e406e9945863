"""`redpoll.torch.statistics` is the module of that name in `c10d`."""

import sys

from .c10d import statistics

sys.modules[__name__] = statistics
