"""Bags of digits under three rules, 10, 100 and 1,000 instances.

    python -m benchmarks.sets.bags --out bags.jsonl

Rules: "one" at least one nine, "two" at least two, "both" a nine and a seven. Negative bags have as
many of them as the rule allows. Test bags are of images that no training bag has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from primal_attention import PrimalBagClassifier

from .lines import Lines, arguments

MODELS: dict[str, dict[str, Any]] = {
    "primal": {},
    "elu": {"feature_map": "elu"},
    "dot": {"attention": "softmax"},
    "gaussian": {"feature_map": "gaussian"},
    "none": {"attention": "none"},
}


def make(pool: Any, count: int, size: int, rule: str, rng: np.random.Generator) -> Any:
    target, digits = load_digits().target, load_digits().data / 16.0
    kinds = {digit: pool[target[pool] == digit] for digit in (7, 9)}
    others = pool[~np.isin(target[pool], (7, 9) if rule == "both" else (9,))]
    bags, labels, keys = [], [], []
    for i in range(count):
        positive = i % 2 == 1
        nines = {"one": 1, "two": 2, "both": 1}[rule] + int(rng.integers(2)) if positive else 0
        sevens = 1 + int(rng.integers(2)) if positive and rule == "both" else 0
        if not positive and rule == "two":
            nines = int(rng.integers(2))
        if not positive and rule == "both":
            nines, sevens = [(1, 0), (0, 1), (2, 0), (0, 2)][int(rng.integers(4))]
        chosen = np.concatenate([
            rng.choice(kinds[9], nines), rng.choice(kinds[7], sevens),
            rng.choice(others, size - nines - sevens),
        ]).astype(int)  # fmt: skip
        chosen = rng.permutation(chosen)
        bags.append(digits[chosen])
        labels.append(int(positive))
        keys.append(np.isin(target[chosen], (7, 9) if rule == "both" else (9,)))
    return bags, np.array(labels), keys


def main() -> None:
    given = arguments(
        __doc__ or "", seeds={"type": int, "default": 5}, sizes={"default": "10,100,1000"},
        rules={"default": "two,one,both"}, models={"default": ",".join(MODELS)},
    )  # fmt: skip
    lines = Lines(given.out)
    for seed in range(given.seeds):
        for size in map(int, given.sizes.split(",")):
            for rule in given.rules.split(","):
                rng = np.random.default_rng(seed)
                order = rng.permutation(len(load_digits().target))
                train = make(order[:1200], 300, size, rule, rng)
                test = make(order[1200:], 300, size, rule, rng)
                for name in given.models.split(","):

                    def fitted(
                        name: str = name, seed: int = seed, train: Any = train, test: Any = test
                    ) -> dict[str, Any]:
                        model = PrimalBagClassifier(random_state=seed, **MODELS[name])
                        model.fit(train[0], train[1])
                        right = [
                            i for i in range(len(test[0])) if test[1][i] and not test[2][i].all()
                        ]
                        auc = [
                            roc_auc_score(test[2][i], model.instance_weights(test[0][i]))
                            for i in right[:50]
                        ]
                        return {
                            "accuracy": model.score(test[0], test[1]),
                            "auc": float(np.mean(auc)),
                        }

                    lines.run(f"{name} {rule} {size} {seed}", fitted)


if __name__ == "__main__":
    main()
