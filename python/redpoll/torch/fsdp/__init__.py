"""Sharded models: reduce-scatters and all-gathers that travel with codecs.

A unit's flat buffer is cut where its tensors begin and end, by what PyTorch knows of it;
what cannot be told apart is an error or travels exact, never wrong. Without error feedback:
a state is a counter of steps.
"""
