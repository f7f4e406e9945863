"""`redpoll.torch.parameter_server` is the module of that name in `decentralised.servers`."""

import sys

from .decentralised.servers import parameter_server

sys.modules[__name__] = parameter_server
