"""How to train on a set: the net, a compact Transformer, and the settings of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..net import net_settings
from ..recipes import Column
from .archive import ARCHIVE


class Tuned(NamedTuple):
    primalformer: Column  # every layer primal
    primal_trans: Column  # the last layer primal


# fmt: off
TUNED: Mapping[str, Tuned] = {
    "EthanolConcentration": Tuned(Column(30, 0.1), Column(40, 0.2)),
    "FaceDetection":        Tuned(Column(20, 0.1), Column(40, 0.2)),
    "Handwriting":          Tuned(Column(30, 0.2), Column(20, 0.5)),
    "Heartbeat":            Tuned(Column(30, 0.5), Column(40, 0.5)),
    "JapaneseVowels":       Tuned(Column(40, 0.5), Column(30, 0.2)),
    "PEMS-SF":              Tuned(Column(40, 0.1), Column(40, 0.0)),
    "SelfRegulationSCP1":   Tuned(Column(30, 0.5), Column(30, 0.2)),
    "SelfRegulationSCP2":   Tuned(Column(20, 0.0), Column(20, 0.2)),
    "SpokenArabicDigits":   Tuned(Column(20, 0.1), Column(30, 0.2)),
    "UWaveGestureLibrary":  Tuned(Column(20, 0.0), Column(40, 0.1)),
}
# fmt: on

_FEW_ANCHORS = (
    "FaceDetection", "Handwriting", "JapaneseVowels", "PEMS-SF", "SpokenArabicDigits",
)  # fmt: skip


def recipes(name: str) -> dict[str, dict[str, Any]]:
    """The recipes of a set by name; "paper" for the paper's ten sets only."""
    found = {"default": net_settings(ARCHIVE[name].cases[0]), "transformer": {}}
    if name in TUNED:
        found["paper"] = {
            "width": 512,
            "heads": 8,
            "feedforward": 2048,
            "dropout": 0.1,
            "norm": "post-last",
            "activation": "gelu",
            "positions": "learned",
            "head": "flatten",
            "normalise": "channel",
            "padding": "seen",
            "projection_start": "linear",
            "direction_start": "unit",
            "score_dropout": 0.0,
            "selection_epochs": "paper",
            "optimizer": "adam" if name == "SpokenArabicDigits" else "radam",
            "lr": 1e-3,
            "weight_decay": 0.0,
            "schedule": "constant",
            "batch_size": 16,
            "epochs": 400 if name == "PEMS-SF" else 100,
            "clip": 4.0,
            "weights": "data",
            "feature_map": "cosine",
            "anchor_rule": "paper",
            "rank_multi": 5 if name in _FEW_ANCHORS else 10,
        }
    return found
