"""What the package says of itself: each module's __all__, and the counters."""
import inspect
import re
from pathlib import Path

import cotan
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["_creation", "_elementwise", "_more", "_reductions", "_searching", "_shaping"]
HELPERS = set("""BOOL COMPLEX DEFAULTS Extreme FLOATS INTEGERS SIGNED Tensor UNSIGNED concat_parts conj_transposed device_of_tensor diagonals
expanded_sizes extreme_with_indices finish_new_tensor lower_median make_view move_to_device normalize_axes normalize_axis
parse_size_args parse_sizes promote_pair reduced root_with_zero_grad scalar_of_dtype scatter_flat sort_with_indices split_sizes
squeezed_sizes strong swapped_axes unravel value widened wrap_negative_indices""".split())


@pytest.mark.parametrize("name", MODULES)
def test_all_names_are_given(name):
    module = getattr(cotan, name)
    names = [key for key, value in vars(module).items() if not (key.startswith("_") or inspect.ismodule(value) or key in HELPERS)
             and (not inspect.isfunction(value) or value.__module__ == module.__name__)]  # others are imported
    assert sorted(names) == sorted(module.__all__)


def test_every_counter_of_the_library():
    fields = re.search(r"typedef struct ct_stats \{(.*?)\} ct_stats;", (ROOT / "include/cotan/cotan.h").read_text(), re.S)[1]
    assert sorted(cotan.stats()) == sorted(re.findall(r"(\w+)[,;]", re.sub(r"//.*", "", fields)))
    assert cotan.stats()["kernels_pending"] == 0
