"""For all tests: what a busy machine, or a virtual one, needs."""

import gc
import os

from hypothesis import HealthCheck, settings

# Some virtual machines report AMX and then refuse its instructions: torch would die in bfloat16.
# Set before torch is imported; child processes inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# On a busy machine an example of hypothesis may take its time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Modules and collected tests are millions of objects that stay: the garbage collector would walk
# through all of them again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
