"""Episodes: who is asked is not in the context, and chance is that of the generator alone."""

import pytest
import torch

from primal_attention.tasks.table.rows import MOST, Episodes, Rows, asked_at_once, judgement


@pytest.fixture
def rows():
    places = torch.arange(40.0)
    return Rows(places[:, None], torch.zeros(40, 0, dtype=torch.long), places)


def asked_and_context(episode):
    return set(episode.labels.tolist()), set(episode.context_labels.tolist())


def test_rows_that_are_asked_are_not_in_their_context(rows):
    episodes = Episodes(rows, 8, 16)
    sizes = set()
    for seed in range(20):
        torch.manual_seed(seed)
        asked, context = asked_and_context(episodes.__getitems__([3, 1, 4]))
        assert asked == {3.0, 1.0, 4.0}
        assert not asked & context
        sizes.add(len(context))
        drawn, others = asked_and_context(episodes.draw(torch.Generator().manual_seed(seed)))
        assert len(drawn) == 8
        assert not drawn & others
    assert min(sizes) >= 4
    assert max(sizes) <= 16
    assert len(sizes) > 3


def test_the_same_seed_is_the_same_episode(rows):
    def draw():
        torch.manual_seed(1)
        return Episodes(rows, 8, 16).__getitems__([0, 5])

    for one, other in zip(draw(), draw(), strict=True):
        assert torch.equal(one, other)


def test_a_part_of_a_small_table_is_asked():
    assert asked_at_once(10_000, 256) == 256
    assert asked_at_once(100, 256) == 30
    assert asked_at_once(2, 256) == 1


def test_a_judgement_is_of_bounded_size():
    many = Rows(torch.zeros(5 * MOST, 1), torch.zeros(5 * MOST, 0), torch.zeros(5 * MOST))
    episode = judgement(many, many)
    assert len(episode.labels) == MOST
    assert len(episode.context_labels) == 2 * MOST
