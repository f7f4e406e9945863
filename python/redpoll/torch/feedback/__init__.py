"""What codecs lose, kept by the parameter's name, and how it goes through checkpoints.

Only the total over ranks matters to training: a state says whose it is, and a run of another
world shares out what the ranks of the old one held.
"""
