"""The operations of a communicator, but for the all-reduce."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
import torch.distributed as dist

from ._buffers import Buffers, Lent
from ._codec import Codec
from ._dtypes import reduction
from ._neighbors import Neighbors
from ._owned import OwnedRuns
from ._types import Tensors
from ._work import Work


class Collectives(Neighbors):
    """Arguments are checked and lent to the library; results are the Work's outputs."""

    def reduce_scatter(
        self,
        output: torch.Tensor,
        inputs: Union[torch.Tensor, Tensors],
        op: object = dist.ReduceOp.SUM,
        *,
        factor: Optional[float] = None,
        codec: Optional[Codec] = None,
        seed: int = 0,
        step: int = 0,
        key: int = 0,
        algorithm: Optional[str] = None,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`output` gets the sum of everybody's part for this rank.

        inputs: one tensor of world times output's elements, or a list of `world` tensors, whose
        sizes may differ (the same on all ranks; empty ones are fine) and of which
        inputs[rank] has output's. They are only read; output may be a view of this rank's part.
        codec, seed, step, key, factor, algorithm: as of all_reduce(); no error feedback."""
        number, own_factor = reduction(op)
        dtype = self._reduced(output, "reduce_scatter")
        options = self._new_options(
            number, own_factor if factor is None else factor, seed, step, algorithm, key=key
        )
        code = codec.reference if codec is not None else None
        buffers = self._buffers("reduce_scatter")
        out = buffers.written(output)
        if isinstance(inputs, torch.Tensor):
            self._check_flat("reduce_scatter", inputs, output, "input")
            source = buffers.read(inputs)
            arguments: tuple[Any, ...] = (
                source.data_ptr(),
                out.data_ptr(),
                out.numel(),
                dtype,
                code,
                buffers.options(options),
            )
            name = "reduce_scatter"
        else:
            self._check_list("reduce_scatter", inputs, output, "input")
            blocks = buffers.blocks(inputs, write=False)
            arguments = (blocks, out.data_ptr(), dtype, code, buffers.options(options))
            name = "reduce_scatter_v"
        return self._post(name, arguments, buffers.lent([output]), blocking, timeout_s)

    def all_gather(
        self,
        outputs: Union[torch.Tensor, Tensors],
        input: torch.Tensor,
        *,
        codec: Optional[Codec] = None,
        seed: int = 0,
        step: int = 0,
        key: int = 0,
        algorithm: Optional[str] = None,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """Every rank's outputs get everybody's input.

        outputs: one tensor of world times input's elements, or a list of `world` tensors, whose
        sizes may differ (the same on all ranks) and of which outputs[rank] has input's. input
        may be a view of this rank's part. codec: None for bit-identical; a lossy one needs
        floats. seed, step, key: as of all_reduce()."""
        dtype = self._moved(input) if codec is None else self._reduced(input, "all_gather")
        options = self._new_options(0, 1.0, seed, step, algorithm, key=key)
        code = codec.reference if codec is not None else None
        buffers = self._buffers("all_gather")
        source = buffers.read(input)
        if isinstance(outputs, torch.Tensor):
            self._check_flat("all_gather", outputs, input, "output")
            out = buffers.written(outputs)
            arguments: tuple[Any, ...] = (
                source.data_ptr(),
                out.data_ptr(),
                source.numel(),
                dtype,
                code,
                buffers.options(options),
            )
            name, outputs = "all_gather", [outputs]
        else:
            self._check_list("all_gather", outputs, input, "output")
            blocks = buffers.blocks(outputs, write=True)
            arguments = (source.data_ptr(), blocks, dtype, code, buffers.options(options))
            name = "all_gather_v"
        return self._post(name, arguments, buffers.lent(outputs), blocking, timeout_s)

    def reduce_scatter_segments(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        runs: OwnedRuns,
        op: object = dist.ReduceOp.SUM,
        *,
        seed: int = 0,
        step: int = 0,
        key: int = 0,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`output` gets the sum of everybody's `input`, as far as this rank owns runs of it.

        runs: where each lies in both, which are flat, and how it travels. Residuals are of what
        this rank sends: the sum of all results and of all residuals is that of all inputs.
        seed, step, key: as of all_reduce()."""
        self._reduced(output, "reduce_scatter")
        number, factor = reduction(op)
        options = self._new_options(number, factor, seed, step, key=key)
        buffers = self._buffers("reduce_scatter")
        flat, own = buffers.read(input), buffers.written(output)
        return self._post_runs(
            "reduce_scatter", (output, flat, own), runs, options, buffers, blocking, timeout_s
        )

    def all_gather_segments(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        runs: OwnedRuns,
        *,
        seed: int = 0,
        step: int = 0,
        key: int = 0,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`output` of every rank gets the runs of all of them, of which `input` has this
        rank's; it may be a view of its part. What is lossy is encoded once, and has the same
        bits on all ranks. runs, seed, step, key: as of reduce_scatter_segments()."""
        options = self._new_options(0, 1.0, seed, step, key=key)
        buffers = self._buffers("all_gather")
        own, flat = buffers.read(input), buffers.written(output)
        return self._post_runs(
            "all_gather", (output, flat, own), runs, options, buffers, blocking, timeout_s
        )

    def _post_runs(
        self,
        operation: str,
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        runs: OwnedRuns,
        options: Any,
        buffers: Buffers,
        blocking: bool,
        timeout_s: Optional[float],
    ) -> Work:
        """tensors: the output, and dense memory of all ranks' elements and of this one's."""
        output, flat, own = tensors
        if runs.flat_bytes > flat.nbytes or runs.own_bytes > own.nbytes:
            self._refuse(
                operation,
                f"runs of {runs.flat_bytes} and {runs.own_bytes} bytes for buffers of "
                f"{flat.nbytes} and {own.nbytes}",
            )
        array = runs.placed(flat.data_ptr(), own.data_ptr(), buffers)
        arguments = (array, len(runs), buffers.options(options))
        lent = buffers.lent([output])
        return self._post(f"{operation}_segments", arguments, lent, blocking, timeout_s)

    def broadcast(
        self,
        tensor: torch.Tensor,
        root: int,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`tensor` of every rank gets that of group rank `root`."""
        self._check_rank("broadcast", root)
        buffers = self._buffers("broadcast")
        dense = buffers.written(tensor, fill=self.rank == root)
        options = buffers.options(self._plain_options(0, root))
        arguments = (dense.data_ptr(), dense.numel(), self._moved(dense), options)
        return self._post("broadcast", arguments, buffers.lent([tensor]), blocking, timeout_s)

    def reduce(
        self,
        tensor: torch.Tensor,
        root: int,
        op: object = dist.ReduceOp.SUM,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`tensor` of group rank `root` gets the reduction of everybody's; others keep
        theirs."""
        self._check_rank("reduce", root)
        number, factor = reduction(op)
        dtype = self._reduced(tensor, "reduce")
        buffers = self._buffers("reduce")
        at_root = self.rank == root
        dense = buffers.written(tensor, fill=True) if at_root else buffers.read(tensor)
        address = dense.data_ptr()
        options = buffers.options(self._new_options(number, factor, root=root))
        arguments = (address, address if at_root else None, dense.numel(), dtype, options)
        return self._post("reduce", arguments, buffers.lent([tensor]), blocking, timeout_s)

    def gather(
        self,
        outputs: Optional[Tensors],
        input: torch.Tensor,
        root: int,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """outputs[r] of group rank `root` gets rank r's input. outputs: on the root a list of
        `world` tensors, of the sizes that ranks send; else None."""
        self._check_rank("gather", root)
        buffers = self._buffers("gather")
        source = buffers.read(input)
        blocks = None
        if self.rank == root:
            self._check_list("gather", outputs or (), input, "output")
            blocks = buffers.blocks(outputs or (), write=True)
        options = buffers.options(self._plain_options(0, root))
        arguments = (source.data_ptr(), source.numel(), blocks, self._moved(source), options)
        return self._post("gather", arguments, buffers.lent(outputs or ()), blocking, timeout_s)

    def scatter(
        self,
        output: torch.Tensor,
        inputs: Optional[Tensors],
        root: int,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """`output` of rank r gets inputs[r] of group rank `root`. inputs: on the root a list of
        `world` tensors, else None."""
        self._check_rank("scatter", root)
        buffers = self._buffers("scatter")
        out = buffers.written(output)
        blocks = None
        if self.rank == root:
            self._check_list("scatter", inputs or (), output, "input")
            blocks = buffers.blocks(inputs or (), write=False)
        options = buffers.options(self._plain_options(0, root))
        arguments = (blocks, out.data_ptr(), out.numel(), self._moved(out), options)
        return self._post("scatter", arguments, buffers.lent([output]), blocking, timeout_s)

    def all_to_all(
        self,
        outputs: Tensors,
        inputs: Tensors,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """outputs[s] gets inputs[this rank] of rank s. `world` tensors each, of any sizes, as
        long as both ends of each pair agree; they may not overlap."""
        if not len(inputs) == len(outputs) == self.world:
            self._refuse(
                "all_to_all",
                f"{len(inputs)} inputs and {len(outputs)} outputs; "
                f"the group has {self.world} ranks",
            )
        self._same_dtype("all_to_all", inputs[0], *inputs, *outputs)
        buffers = self._buffers("all_to_all")
        arguments = (
            buffers.blocks(inputs, write=False),
            buffers.blocks(outputs, write=True),
            self._moved(inputs[0]),
            buffers.options(self._plain_options(0, 0)),
        )
        return self._post("all_to_all", arguments, buffers.lent(outputs), blocking, timeout_s)

    def barrier(self, *, blocking: bool = False, timeout_s: Optional[float] = None) -> Work:
        """Complete when all ranks have posted it."""
        return self._post("barrier", (), Lent((), (), None), blocking, timeout_s)

    # ---- point to point ----

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0) -> Work:
        """To group rank `peer`; received in order by those of its receives with this tag."""
        self._check_peer("send", peer, tag)
        buffers = self._buffers("send")
        dense = buffers.read(tensor)
        place = (dense.data_ptr(), dense.numel(), self._moved(dense))
        arguments = (*place, peer, tag, buffers.options(None))
        return self._post("send", arguments, buffers.lent([tensor]), False, None)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0) -> Work:
        """From group rank `peer`, what it sent with this tag: as many elements of this
        dtype."""
        self._check_peer("recv", peer, tag)
        buffers = self._buffers("recv")
        dense = buffers.written(tensor)
        place = (dense.data_ptr(), dense.numel(), self._moved(dense))
        arguments = (*place, peer, tag, buffers.options(None))
        return self._post("recv", arguments, buffers.lent([tensor]), False, None)

    def recv_any(self, tensor: torch.Tensor, tag: int = 0) -> Work:
        """From whoever sends with this tag first; Work.source_rank() tells who it was."""
        self._check_peer("recv_any", 0, tag)
        buffers = self._buffers("recv_any")
        dense = buffers.written(tensor)
        place = (dense.data_ptr(), dense.numel(), self._moved(dense))
        arguments = (*place, tag, buffers.options(None))
        return self._post("recv_any", arguments, buffers.lent([tensor]), False, None)
