"""Two ranks of an installed wheel sum a vector, exact and by q4, with a secret: no package but
redpoll is needed. tools/wheels.sh runs it, under an emulator, too; ranks are forked, so that no
program is started by its name."""

import ctypes
import os
import socket
import sys

WORLD, COUNT = 2, 5000


def work(rank: int) -> None:
    from redpoll import _abi
    from redpoll.errors import check

    options = _abi.rp_comm_options(name=b"wheel", timeout_s=300.0, progress_thread=1)
    comm = ctypes.c_void_p()
    check(_abi.rp_comm_join(ctypes.byref(options), ctypes.byref(comm)))
    codec = _abi.rp_codec()
    check(_abi.rp_codec_parse(b"q4", ctypes.byref(codec)))
    for code, off in ((_abi.rp_codec(), 0.0), (codec, 0.5)):
        vector = (ctypes.c_float * COUNT)(*(rank + 1 + i % 2 for i in range(COUNT)))
        segment = _abi.rp_segment(
            data=ctypes.addressof(vector), count=COUNT, dtype=_abi.DTYPES["F32"], codec=code
        )
        how = _abi.rp_collective_options(reduce=_abi.REDUCTIONS["SUM"], factor=1.0)
        request = ctypes.c_void_p()
        start = _abi.rp_all_reduce_start
        check(start(comm, ctypes.byref(segment), 1, ctypes.byref(how), ctypes.byref(request)))
        check(_abi.rp_request_wait_for(request, 300.0))
        check(_abi.rp_request_free(ctypes.byref(request)))
        worst = max(abs(vector[i] - (3 + 2 * (i % 2))) for i in range(COUNT))
        assert worst <= off, f"rank {rank}: off by {worst}"
    _abi.rp_comm_destroy(comm)


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
    place.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    place.update(REDPOLL_TRANSPORT="tcp", REDPOLL_SECRET="0123456789abcdef" * 4)
    os.environ.update(place)
    children = []
    for rank in range(WORLD):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            work(rank)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(codes), f"exit codes {codes}"
    import redpoll

    folder = os.path.dirname(redpoll.__file__)
    machine = os.uname().machine
    print(f"two ranks agree: redpoll {redpoll.__version__} in {folder} on {machine}")


if __name__ == "__main__":
    main()
