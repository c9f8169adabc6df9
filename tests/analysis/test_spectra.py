"""Spectra of every kind of attention, against the dense SVD of the matrix that it forms."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.analysis import moments, spectrum
from primal_attention.analysis.kernels import MatrixHead, SoftmaxHead, head_values

D, H, N = 12, 3, 17
KINDS = {
    "data": {"weights": "data", "anchors": 7},
    "data, many anchors": {"weights": "data", "anchors": 30, "anchor_rule": "mean"},
    "free": {"weights": "free"},
    "tied": {"weights": "tied"},
    "causal": {"weights": "free", "causal": True},
    "exp": {"weights": "free", "feature_map": "exp"},
    "tied exp": {"weights": "tied", "feature_map": "exp"},
    "causal tied": {"weights": "tied", "causal": True},
}


def primal(kind, dtype=torch.float64, **options):
    torch.manual_seed(2)
    return pa.PrimalAttention(D, H, rank=3, dtype=dtype, **(KINDS[kind] | options)).eval()


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def values(matrices):
    """Singular values (heads, inputs, k) of matrices (B, h, N, M)."""
    return np.linalg.svd(matrices.detach().numpy(), compute_uv=False).transpose(1, 0, 2)


@pytest.fixture
def padding():
    return torch.arange(N) >= torch.tensor([N, 6])[:, None]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_primal_is_the_dense_svd(kind, masked, padding, monkeypatch):
    monkeypatch.setattr(moments, "_CHUNK_NUMBERS", 1)  # chunks of 4 head widths
    layer, x = primal(kind), draw(2, 53, D)
    mask = F.pad(padding, (0, 53 - N), value=True) if masked else None
    if mask is not None:
        x[mask] = torch.nan
    given = {"query": x, "key_padding_mask": mask}
    found = spectrum(layer, given).layers[0]
    K = layer(**given, need_weights=True, average_attn_weights=False)[1]
    true = values(K)
    assert found.method == ("exact" if kind == "causal tied" else "factored")
    k = found.sigma.shape[-1]
    assert_allclose(found.sigma, true[..., :k], rtol=0, atol=1e-9 * true.max())
    assert_allclose(true[..., k:], 0, atol=1e-9 * true.max())
    assert_allclose(found.energy, (true**2).sum(-1), rtol=1e-9)


@pytest.mark.parametrize("kind", ["data", "free", "tied"])
def test_cross_attention(kind):
    layer, x, y = primal(kind), draw(2, 9, D), draw(2, 14, D, seed=1)
    found = spectrum(layer, (x, y)).layers[0]
    true = values(layer(x, y, need_weights=True, average_attn_weights=False)[1])
    assert_allclose(found.sigma, true[..., : found.sigma.shape[-1]], atol=1e-9 * true.max())


def test_the_library_of_factors_agrees():
    layer, x = primal("data"), draw(2, N, D)
    sigma = layer.factors(x).singular_values().detach().transpose(0, 1)
    found = spectrum(layer, x).layers[0]
    assert_allclose(found.sigma, sigma.numpy(), atol=1e-10)
    rank = layer.factors(x).effective_rank().detach().T
    assert_allclose(found.effective_rank(), rank.numpy(), rtol=1e-9)


def test_summary_against_its_definitions():
    layer, x = primal("free"), draw(3, N, D)
    found = spectrum(layer, [x[:1], x[1:]]).layers[0]
    assert (found.heads, found.inputs) == (H, 3)
    square = found.sigma**2
    share = square.cumsum(-1) / square.sum(-1, keepdims=True)
    assert_allclose(found.explained_variance(), share)
    mean, deviation = found.curve()
    assert_allclose(mean, share.mean((0, 1)))
    assert_allclose(deviation, share.reshape(9, -1).std(0, ddof=1))
    for h in range(H):
        for i in range(3):
            needed = next(k for k, one in enumerate(share[h, i], 1) if one >= 0.95)
            assert found.rank_for(0.95)[h, i] == needed


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_softmax(causal, masked, padding):
    torch.manual_seed(0)
    layer = pa.SoftmaxAttention(D, H, causal=causal, dtype=torch.float64).eval()
    given = {"query": draw(2, N, D), "key_padding_mask": padding if masked else None}
    found = spectrum(layer, given).layers[0]
    true = values(layer(**given, need_weights=True, average_attn_weights=False)[1])
    assert found.method == "exact"
    assert_allclose(found.sigma, true, atol=1e-12)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "padding", "pairs", "added", "per head"])
def test_torchs_attention(mask, batch_first, padding):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(D, H, batch_first=batch_first, dtype=torch.float64).eval()
    x = draw(2, N, D)
    x = x if batch_first else x.transpose(0, 1)
    pairs = torch.ones(N, N, dtype=torch.bool).triu(2)
    options = {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "pairs": {"attn_mask": pairs},
        "added": {"attn_mask": draw(N, N, seed=3)},
        "per head": {"attn_mask": pairs.expand(2 * H, N, N) & (draw(2 * H, N, N) > 0)},
    }[mask]
    found = spectrum(layer, {"query": x, "key": x, "value": x, **options}).layers[0]
    K = layer(x, x, x, average_attn_weights=False, **options)[1]
    if mask == "padding":  # padded queries take no part either
        K = K.masked_fill(padding[:, None, :, None], 0.0)
    assert_allclose(found.sigma, values(K), atol=1e-12)


def test_torchs_cross_attention_keeps_every_query(padding):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64).eval()
    x, y = draw(2, N, D), draw(2, N, D, seed=1)
    found = spectrum(layer, {"query": x, "key": y, "value": y, "key_padding_mask": padding})
    K = layer(x, y, y, average_attn_weights=False, key_padding_mask=padding)[1]
    assert_allclose(found.layers[0].sigma, values(K), atol=1e-12)


def test_padding_does_not_change_torchs_singular_values(padding):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True, dtype=torch.float64)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), draw(2, N, D)
    padded = spectrum(model, {"src": x, "src_key_padding_mask": padding})
    alone = spectrum(model, x[1:, :6])
    for one, other in zip(padded.layers, alone.layers, strict=True):
        assert_allclose(one.sigma[:, 1, :6], other.sigma[:, 0], atol=1e-12)
        assert_allclose(one.sigma[:, 1, 6:], 0, atol=1e-12)


def test_torchs_encoder_does_not_go_around_the_hooks(padding):
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = draw(2, N, D, dtype=torch.float32)
    found = spectrum(model, {"src": x, "src_key_padding_mask": padding})
    assert [one.name for one in found.layers] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert found.layers[1].inputs == 2
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


class VisionAttention(nn.Module):
    """As timm writes it."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.scale = H, (D // H) ** -0.5
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.q_norm, self.k_norm = nn.LayerNorm(D // H), nn.Identity()

    def weights(self, x):
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        return (q * self.scale @ k.transpose(-2, -1)).softmax(-1), v

    def forward(self, x, attn_mask=None):
        weights, v = self.weights(x)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


def test_timms_attention():
    torch.manual_seed(0)
    timms = type("Attention", (VisionAttention,), {"__module__": "timm.layers.attention"})
    model = nn.Sequential(timms(), timms()).double()
    x = draw(2, N, D)
    found = spectrum(model, x)
    assert_allclose(found["0"].sigma, values(model[0].weights(x)[0]), atol=1e-12)
    assert_allclose(found["1"].sigma, values(model[1].weights(model[0](x))[0]), atol=1e-12)
    masked = spectrum(model[0], (x, torch.zeros(N, N)))
    assert "was given a mask" in masked.skipped["attention"]


def test_projections_alone_do_not_make_softmax_attention():
    found = spectrum(nn.Sequential(VisionAttention()).double(), draw(1, N, D))
    assert not found.layers
    assert "VisionAttention may compute other scores" in found.skipped["0"]


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=32,
        )  # fmt: skip
        return transformers.BertModel(config).eval()
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=20, n_embd=8, n_layer=2, n_head=2, n_positions=32
        )
        return transformers.GPT2Model(config).eval()
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=16,
    )  # fmt: skip
    return transformers.LlamaModel(config).eval()


