import sys

import pytest
import torch

pytest.importorskip("transformers")
from primal_attention import ksvd_loss, make_attention
from primal_attention.attention.primal import PrimalAttention
from primal_attention.cli.settings import resolve
from primal_attention.tasks import get_task
from primal_attention.tasks.images.model import build_vision_transformer

SHAPE = {"classes": 10, "size": 8, "patch": 2}
PLUS = ("softmax", "softmax", "primal")


def build(attention, **changes):
    torch.manual_seed(0)
    config = resolve("images/digits", attention, **changes)
    return get_task("images/digits").model(config, SHAPE)


def test_logits_do_not_depend_on_the_padding():
    model = build(PLUS).eval()
    images = torch.randn(4, 3, 8, 8)
    logits = model(images, torch.zeros(4, 16, dtype=torch.bool))
    assert logits.shape == (4, 10)
    assert torch.equal(logits, model(images))


def test_the_named_layers_are_primal_and_all_else_is_shared():
    plain, plus = build(("softmax",) * 3), build(PLUS)
    layers = [layer.attention for layer in plus.network.vit.layers]
    assert [hasattr(layer, "primal") for layer in layers] == [False, False, True]
    a, b = plain.state_dict(), plus.state_dict()
    own = "network.vit.layers.2.attention."
    assert {n for n in a if not n.startswith(own)} == {n for n in b if not n.startswith(own)}
    assert all(torch.equal(a[n], b[n]) for n in a if not n.startswith(own))


def test_settings_reach_the_primal_layers():
    settings = {"weights": "free", "rank": 5, "dropout": 0.3, "heads": 2, "options": {}}
    model = build(("primal", "softmax", "primal"), **settings)
    first, last = (m for m in model.modules() if isinstance(m, PrimalAttention))
    for layer in (first, last):
        assert (layer.weights, layer.rank, layer.num_heads) == ("free", 5, 2)
        assert layer.dropout == 0.3
        assert layer.concat.weight.abs().max() > 0  # the random start, not the silent one


def test_primal_layers_are_trained_by_both_losses():
    model = build(PLUS).train()
    logits = model(torch.randn(4, 3, 8, 8))
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(4)) + 0.1 * ksvd_loss(model)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["none", "linear", "performer"])
def test_any_attention_of_the_registry(name):
    """A baseline that lets no patch see another, and rivals."""
    options = {name: {"features": 8}} if name == "performer" else {}
    model = build(("softmax", name, "primal"), options=options)
    kinds = [type(m).__name__ for m in model.modules()]
    assert type(make_attention(name, 32, 4)).__name__ in kinds
    torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_deit_small_has_the_size_of_the_paper():
    config = resolve("images/folder", ("softmax",) * 12, "deit")
    with torch.device("meta"):
        model = build_vision_transformer(config, classes=1000, size=224, patch=16)
        assert sum(p.numel() for p in model.parameters()) == 22_050_664
        logits = model(torch.empty(2, 3, 224, 224))
    assert logits.shape == (2, 1000)


@pytest.mark.parametrize("rank", [32, 64, 96])
def test_primal_deit_small_can_be_built(rank):
    config = resolve("images/folder", ("softmax",) * 11 + ("primal",), "deit", rank=rank)
    with torch.device("meta"):
        model = build_vision_transformer(config, classes=100, size=224, patch=16).eval()
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 100)
    (layer,) = (m for m in model.modules() if isinstance(m, PrimalAttention))
    assert layer.rank == rank


@pytest.mark.parametrize(
    ("attention", "changes", "message"),
    [
        (PLUS, {"norm": "post"}, "norm is 'post'; expected 'pre'"),
        (PLUS, {"positions": "none"}, "positions is 'none'; expected 'learned'"),
        (PLUS, {"head": "mlp"}, "head is 'mlp'; expected the default"),
        (PLUS, {"options": {"softmax": {"bias": False}}}, "options has 'softmax'; expected none"),
    ],
)
def test_what_a_vision_transformer_cannot_be_is_refused(attention, changes, message):
    with pytest.raises(ValueError, match=message):
        build(attention, **changes)


def test_missing_transformers_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"need transformers; install 'primal-attention\[hf\]'"):
        build(PLUS)
