"""cotan.distributions: moments of samples, gradients through them, closed forms, supports, shapes."""
import copy
import importlib
import math
import pickle

import cotan
import numpy as np
import pytest
from cotan import distributions as D

N = 20_000
t = cotan.tensor


def draw(d):
    cotan.manual_seed(7)
    return d.sample((N,)).double().numpy()


@pytest.mark.parametrize("build", [
    lambda: D.Gamma(t([0.05, 1.0, 30.0]), 1.5), lambda: D.Beta(t([0.2, 3.0]), t([0.5, 2.0])), lambda: D.Dirichlet(t([0.1, 1.0, 5.0])),
    lambda: D.Poisson(t([0.1, 9.9, 10.1, 1e5])), lambda: D.Binomial(t([5.0, 30.0, 100.0, 1e6]), t([0.9, 0.3, 0.97, 0.2])),
    lambda: D.NegativeBinomial(t([1.0, 8.0]), t([0.3, 0.8])), lambda: D.Geometric(t([0.3, 0.9])), lambda: D.Laplace(t([0.5, -1.0]), 2.0),
    lambda: D.Gumbel(t([0.5, -1.0]), 2.0), lambda: D.Weibull(2.0, t([1.0, 3.0])), lambda: D.Kumaraswamy(t([0.5, 2.0]), t([1.5, 3.0])),
    lambda: D.StudentT(t([8.0, 50.0]), 1.0, 2.0), lambda: D.Multinomial(9, t([0.2, 0.3, 0.5])), lambda: D.HalfNormal(t([0.5, 2.0])),
    lambda: D.MultivariateNormal(t([1.0, -2.0]), t([[2.0, 0.8], [0.8, 1.0]])), lambda: D.Exponential(t([0.5, 3.0])),
    lambda: D.LowRankMultivariateNormal(t([1.0, -2.0]), t([[1.0], [2.0]]), t([0.5, 1.0])), lambda: D.LogNormal(t([0.3, -0.2]), 0.3),
    lambda: D.MixtureSameFamily(D.Categorical(t([[0.3, 0.7]])), D.Normal(t([[1.0, -2.0]]), t([[0.5, 2.0]]))),
    lambda: D.OneHotCategorical(t([[1.0, 3.0], [2.0, 2.0]])), lambda: D.Uniform(t([-1.0, 2.0]), 3.0)])
def test_moments(build):
    d = build()
    x, mean, variance = draw(d), d.mean.double().numpy(), d.variance.double().numpy()
    assert np.abs((x.mean(0) - mean) / np.sqrt(variance / N)).max() < 4.5
    np.testing.assert_allclose(x.var(0), variance, rtol=0.15)
    assert d.support.check(d.sample((50,))).all()


@pytest.mark.parametrize("d, probabilities", [
    (D.Poisson(12.0), lambda k: math.exp(k * math.log(12) - 12 - math.lgamma(k + 1))),
    (D.Binomial(60, t(0.7)), lambda k: math.comb(60, k) * 0.7**k * 0.3**(60 - k) if k <= 60 else 0),
    (D.Binomial(12, t(0.3)), lambda k: math.comb(12, k) * 0.3**k * 0.7**(12 - k) if k <= 12 else 0)])
def test_counts_have_their_probabilities(d, probabilities):
    expected = N * np.array([probabilities(k) for k in range(80)])
    counts = np.bincount(draw(d).astype(int), minlength=80)
    frequent = expected > 10
    assert ((counts - expected)**2 / np.maximum(expected, 1e-9))[frequent].sum() < frequent.sum() + 5 * math.sqrt(2 * frequent.sum())