class TokenAttention(nn.Module):
    """As Hugging Face writes it: the probabilities are the second result, if eager."""

    def __init__(self, config):
        super().__init__()
        self.config, self.q_proj, self.k_proj = config, nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, hidden_states, key_value_states=None, **kwargs):
        asked = hidden_states if key_value_states is None else key_value_states
        q, k = (
            f(x).unflatten(-1, (H, -1)).transpose(1, 2)
            for f, x in ((self.q_proj, hidden_states), (self.k_proj, asked))
        )
        mask = kwargs.get("attention_mask")
        weights = (q @ k.mT + (0 if mask is None else mask)).softmax(-1)
        out = (weights @ q).transpose(1, 2).flatten(2)
        return out, weights if self.config._attn_implementation == "eager" else None


class AttentionBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = TokenAttention(config)

    def forward(self, hidden_states, **kwargs):
        return hidden_states + self.attention(hidden_states, **kwargs)[0]


class TokenModel(nn.Sequential):
    def __init__(self):
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        super().__init__(AttentionBlock(self.config), AttentionBlock(self.config))

    def forward(self, x, **kwargs):
        for block in self:
            x = block(x, **kwargs)
        return x

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name


def test_a_model_with_eager_attention():
    torch.manual_seed(0)
    model, x = TokenModel().double(), draw(2, N, D)
    found = spectrum(model, x)
    assert [one.name for one in found.layers] == ["0.attention", "1.attention"]
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    assert_allclose(found["0.attention"].sigma, values(model[0].attention(x)[1]), atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_does_not_change_eager_singular_values(side, causal, padding):
    torch.manual_seed(0)
    model, x = TokenModel().double(), draw(2, N, D)
    padding = padding.flip(-1) if side == "left" else padding
    future = torch.ones(N, N, dtype=torch.bool).triu(1) & torch.tensor(causal)
    lowest = torch.finfo(torch.float64).min  # as the library writes it: hidden rows are uniform
    mask = torch.zeros(2, 1, N, N, dtype=torch.float64)
    mask = mask.masked_fill(padding[:, None, None] | future, lowest)
    padded = spectrum(model, {"x": x, "attention_mask": mask})
    keep = slice(N - 6, N) if side == "left" else slice(6)
    alone = spectrum(model, {"x": x[1:, keep], "attention_mask": mask[1:, :, keep, keep]})
    for one, other in zip(padded.layers, alone.layers, strict=True):
        assert_allclose(one.sigma[:, 1, :6], other.sigma[:, 0], atol=1e-12)
        assert_allclose(one.sigma[:, 1, 6:], 0, atol=1e-12)


def test_eager_cross_attention_keeps_every_query(padding):
    torch.manual_seed(0)
    model, x, y = TokenModel().double(), draw(2, N, D), draw(2, N, D, seed=1)
    mask = torch.zeros(2, 1, 1, N, dtype=torch.float64).masked_fill(padding[:, None, None], -1e9)
    given = {"key_value_states": y, "attention_mask": mask}
    found = spectrum(model, {"x": x, **given})
    model.set_attn_implementation("eager")
    K = model[0].attention(x, **given)[1]
    assert_allclose(found.layers[0].sigma, values(K), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_hugging_faces_attention(name):
    model = hugging_face(name)
    before = model.config._attn_implementation
    ids = torch.arange(11)[None] % 20
    mask = torch.ones_like(ids)
    mask[:, 9:] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    found = spectrum(model, given)
    assert not found.skipped
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(**given, output_attentions=True).attentions
    assert len(found.layers) == len(weights) == 2
    for layer, K in zip(found.layers, weights, strict=True):
        K[:, :, 9:] = 0.0  # padded queries take no part
        assert_allclose(layer.sigma, values(K.double()), atol=1e-5)


def test_a_model_of_ours_layer_by_layer(padding):
    from primal_attention.models import SequenceClassifier

    torch.manual_seed(0)
    model = SequenceClassifier(
        classes=2, channels=4, max_length=N, attention=("softmax", "primal"), width=D, heads=H,
        feedforward=16, attention_options={"primal": {"rank": 3}},
    )  # fmt: skip
    modes = [m.training for m in model.modules()]
    x = draw(2, N, 4, dtype=torch.float32)
    found = spectrum(model, (x, padding))
    assert [one.kind for one in found.layers] == ["softmax", "primal (tied)"]
    assert [one.method for one in found.layers] == ["exact", "factored"]
    assert [m.training for m in model.modules()] == modes
    text = str(found)
    assert "effective rank" in text
    assert "encoder.layers.1.attention" in text
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["layers"][1]["heads"] == H
    assert len(again["layers"][0]["explained_variance"]["mean"]) == N
    with pytest.raises(KeyError, match="no layer 'x'"):
        found["x"]


def test_every_attention_is_seen_or_says_why():
    for name in pa.available_attentions():
        known = pa.attention_info(name).options
        needed = {n: v for n, v in {"rank": 3, "max_length": 16}.items() if n in known}
        layer = pa.make_attention(name, D, H, **needed).eval()
        found = spectrum(layer, draw(1, 8, D, dtype=torch.float32))
        assert len(found.layers) + len(found.skipped) == 1
        if found.layers:
            assert found.layers[0].sigma.shape[:2] == (H, 1)
            assert np.isfinite(found.layers[0].sigma).all()


def test_randomised_is_close_and_says_so():
    q, k = draw(300, 6), draw(280, 6, seed=1)
    head = SoftmaxHead(2 * q, 2 * k, 6**-0.5)
    true = torch.linalg.svdvals(head.rows(0, 300))
    found = head_values(head, exact_size=100, leading=20)
    assert found.method == "randomised"
    assert found.sigma.shape == (20,)
    assert_allclose(found.sigma, true[:20], rtol=1e-4)
    assert found.energy == pytest.approx(float(true.square().sum()), rel=1e-9)
    low = MatrixHead(draw(90, 5) @ draw(5, 80, seed=1))
    exact = torch.linalg.svdvals(low.matrix)[:5]
    found = head_values(low, exact_size=10, leading=8)
    assert_allclose(found.sigma[:5], exact, rtol=1e-10)


def test_randomised_spectra_do_not_invent_ranks():
    torch.manual_seed(0)
    layer = pa.SoftmaxAttention(D, H, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_weight *= 8
    found = spectrum(layer, draw(1, 60, D), exact_size=10, leading=4)
    assert found.layers[0].method == "randomised"
    assert np.isnan(found.layers[0].rank_for(0.99)).any()
    assert found.to_dict()["layers"][0]["rank_for"]["0.99"] == {"mean": None, "deviation": None}
    assert "more than found" in str(found)


def test_row_blocks_do_not_matter(monkeypatch):
    head = SoftmaxHead(draw(40, 4), draw(30, 4, seed=1), 0.5, causal=True)
    whole = head_values(head, exact_size=5, leading=6)
    monkeypatch.setattr("primal_attention.analysis.kernels._ROW_NUMBERS", 90)
    parts = head_values(head, exact_size=5, leading=6)
    assert_allclose(parts.sigma, whole.sigma, rtol=1e-10)
    assert parts.energy == pytest.approx(whole.energy)


def test_float32_layers_are_accumulated_in_float64():
    layer, x = primal("free", torch.float32), draw(1, 3000, D, dtype=torch.float32)
    with torch.no_grad():
        exact = primal("free")
        exact.load_state_dict(layer.state_dict())
    found = spectrum(layer, x).layers[0].sigma
    true = spectrum(exact, x.double()).layers[0].sigma
    assert_allclose(found, true, rtol=1e-5)


def test_folded_layers_too():
    layer, x = primal("free"), draw(1, N, D)
    before = spectrum(layer, x).layers[0].sigma
    pa.fold_(layer)
    assert_allclose(spectrum(layer, x).layers[0].sigma, before, atol=1e-12)


def test_wrong_arguments():
    layer = primal("free")
    with pytest.raises(ValueError, match="Linear has no attention that is known here"):
        spectrum(nn.Linear(2, 2), draw(1, 2))
    with pytest.raises(ValueError, match="leading is 0; expected at least 1"):
        spectrum(layer, draw(1, N, D), leading=0)
    with pytest.raises(TypeError, match="inputs is a int"):
        spectrum(layer, 3)
    with pytest.raises(ValueError, match="share is 2"):
        spectrum(layer, draw(1, N, D)).layers[0].rank_for(2)


def test_what_is_not_called_is_named():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = primal("free"), primal("free")

        def forward(self, x):
            return self.used(x)[0]

    found = spectrum(Half(), draw(1, N, D))
    assert [one.name for one in found.layers] == ["used"]
    assert found.skipped == {"unused": "it was not called"}
    assert "skipped unused: it was not called" in str(found)
