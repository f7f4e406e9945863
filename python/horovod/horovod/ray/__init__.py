"""Not here: importing it says what to do."""

from .._refused import refuse

refuse("horovod.ray", "use Ray Train's TorchTrainer, or start ranks with horovodrun")
