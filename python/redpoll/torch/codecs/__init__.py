"""Which codec a tensor travels with: rules by name, policies of groups, bits that are chosen.

Answers depend on names, shapes and what all ranks know alike, so that all ranks give the
same. Nothing here sends a tensor of the user's.
"""
