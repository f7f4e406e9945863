"""`redpoll.torch.local_sgd` is the module of that name in `decentralised`."""

import sys

from .decentralised import local_sgd

sys.modules[__name__] = local_sgd
