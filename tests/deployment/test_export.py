"""torch.export: one graph for every batch size and length."""

import io

import pytest
import torch
from torch.export import Dim
from torch.testing import assert_close


def exported(model, x, mask):
    dynamic = {0: Dim("batch"), 1: Dim("length")}
    args = (x,) if mask is None else (x, mask)
    shapes = (dynamic,) if mask is None else (dynamic, dynamic)
    return torch.export.export(model, args, dynamic_shapes=shapes)


def check(model, example, masked, batch, sizes):
    x, mask = batch(*example)
    program = exported(model, x, mask if masked else None).module()
    for size in sizes:
        x, mask = batch(*size)
        args = (x, mask) if masked else (x,)
        assert_close(program(*args), model(*args), msg=lambda text, size=size: f"{size}: {text}")


@pytest.mark.parametrize(
    "name", [pytest.param("causal tied", marks=pytest.mark.slow), "folded features"]
)
def test_export_serves_every_size(name, make_model, batch, sizes):
    """The sizes of the example leave no trace: shorter than the anchors, less than a chunk.

    `data` and `tied` are exported below; the other kinds are slow."""
    check(make_model(name), (2, 4), True, batch, sizes)


def test_without_padding(make_model, batch, sizes):
    check(make_model("data"), (3, 70), False, batch, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("example", [(3, 70), (2, 64), (2, 4)], ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["", "mask"])
def test_export_from_any_example(kind, masked, example, make_model, batch, sizes):
    check(make_model(kind), example, masked, batch, sizes)


@pytest.mark.slow
def test_a_saved_program_runs_without_the_layer(make_model, batch, sizes):
    model = make_model("data")
    buffer = io.BytesIO()
    torch.export.save(exported(model, *batch(3, 20)), buffer)
    buffer.seek(0)
    program = torch.export.load(buffer)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not [target for target in targets if "primal_attention" in target]
    for size in sizes:
        args = batch(*size)
        assert_close(program.module()(*args), model(*args))


@pytest.mark.slow
def test_export_of_a_model_in_training_mode_and_float64(make_model, batch):
    """Exporting leaves the objective alone: nothing is recorded, no operator of ours is needed."""
    model = make_model("tied", dtype=torch.float64).train()
    program = exported(model, *batch(3, 10, torch.float64))
    ledger = model.layer.ledger
    assert not ledger.entries
    assert not ledger._slots()
    args = batch(2, 73, torch.float64)
    assert_close(program.module()(*args), model.eval()(*args), rtol=1e-12, atol=1e-13)
