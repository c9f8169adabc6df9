"""The network of tables: the joint pass is the pass by summaries, for both kinds of context."""

import pytest
import torch
from torch.testing import assert_close

from primal_attention.models.table import TableNet
from primal_attention.models.table_context import subtracted

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make(**options):
    torch.manual_seed(0)
    shape = {"numbers": 3, "categories": [4, 2], "classes": 3, "width": 8, "heads": 2}
    net = TableNet(**shape | {"feedforward": 8, "frequencies": 2} | options).double().eval()
    torch.nn.init.normal_(net.output.weight)  # starts at zero
    return net


def draw(n, classes=3):
    numbers = torch.randn(n, 3, dtype=torch.float64)
    numbers[0, 1] = torch.nan
    codes = torch.stack([torch.randint(5, (n,)), torch.randint(3, (n,))], 1)
    labels = torch.randint(classes, (n,)) if classes else torch.randn(n, dtype=torch.float64)
    return numbers, codes, labels


@pytest.mark.parametrize("attention", ["primal", "linear", "performer", "softmax"])
@pytest.mark.parametrize("context", ["set", "additive"])
@pytest.mark.parametrize("classes", [3, None])
def test_summaries_answer_as_the_joint_pass(attention, context, classes):
    net = make(attention=attention, context=context, classes=classes)
    known, (numbers, codes, _) = draw(20, classes), draw(6, classes)
    joint = net(numbers, codes, *known)
    assert joint.shape == (6, classes or 1)
    assert_close(net.answer(numbers, codes, net.summarise(*known)), joint, **EXACT)
    other = (known[0], known[1], known[2].flip(0))
    assert not torch.allclose(net(numbers, codes, *other), joint)  # labels are seen


@pytest.mark.parametrize("context", ["set", "additive"])
def test_rows_that_come_later(context):
    net = make(context=context)
    known, more, (numbers, codes, _) = draw(20), draw(7), draw(6)
    first = net.summarise(*known)
    later = net.summarise(*more, before=first)
    both = net.summarise(*(torch.cat(pair) for pair in zip(known, more, strict=True)))
    same = torch.allclose(net.answer(numbers, codes, later), net.answer(numbers, codes, both))
    assert same == (context == "additive")  # in a set, earlier rows do not see later ones
    if context == "additive":
        gone = subtracted(later, net.summarise(*more))
        expected = net.answer(numbers, codes, first)
        assert_close(net.answer(numbers, codes, gone), expected, **EXACT)
