"""The estimators of time series as aeon's own, for code that asks for its base class: needs aeon.

import primal_attention as pa

classifier = pa.aeon.PrimalFormerClassifier(random_state=0)    # an aeon BaseClassifier
"""

from .train.estimator.aeon import AeonPrimalFormerClassifier as PrimalFormerClassifier
from .train.estimator.aeon import AeonPrimalFormerRegressor as PrimalFormerRegressor
from .train.estimator.aeon import AeonPrimalRocketClassifier as PrimalRocketClassifier
from .train.estimator.aeon import AeonPrimalRocketRegressor as PrimalRocketRegressor

__all__ = [
    "PrimalFormerClassifier",
    "PrimalFormerRegressor",
    "PrimalRocketClassifier",
    "PrimalRocketRegressor",
]
