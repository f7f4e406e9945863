"""Redpoll inside of frameworks that make the model parallel and write the checkpoints.

    from redpoll.torch.integrations.transformers import CompressCallback  # Hugging Face
    from redpoll.torch.integrations.lightning import CompressCallback     # Lightning
    from redpoll.torch.integrations.accelerate import compress            # Accelerate
    from redpoll.torch.integrations.torchft import ProcessGroupRedpoll    # torchft

Those of trainers call redpoll.torch.compress() on the model that the framework has wrapped,
once it has, and keep the state in the framework's own checkpoints: a run that goes on from one
is the uninterrupted run bit for bit, of as many ranks, and loses nothing in sum of others.

A module is named after its framework and imports it; this one, and all else of Redpoll,
imports none. They use what a framework documents, change none of its objects, and stand above
all rooms: nothing here is imported by another.
"""
