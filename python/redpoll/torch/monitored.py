"""`redpoll.torch.monitored` is the module of that name in `c10d`."""

import sys

from .c10d import monitored

sys.modules[__name__] = monitored
