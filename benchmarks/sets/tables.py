"""Eight tables by 10-fold cross-validation, the same folds for everybody.

    pip download --no-deps ISLP
    python -m benchmarks.sets.tables --wheel islp-0.6.0-py3-none-any.whl --out tables.jsonl

Accuracy for classes, R^2 for numbers. Nothing is tuned on these folds.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from primal_attention import PrimalTableClassifier, PrimalTableRegressor

from .lines import Lines, arguments

FOLDS = 10
ISLP = {"Boston": "medv", "Carseats": "Sales", "Auto": "mpg", "College": "Apps", "OJ": "Purchase"}


def load(name: str, wheel: str) -> tuple[pd.DataFrame, np.ndarray, bool]:
    makers = {"diabetes": load_diabetes, "wine": load_wine, "cancer": load_breast_cancer}
    if name in makers:
        found = makers[name](as_frame=True)
        return found.data, found.target.to_numpy(), name != "diabetes"
    with zipfile.ZipFile(wheel) as file:
        table = pd.read_csv(io.BytesIO(file.read(f"ISLP/data/{name}.csv")), na_values="?")
    table = table.loc[:, [c for c in table if not c.startswith("Unnamed") and c != "name"]]
    table = table.loc[:, [c for c in table if table[c].nunique() < 0.9 * len(table)
                          or table[c].dtype.kind in "if"]]  # fmt: skip
    target = table.pop(ISLP[name])
    if name == "College":
        target = np.log(target)
    for column in table:
        if table[column].dtype.kind not in "iufb":
            table[column] = table[column].astype("category")
    return table, target.to_numpy(), name == "OJ"


def models(classes: bool, seed: int) -> dict[str, Any]:
    scaled = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        (make_pipeline(SimpleImputer(), StandardScaler()),
         make_column_selector(dtype_include="number")),
    )  # fmt: skip
    boost = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    knn = KNeighborsClassifier if classes else KNeighborsRegressor
    mlp = MLPClassifier if classes else MLPRegressor
    net = mlp(hidden_layer_sizes=(128, 128), early_stopping=True, max_iter=500, random_state=seed)
    ours = PrimalTableClassifier if classes else PrimalTableRegressor
    return {
        "boosting": boost(random_state=seed),
        "mlp": make_pipeline(scaled, net),
        "knn": make_pipeline(scaled, knn()),
        "primal": ours(random_state=seed),
    }


def main() -> None:
    given = arguments(
        __doc__ or "",
        wheel={"required": True},
        folds={"type": int, "default": 10},
        names={"default": "diabetes,wine,cancer,Boston,Carseats,Auto,OJ,College"},
    )
    lines = Lines(given.out)
    for fold in range(given.folds):
        for name in given.names.split(","):
            X, y, classes = load(name, given.wheel)
            splitter = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=0)
            train, test = list(splitter.split(X, y))[fold]
            for kind, model in models(classes, fold).items():

                def score(model: Any = model, parts: Any = (X, y, train, test)) -> dict[str, Any]:
                    X, y, train, test = parts
                    model.fit(X.iloc[train], y[train])
                    return {"score": float(model.score(X.iloc[test], y[test]))}

                lines.run(f"{name} {kind} {fold}", score)


if __name__ == "__main__":
    main()
