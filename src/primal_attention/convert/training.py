"""The KSVD term in a Hugging Face Trainer.

In a plain loop nothing is needed but `loss = task_loss + eta * ksvd_loss(model)`. The Trainer
computes its loss itself:

    class MyTrainer(KSVDLossMixin, Trainer):
        eta = 0.1
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ..theory.features import FeatureMap
from ..theory.loss import Growth, ksvd_loss


class KSVDLossMixin:
    """Adds `eta * ksvd_loss(model)` to the loss of a Trainer while it trains; evaluation losses
    stay those of the task. Put it before Trainer among the bases. growth: that of `ksvd_loss`; None
    is its logarithm where features are positive, since it begins at millions there and would take
    the first steps for itself, and else the square."""

    eta: float = 0.1
    growth: Growth | None = None
    last_ksvd_loss: float | None = None  # of the last training batch, without eta

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, **others: Any
    ) -> Any:
        base: Any = super()
        loss, outputs = base.compute_loss(model, inputs, return_outputs=True, **others)
        if model.training and self.eta:
            term = ksvd_loss(model, growth=self.growth or _growth_for(model))
            self.last_ksvd_loss = float(term.detach())
            loss = loss + self.eta * term.to(loss.device) * self._share(others)
        return (loss, outputs) if return_outputs else loss

    def _share(self, others: dict[str, Any]) -> float:
        """Under gradient accumulation the Trainer divides the loss by the number of batches, unless
        the model did so already by the number of items; then the term must be divided here."""
        divided = getattr(self, "loss_is_scaled_for_ga", None)
        if divided is None:
            by_items = others.get("num_items_in_batch") is not None
            accepts = bool(getattr(self, "model_accepts_loss_kwargs", False))
            own = getattr(self, "compute_loss_func", None) is not None
            divided = (accepts and by_items) or own
        return 1.0 / getattr(self, "current_gradient_accumulation_steps", 1) if divided else 1.0


def _growth_for(model: nn.Module) -> Growth:
    maps = (module for module in model.modules() if isinstance(module, FeatureMap))
    return "log" if any(each.positive for each in maps) else "square"
