"""The settings of a run decide the model; that of the recipe "paper" against a plain restatement of
the published classifier."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from primal_attention import ksvd_loss
from primal_attention.models import SequenceClassifier, SeriesNet
from primal_attention.models.build import build_model
from primal_attention.tasks import get_task
from primal_attention.tasks.net import NET
from primal_attention.train.config import RunConfig

WIDTH, HEADS, CHANNELS, CLASSES, LONGEST = 16, 2, 3, 4, 12
HEAD_WIDTH = WIDTH // HEADS
RANK, RANK_MULTI = 2, 3
ANCHORS = RANK * RANK_MULTI  # 6 of 12 positions


class PublishedPrimal(nn.Module):
    """W_c [e; r] of a head with anchors at truncated places, then W_o; J beside it."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.w_e = nn.Parameter(torch.empty(HEADS, ANCHORS, RANK))
        self.w_r = nn.Parameter(torch.empty(HEADS, ANCHORS, RANK))
        self.root_lambda = nn.Parameter(torch.empty(HEADS, RANK))
        self.joined, self.out = nn.Linear(2 * RANK, HEAD_WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        samples, length, _ = x.shape
        places = torch.linspace(0, length - 1, ANCHORS, dtype=torch.int64)
        heads = []
        j = torch.zeros(samples, dtype=x.dtype)
        for h in range(HEADS):
            own = slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH)
            f_x = x[:, places, own]  # (B, n, p)
            e = F.normalize(self.query(x)[..., own], dim=-1) @ (f_x.mT @ self.w_e[h])
            r = F.normalize(self.key(x)[..., own], dim=-1) @ (f_x.mT @ self.w_r[h])
            heads.append(self.joined(torch.cat([e, r], -1)))
            energies = [(s * self.root_lambda[h]).square().sum(-1).mean(-1) for s in (e, r)]
            j = j + sum(energies) / 2 - (self.w_e[h].T @ self.w_r[h]).trace()
        self.j = j / HEADS
        return self.out(torch.cat(heads, -1))


class PublishedSoftmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (HEADS, -1)) for part in (self.query, self.key, self.value)
        )
        scores = torch.einsum("bnhp,bmhp->bhnm", q, k) / math.sqrt(HEAD_WIDTH)
        return self.out(torch.einsum("bhnm,bmhp->bnhp", scores.softmax(-1), v).flatten(2))


class Published(nn.Module):
    """Post-norm layers, one further norm, GELU, padding zeroed, all positions into one layer. The
    attentions see the zeros of the padding."""

    def __init__(self, names, hidden):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, WIDTH)
        self.table = nn.Parameter(torch.empty(LONGEST, WIDTH))
        kinds = {"primal": PublishedPrimal, "softmax": PublishedSoftmax}
        self.attentions = nn.ModuleList([kinds[name]() for name in names])
        self.wide = nn.ModuleList([nn.Linear(WIDTH, hidden) for _ in names])
        self.narrow = nn.ModuleList([nn.Linear(hidden, WIDTH) for _ in names])
        self.first_norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in names])
        self.second_norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in names])
        self.last_norm = nn.LayerNorm(WIDTH)
        self.classes = nn.Linear(LONGEST * WIDTH, CLASSES)

    def forward(self, x, padding):
        x = self.embed(x) * math.sqrt(WIDTH) + self.table
        parts = (self.attentions, self.first_norms, self.wide, self.narrow, self.second_norms)
        for attention, first, wide, narrow, second in zip(*parts, strict=True):
            x = first(x + attention(x))
            x = second(x + narrow(F.gelu(wide(x))))
        x = F.gelu(self.last_norm(x)).masked_fill(padding.unsqueeze(-1), 0.0)
        return self.classes(x.flatten(1))


def copy_weights(model, published):
    """From ours into the restatement."""
    head = model.head.output
    pairs = [
        (published.embed.weight, model.embedding.weight),
        (published.embed.bias, model.embedding.bias),
        (published.table, model.positions.table),
        (published.classes.weight, head.weight),
        (published.classes.bias, head.bias),
        *zip(published.last_norm.parameters(), model.encoder.last_norm.parameters(), strict=True),
    ]
    for i, layer in enumerate(model.encoder.layers):
        there, here = published.attentions[i], layer.attention
        linear = [there.query, there.key, *([there.value] if hasattr(there, "value") else [])]
        weights = zip(here.in_proj_weight.chunk(len(linear)), strict=True)
        biases = here.in_proj_bias.chunk(len(linear))
        for part, (weight,), bias in zip(linear, weights, biases, strict=True):
            pairs += [(part.weight, weight), (part.bias, bias)]
        modules = [
            (there.out, here.out_proj),
            (published.wide[i], layer.feedforward.expand),
            (published.narrow[i], layer.feedforward.reduce),
            (published.first_norms[i], layer.norm_attention),
            (published.second_norms[i], layer.norm_feedforward),
        ]
        if isinstance(there, PublishedPrimal):
            modules.append((there.joined, here.concat))
            pairs += [(there.w_e, here.w_e), (there.w_r, here.w_r)]
            pairs.append((there.root_lambda, here.sqrt_lambda))
        for a, b in modules:
            pairs += zip(a.parameters(), b.parameters(), strict=True)
    with torch.no_grad():
        for a, b in pairs:
            a.copy_(b)
    assert sum(a.numel() for a, _ in pairs) == sum(p.numel() for p in published.parameters())


