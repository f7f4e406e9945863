"""A training script as it is found everywhere: DistributedDataParallel."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(100):
    inputs = torch.randn(32, 64, generator=generator)
    targets = inputs.sum(1, keepdim=True) / 8
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
