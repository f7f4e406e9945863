"""Not here: importing it says what to do."""

from .._refused import refuse

refuse("horovod.spark", "start ranks with horovodrun, redpoll run, torchrun, mpirun or srun")
