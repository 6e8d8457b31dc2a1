"""How hard properties are tried: quick by default, `HYPOTHESIS_PROFILE=thorough` for a deep run."""

import os
from typing import Any

from hypothesis import HealthCheck, settings

# Shared machines stall for a moment now and then; that says nothing about the code.
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("quick", max_examples=100, stateful_step_count=30, **_PATIENT)
settings.register_profile("thorough", max_examples=1000, stateful_step_count=60, **_PATIENT)


def examples(factor: float) -> int:
    """As many times the examples that the loaded profile asks for."""
    assert settings.default is not None, "a profile is loaded"
    return int(factor * settings.default.max_examples)


def load() -> None:
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
