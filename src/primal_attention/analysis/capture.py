"""Every attention of a model, whoever wrote it, seen while the model runs.

A hook on each attention turns a call into matrices that are read one head at a time, before the
next layer runs: nothing of a call is kept but its singular values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .readers import Call, Reader, reader_of


@dataclass(frozen=True)
class Found:
    """An attention in a model, and how to read its calls."""

    name: str
    module: nn.Module
    reader: Reader


See = Callable[[Found, Call, Any], None]


def find_attentions(model: nn.Module) -> list[Found]:
    """The attentions of a model in the order of its modules."""
    found = []
    inside: list[str] = []  # names below an attention that is known as a whole
    hugging_face = hasattr(model, "set_attn_implementation")
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        reader = reader_of(module, hugging_face)
        if reader is None:
            continue
        found.append(Found(name or "attention", module, reader))
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
    """Run a model on inputs; `see(attention, call, output)` hears of every attention."""
    with _watched(model, found, see):
        for args, kwargs in calls(inputs):
            if found[0].module is model:  # a single attention: its output is of no use
                see(found[0], (args, kwargs), None)
            else:
                model(*args, **kwargs)


@contextmanager
def _watched(model: nn.Module, found: list[Found], see: See) -> Iterator[None]:
    """While in it, `see` hears of every call of an attention; the model is in eval mode, without
    fast paths that would go around the hooks."""
    handles = []
    for one in found:
        if one.reader.after:
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


def _before(one: Found, see: See) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        see(one, (args, kwargs), None)

    return hook


def _after(one: Found, see: See) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        see(one, (args, kwargs), out)

    return hook


def _implementation(model: nn.Module) -> str | None:
    if not hasattr(model, "set_attn_implementation"):
        return None
    name = getattr(model.config, "_attn_implementation", None)
    return None if name == "eager" else name
