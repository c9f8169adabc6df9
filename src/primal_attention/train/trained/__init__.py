"""A trained run at work: predictions, files of predictions, exports, folders for a hub.

from primal_attention import load_run

model = load_run("runs/sensors-primal+primal-001")
model.predict(X)                    # X (cases, channels, timepoints), or a list of arrays
model.predict_proba("new.csv")
"""

from .model import TrainedModel, load_run

__all__ = ["TrainedModel", "load_run"]
