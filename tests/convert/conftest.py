"""The models of the adapters."""

from ..adapters.conftest import awaken, encoder, hugging_face

__all__ = ["awaken", "encoder", "hugging_face"]
