"""One forward of the model tells whether an attention is understood, before anything is converted.

Every chosen module whose heads are to be mixed by another mechanism first gets softmax back in that
place, written out by its formula. If it then gives what it gave before, its queries, keys, values,
mask, bias and scale are known; if not, it does something that we do not know, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.base import class_path
from ..adapters.converted import Conversion, evaluation
from ..adapters.heads import Between, Softmax
from .examples import call_model, example_of
from .sites import Site

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}  # of the largest number; else 3e-2


def understand(model: nn.Module, sites: Sequence[Site], example: Any = None) -> dict[str, bool]:
    """Whether each of these attentions is causal, as the model calls it. An error names the module
    that is not understood. The example is a batch of the model, or made for one of Hugging Face."""
    if not sites or any(parameter.is_meta for parameter in model.parameters()):
        return {}
    example = example_of(model) if example is None else example
    calls: dict[nn.Module, tuple[Any, Any, Any]] = {}

    def keep(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        calls.setdefault(module, (args, kwargs, out))

    hooks = [site.module.register_forward_hook(keep, with_kwargs=True) for site in sites]
    try:
        with evaluation(model), torch.no_grad():
            call_model(model, example)
            return {site.name: _check(site, calls.get(site.module)) for site in sites}
    finally:
        for hook in hooks:
            hook.remove()


def _check(site: Site, found: tuple[Any, Any, Any] | None) -> bool:
    if found is None:
        raise ValueError(
            f"{site.name} was not reached by the example; expected example=, a batch that uses it"
        )
    args, kwargs, before = found
    kwargs = {name: v for name, v in kwargs.items() if name != "past_key_values"}
    formula = Softmax()
    copy = site.adapter.wrap(site.module, formula).eval()
    copy.conversion = Conversion(site.adapter.name, {}, site.cross, None)
    try:
        after = copy(*args, **kwargs)
    except (ValueError, RuntimeError, TypeError) as error:
        raise ValueError(f"{site.name} cannot be converted: {error}") from error
    distance = _difference(_tensor(before), _tensor(after))
    bound = TOLERANCE.get(_tensor(before).dtype, 3e-2)
    if formula.call is None or not distance <= bound:
        raise ValueError(
            f"{site.name} cannot be converted: with softmax written out between its heads a "
            f"{class_path(site.module)} gives another output (relative error {distance:.1e}; "
            f"expected at most {bound:.0e}), so it does something there that is not known"
        )
    heads, width = formula.call.query.shape[1], formula.call.query.shape[-1]
    source = site.read()
    if (heads, width) != (source.num_heads, source.head_dim):
        raise ValueError(
            f"{site.name} cannot be converted: it has {heads} heads of width {width}; expected "
            f"{source.num_heads} of width {source.head_dim}, as its attributes say"
        )
    formula.causal = _is_causal(formula.call) and not site.cross
    _expect_mask(site, copy, formula.call)
    return formula.causal


def _expect_mask(site: Site, copy: Any, call: Between) -> None:
    """A mask that an attention without a matrix cannot honour is refused before it is built."""
    try:
        copy._ignored(call.mask, call.query.shape[0], call.query.shape[2], call.key.shape[2])
    except ValueError as error:
        raise ValueError(f"{site.name} cannot be converted: {error}") from error


def _is_causal(call: Between) -> bool:
    """Whether no query of a call saw a later position."""
    if call.mask is None:
        return call.causal
    visible = call.mask if call.mask.dtype == torch.bool else call.mask > -1e4
    queries, keys = call.query.shape[2], call.key.shape[2]
    if visible.dim() != 4 or queries != keys or visible.shape[-2] != queries or queries < 2:
        return False
    return not bool(visible[..., :keys].triu(1).any())


def _difference(before: Tensor, after: Tensor) -> float:
    if before.shape != after.shape:
        return float("inf")
    size = before.abs().max().clamp(min=torch.finfo(before.dtype).tiny)
    return float((before - after).abs().max() / size)


def _tensor(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]
