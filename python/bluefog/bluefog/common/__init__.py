"""What does not depend on PyTorch: graphs, and the environment."""
