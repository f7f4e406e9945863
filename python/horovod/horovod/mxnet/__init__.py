"""Not here: importing it says what to do."""

from .._refused import refuse

refuse("horovod.mxnet", "use PyTorch, or install Horovod itself for this framework")
