"""Limits the time and memory of code in a data set: its chat template."""

import contextlib
import resource
import signal
import time

from faults import Fault

SECONDS = 10  # time limit of a text
BEGIN, MEAN = 30, 0.1  # time limit of all texts in seconds: a constant, and an addition per text
MEMORY = 512 << 20  # maximum bytes in addition to the process's memory


class TimeIsUp(BaseException):  # not caught by "except Exception"
    pass


def ring(number, frame):
    raise TimeIsUp


def in_use():
    """Returns the bytes of this process that RLIMIT_DATA counts."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))


class Measured:
    at, bytes = float("-inf"), 0  # read ten times per second


@contextlib.contextmanager
def memory():
    """Raises MemoryError if this block takes more than MEMORY."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if time.monotonic() - Measured.at > 0.1:
        Measured.at, Measured.bytes = time.monotonic(), in_use()
    most = Measured.bytes + MEMORY
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class Spent:
    seconds, texts = 0.0, 0  # totals of this process


def bounded(function, what):
    """Calls function() in the main thread, limited to SECONDS and MEMORY. The mean time of all calls is also limited."""
    Spent.texts += 1
    left = BEGIN + MEAN * Spent.texts - Spent.seconds
    previous, begin = signal.signal(signal.SIGALRM, ring), time.thread_time()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if left <= 0:
            fault = Fault(f"{what} is too slow: it took {Spent.seconds:.0f} s for {Spent.texts - 1} texts", "",
                          f"a template takes some milliseconds; the limit is {MEAN} s per text")
            fault.of_all = True
            raise fault
        with memory():
            return function()
    except TimeIsUp:
        raise Fault(f"{what} does not end: it was stopped after {SECONDS} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        Spent.seconds += time.thread_time() - begin
