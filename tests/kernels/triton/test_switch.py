"""When the Triton kernels serve; none of this needs Triton."""

import pytest
import torch

from primal_attention.kernels.triton import switch
from primal_attention.kernels.triton.switch import Layer, map_number, serves
from primal_attention.theory.features import Cosine, Elu

TIED, FREE = Layer(True, 8, 0.0), Layer(False, 8, 0.0)


@pytest.fixture
def wanted(monkeypatch):
    monkeypatch.setenv("PRIMAL_TRITON", "1")
    monkeypatch.setattr(switch, "interpreted", lambda: True)
    monkeypatch.setattr(switch, "_installed", lambda: True)


@pytest.fixture
def x():
    return torch.zeros(2, 5, 32)


def test_numbers_of_maps():
    assert map_number(Cosine(16)) == 0
    assert map_number(Elu(16, power=1.0)) == 1
    assert map_number(Elu(16, power=2.0)) == 2
    assert map_number(Elu(16, power=3.0)) is None
    assert map_number(Elu(16, learn_power=True)) is None


def test_off_unless_asked_for(monkeypatch, wanted, x):
    assert serves(x, x.dtype, Cosine(16), TIED)
    monkeypatch.delenv("PRIMAL_TRITON")
    assert not serves(x, x.dtype, Cosine(16), TIED)


def test_off_without_a_gpu(monkeypatch, wanted, x):
    monkeypatch.setattr(switch, "interpreted", lambda: False)
    assert not serves(x, x.dtype, Cosine(16), TIED)


def test_what_is_served(wanted, x):
    assert serves(x, torch.bfloat16, Elu(16, power=2.0), TIED)
    assert serves(x, x.dtype, Cosine(16), FREE)
    assert not serves(x, x.dtype, Elu(16, power=2.0), FREE)
    assert not serves(x, torch.float16, Cosine(16), FREE)
    assert not serves(x, torch.float64, Cosine(16), FREE)
    assert not serves(x, x.dtype, Cosine(16), FREE._replace(dropout=0.1))
    assert serves(x, torch.bfloat16, Cosine(128), FREE._replace(rank=128))
    assert not serves(x, torch.bfloat16, Cosine(16), FREE._replace(rank=129))
    assert serves(x, x.dtype, Cosine(64), FREE)
    assert not serves(x, x.dtype, Cosine(65), FREE)
    assert not serves(x[:0], x.dtype, Cosine(16), FREE)
