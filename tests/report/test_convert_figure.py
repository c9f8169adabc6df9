"""The picture of a conversion."""

import pytest
from torch import nn

from primal_attention.convert import convert_, plan


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    from primal_attention.report.convert_figure import conversion

    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    convert_(encoder, layers=0, rank=4)
    written = conversion(plan(encoder, "last", rank=3), tmp_path / "layers")
    assert [path.name for path in written] == ["layers.png", "layers.svg"]
    text = (tmp_path / "layers.svg").read_text()
    for words in (
        "softmax",
        "primal already",
        "primal tied, s = 3",
        "1 of 3",
        "layers.2.self_attn",
    ):
        assert words in text
