"""The small task of the tests of the engine."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "engine_fixtures", Path(__file__).parents[2] / "train" / "conftest.py"
)
_engine = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_engine)

task, config = _engine.task, _engine.config
