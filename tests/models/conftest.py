"""Small classifiers, ragged batches, and the padded form of the computation."""

import pytest
import torch

import primal_attention as pa
from primal_attention.models import SequenceClassifier, packing

OPTIONS = {"primal": {"rank": 3}}
PATTERNS = [(name, name) for name in pa.available_attentions()] + [("softmax", "primal")]
KINDS = [
    {"weights": "data", "anchors": 30},
    {"weights": "data", "anchor_rule": "mean", "rank_multi": 2},
    {"weights": "free"},
    {"weights": "tied"},
    {"weights": "tied", "causal": True},
]
MODELS = {"+".join(names): {"attention": names} for names in PATTERNS} | {
    "-".join(map(str, kind.values())): {
        "attention": ("primal", "primal"),
        "attention_options": {"primal": {"rank": 3} | kind},
    }
    for kind in KINDS
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def attention(request):
    """The attentions of a model: every one that is registered, a mixture, and primal kinds."""
    return request.param


@pytest.fixture(scope="session")
def make_model():
    """A classifier of series (3 channels) or tokens (11 of them) of at most 9 positions."""

    def build(*, tokens=False, seed=0, dtype=torch.float64, **options):
        torch.manual_seed(seed)
        attention = options.pop("attention", ("primal", "primal"))
        kind = {"vocabulary": 11} if tokens else {"channels": 3}
        sizes = {"classes": 4, "max_length": 9, "width": 8, "heads": 2, "feedforward": 16}
        known = {name: o for name, o in OPTIONS.items() if name in attention}
        defaults = {**kind, **sizes, "attention_options": known}
        return SequenceClassifier(attention=attention, dtype=dtype, **(defaults | options))

    return build


@pytest.fixture(scope="session")
def make_batch():
    """Random sequences of given lengths and their padding (B, length), at the end."""

    def draw(*, lengths=(9, 4, 1, 7, 0), length=9, tokens=False, dtype=torch.float64, seed=1):
        generator = torch.Generator().manual_seed(seed)
        size = (len(lengths), length)
        if tokens:
            inputs = torch.randint(11, size, generator=generator)
        else:
            inputs = torch.randn(*size, 3, generator=generator, dtype=torch.float64).to(dtype)
        return inputs, torch.arange(length) >= torch.tensor(lengths).unsqueeze(-1)

    return draw


@pytest.fixture
def padded(monkeypatch):
    """Call it, and from then on batches stay padded, as in compiled graphs."""
    return lambda: monkeypatch.setattr(packing, "_may_pack", lambda padding: False)
