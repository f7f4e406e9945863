"""The table of c10d operations: PyTorch's arguments in, calls of the Communicator out.

A class that is a ProcessGroup or a Backend for PyTorch mixes this in and has `communicator`.
Names and argument orders are PyTorch's, of all releases (one operation has had up to three
names, and an argument two); short forms take one tensor, and root, op and timeout by name or in
the place of opts. Options carry timeout (of this call, below 0: the group's), asyncOp where the
release has it (False: the call blocks, one C call drives it), rootRank and reduceOp. Without
options they are PyTorch's defaults: a sum, root 0, the group's timeout.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..codecs._policy import all_reduce as all_reduce_by_policy
from ..comm._communicator import Communicator
from ..comm._request import seconds
from ..comm._work import Work, joined

Tensors = list[torch.Tensor]

_SUM = dist.ReduceOp.SUM
_SPARSE = torch.sparse_coo
_Options = dist.AllreduceOptions


class Operations:
    """Every collective of c10d."""

    communicator: Communicator
    _coalesced: Optional[list[Work]] = None  # what was posted since start_coalescing()

    # ---- reductions ----

    def allreduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        op: Any = None,
        *,
        tensor: Any = None,
    ) -> Work:
        tensors = tensor if tensors is None else tensors
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if type(opts) is not _Options or op is not None:
            opts = _reduce_options(opts if op is None else op, timeout)
        if len(tensors) != 1 or tensors[0].layout is _SPARSE:
            self._only("all_reduce", tensors)
            return self.allreduce_sparse(tensors, opts)
        return self._all_reduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """ValueError, as of other backends: the tensors are of several types."""
        types = {tensor.dtype: None for tensor in tensors}
        if len(types) > 1:
            raise self._refused(
                "all_reduce_coalesced",
                f"tensors must all have the same type, and these are {_and(types)}: call it "
                "once for each type",
            )
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
        tensors: Any = None,
        opts: Any = None,
        op: Any = _SUM,
        timeout: Any = None,
        root: Optional[int] = None,
        *,
        tensor: Any = None,
    ) -> Work:
        own = self._one("reduce", tensors if tensor is None else tensor)
        op = getattr(opts, "reduceOp", op)
        call = _call(opts, timeout)
        return self._note(self.communicator.reduce(own, _root(opts, root), op, **call))

    def reduce_scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        op: Any = None,
        *,
        output: Any = None,
        input: Any = None,
    ) -> Work:
        outputs = output_tensors if output is None else output
        inputs = input_tensors if input is None else input
        if isinstance(outputs, torch.Tensor):
            inputs = [inputs]
        opts = _reduce_options(opts if op is None else op, timeout, dist.ReduceScatterOptions)
        own = self._one("reduce_scatter", outputs)
        return self._reduce_scatter(own, self._only("reduce_scatter", inputs), opts)

    def reduce_scatter_single(
        self, outputTensor: torch.Tensor, inputTensor: torch.Tensor, opts: Any = None
    ) -> Work:
        opts = _reduce_options(opts, None, dist.ReduceScatterOptions)
        return self._reduce_scatter(outputTensor, inputTensor, opts)

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
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        *,
        input_tensor: Any = None,
    ) -> Work:
        inputs = input_tensors if input_tensor is None else input_tensor
        outputs = [output_tensors] if isinstance(inputs, torch.Tensor) else output_tensors
        own = self._one("all_gather", inputs)
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
        self, output_lists: list[Tensors], input_list: Tensors, opts: Any = None
    ) -> Work:
        """output_lists[rank][i] gets rank's input_list[i]."""
        parts = [
            self._all_gather([each[i] for each in output_lists], own, opts)
            for i, own in enumerate(input_list)
        ]
        return joined(parts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        return joined([self._all_gather(o, i, opts) for o, i in zip(outputs, inputs)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        root: Optional[int] = None,
        *,
        input_tensor: Any = None,
    ) -> Work:
        inputs = input_tensors if input_tensor is None else input_tensor
        own, lists = self._one("gather", inputs), output_tensors or None
        if lists is not None and not isinstance(inputs, torch.Tensor):
            lists = self._only("gather", lists)
        call = _call(opts, timeout)
        return self._note(self.communicator.gather(lists, own, _root(opts, root), **call))

    def gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Work:
        """output of the root, `world` times input's elements, gets everybody's input."""
        communicator = self.communicator
        root, parts = _root(opts, None), None
        if communicator.rank == root:
            parts = _equal_parts(self, "gather", output, communicator.world)
        work = communicator.gather(parts, input, root, **_call(opts))
        work.set_outputs([output] if parts else [])
        return self._note(work)

    gather_into_tensor = gather_single

    def scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        root: Optional[int] = None,
        *,
        output_tensor: Any = None,
    ) -> Work:
        outputs = output_tensors if output_tensor is None else output_tensor
        own, lists = self._one("scatter", outputs), input_tensors or None
        if lists is not None and not isinstance(outputs, torch.Tensor):
            lists = self._only("scatter", lists)
        call = _call(opts, timeout)
        return self._note(self.communicator.scatter(own, lists, _root(opts, root), **call))

    def broadcast(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        root: Optional[int] = None,
        *,
        tensor: Any = None,
    ) -> Work:
        own = self._one("broadcast", tensors if tensor is None else tensor)
        call = _call(opts, timeout)
        return self._note(self.communicator.broadcast(own, _root(opts, root), **call))

    # ---- exchange ----

    def alltoall(
        self,
        output_tensors: Tensors,
        input_tensors: Tensors,
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        call = _call(opts, timeout)
        return self._note(self.communicator.all_to_all(output_tensors, input_tensors, **call))

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
        return self._note(self.communicator.barrier(**_call(opts, timeout)))

    def _get_sequence_number_for_group(self) -> int:
        """How many operations this rank has posted; ranks that disagree have parted ways."""
        return self.communicator.sequence

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

    def _one(self, operation: str, tensors: Any) -> torch.Tensor:
        """The tensor itself, or the only one of a list."""
        if isinstance(tensors, torch.Tensor):
            return tensors
        own: torch.Tensor = self._only(operation, tensors)
        return own

    def _only(self, operation: str, each: Sequence[Any]) -> Any:
        if len(each) != 1:
            what = "tensors, or lists of them, of this rank"
            raise self._refused(operation, f"{len(each)} {what}; one is allowed")
        return each[0]

    def _refused(self, operation: str, message: str) -> Exception:
        return self.communicator.error(_INVALID, message, operation)


INTERNAL = frozenset(
    [
        "_all_reduce",
        "_reduce_scatter",
        "_all_gather",
        "_note",
        "_lossy",
        "_one",
        "_only",
        "_refused",
    ]
)
"""Methods of Operations that PyTorch does not know."""

_INVALID = -1
_NOTED = 64


def _call(opts: Any, timeout: Optional[timedelta] = None) -> dict[str, Any]:
    """blocking and timeout_s of a call. opts: options, or what a short form has in their
    place."""
    if hasattr(opts, "timeout"):
        return {
            "blocking": not getattr(opts, "asyncOp", True),
            "timeout_s": seconds(opts.timeout),
        }
    return {"timeout_s": seconds(opts if isinstance(opts, timedelta) else timeout)}


def _root(opts: Any, root: Optional[int]) -> int:
    """By name, of options, or in their place."""
    if root is not None:
        return operator.index(root)
    return 0 if opts is None else operator.index(getattr(opts, "rootRank", opts))


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


def _and(values: Iterable[object]) -> str:
    return " and ".join(str(value) for value in values)
