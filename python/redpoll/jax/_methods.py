"""Training in which ranks exchange parameters: seldom, or with a few neighbours."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Optional

import numpy as np

from .. import _abi
from ..errors import Error, check, last_message
from ..numpy._codec import CodecLike
from ._arena import Arena
from ._world import World

log = logging.getLogger("redpoll")

_SLICE_S = 0.2


class DiLoCo:
    """Ranks train by themselves; every `every` steps an outer optimizer of
    <redpoll/local_sgd.h> combines what they have learnt.

        outer = redpoll.jax.DiLoCo(params, world, every=100, codec="q4")
        params = outer.params                      # rank 0's, on all
        for batch in batches:                      # each rank's own
            params, opt_state = jitted_step(params, opt_state, batch)
            params = outer.step(params)

    Steps in between cost a look at a counter. Every rank calls step() equally often."""

    def __init__(
        self,
        params: Any,
        world: World,
        every: int = 100,
        *,
        outer: str = "diloco",
        fragments: int = 1,
        delay: int = 0,
        codec: CodecLike = None,
        min_size: int = 1024,
        seed: int = 0,
        **numbers: Any,
    ) -> None:
        """Collective. params: leaves of float32 or float64. outer: "diloco", "average",
        "sparseloco". fragments, delay: as of redpoll.torch.DiLoCo. codec: how what ranks have
        learnt travels, with error feedback; None: exact. numbers: outer_rate, outer_momentum,
        nesterov, mixing, residual_decay. redpoll.errors.Error (INVALID), ValueError, TypeError:
        numbers that do not go together, or are none."""
        self._world, self._handle = world, ctypes.c_void_p()
        self._options = _abi.rp_local_sgd_options()
        check(_abi.rp_local_sgd_defaults(outer.encode(), ctypes.byref(self._options)))
        self._set(every=every, fragments=fragments, delay=delay, seed=seed, **numbers)
        if "outer_momentum" not in numbers:
            self._options.outer_momentum = _abi.rp_outer_momentum(outer.encode(), every)
        self._arena = Arena(params, codec, min_size, "DiLoCo")
        self._arena.values[:] = world.broadcast(self._arena.values, 0)
        self.params = self._arena.read()
        tensors = self._arena.segments()
        self._addresses = (ctypes.c_void_p * len(tensors))(*[each.data for each in tensors])
        check(_abi.rp_local_sgd_check(ctypes.byref(self._options), len(tensors)))
        text = ctypes.create_string_buffer(512)
        _abi.rp_local_sgd_advise(ctypes.byref(self._options), text, len(text))
        if text.value:
            log.warning("DiLoCo: %s", text.value.decode())
        world.check_open()
        check(
            _abi.rp_local_sgd_create(
                world.address,
                tensors,
                len(tensors),
                ctypes.byref(self._options),
                ctypes.byref(self._handle),
            )
        )
        world.attach(self)
        self.every, self._window = every, every // fragments
        self._delay, self.steps = delay, 0

    def _set(self, **numbers: Any) -> None:
        known = {name for name, *_ in self._options._fields_}
        for name, value in numbers.items():
            if name not in known or name in ("size", "outer", "fragment_of", "partner"):
                raise TypeError(f"DiLoCo: there is no option {name!r}")
            if value < 0:
                raise ValueError(f"DiLoCo: {name} is {value}; it is not negative")
            setattr(self._options, name, value)

    def step(self, params: Any, learning_rate: float = 0.0) -> Any:
        """After each step of the inner optimizer; the parameters to go on with, which are the
        same unless an exchange ends here. learning_rate: the inner one's, for outer="slowmo".
        redpoll.errors.Error names a rank that has died."""
        place = (self.steps + 1) % self._window
        ends, begins = place == 0, place == (self._window - self._delay) % self._window
        if ends or begins:
            self._arena.write(params)
        self._check_open()
        check(_abi.rp_local_sgd_step(self._handle, self._addresses, learning_rate, None))
        self.steps += 1
        return self._arena.read() if ends else params

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints, beside the parameters: a rank's own. Waits for an exchange in
        flight."""
        self._check_open()
        check(_abi.rp_local_sgd_settle(self._handle))
        vectors = {name: part.copy() for name, part in self._vectors()}
        return {"steps": self.steps, "residual": self._arena.residual.copy(), **vectors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What state_dict() gave on this rank, of as many ranks."""
        self._check_open()
        check(_abi.rp_local_sgd_resume(self._handle, state["steps"]))
        for name, part in self._vectors():
            part[:] = state[name]
        self.steps = state["steps"]
        self._arena.residual[:] = state["residual"]

    def _vectors(self) -> Any:
        count = len(self._addresses)
        sizes = [each.count for each in self._arena.segments()]
        for index in range(_abi.rp_local_sgd_state_count(self._handle)):
            name = _abi.rp_local_sgd_state_name(self._handle, index).decode()
            for i in range(count):
                place = _abi.rp_local_sgd_state(self._handle, index, i)
                if place:
                    yield f"{name}.{i}", _view(place, sizes[i], self._arena.dtype)

    def _check_open(self) -> None:
        if not self._handle:
            raise ValueError("DiLoCo: its communicator was closed")

    def release(self) -> None:
        """Of the world, before it closes. Again: nothing happens."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        _abi.rp_local_sgd_destroy(handle)

    def __del__(self) -> None:
        if self._world.address:
            self.release()


class Gossip:
    """Ranks average with the neighbours that a topology gives them, each step
    (<redpoll/gossip.h>).

        gossip = redpoll.jax.Gossip(params, world, topology="base", algorithm="atc")
        params = gossip.params
        for batch in batches:
            updates, opt_state = jitted_updates(params, opt_state, batch)   # optax's
            params = gossip.step(params, updates)"""

    def __init__(
        self,
        params: Any,
        world: World,
        topology: Optional[str] = None,
        algorithm: str = "atc",
        *,
        codec: CodecLike = None,
        min_size: int = 1024,
        gamma: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Collective. params: leaves of float32 or float64; rank 0's on all. topology,
        algorithm: of docs/topologies.md and docs/decentralised.md. codec: with error feedback
        where the algorithm has room for it. redpoll.errors.Error: they do not go together."""
        self._world, self._handle = world, ctypes.c_void_p()
        self.info = _abi.rp_gossip_info()
        name = topology.encode() if topology else None
        check(
            _abi.rp_gossip_check(name, algorithm.encode(), world.world, ctypes.byref(self.info))
        )
        self._arena = Arena(params, codec, min_size, "Gossip")
        self._arena.values[:] = world.broadcast(self._arena.values, 0)
        self.params = self._arena.read()
        self._gradient = np.zeros_like(self._arena.values)
        first = self._arena.segments()
        second = self._arena.segments(feedback=False, first=len(first))
        setup = _abi.rp_gossip_setup(
            topology=name,
            algorithm=algorithm.encode(),
            dtype=self._arena.number,
            count=self._arena.values.size,
            x=self._arena.values.ctypes.data,
            gradient=self._gradient.ctypes.data,
            seed=seed,
            gamma=gamma,
        )
        for i, layout in enumerate((first, second)):
            setup.layouts[i] = ctypes.cast(layout, ctypes.POINTER(_abi.rp_segment))
            setup.layout_counts[i] = len(layout)
        world.check_open()
        check(
            _abi.rp_gossip_create(
                world.address, ctypes.byref(setup), ctypes.byref(self._handle)
            )
        )
        world.attach(self)
        self.steps = 0

    def step(self, params: Any, updates: Any, rate: float = 1.0) -> Any:
        """params: what was given last. updates: what would be added to them, optax's; of
        algorithms that exchange two vectors (gradient-tracking, push-diging) the negative
        gradient, of which `rate` is the step. The next parameters of this rank."""
        if not self._handle:
            raise ValueError("Gossip: its communicator was closed")
        self._arena.write(params)
        self._arena.write(updates, self._gradient)
        np.negative(self._gradient, out=self._gradient)
        request = ctypes.c_void_p()
        check(_abi.rp_gossip_post(self._handle, self.steps, rate, ctypes.byref(request)))
        code = _abi.RP_PENDING
        while code == _abi.RP_PENDING:  # the communicator's own limit ends it
            code = _abi.rp_request_wait_for(request, _SLICE_S)
        message = last_message() if code < 0 else ""
        _abi.rp_request_free(ctypes.byref(request))
        if code < 0:
            raise Error(code, message)
        check(_abi.rp_gossip_apply(self._handle, rate))
        self.steps += 1
        return self._arena.read()

    def consensus(self, params: Any) -> Any:
        """The mean of all ranks, to evaluate. Collective."""
        self._arena.write(params)
        kept = self._arena.values.copy()
        self._arena.values[:] = self._world.all_reduce(kept, "mean")
        found = self._arena.read()
        self._arena.values[:] = kept
        return found

    def release(self) -> None:
        """Of the world, before it closes. Again: nothing happens."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        _abi.rp_gossip_destroy(handle)

    def __del__(self) -> None:
        if self._world.address:
            self.release()


def _view(place: int, count: int, dtype: Any) -> Any:
    """The library's memory as an array."""
    kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
    return np.ctypeslib.as_array((kind * count).from_address(place))
