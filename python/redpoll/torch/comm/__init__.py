"""The library's communicator in Python: operations on tensors, requests, works, their end.

A Communicator belongs to one process group. Its operations take tensors and give a Work;
what is in flight keeps its tensors, whatever happens to the Work, and a rank that dies is
named on every other. Nothing here makes process groups, knows which codec suits what, or
knows models: codecs come with each call.

One Communicator is made of parts, each with a file and a contract of its own: names (what
errors say), checks (of arguments), life (who uses the rp_comm, and when it goes), poster
(posts on it, knows its requests and what has failed). Operations are functions of it:
_all_reduce, _collectives, _owned_collectives, _neighbors, _messages. _joining makes the
rp_comm, _shrinking a communicator of those that are left, _registry knows all of a process.
"""
