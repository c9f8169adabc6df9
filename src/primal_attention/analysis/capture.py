"""Every attention of a model, whoever wrote it, seen while the model runs.

A hook on each attention turns a call into matrices that are read one head at a time, before the
next layer runs: nothing of a call is kept but its singular values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import PrimalAttention, SoftmaxAttention
from ..attention.base import Attention
from ..attention.masks import padding_mask
from ..attention.primal.dual import dense_kernel
from ..ksvd.factors import KernelFactors
from .kernels import HeadMatrix, MatrixHead, SoftmaxHead
from .moments import primal_moments

Sample = list[HeadMatrix]  # one for each head
Seen = Tensor | Iterable[Sample]  # singular values (B, h, k), or matrices
Call = tuple[tuple[Any, ...], dict[str, Any]]

# what Hugging Face's attentions call the projection of their queries
_QUERIES = {"q_proj", "query", "q_lin", "c_attn", "qkv", "query_key_value", "qkv_proj", "q"}


@dataclass(frozen=True)
class Found:
    """An attention in a model. ``read`` turns a call (module, arguments by name, output) into what
    is seen; ``after`` says whether it needs the output."""

    name: str
    module: nn.Module
    kind: str
    read: Callable[[Any, dict[str, Any], Any], Seen]
    after: bool = False


See = Callable[[Found, dict[str, Any], Any], None]


def find_attentions(model: nn.Module) -> list[Found]:
    """The attentions of a model in the order of its modules."""
    found = []
    inside: list[str] = []  # names below an attention that is known as a whole
    hugging_face = hasattr(model, "set_attn_implementation")
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        kind, read, after = _kind(module, hugging_face)
        if read is None:
            continue
        found.append(Found(name or "attention", module, kind, read, after))
        inside.append(f"{name}." if name else "")
    return found


def calls(inputs: Any) -> Iterator[Call]:
    """The calls that inputs stand for: a tensor, a tuple of arguments, a mapping of arguments by
    name, or an iterable of such."""
    if isinstance(inputs, Tensor):
        yield (inputs,), {}
    elif isinstance(inputs, Mapping):
        yield (), dict(inputs)
    elif isinstance(inputs, tuple):
        yield inputs, {}
    elif isinstance(inputs, Iterable) and not isinstance(inputs, str):
        for one in inputs:
            yield from calls(one)
    else:
        raise TypeError(
            f"inputs is a {type(inputs).__name__}; expected a tensor, a tuple or a mapping of "
            "arguments, or an iterable of such"
        )


def run(model: nn.Module, found: list[Found], inputs: Any, see: See) -> None:
    """Run a model on inputs; `see(attention, arguments, output)` hears of every attention."""
    with _watched(model, found, see):
        for args, kwargs in calls(inputs):
            if found[0].module is model:  # a single attention: its output is of no use
                see(found[0], arguments_of(model, args, kwargs), None)
            else:
                model(*args, **kwargs)


@contextmanager
def _watched(model: nn.Module, found: list[Found], see: See) -> Iterator[None]:
    """While in it, `see` hears of every call of an attention; the model is in eval mode, without
    fast paths that would go around the hooks."""
    handles = []
    for one in found:
        if one.after:
            hook = _after(one, see)
            handles.append(one.module.register_forward_hook(hook, with_kwargs=True))
        else:
            handles.append(
                one.module.register_forward_pre_hook(_before(one, see), with_kwargs=True)
            )
    training = {module: module.training for module in model.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    implementation = _implementation(model)
    try:
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)
        if implementation is not None:
            model.set_attn_implementation("eager")  # type: ignore[operator]
        yield
    finally:
        if implementation is not None:
            model.set_attn_implementation(implementation)  # type: ignore[operator]
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in training.items():
            module.training = mode
        for handle in handles:
            handle.remove()


def arguments_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return dict(bound.arguments)


def _before(one: Found, see: See) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        see(one, arguments_of(module, args, kwargs), None)

    return hook


def _after(one: Found, see: See) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        see(one, {}, out)

    return hook


def _implementation(model: nn.Module) -> str | None:
    if not hasattr(model, "set_attn_implementation"):
        return None
    name = getattr(model.config, "_attn_implementation", None)
    return None if name == "eager" else name


# -- kinds of attention --------------------------------------------------------------------------


def _kind(
    module: nn.Module, hugging_face: bool
) -> tuple[str, Callable[[Any, dict[str, Any], Any], Seen] | None, bool]:
    if isinstance(module, PrimalAttention):
        return f"primal ({module.weights})", _primal, False
    if isinstance(module, SoftmaxAttention):
        return "softmax", _softmax, False
    if isinstance(module, Attention):
        return type(module).__name__, _other, False
    if isinstance(module, nn.MultiheadAttention):
        return "softmax (torch)", _torch, False
    if hugging_face:
        inner = _is_innermost_attention(module)
        return ("softmax (Hugging Face)", _hugging_face, True) if inner else ("", None, False)
    if isinstance(getattr(module, "qkv", None), nn.Linear) and hasattr(module, "num_heads"):
        return "softmax (timm)", _timm, False
    return "", None, False


def _primal(module: PrimalAttention, given: dict[str, Any], out: Any) -> Seen:
    call, _ = module._arrange(
        given["query"], given.get("key"), given.get("value"), given.get("key_padding_mask")
    )
    if module.causal and module.weights == "tied":  # a triangle: no small factors
        return _matrices(dense_kernel(module, call))
    return primal_moments(module, call).singular_values()


def _softmax(module: SoftmaxAttention, given: dict[str, Any], out: Any) -> Seen:
    call, values = module._arrange(
        given["query"], given.get("key"), given.get("value"), given.get("key_padding_mask")
    )
    q, k, _ = module._project(call, values)
    causal = module.causal or bool(given.get("is_causal"))
    silent = call.ignore if call.is_self else None
    return _softmax_heads(q, k, call.ignore, given.get("attn_mask"), causal, silent)


def _other(module: Attention, given: dict[str, Any], out: Any) -> Seen:
    factors = getattr(module, "factors", None)
    if factors is None:
        raise ValueError(f"{type(module).__name__} stands for no attention matrix")
    kernel = factors(given["query"], given.get("key"), given.get("key_padding_mask"))
    if isinstance(kernel, KernelFactors):
        return kernel.singular_values()
    return _matrices(kernel.dense())


def _torch(module: nn.MultiheadAttention, given: dict[str, Any], out: Any) -> Seen:
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError("bias_k and add_zero_attn add keys; expected an attention without them")
    query, key = given["query"], given["key"]
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
    return _softmax_heads(q, k, ignore, given.get("attn_mask"), False, None)


def _timm(module: Any, given: dict[str, Any], out: Any) -> Seen:
    positional = ("relative_position_bias_table", "rel_pos", "rope", "rel_pos_bias")
    if any(getattr(module, name, None) is not None for name in positional):
        raise ValueError(f"{type(module).__name__} adds positions to its scores; expected none")
    x, *rest = given.values()
    if any(isinstance(other, Tensor) for other in rest):
        raise ValueError(f"{type(module).__name__} was given a mask; expected none")
    qkv = module.qkv(x).unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4)
    q, k = qkv[0], qkv[1]  # (B, h, N, p)
    for name in ("q_norm", "k_norm"):
        norm = getattr(module, name, None)
        if norm is not None and name == "q_norm":
            q = norm(q)
        elif norm is not None:
            k = norm(k)
    scale = float(getattr(module, "scale", q.shape[-1] ** -0.5))
    return _softmax_heads(q, k, None, None, False, None, scale)


def _hugging_face(module: nn.Module, given: dict[str, Any], out: Any) -> Seen:
    parts = out if isinstance(out, tuple | list) else (out,)
    for part in parts[1:]:
        if isinstance(part, Tensor) and part.dim() == 4 and part.is_floating_point():
            return _matrices(part)
    raise ValueError(f"{type(module).__name__} returned no attention probabilities")


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
