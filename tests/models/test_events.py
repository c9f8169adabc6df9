"""The model of events: causal, blind to shifts and padding, streamed as in one go, and useful."""

import pytest
import torch
from torch.nn import functional as F

import primal_attention as pa
from primal_attention.models.events import EventModel, GapScales
from primal_attention.theory.time import TimeScales

F64 = torch.float64
ATTENTIONS = ("primal", "linear", "softmax")
every = pytest.mark.parametrize("attention", ATTENTIONS)
USES = ("both", "input", "kernel", "order")


def build(attention="primal", *, dtype=F64, **options):
    torch.manual_seed(0)
    sizes = {"width": 16, "heads": 2, "dropout": 0.0, "waves": 4, "mixture": 3} | options
    model = EventModel(5, attention=(attention,) * 2, dtype=dtype, **sizes)
    model.set_scales_(TimeScales(0.1, 20.0), GapScales(-1.0, 1.2, 1e-4))
    return model.eval()


def draw(batch=2, events=11, seed=1):
    g = torch.Generator().manual_seed(seed)
    types = torch.randint(5, (batch, events), generator=g)
    times = 1.3e9 + torch.rand(batch, events, generator=g, dtype=F64).cumsum(1)
    return types, times, times + torch.rand(batch, events, generator=g, dtype=F64)


def compare(made, other, **tolerance):
    torch.testing.assert_close(made.types, other.types, **tolerance)
    if made.gap is not None:
        for part, twin in zip(made.gap, other.gap, strict=True):
            torch.testing.assert_close(part, twin, **tolerance)


@every
@pytest.mark.parametrize("time", USES)
def test_streamed_equals_full(attention, time):
    model = build(attention, time=time, known_time=time == "both")
    types, times, after = draw()
    full, memory = model(types, times, after), None
    for cut in (slice(0, 3), slice(3, 4), slice(4, 11)):
        made, memory = model.prefill(types[:, cut], times[:, cut], memory, after[:, cut])
        assert memory.events == cut.stop
        gap = None if full.gap is None else full.gap.__class__(*(p[:, cut] for p in full.gap))
        compare(made, full._replace(types=full.types[:, cut], gap=gap), rtol=1e-9, atol=1e-10)


@every
@pytest.mark.parametrize("known_time", [False, True])
def test_a_shift_of_all_times_changes_nothing(attention, known_time):
    model = build(attention, known_time=known_time)
    types, times, after = draw()
    shifted = model(types, times - 1.2e9, after - 1.2e9)
    compare(model(types, times, after), shifted, rtol=0, atol=1e-6)
    stretched = model(types, times + times.frac(), after)
    assert not torch.allclose(stretched.types, shifted.types, atol=1e-3)


