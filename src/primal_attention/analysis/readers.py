"""How one call of an attention of any library is read: as singular values or as matrices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ..adapters.base import class_path
from ..adapters.converted import Converted
from ..adapters.masks import HIDDEN
from ..adapters.timm import CLASSES as TIMMCLASSES
from ..attention import PrimalAttention
from ..attention.base import Attention
from ..attention.inputs import Sequences
from ..attention.masks import padding_mask
from ..attention.projected import MixingAttention
from ..attention.softmax import SoftmaxAttention
from ..theory.factors import DenseKernel, Kernel, KernelFactors
from .kernels import HeadMatrix, MatrixHead, SoftmaxHead
from .moments import primal_moments

Sample = list[HeadMatrix]  # one for each head
Seen = Tensor | Iterable[Sample]  # singular values (B, h, k), or matrices
Call = tuple[tuple[Any, ...], dict[str, Any]]

# what Hugging Face's attentions call the projection of their queries
_QUERIES = {"q_proj", "query", "q_lin", "c_attn", "qkv", "query_key_value", "qkv_proj", "q"}
_MASKS = ("attention_mask", "mask")  # their mask
_CONTEXTS = ("encoder_hidden_states", "key_value_states")  # and another sequence that is asked


class Reader(NamedTuple):
    """`read` turns a call (module, arguments, output) into what is seen, or says in a ValueError
    why it cannot; `after`: whether it needs the output; `kernel` gives K (B, h, N, M) whole, where
    `read` gives singular values."""

    kind: str
    read: Callable[[Any, Call, Any], Seen]
    after: bool = False
    kernel: Callable[[Any, Call, Any], Kernel] | None = None

    def kernels(self, module: nn.Module, call: Call, out: Any) -> Iterator[list[Kernel]]:
        """The matrices of a call, sample by sample, one for each head: factors where there are."""
        if self.kernel is None:
            for sample in self.read(module, call, out):
                yield [DenseKernel(head.rows(0, head.shape[0])) for head in sample]
            return
        whole = self.kernel(module, call, out)
        parts = (whole.a, whole.b) if isinstance(whole, KernelFactors) else (whole.dense(),)
        kind: Any = KernelFactors if isinstance(whole, KernelFactors) else DenseKernel
        wide = [one.expand(*whole.shape[:-2], *one.shape[-2:]) for one in parts]
        wide = [one if one.dim() == 4 else one.unsqueeze(0) for one in wide]  # of one sample
        for sample in zip(*wide, strict=True):
            yield [kind(*head) for head in zip(*sample, strict=True)]


def reader_of(module: nn.Module, hugging_face: bool) -> Reader | None:
    """How to read a module; None where it is no attention."""
    if isinstance(module, Converted):
        return Reader(f"primal ({module.primal.weights})", _primal, kernel=_primal_kernel)
    if isinstance(module, PrimalAttention):
        return Reader(f"primal ({module.weights})", _primal, kernel=_primal_kernel)
    if isinstance(module, SoftmaxAttention):
        return Reader("softmax", _softmax)
    if isinstance(module, Attention):
        return Reader(type(module).__name__, _other, kernel=_other_kernel)
    if isinstance(module, nn.MultiheadAttention):
        return Reader("softmax (torch)", _torch)
    if hugging_face:
        inner = _is_innermost_attention(module)
        return Reader("softmax (Hugging Face)", _hugging_face, after=True) if inner else None
    if isinstance(getattr(module, "qkv", None), nn.Linear) and hasattr(module, "num_heads"):
        known = class_path(module) in TIMMCLASSES
        return Reader("softmax (timm)", _timm) if known else Reader("unknown", _unknown)
    return None


def arguments_of(module: nn.Module, call: Call) -> dict[str, Any]:
    """The arguments of a call by name."""
    args, kwargs = call
    signature = inspect.signature(module.forward)
    given = dict(signature.bind(*args, **kwargs).arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    return given


def primal_call(module: nn.Module, call: Call) -> tuple[PrimalAttention, Sequences]:
    """The primal layer that a module is, or was converted to, and the sequences of a call."""
    if isinstance(module, PrimalAttention):
        given = arguments_of(module, call)
        return module, _arranged(module, given)[0]
    if not isinstance(module, Converted):
        raise TypeError(f"the module is a {type(module).__name__}; expected a primal layer")
    core = module.primal
    if not isinstance(core, PrimalAttention):
        raise ValueError(
            f"{type(core).__name__} rotates its queries and keys by their positions; expected a "
            "PrimalAttention"
        )
    args, kwargs = call
    # through the module's own translation: its calls never reach the forward of `core`
    translated = module.translate(*args, **kwargs)
    if translated.state is not None:
        raise ValueError("it was called with the cache of earlier positions; expected none")
    sequences, _ = core._arrange(translated.x, translated.context, None, translated.ignore)
    return core, sequences


# -- kinds of attention --------------------------------------------------------------------------


def _primal(module: PrimalAttention | Converted, call: Call, out: Any) -> Seen:
    layer, sequences = primal_call(module, call)
    if layer.causal and layer.weights == "tied":  # a triangle: no small factors
        return _matrices(layer.dense_kernel(sequences))
    if sequences.rotation is not None:
        return layer._factors(sequences).singular_values()
    return primal_moments(layer, sequences).singular_values()


def _primal_kernel(module: PrimalAttention | Converted, call: Call, out: Any) -> Kernel:
    layer, sequences = primal_call(module, call)
    if layer.causal and layer.weights == "tied":
        return DenseKernel(layer.dense_kernel(sequences))
    return layer._factors(sequences)


def _softmax(module: SoftmaxAttention, call: Call, out: Any) -> Seen:
    given = arguments_of(module, call)
    sequences, values = _arranged(module, given)
    q, k, _ = module._project(sequences, values)
    causal = module.causal or bool(given.get("is_causal"))
    silent = sequences.ignore if sequences.is_self else None
    return _softmax_heads(q, k, sequences.ignore, given.get("attn_mask"), causal, silent)


def _other(module: Attention, call: Call, out: Any) -> Seen:
    kernel = _other_kernel(module, call, out)
    if isinstance(kernel, KernelFactors):
        return kernel.singular_values()
    return _matrices(kernel.dense())


def _other_kernel(module: Attention, call: Call, out: Any) -> Kernel:
    factors = getattr(module, "factors", None)
    if factors is None:
        raise ValueError(f"{type(module).__name__} stands for no attention matrix")
    given = arguments_of(module, call)
    if given.get("rotation") is not None and isinstance(module, MixingAttention):
        sequences, values = _arranged(module, given)
        q, k, _ = module._project(sequences, values)
        return DenseKernel(module._weights(q, k, sequences))
    kernel: Kernel = factors(given["query"], given.get("key"), given.get("key_padding_mask"))
    return kernel


def _arranged(module: Attention, given: dict[str, Any]) -> tuple[Sequences, Tensor]:
    """The sequences of a call of an attention of ours, with the rotation of their positions."""
    names = ("key", "value", "key_padding_mask", "rotation")
    return module._arrange(given["query"], *(given.get(name) for name in names))


def _torch(module: nn.MultiheadAttention, call: Call, out: Any) -> Seen:
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError("bias_k and add_zero_attn add keys; expected an attention without them")
    given = arguments_of(module, call)
    query, key = given["query"], given["key"]
    is_self = query is key
    batched = query.dim() == 3
    if not batched:
        query, key = query.unsqueeze(0), key.unsqueeze(0)
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    d, bias = module.embed_dim, module.in_proj_bias
    if module._qkv_same_embed_dim:
        w_q, w_k = module.in_proj_weight[:d], module.in_proj_weight[d : 2 * d]
    else:
        w_q, w_k = module.q_proj_weight, module.k_proj_weight
    b_q, b_k = (None, None) if bias is None else (bias[:d], bias[d : 2 * d])
    q, k = (
        F.linear(x, w, b).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, w, b in ((query, w_q, b_q), (key, w_k, b_k))
    )
    mask = given.get("key_padding_mask")
    ignore = padding_mask(mask, key.shape[0], key.shape[1], batched=batched)
    silent = ignore if is_self else None  # a padded key is a padded query
    return _softmax_heads(q, k, ignore, given.get("attn_mask"), False, silent)


def _timm(module: Any, call: Call, out: Any) -> Seen:
    given = arguments_of(module, call)
    if given.get("attn_mask") is not None:
        raise ValueError(f"{type(module).__name__} was given a mask; expected none")
    x, causal = given["x"], bool(given.get("is_causal"))
    qkv = module.qkv(x).unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4)
    norms = (getattr(module, name, None) or nn.Identity() for name in ("q_norm", "k_norm"))
    q, k = (norm(x) for norm, x in zip(norms, qkv[:2], strict=True))  # (B, h, N, p)
    scale = float(getattr(module, "scale", q.shape[-1] ** -0.5))
    return _softmax_heads(q, k, None, None, causal, None, scale)


def _unknown(module: nn.Module, call: Call, out: Any) -> Seen:
    """Projections alone do not tell the scores: Swin V2 takes cosines, XCiT those of channels."""
    raise ValueError(
        f"{class_path(module)} may compute other scores than <q, k>; expected "
        f"{' or '.join(TIMMCLASSES)}"
    )


def _hugging_face(module: nn.Module, call: Call, out: Any) -> Seen:
    parts = out if isinstance(out, tuple | list) else (out,)
    for part in parts[1:]:
        if isinstance(part, Tensor) and part.dim() == 4 and part.is_floating_point():
            return _matrices(_without_padded_queries(part, arguments_of(module, call)))
    raise ValueError(f"{type(module).__name__} returned no attention probabilities")


def _without_padded_queries(weights: Tensor, given: dict[str, Any]) -> Tensor:
    """Zero rows of (B, h, N, M) where the mask of self-attention hides the query's own key from
    every query."""
    mask = next((given[name] for name in _MASKS if isinstance(given.get(name), Tensor)), None)
    if mask is None or any(given.get(name) is not None for name in _CONTEXTS):
        return weights
    queries, keys = weights.shape[-2:]
    hidden = mask <= HIDDEN if mask.is_floating_point() else mask == 0
    hidden = hidden[:, None, None] if hidden.dim() == 2 else hidden
    whole = hidden.dim() == 4 and len(hidden) in (1, len(weights)) and queries <= keys
    if not whole or hidden.shape[-1] < keys:  # a mask of windows, or the like
        return weights
    ignore = hidden[..., :keys].flatten(1, 2).all(1)  # (B or 1, M)
    padded = ignore[:, keys - queries :]  # the queries are the last of the keys
    return weights.masked_fill(padded[:, None, :, None], 0.0)


def _is_innermost_attention(module: nn.Module) -> bool:
    """Whether a module computes an attention itself, not by one below it."""
    below = (one for one in module.modules() if one is not module)
    return _computes(module) and not any(isinstance(b, Attention) or _computes(b) for b in below)


def _computes(module: nn.Module) -> bool:
    """Whether a module calls itself an attention and has a projection of queries of its own."""
    names = {name for name, _ in module.named_children()}
    return "attention" in type(module).__name__.lower() and bool(names & _QUERIES)


def _matrices(weights: Tensor) -> Iterator[Sample]:
    """The heads of (B, h, N, M), or of one sample (h, N, M)."""
    for sample in weights if weights.dim() == 4 else weights.unsqueeze(0):
        yield [MatrixHead(head) for head in sample]


def _softmax_heads(
    q: Tensor,
    k: Tensor,
    ignore: Tensor | None,
    pairs: Tensor | None,
    causal: bool,
    silent: Tensor | None,
    scale: float | None = None,
) -> Iterator[Sample]:
    """q (B, h, N, p), k (B, h, M, p), ignore (B, M), pairs (N, M) or (B * h, N, M)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    heads = q.shape[1]
    for b in range(q.shape[0]):
        yield [
            SoftmaxHead(
                q[b, h], k[b, h], scale,
                ignore=None if ignore is None else ignore[b],
                hidden=pairs if pairs is None or pairs.dim() == 2 else pairs[b * heads + h],
                causal=causal,
                silent=None if silent is None else silent[b],
            )
            for h in range(heads)
        ]  # fmt: skip
