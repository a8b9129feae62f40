"""Eight simulated CPU devices for every test, and code that is compiled fast; set before JAX is first imported."""

import gc
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA warns of every odd layout, and the tests try many
UNKNOWN_TO_TPUS = "--xla_cpu_use_fusion_emitters=false"
FLAGS = (
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_max_isa=SSE4_2",  # of narrow vectors there is less code
    UNKNOWN_TO_TPUS,
)
for flag in FLAGS:
    if flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from command_line import LEGAL  # noqa: E402

jax.devices("cpu")  # a command that is tested here would otherwise start JAX with as many devices as its plan needs
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(UNKNOWN_TO_TPUS, "").strip()  # read by now, and inherited
gc.set_threshold(100_000)  # of all that searches keep and make, looking for cycles finds next to none
hypothesis.settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing of its code
hypothesis.settings.load_profile("untimed")


def pytest_sessionfinish() -> None:
    """What is left goes with the process: nobody looks through gigabytes of it for cycles once more."""
    gc.freeze()


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of vocabularies of the real corpus, learnt once a run for all its processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "learnt"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """The file of a legal plan."""
    path = tmp_path / "plan.yaml"
    path.write_text(LEGAL)
    return path