def test_angles():
    for concentration in (0.1, 3.0, 500.0):
        d = D.VonMises(0.5, concentration)
        x = draw(d) - 0.5
        assert abs(np.sin(x).mean()) < 0.03 and 1 - np.cos(x).mean() == pytest.approx(d.variance.item(), rel=0.05)
        edges = np.linspace(x.min(), x.max(), 41)
        middle = t((edges[1:] + edges[:-1]) / 2 + 0.5).float()
        expected = N * (edges[1] - edges[0]) * d.log_prob(middle).exp().double().numpy()
        assert ((np.histogram(x, edges)[0] - expected)**2 / expected)[expected > 50].sum() < 80


def gradient(function, *params):
    cotan.manual_seed(3)
    leaves = [t(value, dtype=cotan.float64, requires_grad=True) for value in params]
    return [grad.item() for grad in cotan.autograd.grad(function(*leaves), leaves)]


def test_gradients_through_samples():
    """The gradient of a mean of samples is that of the distribution's mean."""
    assert gradient(lambda a: D.Gamma(a, 2.0).rsample((N,)).mean(), 0.3)[0] == pytest.approx(0.5, rel=0.06)
    trigamma = math.pi**2 / 6  # the derivative of the mean of log x at 1
    assert gradient(lambda a: D.Gamma(a, 2.0).rsample((N,)).log().mean(), 1.0)[0] == pytest.approx(trigamma, rel=0.03)
    assert gradient(lambda a, b: D.Beta(a, b).rsample((N,)).mean(), 0.5, 1.5) == pytest.approx([0.375, -0.125], rel=0.05)
    assert gradient(lambda df: (D.StudentT(df).rsample((N,)) ** 2).mean(), 6.0)[0] == pytest.approx(-2 / 16, rel=0.25)
    assert gradient(lambda loc, scale: D.Normal(loc, scale).rsample((N,)).pow(2).mean(), 1.0, 2.0) == pytest.approx([2, 4], rel=0.05)
    probs = gradient(lambda p: (D.OneHotCategoricalStraightThrough(cotan.stack([p, 1 - p])).rsample((9,)) * t([2.0, 0.0])).sum(), 0.3)
    assert probs == pytest.approx([18.0])


def test_a_gamma_draw_moves_as_its_cdf_says():
    """dx/da at a constant cdf is that of cdf(a + h, x + h dx/da)."""
    from cotan.distributions._sampling import gamma_cdf, log_gamma_draws
    cotan.manual_seed(1)
    a = t([0.01, 0.4, 1.0, 7.0, 300.0], dtype=cotan.float64, requires_grad=True)
    x = log_gamma_draws(a, (5,)).exp()
    slope, = cotan.autograd.grad(x.sum(), a)
    x, h = x.detach(), 1e-5 * a.detach()
    before, after = (gamma_cdf(a.detach() + step, x + step * slope) for step in (-h, h))
    assert abs((after - before).numpy()).max() < 1e-9
    assert 1 - np.exp(-2.5) == pytest.approx(gamma_cdf(t(1.0).double(), t(2.5).double()).item(), abs=1e-13)
    ends = t([0.0, math.inf, 1e-30], requires_grad=True)
    values = gamma_cdf(t([2.0, 2.0, 2.0]), ends)
    assert values.tolist() == pytest.approx([0, 1, 0]) and cotan.autograd.grad(values.sum(), ends)[0].isfinite().all()


