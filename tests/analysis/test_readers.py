"""Spectra and diagnostics of converted layers: those of the primal layer in them."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import primal_attention as pa
from primal_attention.analysis import ksvd_diagnostics, spectrum
from primal_attention.report.run_spectra import look_at

D, H, N, SHORT = 16, 2, 11, 6


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def encoder(**settings):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, H, 24, batch_first=True, dtype=torch.float64)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    pa.convert_(model, rank=3, **settings)
    return model


def test_the_layer_is_read_as_its_primal_layer_would_be():
    model, x = encoder(), draw(2, N, D)
    padding = torch.arange(N) >= torch.tensor([N, SHORT])[:, None]
    given = {"src": x, "src_key_padding_mask": padding}
    found, near = spectrum(model, given), ksvd_diagnostics(model, given)
    assert [one.name for one in found.layers] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert found.layers[1].kind == "primal (tied)"
    assert [one.name for one in near.layers] == ["layers.1.self_attn"]
    assert not found.skipped
    assert not near.skipped
    layer = {"query": model.layers[0](x, src_key_padding_mask=padding)}
    layer |= {"key_padding_mask": padding}
    primal = model.layers[1].self_attn.primal
    assert_allclose(
        found.layers[1].sigma, spectrum(primal, layer).layers[0].sigma, rtol=1e-6, atol=1e-9
    )
    alone = ksvd_diagnostics(primal, layer).layers[0]
    assert_allclose(near.layers[0].objective, alone.objective, rtol=1e-6)
    assert near.layers[0].objective.shape == (2, H)


def test_a_converted_attention_alone():
    model, x = encoder(), draw(2, N, D)
    site = model.layers[1].self_attn
    found = spectrum(site, {"query": x, "key": x, "value": x}).layers[0]
    assert_allclose(found.sigma, spectrum(site.primal, x).layers[0].sigma)


def test_a_converted_decoder():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(D, H, 24, batch_first=True, dtype=torch.float64)
    model = nn.TransformerDecoder(layer, 1).eval()
    pa.convert_(model, layers="all", rank=3, cross=True, weights="free")
    x, memory = draw(1, N, D), draw(1, 5, D, seed=1)
    mask = nn.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)
    found = spectrum(model, {"tgt": x, "memory": memory, "tgt_mask": mask})
    assert [one.name for one in found.layers] == ["layers.0.self_attn", "layers.0.multihead_attn"]
    own, cross = found.layers
    core = model.layers[0].self_attn.primal
    assert core.causal
    assert_allclose(own.sigma, spectrum(core, x).layers[0].sigma, atol=1e-12)
    assert cross.sigma.shape[-1] == 5


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 20, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H,
        "intermediate_size": 24, "max_position_embeddings": 32,
    }  # fmt: skip
    kind = {"bert": "Bert", "gpt2": "GPT2", "llama": "Llama"}[name]
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    pa.convert_(model, rank=3)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("name", "problems"), [("bert", 1), ("gpt2", 0)])
def test_hugging_faces_layers(name, problems):
    """A causal tied layer has a spectrum, but makes no one KSVD problem."""
    model = hugging_face(name)
    ids = torch.arange(2 * N).view(2, N) % 20
    mask = torch.ones_like(ids)
    mask[1, SHORT:] = 0
    look = look_at(model, [{"input_ids": ids, "attention_mask": mask}])
    assert not look.spectrum.skipped
    assert [one.kind[:6] for one in look.spectrum.layers] == ["softma", "primal"]
    assert len(look.diagnostics.layers) == problems
    assert len(look.diagnostics.skipped) == 1 - problems
    alone = look_at(model, [{"input_ids": ids[1:, :SHORT]}])
    for padded, one in zip(look.spectrum.layers, alone.spectrum.layers, strict=True):
        k = one.sigma.shape[-1]
        assert_allclose(padded.sigma[:, 1, :k], one.sigma[:, 0], atol=1e-4)
        assert_allclose(padded.sigma[:, 1, k:], 0, atol=1e-4)


@pytest.mark.slow
def test_a_cache_of_earlier_positions_is_a_reason_to_skip():
    model = hugging_face("gpt2")
    ids = torch.arange(N)[None]
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
    found = spectrum(model, {"input_ids": ids, "past_key_values": cache})
    assert "cache of earlier positions" in found.skipped["h.1.attn"]


@pytest.mark.slow
def test_rotary_layers_are_skipped_with_their_reason():
    model = hugging_face("llama")
    look = look_at(model, [{"input_ids": torch.arange(N)[None]}])
    for skipped in (look.spectrum.skipped, look.diagnostics.skipped):
        assert list(skipped) == ["layers.1.self_attn"]
        assert "RotaryPrimalAttention rotates" in skipped["layers.1.self_attn"]


@pytest.mark.parametrize("attention", ["primal", "softmax", "linear"])
def test_a_rotation_by_positions_is_read_with_the_kernel(attention):
    """The matrix that is read is the one that the layer mixes its values by."""
    from primal_attention.analysis.graph import last_kernels
    from primal_attention.models.language import LanguageModel

    torch.manual_seed(0)
    model = LanguageModel(
        9, attention=(attention,), width=16, heads=2, dropout=0.0, dtype=torch.float64
    ).eval()
    tokens = torch.randint(9, (1, 7))
    seen = {}

    def keep(module, given, named, out):
        seen.update(call=(given, named))

    layer = model.encoder.layers[0].attention
    hook = layer.register_forward_hook(keep, with_kwargs=True)
    kernels, _ = last_kernels(model, tokens)
    hook.remove()
    given, named = seen["call"]
    assert named["rotation"] is not None
    with torch.no_grad():
        _, expected = layer(*given, **named | {"need_weights": True, "average_attn_weights": False})
        _, unturned = layer(*given, need_weights=True, average_attn_weights=False)
    dense = torch.stack([kernel.dense() for kernel in kernels])
    assert_allclose(dense, expected[0], atol=1e-12)
    assert not torch.allclose(dense, unturned[0], atol=1e-3)
