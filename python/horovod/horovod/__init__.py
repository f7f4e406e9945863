"""The interface of Horovod on Redpoll: `import horovod.torch as hvd`."""

__version__ = "0.28.1"  # of the interface; the package's own is redpoll's
