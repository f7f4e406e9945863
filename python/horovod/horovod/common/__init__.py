"""What does not depend on PyTorch."""
