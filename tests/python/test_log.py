"""The library's messages come through Python's logging, and none come where none are due."""

from __future__ import annotations

import socket

import pytest

from ranks import run_script

JOB = """
import logging, os, sys, torch, torch.distributed as dist
{before}
import redpoll.torch
dist.init_process_group("redpoll")
tensor = torch.ones(3)
dist.all_reduce(tensor)
{after}
dist.destroy_process_group()
"""

CONFIGURED = """
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s", force=True)
"""


def own_address() -> str:
    """Of an interface that others reach; skipped where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no interface but the loopback")
        return probe.getsockname()[0]


def job(before: str = "", after: str = "", **environment: str):
    text = JOB.replace("{before}", before).replace("{after}", after)
    done = run_script(text, 2, environment=environment)
    assert all(one.returncode == 0 for one in done), done
    return done


@pytest.mark.parametrize("environment", [{}, {"REDPOLL_TRANSPORT": "tcp"}], ids=["auto", "tcp"])
def test_a_job_of_one_host_has_nothing_to_say(environment: dict[str, str]) -> None:
    for one in job(**environment):
        assert "redpoll" not in one.stderr + one.stdout


def test_messages_come_through_logging() -> None:
    first, second = job(before=CONFIGURED, REDPOLL_BIND=own_address())
    assert "redpoll WARNING this job is open: " in first.stdout
    assert "this job is open" not in first.stderr + second.stderr + second.stdout


def test_without_logging_they_are_printed_as_ever() -> None:
    first, _ = job(REDPOLL_BIND=own_address())
    assert first.stderr.count("redpoll: warning: this job is open: ") == 1


def test_a_logger_that_is_off_hears_nothing() -> None:
    off = CONFIGURED + "logging.getLogger('redpoll').setLevel(logging.ERROR)"
    first, _ = job(before=off, REDPOLL_BIND=own_address())
    assert "this job is open" not in first.stdout + first.stderr


HANDLER = (
    CONFIGURED
    + """
import threading
done, heard = threading.Event(), threading.Event()

class Handler(logging.Handler):
    def emit(self, record):
        assert done.wait(60)  # what a callback of an operation says
        heard.set()

logging.getLogger("redpoll").addHandler(Handler())
"""
)

HEARD = """
work = dist.all_reduce(tensor, async_op=True)
work.get_future().then(lambda _: done.set())
assert dist.get_rank() or heard.wait(60)
"""


def test_a_handler_may_wait_for_operations() -> None:
    """It runs on a thread that they do not wait for."""
    job(before=HANDLER, after=HEARD, REDPOLL_BIND=own_address())


FORKED = """
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_leaves_the_log_alone() -> None:
    job(before=CONFIGURED, after=FORKED, REDPOLL_BIND=own_address())
