"""Tiny models of many architectures of transformers, built from a configuration, each with a batch.

`ARCHITECTURES[name]()` gives (model, batch): two layers of width 16 with 2 heads, where possible.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, dict[str, Tensor]]

WORDS, LENGTH = 40, 7
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TOKENS = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**SIZES, **TOKENS, "intermediate_size": 24, "max_position_embeddings": 32}
GROUPED = {**TEXT, "num_attention_heads": 4, "num_key_value_heads": 2}
IMAGE = {**SIZES, "intermediate_size": 24, "image_size": 8, "patch_size": 4, "num_labels": 3}


def _make(kind: str, config: str, sizes: dict) -> nn.Module:
    import transformers

    return getattr(transformers, kind)(getattr(transformers, config)(**sizes))


def _ids(low: int = 3) -> Tensor:
    return torch.randint(low, WORDS, (2, LENGTH))


def text(kind: str, config: str, **sizes: object) -> Callable[[], Built]:
    """A model of tokens; the second sample is padded."""

    def build() -> Built:
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[1, 4:] = 0
        ids = _ids().masked_fill(mask == 0, 0)
        return _make(kind, config, {**TEXT, **sizes}), {"input_ids": ids, "attention_mask": mask}

    return build


def image(kind: str, config: str, **sizes: object) -> Callable[[], Built]:
    return lambda: (
        _make(kind, config, {**IMAGE, **sizes}), {"pixel_values": torch.randn(2, 3, 8, 8)}
    )  # fmt: skip


def _t5() -> Built:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    model = _make("T5ForConditionalGeneration", "T5Config", {**TOKENS, **sizes})
    return model, {"input_ids": _ids(), "decoder_input_ids": _ids()}


def _bart() -> Built:
    sides = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in {"layers": 2, "attention_heads": 2, "ffn_dim": 24}.items()
    }
    sizes = {**TOKENS, **sides, "d_model": 16, "max_position_embeddings": 32}
    model = _make("BartForConditionalGeneration", "BartConfig", sizes)
    return model, {"input_ids": _ids(), "decoder_input_ids": _ids()}


def _whisper() -> Built:
    sides = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in {"layers": 2, "attention_heads": 2, "ffn_dim": 24}.items()
    }
    lengths = {"max_source_positions": 10, "max_target_positions": 32, "num_mel_bins": 4}
    sizes = {**TOKENS, **sides, **lengths, "d_model": 16, "decoder_start_token_id": 1}
    model = _make("WhisperForConditionalGeneration", "WhisperConfig", sizes)
    return model, {"input_features": torch.randn(2, 4, 20), "decoder_input_ids": _ids()}


def _wav2vec2() -> Built:
    convolution = {"conv_dim": (8, 8), "conv_kernel": (4, 2), "conv_stride": (2, 2)}
    sizes = {
        **TEXT, **convolution, "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0,
    }  # fmt: skip
    return _make("Wav2Vec2Model", "Wav2Vec2Config", sizes), {"input_values": torch.randn(2, 60)}


def _clip() -> Built:
    import transformers as t

    config = t.CLIPConfig(text_config=TEXT, vision_config=IMAGE, projection_dim=8)
    return t.CLIPModel(config), {"input_ids": _ids(), "pixel_values": torch.randn(2, 3, 8, 8)}


def _patchtst() -> Built:
    sizes = {
        "d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
        "num_input_channels": 2, "context_length": 32, "patch_length": 4, "patch_stride": 4,
        "prediction_length": 4,
    }  # fmt: skip
    model = _make("PatchTSTForPrediction", "PatchTSTConfig", sizes)
    return model, {"past_values": torch.randn(2, 32, 2)}


def _swin() -> Built:
    sizes = {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2],
        "window_size": 4, "num_labels": 3,
    }  # fmt: skip
    model = _make("SwinForImageClassification", "SwinConfig", sizes)
    return model, {"pixel_values": torch.randn(2, 3, 16, 16)}


def _decision() -> Built:
    sizes = {
        "state_dim": 5, "act_dim": 3, "hidden_size": 16, "n_layer": 2, "n_head": 2,
        "max_ep_len": 32, "vocab_size": 1, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    widths = {"states": 5, "actions": 3, "returns_to_go": 1, "rewards": 1}
    batch = {name: torch.randn(2, LENGTH, width) for name, width in widths.items()}
    batch["timesteps"] = torch.arange(LENGTH).expand(2, -1)
    return _make("DecisionTransformerModel", "DecisionTransformerConfig", sizes), batch


GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}

ARCHITECTURES: dict[str, Callable[[], Built]] = {
    "bert": text("BertForMaskedLM", "BertConfig"),
    "roberta": text("RobertaForMaskedLM", "RobertaConfig"),
    "distilbert": text("DistilBertForMaskedLM", "DistilBertConfig", **DISTILBERT),
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "llama": text("LlamaForCausalLM", "LlamaConfig", **GROUPED),
    "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=8),
    "vit": image("ViTForImageClassification", "ViTConfig"),
    "deit": image("DeiTForImageClassification", "DeiTConfig"),
    "decision-transformer": _decision,
    "albert": text("AlbertForMaskedLM", "AlbertConfig", embedding_size=8),
    "xlm-roberta": text("XLMRobertaForMaskedLM", "XLMRobertaConfig"),
    "electra": text("ElectraForPreTraining", "ElectraConfig", embedding_size=8),
    "modernbert": text(
        "ModernBertForMaskedLM", "ModernBertConfig", local_attention=6,
        layer_types=["full_attention", "sliding_attention"], cls_token_id=1, sep_token_id=2,
    ),
    "mistral": text("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=4),
    "gemma": text("GemmaForCausalLM", "GemmaConfig", **GROUPED, head_dim=8),
    "gemma3": text(
        "Gemma3ForCausalLM", "Gemma3TextConfig", **GROUPED, head_dim=8, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "phi3": text("Phi3ForCausalLM", "Phi3Config", **GROUPED),
    "t5": _t5,
    "bart": _bart,
    "whisper": _whisper,
    "wav2vec2": _wav2vec2,
    "clip": _clip,
    "dinov2": image("Dinov2ForImageClassification", "Dinov2Config"),
    "patchtst": _patchtst,
    "swin": _swin,
    "mpnet": text("MPNetForMaskedLM", "MPNetConfig"),
    "deberta": text("DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True),
}  # fmt: skip
