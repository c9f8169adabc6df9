"""Lists of WikiText-2 paragraphs: relevant are those of the same article.

    python -m benchmarks.sets.lists --text FOLDER --out lists.jsonl

FOLDER has wiki.train.tokens and wiki.test.tokens, which may be gzipped. Vectors are LSA-100 of the
training paragraphs (words that occur in at least three, tf-idf with logarithmic counts); the
articles of the test set are unseen. A list has 128 paragraphs without the query itself; what is
relevant outside of it counts as never found. At the end the mean of our seeds is compared with the
other orders by a paired bootstrap: queries drawn one by one, and whole articles, since queries of
one article have much in common.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from primal_attention import Reranker
from primal_attention.analysis.retrieval import average_precision, first_round

from .lines import Lines, arguments

K = 128
DRAWS = 5000
METHODS = ("first", "expand", "expand-base", "reciprocal")


def paragraphs(path: Path) -> tuple[list[str], np.ndarray]:
    """Paragraphs of at least 20 words, and the article of each."""
    texts, articles, article = [], [], -1
    whole = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in whole.decode("utf-8").splitlines():
        line = line.strip()
        if re.fullmatch(r"= [^=].*[^=] =", line):
            article += 1
        elif line and not line.startswith("=") and len(line.split()) >= 20:
            texts.append(line)
            articles.append(article)
    return texts, np.array(articles)


def main() -> None:
    given = arguments(
        __doc__ or "",
        text={"type": Path, "required": True},
        seeds={"type": int, "default": 3},
        steps={"type": int, "default": 300},
    )
    lines = Lines(given.out)
    texts, groups = paragraphs(next(given.text.glob("*train*")))
    new, articles = paragraphs(next(given.text.glob("*test*")))
    vectoriser = TfidfVectorizer(min_df=3, max_df=0.3, sublinear_tf=True)
    svd = TruncatedSVD(100, random_state=0)
    known = svd.fit_transform(vectoriser.fit_transform(texts))
    base = svd.transform(vectoriser.transform(new))
    own = np.arange(len(base))
    totals = np.array([(articles == a).sum() - 1 for a in articles])
    useful = np.flatnonzero(totals)

    def judged(places: np.ndarray) -> dict[str, Any]:
        """Average precision of each query, its own place left out."""
        found = []
        for i in useful:
            others = places[i][places[i] != i][:K]
            found.append(average_precision(articles[others] == articles[i], int(totals[i])))
        return {"map": float(np.mean(found)), "each": [round(one, 4) for one in found]}

    listed, _ = first_round(base, base, K, leave_out=own)

    def ceiling() -> dict[str, Any]:
        best = [np.sort(~(articles[p] == articles[i])) for i, p in enumerate(listed)]
        found = [average_precision(~best[i], int(totals[i])) for i in useful]
        return {"map": float(np.mean(found))}

    plain = Reranker()
    lines.run("paragraphs", lambda: {"train": len(texts), "test": len(new), "queries": len(useful)})
    lines.run("ceiling", ceiling)
    for method in METHODS:
        lines.run(method, lambda m=method: judged(plain.rank(base, base, K + 1, method=m)))
    for seed in range(given.seeds):

        def ours(seed: int = seed) -> dict[str, Any]:
            rng = np.random.default_rng(seed)
            kept = np.sort(rng.permutation(np.unique(groups))[:300])
            rows = np.isin(groups, kept)
            model = Reranker(random_state=seed, steps=given.steps, list_size=K)
            model.fit(known[rows], groups[rows])
            # the list of each query, without itself, then both together
            scores = model._learned(_unit(base), _unit(base), listed)
            order = np.take_along_axis(listed, np.argsort(-scores, 1, kind="stable"), 1)
            return judged(order)

        lines.run(f"primal {seed}", ours)
    seeds = [np.array(lines.done[f"primal {seed}"]["each"]) for seed in range(given.seeds)]
    for method in METHODS:
        gain = np.mean(seeds, 0) - np.array(lines.done[method]["each"])
        lines.run(
            f"against {method}, {given.seeds} seeds",
            lambda gain=gain: {
                "gain": float(gain.mean()),
                "by_query": _interval(gain, np.arange(len(gain))),
                "by_article": _interval(gain, articles[useful]),
            },
        )


def _interval(gain: np.ndarray, groups: np.ndarray) -> list[float]:
    """95 % of the means of a bootstrap that draws whole groups."""
    rng, (_, places) = np.random.default_rng(0), np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(places, gain), np.bincount(places)
    drawn = rng.integers(len(sums), size=(DRAWS, len(sums)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)


if __name__ == "__main__":
    main()
