"""Texts as tokens and as pieces, each token predicted once."""

import gzip

import numpy as np
import pytest

from primal_attention.tasks import DataError
from primal_attention.tasks.language.text import END, UNKNOWN, TextData, Vocabulary, read_text

TEXT = "the cat sat\non the mat\n"


def test_words():
    known = Vocabulary.of(TEXT, "words")
    assert known.words == (UNKNOWN, END, "the", "cat", "mat", "on", "sat")  # by number, then name
    assert known.decode(known.encode(TEXT)) == " the cat sat\n on the mat\n"
    assert known.encode("the dog").tolist() == [2, 0, 1]
    assert Vocabulary.of(TEXT, "words", 3).words == (UNKNOWN, END, "the")
    assert Vocabulary.from_dict(known.to_dict()) == known


def test_characters():
    known = Vocabulary.of(TEXT, "characters")
    assert known.decode(known.encode(TEXT)) == TEXT
    with pytest.raises(ValueError, match="tokens is 'syllables'"):
        Vocabulary.of(TEXT, "syllables")


@pytest.mark.parametrize("length", [2, 3, 4, 100])
def test_every_token_but_the_first_is_predicted_once(length):
    tokens = np.arange(1, 10)
    data = TextData(tokens, length)
    piece = data.__getitems__(range(len(data)))
    judged = piece.targets >= 0
    assert piece.targets[judged].tolist() == tokens[1:].tolist()
    assert piece.tokens[judged].tolist() == tokens[:-1].tolist()
    assert data.count(range(len(data))) == data.predicted == 8
    with pytest.raises(DataError, match="has 1 tokens"):
        TextData(tokens[:1], length)


def test_files(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfhello"))
    assert read_text(tmp_path / "a.txt.gz") == "hello"
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "c.txt").write_text(" \n")
    for name, message in (("b", "cannot read"), ("c", "is empty"), ("d", "cannot read")):
        with pytest.raises(DataError, match=message):
            read_text(tmp_path / f"{name}.txt")
