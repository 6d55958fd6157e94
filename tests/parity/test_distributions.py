"""cotan.distributions beside torch.distributions: values, gradients, constraints, transforms, messages."""
import itertools
import math
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import cotan  # noqa: E402

BOTH = (torch, cotan)
OLD = int(torch.__version__.partition(".")[0]) < 2
needs_2 = pytest.mark.skipif(OLD, reason="PyTorch before 2 has other messages here")
RNG = np.random.default_rng(0)
SHAPE = (3, 4)
REAL, OTHER = RNG.standard_normal(SHAPE), RNG.standard_normal(SHAPE)
POSITIVE, POSITIVE2 = np.exp(0.7 * REAL) + 0.1, np.exp(0.7 * OTHER) + 0.2
UNIT, UNIT2 = 1 / (1 + np.exp(-REAL)), 1 / (1 + np.exp(-OTHER))
SIMPLEX = POSITIVE / POSITIVE.sum(-1, keepdims=True)
COUNTS = np.array([[0, 1, 2, 3], [4, 0, 7, 1], [2, 5, 3, 0]], float)
MATRIX = RNG.standard_normal((3, 4, 4)) * 0.3
TRIL = np.tril(MATRIX, -1) + np.eye(4) * (1 + POSITIVE[:, None, :])
COVARIANCE = TRIL @ TRIL.swapaxes(-1, -2)
LOW_RANK = RNG.standard_normal((3, 4, 2))
BITS = (REAL > 0).astype(float)
ONE_HOT = np.eye(4)[[1, 0, 3]]

# Class, parameters, a value, whose gradient is compared where it is real, and what has no gradient or is not there.
CASES = [
    ("Normal", dict(loc=REAL, scale=POSITIVE), OTHER), ("Laplace", dict(loc=REAL, scale=POSITIVE), OTHER),
    ("Cauchy", dict(loc=REAL, scale=POSITIVE), OTHER), ("LogNormal", dict(loc=REAL, scale=POSITIVE), POSITIVE2),
    ("Uniform", dict(low=REAL - 4, high=REAL + POSITIVE + 4), OTHER), ("Exponential", dict(rate=POSITIVE), POSITIVE2),
    ("Gumbel", dict(loc=REAL, scale=POSITIVE), OTHER), ("HalfNormal", dict(scale=POSITIVE), POSITIVE2),
    ("HalfCauchy", dict(scale=POSITIVE), POSITIVE2), ("VonMises", dict(loc=REAL, concentration=4 * POSITIVE), OTHER),
    ("Gamma", dict(concentration=POSITIVE, rate=POSITIVE2), POSITIVE2), ("Chi2", dict(df=POSITIVE), POSITIVE2),
    ("Beta", dict(concentration1=POSITIVE, concentration0=POSITIVE2), UNIT), ("Dirichlet", dict(concentration=POSITIVE), SIMPLEX),
    ("StudentT", dict(df=POSITIVE + 2, loc=REAL, scale=POSITIVE2), OTHER),
    ("Pareto", dict(scale=POSITIVE, alpha=POSITIVE2), POSITIVE + POSITIVE2), ("Weibull", dict(scale=POSITIVE, concentration=POSITIVE2 + 1), UNIT),
    ("Kumaraswamy", dict(concentration1=POSITIVE + 1, concentration0=POSITIVE2 + 1), UNIT),
    ("Bernoulli", dict(probs=UNIT), BITS), ("Bernoulli", dict(logits=REAL), BITS),
    ("Geometric", dict(probs=UNIT), COUNTS), ("Geometric", dict(logits=REAL), COUNTS),
    ("Binomial", dict(total_count=8, probs=UNIT), COUNTS), ("Binomial", dict(total_count=COUNTS + 1, logits=REAL), COUNTS),
    ("NegativeBinomial", dict(total_count=5, probs=UNIT), COUNTS), ("NegativeBinomial", dict(total_count=COUNTS + 1, logits=REAL), COUNTS),
    ("Poisson", dict(rate=POSITIVE), COUNTS), ("Categorical", dict(probs=POSITIVE), np.array([1, 3, 0])),
    ("Categorical", dict(logits=REAL), np.array([[1, 3, 0], [2, 2, 2]])), ("OneHotCategorical", dict(probs=POSITIVE), ONE_HOT),
    ("OneHotCategorical", dict(logits=REAL), ONE_HOT), ("OneHotCategoricalStraightThrough", dict(logits=REAL), ONE_HOT),
    ("Multinomial", dict(total_count=12, probs=POSITIVE), COUNTS), ("Multinomial", dict(total_count=12, logits=REAL), COUNTS),
    ("MultivariateNormal", dict(loc=REAL, scale_tril=TRIL), OTHER), ("MultivariateNormal", dict(loc=REAL[0], covariance_matrix=COVARIANCE), OTHER),
    ("MultivariateNormal", dict(loc=REAL, precision_matrix=COVARIANCE[0]), OTHER),
    ("LowRankMultivariateNormal", dict(loc=REAL, cov_factor=LOW_RANK, cov_diag=POSITIVE), OTHER),
    ("RelaxedBernoulli", dict(temperature=np.array(0.7), probs=UNIT), UNIT2), ("RelaxedBernoulli", dict(temperature=np.array(0.7), logits=REAL), UNIT2),
    ("RelaxedOneHotCategorical", dict(temperature=np.array(0.7), probs=POSITIVE), SIMPLEX),
    ("RelaxedOneHotCategorical", dict(temperature=np.array(0.7), logits=REAL), SIMPLEX)]
