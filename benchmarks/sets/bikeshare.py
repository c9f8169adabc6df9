"""Bikeshare by time: fitted on the first 12 weeks, asked week by week, labels known afterwards.

    pip download --no-deps ISLP        # its wheel has Bikeshare.csv
    python -m benchmarks.sets.bikeshare --wheel islp-0.6.0-py3-none-any.whl --out bikeshare.jsonl

Columns: hour, holiday, weekday, working day, weather, temperatures, humidity, wind; nothing that
names the date. The target is log(1 + bikers).

A network is fitted once and asked three times: frozen, with the labels of every week absorbed as
they are, and absorbed with --decay, by which earlier rows count for less every week.
"""

from __future__ import annotations

import copy
import io
import itertools
import zipfile
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from primal_attention import PrimalTableRegressor

from .lines import Lines, arguments

COLUMNS = ["hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum",
           "windspeed"]  # fmt: skip
FIRST, WEEK = 12 * 168, 168


def main() -> None:
    given = arguments(
        __doc__ or "", wheel={"required": True}, seeds={"type": int, "default": 5},
        contexts={"default": "set"}, networks={"default": "4"},
        decay={"type": float, "default": 0.9},
    )  # fmt: skip
    with zipfile.ZipFile(given.wheel) as file:
        table = pd.read_csv(io.BytesIO(file.read("ISLP/data/Bikeshare.csv")))
    X, y = table[COLUMNS].copy(), np.log1p(table["bikers"].to_numpy())
    X["weathersit"] = X["weathersit"].astype("category")
    numbers = X.assign(weathersit=X["weathersit"].cat.codes).to_numpy(float)
    lines, starts = Lines(given.out), range(FIRST, len(y), WEEK)

    def error(found: np.ndarray) -> dict[str, Any]:
        return {"rmse": float(np.sqrt(np.mean((found - y[FIRST:]) ** 2)))}

    def refitted(make: Any, data: Any) -> dict[str, Any]:
        parts = [make().fit(data[:s], y[:s]).predict(data[s : s + WEEK]) for s in starts]
        return error(np.concatenate(parts))

    def weekly(model: PrimalTableRegressor, decay: float) -> dict[str, Any]:
        parts = []
        for s in starts:
            parts.append(model.predict(X[s : s + WEEK]))
            model.absorb(X[s : s + WEEK], y[s : s + WEEK], decay=decay)
        return error(np.concatenate(parts))

    def boosting() -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(random_state=0)

    def knn() -> Any:
        return make_pipeline(StandardScaler(), KNeighborsRegressor())

    lines.run("mean", lambda: error(np.full(len(y) - FIRST, y[:FIRST].mean())))
    first = X[:FIRST]
    lines.run("boosting frozen", lambda: error(boosting().fit(first, y[:FIRST]).predict(X[FIRST:])))
    lines.run("boosting weekly", lambda: refitted(boosting, X))
    for seed in range(given.seeds):
        kinds = itertools.product(given.contexts.split(","), given.networks.split(","))
        for context, networks in kinds:

            def absorbed(
                seed: int = seed, context: str = context, networks: str = networks
            ) -> dict[str, Any]:
                model = PrimalTableRegressor(
                    context=context, networks=int(networks), random_state=seed
                )
                model.fit(first, y[:FIRST])
                frozen = error(model.predict(X[FIRST:]))["rmse"]
                kept = sum(one.nbytes for one in model.summary_)
                faded = weekly(copy.deepcopy(model), given.decay)["rmse"]
                return {
                    **weekly(model, 1.0), f"decay {given.decay:g}": faded, "frozen": frozen,
                    "summary_bytes": kept,
                }  # fmt: skip

            lines.run(f"primal {context} {networks} {seed}", absorbed)
        if seed == 0:
            lines.run("knn frozen", lambda: error(knn().fit(numbers[:FIRST], y[:FIRST])
                                                  .predict(numbers[FIRST:])))  # fmt: skip
            lines.run("knn weekly", lambda: refitted(knn, numbers))

        def mlp(seed: int = seed) -> dict[str, Any]:
            net = MLPRegressor(hidden_layer_sizes=(64, 64), early_stopping=True, random_state=seed)
            model = make_pipeline(StandardScaler(), net).fit(numbers[:FIRST], y[:FIRST])
            return error(model.predict(numbers[FIRST:]))

        lines.run(f"mlp frozen {seed}", mlp)


if __name__ == "__main__":
    main()