@every
def test_padding_changes_nothing(attention):
    model = build(attention)
    types, times, _ = draw()
    padding = torch.zeros(2, 11, dtype=torch.bool)
    padding[0, 7:] = padding[1, 4] = True
    spoilt = times.masked_fill(padding, torch.nan)
    made = model(types.masked_fill(padding, -1), spoilt, None, padding)
    for i in range(2):
        kept = ~padding[i]
        alone = model(types[i : i + 1, kept], times[i : i + 1, kept])
        torch.testing.assert_close(made.types[i, kept], alone.types[0], rtol=1e-9, atol=1e-10)
    (made.types[~padding].sum() + made.gap.means[~padding].sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@every
def test_what_comes_later_changes_nothing_before_it(attention):
    model = build(attention, known_time=True)
    types, times, after = draw()
    before = model(types, times, after).types
    other, later = types.clone(), times.clone()
    other[:, 6] = (other[:, 6] + 1) % 5
    later[:, 6:] += 0.3
    changed = model(other, later, after).types
    torch.testing.assert_close(changed[:, :6], before[:, :6], rtol=0, atol=1e-12)
    assert not torch.allclose(changed[:, 6:], before[:, 6:])


def test_order_alone_sees_no_time():
    model = build(time="order")
    types, times, _ = draw()
    compare(model(types, times), model(types, times * 3.0), rtol=0, atol=0)
    assert not torch.equal(model(types.flip(1), times).types, model(types, times).types.flip(1))


@pytest.mark.parametrize("attention", ["primal", "linear"])
def test_the_memory_of_a_stream_does_not_grow(attention):
    model = build(attention)
    types, times, _ = draw(1, 40)

    def size(memory):
        return sum(t.numel() for state in memory.layers for t in _tensors(state))

    _, memory = model.prefill(types[:, :2], times[:, :2])
    early = size(memory)
    _, memory = model.prefill(types[:, 2:], times[:, 2:], memory)
    assert size(memory) == early


def _tensors(state):
    for part in state:
        if isinstance(part, torch.Tensor):
            yield part
        elif part is not None:
            yield from _tensors(part)


def test_gaps_of_zero_have_a_likelihood():
    model = build()
    types, times, _ = draw()
    made = model(types, times)
    density = made.gap.log_prob(model.gap_of(torch.zeros(2, 11, dtype=F64)))
    assert density.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": ("performer",)}, "knows no times"),
        ({"attention": ("nystrom",)}, "no causal form"),
        ({"attention_options": {"primal": {"weights": "free"}}}, 'expected weights="tied"'),
        ({"time": "never"}, "time"),
        ({"width": 4, "heads": 4}, "one coordinate"),
    ],
)
def test_what_cannot_be_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        EventModel(5, **options)


def test_wrong_calls_are_said():
    model = build(known_time=True)
    types, times, _ = draw()
    with pytest.raises(ValueError, match="next_times is None"):
        model(types, times)
    with pytest.raises(ValueError, match=r"times has shape \(2, 3\)"):
        model(types, times[:, :3], times)


def planted(batch, generator, events=20, ago=5.0):
    """Irregular events of four marks; the answer is the mark nearest to `ago` units before the
    last one."""
    times = torch.empty(batch, events, dtype=F64).exponential_(generator=generator).cumsum(1)
    marks = torch.randint(4, (batch, events), generator=generator)
    nearest = (times[:, -1:] - ago - times).abs().argmin(1, keepdim=True)
    return marks, times, marks.gather(1, nearest).squeeze(1)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["primal", "softmax"])
def test_a_mark_five_units_ago_is_found_by_time(attention):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    model = EventModel(4, attention=(attention,) * 2, width=64, heads=2, dropout=0.0)
    model.set_scales_(TimeScales(0.2, 20.0), GapScales(-0.6, 1.3, 1e-6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(600):
        marks, times, answers = planted(128, g)
        optimizer.zero_grad()
        F.cross_entropy(model(marks, times).types[:, -1], answers).backward()
        optimizer.step()
    marks, times, answers = planted(2000, g)
    right = (model.eval()(marks, times).types[:, -1].argmax(-1) == answers).double().mean()
    assert right > 0.7  # order alone: 0.44


def test_names_of_the_package():
    assert pa.EventModel is EventModel


@every
@pytest.mark.parametrize("known_time", [False, True])
def test_without_some_events_it_is_a_shorter_history(attention, known_time):
    model = build(attention, known_time=known_time)
    types, times, after = draw(1, 7)
    hidden = torch.zeros(4, 7, dtype=torch.bool)
    hidden[1, [0, 3]] = hidden[2, 6] = hidden[3, :6] = True
    found = model.without(hidden, types, times, after)
    for row, mask in zip(found, hidden, strict=True):
        kinds, moments = types[:, ~mask], times[:, ~mask]
        ahead = torch.cat([moments[:, 1:], after[:, -1:]], 1)  # the time of what is left
        alone = model(kinds, moments, ahead).types[0, -1]
        torch.testing.assert_close(row, alone, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="all positions are hidden"):
        model.without(torch.ones(1, 7, dtype=torch.bool), types, times, after)
