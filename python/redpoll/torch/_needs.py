"""Says what is missing before anything else of this package is imported."""

from __future__ import annotations

OLDEST = (2, 9)

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "redpoll.torch needs PyTorch 2.9 or newer: pip install 'torch>=2.9'",
        name="torch",
    ) from error

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(f"redpoll.torch needs PyTorch 2.9 or newer; this is {torch.__version__}")
if not torch.distributed.is_available():
    raise ImportError("redpoll.torch needs a PyTorch built with torch.distributed")
