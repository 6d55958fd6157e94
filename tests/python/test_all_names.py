"""What the package says of itself: each module's __all__, the docstrings of classes, and the counters."""
import importlib
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


CLASSES = ["nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "distributions", "distributions.transforms",
           "distributions.constraints", "utils.data"]
SHAPE = re.compile(r"\((\.\.\.|\w+,)")
WITHOUT_SHAPES = {"Module", "Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "DataParallel"}


def classes_of(name):
    module = importlib.import_module(f"cotan.{name}")
    return {key: value for key, value in vars(module).items() if isinstance(value, type) and not key.startswith("_")
            and value.__module__.startswith("cotan")}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_a_docstring(name):
    assert not [key for key, value in classes_of(name).items() if not vars(value).get("__doc__")]


def test_docstrings_of_layers_and_distributions_give_shapes():
    layers = {key: value for key, value in classes_of("nn").items() if issubclass(value, cotan.nn.Module)}
    assert len(layers) > 150
    assert not [key for key, value in layers.items() if key not in WITHOUT_SHAPES and not SHAPE.search(value.__doc__)]
    vectors = """Dirichlet Multinomial OneHotCategorical OneHotCategoricalStraightThrough RelaxedOneHotCategorical ExpRelaxedCategorical
    MultivariateNormal LowRankMultivariateNormal Independent MixtureSameFamily Categorical""".split()
    assert not [key for key in vectors if "(..., " not in classes_of("distributions")[key].__doc__]
    assert cotan.nn.Conv2d.__doc__.endswith("(N, in_channels, H, W) to (N, out_channels, H_out, W_out).")


def test_every_counter_of_the_library():
    fields = re.search(r"typedef struct ct_stats \{(.*?)\} ct_stats;", (ROOT / "include/cotan/cotan.h").read_text(), re.S)[1]
    assert sorted(cotan.stats()) == sorted(re.findall(r"(\w+)[,;]", re.sub(r"//.*", "", fields)))
    assert cotan.stats()["kernels_pending"] == 0
