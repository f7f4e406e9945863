"""A network of flax learns digits with optax, data-parallel: two lines are Redpoll's.

redpoll run -n 2 -- python examples/jax/flax_digits.py --codec q4

The digits are drawn here: seven bars, as on a pocket calculator, moved about and with noise.
"""

from __future__ import annotations

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import redpoll.jax

# Which of the seven bars a digit has: top, middle, bottom, then left and right of both halves.
BARS = ("1011111", "0000011", "1110110", "1110011", "0101011")
BARS += ("1111001", "1111101", "1000011", "1111111", "1111011")


def drawn(digit: int) -> np.ndarray:
    image = np.zeros((13, 8), np.float32)
    top, middle, bottom, left_high, left_low, right_high, right_low = map(float, BARS[digit])
    image[0], image[6], image[12] = top, middle, bottom
    image[:7, 0], image[6:, 0] = left_high, left_low
    image[:7, 7], image[6:, 7] = right_high, right_low
    return image


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    images = random.random((count, 18, 14), np.float32) * 0.5
    labels, shifts = random.integers(10, size=count), random.integers(4, size=(count, 2))
    for image, label, (down, right) in zip(images, labels, shifts):
        image[down : down + 13, right : right + 8] += drawn(label)
    return images, labels


class Net(nn.Module):
    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        found = nn.relu(nn.Conv(8, (3, 3))(images[..., None]))
        found = nn.max_pool(found, (2, 2), strides=(2, 2))
        found = nn.relu(nn.Dense(64)(found.reshape(len(images), -1)))
        return nn.Dense(10)(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Digits by flax, optax and Redpoll.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--codec", default=None, help="q4, q8 ...; exact without")
    args = parser.parse_args()

    world = redpoll.jax.join()
    images, labels = digits(args.images, seed=1)
    own_images, own_labels = (
        images[world.rank :: world.world],
        labels[world.rank :: world.world],
    )
    net = Net()
    params = net.init(jax.random.key(0), jnp.asarray(images[:1]))
    optimizer = optax.chain(redpoll.jax.averaged(world, args.codec), optax.adam(args.lr))
    state = optimizer.init(params)

    @jax.jit
    def train(params: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss_of(params: Any) -> jax.Array:
            logits = net.apply(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    @jax.jit
    def right(params: Any, images: Any, labels: Any) -> jax.Array:
        return (net.apply(params, images).argmax(1) == labels).mean()

    test_images, test_labels = digits(1000, seed=2)
    steps = args.images // (args.batch_size * world.world)
    for epoch in range(args.epochs):
        order = np.random.default_rng(epoch).permutation(len(own_images))
        for step in range(steps):
            batch = order[step * args.batch_size : (step + 1) * args.batch_size]
            params, state, loss = train(params, state, own_images[batch], own_labels[batch])
        mean = world.all_reduce(np.float32(loss), "mean")
        accuracy = float(right(params, test_images, test_labels))
        if world.rank == 0:
            print(f"epoch {epoch}  loss {mean:.4f}  accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
