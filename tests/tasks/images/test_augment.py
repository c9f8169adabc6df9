import pytest
import torch

from primal_attention.tasks.images.augment import crop_and_flip, erase, mix


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def places(batch, side):
    """Images whose pixels tell their row and column, both from 1."""
    y, x = torch.meshgrid(torch.arange(1, side + 1), torch.arange(1, side + 1), indexing="ij")
    return torch.stack([y, x, y], -1).to(torch.uint8).expand(batch, side, side, 3)


@pytest.mark.parametrize(("side", "margin"), [(16, 2), (24, 0)])
def test_crops_are_windows_of_the_image_with_its_margin(side, margin):
    seen = crop_and_flip(places(200, side), 16, flip=False)
    assert seen.shape == (200, 16, 16, 3)
    assert seen.dtype == torch.uint8
    first = seen[:, 8, 8, :2].int() - 8  # place of the window's corner, from 1
    corners = first.unique(dim=0)
    free = side + 2 * margin - 16 + 1
    assert len(corners) > free  # many places
    assert first.min() == 1 - margin
    assert first.max() == free - margin
    for image, (top, left) in zip(seen, first.tolist(), strict=True):
        rows, columns = torch.arange(top, top + 16), torch.arange(left, left + 16)
        inside = ((rows > 0) & (rows <= side))[:, None] & ((columns > 0) & (columns <= side))
        assert torch.equal(image[..., 0], (rows[:, None] * inside).to(torch.uint8))
        assert torch.equal(image[..., 1], (columns * inside).to(torch.uint8))


def test_half_of_the_images_are_mirrored():
    seen = crop_and_flip(places(400, 16), 16, flip=True)[:, 8, 4:12, 1].int()
    mirrored = seen[:, 0] > seen[:, -1]
    assert 150 < mirrored.sum() < 250


def test_erasing_changes_a_rectangle_in_some_of_the_images():
    images = torch.full((400, 3, 16, 16), 9.0)
    before = images.clone()
    changed = (erase(images) != 9.0).all(1)  # (B, H, W)
    assert torch.equal(images, before)
    some = changed.flatten(1).any(1)
    assert 60 < some.sum() < 140
    for mask in changed[some]:
        rows, columns = mask.any(1), mask.any(0)
        assert torch.equal(mask, rows[:, None] & columns)
        share = mask.float().mean()
        assert 0.01 < share < 0.4


def test_nothing_is_erased_with_probability_zero():
    images = torch.randn(4, 3, 8, 8)
    assert torch.equal(erase(images, 0.0), images)


@pytest.mark.parametrize("cut", [False, True])
def test_shares_of_classes_are_shares_of_pixels(cut):
    targets = torch.tensor([0, 1, 2, 2, 0])
    pure = torch.nn.functional.one_hot(targets, 3).float()
    images = pure[:, :, None, None].expand(-1, -1, 8, 8)  # class c is full in channel c
    kinds = set()
    for _ in range(40):
        mixed, shares = mix(images, targets, 3, 0.8, cut=cut)
        torch.testing.assert_close(mixed.mean((2, 3)), shares)
        torch.testing.assert_close(shares.sum(1), torch.ones(5))
        kinds.add(bool(((mixed == 0) | (mixed == 1)).all()))
    assert kinds == ({False, True} if cut else {False})


def test_the_same_seed_gives_the_same_batch():
    def once():
        torch.manual_seed(3)
        images = crop_and_flip(places(9, 16), 16, flip=True).float().permute(0, 3, 1, 2)
        return mix(erase(images), torch.arange(9) % 3, 3, 0.8, cut=True)

    first, second = once(), once()
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.targets, second.targets)
