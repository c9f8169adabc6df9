"""Which kernels are loaded, when they stand back, and how they are compiled."""

import ctypes
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import primal_attention as pa
from primal_attention.kernels.dispatch import choose_path
from primal_attention.kernels.native import build, library, ops
from primal_attention.theory.features import Cosine

served = pytest.mark.skipif(library.kernels() is None, reason=library.state())


def path(x=None, dtype=torch.float32, **options):
    x = torch.randn(2, 300, 8) if x is None else x
    given = {"fast": True, "decoding": False, "native": "tied", **options}
    return choose_path(x, dtype, Cosine(4), **given)


@served
def test_stands_back():
    assert path() == "native"
    assert path(native=None) == "tiles"
    assert path(fast=False) == "reference"
    assert path(dtype=torch.float64) == "tiles"
    assert path(dtype=torch.float16) == "reference"
    assert path(torch.randn(0, 3, 8)) == "tiles"
    assert path(torch.randn(2, 300, 8, device="meta")) == "tiles"


@served
def test_the_environment_switches_them_off(monkeypatch):
    monkeypatch.setenv(library.VARIABLE, "0")
    assert library.kernels() is None
    assert "off" in library.state()
    assert path() == "tiles"
    monkeypatch.setenv(library.VARIABLE, "1")
    assert path() == "native"


@served
@pytest.mark.parametrize("weights", ["tied", "free", "data"])
def test_without_them_the_results_are_the_same(monkeypatch, weights):
    layer, found = pa.PrimalAttention(12, 2, rank=3, weights=weights), {}
    x = torch.randn(2, 97, 12, requires_grad=True)
    for wanted in ("1", "0"):
        monkeypatch.setenv(library.VARIABLE, wanted)
        out, _ = layer(x)
        loss = out.square().sum() + pa.ksvd_loss(layer)
        found[wanted] = [out, *torch.autograd.grad(loss, [x, *layer.parameters()])]
    for ours, theirs in zip(*found.values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert not all(map(torch.equal, *found.values()))  # they are two computations


def test_an_unknown_level_is_named(monkeypatch):
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv(library.VARIABLE, "neon")
    library._load.cache_clear()
    try:
        assert path() == "tiles"
        assert library.state() == (
            "native kernels: none, as PRIMAL_KERNELS is 'neon'; expected 0, 1 or one of v4, v3"
        )
    finally:
        library._load.cache_clear()


@served
@pytest.mark.parametrize("level", build.levels(platform.machine()))
def test_every_level_that_runs_here(monkeypatch, level):
    layer, x = pa.PrimalAttention(12, 2, weights="tied"), torch.randn(2, 70, 12)
    expected = layer(x)[0]
    monkeypatch.setenv(library.VARIABLE, level)
    found = library.kernels()
    if found is None:
        pytest.skip(library.state())
    assert found.level == level
    torch.testing.assert_close(layer(x)[0], expected)


@served
@pytest.mark.parametrize(
    ("level", "flags"),
    [
        ("v3", {"avx2", "fma", "bmi2"}),
        ("v4", {"avx2", "fma", "bmi2", "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}),
    ],
)
def test_a_library_knows_what_the_processor_has(level, flags):
    """As the system lists it."""
    path, listed = build.HERE / build.library_name(level), Path("/proc/cpuinfo")
    if not (path.exists() and listed.exists()):
        pytest.skip("another system")
    line = next(line for line in listed.read_text().splitlines() if line.startswith("flags"))
    assert ctypes.CDLL(path).primal_runs_here() == (flags <= set(line.split()))


@served
def test_modes_that_watch_operations_see_them():
    from torch.utils.flop_counter import FlopCounterMode

    layer, x = pa.PrimalAttention(12, 2, weights="tied").eval(), torch.randn(2, 70, 12)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x)
    assert counter.get_total_flops() > 0


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    log = []
    assert not build.has_compiler()
    assert build.build(tmp_path, log=log) == []
    assert log == ["no C++ compiler was found"]


def test_a_compiler_that_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", f"{sys.executable} -c exit(3)")
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    log = []
    assert build.build(tmp_path, machine="x86_64", log=log) == []
    assert len(log) == len(build.X86)
    assert list(tmp_path.iterdir()) == []


def test_no_library(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "HERE", tmp_path)
    library._load.cache_clear()
    try:
        assert library.kernels() is None
        assert "not compiled" in library.state()
        layer = pa.PrimalAttention(8, 2, weights="tied")
        assert layer(torch.randn(1, 5, 8))[0].isfinite().all()
        for level in build.X86 | build.ARM:
            (tmp_path / build.library_name(level)).write_bytes(b"no library")
        library._load.cache_clear()
        assert "cannot be loaded" in library.state()
    finally:
        library._load.cache_clear()


def test_unknown_machine(monkeypatch):
    monkeypatch.setattr(library.platform, "machine", lambda: "abacus")
    library._load.cache_clear()
    try:
        assert library.state() == "native kernels: none for abacus"
    finally:
        library._load.cache_clear()


@served
def test_both_sides_know_the_same_call():
    """Members of `Call` in source/call.h, in order."""
    text = (build.SOURCE / "call.h").read_text()
    body = re.sub(r"//.*", "", text[text.index("struct Call {") :].partition("};")[0])
    declared = re.findall(r"(\w+)\s*[,;]", body)
    assert declared == [*library.NUMBERS, "keep_scale", *library.ADDRESSES]
    assert ops.Parameters._fields == library.PARAMETERS


@pytest.mark.slow
@pytest.mark.timeout(900)  # the compiler is slow with sanitizers
@pytest.mark.parametrize("level", ["", *build.levels(platform.machine())])
def test_sanitizers(level, tmp_path):
    """A driver with address and undefined-behaviour sanitizers over odd sizes, with vectors of
    every width that runs here."""
    compiler = next(build.compilers(), None)
    if compiler is None:
        pytest.skip("no compiler")
    driver = tmp_path / "driver"
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = build.Path(__file__).parent / "sanitized.cpp"
    flags += build._fitting(compiler, build.levels(platform.machine()).get(level, ()))
    command = [*compiler, *flags, "-pthread", f"-I{build.SOURCE}", str(source), "-o", str(driver)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no sanitizers: {done.stderr[-300:]}")
    ran = subprocess.run([str(driver)], capture_output=True, text=True)
    if "another processor" in ran.stdout:
        pytest.skip(f"the processor has no {level}")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "calls" in ran.stdout
