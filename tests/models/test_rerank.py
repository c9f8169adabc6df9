"""The network of lists: candidates permuted give scores permuted."""

import torch
from torch.testing import assert_close

from primal_attention.models.rerank import RerankNet, list_loss


def make(**options):
    torch.manual_seed(0)
    net = RerankNet(anchors=4, width=8, heads=2, feedforward=8, **options).double().eval()
    torch.nn.init.constant_(net.context, 0.1)
    return net


def rows(*shape):
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def test_permuted_lists():
    net, query, listed = make(), rows(2, 5), rows(2, 7, 5)
    order = torch.randperm(7)
    scores = net(query, listed, listed[:, :3])
    assert_close(net(query, listed[:, order], listed[:, :3]), scores[:, order])
    other = net(query, listed + 0.1 * rows(2, 7, 5), listed[:, :3])
    assert not torch.allclose(other, scores)


def test_a_list_has_the_same_scores_in_any_company():
    net, query, listed = make(), rows(3, 5), rows(3, 7, 5)
    together = net(query, listed, listed[:, :3])
    for i in range(3):
        one = slice(i, i + 1)
        assert_close(net(query[one], listed[one], listed[one, :3]), together[one])


def test_a_list_may_be_shorter_than_the_anchors():
    net, query, listed = make(), rows(1, 5), rows(1, 2, 5)
    assert net(query, listed, listed).shape == (1, 2)


def test_the_loss_by_hand():
    scores = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 2.0]])
    relevant = torch.tensor([[True, False, True], [False, False, False]])
    e = scores[0].exp()
    assert_close(list_loss(scores, relevant), -((e[0] + e[2]) / e.sum()).log())