LABELS = [f"{name}-{'-'.join(given)}" for name, given, _ in CASES]
# PyTorch has no gradient by the concentration, one by the elements above the diagonal, and NaN where corners are modes.
NO_GRADIENT = {("Gamma", "cdf"), ("Chi2", "cdf"), ("MultivariateNormal", "precision_matrix"), ("Beta", "mode")}
FLOAT = {"float32": 3e-5, "float64": 1e-9}


def make(library, name, given, dtype, grads=True):
    """Returns a distribution and its parameters."""
    kind = getattr(library.distributions, name)
    tensors = {key: library.tensor(value, dtype=getattr(library, dtype), requires_grad=grads and key != "total_count")
               if isinstance(value, np.ndarray) else value for key, value in given.items()}
    return kind(**tensors), [one for one in tensors.values() if isinstance(one, library.Tensor) and one.requires_grad]


def array(x):
    return np.asarray(x.detach().numpy() if hasattr(x, "detach") else x, float)


def close(ours, theirs, tolerance, what=""):
    ours, theirs = array(ours), array(theirs)
    assert ours.shape == theirs.shape, what
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=str(what))


def compute(call):
    """Returns what call gives, or None where the library has no such value."""
    try:
        return call()
    except (NotImplementedError, AttributeError):
        return None


def gradients(library, result, leaves):
    if not result.requires_grad:
        return [array(leaf) * 0 for leaf in leaves]
    weights = library.tensor(np.cos(np.arange(math.prod(result.shape), dtype=float)).reshape(tuple(result.shape)), dtype=result.dtype)
    grads = library.autograd.grad((result * weights).sum(), leaves, allow_unused=True, retain_graph=True)
    return [array(leaf) * 0 if grad is None else grad for grad, leaf in zip(grads, leaves)]


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name, given, value", CASES, ids=LABELS)
def test_values_and_gradients(name, given, value, dtype):
    calls = {"mean": lambda d, v, u: d.mean, "mode": lambda d, v, u: d.mode, "variance": lambda d, v, u: d.variance,
             "stddev": lambda d, v, u: d.stddev, "entropy": lambda d, v, u: d.entropy(), "log_prob": lambda d, v, u: d.log_prob(v),
             "cdf": lambda d, v, u: d.cdf(v), "icdf": lambda d, v, u: d.icdf(u), "perplexity": lambda d, v, u: d.perplexity(),
             "probs": lambda d, v, u: d.probs, "logits": lambda d, v, u: d.logits,
             "covariance_matrix": lambda d, v, u: d.covariance_matrix, "precision_matrix": lambda d, v, u: d.precision_matrix,
             "scale_tril": lambda d, v, u: d.scale_tril, "support": lambda d, v, u: d.enumerate_support(),
             "support1": lambda d, v, u: d.enumerate_support(False)}
    tolerance, compared = FLOAT[dtype] if name != "Multinomial" else 2e-4, 0  # PyTorch's factorials are float32's
    for what, call in calls.items():
        found = []
        for library in BOTH:
            d, leaves = make(library, name, given, dtype)
            v = library.tensor(value, dtype=getattr(library, dtype if value.dtype == float else "int64"), requires_grad=value.dtype == float)
            u = library.tensor(UNIT2, dtype=getattr(library, dtype))
            result = compute(lambda: call(d, v, u))
            found.append(None if result is None else [result] + (
                gradients(library, result, leaves + [v] * v.requires_grad)
                if (name, what) not in NO_GRADIENT and (dtype == "float64" or what in ("log_prob", "entropy")) else []))
        theirs, ours = found
        assert (ours is None) == (theirs is None) or (OLD and theirs is None), what
        if theirs is None:
            continue
        assert str(ours[0].dtype).split(".")[-1] == str(theirs[0].dtype).split(".")[-1], what
        for i, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            close(one, two, tolerance, (what, i))
            compared += 1
    assert compared > 4