def test_closed_forms():
    e = math.e
    assert D.Exponential(2.0).log_prob(t(1.0)).item() == pytest.approx(math.log(2) - 2)
    assert D.Gamma(3.0, 2.0).log_prob(t(1.0)).item() == pytest.approx(math.log(8 / 2) - 2)
    assert D.Gamma(2.0, 1.0).cdf(t(1.0)).item() == pytest.approx(1 - 2 / e) and D.Chi2(2.0).cdf(t(2.0)).item() == pytest.approx(1 - 1 / e)
    assert D.Beta(2.0, 3.0).log_prob(t(0.5)).item() == pytest.approx(math.log(12 / 8)) and D.Beta(2.0, 3.0).mode.item() == pytest.approx(1 / 3)
    assert D.Cauchy(0.0, 1.0).cdf(t(1.0)).item() == pytest.approx(0.75) and D.Laplace(0.0, 1.0).icdf(t(0.75)).item() == pytest.approx(math.log(2))
    assert D.Gumbel(0.0, 1.0).cdf(t(0.0)).item() == pytest.approx(1 / e, rel=1e-5)
    assert D.Weibull(1.0, 2.0).cdf(t(1.0)).item() == pytest.approx(1 - 1 / e) and D.Pareto(1.0, 2.0).cdf(t(2.0)).item() == pytest.approx(0.75)
    assert D.Kumaraswamy(2.0, 3.0).cdf(t(0.5)).item() == pytest.approx(1 - 0.75**3, rel=1e-5)
    assert D.StudentT(1.0).log_prob(t(1.0)).item() == pytest.approx(-math.log(2 * math.pi))
    assert D.Binomial(4, t(0.5)).log_prob(t(2.0)).exp().item() == pytest.approx(6 / 16)
    assert D.Binomial(1, t(0.5)).entropy().item() == pytest.approx(math.log(2)) and D.Geometric(t(0.5)).entropy().item() == pytest.approx(2 * math.log(2))
    assert D.NegativeBinomial(2.0, t(0.5)).log_prob(t([0.0, 2.0])).exp().tolist() == pytest.approx([1 / 4, 3 / 16])
    assert D.Multinomial(3, t([0.5, 0.5])).log_prob(t([1.0, 2.0])).exp().item() == pytest.approx(3 / 8)
    assert D.Multinomial(2, t([0.5, 0.5])).entropy().item() == pytest.approx(1.5 * math.log(2))
    assert D.Categorical(t([1.0, 1.0])).perplexity().item() == pytest.approx(2)
    normal = D.MultivariateNormal(t([0.0, 0.0]), precision_matrix=t([[2.0, 1.0], [1.0, 1.0]]))
    assert normal.log_prob(t([1.0, 2.0])).item() == pytest.approx(-math.log(2 * math.pi) - 5)
    np.testing.assert_allclose(normal.covariance_matrix.numpy(), [[1, -1], [-1, 2]], atol=1e-6)
    assert D.VonMises(0.0, 1e-4).log_prob(t(1.0)).item() == pytest.approx(-math.log(2 * math.pi), abs=1e-3)
    logistic = D.TransformedDistribution(D.Uniform(0.0, 1.0), [D.SigmoidTransform().inv, D.AffineTransform(1.0, 2.0)])
    assert logistic.log_prob(t(1.0)).item() == pytest.approx(math.log(1 / 8)) and logistic.cdf(t(1.0)).item() == pytest.approx(0.5)
    assert D.RelaxedBernoulli(1.0, t(0.5)).log_prob(t(0.5)).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("d", [D.Normal(t(0.3), 2.0), D.Gumbel(t(0.3), 2.0), D.StudentT(t(3.0), 0.2), D.Gamma(t(2.5), 1.3), D.Weibull(t(2.0), 1.5),
                               D.VonMises(t(0.3), 5.0), D.Beta(t(2.0), 3.0), D.Laplace(t(0.1), 1.0), D.LogNormal(t(0.1), 0.5),
                               D.HalfCauchy(t(1.0)), D.Kumaraswamy(t(2.0), 3.0), D.Pareto(t(1.0), 2.0)])
def test_densities_add_up(d):
    low, high = {"Beta": (1e-5, 1), "Kumaraswamy": (1e-5, 1), "VonMises": (-math.pi, math.pi), "Pareto": (1, 400)}.get(
        type(d).__name__, (1e-5 if d.support.check(t(-1.0)).item() is False else -400, 400))
    x = np.linspace(low, high, 400_001)
    density = type(d).log_prob(d, t(x[:-1] + (x[1] - x[0]) / 2).float()).exp().double().numpy()
    assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=6e-3)


