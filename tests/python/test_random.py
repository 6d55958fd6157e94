"""cotan.random against jax.random: every bit where no function of the machine is in between."""
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import cotan.nn.functional as F
import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from cotan import random

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)
theirs = jax.random
SHAPES = [(), (1,), (7,), (3, 5), (2, 0, 3)]
P = np.array([0.1, 0.2, 0.0, 0.4, 0.3], "float32")


narrow = jax.experimental.enable_x64(False)  # where jax draws in its default dtypes: ours are always these


def keys(seed):
    return random.PRNGKey(seed), theirs.PRNGKey(seed)


def same(ours, wanted):
    wanted = np.asarray(wanted)
    assert tuple(ours.shape) == wanted.shape
    assert str(ours.dtype).rpartition(".")[2] == wanted.dtype.name
    ours = ours.float() if ours.dtype in (cotan.bfloat16, cotan.float16) else ours
    np.testing.assert_array_equal(ours.numpy(), wanted.astype(ours.numpy().dtype))


def near(ours, wanted, ulp=16):
    wanted = np.asarray(wanted)
    assert tuple(ours.shape) == wanted.shape and str(ours.dtype).rpartition(".")[2] == wanted.dtype.name
    tolerance = ulp * np.finfo(wanted.dtype).eps
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31 - 1, 2**32 - 1, 2**40 + 5, -1, 2**63 - 1])
def test_keys(seed):
    ours, key = keys(seed)
    same(ours, key)
    same(random.split(ours), theirs.split(key))
    same(random.split(ours, 5), theirs.split(key, 5))
    same(random.split(ours, (2, 3)), theirs.split(key, (2, 3)))
    for data in (0, 1, 7, 2**31 - 1, 2**32 - 1):
        same(random.fold_in(ours, data), theirs.fold_in(key, data))
    first, second = random.split(ours)
    same(random.uniform(second, (3,)), theirs.uniform(theirs.split(key)[1], (3,), dtype="float32"))
    same(random.key(seed), theirs.key_data(theirs.key(seed)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bits(shape, dtype):
    ours, key = keys(3)
    same(random.bits(ours, shape, dtype), theirs.bits(key, shape, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_uniform(shape, dtype):
    ours, key = keys(4)
    same(random.uniform(ours, shape, dtype), theirs.uniform(key, shape, dtype))
    same(random.uniform(ours, shape, dtype, 2.0, 6.0), theirs.uniform(key, shape, dtype, 2.0, 6.0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("bounds", [(0, 10), (-3, 4), (5, 5), (7, 3), (0, 1), (0, 128), (-1000, 1 << 20), (0, 1 << 40), (-(1 << 63), (1 << 63) - 1)])
def test_randint(bounds, dtype):
    ours, key = keys(5)
    same(random.randint(ours, (50,), *bounds, dtype), theirs.randint(key, (50,), *bounds, dtype))


def test_randint_with_bounds_that_are_computed():
    ours, key = keys(6)
    low, high = np.array([0, -5, 3], "int32"), np.array([4, 100, 3], "int32")
    same(random.randint(ours, (4, 3), cotan.asarray(low), cotan.asarray(high)), theirs.randint(key, (4, 3), low, high, "int32"))


@narrow
def test_bernoulli():
    ours, key = keys(7)
    same(random.bernoulli(ours, shape=(20,)), theirs.bernoulli(key, np.float32(0.5), (20,)))
    same(random.bernoulli(ours, cotan.asarray(P)), theirs.bernoulli(key, P))
    same(random.bernoulli(ours, cotan.asarray(P), (3, 5)), theirs.bernoulli(key, P, (3, 5)))
    same(random.rademacher(ours, (20,)), theirs.rademacher(key, (20,), "int32"))


@pytest.mark.parametrize("n", [1, 2, 10, 3000])
def test_permutation(n):
    ours, key = keys(8)
    same(random.permutation(ours, n), theirs.permutation(key, n).astype("int32"))
    x = np.arange(n * 3.0).reshape(n, 3)
    same(random.permutation(ours, cotan.asarray(x)), theirs.permutation(key, x))
    same(random.permutation(ours, cotan.asarray(x), axis=1), theirs.permutation(key, x, axis=1))
    same(random.permutation(ours, cotan.asarray(x), axis=0, independent=True), theirs.permutation(key, x, 0, independent=True))
    same(random.permutation(ours, cotan.asarray(x[:, 0].copy())), theirs.permutation(key, x[:, 0]))


@narrow
def test_choice():
    ours, key = keys(9)
    x = np.arange(15, dtype="float32").reshape(5, 3)
    for options in ({}, {"replace": False}):
        same(random.choice(ours, 5, (4,), **options), theirs.choice(key, 5, (4,), **options).astype("int32"))
        same(random.choice(ours, cotan.asarray(x), (2, 2), **options), theirs.choice(key, x, (2, 2), **options))
        same(random.choice(ours, cotan.asarray(x), (2,), axis=1, **options), theirs.choice(key, x, (2,), axis=1, **options))
    for seed in range(20):
        ours, key = keys(seed)
        same(random.choice(ours, 5, (30,), p=cotan.asarray(P)), theirs.choice(key, 5, (30,), p=P).astype("int32"))
        same(random.choice(ours, 5, (3,), replace=False, p=cotan.asarray(P)), theirs.choice(key, 5, (3,), False, P).astype("int32"))
    same(random.choice(ours, 5), theirs.choice(key, 5).astype("int32"))


@narrow
def test_categorical():
    ours, key = keys(10)
    logits = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    for options in ({}, {"axis": 0}, {"shape": (3, 4)}):
        same(random.categorical(ours, cotan.asarray(logits), **options), theirs.categorical(key, logits, **options).astype("int32"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "laplace", "logistic"])
def test_distributions(name, dtype):
    ours, key = keys(11)
    for shape in SHAPES:
        near(getattr(random, name)(ours, shape, dtype), getattr(theirs, name)(key, shape, dtype))


def test_other_distributions():
    ours, key = keys(12)
    near(random.truncated_normal(ours, -1.0, 2.0, (50,)), theirs.truncated_normal(key, -1.0, 2.0, (50,), "float32"))
    near(random.truncated_normal(ours, cotan.asarray(P), 2.0), theirs.truncated_normal(key, P, 2.0, dtype="float32"))
    near(random.normal(ours, (20,), "complex64"), theirs.normal(key, (20,), "complex64"))
    near(random.cauchy(ours, (50,)), theirs.cauchy(key, (50,), "float32"), ulp=4096)  # where it is large so is the error of u
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    near(random.multivariate_normal(ours, cotan.asarray(np.ones(2)), cotan.asarray(cov), (5,)),
         theirs.multivariate_normal(key, np.ones(2), cov, (5,)))


def test_inside_of_transforms():
    """Keys are operands: vmap over split keys, and a scan that splits them, give jax's numbers and make one plan."""
    ours, key = keys(13)
    same(cotan.vmap(lambda k: random.uniform(k, (3,)))(random.split(ours, 4)),
         jax.vmap(lambda k: theirs.uniform(k, (3,), "float32"))(theirs.split(key, 4)))

    def turn(lib, xp):
        def body(k, _):
            k, sub = lib.split(k)
            return k, lib.uniform(sub, (2,), "float32")

        return body

    same(cotan.scan(turn(random, cotan), ours, length=5)[1], jax.lax.scan(turn(theirs, jnp), key, length=5)[1])
    random.normal(ours, (8,)).numpy()
    plans = cotan.stats()["plans_made"]
    for step in range(5):
        random.normal(random.fold_in(ours, step), (8,)).numpy()
    assert cotan.stats()["plans_made"] <= plans + 1


@pytest.mark.parametrize("count", [0, 7, 2**32 - 1, 2**32, 2**35 + 9])
@pytest.mark.parametrize("seed", [0, -5, 2**40, 2**63 + 5])
def test_a_generators_key_is_its_seeds_with_the_count_folded_in(seed, count):
    generator = cotan.Generator()
    generator.set_state(cotan.asarray([seed - 2**64 * (seed >= 2**63), count]))
    want = random.fold_in(cotan.random_key(seed - 2**64 * (seed >= 2**63)), count % 2**32)
    want = random.fold_in(want, count >> 32) if count >> 32 else want
    assert (generator.next_key().numpy() == want.numpy()).all()


def launches(f):
    before = cotan.stats()["launches"]
    f(cotan.asarray(np.ones((30, 40, 50), "float32"))).numpy()
    return cotan.stats()["launches"] - before


@pytest.mark.parametrize("draw, more", [
    (lambda x: F.dropout(x, 0.4), 0), (cotan.nn.Dropout(0.4), 0), (lambda x: F.alpha_dropout(x, 0.4, True), 0),
    (cotan.nn.AlphaDropout(0.4), 0), (lambda x: x + cotan.randn(30, 40, 50), 0), (lambda x: cotan.bernoulli(x * 0.5), 0),
    (lambda x: F.dropout2d(x, 0.4), 1), (lambda x: F.feature_alpha_dropout(x, 0.4, True), 1)])  # the numbers of each channel
def test_what_draws_is_one_kernel(draw, more):
    assert launches(draw) == launches(lambda x: x * 2) + more


def test_errors():
    key = random.PRNGKey(0)
    for run, kind, text in (
            (lambda: random.uniform(key, (2,), "int32"), ValueError, "dtype argument to `uniform` must be a float dtype, got cotan.int32"),
            (lambda: random.randint(key, (2,), 0, 5, "float32"), TypeError, "randint only accepts integer dtypes, got cotan.float32"),
            (lambda: random.bits(key, (2,), "int32"), TypeError, "dtype argument to `bits` must be an unsigned int dtype, got cotan.int32"),
            (lambda: random.choice(key, 3, (5,), replace=False), ValueError,
             "Cannot take a larger sample (size 5) than population (size 3) when 'replace=False'"),
            (lambda: random.choice(key, 0, (5,)), ValueError, "a must be greater than 0 unless no samples are taken"),
            (lambda: random.choice(key, 3, (5,), p=[0.5, 0.5]), ValueError,
             "p must be None or a 1D vector with the same size as a.shape[axis]. p has shape (2,) and a.shape[axis] is 3.")):
        with pytest.raises(kind) as error:
            run()
        assert str(error.value) == text
    with pytest.raises(ValueError) as error:
        random.uniform(cotan.asarray([1, 2, 3]), (2,))
    assert str(error.value).partition(": ")[2] == ("random_bits: the key is (3,) int64, it must be (2,) uint32\n"
                                                   "  hint: a key is cotan.random_key(seed), or a row of cotan.ops.random_split")
