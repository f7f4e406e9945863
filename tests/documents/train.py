"""Stands for a user's program where a document starts one."""

import os

print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
