"""compress(): gradients with error feedback for DDP; sharded models it hands on to `fsdp`.

What a step loses is kept by the parameter's name, in units of the mean, so that it survives
new buckets, restarts and other numbers of ranks, and nothing is lost in sum.
"""
