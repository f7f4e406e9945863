"""The ranks that a process was started with, and collectives of arrays among them."""

from __future__ import annotations

import atexit
import ctypes
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Callable, Optional, Union

import numpy as np

from .. import _abi
from ..errors import check
from ._codec import Codec, CodecLike, as_codec, number_of
from ._request import Request

Arrays = Union[Any, Sequence[Any]]

OPS = {
    "sum": "SUM",
    "mean": "AVG",
    "prod": "PRODUCT",
    "min": "MIN",
    "max": "MAX",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}

_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


def join(*, name: str = "numpy", timeout_s: float = 600.0) -> Communicator:
    """The world that this process was started in, by the variables of redpoll run, torchrun,
    mpirun or srun; without any a world of one. Collective; blocks until all have come.

    name: in messages. timeout_s: an operation without progress for so long fails.
    redpoll.errors.Error: INVALID names a variable that is missing or wrong, TIMEOUT the ranks
    that did not come."""
    options = _abi.rp_comm_options(name=name.encode(), timeout_s=timeout_s, progress_thread=1)
    handle = ctypes.c_void_p()
    check(_abi.rp_comm_join(ctypes.byref(options), ctypes.byref(handle)))
    return Communicator(handle.value or 0, name)


class Communicator:
    """join() makes one. All ranks call its operations in the same order.

    Operations return new arrays, leave what they are given as it is, and block, with the GIL
    released; wait=False returns a Request at once, and the library's thread goes on with it.
    Arrays may be of any shape, strides and dtype of numbers; what ranks must agree on, and do
    not, is named on all of them by redpoll.errors.Error (MISMATCH). rank, world: of this
    process. A context manager, which closes it."""

    def __init__(self, address: int, name: str, parent: Optional[Communicator] = None) -> None:
        """Of join() and group()."""
        self.address, self.name = address, name
        self.rank: int = _abi.rp_comm_rank(address)
        self.world: int = _abi.rp_comm_world(address)
        self._parent = parent  # whose store and links it stands on
        self._lock = threading.Lock()
        self._running: set[Request] = set()
        _open.add(self)

    # ---- reductions ----

    def all_reduce(
        self,
        arrays: Arrays,
        op: str = "sum",
        *,
        codec: CodecLike = None,
        residuals: Optional[Arrays] = None,
        seed: int = 0,
        step: int = 0,
        out: Optional[Arrays] = None,
        wait: bool = True,
    ) -> Any:
        """An array, or a list of them as one operation; the same bits on all ranks.

        op: "sum", "mean", "prod", "min", "max", "and", "or", "xor". codec: how elements
        travel, "q4"; sums and means of floats. residuals: of error feedback, for each array a
        contiguous float32 array of its shape, zeros at first: read, and written anew. seed,
        step: keys of stochastic rounding. out: contiguous arrays of the same shapes and types
        for results; the given ones for in place."""
        is_list = isinstance(arrays, (list, tuple))
        given = _listed(arrays)
        results = [
            _copied(each, each_out, "all_reduce")
            for each, each_out in zip(given, _listed(out, len(given), "out"))
        ]
        coded = as_codec(codec)
        kept = _listed(residuals, len(given), "residuals")
        segments = (_abi.rp_segment * max(len(given), 1))()
        for i, (result, residual) in enumerate(zip(results, kept)):
            _fill(segments[i], i, result, residual, coded)
        options = _options(op, seed=seed, step=step)
        finish = (lambda: results) if is_list else (lambda: results[0])
        arguments = (segments, len(given), options)
        return self._run("all_reduce", arguments, (results, kept), finish, wait)

    def reduce_scatter(
        self,
        array: Any,
        op: str = "sum",
        *,
        codec: CodecLike = None,
        wait: bool = True,
    ) -> Any:
        """This rank's rows of the reduction; the first ranks have a row more where rows do not
        divide."""
        dense = _dense(array, "reduce_scatter")
        if not dense.ndim:
            raise ValueError("reduce_scatter: an array of one dimension or more is wanted")
        rows = shares(dense.shape[0], self.world)
        result = np.empty((rows[self.rank], *dense.shape[1:]), dense.dtype)
        blocks = _blocks(np.split(dense, np.cumsum(rows)[:-1]))
        coded = as_codec(codec)
        code = coded.reference if coded is not None else None
        number = number_of(dense.dtype, "reduce_scatter")
        arguments = (blocks, result.ctypes.data, number, code, _options(op))
        return self._run(
            "reduce_scatter_v", arguments, (dense, result, coded), lambda: result, wait
        )

    def reduce(self, array: Any, root: int = 0, op: str = "sum") -> Any:
        """The reduction on rank `root`, None on others."""
        dense = _dense(array, "reduce")
        self._check_rank(root, "reduce")
        result = np.empty_like(dense) if self.rank == root else None
        place = result.ctypes.data if result is not None else None
        number = number_of(dense.dtype, "reduce")
        arguments = (dense.ctypes.data, place, dense.size, number, _options(op, root=root))
        return self._run("reduce", arguments, (dense, result), lambda: result, True)

    # ---- movements ----

    def all_gather(self, array: Any, *, codec: CodecLike = None, wait: bool = True) -> Any:
        """Everybody's rows, in the order of ranks. How many may differ; the other dimensions
        and the type may not. An array without dimensions counts as one row."""
        dense = np.atleast_1d(_dense(array, "all_gather"))
        number = number_of(dense.dtype, "all_gather")
        rows = self._told([dense.shape[0]])[:, 0]
        result = np.empty((int(rows.sum()), *dense.shape[1:]), dense.dtype)
        blocks = _blocks(np.split(result, np.cumsum(rows)[:-1]))
        coded = as_codec(codec)
        code = coded.reference if coded is not None else None
        arguments = (dense.ctypes.data, blocks, number, code, _options("sum"))
        keep = (dense, result, coded)
        return self._run("all_gather_v", arguments, keep, lambda: result, wait)

    def broadcast(self, array: Any, root: int = 0, *, wait: bool = True) -> Any:
        """Rank `root`'s array; shapes and types are equal on all ranks."""
        self._check_rank(root, "broadcast")
        result = _copied(array, None, "broadcast")
        number = number_of(result.dtype, "broadcast")
        arguments = (result.ctypes.data, result.size, number, _options("sum", root=root))
        return self._run("broadcast", arguments, result, lambda: result, wait)

    def all_to_all(self, arrays: Sequence[Any]) -> list[Any]:
        """arrays[r] goes to rank r; the list of what came. Rows may differ, and be none; the
        other dimensions and the type are equal everywhere."""
        if len(arrays) != self.world:
            raise ValueError(f"all_to_all: {len(arrays)} arrays for {self.world} ranks")
        dense = [np.atleast_1d(_dense(each, "all_to_all")) for each in arrays]
        if len({(each.dtype, each.shape[1:]) for each in dense}) > 1:
            raise ValueError("all_to_all: arrays differ in type or in later dimensions")
        rows = self._told([each.shape[0] for each in dense])[:, self.rank]
        results = [np.empty((int(n), *dense[0].shape[1:]), dense[0].dtype) for n in rows]
        number = number_of(dense[0].dtype, "all_to_all")
        arguments = (_blocks(dense), _blocks(results), number, _options("sum"))
        return self._run("all_to_all", arguments, (dense, results), lambda: results, True)

    def send(self, array: Any, to: int, tag: int = 0, *, wait: bool = True) -> Any:
        """To one rank, which calls receive() with this tag. None, or the Request."""
        dense = _dense(array, "send")
        self._check_rank(to, "send")
        place = (dense.ctypes.data, dense.size, number_of(dense.dtype, "send"))
        return self._run("send_with", (*place, to, tag, None), dense, lambda: None, wait)

    def receive(self, into: Any, of: int, tag: int = 0, *, wait: bool = True) -> Any:
        """What rank `of` sends with this tag: as many elements of this type; `into` itself,
        which is contiguous."""
        self._check_rank(of, "receive")
        result = _writeable(into, "receive")
        place = (result.ctypes.data, result.size, number_of(result.dtype, "receive"))
        return self._run("recv_with", (*place, of, tag, None), result, lambda: result, wait)

    def barrier(self) -> None:
        """Until all ranks have come."""
        self._run("barrier", (), None, lambda: None, True)

    # ---- the communicator ----

    def group(self, ranks: Sequence[int], name: str = "group") -> Communicator:
        """Of some of these ranks, in this order; collective over them, and called by nobody
        else."""
        options = _abi.rp_comm_options(name=name.encode(), progress_thread=1)
        handle = ctypes.c_void_p()
        place = (ctypes.c_int * len(ranks))(*ranks)
        with self._lock:
            self.check_open()
            check(
                _abi.rp_comm_group(
                    self.address, place, len(ranks), ctypes.byref(options), ctypes.byref(handle)
                )
            )
        return Communicator(handle.value or 0, name, self)

    def stats(self) -> dict[str, float]:
        """The fields of rp_comm_stats, since creation. Never blocks."""
        self.check_open()
        found = _abi.rp_comm_stats()
        _abi.rp_comm_get_stats(self.address, ctypes.byref(found))
        return {name: getattr(found, name) for name, *_ in found._fields_}

    def close(self) -> None:
        """Local. Operations in flight fail; those of other ranks that need this one too. Again:
        nothing happens. At exit it is called for what is left open."""
        with self._lock:
            address, self.address = self.address, 0
        if address:
            _abi.rp_comm_destroy(address)
            self._running.clear()
        _open.discard(self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.close()

    # ---- inside ----

    def _run(
        self,
        name: str,
        arguments: Sequence[Any],
        keep: Any,
        finish: Callable[[], Any],
        wait: bool,
    ) -> Any:
        address = ctypes.c_void_p()
        start = getattr(_abi, f"rp_{name}_start")
        if wait:
            self.check_open()
            _abi.rp_comm_attend(self.address)  # this thread drives, and no other
        try:
            with self._lock:
                self.check_open()
                pointers = [_address(each) for each in arguments]
                check(start(self.address, *pointers, ctypes.byref(address)))
            kept = (keep, arguments)
            request = Request(self, address.value, kept, finish, name.replace("_", " "))
            self._running.add(request)
            return request.wait() if wait else request
        finally:
            if wait and self.address:
                _abi.rp_comm_leave(self.address)

    def _told(self, numbers: Sequence[int]) -> Any:
        """Everybody's, a row each."""
        own = np.array(numbers, np.int64)
        found = np.empty((self.world, own.size), np.int64)
        arguments = (
            own.ctypes.data,
            found.ctypes.data,
            own.size,
            _abi.DTYPES["I64"],
            None,
            _options("sum"),
        )
        return self._run("all_gather", arguments, (own, found), lambda: found, True)

    def forget(self, request: Request) -> None:
        """Of a request that is complete."""
        self._running.discard(request)

    def check_open(self) -> None:
        """ValueError: it was closed."""
        if not self.address:
            raise ValueError(f"communicator '{self.name}' was closed")

    def _check_rank(self, rank: int, operation: str) -> None:
        if not 0 <= rank < self.world:
            raise ValueError(f"{operation}: rank {rank} is none of 0 to {self.world - 1}")


def shares(rows: int, world: int) -> list[int]:
    """How rows are shared out among ranks."""
    return [rows // world + (rank < rows % world) for rank in range(world)]


def _address(argument: Any) -> Any:
    is_options = isinstance(argument, _abi.rp_collective_options)
    return ctypes.byref(argument) if is_options else argument


def _options(op: str, **fields: Any) -> _abi.rp_collective_options:
    if op not in OPS:
        raise ValueError(f"op is {op!r}; known are {', '.join(OPS)}")
    return _abi.rp_collective_options(reduce=_abi.REDUCTIONS[OPS[op]], factor=1.0, **fields)


def _listed(arrays: Any, count: int = 0, what: str = "") -> list[Any]:
    if arrays is None:
        return [None] * count
    found = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
    if what and len(found) != count:
        raise ValueError(f"{what} has {len(found)} arrays for {count}")
    return found


def _dense(array: Any, operation: str) -> Any:
    found = np.asarray(array)
    number_of(found.dtype, operation)
    return np.ascontiguousarray(found).reshape(found.shape)


def _copied(array: Any, out: Any, operation: str) -> Any:
    """A new array, or `out`, with the elements of `array`."""
    given = np.asarray(array)
    number_of(given.dtype, operation)
    if out is None:
        return np.array(given, order="C", copy=True)
    result = _writeable(out, operation)
    if result.shape != given.shape or result.dtype != given.dtype:
        raise ValueError(
            f"{operation}: out is {result.shape} of {result.dtype}, and the array "
            f"{given.shape} of {given.dtype}"
        )
    if result is not given:
        np.copyto(result, given)
    return result


def _writeable(array: Any, operation: str) -> Any:
    is_fine = isinstance(array, np.ndarray) and array.flags.c_contiguous
    if not is_fine or not array.flags.writeable:
        raise ValueError(f"{operation}: a contiguous array that can be written is wanted")
    number_of(array.dtype, operation)
    return array


def _fill(
    segment: _abi.rp_segment, place: int, result: Any, residual: Any, codec: Optional[Codec]
) -> None:
    segment.data, segment.count = result.ctypes.data, result.size
    segment.dtype, segment.tensor = number_of(result.dtype, "all_reduce"), place
    if codec is not None:
        segment.codec = codec.structure
    if residual is not None:
        _writeable(residual, "residuals")
        if residual.dtype != np.float32 or residual.size != result.size:
            raise ValueError(
                f"residuals: float32 and {result.size} elements are wanted, not "
                f"{residual.size} of {residual.dtype}"
            )
        segment.residual = residual.ctypes.data


def _blocks(arrays: Sequence[Any]) -> Any:
    pairs = [_abi.rp_block(data=each.ctypes.data, count=each.size) for each in arrays]
    return (_abi.rp_block * max(len(pairs), 1))(*pairs)


@atexit.register
def _close_all() -> None:
    for each in sorted(_open, key=lambda one: one._parent is None):
        each.close()
