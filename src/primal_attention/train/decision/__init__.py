"""Learning to act from recorded episodes, in run folders like those of the engine.

from primal_attention.train.decision import DecisionConfig, train_decision

result = train_decision(DecisionConfig(task="rl/hopper-medium", attention=("softmax", "primal")))
print(result.returned, result.score, result.run)
"""

from __future__ import annotations

from .config import DecisionConfig
from .events import DecisionEpoch, DecisionObserver, DecisionResult, DecisionStart
from .run import (
    DecisionSeeds,
    is_decision_run,
    load_decision_model,
    read_decision_config,
    resume_decision,
    train_decision,
    train_decision_seeds,
)

__all__ = [
    "DecisionConfig",
    "DecisionEpoch",
    "DecisionObserver",
    "DecisionResult",
    "DecisionSeeds",
    "DecisionStart",
    "is_decision_run",
    "load_decision_model",
    "read_decision_config",
    "resume_decision",
    "train_decision",
    "train_decision_seeds",
]
