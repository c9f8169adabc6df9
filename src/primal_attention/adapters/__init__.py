"""One adapter for each kind of attention. Matching is by class, without importing the library."""

from .base import Adapter, Projection, Source, known_adapters, projection, register_adapter
from .huggingface import DISTILBERT, VIT, BertAdapter
from .huggingface_decoders import GPT2Adapter, RotaryAdapter
from .huggingface_interface import InterfaceAdapter
from .sdpa import SdpaAdapter
from .timm import TimmAdapter
from .torch_nn import TorchAdapter
from .written import WrittenAdapter

_OURS: tuple[Adapter, ...] = (
    WrittenAdapter(),  # asked last
    SdpaAdapter(),
    InterfaceAdapter(),
    TorchAdapter(),
    TimmAdapter(),
    VIT,
    DISTILBERT,
    BertAdapter(),
    GPT2Adapter(),
    RotaryAdapter(),
)
for _adapter in _OURS:
    register_adapter(_adapter)

__all__ = ["Adapter", "Projection", "Source", "known_adapters", "projection", "register_adapter"]
