"""`redpoll.torch.async_local_sgd` is the module of that name in `decentralised.servers`."""

import sys

from .decentralised.servers import async_local_sgd

sys.modules[__name__] = async_local_sgd
