"""A planted product of two columns among 20 of noise: accuracy against the numbers of a model.

python -m benchmarks.sets.sparse --out sparse.jsonl
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from primal_attention import SparseKernelClassifier

from .lines import Lines, arguments

train, test = slice(0, 1000), slice(1000, None)


def main() -> None:
    given = arguments(
        __doc__ or "", seeds={"type": int, "default": 5}, first={"type": int, "default": 0}
    )
    lines = Lines(given.out)
    for seed in range(given.first, given.first + given.seeds):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((6000, 22))
        y = (X[:, 0] * X[:, 1] > 0).astype(int)

        def ours(seed: int = seed, X: Any = X, y: Any = y) -> dict[str, Any]:
            model = SparseKernelClassifier(4, random_state=seed).fit(X[train], y[train])
            columns = model.columns_.tolist()
            return {"accuracy": model.score(X[test], y[test]), "numbers": model.n_numbers_,
                    "columns": columns}  # fmt: skip

        lines.run(f"sparse kernel {seed}", ours)
        for name, model in (
            ("svc rbf", SVC()),
            ("l1 logistic", LogisticRegression(penalty="l1", solver="liblinear", C=0.1)),
            ("boosting", HistGradientBoostingClassifier(random_state=seed)),
        ):

            def other(model: Any = model, X: Any = X, y: Any = y) -> dict[str, Any]:
                model.fit(X[train], y[train])
                vectors = getattr(model, "support_vectors_", np.zeros((0, 0)))
                size = vectors.size + len(vectors) + 1 if vectors.size else None
                if hasattr(model, "coef_") and size is None:
                    size = int((model.coef_ != 0).sum()) + 1
                return {"accuracy": model.score(X[test], y[test]), "numbers": size}

            lines.run(f"{name} {seed}", other)


if __name__ == "__main__":
    main()
