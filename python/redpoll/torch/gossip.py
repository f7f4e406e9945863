"""`redpoll.torch.gossip` is the module of that name in `decentralised`."""

import sys

from .decentralised import gossip

sys.modules[__name__] = gossip
