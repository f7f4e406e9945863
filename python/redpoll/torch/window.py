"""`redpoll.torch.window` is the module of that name in `decentralised`."""

import sys

from .decentralised import window

sys.modules[__name__] = window
