"""`import primal_attention` costs what torch costs."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys, time
times = [time.process_time()]
import numpy, torch
times.append(time.process_time())
before = set(sys.modules)
import primal_attention
times.append(time.process_time())
print(json.dumps({"new": sorted(set(sys.modules) - before), "all": sorted(sys.modules),
                  "torch": times[1] - times[0], "ours": times[2] - times[1]}))
"""


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_import_is_light():
    found = run(SCRIPT)
    heavy = {"matplotlib", "onnx", "onnxruntime", "onnxscript", "scipy", "sklearn", "pandas"}
    assert not heavy & set(found["all"])
    new = {name for name in found["new"] if not name.startswith("primal_attention")}
    third_party = {name for name in new if name.partition(".")[0] not in sys.stdlib_module_names}
    assert not [name for name in third_party if not name.startswith("torch.")]
    # the compiler takes as long to import as torch itself
    assert not [name for name in third_party if name.startswith(("torch._dynamo", "torch._induc"))]
    assert found["ours"] < 0.5 * found["torch"]


NAMES = """
import json, sys
import primal_attention as pa
from primal_attention import names
assert not hasattr(pa, "nothing") and "torch" not in sys.modules
found = {}
exec("from primal_attention import *", found)
assert set(pa.__all__) == set(found) - {"__builtins__"}
assert set(pa.__all__) <= set(dir(pa)) and {"KernelSVD", "distributed"} <= set(dir(pa))
assert not hasattr(pa, "NothingAttention")
classes = {pa.attention_info(name).build.__name__ for name in pa.available_attentions()}
print(json.dumps(sorted(classes - set(found))))
"""


def test_names_are_imported_when_they_are_used():
    assert run(NAMES) == [], "every attention's class is a name of the package"
