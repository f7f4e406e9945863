"""PyTorch's door: the backend "redpoll", its process groups, and what they are asked for.

Takes c10d's arguments, in all their forms, and makes calls of a Communicator of them; a
call that names no codec asks the group's policy. What PyTorch's watchers see, accounts and
the barrier that names who is missing are here, too. _elastic makes groups of those that are
left, and groups by themselves.
"""
