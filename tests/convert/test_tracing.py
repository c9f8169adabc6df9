import pytest
import torch

import primal_attention as pa
from primal_attention.adapters import heads

from ..adapters.architectures import ARCHITECTURES, GROUPED

transformers = pytest.importorskip("transformers")


def test_what_the_model_hands_over_beside_is_named():
    model = transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**GROUPED, head_dim=8, attn_logit_softcapping=5.0)
    )
    with pytest.raises(ValueError, match="cannot be converted: softcap is handed to its attention"):
        pa.plan(model)


def test_another_output_is_refused(monkeypatch):
    model, _ = ARCHITECTURES["electra"]()
    right = heads.Softmax.between
    monkeypatch.setattr(heads.Softmax, "between", lambda self, call: 1.001 * right(self, call))
    with pytest.raises(ValueError, match=r"another output \(relative error 1.0e-03; expected"):
        pa.plan(model)


def test_whether_it_is_causal_is_seen():
    model, _ = ARCHITECTURES["clip"]()  # one class for both, which the caller makes causal
    causal = {
        row.name.partition("_")[0]: row.settings["causal"] for row in pa.plan(model, "all").rows
    }
    assert causal == {"text": True, "vision": False}


def test_an_example_must_reach_the_attention():
    model, batch = ARCHITECTURES["clip"]()
    part = torch.nn.ModuleDict({"used": model.vision_model, "idle": model.text_model})
    part.forward = lambda pixel_values: part["used"](pixel_values)
    with pytest.raises(ValueError, match=r"idle.*was not reached by the example"):
        pa.plan(part, "all", example=batch["pixel_values"])
