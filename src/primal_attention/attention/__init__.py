"""Every attention mechanism behind one interface."""

from .cosformer import CosformerAttention
from .flow import FlowAttention, FlowState
from .linear import LinearAttention, LinearState
from .linformer import LinformerAttention
from .longformer import LongformerAttention
from .none import NoneAttention, NoneState
from .nystrom import NystromAttention
from .performer import PerformerAttention
from .primal import PrimalAttention, PrimalState, fold_
from .reformer import ReformerAttention
from .registry import (
    AttentionInfo,
    attention_info,
    available_attentions,
    make_attention,
    register,
)
from .soft import SoftAttention
from .softmax import SoftmaxAttention, SoftmaxState
from .yoso import YosoAttention

__all__ = [
    "AttentionInfo",
    "CosformerAttention",
    "FlowAttention",
    "FlowState",
    "LinearAttention",
    "LinearState",
    "LinformerAttention",
    "LongformerAttention",
    "NoneAttention",
    "NoneState",
    "NystromAttention",
    "PerformerAttention",
    "PrimalAttention",
    "PrimalState",
    "ReformerAttention",
    "SoftAttention",
    "SoftmaxAttention",
    "SoftmaxState",
    "YosoAttention",
    "attention_info",
    "available_attentions",
    "fold_",
    "make_attention",
    "register",
]
