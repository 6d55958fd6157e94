"""Probability distributions, by the names of torch.distributions: samples, log probabilities, entropies, divergences."""
import sys
import types

from . import (_continuous, _discrete, _gamma, _matrices, _multivariate, _transformed, constraints, distribution, kl, transforms,
               utils)
from .constraint_registry import biject_to, transform_to
from .distribution import Distribution, ExponentialFamily
from .kl import kl_divergence, register_kl
from .transforms import *  # noqa: F403

# PyTorch's modules, and the classes of each, which are defined in groups here.
_MODULES = {
    "bernoulli": "Bernoulli", "beta": "Beta", "binomial": "Binomial", "categorical": "Categorical", "cauchy": "Cauchy",
    "chi2": "Chi2", "dirichlet": "Dirichlet", "exp_family": "ExponentialFamily", "exponential": "Exponential", "gamma": "Gamma",
    "geometric": "Geometric", "gumbel": "Gumbel", "half_cauchy": "HalfCauchy", "half_normal": "HalfNormal",
    "independent": "Independent", "kumaraswamy": "Kumaraswamy", "laplace": "Laplace",
    "lkj_cholesky": "LKJCholesky", "log_normal": "LogNormal",
    "lowrank_multivariate_normal": "LowRankMultivariateNormal", "mixture_same_family": "MixtureSameFamily",
    "multinomial": "Multinomial", "multivariate_normal": "MultivariateNormal", "negative_binomial": "NegativeBinomial",
    "normal": "Normal", "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough", "pareto": "Pareto",
    "poisson": "Poisson", "relaxed_bernoulli": "LogitRelaxedBernoulli RelaxedBernoulli",
    "relaxed_categorical": "ExpRelaxedCategorical RelaxedOneHotCategorical", "studentT": "StudentT",
    "transformed_distribution": "TransformedDistribution", "uniform": "Uniform", "von_mises": "VonMises", "weibull": "Weibull"}


def _make_module(name, classes):
    module = types.ModuleType(f"{__name__}.{name}", f"The module {name} of torch.distributions: {', '.join(classes)}.")
    module.__dict__.update({"Distribution": Distribution, "constraints": constraints})  # packages import them from here too
    groups = distribution, _continuous, _gamma, _discrete, _matrices, _multivariate, _transformed
    for kind in classes:
        module.__dict__[kind] = next(group.__dict__[kind] for group in groups if kind in group.__dict__)
        module.__dict__[kind].__module__ = module.__name__
    sys.modules[module.__name__] = module
    return module


for _name, _classes in _MODULES.items():
    _module = globals()[_name] = _make_module(_name, _classes.split())
    globals().update({_kind: _module.__dict__[_kind] for _kind in _classes.split()})

__all__ = [*(kind for classes in _MODULES.values() for kind in classes.split()), "Distribution", "biject_to", "kl_divergence",
           "register_kl", "transform_to", *transforms.__all__]
__all__ = sorted(set(__all__) - {"LogitRelaxedBernoulli", "ExpRelaxedCategorical"})
