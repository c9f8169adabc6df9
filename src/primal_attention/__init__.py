"""Primal-Attention: self-attention as an asymmetric kernel SVD, computed in the primal.

Names are imported when they are first used, so that the command can answer `--help` without torch.
Attentions are found where they stand: every class that `attention` exports is a name here too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import aeon as aeon
    from . import distributed as distributed
    from .analysis import attention_flow as attention_flow
    from .analysis import attention_graph as attention_graph
    from .analysis import calibration as calibration
    from .analysis import draws as draws
    from .analysis import explain as explain
    from .analysis import ksvd_diagnostics as ksvd_diagnostics
    from .analysis import spectrum as spectrum
    from .analysis import transport as transport
    from .analysis.retrieval import expand_query as expand_query
    from .attention import AttentionInfo as AttentionInfo
    from .attention import PrimalAttention as PrimalAttention
    from .attention import PrimalState as PrimalState
    from .attention import attention_info as attention_info
    from .attention import available_attentions as available_attentions
    from .attention import fold_ as fold_
    from .attention import kl_loss as kl_loss
    from .attention import make_attention as make_attention
    from .attention import variational_ as variational_
    from .convert import convert_ as convert_
    from .convert import from_pretrained as from_pretrained
    from .convert import load as load
    from .convert import plan as plan
    from .convert import revert_ as revert_
    from .convert import save as save
    from .convert import save_pretrained as save_pretrained
    from .models.cooccurrence import cooccurrence_ as cooccurrence_
    from .models.events import EventModel as EventModel
    from .models.language import LanguageModel as LanguageModel
    from .theory import KSVD as KSVD
    from .theory import DenseKernel as DenseKernel
    from .theory import KernelFactors as KernelFactors
    from .theory import KSVDProblem as KSVDProblem
    from .theory import KSVDResiduals as KSVDResiduals
    from .theory import ksvd as ksvd
    from .theory import ksvd_residuals as ksvd_residuals
    from .theory.estimator import KernelSVD as KernelSVD
    from .theory.loss import ksvd_loss as ksvd_loss
    from .theory.time import BochnerTime as BochnerTime
    from .theory.time import MercerTime as MercerTime
    from .train.adapt import adapt_ as adapt_
    from .train.estimator import PrimalBagClassifier as PrimalBagClassifier
    from .train.estimator import PrimalFormerClassifier as PrimalFormerClassifier
    from .train.estimator import PrimalFormerRegressor as PrimalFormerRegressor
    from .train.estimator import PrimalRocketClassifier as PrimalRocketClassifier
    from .train.estimator import PrimalRocketRegressor as PrimalRocketRegressor
    from .train.estimator import PrimalTableClassifier as PrimalTableClassifier
    from .train.estimator import PrimalTableRegressor as PrimalTableRegressor
    from .train.estimator import Reranker as Reranker
    from .train.estimator import SparseKernelClassifier as SparseKernelClassifier
    from .train.estimator import SparseKernelRegressor as SparseKernelRegressor
    from .train.trained import load_run as load_run

_EXTRAS = {  # they need an extra, so `import *` leaves them out
    "KernelSVD": ".theory.estimator",
    "PrimalBagClassifier": ".train.estimator",
    "PrimalFormerClassifier": ".train.estimator",
    "PrimalFormerRegressor": ".train.estimator",
    "PrimalRocketClassifier": ".train.estimator",
    "PrimalRocketRegressor": ".train.estimator",
    "PrimalTableClassifier": ".train.estimator",
    "PrimalTableRegressor": ".train.estimator",
    "Reranker": ".train.estimator",
    "SparseKernelClassifier": ".train.estimator",
    "SparseKernelRegressor": ".train.estimator",
    "load_run": ".train.trained",
}
_HOMES = {
    name: home
    for home, names in {
        ".analysis": "attention_flow attention_graph calibration draws explain ksvd_diagnostics "
        "spectrum transport",
        ".analysis.retrieval": "expand_query",
        ".attention": "attention_info available_attentions fold_ kl_loss make_attention "
        "variational_",
        ".convert": "convert_ from_pretrained load plan revert_ save save_pretrained",
        ".models.cooccurrence": "cooccurrence_",
        ".models.events": "EventModel",
        ".models.language": "LanguageModel",
        ".theory": "KSVD DenseKernel KSVDProblem KSVDResiduals KernelFactors ksvd ksvd_residuals",
        ".theory.loss": "ksvd_loss",
        ".theory.time": "BochnerTime MercerTime",
        ".train.adapt": "adapt_",
    }.items()
    for name in names.split()
} | _EXTRAS


def __getattr__(name: str) -> Any:
    if name in ("aeon", "distributed"):
        return import_module(f".{name}", __name__)
    if name == "__all__":
        return sorted({*_HOMES, *_attentions()} - {*_EXTRAS})
    home = _HOMES.get(name)
    if home is None and name[0].isupper() and name in _attentions():
        home = ".attention"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(home, __name__), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_attentions(), "aeon", "distributed"})


def _attentions() -> list[str]:
    """The classes of the room `attention`: mechanisms, and the states of those that stream."""
    exported: list[str] = import_module(".attention", __name__).__all__
    return [name for name in exported if name[0].isupper()]