def test_divergence_of_samples():
    """The divergence is the mean of log p - log q over samples of p."""
    for p, q in ((D.Gamma(2.0, 1.0), D.Gamma(3.0, 1.5)), (D.Normal(0.5, 1.0), D.Gumbel(0.0, 2.0)), (D.Beta(2.0, 3.0), D.Normal(0.5, 0.4)),
                 (D.Exponential(2.0), D.Exponential(3.0)),
                 (D.Normal(0.5, 1.0), D.Laplace(0.0, 2.0)), (D.Gumbel(0.0, 1.0), D.Gumbel(0.5, 2.0)), (D.Uniform(0.1, 0.9), D.Beta(2.0, 2.0)),
                 (D.Geometric(t(0.4)), D.Geometric(t(0.3))), (D.Poisson(3.0), D.Poisson(4.0)), (D.Cauchy(0.0, 1.0), D.Cauchy(0.5, 2.0)),
                 (D.MultivariateNormal(t([0.0, 1.0]), cotan.eye(2)), D.LowRankMultivariateNormal(t([0.0, 0.0]), t([[1.0], [0.5]]), t([1.0, 2.0])))):
        cotan.manual_seed(2)
        x = p.sample((N,))
        assert (p.log_prob(x) - q.log_prob(x)).mean().item() == pytest.approx(D.kl_divergence(p, q).item(), rel=0.1, abs=0.005)
    assert D.kl_divergence(D.Normal(t([0.0, 1.0]), 1.0), D.Uniform(0.0, 1.0)).tolist() == [math.inf] * 2


def test_register_kl():
    class Own(D.Normal):
        pass

    p, q = Own(0.0, 1.0), D.Normal(1.0, 1.0)
    assert D.kl_divergence(p, q).item() == 0.5
    D.register_kl(Own, D.Normal)(lambda p, q: t(3.0))
    assert D.kl_divergence(p, q).item() == 3 and D.kl_divergence(q, p).item() == 0.5
    with pytest.raises(TypeError, match="Expected type_q to be a Distribution subclass but got <class 'int'>"):
        D.register_kl(Own, int)


def test_modules_copies_and_repr():
    for name, kind in (("normal", "Normal"), ("categorical", "Categorical"), ("studentT", "StudentT"), ("kl", "kl_divergence"), ("utils", "broadcast_all"),
                       ("constraints", "positive"), ("transforms", "ExpTransform"), ("distribution", "Distribution"), ("exp_family", "ExponentialFamily"),
                       ("constraint_registry", "biject_to")):
        module = importlib.import_module(f"cotan.distributions.{name}")
        assert hasattr(module, kind) and getattr(D, name) is module
    d = D.LogNormal(t([0.0, 1.0]), 2.0)
    for other in (pickle.loads(pickle.dumps(d)), copy.deepcopy(d), d.expand((2,))):
        assert other.log_prob(t([1.0, 2.0])).tolist() == d.log_prob(t([1.0, 2.0])).tolist()
    assert repr(D.Normal(t([0.0, 1.0]), 1.0)) == "Normal(loc: (2,), scale: (2,))" and repr(D.Poisson(2.0)) == "Poisson(rate: 2.0)"
    assert all(hasattr(D, name) for name in D.__all__) and D.Normal.__module__ == "cotan.distributions.normal"