def paper_model(attention, **changes):
    fields = get_task("uea/JapaneseVowels").recipe("paper", attention)
    fields |= {"width": WIDTH, "heads": HEADS, "feedforward": 24}
    fields |= {"rank": RANK, "rank_multi": RANK_MULTI} | changes
    config = RunConfig(task="uea/JapaneseVowels", recipe="paper", attention=attention, **fields)
    config.validate()
    torch.manual_seed(0)
    return build_model(config, classes=CLASSES, channels=CHANNELS, max_length=LONGEST)


def batch():
    torch.manual_seed(1)
    padding = torch.arange(9) >= torch.tensor([[9], [4], [1]])  # 9 of at most 12 positions
    x = torch.randn(3, 9, CHANNELS).masked_fill(padding.unsqueeze(-1), 0.0)
    return x, padding


MODELS = [("primal", "primal"), ("softmax", "primal"), ("softmax", "softmax")]


@pytest.mark.parametrize("attention", MODELS)
def test_logits_are_those_of_the_published_classifier(attention):
    model = paper_model(attention).eval()
    published = Published(attention, hidden=24).eval()
    copy_weights(model, published)
    x, padding = batch()
    whole = F.pad(x, (0, 0, 0, 3)), F.pad(padding, (0, 3), value=True)
    torch.testing.assert_close(model(x, padding), published(*whole), rtol=1e-6, atol=1e-6)


def test_objective_is_that_of_the_published_classifier():
    model = paper_model(("primal", "primal"), dropout=0.0)
    published = Published(("primal", "primal"), hidden=24)
    copy_weights(model, published)
    x, padding = batch()
    model(x, padding)
    published(F.pad(x, (0, 0, 0, 3)), F.pad(padding, (0, 3), value=True))
    squares = torch.stack([layer.j.square().mean() for layer in published.attentions])
    torch.testing.assert_close(ksvd_loss(model), squares.mean(), rtol=1e-5, atol=1e-6)


PIECES = [
    {"padding": "ignored"},
    {"anchor_rule": "sample"},
    {"projection_start": "xavier"},
    {"direction_start": "orthogonal"},
]


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: next(iter(piece)))
def test_every_piece_makes_a_difference(piece):
    x, padding = batch()
    attention = ("primal", "primal")
    logits = [paper_model(attention, **own).eval()(x, padding) for own in ({}, piece)]
    assert not torch.allclose(*logits, rtol=1e-3, atol=1e-3)


def test_last_norm():
    norms = [paper_model(("primal",), **own).encoder.last_norm for own in ({}, {"norm": "post"})]
    assert [type(norm) for norm in norms] == [nn.LayerNorm, nn.Identity]


def test_no_score_is_dropped_by_the_recipe():
    primal, softmax = (paper_model(a).encoder.layers[0].attention.dropout for a in MODELS[::2])
    assert (primal, softmax) == (0.0, 0.1)


def test_padding_that_is_seen_need_not_stand_at_the_end():
    model = paper_model(("softmax", "primal")).eval()
    x, padding = (part[1:2] for part in batch())  # 4 of 9 are valid
    spread, elsewhere = torch.full_like(x, math.nan), torch.ones_like(padding)
    spread[:, 2::2], elsewhere[:, 2::2] = x[:, :4], False
    torch.testing.assert_close(model(spread, elsewhere), model(x, padding))


def test_token_models_do_not_see_padding():
    shape = {"classes": 2, "vocabulary": 5, "max_length": 8}
    config = RunConfig(task="lra/listops", padding="seen")
    with pytest.raises(ValueError, match='padding is "seen"; expected "ignored" for tokens'):
        build_model(config, **shape)


def test_arena_pools_over_the_padded_length():
    torch.manual_seed(0)
    fields = get_task("lra/listops").recipe("paper", ("primal", "primal"))
    config = RunConfig(task="lra/listops", recipe="paper", **fields)
    config.validate()
    model = build_model(config, classes=2, vocabulary=5, max_length=8).eval()
    own = build_model(
        RunConfig(task="lra/listops", **fields | {"pooled": "valid"}),
        classes=2, vocabulary=5, max_length=8,
    ).eval()  # fmt: skip
    own.load_state_dict(model.state_dict())
    found = []
    for part in (model, own):
        part.head.register_forward_pre_hook(lambda head, given: found.append((head, *given)))
        part(torch.tensor([[1, 2, 3, 0]]), torch.tensor([[False, False, False, True]]))
    means = [head_mean(*given) for given in found]
    torch.testing.assert_close(means[0], means[1] * 3 / 8)


def head_mean(head, rows, packing):
    from primal_attention.models.heads import mean_of_valid

    return mean_of_valid(rows, packing, head.length)


# -- the net ---------------------------------------------------------------------------------------

SHAPE = {"classes": 3, "channels": 2, "max_length": 20}


def settings(**changes):
    return RunConfig(task="uea/BasicMotions", **changes)


def test_the_transformer_is_what_settings_without_a_model_mean():
    assert isinstance(build_model(settings(), **SHAPE), SequenceClassifier)
    assert isinstance(build_model(settings(**NET), **SHAPE), SeriesNet)


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        ({}, {"classes": 3, "vocabulary": 9, "max_length": 20}, "model is 'net', which is for "),
        ({"norm": "post"}, SHAPE, "norm is 'post'; expected 'pre' in the net"),
        ({"head": "flatten"}, SHAPE, "head is 'flatten'; expected 'mean' in the net"),
    ],
)
def test_what_the_net_cannot_be(changes, shape, message):
    with pytest.raises(ValueError, match=message):
        build_model(settings(**NET | changes), **shape)
