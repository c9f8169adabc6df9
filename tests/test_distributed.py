"""A sequence over several workers gives what one process gives: output, J and every gradient."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import itertools, os, sys
import torch
import torch.distributed as dist
from torch.testing import assert_close
import primal_attention as pa

torch.set_num_threads(1)
size, store = int(sys.argv[1]), sys.argv[2]
rank, others = 0, []
for other in range(1, size):  # torch is imported once
    child = os.fork()
    if child == 0:
        rank, others = other, []
        break
    others.append(child)
dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{store}")
EXACT = {"rtol": 1e-9, "atol": 1e-10}
KINDS = [
    {"weights": "data", "anchors": 7},
    {"weights": "data", "anchors": 40},  # more anchors than positions
    {"weights": "data", "anchors": 7, "anchor_rule": "paper"},
    {"weights": "data", "anchors": 7, "anchor_rule": "mean"},
    {"weights": "free"},
    {"weights": "tied"},
    {"weights": "free", "causal": True},
    {"weights": "free", "causal": True, "feature_map": "exp"},
    {"weights": "tied", "causal": True},
    {"weights": "tied", "causal": True, "feature_map": "exp"},
]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(kind):
    torch.manual_seed(1)
    layer = pa.PrimalAttention(8, 2, rank=3, dtype=torch.float64, **kind)
    for parameter in layer.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return layer.train()


def loss_of(layer, x, ignore, g):
    out, _ = layer(x, key_padding_mask=ignore)
    ksvd = pa.ksvd_loss(layer)
    return out, ksvd, (out.sin() * g).sum() + 0.7 * ksvd


for kind, padded in [*itertools.product(KINDS, [True]), *itertools.product(KINDS[5:6], [False])]:
    batch, length = 4, 22
    x, g = draw(batch, length, 8), draw(batch, length, 8, seed=2)
    # holes, padding at the end, a sample with nothing in the last part, one with nothing at all
    ignore = draw(batch, length, seed=3) > 0.8 if padded else None
    if padded:
        ignore[0, 12:], ignore[1, 5:], ignore[2] = True, True, True
    whole = make(kind)
    full = x.clone().requires_grad_()
    expected, expected_ksvd, loss = loss_of(whole, full, ignore, g)
    loss.backward()

    layer = make(kind)
    part = pa.distributed.own_part(x).clone().requires_grad_()
    mask = None if ignore is None else pa.distributed.own_part(ignore)
    with pa.distributed.shard_sequence():
        out, ksvd, loss = loss_of(layer, part, mask, pa.distributed.own_part(g))
        loss.backward()
    pa.distributed.sum_gradients(layer)
    try:
        assert_close(out, pa.distributed.own_part(expected), **EXACT)
        assert_close(ksvd, expected_ksvd, **EXACT)
        assert_close(part.grad, pa.distributed.own_part(full.grad), **EXACT)
        for (name, a), b in zip(layer.named_parameters(), whole.parameters(), strict=True):
            wanted = torch.zeros_like(b) if b.grad is None else b.grad
            assert_close(a.grad, wanted, msg=lambda text: f"{name}: {text}", **EXACT)
    except AssertionError as error:
        raise AssertionError(f"{kind}, padded={padded}: {error}") from error

    with torch.no_grad(), pa.distributed.shard_sequence():
        layer.eval()
        inference, _ = layer(part, key_padding_mask=mask)
    assert_close(inference, out, **EXACT)

# what travels does not depend on the length
for kind in KINDS[::3]:
    sent = []
    for length in (30, 90):
        layer = make(kind)
        part = pa.distributed.own_part(draw(2, length, 8)).requires_grad_()
        with pa.distributed.shard_sequence() as shards:
            loss_of(layer, part, None, torch.ones(1, dtype=torch.float64))[2].backward()
        sent.append(shards.numbers)
    assert sent[0] == sent[1], (kind, sent)

layer, x = make(KINDS[0]), draw(1, 9, 8)
with pa.distributed.shard_sequence():
    for call, words in [
        (lambda: layer(x, draw(1, 5, 8)), "self-attention"),
        (lambda: layer(x, need_weights=True), "need_weights"),
        (lambda: pa.distributed.shard_sequence().__enter__(), "already"),
    ]:
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
try:
    pa.distributed.own_part(x[:, :1])
except ValueError as error:
    assert "length 1; expected at least one position for each" in str(error)
else:
    raise AssertionError
dist.destroy_process_group()
for child in others:
    assert os.waitpid(child, 0)[1] == 0
os.write(1, f"equal {rank}\\n".encode())  # one call: lines of several workers stay whole
"""


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_together_are_one_process(workers, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, str(workers), tmp_path / "store"],
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split("\n")) == ["", *(f"equal {rank}" for rank in range(workers))]


@pytest.mark.slow
def test_the_benchmark_of_a_long_sequence():
    """Exact at 100,000 positions, with messages as at 2,000; the script itself judges this too."""
    script = Path(__file__).parents[1] / "benchmarks" / "sequence_parallel.py"
    words = ["--lengths", "2000,100000", "--weights", "data,tied", "--json"]
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout)
    assert [(row["weights"], row["length"]) for row in rows] == [
        ("data", 2_000), ("data", 100_000), ("tied", 2_000), ("tied", 100_000),
    ]  # fmt: skip
    for short, long in (rows[:2], rows[2:]):
        assert short["bytes"] == long["bytes"] > 0
        assert short["messages"] == long["messages"]
    for row in rows:
        assert set(row["differences"]) == {"output", "J", "gradients"}
        assert all(off < 1e-4 for off in row["differences"].values())
        assert len(row["peak_mb"]) == 2


def test_without_a_process_group():
    import primal_attention as pa

    with (
        pytest.raises(RuntimeError, match="expected init_process_group before"),
        pa.distributed.shard_sequence(),
    ):
        pass
