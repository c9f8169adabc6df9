"""ONNX export with dynamic batch and length, run by onnxruntime."""

import io
import logging

import pytest
import torch
from torch.export import Dim
from torch.testing import assert_close

import primal_attention as pa

from .conftest import Masked

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


LINEAR = ["linear", "flow", "cosformer", "performer", "linformer"]
ANY = {0: Dim("batch"), 1: Dim("length")}


def session(model, x, mask, dynamic):
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    args = (x,) if mask is None else (x, mask)
    shapes = (dynamic,) if mask is None else (dynamic, dynamic)
    program = torch.onnx.export(model, args, dynamo=True, dynamic_shapes=shapes, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    return onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])


def check(model, masked, batch, sizes, example=(3, 70), dynamic=ANY):
    x, mask = batch(*example)
    onnx = session(model, x, mask if masked else None, dynamic)
    names = [given.name for given in onnx.get_inputs()]
    for size in sizes:
        x, mask = batch(*size)
        args = (x, mask) if masked else (x,)
        given = {name: arg.numpy() for name, arg in zip(names, args, strict=True)}
        (found,) = onnx.run(None, given)
        with torch.no_grad():
            expected = model(*args)
        assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


pytestmark = [
    pytest.mark.filterwarnings("ignore:# The axis name"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True], ids=["", "mask"])
def test_onnx_of_every_kind(kind, masked, make_model, batch, sizes):
    check(make_model(kind), masked, batch, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_onnx_of_the_linear_attentions(name, batch):
    torch.manual_seed(0)
    options = {"max_length": 100, "projection": 4} if name == "linformer" else {}
    layer = Masked(pa.make_attention(name, 8, 2, **options)).eval()
    sizes = [(1, 1), (5, 12), (2, 70)]
    check(layer, True, batch, sizes)


@pytest.mark.slow
def test_onnx_of_a_causal_performer(batch):
    torch.manual_seed(0)
    layer = Masked(pa.make_attention("performer", 8, 2, causal=True)).eval()
    check(layer, True, batch, [(1, 1), (5, 12), (2, 64), (1, 300)])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(pa.available_attentions()) - set(LINEAR) - {"primal"}))
def test_onnx_with_any_batch(name, batch):
    torch.manual_seed(0)
    options = {"reformer": {"bucket_size": 3}, "lka": {"deformable": True}}.get(name, {})
    layer = Masked(pa.make_attention(name, 8, 2, **options)).eval()
    sizes = [(1, 9), (2, 9), (5, 9)]
    check(layer, True, batch, sizes, example=(3, 9), dynamic={0: Dim("batch")})
