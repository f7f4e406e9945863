"""The interface of BlueFog on Redpoll: `import bluefog.torch as bf`."""

__version__ = "0.3.0"  # of the interface; the package's own is redpoll's
