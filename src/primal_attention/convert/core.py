"""The new attention: built from what is known about the old one, and started from its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..adapters.base import HeadsSource, Source
from ..attention.heads import HeadsAttention
from ..attention.primal import PrimalAttention
from ..attention.primal.heads import HeadsPrimalAttention
from ..attention.primal.rotary import RotaryPrimalAttention
from ..attention.registry import make_attention

Core = PrimalAttention | RotaryPrimalAttention


def build_core(
    source: Source | HeadsSource,
    settings: dict[str, Any],
    device: torch.device | str | None = None,
) -> Any:
    """An attention for the place of `source`; settings as `Options.resolve` gives them."""
    known = dict(settings)
    start = known.pop("start")
    if isinstance(source, HeadsSource):
        return heads_core(source, known, start, device)
    check_source(source)
    if "attention" in known:
        return registered_core(source, known, start, device)
    parts = (source.query, source.key, source.value, source.output)
    weight = source.query.weight
    common: dict[str, Any] = {
        "bias": any(part is not None and part.bias is not None for part in parts),
        "device": weight.device if device is None else device,
        "dtype": weight.dtype,
    }
    core: Core
    if source.rotary:
        for name in ("causal", "anchors", "rank_multi", "anchor_rule"):
            known.pop(name)
        common["head_dim"] = source.head_dim
        core = RotaryPrimalAttention(source.embed_dim, source.num_heads, **known, **common)
    else:
        common["batch_first"] = source.batch_first
        core = PrimalAttention(source.embed_dim, source.num_heads, **known, **common)
    if start == "warm":
        warm_start_(core, source)
    return core


def registered_core(
    source: Source, settings: dict[str, Any], start: str, device: torch.device | str | None
) -> Any:
    """Another attention of the registry, with the projections of the source."""
    weight = source.query.weight
    device = weight.device if device is None else device
    if source.rotary:
        heads = HeadsSource(
            num_heads=source.num_heads, head_dim=source.head_dim, embed_dim=source.embed_dim,
            like=weight,
        )  # fmt: skip
        return heads_core(heads, settings, start, device)
    if source.value is None:
        raise ValueError(f"it has no values, which {settings['attention']!r} needs")
    kind = {"device": device, "dtype": weight.dtype, "batch_first": source.batch_first}
    core: Any = make_attention(
        settings.pop("attention"), source.embed_dim, source.num_heads, **settings, **kind
    )
    if start == "warm":
        _take_over(core, source)
    return core


@torch.no_grad()
def _take_over(core: Any, source: Source) -> None:
    """W_q, W_k and W_v, or what a mechanism has of them, and the output projection."""
    if source.value is None:
        return
    parts = {3: "query key value", 2: "query value", 1: "value"}[core.parts].split()
    maps = [_all_heads(source, *getattr(source, part)) for part in parts]
    if parts[0] == "query":  # there is one head of it for each
        maps[0] = (source.query.weight, source.query.bias)
    core.in_proj_weight.copy_(torch.cat([weight for weight, _ in maps]))
    zero = core.in_proj_bias.new_zeros(source.num_heads * source.head_dim)
    core.in_proj_bias.copy_(torch.cat([zero if bias is None else bias for _, bias in maps]))
    core.out_proj.weight.copy_(source.output.weight)
    core.out_proj.bias.zero_()
    if source.output.bias is not None:
        core.out_proj.bias.copy_(source.output.bias)


def heads_core(
    source: HeadsSource, settings: dict[str, Any], start: str, device: torch.device | str | None
) -> Any:
    """An attention between heads that the module makes itself."""
    device = source.like.device if device is None else device
    kind: dict[str, Any] = {"device": device, "dtype": source.like.dtype}
    if "attention" in settings:
        name, inner = settings.pop("attention"), source.num_heads * source.head_dim
        layer: Any = make_attention(name, inner, source.num_heads, **settings, **kind)
        return HeadsAttention(layer)
    names = ("rank", "feature_map", "causal", "dropout")
    core = HeadsPrimalAttention(
        source.num_heads, source.head_dim, **{name: settings[name] for name in names}, **kind
    )
    if start == "warm":
        _start_heads(core, source)
    return core


@torch.no_grad()
def _start_heads(core: HeadsPrimalAttention, source: HeadsSource) -> None:
    """As `warm_start_`: U_r and W_c are the leading directions of the values, r is silent."""
    size = min(core.rank, core.head_dim)
    directions = torch.eye(core.head_dim, size, device=core.dual.device)
    if source.value is not None and not core.dual.is_meta:
        heads = source.value.unflatten(0, (-1, source.head_dim))
        directions = _leading_directions(heads, core.rank)
    directions = directions.to(core.dual.dtype)
    core.dual[1].zero_()
    core.dual[1, :, :, :size].copy_(directions.expand(core.num_heads, -1, -1))
    core.concat.weight.zero_()
    core.concat.weight[:, :size].copy_(directions)
    core.concat.bias.zero_()


def check_source(source: Source) -> None:
    """Raise unless the projections fit together."""
    inner, width = source.query.weight.shape
    if not source.rotary and inner != width:
        raise ValueError(
            f"{source.num_heads} heads of width {source.head_dim} make {inner}; expected the width "
            f"of the model, {width}"
        )
    if tuple(source.output.weight.shape) != (width, inner):
        shape = tuple(source.output.weight.shape)
        raise ValueError(f"the output projection has shape {shape}; expected ({width}, {inner})")
    for part in (source.key, source.value):
        if part is not None and tuple(part.weight.shape) != (inner // source.groups, width):
            shape = tuple(part.weight.shape)
            raise ValueError(
                f"a key or value projection has shape {shape}; expected "
                f"({inner // source.groups}, {width}), made from the model's own width"
            )


@torch.no_grad()
def warm_start_(core: Core, source: Source) -> None:
    """Take over W_q, W_k and the output projection; key heads of a group are repeated.

    Softmax rows sum to one, so the value's bias reaches the output as the constant W_o b_v, which
    is kept too. Tied weights also take the values: with U (p x s) the leading directions of all
    heads' W_v, V_r = U^T W_v and W_c = [U, 0], so that e is attention along the kernel K with the
    old values. Free and data-dependent weights have no place for values: W_c starts at zero, the
    layer is silent at first and disturbs nothing.
    """
    key, key_bias = _all_heads(source, *source.key)
    core.in_proj_weight.copy_(torch.cat([source.query.weight, key]))
    if core.in_proj_bias is not None:
        biases = (source.query.bias, key_bias)
        zero = core.in_proj_bias.new_zeros(len(key))
        core.in_proj_bias.copy_(torch.cat([zero if bias is None else bias for bias in biases]))
    core.out_proj.weight.copy_(source.output.weight)
    core.concat.weight.zero_()
    if core.out_proj.bias is not None:
        core.concat.bias.zero_()
        core.out_proj.bias.zero_()
        if source.output.bias is not None:
            core.out_proj.bias.copy_(source.output.bias)
    if source.value is None:
        return
    value, value_bias = _all_heads(source, *source.value)
    if value_bias is not None:
        core.out_proj.bias.add_(source.output.weight @ value_bias.to(source.output.weight.dtype))
    if core.weights == "tied":
        heads = value.unflatten(0, (core.num_heads, core.head_dim))  # (h, p, d)
        directions = _leading_directions(heads, core.rank).to(heads.dtype)  # (p, r), r <= s
        size = directions.shape[1]
        duals = core.dual_weight.unflatten(0, (2, core.num_heads, core.rank))
        duals[1].zero_()
        duals[1, :, :size].copy_(directions.t() @ heads)  # V_r (h, r, d)
        core.concat.weight[:, :size].copy_(directions)


def _all_heads(source: Source, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The rows of a grouped projection, repeated for every query head."""
    if source.groups == 1:
        return weight, bias

    def repeat(rows: Tensor) -> Tensor:
        heads = rows.unflatten(0, (-1, source.head_dim))
        repeated: Tensor = heads.repeat_interleave(source.groups, dim=0)
        return repeated.flatten(0, 1)

    return repeat(weight), None if bias is None else repeat(bias)


def _leading_directions(heads: Tensor, rank: int) -> Tensor:
    """The leading left singular vectors (p, min(s, p)) of the heads' maps side by side."""
    if heads.is_meta or rank >= heads.shape[1]:
        p = heads.shape[1]
        return torch.eye(p, min(p, rank), device=heads.device)
    wide = heads.to(torch.promote_types(heads.dtype, torch.float32))
    side_by_side = wide.transpose(0, 1).flatten(1)  # (p, h * d)
    vectors: Tensor = torch.linalg.eigh(side_by_side @ side_by_side.t()).eigenvectors
    return vectors.flip(1)[:, :rank]
