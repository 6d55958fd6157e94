"""JAX compiles hundreds of small functions here, each of which runs once: as little of it as its compiler can do."""
import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                      "--xla_cpu_use_thunk_runtime=false")
