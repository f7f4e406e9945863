"""Sharded models: reduce-scatters and all-gathers that travel with codecs.

A unit's flat buffer is cut where its tensors begin and end, by what PyTorch knows of it;
what cannot be told apart is an error or travels exact, never wrong. A unit's pieces are one
operation. Error feedback is asked for: it needs as much memory as whole gradients.
"""
