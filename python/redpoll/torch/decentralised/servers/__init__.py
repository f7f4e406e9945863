"""Parameter servers: ParameterServer and AsyncLocalSGD, workers that die and come back.

Both are a ServedOptimizer, which has the servers, spans of steps, and the world that
shrinks and grows; the two say what travels, and when. Which ranks there are and what they do
together is a Ranks of each; growing knows an optimizer as a Member, and no more of it.
"""