@pytest.mark.parametrize("name, given, value", CASES, ids=LABELS)
def test_shapes(name, given, value):
    found = []
    for library in BOTH:
        d, _ = make(library, name, given, "float32", grads=False)
        wide = d.expand((2, *d.batch_shape))
        v = library.tensor(value, dtype=library.float32 if value.dtype == float else library.int64)
        drawn = [d.sample(), d.sample((5,)), d.sample((2, 3)), wide.sample((5,))]
        found.append([tuple(d.batch_shape), tuple(d.event_shape), tuple(wide.batch_shape), tuple(wide.event_shape), d.has_rsample,
                      d.has_enumerate_support, *(tuple(one.shape) for one in drawn), tuple(wide.log_prob(v).shape),
                      tuple(wide.log_prob(drawn[-1]).shape), compute(lambda: tuple(wide.mean.shape)), d.support.is_discrete, d.support.event_dim,
                      str(drawn[0].dtype).split(".")[-1], type(d).__module__.split(".", 1)[1]])
        assert library.distributions.Independent(d, 1).log_prob(v).shape == d.log_prob(v).shape[:-1]
        assert d.support.check(drawn[2]).all()
    assert found[0] == found[1]


KL_PARAMETERS = dict((name, given) for name, given, _ in reversed(CASES)) | {
    "Pareto": dict(scale=POSITIVE, alpha=POSITIVE2 + 2), "Uniform": dict(low=UNIT / 2, high=UNIT + UNIT2)}
FAMILIES = sorted(set(KL_PARAMETERS) & {kind for name in cotan.distributions.__all__ for kind in [name]})


def test_divergences():
    """Of every pair: the same value and gradients, or no formula in both."""
    made, compared = {}, 0
    for library, name in itertools.product(BOTH, FAMILIES):
        turned = {key: value[::-1].copy() if isinstance(value, np.ndarray) and value.shape == SHAPE and name != "Uniform" else value
                  for key, value in KL_PARAMETERS[name].items()}
        made[library, name] = make(library, name, KL_PARAMETERS[name], "float64"), make(library, name, turned, "float64")
    for first, second in itertools.product(FAMILIES, FAMILIES):
        found = []
        for library in BOTH:
            (p, leaves), (q, more) = made[library, first][0], made[library, second][1]
            result = compute(lambda: library.distributions.kl_divergence(p, q))
            found.append(None if result is None else [result, *gradients(library, result, leaves + more)])
        theirs, ours = found
        assert (ours is None) == (theirs is None), (first, second)
        compared += ours is not None
        for i, (one, two) in enumerate(zip(ours or (), theirs or (), strict=True)):
            close(one, two, 1e-8, (first, second, i))
    assert compared > 80


def test_divergences_of_what_is_made_of_others():
    found = []
    for library in BOTH:
        D = library.distributions
        x, y = (library.tensor(value, dtype=library.float64) for value in (REAL, POSITIVE))
        p, q = D.Normal(x, y), D.Normal(y, y + 1)
        mixture = D.MixtureSameFamily(D.Categorical(logits=x), p)
        tanh = [D.TransformedDistribution(one, [D.TanhTransform(), D.AffineTransform(1.0, 2.0)]) for one in (p, q)]
        found.append([D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1)), D.kl_divergence(*tanh), mixture.mean, mixture.variance,
                      mixture.log_prob(x[:, 0]), mixture.cdf(x[:, 0]), mixture.expand((2, 3)).log_prob(x[:, 1]),
                      tanh[0].log_prob(x * 0.5 + 1), tanh[0].cdf(x * 0.5 + 1), tanh[0].icdf(x.sigmoid()),
                      D.TransformedDistribution(p, [D.ReshapeTransform((4,), (2, 2))]).log_prob(x.reshape(3, 2, 2)),
                      D.TransformedDistribution(q, [D.StickBreakingTransform()]).expand((2, 3)).log_prob(library.ones(3, 5).double() / 5),
                      D.TransformedDistribution(p, [D.AffineTransform(x, -y)]).cdf(x)])
    for theirs, ours in zip(*found):
        close(ours, theirs, 1e-9)


