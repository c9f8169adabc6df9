"""Time and memory of two models against length."""

import numpy as np
import pytest
import torch

from primal_attention.bench.lengths import forward_of, lengths_of

transformers = pytest.importorskip("transformers")


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=32,
    )  # fmt: skip
    return transformers.BertModel(config).eval()


@pytest.mark.parametrize(
    ("most", "expected"),
    [(32, [32]), (512, [128, 512]), (700, [128, 512, 700]), (10**6, [128, 512, 2048, 8192])],
)
def test_lengths_that_a_model_takes(model, most, expected):
    model.config.max_position_embeddings = most
    assert lengths_of(model) == expected


def test_a_forward_of_a_folder_at_a_length_that_its_positions_are_stretched_to(model, tmp_path):
    model.save_pretrained(tmp_path)
    ids = np.arange(6).reshape(2, 3)
    np.savez(tmp_path / "x.npz", input_ids=ids)
    arguments = str(tmp_path), False, str(tmp_path / "x.npz")
    found = forward_of(*arguments, 7, None, None)()
    row = torch.tensor([[0, 1, 2, 0, 1, 2, 0]])
    with torch.no_grad():
        torch.testing.assert_close(found.last_hidden_state, model(row).last_hidden_state)
    longer = forward_of(*arguments, 40, None, 48)()
    assert longer.last_hidden_state.shape == (1, 40, 8)
