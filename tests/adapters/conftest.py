"""Tiny models of other libraries, built from a configuration, with inputs and a way to run them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import nn

VOCABULARY, LENGTH, SHORT = 40, 7, 4


class Case(NamedTuple):
    """A model, a padded batch (the second sample is SHORT), that sample alone, and what to read."""

    model: nn.Module
    batch: dict[str, torch.Tensor]
    alone: dict[str, torch.Tensor]
    out: Callable[..., torch.Tensor]  # out(model, inputs): (B, N, ...)
    layers: int
    causal: bool


TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
GROUPED = TEXT | {"num_attention_heads": 4, "num_key_value_heads": 2}
IMAGE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 8, "patch_size": 4, "num_labels": 3,
}  # fmt: skip


def _text(model: nn.Module, causal: bool) -> Case:
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, SHORT:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    alone = {"input_ids": ids[1:, :SHORT]}
    return Case(model, batch, alone, lambda m, x: m(**x).logits, 2, causal)


def _image(model: nn.Module) -> Case:
    batch = {"pixel_values": torch.randn(2, 3, 8, 8, dtype=torch.float64)}
    alone = {"pixel_values": batch["pixel_values"][1:]}  # images have no padding
    return Case(model, batch, alone, lambda m, x: m(**x).logits.unsqueeze(1), 2, False)


def _decision(model: nn.Module) -> Case:
    steps = {
        "states": torch.randn(2, LENGTH, 5), "actions": torch.randn(2, LENGTH, 3),
        "returns_to_go": torch.randn(2, LENGTH, 1), "rewards": torch.randn(2, LENGTH, 1),
    }  # fmt: skip
    steps = {name: t.double() for name, t in steps.items()}
    times = torch.arange(LENGTH).expand(2, -1)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, SHORT:] = 0
    batch = {**steps, "timesteps": times, "attention_mask": mask}
    alone = {name: t[1:, :SHORT] for name, t in (steps | {"timesteps": times}).items()}
    return Case(model, batch, alone, lambda m, x: m(**x).action_preds, 2, True)


def _build(name: str) -> Case:
    t = pytest.importorskip("transformers")
    if name == "vit":
        return _image(t.ViTForImageClassification(t.ViTConfig(**IMAGE)))
    if name == "deit":
        return _image(t.DeiTForImageClassification(t.DeiTConfig(**IMAGE)))
    if name == "decision":
        config = t.DecisionTransformerConfig(
            state_dim=5, act_dim=3, hidden_size=16, n_layer=2, n_head=2, max_ep_len=32,
            vocab_size=1, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        return _decision(t.DecisionTransformerModel(config))
    if name == "distilbert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": VOCABULARY}
        return _text(t.DistilBertForMaskedLM(t.DistilBertConfig(**sizes)), False)
    if name == "gpt2":
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
        tokens = {
            n: TEXT[n] for n in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
        }
        return _text(t.GPT2LMHeadModel(t.GPT2Config(**sizes, **tokens)), True)
    if name == "qwen3":  # heads wider than the model
        return _text(t.Qwen3ForCausalLM(t.Qwen3Config(**GROUPED, head_dim=8)), True)
    model, config, sizes, causal = {
        "bert": (t.BertForMaskedLM, t.BertConfig, TEXT, False),
        "bert-decoder": (t.BertLMHeadModel, t.BertConfig, TEXT | {"is_decoder": True}, True),
        "roberta": (t.RobertaForMaskedLM, t.RobertaConfig, TEXT, False),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig, GROUPED, True),
        "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config, GROUPED, True),
    }[name]
    return _text(model(config(**sizes)), causal)


@pytest.fixture
def hugging_face():
    """`hugging_face("bert")`: a Case in float64, in evaluation mode."""

    def make(name: str) -> Case:
        torch.manual_seed(0)
        case = _build(name)
        case.model.double().eval()
        with torch.no_grad():  # untrained models are full of zeros, which hide much
            for parameter in case.model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return case

    return make


@pytest.fixture
def awaken():
    """Gives the converted layers random numbers: a layer that starts silent would pass any test."""
    from primal_attention.convert import converted_layers

    def change(model: nn.Module) -> nn.Module:
        torch.manual_seed(1)
        for layer in converted_layers(model):
            with torch.no_grad():
                for parameter in layer.primal.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return model

    return change


@pytest.fixture
def encoder():
    """A torch encoder of three layers in float64, in evaluation mode."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).double().eval()
