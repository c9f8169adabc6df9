"""An adapter for a class of one's own, as the documentation shows it."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import primal_attention as pa
from primal_attention.adapters import base
from primal_attention.convert import convert_, plan, register_adapter, revert_

PAGE = Path(__file__).parents[2] / "docs" / "convert.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(base, "_adapters", dict(base._adapters))


def test_the_documented_adapter(registry, awaken):
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(next(e for e in EXAMPLES if "register_adapter" in e), names)
    model = names["model"]
    assert type(model[0]).__name__ == "MyConverted"
    x, mask = torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    awaken(model)
    assert_close(model[0](x, mask)[1, :3], model[0](x[1:, :3], None)[0], rtol=1e-4, atol=1e-5)
    model.train()
    (model[0](x, mask).mean() + pa.ksvd_loss(model)).backward()
    revert_(model)
    assert type(model[0]).__name__ == "MyAttention"


def test_a_name_can_be_taken_once(registry):
    class Other:
        name = "torch.nn/MultiheadAttention"

    with pytest.raises(ValueError, match="registered twice"):
        register_adapter(Other())


def test_later_adapters_are_asked_first(registry):
    class First(base.known_adapters()["torch.nn/MultiheadAttention"].__class__):
        name = "first"

    register_adapter(First())
    model = torch.nn.Sequential(torch.nn.MultiheadAttention(16, 2))
    assert plan(model).rows[0].adapter == "first"
    convert_(model, rank=2)
    assert model[0].conversion.adapter == "first"


def test_an_attention_that_names_no_heads_is_one_sentence():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.proj(mixed.transpose(1, 2).flatten(2))

    message = "0 cannot be converted: Own does not say how many heads it has; expected a number in"
    with pytest.raises(ValueError, match=message):
        pa.plan(nn.Sequential(Own()))
