"""Figures of spectra: they are images, and say what they show."""

import struct
from xml.etree import ElementTree

import numpy as np
import pytest

from primal_attention.analysis import LayerSpectrum, Spectrum
from primal_attention.report.spectrum_figures import by_layer, explained_variance, rank_map

pytest.importorskip("matplotlib")


def words(path):
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter() if e.text)


@pytest.fixture
def found():
    rng = np.random.default_rng(0)
    layers = []
    for name, heads, k in (("first", 2, 40), ("second", 3, 8)):
        sigma = np.sort(rng.random((heads, 5, k)) ** 3, -1)[..., ::-1]
        energy = (sigma**2).sum(-1)
        layers.append(LayerSpectrum(name, "softmax", "exact", sigma, energy))
    return Spectrum(tuple(layers))


def test_explained_variance_names_the_layers(found, tmp_path):
    png, svg = explained_variance(found, tmp_path / "figure")
    assert struct.unpack(">II", png.read_bytes()[16:24])[0] > 300
    text = words(svg)
    for word in ("first: softmax", "second: softmax", "number of singular values"):
        assert word in text


def test_two_models_side_by_side(found, tmp_path):
    both = {"Transformer": found, "Primal.+Trans.": found}
    (svg,) = explained_variance(both, tmp_path / "both", formats=("svg",))
    text = words(svg)
    assert "Transformer" in text
    assert "Primal.+Trans." in text


def test_a_panel_a_layer(found, tmp_path):
    spectra = {"deep": found, "shallow": Spectrum(found.layers[:1])}
    (svg,) = by_layer(spectra, tmp_path / "layers", formats=("svg",))
    text = words(svg)
    for word in ("Layer 0", "Layer 1", "deep: softmax", "shallow: softmax"):
        assert word in text
    assert "Layer 2" not in text
    with pytest.raises(ValueError, match="no layer"):
        by_layer({"none": Spectrum(())}, tmp_path / "x")


def test_more_layers_than_panels_in_a_row(found, tmp_path):
    (svg,) = by_layer({"a": Spectrum(found.layers * 2)}, tmp_path / "x", formats=("svg",))
    assert "Layer 3" in words(svg)


def test_a_deep_model(found, tmp_path):
    deep = Spectrum(found.layers * 6)
    (svg,) = explained_variance(deep, tmp_path / "deep", formats=("svg",))
    assert words(svg).count("first: softmax") >= 6


def test_rank_map_has_the_numbers(found, tmp_path):
    (svg,) = rank_map(found, tmp_path / "map", formats=("svg",))
    text = words(svg)
    for layer in found.layers:
        for rank in layer.effective_rank().mean(1):
            assert f"{rank:.1f}" in text


def test_nothing_to_draw_is_refused(tmp_path):
    for draw in (explained_variance, rank_map):
        with pytest.raises(ValueError, match="no layer"):
            draw(Spectrum(()), tmp_path / "x")
