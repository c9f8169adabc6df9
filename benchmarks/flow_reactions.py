"""Does the flow of attention find the head that maps atoms, without being told what it does?

    python benchmarks/flow_reactions.py --model FOLDER --data FOLDER --reactions 300

--model: the folder of a model of reaction SMILES: `albert_heads_8_uspto_all_1310k` in the wheel
`rxnmapper` 0.4.3 (12 layers that share one attention, 8 heads; its `core.py` maps atoms by layer
10, head 5), or `bert_pretrained` in the wheel `rxnfp` 0.1.0 (`pip download --no-deps rxnmapper`).
--data: a folder with `uspto50k_b.tsv.gz`: columns `reaction`, `reactant_maps`, `product_maps`.

Every head is listed with its lift from the product to the reactants and from the product's atoms to
the reactants' atoms, and with its mapping accuracy: how often the reactant atom of the same element
that a product atom attends to most is the one it comes from. Atoms that a symmetry of the molecule
exchanges count as different, so that no method reaches 100 %. Two guesses without a model stand
beside it: a random atom of the element, and the atoms of an element in their order.

The table goes to `benchmarks/results/flow_reactions_<model>.json`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from adapt_reactions import LONGEST, TOKENS
from scipy.stats import spearmanr
from transformers import AutoModel, BertModel

import primal_attention as pa
from primal_attention.analysis.capture import find_attentions, run

RESULTS = Path(__file__).parent / "results"
ATOM = re.compile(r"\[\d*([A-Z][a-z]?|[a-z]{1,2})|(Cl|Br|[BCNOPSFIbcnops])$")
SIDES = ("reactants", "product")
ATOMS = ("reactant atoms", "product atoms")


class Reaction(NamedTuple):
    """Token numbers with [CLS] and [SEP]; for every token its side (-1: none), its element ("" for
    no atom) and its atom-map number."""

    ids: list[int]
    side: np.ndarray[Any, Any]
    element: list[str]
    number: np.ndarray[Any, Any]


def read(path: Path, vocabulary: dict[str, int], count: int) -> tuple[list[Reaction], int]:
    """The first reactions of a part, and how many were left out: longer than LONGEST tokens, or
    with atoms that are not tokens."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found, left_out = [], 0
    for row in rows:
        words = ["[CLS]", *TOKENS.findall(row["reaction"]), "[SEP]"]
        arrow = words.index(">>")
        side = np.array([-1, *(0 if i < arrow else 1 for i in range(1, len(words) - 1)), -1])
        side[arrow] = -1
        element = [symbol(word) if at not in (0, len(words) - 1) else "" for at, word in
                   enumerate(words)]  # fmt: skip
        maps = [int(one) for key in ("reactant_maps", "product_maps") for one in row[key].split()]
        atoms = [at for at, one in enumerate(element) if one]
        if len(words) > LONGEST or len(atoms) != len(maps):
            left_out += 1
            continue
        number = np.zeros(len(words), dtype=np.int64)
        number[atoms] = maps
        ids = [vocabulary.get(word, vocabulary["[UNK]"]) for word in words]
        found.append(Reaction(ids, side, element, number))
        if len(found) == count:
            break
    return found, left_out


def symbol(word: str) -> str:
    """The element of an atom's token, "" for others."""
    match = ATOM.match(word)
    return (match.group(1) or match.group(2)).capitalize() if match else ""


def questions(reaction: Reaction) -> Iterator[tuple[int, list[int], int]]:
    """Product atom, the reactant atoms of its element, and which of them it comes from."""
    for at in np.flatnonzero((reaction.side == 1) & (reaction.number > 0)):
        same = [
            i for i, one in enumerate(reaction.element)
            if one == reaction.element[at] and reaction.side[i] == 0
        ]  # fmt: skip
        true = [i for i in same if reaction.number[i] == reaction.number[at]]
        if len(true) == 1:
            yield int(at), same, true[0]


