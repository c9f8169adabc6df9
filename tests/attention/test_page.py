"""The page of the registry."""

from pathlib import Path

import pytest
import torch

from primal_attention import attention_info, available_attentions, make_attention
from primal_attention.attention.page import COMMON, documented, page

COMMITTED = Path(__file__).parents[2] / "docs" / "attentions.md"


def section(name: str) -> str:
    return page().split(f"\n## {name}\n")[1].split("\n## ")[0]


def test_the_committed_page_is_the_registry():
    command = "python -m primal_attention.attention.page > docs/attentions.md"
    assert COMMITTED.read_text() == page(), f"run `{command}`"


@pytest.mark.parametrize("name", available_attentions())
def test_everything_about_an_attention_is_there(name):
    info, text = attention_info(name), section(name)
    assert info.paper in text
    assert info.build.__name__ in text
    for option in set(info.options) - set(COMMON):
        assert f"\n- `{option}: " in text
    assert set(info.options) <= set(documented(info.build)), "a line under Args: for each option"
    assert "not documented" not in text
    row = next(line for line in page().splitlines() if line.startswith(f"| [{name}]"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == info.cost
    facts = (info.causal, info.cross, info.streaming, info.any_length)
    assert cells[3:] == [*("yes" if fact else "no" for fact in facts), info.summary or "no"]


def test_options_with_and_without_a_default():
    assert "`window: int = 128`" in section("longformer")
    assert "`rank: int | None = None`" in section("primal")
    assert "`max_length: int`" in section("linformer")


@pytest.mark.parametrize("name", available_attentions())
def test_the_fact_about_masks_of_pairs(name):
    needed = {"rank": 2, "max_length": 5}
    options = {n: v for n, v in needed.items() if n in attention_info(name).options}
    layer, x = make_attention(name, 4, 2, **options), torch.randn(1, 5, 4)
    try:
        layer(x, attn_mask=torch.eye(5, dtype=torch.bool))
    except ValueError as error:
        assert "attn_mask" in str(error)  # noqa: PT017
        assert not attention_info(name).pair_masks
