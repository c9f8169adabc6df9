"""A seed for a while: the same numbers inside, and no trace outside."""

import torch

from primal_attention.theory.seeds import seeded


def test_the_generator_of_the_cpu_goes_on():
    state = torch.get_rng_state()
    with seeded(3):
        once = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(3):
        assert torch.equal(torch.rand(4), once)


def test_so_do_those_of_all_cards(monkeypatch):
    states = {0: torch.tensor([7]), 1: torch.tensor([8])}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda i: states[int(i)].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda s, i: states.update({int(i): s}))
    monkeypatch.setattr(
        torch.cuda, "manual_seed_all", lambda s: states.update(dict.fromkeys((0, 1), s))
    )
    with seeded(3):
        assert states == {0: 3, 1: 3}
    assert [int(state) for state in states.values()] == [7, 8]
