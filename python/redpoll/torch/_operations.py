"""The table of c10d operations: PyTorch's arguments in, calls of the Communicator out.

A class that is a ProcessGroup or a Backend for PyTorch mixes this in and has `communicator`.
Names and argument orders are PyTorch's, of all releases (one operation has had up to three
names); short forms take one tensor, and root and op by name or in the place of opts. Options
carry timeout (of this call, below 0: the group's), asyncOp where the release has it (False: the
call blocks, one C call drives it), rootRank and reduceOp.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from ._communicator import Communicator
from ._policy import all_reduce as all_reduce_by_policy
from ._request import seconds
from ._work import Work, joined

Tensors = list[torch.Tensor]

_SUM = dist.ReduceOp.SUM
_SPARSE = torch.sparse_coo


class Operations:
    """Every collective of c10d."""

    communicator: Communicator
    _coalesced: Optional[list[Work]] = None  # what was posted since start_coalescing()

    # ---- reductions ----

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: Any = None, op: Any = None
    ) -> Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        opts = _reduce_options(opts if op is None else op, timeout)
        if self._only("all_reduce", tensors).layout is _SPARSE:
            return self.allreduce_sparse(tensors, opts)
        return self._all_reduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        return self._all_reduce(tensors, _reduce_options(opts, None))

    def _all_reduce(self, tensors: Tensors, opts: Any) -> Work:
        communicator, op = self.communicator, opts.reduceOp
        blocking, limit = not getattr(opts, "asyncOp", True), seconds(opts.timeout)
        if communicator.policy is None:
            work = communicator.all_reduce(tensors, op, blocking=blocking, timeout_s=limit)
        else:
            call = {"blocking": blocking, "timeout_s": limit}
            work = all_reduce_by_policy(communicator, communicator.policy, tensors, op, **call)
        return self._note(work)

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = _reduce_options(opts, None)
        op = opts.reduceOp
        return self.communicator.all_reduce_sparse(tensors, op, **_call(opts))

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = _SUM,
        timeout: Any = None,
        root: Optional[int] = None,
    ) -> Work:
        if isinstance(tensors, torch.Tensor):
            root, call = opts if root is None else root, _call(None, timeout)
            work = self.communicator.reduce(tensors, root, op, **call)
        else:
            tensor = self._only("reduce", tensors)
            root, op = opts.rootRank, opts.reduceOp
            work = self.communicator.reduce(tensor, root, op, **_call(opts))
        return self._note(work)

    def reduce_scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: Any = None,
        op: Any = None,
    ) -> Work:
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _reduce_options(opts if op is None else op, timeout, dist.ReduceScatterOptions)
        output, own = (
            self._only("reduce_scatter", outputs),
            self._only("reduce_scatter", inputs),
        )
        return self._reduce_scatter(output, own, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Work:
        opts = _reduce_options(opts, None, dist.ReduceScatterOptions)
        return self._reduce_scatter(output, input, opts)

    _reduce_scatter_base = reduce_scatter_single

    def _reduce_scatter(self, output: torch.Tensor, inputs: Any, opts: Any) -> Work:
        op, call = opts.reduceOp, _call(opts)
        call.update(self._lossy("reduce_scatter", output, op))
        return self._note(self.communicator.reduce_scatter(output, inputs, op, **call))

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        opts = _reduce_options(opts, None, dist.ReduceScatterOptions)
        works = [self._reduce_scatter(o, i, opts) for o, i in zip(outputs, inputs)]
        return joined(works)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- gathering ----

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        own = self._only("all_gather", inputs)
        return self._all_gather(self._only("all_gather", outputs), own, opts, timeout)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Work:
        return self._all_gather(output, input, opts)

    _allgather_base = all_gather_single

    def _all_gather(
        self, outputs: Any, input: torch.Tensor, opts: Any, timeout: Any = None
    ) -> Work:
        call = _call(opts, timeout)
        call.update(self._lossy("all_gather", input, None))
        return self._note(self.communicator.all_gather(outputs, input, **call))

    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """outputs[rank][i] gets rank's inputs[i]."""
        parts = [
            self._all_gather([each[i] for each in outputs], own, opts)
            for i, own in enumerate(inputs)
        ]
        return joined(parts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        return joined([self._all_gather(o, i, opts) for o, i in zip(outputs, inputs)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: Any = None,
        root: Optional[int] = None,
    ) -> Work:
        if isinstance(inputs, torch.Tensor):
            lists, own, call = outputs, inputs, _call(None, timeout)
            root = opts if root is None else root
        else:
            own, root, call = self._only("gather", inputs), opts.rootRank, _call(opts)
            lists = self._only("gather", outputs) if outputs else None
        return self._note(self.communicator.gather(lists, own, root, **call))

    def gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Work:
        """output of the root, `world` times input's elements, gets everybody's input."""
        communicator = self.communicator
        root = opts.rootRank if opts is not None else 0
        parts = None
        if communicator.rank == root:
            parts = _equal_parts(self, "gather", output, communicator.world)
        work = communicator.gather(parts, input, root, **_call(opts))
        work.set_outputs([output] if parts else [])
        return self._note(work)

    gather_into_tensor = gather_single

    def scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: Any = None,
        root: Optional[int] = None,
    ) -> Work:
        if isinstance(outputs, torch.Tensor):
            own, lists, call = outputs, inputs, _call(None, timeout)
            root = opts if root is None else root
        else:
            own, root, call = self._only("scatter", outputs), opts.rootRank, _call(opts)
            lists = self._only("scatter", inputs) if inputs else None
        return self._note(self.communicator.scatter(own, lists, root, **call))

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: Any = None, root: Optional[int] = None
    ) -> Work:
        if isinstance(tensors, torch.Tensor):
            tensor, call = tensors, _call(None, timeout)
            root = opts or 0 if root is None else root
        else:
            tensor, root, call = self._only("broadcast", tensors), opts.rootRank, _call(opts)
        return self._note(self.communicator.broadcast(tensor, root, **call))

    # ---- exchange ----

    def alltoall(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Any = None
    ) -> Work:
        call = _call(opts, timeout)
        return self._note(self.communicator.all_to_all(outputs, inputs, **call))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        world, call = self.communicator.world, _call(opts, timeout)
        outputs = _parts(self, "output", output, output_split_sizes, world)
        inputs = _parts(self, "input", input, input_split_sizes, world)
        work = self.communicator.all_to_all(outputs, inputs, **call)
        work.set_outputs([output])
        return self._note(work)

    alltoall_base = all_to_all_single

    # ---- point to point ----

    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> Work:
        return self._note(self.communicator.send(self._only("send", tensors), dstRank, tag))

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> Work:
        return self._note(self.communicator.recv(self._only("recv", tensors), srcRank, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self._note(self.communicator.recv_any(self._only("recv", tensors), tag))

    recvAnysource = recv_anysource

    # ---- the rest ----

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(opts, timedelta):
            opts, timeout = None, opts
        return self._note(self.communicator.barrier(**_call(opts, timeout)))

    def _get_sequence_number_for_group(self) -> int:
        """How many operations this rank has posted; ranks that disagree have parted ways."""
        return int(self.communicator.stats()["operations"])

    def start_coalescing(self, *_device: Any) -> None:
        """From now on, remember what is posted: end_coalescing() gives one Work for it. Where
        an exception keeps PyTorch from calling that, no more is kept than what runs."""
        self._coalesced = []

    def end_coalescing(self, *_device: Any) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return joined(works)

    startCoalescing = _start_coalescing = start_coalescing
    endCoalescing = _end_coalescing = end_coalescing

    def _note(self, work: Work) -> Work:
        noted = self._coalesced
        if noted is not None:
            noted.append(work)
            if len(noted) % _NOTED == 0:  # what is done needs no waiting for
                noted[:] = [each for each in noted if not each.is_success()]
        return work

    def _lossy(self, operation: str, tensor: torch.Tensor, op: object) -> dict[str, Any]:
        """What the policy adds to a call: a codec and its keys, or nothing."""
        policy = self.communicator.policy
        codec = policy and policy.codec_for(operation, tensor.dtype, tensor.numel(), op)
        if codec is None:
            return {}
        return {"codec": codec, "seed": policy.seed, "step": policy.next_step()}

    def _only(self, operation: str, each: Sequence[Any]) -> Any:
        if len(each) != 1:
            what = "tensors, or lists of them, of this rank"
            raise self._refused(operation, f"{len(each)} {what}; one is allowed")
        return each[0]

    def _refused(self, operation: str, message: str) -> Exception:
        return self.communicator.error(_INVALID, message, operation)


INTERNAL = frozenset(
    ["_all_reduce", "_reduce_scatter", "_all_gather", "_note", "_lossy", "_only", "_refused"]
)
"""Methods of Operations that PyTorch does not know."""

_INVALID = -1
_NOTED = 64


def _call(opts: Any, timeout: Optional[timedelta] = None) -> dict[str, Any]:
    """blocking and timeout_s of a call."""
    if opts is not None:
        return {
            "blocking": not getattr(opts, "asyncOp", True),
            "timeout_s": seconds(opts.timeout),
        }
    return {"timeout_s": seconds(timeout)}


def _reduce_options(opts: Any, timeout: Any, kind: Any = dist.AllreduceOptions) -> Any:
    """Options as they are; or of the short forms, which pass a ReduceOp and a timeout."""
    if opts is not None and hasattr(opts, "reduceOp"):
        return opts
    made = kind()
    if opts is not None:
        made.reduceOp = opts
    if timeout is not None:
        made.timeout = timeout
    return made


def _parts(
    table: Operations, what: str, tensor: torch.Tensor, sizes: Sequence[int], world: int
) -> Tensors:
    """The rows of a tensor, cut by sizes along its first dimension; no sizes: equally."""
    rows = tensor.size(0) if tensor.dim() else 0
    if not sizes:
        return _equal_parts(table, "all_to_all_single", tensor, world)
    if len(sizes) != world or sum(sizes) != rows:
        raise table._refused(
            "all_to_all_single",
            f"{what} split sizes {list(sizes)} must be {world} numbers that add up to {rows}",
        )
    return list(tensor.split(list(sizes)))


def _equal_parts(
    table: Operations, operation: str, tensor: torch.Tensor, world: int
) -> Tensors:
    rows = tensor.size(0) if tensor.dim() else 0
    if rows % world:
        raise table._refused(
            operation, f"{rows} rows do not divide into {world} equal parts; give split sizes"
        )
    return list(tensor.split(rows // world)) if rows else [tensor] * world
