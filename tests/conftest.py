"""Eight simulated CPU devices for every test, and code that is compiled fast; set before JAX is first imported."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA warns of every odd layout, and the tests try many
for flag in ("--xla_force_host_platform_device_count=8", "--xla_backend_optimization_level=0"):
    if flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()

import jax  # noqa: E402
import pytest  # noqa: E402
from command_line import LEGAL  # noqa: E402

jax.devices("cpu")  # a command that is tested here would otherwise start JAX with as many devices as its plan needs


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """The file of a legal plan."""
    path = tmp_path / "plan.yaml"
    path.write_text(LEGAL)
    return path
