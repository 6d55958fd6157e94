"""JAX compiles hundreds of small functions here, each of which runs once: as little of it as its compiler can do.
COTAN_TEST_PART=2/5 has every fifth test run, from the second on; all five parts are the whole."""
import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                      "--xla_cpu_use_thunk_runtime=false")


def pytest_collection_modifyitems(config, items):
    part = os.environ.get("COTAN_TEST_PART")
    if part:
        first, parts = map(int, part.split("/"))
        config.hook.pytest_deselected(items=[t for i, t in enumerate(items) if i % parts != first - 1])
        items[:] = items[first - 1::parts]