def guesses(reactions: list[Reaction]) -> dict[str, float]:
    """Accuracies without a model."""
    chance, order = [], []
    for one in reactions:
        seen: dict[str, int] = {}
        for at, same, true in questions(one):
            place = seen.setdefault(one.element[at], 0)
            seen[one.element[at]] += 1
            chance.append(1 / len(same))
            order.append(same[min(place, len(same) - 1)] == true)
    return {"random atom of the element": float(np.mean(chance)), "in order": float(np.mean(order))}


def accuracies(model: torch.nn.Module, calls: list[Any], reactions: list[Reaction]) -> Any:
    """(layers, heads): the share of product atoms whose reactant atom is found."""
    right: dict[str, list[Any]] = {}
    place = [-1]

    def numbered() -> Iterator[Any]:
        for at, call in enumerate(calls):
            place[0] = at
            yield call

    def see(one: Any, call: Any, out: Any) -> None:
        heads = next(one.reader.kernels(one.module, call, out))
        dense = torch.stack([head.dense() for head in heads]).numpy()  # (h, N, N)
        for at, same, true in questions(reactions[place[0]]):
            found = dense[:, at, same].argmax(-1) == same.index(true)
            right.setdefault(one.name, []).append(found)

    with torch.no_grad():
        run(model, find_attentions(model), numbered(), see)
    return np.stack([np.mean(one, 0) for one in right.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--reactions", type=int, default=300)
    parser.add_argument("--known", default="10,5", help="layer and head that are known to map")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = (asked.model / "vocab.txt").read_text().splitlines()
    vocabulary = {word: number for number, word in enumerate(lines)}
    named = "model_type" in json.loads((asked.model / "config.json").read_text())
    model = (AutoModel if named else BertModel).from_pretrained(asked.model, weights_only=True)
    model.eval()
    reactions, left_out = read(asked.data / "uspto50k_b.tsv.gz", vocabulary, asked.reactions)
    calls = [{"input_ids": torch.tensor([one.ids])} for one in reactions]
    sides = pa.attention_flow(model, calls, [one.side for one in reactions], names=SIDES)
    atoms = [np.where([bool(word) for word in one.element], one.side, -1) for one in reactions]
    between = pa.attention_flow(model, calls, atoms, names=ATOMS)
    mapped = accuracies(model, calls, reactions)
    heads = mapped.shape[1]
    rows = [
        {
            "layer": layer,
            "head": head,
            "lift_sides": float(sides.layers[layer].lift()[head, 1, 0]),
            "share_sides": float(sides.layers[layer].flow()[head, 1, 0]),
            "lift_atoms": float(between.layers[layer].lift()[head, 1, 0]),
            "share_atoms": float(between.layers[layer].flow()[head, 1, 0]),
            "mapping_accuracy": float(mapped[layer, head]),
        }
        for layer in range(len(mapped))
        for head in range(heads)
    ]
    result: dict[str, Any] = {
        "model": asked.model.name,
        "reactions": len(reactions),
        "left_out": left_out,
        "guesses": guesses(reactions),
        "spearman": {
            key: float(spearmanr([r[key] for r in rows], [r["mapping_accuracy"] for r in rows])[0])
            for key in ("lift_sides", "lift_atoms")
        },
        "heads": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"flow_reactions_{asked.model.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(reactions)} reactions, {left_out} left out; guesses {result['guesses']}")
    for key in ("lift_sides", "lift_atoms", "mapping_accuracy"):
        ranked = sorted(rows, key=lambda row: -row[key])
        print(f"by {key}:")
        for place, row in enumerate(ranked[:6], 1):
            print("  ", place, {k: round(v, 3) for k, v in row.items()})
        known = [int(part) for part in asked.known.split(",")]
        places = [i for i, r in enumerate(ranked, 1) if [r["layer"], r["head"]] == known]
        print("   the known head", known, "is in place", places, "of", len(rows))
    print("rank correlation with mapping accuracy", result["spearman"])


if __name__ == "__main__":
    main()
