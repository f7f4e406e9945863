"""The library's communicator in Python: operations on tensors, requests, works, their end.

A Communicator belongs to one process group. Its operations take tensors and give a Work;
what is in flight keeps its tensors, whatever happens to the Work, and a rank that dies is
named on every other. Nothing here makes process groups, knows which codec suits what, or
knows models: codecs come with each call.
"""
