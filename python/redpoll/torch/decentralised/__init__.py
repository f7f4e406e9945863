"""Training without an all-reduce a step: gossip, local steps, windows; `servers` beside them.

Each wraps an optimizer and is one itself: step(), state_dict(), parameter groups. Averages,
rules and momenta are computed by the library; here are a model's parameters in one flat
vector, and what ranks must agree on before they begin.
"""