def test_validation():
    message = (r"Expected parameter scale \(Tensor of shape \(2,\)\) of distribution Normal\(loc: \(2,\), scale: \(2,\)\) to satisfy the "
               r"constraint GreaterThan\(lower_bound=0.0\), but found invalid values:\ntensor\(\[ 1., -1.\]\)")
    with pytest.raises(ValueError, match=message):
        D.Normal(0.0, t([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"to be within the support \(IntegerInterval\(lower_bound=0, upper_bound=1\)\) of the distribution Cat"):
        D.Categorical(t([0.5, 0.5])).log_prob(t([2]))
    for wrong in (lambda: D.Normal(0.0, 0.0), lambda: D.Uniform(1.0, 1.0), lambda: D.Normal(0.0, 1.0).log_prob(1.0)):
        with pytest.raises(ValueError):
            wrong()
    assert D.Normal(0.0, t([1.0, -1.0]), validate_args=False).batch_shape == (2,)
    D.Distribution.set_default_validate_args(False)
    try:
        D.Exponential(-1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_inside_traced_functions():
    """Where values cannot be read, nothing is validated."""
    x = t([1.0, 2.0])
    assert cotan.vmap(lambda x: D.Normal(x, 1.0).log_prob(x))(x).tolist() == pytest.approx([-0.5 * math.log(2 * math.pi)] * 2)
    assert cotan.vmap(lambda x: D.Gamma(x, 1.0).rsample(), randomness="different")(x).shape == (2,)
    assert cotan.func.grad(lambda a: D.Gamma(a, 1.0).rsample().sum())(x).shape == (2,)
    assert cotan.compile(lambda a: D.Normal(a, 1.0).entropy().sum())(x).item() == pytest.approx(1 + math.log(2 * math.pi))


def test_dtypes_and_empty_samples():
    for dtype in (cotan.float64, cotan.bfloat16):
        x = t([1.0, 2.0], dtype=dtype)
        for d in (D.Normal(x, 1.0), D.Gamma(x, 2.0), D.Poisson(x), D.Binomial(3, x / 4), D.VonMises(x, 1.0), D.StudentT(x), D.Multinomial(3, x)):
            assert d.sample((3,)).dtype == dtype and d.log_prob(x / x).dtype == dtype and d.sample((0,)).shape[0] == 0
    assert D.Categorical(x).sample((0, 2)).shape == (0, 2) and D.Normal(0, 1).sample().dtype == cotan.float32


def test_a_subclass_of_the_exponential_family():
    class Own(D.ExponentialFamily):
        arg_constraints, _mean_carrier_measure = {"rate": D.constraints.positive}, 0
        _natural_params = property(lambda self: (-self.rate,))

        def __init__(self, rate):
            self.rate = rate
            super().__init__(rate.shape)

        def _log_normalizer(self, x):
            return -(-x).log()

    assert Own(t([0.5, 3.0])).entropy().tolist() == pytest.approx(D.Exponential(t([0.5, 3.0])).entropy().tolist())


def test_transforms_and_their_inverses():
    x = t([[0.3, -1.0, 2.0], [0.1, 0.5, -0.7]], dtype=cotan.float64, requires_grad=True)
    for transform in (D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(), D.AffineTransform(1.0, -2.0), D.SoftplusTransform(),
                      D.StickBreakingTransform(), D.CorrCholeskyTransform(), D.ReshapeTransform((3,), (3, 1)),
                      D.ComposeTransform([D.TanhTransform(), D.AffineTransform(0.0, 3.0)])):
        y = transform(x)
        np.testing.assert_allclose(transform.inv(y).detach().numpy(), x.detach().numpy(), atol=1e-9)
        assert transform.codomain.check(y).all() and tuple(transform.forward_shape(x.shape)) == tuple(y.shape)
        assert transform.inv.inv is transform
    for transform in (D.ExpTransform(), D.TanhTransform(), D.SigmoidTransform(), D.SoftplusTransform(), D.AffineTransform(1.0, -2.0)):
        slope, = cotan.autograd.grad(transform(x).sum(), x)
        np.testing.assert_allclose(transform.log_abs_det_jacobian(x, transform(x)).detach().numpy(), slope.abs().log().numpy(), atol=1e-9)
    kept = D.TanhTransform(cache_size=1)
    assert kept.inv(kept(x)) is x and D.TanhTransform().with_cache(1)._cache_size == 1
