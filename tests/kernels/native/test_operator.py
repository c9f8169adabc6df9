"""The kernels in compiled graphs: one operator, with the results of eager mode."""

import pytest
import torch
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.kernels.native import library, operator, ops

pytestmark = pytest.mark.skipif(library.kernels() is None, reason=library.state())


def parameters(layer):
    dual = layer.dual_weight if layer.weights == "tied" else None
    fixed = (None, None) if dual is not None else (layer.w_e, layer.w_r)
    return ops.Parameters(
        dual, *fixed, None, layer.in_proj_weight, layer.in_proj_bias, layer.sqrt_lambda,
        layer.concat.weight, layer.concat.bias, layer.out_proj.weight, layer.out_proj.bias,
    )  # fmt: skip


def arguments(weights, causal=False):
    torch.manual_seed(0)
    layer = pa.PrimalAttention(6, 2, rank=2, weights=weights, causal=causal)
    x = torch.randn(2, 40, 6, requires_grad=True)
    ignore = torch.rand(2, 40) < 0.3
    return (
        x,
        ignore,
        *operator.present(parameters(layer)),
        ops.COSINE,
        causal,
        layer.anchors or 0,
        True,
    )


@pytest.mark.parametrize(("weights", "causal"), [("tied", False), ("tied", True), ("data", False)])
def test_the_operator_is_well_formed(weights, causal):
    given = arguments(weights, causal)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.primal_attention.attend.default, given, test_utils=tests)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 96, 97, 1000])
@pytest.mark.parametrize("weights", ["tied", "free"])
def test_what_is_saved_fits(weights, length):
    """The size that a graph knows is no smaller than what the kernels ask for."""
    for causal in (False, True) if weights == "tied" else (False,):
        layer = pa.PrimalAttention(8, 2, rank=3, weights=weights, causal=causal)
        x, p = torch.randn(3, length, 8), parameters(layer)
        kind = "tied" if weights == "tied" else "fixed"
        for number in (ops.COSINE, ops.ELU) if weights == "tied" else (ops.COSINE,):
            options = ops.Options(library.kernels(), kind, number, causal, 0, 0.0, True)
            count, _ = ops.sizes(options, ops.numbers_of(x, p, options), None)
            assert count <= operator._saved_size(x, p, causal)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"causal": False}, {"causal": True}, {"feature_map": "elu"}, {"weights": "data"}],
    ids=str,
)
def test_a_compiled_layer(options):
    layer = pa.PrimalAttention(12, 2, rank=3, **{"weights": "tied", **options})
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for batch, length in ((2, 60), (3, 71)):
        x = torch.randn(batch, length, 12, requires_grad=True)
        found = []
        for call in (layer, compiled):
            out, _ = call(x)
            loss = out.square().sum() + pa.ksvd_loss(layer)
            found.append([out, *torch.autograd.grad(loss, [x, *layer.parameters()])])
        for ours, theirs in zip(*found, strict=True):
            assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
