"""Every attention of a model, of any library, seen while the model runs.

A hook on each attention turns a call into matrices that are read one head at a time, before the
next layer runs: nothing of a call is kept but its singular values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..adapters.converted import evaluation
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


def run(model: nn.Module, found: list[Found], inputs: Any, see: See) -> dict[str, str]:
    """Run a model on inputs; `see(attention, call, output)` gets every call of an attention
    until it raises a ValueError. Where layers share an attention, its second call in a pass of the
    model has the name "<name>, call 2". Returns why attentions were not seen, {name: reason}."""
    skipped = {one.name: "it was not called" for one in found}
    failed: set[str] = set()
    times: Counter[str] = Counter()  # in this pass

    def watch(one: Found, call: Call, out: Any) -> None:
        times[one.name] += 1
        if times[one.name] > 1:
            one = replace(one, name=f"{one.name}, call {times[one.name]}")
        if one.name in failed:
            return
        try:
            see(one, call, out)
            skipped.pop(one.name, None)
        except ValueError as reason:
            failed.add(one.name)
            skipped[one.name] = str(reason)

    with _watched(model, found, watch):
        for args, kwargs in calls(inputs):
            times.clear()
            if found[0].module is model:  # a single attention: its output is of no use
                watch(found[0], (args, kwargs), None)
            else:
                model(*args, **kwargs)
    return skipped


@contextmanager
def _watched(model: nn.Module, found: list[Found], see: See) -> Iterator[None]:
    """Inside the `with`, `see` gets every call of an attention; the model is in eval mode."""

    def called(one: Found, module: Any, args: Any, kwargs: Any, out: Any = None) -> None:
        see(one, (args, kwargs), out)

    handles = [
        one.module.register_forward_hook(partial(called, one), with_kwargs=True)
        if one.reader.after
        else one.module.register_forward_pre_hook(partial(called, one), with_kwargs=True)
        for one in found
    ]
    choose: Any = getattr(model, "set_attn_implementation", None)  # of Hugging Face
    before = None if choose is None else getattr(model.config, "_attn_implementation", None)
    try:
        if before is not None:
            choose("eager")
        with evaluation(model):
            yield
    finally:
        if before is not None:
            choose(before)
        for handle in handles:
            handle.remove()