TRANSFORMS = [
    (lambda D, t: D.ExpTransform(), REAL), (lambda D, t: D.SigmoidTransform(), REAL), (lambda D, t: D.TanhTransform(), REAL),
    (lambda D, t: D.SoftplusTransform(), REAL), (lambda D, t: D.PowerTransform(t(POSITIVE)), POSITIVE2),
    (lambda D, t: D.PowerTransform(2), POSITIVE2), (lambda D, t: D.AffineTransform(t(OTHER), t(OTHER)), REAL),
    (lambda D, t: D.AffineTransform(1, -2.5, event_dim=1), REAL), (lambda D, t: D.AffineTransform(t(OTHER), -2.5, event_dim=1), REAL),
    (lambda D, t: D.StickBreakingTransform(), REAL), (lambda D, t: D.CorrCholeskyTransform(), RNG.standard_normal((2, 6))),
    (lambda D, t: D.ReshapeTransform((4,), (2, 2)), REAL), (lambda D, t: D.IndependentTransform(D.ExpTransform(), 1), REAL),
    (lambda D, t: D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.ExpTransform().inv.inv]), REAL),
    (lambda D, t: D.ComposeTransform([D.IndependentTransform(D.TanhTransform(), 1), D.StickBreakingTransform()]), REAL),
    (lambda D, t: D.ExpTransform().inv, POSITIVE), (lambda D, t: D.StackTransform([D.ExpTransform(), D.AffineTransform(1, 2)] * 2, 1), REAL),
    (lambda D, t: D.CatTransform([D.ExpTransform(), D.AffineTransform(1, 2)], 1, [1, 3]), REAL),
    (lambda D, t: D.CumulativeDistributionTransform(D.Normal(0.5, 2.0)), REAL), (lambda D, t: D.identity_transform, REAL),
    (lambda D, t: D.SoftmaxTransform(), REAL), (lambda D, t: D.LowerCholeskyTransform(), MATRIX),
    (lambda D, t: D.PositiveDefiniteTransform(), MATRIX), (lambda D, t: D.AbsTransform(), REAL)]


@needs_2
@pytest.mark.parametrize("build, value", TRANSFORMS)
def test_transforms(build, value):
    found = []
    for library in BOTH:
        transform = build(library.distributions, lambda x: library.tensor(x))
        x = library.tensor(value, requires_grad=True)
        y = transform(x)
        result = [y, *gradients(library, y, [x]), transform.inv(y)]
        log = compute(lambda: transform.log_abs_det_jacobian(x, y))
        result += [] if log is None else [log, *gradients(library, log, [x])]
        facts = [transform.bijective, transform.domain.event_dim, transform.codomain.event_dim, tuple(transform.forward_shape(x.shape)),
                 tuple(transform.inverse_shape(y.shape)), repr(transform.domain), repr(transform.codomain), repr(transform)]
        kept = compute(lambda: transform.with_cache())
        if kept is not None and hasattr(kept, "_cached_x_y"):
            image = kept(x)
            facts.append(kept.inv(image) is x)
        found.append((result, facts))
    (theirs, facts), (ours, own) = found
    assert len(ours) == len(theirs)
    for i, (one, two) in enumerate(zip(ours, theirs)):
        close(one, two, 1e-8, i)
    assert own == facts


CONSTRAINTS = [
    lambda c: c.real, lambda c: c.positive, lambda c: c.nonnegative, lambda c: c.unit_interval, lambda c: c.greater_than(0.3),
    lambda c: c.greater_than_eq(-0.2), lambda c: c.less_than(0.5), lambda c: c.interval(-0.5, 1.5), lambda c: c.half_open_interval(-1.0, 1.0),
    lambda c: c.simplex, lambda c: c.independent(c.positive, 1), lambda c: c.lower_cholesky, lambda c: c.positive_definite,
    lambda c: c.corr_cholesky, lambda c: c.stack([c.real, c.positive, c.unit_interval, c.real], -1),
    lambda c: c.cat([c.positive, c.interval(1.0, 2.0)], -1, [1, 3])]
