"""Every attention mechanism behind one interface."""

from .primal import PrimalAttention, PrimalState, fold_
from .registry import (
    AttentionInfo,
    attention_info,
    available_attentions,
    make_attention,
    register,
)
from .softmax import SoftmaxAttention, SoftmaxState

__all__ = [
    "AttentionInfo",
    "PrimalAttention",
    "PrimalState",
    "SoftmaxAttention",
    "SoftmaxState",
    "attention_info",
    "available_attentions",
    "fold_",
    "make_attention",
    "register",
]
