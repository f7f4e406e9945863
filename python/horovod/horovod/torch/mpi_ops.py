"""Operations on tensors, matched among ranks by their names."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from . import _gradients
from . import _posting as post
from ._context import context
from ._handles import poll, synchronize
from ._requests import Adasum, Average, Max, Min, Product, Sum
from .compression import Compression

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]

Tensors = list[torch.Tensor]

init = context.init
is_initialized, is_homogeneous = context.is_initialized, context.is_homogeneous
size, local_size, cross_size = context.size, context.local_size, context.cross_size
rank, local_rank, cross_rank = context.rank, context.local_rank, context.cross_rank
add_process_set, remove_process_set = context.add_process_set, context.remove_process_set


def shutdown() -> None:
    """Leave; init() may follow. What is in flight fails. Local."""
    context.shutdown()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record what operations do, for chrome://tracing. Rank 0 writes; others do nothing."""
    if context.rank() == 0:
        context.timeline.start(file_path, mark_cycles)


def stop_timeline() -> None:
    """The file is whole afterwards."""
    context.timeline.stop()


def mpi_threads_supported() -> bool:
    """True: any thread may call. ValueError before init()."""
    context.check()
    return True


def mpi_enabled() -> bool:
    """False: there is no MPI underneath."""
    return False


def mpi_built() -> bool:
    """False: there is no MPI underneath."""
    return False


def gloo_enabled() -> bool:
    """True: what Gloo does for Horovod, Redpoll does: TCP and shared memory without MPI."""
    return True


def gloo_built() -> bool:
    """True, as gloo_enabled()."""
    return True


def nccl_built() -> int:
    """0: tensors of GPUs travel through the host."""
    return 0


def cuda_built() -> bool:
    """False: tensors of GPUs travel through the host."""
    return False


def rocm_built() -> bool:
    """False, as cuda_built()."""
    return False


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


# ---- allreduce ----


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The mean over ranks, or as op says; gradients flow through. average is an older way to
    say op. Integers of a mean are rounded down."""
    found = grouped_allreduce(
        [tensor],
        average,
        name,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
    )
    return found[0]


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """A handle for poll() and synchronize()."""
    scale = post.find_scale(average, op, prescale_factor, postscale_factor)
    return post.all_reduce([tensor], post.Options(scale, process_set), name, is_single=True)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """In place."""
    factors = (prescale_factor, postscale_factor)
    return synchronize(allreduce_async_(tensor, average, name, op, *factors, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    scale = post.find_scale(average, op, prescale_factor, postscale_factor)
    return post.all_reduce([tensor], post.Options(scale, process_set), name, True, True)


def grouped_allreduce(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensors:
    """Several tensors as one operation."""
    scale = post.find_scale(average, op, prescale_factor, postscale_factor)
    options = post.Options(scale, process_set, compression)
    pairs = [compression.compress(each) for each in tensors]
    summed = _gradients.AllReduce.apply(options, name, *[each for each, _ in pairs])
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(summed, pairs)]


def grouped_allreduce_async(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    scale = post.find_scale(average, op, prescale_factor, postscale_factor)
    return post.all_reduce(list(tensors), post.Options(scale, process_set), name)


def grouped_allreduce_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensors:
    factors = (prescale_factor, postscale_factor)
    handle = grouped_allreduce_async_(tensors, average, name, op, *factors, process_set)
    return synchronize(handle)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    scale = post.find_scale(average, op, prescale_factor, postscale_factor)
    return post.all_reduce(list(tensors), post.Options(scale, process_set), name, True)


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """A COO tensor's sum or mean. What is returned gives it when it is called, or passed to
    synchronize()."""
    scale = post.find_scale(None, op)
    if scale.op not in (Average, Sum):
        raise ValueError(f"sparse_allreduce_async {name}: op is hvd.Average or hvd.Sum")
    own = tensor.coalesce()
    pair = [own.indices().t().contiguous(), own.values()]
    handle = post.all_gather(pair, process_set, None if name is None else f"{name}.sparse")

    def finish() -> torch.Tensor:
        indices, values = synchronize(handle)
        if scale.op == Average:
            values = values / process_set.size()
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()

    return finish


# ---- gathering and scattering ----


def allgather(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Everybody's, in the order of ranks, along the first dimension, which may differ."""
    return _gradients.AllGather.apply(process_set, name, tensor)[0]


def allgather_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return post.all_gather([tensor], process_set, name, is_single=True)


def grouped_allgather(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tensors:
    """Several tensors as one operation."""
    return list(_gradients.AllGather.apply(process_set, name, *tensors))


def grouped_allgather_async(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    return post.all_gather(list(tensors), process_set, name)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """root_rank's tensor. root_rank: of the world, also within a process set."""
    return _gradients.Broadcast.apply(process_set, name, root_rank, tensor)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return post.broadcast(tensor.detach().clone(), root_rank, process_set, name)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """In place."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return post.broadcast(tensor, root_rank, process_set, name)


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """splits[r] rows go to rank r (None: equally many to each). What came, in the order of
    ranks; where splits were given also how many rows from each."""
    output, counts = _gradients.AllToAll.apply(process_set, name, splits, tensor)
    return output if splits is None else (output, counts)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return post.all_to_all(tensor, splits, process_set, name, with_counts=splits is not None)


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of the mean, or sum. Rows are shared out evenly, the first ranks have
    one more where they do not divide."""
    factors = (prescale_factor, postscale_factor)
    found = grouped_reducescatter([tensor], name, compression, op, process_set, *factors)
    return found[0]


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    scale = post.find_scale(None, op, prescale_factor, postscale_factor)
    return post.reduce_scatter([tensor], post.Options(scale, process_set), name, True)


def grouped_reducescatter(
    tensors: Tensors,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensors:
    """Several tensors as one operation."""
    scale = post.find_scale(None, op, prescale_factor, postscale_factor)
    options = post.Options(scale, process_set, compression)
    pairs = [compression.compress(each) for each in tensors]
    found = _gradients.ReduceScatter.apply(options, name, *[each for each, _ in pairs])
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(found, pairs)]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    scale = post.find_scale(None, op, prescale_factor, postscale_factor)
    return post.reduce_scatter(list(tensors), post.Options(scale, process_set), name)


# ---- meeting ----


def join(device: int = -1) -> int:
    """This rank has no more data: until all ranks have called it, their allreduces get zeros
    of this one. The rank that came last. device: of no meaning here."""
    return synchronize(post.join(global_process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Until all ranks of the set have come."""
    synchronize(post.barrier(process_set))
