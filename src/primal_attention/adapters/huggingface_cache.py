"""The state of a converted layer inside the cache of transformers: its size does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


class PrimalCacheLayer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """Sums over all positions so far. Beams may be reordered, samples repeated or chosen; positions
    cannot be taken out again, so `crop` raises (assisted decoding needs it)."""

    is_compileable = False
    is_croppable = False
    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None
        self.length = 0
        self.passes = False

    @contextmanager
    def passing_on(self) -> Iterator[None]:
        """For the time of a `with`, new keys and values go through: the module that calls sees
        nothing but them, and what came before is in the state."""
        self.passes = True
        try:
            yield
        finally:
            self.passes = False

    def recall(self, device: torch.device) -> tuple[int, Any]:
        """How many positions were given, padding included, and the state after them."""
        self._each(lambda t: t.to(device))  # a cache may have put it elsewhere
        return self.length, self.state

    def remember(self, state: Any, new: int) -> None:
        """The state after `new` further positions."""
        self.state, self.length, self.is_initialized = state, self.length + new, True
        self.keys = self.values = tree_leaves(state)[0]  # other code asks for their device

    # -- what transformers asks of a layer ---------------------------------------------------------

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the first call of the layer brings the state."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self.passes:
            return key_states, value_states
        raise ValueError(
            "softmax attention wants to write keys and values where a converted layer keeps its "
            "sums; expected a new cache after convert_ or revert_"
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.state, self.length, self.is_initialized = None, 0, False
        self.keys = self.values = None

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove:
            raise ValueError(
                f"crop({tokens_to_remove}): sums over a past cannot forget single positions; "
                "expected a way of generation that only goes forward"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._each(lambda t: t.index_select(0, beam_idx.to(t.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._each(lambda t: t.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._each(lambda t: t[indices.to(t.device)])

    def offload(self) -> None:
        self._each(lambda t: t.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        """Nothing: `recall` brings the state to the layer's device, and it is small."""

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.state is not None:
            self.remember(tree_map_only(Tensor, change, self.state), 0)


def slot(cache: Any, index: int) -> PrimalCacheLayer:
    """The place of a layer in a cache; an unused place of another kind is replaced."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if not isinstance(cache, Cache):
        raise TypeError(f"past_key_values is a {type(cache).__name__}; expected a Cache")
    if cache.layer_class_to_replicate is not None:
        while len(cache.layers) <= index:
            cache.layers.append(cache.layer_class_to_replicate())
    if index >= len(cache.layers):
        raise ValueError(
            f"the cache has {len(cache.layers)} layers; expected one for layer {index}"
        )
    found = cache.layers[index]
    if isinstance(found, PrimalCacheLayer):
        return found
    used = found.get_seq_length() if isinstance(found, CacheLayerMixin) else 0
    if bool(torch.as_tensor(used) > 0):
        raise ValueError(
            f"layer {index} of the cache holds keys and values of softmax attention; expected a "
            "new cache after convert_"
        )
    new = PrimalCacheLayer()
    cache.layers[index] = new
    return new
