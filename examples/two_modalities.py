"""Do images and words look at each other at all? The flow of attention while a model learns.

    python examples/two_modalities.py              # or: --attention primal --epochs 8

An image of a digit (scikit-learn's, 16 patches of 2 x 2 pixels) and a caption of five words, "the
digit is seven here", go through one encoder. Two models of the same kind learn, side by side:

matching    whether the caption names the digit of the image: neither part alone can tell
image       whether the digit of the image is above four: the words are of no use

Both also restore masked patches (masked feature regression, after Xue et al., NeurIPS 2021): one
patch and the two that it attends to most are hidden and regressed, so that they cannot be copied
from a near twin. After every epoch: accuracy on held-out images, the error of the restored patches
over that of their mean, and for every layer the lift of attention from patches to words and back,
which is 1 where attention does not care (`pa.attention_flow`). What is looked at much is not
thereby understood: the accuracy says whether it is.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import primal_attention as pa

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
WORDS = ["the", "digit", "is", "here", *NAMES]
SIDE, PATCH, MASKED = 4, 2, 3  # patches across, pixels across a patch, patches that are hidden
PATCHES, LENGTH = SIDE**2, SIDE**2 + 5
WIDTH, HEADS, BATCH = 48, 4, 64
GROUPS = np.array([0] * PATCHES + [1] * 5)


class Cases(NamedTuple):
    """Patches (n, 16, 4), words (n, 5), and the answer to the question that is asked."""

    patches: Tensor
    words: Tensor
    answers: Tensor


class Seen(NamedTuple):
    """What is seen after an epoch; lifts are by layer, from patches to words and back."""

    epoch: int
    accuracy: float
    restored: float
    to_words: list[float]
    to_patches: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attention", default="softmax", help="softmax, primal, linear, ...")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for question in ("matching", "image"):
        print(f"{question}, {asked.attention}")
        print("  epoch  accuracy  restored   lift patches -> words       words -> patches")
        for one in learn(question, asked.attention, asked.epochs, asked.seed):
            there, back = (
                " ".join(f"{lift:6.2f}" for lift in lifts)
                for lifts in (one.to_words, one.to_patches)
            )
            print(
                f"  {one.epoch:5d}  {one.accuracy:8.3f}  {one.restored:8.3f}   {there:<25} {back}"
            )


def draw(images: np.ndarray, digits: np.ndarray, question: str, rng: np.random.Generator) -> Cases:
    """Half of the captions name the digit, half another one."""
    shift = rng.integers(1, 10, len(digits))
    said = np.where(rng.random(len(digits)) < 0.5, digits, (digits + shift) % 10)
    words = np.tile([0, 1, 2, 0, 3], (len(digits), 1))
    words[:, 3] = 4 + said
    answers = said == digits if question == "matching" else digits > 4
    return Cases(
        patches_of(images), torch.from_numpy(words), torch.from_numpy(answers.astype(np.int64))
    )


def patches_of(images: np.ndarray) -> Tensor:
    """(n, 8, 8) to (n, 16, 4), brightness from 0 to 1."""
    x = torch.from_numpy(images).float() / 16
    x = x.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)  # (n, 4, 4, 2, 2)
    return x.reshape(len(images), PATCHES, PATCH**2)


class TwoModalities(nn.Module):
    """One encoder over patches and words, with an answer and restored patches."""

    def __init__(self, attention: str, layers: int = 2) -> None:
        super().__init__()
        self.patch = nn.Linear(PATCH**2, WIDTH)
        self.word = nn.Embedding(len(WORDS), WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.hidden = nn.Parameter(torch.zeros(WIDTH))
        self.attentions = nn.ModuleList(
            pa.make_attention(attention, WIDTH, HEADS) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * layers + 1))
        self.forwards = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(layers)
        )
        self.answer = nn.Linear(WIDTH, 2)
        self.restore = nn.Linear(WIDTH, PATCH**2)

    def forward(
        self, patches: Tensor, words: Tensor, masked: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits (n, 2) of the answer and patches (n, 16, 4); masked (n, 16): hidden ones."""
        rows = self.patch(patches)
        if masked is not None:
            rows = torch.where(masked.unsqueeze(-1), self.hidden, rows)
        x = torch.cat([rows, self.word(words)], 1) + self.place
        for number, (attention, forward) in enumerate(
            zip(self.attentions, self.forwards, strict=True)
        ):
            x = x + attention(self.norms[2 * number](x))[0]
            x = x + forward(self.norms[2 * number + 1](x))
        x = self.norms[-1](x)
        return self.answer(x.mean(1)), self.restore(x[:, :PATCHES])

    @torch.no_grad()
    def twins(self, patches: Tensor, words: Tensor) -> Tensor:
        """Masks (n, 16) of one patch at random and those that it attends to most at first."""
        x = torch.cat([self.patch(patches), self.word(words)], 1) + self.place
        _, weights = self.attentions[0](self.norms[0](x), need_weights=True)
        chosen = torch.randint(PATCHES, (len(x),))
        own = weights[torch.arange(len(x)), chosen, :PATCHES].abs()
        own[torch.arange(len(x)), chosen] = torch.inf  # itself first
        most = own.topk(MASKED).indices
        return torch.zeros(len(x), PATCHES, dtype=torch.bool).scatter_(1, most, True)


def learn(question: str, attention: str, epochs: int, seed: int) -> list[Seen]:
    """What is seen before training and after every epoch."""
    found = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(found.images))
    cut = len(order) * 3 // 4
    torch.manual_seed(seed)
    model = TwoModalities(attention)
    held_out = draw(found.images[order[cut:]], found.target[order[cut:]], question, rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    seen = [look(model, held_out, 0)]
    for epoch in range(1, epochs + 1):
        rows = rng.permutation(order[:cut])
        whole = draw(found.images[rows], found.target[rows], question, rng)  # new captions
        model.train()
        for first in range(0, len(rows), BATCH):
            patches, words, answers = (part[first : first + BATCH] for part in whole)
            masked = model.twins(patches, words)
            logits, _ = model(patches, words)
            _, restored = model(patches, words, masked)
            loss = nn.functional.cross_entropy(logits, answers)
            loss = loss + (restored - patches)[masked].square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        seen.append(look(model, held_out, epoch))
    return seen


@torch.no_grad()
def look(model: TwoModalities, cases: Cases, epoch: int) -> Seen:
    model.eval()
    masked = model.twins(cases.patches, cases.words)
    logits, _ = model(cases.patches, cases.words)
    _, restored = model(cases.patches, cases.words, masked)
    error = (restored - cases.patches)[masked].square().mean()
    mean = (cases.patches.mean(0) - cases.patches)[masked].square().mean()
    flow = pa.attention_flow(
        model, (cases.patches[:100], cases.words[:100]), GROUPS, names=("patches", "words")
    )
    lifts = [one.lift().mean(0) for one in flow.layers]
    return Seen(
        epoch,
        float((logits.argmax(1) == cases.answers).float().mean()),
        float(error / mean),
        [float(one[0, 1]) for one in lifts],
        [float(one[1, 0]) for one in lifts],
    )


if __name__ == "__main__":
    main()
