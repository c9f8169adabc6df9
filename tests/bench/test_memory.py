"""Each figure comes from a process of its own, which may fail, hang or crash."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from primal_attention.bench import Settings
from primal_attention.bench.memory import MemoryMeter, NotMeasured

MAKERS = """
import os, time, torch

def allocating(megabytes):
    torch.ones(2**18)  # libraries are loaded
    return lambda: torch.ones(int(megabytes * 2**18))

def sleeping(seconds):
    return lambda: time.sleep(seconds)

def raising(text):
    raise KeyError(text)

def raising_late(text):
    def step():
        raise RuntimeError(text)
    return step

def crashing():
    return os.abort

def printing():
    return lambda: print("not an answer")

def whoami():
    raise ValueError(f"pid {os.getpid()} of {os.getppid()}")
"""


@pytest.fixture(scope="module")
def meter(tmp_path_factory):
    """A meter whose processes can import the makers above."""
    folder = tmp_path_factory.mktemp("makers")
    (folder / "some_makers.py").write_text(MAKERS)
    sys.path.append(str(folder))
    with MemoryMeter() as found:
        yield SimpleNamespace(
            peak=lambda name, *arguments, seconds=60: found.peak(
                f"some_makers:{name}", *arguments, seconds=seconds
            ),
            real=found,
        )
    sys.path.remove(str(folder))


def test_a_known_amount_is_found(meter):
    small, large = meter.peak("allocating", 30), meter.peak("allocating", 300)
    assert small.megabytes == pytest.approx(30, abs=3)
    assert large.megabytes == pytest.approx(300, rel=0.03)
    assert 0 < large.seconds < 60
    # a process of its own: the earlier 300 MB are not there any more
    assert meter.peak("allocating", 30).megabytes == pytest.approx(30, abs=3)


def test_every_figure_has_a_process_of_its_own(meter):
    texts = set()
    for _ in range(3):
        with pytest.raises(NotMeasured) as error:
            meter.peak("whoami")
        texts.add(str(error.value))
    assert len(texts) == 3
    assert len({text.rpartition(" of ")[2] for text in texts}) == 1  # forks of one server


def test_too_much_memory_is_refused_before_it_is_taken(meter):
    with pytest.raises(NotMeasured, match=r"one step needs more than the free [\d,]+ MB") as found:
        meter.peak("allocating", 50_000_000)
    assert found.value.status == "memory"


def test_too_slow_is_ended(meter):
    with pytest.raises(NotMeasured, match=r"one step takes more than 0\.2 s") as found:
        meter.peak("sleeping", 600, seconds=0.2)
    assert found.value.status == "time"


def test_errors_are_one_line(meter):
    with pytest.raises(NotMeasured, match="KeyError: 'no such thing'"):
        meter.peak("raising", "no such thing")
    with pytest.raises(NotMeasured) as error:
        meter.peak("raising_late", "many\n  lines " + 500 * "x")
    assert error.value.status == "error"
    assert str(error.value).startswith("RuntimeError: many lines xx")
    assert len(str(error.value)) == 200


def test_a_crash_ends_only_its_own_process(meter):
    with pytest.raises(NotMeasured, match="ended with signal 6"):
        meter.peak("crashing")
    assert meter.peak("allocating", 30).megabytes == pytest.approx(30, abs=3)


def test_what_a_step_prints_is_no_answer(meter):
    assert meter.peak("printing").seconds > 0


@pytest.mark.slow
def test_the_matrix_of_softmax_is_seen(meter):
    """Forward, N = 2048, 2 heads, float32: the matrix alone has 32 MB; twice the length, 4 times
    the memory. The fused one does not form it."""
    fields = Settings(width=16, mode="forward", threads=1).to_dict()

    def peak(candidate, length):
        maker = "primal_attention.bench.steps:memory_step"
        return meter.real.peak(maker, fields, candidate, length, seconds=60).megabytes

    short, long = peak("softmax:materialised", 1024), peak("softmax:materialised", 2048)
    assert 32 <= long < 80
    assert 3 < long / short < 5
    assert peak("softmax", 2048) < 16


def test_a_server_that_is_killed_is_replaced(meter):
    with pytest.raises(NotMeasured) as error:
        meter.peak("whoami")
    os.kill(int(str(error.value).rpartition(" ")[2]), signal.SIGKILL)
    with pytest.raises(NotMeasured, match="the process that measures memory ended with -9"):
        meter.peak("allocating", 30)
    assert meter.peak("allocating", 30).megabytes == pytest.approx(30, abs=3)
