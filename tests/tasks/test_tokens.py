"""Token sets and their batches."""

import numpy as np
import pytest
import torch

from primal_attention.tasks.tokens import PairData, TokenData, TokenSet


def token_set(lengths, labels, *, tokens=None, vocabulary=50, classes=("a", "b")):
    lengths = np.array(lengths, dtype=np.int64)
    lengths = lengths.reshape(len(labels), -1 if len(labels) else 1)
    flat = lengths.ravel()
    if tokens is None:
        tokens = np.random.default_rng(0).integers(1, vocabulary, flat.sum()).astype(np.uint8)
    starts = (np.cumsum(flat) - flat).reshape(lengths.shape)
    return TokenSet("some", tokens, starts, lengths, np.array(labels), classes, vocabulary, "sum")


def rows_of(s):
    """Every sequence as a list, case by case."""
    return [
        [s.tokens[a : a + n].tolist() for a, n in zip(starts, lengths, strict=True)]
        for starts, lengths in zip(s.starts, s.lengths, strict=True)
    ]


def test_batch_against_lists():
    s = token_set([3, 1, 5, 2], [0, 1, 1, 0])
    batch = TokenData(s).__getitems__([2, 0, 2])
    expected = [rows_of(s)[i][0] for i in (2, 0, 2)]
    assert batch.inputs.shape == batch.padding.shape == (3, 5)
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.padding.dtype == torch.bool
    for row, hidden, tokens in zip(batch.inputs, batch.padding, expected, strict=True):
        assert row[~hidden].tolist() == tokens
        assert hidden.tolist() == [i >= len(tokens) for i in range(5)]
        assert not row[hidden].any()
    assert batch.targets.tolist() == [1, 0, 1]


def test_batch_is_as_long_as_its_longest():
    data = TokenData(token_set([3, 1, 5, 2], [0, 1, 1, 0]))
    assert data.__getitems__([1, 3]).inputs.shape == (2, 2)
    assert data.longest == 5
    assert data.lengths.tolist() == [3, 1, 5, 2]
    assert data.cut == 0


def test_cut_and_fixed_length():
    s = token_set([3, 1, 5, 2], [0, 1, 1, 0])
    data = TokenData(s, max_length=2, pad_to=4)
    batch = data.__getitems__([2, 1])
    assert batch.inputs.shape == (2, 4)
    assert batch.inputs[0, :2].tolist() == rows_of(s)[2][0][:2]
    assert batch.padding.tolist() == [[False, False, True, True], [False, True, True, True]]
    assert data.cut == 2
    assert data.lengths.tolist() == [2, 1, 2, 2]


def test_large_tokens_are_kept():
    tokens = np.array([256, 65535, 7], dtype=np.uint16)
    s = token_set([2, 1], [0, 1], tokens=tokens, vocabulary=65536)
    assert TokenData(s).__getitems__([0]).inputs.tolist() == [[256, 65535]]


def test_pairs():
    s = token_set([[3, 1], [2, 4]], [0, 1])
    data = PairData(s)
    batch = data.__getitems__([1, 0])
    assert batch.inputs.shape == batch.padding.shape == (2, 2, 4)
    assert batch.targets.tolist() == [1, 0]
    assert data.lengths.tolist() == [3, 4]
    both = batch.inputs.flatten(0, 1)  # as one encoder reads them
    assert both.data_ptr() == batch.inputs.data_ptr()
    pooled = both.view(2, 2, 4)
    for i, case in enumerate((1, 0)):
        for j, side in enumerate(pooled.unbind(1)):
            assert side[i][~batch.padding[i, j]].tolist() == rows_of(s)[case][j]


def test_subset_shares_the_tokens():
    s = token_set([3, 1, 5, 2], [0, 1, 1, 0])
    part = s.subset([3, 2])
    assert part.tokens is s.tokens
    assert rows_of(part) == [rows_of(s)[3], rows_of(s)[2]]
    assert part.labels.tolist() == [0, 1]
    assert len({s.fingerprint(), part.fingerprint(), s.subset([2, 3]).fingerprint()}) == 3
    assert s.subset(range(4)).fingerprint() == s.fingerprint()


def test_mapped_file_is_not_copied(tmp_path):
    np.save(tmp_path / "tokens.npy", np.arange(200, dtype=np.uint8))
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    data = TokenData(token_set([100, 100], [0, 1], tokens=mapped, vocabulary=200))
    assert np.shares_memory(data._tokens, mapped)
    assert data.__getitems__([1]).inputs.tolist() == [list(range(100, 200))]


@pytest.mark.parametrize(
    ("lengths", "labels", "message"),
    [
        ([], [], "some has no cases"),
        ([0, 3], [0, 1], "a sequence that is empty"),
        ([3, 1], [0, 2], "labels from 0 to 2; expected 0 to 1"),
        ([3, 1], [-1, 1], "labels from -1 to 1"),
    ],
)
def test_wrong_sets(lengths, labels, message):
    with pytest.raises(ValueError, match=message):
        token_set(lengths, labels)


def test_sequence_beyond_the_tokens():
    with pytest.raises(ValueError, match="leaves its 2 tokens"):
        token_set([2, 1], [0, 1], tokens=np.zeros(2, dtype=np.uint8))


def test_wrong_requests():
    s = token_set([3, 1], [0, 1])
    with pytest.raises(ValueError, match="max_length is 0; expected an integer of at least 1"):
        TokenData(s, max_length=0)
    with pytest.raises(ValueError, match="pad_to is 2; expected at least the longest of some, 3"):
        TokenData(s, pad_to=2)
    with pytest.raises(ValueError, match="some has 1 sequences a case; expected 2"):
        PairData(s)
