"""Bags of digits under four rules, 10, 100 and 1,000 instances.

    python -m benchmarks.sets.bags --out bags.jsonl

Rules: "one" at least one nine, "two" at least two, "both" a nine and a seven, "share" at least two
of ten instances, so that the rule does not grow harder with the bag; with 10 instances it is "two".
Negative bags have as many of them as the rule allows. Test bags are of images that no training bag
has. "told" is no rival but a bound: a support vector machine that was told which training images
are nines, a count, and the threshold of the count that is best on the training bags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

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
        least = {"one": 1, "two": 2, "both": 1, "share": 2}[rule]
        nines = least + int(rng.integers(2)) if positive else 0
        sevens = 1 + int(rng.integers(2)) if positive and rule == "both" else 0
        if not positive and rule in ("two", "share"):
            nines = int(rng.integers(2))
        if rule == "share":
            nines *= size // 10
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


def told(pool: Any, train: Any, test: Any) -> dict[str, Any]:
    digits = load_digits()
    machine = SVC(C=10.0).fit(digits.data[pool] / 16.0, digits.target[pool] == 9)

    def counts(bags: Any) -> np.ndarray:
        found = machine.predict(np.concatenate(bags))
        return np.array([part.sum() for part in np.split(found, len(bags))])

    known, best = counts(train[0]), (0.0, 0.0)
    for threshold in np.unique(known) - 0.5:
        best = max(best, (float(np.mean((known > threshold) == train[1])), float(threshold)))
    right = (counts(test[0]) > best[1]) == test[1]
    return {"accuracy": float(right.mean()), "right": "".join(map(str, right.astype(int)))}


def main() -> None:
    given = arguments(
        __doc__ or "", seeds={"type": int, "default": 5}, sizes={"default": "10,100,1000"},
        rules={"default": "two,one,both,share"}, models={"default": ",".join(MODELS)},
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
                        mixed = [
                            i for i in range(len(test[0])) if test[1][i] and not test[2][i].all()
                        ]
                        auc = [
                            roc_auc_score(test[2][i], model.instance_weights(test[0][i]))
                            for i in mixed[:50]
                        ]
                        right = model.predict(test[0]) == test[1]
                        return {
                            "accuracy": float(right.mean()),
                            "auc": float(np.mean(auc)),
                            "right": "".join(map(str, right.astype(int))),
                        }

                    lines.run(f"{name} {rule} {size} {seed}", fitted)
                if rule != "both":
                    case = f"told {rule} {size} {seed}"
                    lines.run(case, lambda o=order, a=train, b=test: told(o[:1200], a, b))


if __name__ == "__main__":
    main()