PLAIN = [lambda c: c.boolean, lambda c: c.nonnegative_integer, lambda c: c.positive_integer, lambda c: c.integer_interval(1, 4),
         lambda c: c.one_hot, lambda c: c.multinomial(6), lambda c: c.real_vector, lambda c: c.lower_triangular, lambda c: c.square,
         lambda c: c.symmetric, lambda c: c.positive_semidefinite]
VALUES = (REAL, COUNTS, BITS, ONE_HOT, SIMPLEX, MATRIX, TRIL, COVARIANCE, np.eye(4), np.where(COUNTS == 2, np.nan, COUNTS))


@pytest.mark.parametrize("build", CONSTRAINTS + PLAIN)
def test_constraints(build):
    found = []
    for library in BOTH:
        constraint = build(library.distributions.constraints)
        checks = [compute(lambda: constraint.check(library.tensor(value))) for value in VALUES
                  if constraint.event_dim < 2 or value.ndim > 2 or value.shape == (4, 4)]
        found.append([repr(constraint) if "0x" not in repr(constraint) else "", constraint.is_discrete, constraint.event_dim]
                     + [check.tolist() for check in checks])
    assert found[0] == found[1]


@needs_2
@pytest.mark.parametrize("build", CONSTRAINTS)
def test_registries(build):
    for name in ("biject_to", "transform_to"):
        found = []
        for library in BOTH:
            constraint = build(library.distributions.constraints)
            x = library.tensor(np.full((1, 6), 0.3) if "Corr" in repr(constraint) else MATRIX if constraint.event_dim == 2 else REAL)
            transform = compute(lambda: getattr(library.distributions, name)(constraint))
            y = x if transform is None else transform(x)
            assert transform is None or constraint.check(y).all()
            found.append((y, y if transform is None else transform.inv(y)))
        for theirs, ours in zip(*found):
            close(ours, theirs, 1e-9)


@needs_2
@pytest.mark.parametrize("call", [
    lambda D, t: D.Normal(t([0.0, 1.0]), t([1.0, -1.0])), lambda D, t: D.Normal(0.0, 1.0).log_prob(t([1.0, math.nan])),
    lambda D, t: D.Bernoulli(t([0.5, 1.5])), lambda D, t: D.Bernoulli(t(0.5)).log_prob(t([0.5])), lambda D, t: D.Normal("a", 1.0),
    lambda D, t: D.Uniform(1.0, 0.0), lambda D, t: D.Exponential(1.0).log_prob(2.0), lambda D, t: D.Normal(t([0.0, 1.0]), 1.0).log_prob(t([1.0] * 3)),
    lambda D, t: D.Dirichlet(t([1.0, 2.0])).log_prob(t([1.0])), lambda D, t: D.Categorical(t([-1.0, 2.0])), lambda D, t: D.Dirichlet(t(1.0)),
    lambda D, t: D.Categorical(t([0.5, 0.5])).log_prob(t([2])), lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([[1.0, 0.0], [0.0, -1.0]])),
    lambda D, t: D.MultivariateNormal(t([0.0])), lambda D, t: D.MultivariateNormal(t(0.0), t([[1.0]])),
    lambda D, t: D.Independent(D.Normal(0.0, 1.0), 1), lambda D, t: D.TransformedDistribution(D.Normal(0.0, 1.0), [1]),
    lambda D, t: D.Multinomial(t([2.0]), t([0.5, 0.5])), lambda D, t: D.Geometric(t(0.0)), lambda D, t: D.constraints.dependent.check(t(1.0)),
    lambda D, t: D.biject_to(D.constraints.boolean), lambda D, t: D.biject_to.register(3, 4),
    lambda D, t: D.Binomial(t([2.0, 3.0]), t([0.5, 0.5])).entropy(), lambda D, t: D.ReshapeTransform((2,), (3,)), lambda D, t: D.ExpTransform(cache_size=2),
    lambda D, t: D.MixtureSameFamily(D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0] * 3), 1.0))])
def test_messages(call):
    texts = []
    for library in BOTH:
        try:
            call(library.distributions, library.tensor)
            texts.append(None)
        except Exception as error:
            texts.append((type(error), re.sub(r"torch.Size\(\[(.*?)\]\)", lambda found: str(tuple(map(int, filter(None, found[1].split(","))))), str(error))
                          .partition("invalid values")[0]))
    assert texts[0] == texts[1]
