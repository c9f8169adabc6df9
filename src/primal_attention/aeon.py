"""The classifiers as aeon's own, for code that asks for aeon's base class: needs aeon.

import primal_attention as pa

classifier = pa.aeon.PrimalFormerClassifier(random_state=0)    # an aeon BaseClassifier
"""

from .train.estimator.aeon import AeonPrimalFormerClassifier as PrimalFormerClassifier
from .train.estimator.aeon import AeonPrimalRocketClassifier as PrimalRocketClassifier

__all__ = ["PrimalFormerClassifier", "PrimalRocketClassifier"]
