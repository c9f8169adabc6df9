"""Scores without numbers behave as the numbers do."""

import pytest
import torch

from primal_attention.adapters.scores import Recognised, Scores

Q, K, V = torch.randn(3, 2, 4, 5, 3, dtype=torch.float64).unbind()
HIDDEN = torch.ones(5, 5, dtype=torch.bool).triu(1)

STEPS = {
    "scaled": lambda s: 0.5 * s / torch.tensor(3.0),
    "masked": lambda s: (s * 2).masked_fill(HIDDEN, -torch.inf),
    "masked twice": lambda s: s.masked_fill(HIDDEN, -1e9) + torch.zeros(5, dtype=torch.float64),
    "chosen": lambda s: torch.where(~HIDDEN, s, torch.tensor(-1e30, dtype=torch.float64)),
    "normalised": lambda s: torch.nn.functional.softmax(s, -1),
    "in between": lambda s: s.float().type_as(Q).contiguous(),
}
OTHERS = {
    "shifted": lambda s: s - s.amax(-1, keepdim=True),
    "over queries": lambda s: s.softmax(-2),
    "scaled after a mask": lambda s: s.masked_fill(HIDDEN, -1e9) * 2,
    "halved weights": lambda s: s.softmax(-1) / 2,
    "a part": lambda s: s[:, 1:],
    "a list": lambda s: torch.cat([s, s]),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_on_the_way(name):
    with Recognised(lambda call: pytest.fail("no values yet")):
        found = STEPS[name](Q @ K.mT)
    assert isinstance(found, Scores)
    assert found.shape == (2, 4, 5, 5)
    low = [each.clamp(min=-1e4) for each in (found.formed(), STEPS[name](Q @ K.mT))]
    torch.testing.assert_close(*low)  # what is hidden may be any small number


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_is_done_forms_them(name):
    with Recognised(lambda call: pytest.fail("no values yet")):
        found = OTHERS[name](Q @ K.mT)
    assert not isinstance(found, Scores)
    low = [each.clamp(min=-1e4) for each in (found, OTHERS[name](Q @ K.mT))]
    torch.testing.assert_close(*low)


def test_other_products_are_left_alone():
    weight = torch.randn(3, 7, dtype=torch.float64)
    with Recognised(lambda call: pytest.fail("no attention")):
        torch.testing.assert_close(Q @ weight, torch.matmul(Q, weight))
        formed = (Q @ K.mT) @ V  # without softmax
        assert torch.einsum("bhid,hde->bhie", Q, weight.expand(4, 3, 7)).shape == (2, 4, 5, 7)
    torch.testing.assert_close(formed, Q @ K.mT @ V)
