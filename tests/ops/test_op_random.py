"""Random numbers against JAX: the same bits, and what is made of them."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from op_cases import Case, dyn, read_table, run

jax.config.update("jax_threefry_partitionable", True)
TABLE = read_table()
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
SHAPES = [(), (1,), (5,), (2, 3), (3, 1, 7), (0, 4), (1031,)]
KEYS = [0, 1, 1337, 2**31 - 1]


def key(seed):
    return np.asarray(jax.random.PRNGKey(seed))


def drawn(name, operands, cases, device):
    return [r[0] for r in run([Case(TABLE[name], operands(seed), {"dims": shape})
                               for seed, shape in cases], device)]


ALL = [(seed, shape) for seed in KEYS for shape in SHAPES]


@pytest.mark.parametrize("device", DEVICES)
def test_keys_are_those_of_jax(device):
    assert key(1337).tolist() == [0, 1337]


@pytest.mark.parametrize("device", DEVICES)
def test_bits(device):
    for (seed, shape), got in zip(ALL, drawn("random_bits", lambda s: [key(s)], ALL, device)):
        assert (got == np.asarray(jax.random.bits(key(seed), shape))).all(), (seed, shape)


@pytest.mark.parametrize("device", DEVICES)
def test_a_dynamic_size_draws_the_same(device):
    got = run([Case(TABLE["random_bits"], [key(7)], {"dims": [dyn(6), 5]})], device)[0][0]
    assert (got == np.asarray(jax.random.bits(key(7), (6, 5)))).all()


@pytest.mark.parametrize("device", DEVICES)
def test_split_and_fold_in(device):
    for seed in KEYS:
        for n in (1, 2, 5):
            got = run([Case(TABLE["random_split"], [key(seed)], {"n": n})], device)[0][0]
            assert (got == np.asarray(jax.random.split(key(seed), n))).all(), (seed, n)
        for data in (0, 1, 99, 2**31 - 1):
            got = run([Case(TABLE["random_fold_in"], [key(seed), np.int32(data)])], device)[0][0]
            assert (got == np.asarray(jax.random.fold_in(key(seed), data))).all(), (seed, data)


@pytest.mark.parametrize("device", DEVICES)
def test_uniform(device):
    for (seed, shape), got in zip(ALL, drawn("random_uniform", lambda s: [key(s)], ALL, device)):
        assert (got == np.asarray(jax.random.uniform(key(seed), shape))).all(), (seed, shape)


@pytest.mark.parametrize("device", DEVICES)
def test_normal(device):
    for (seed, shape), got in zip(ALL, drawn("random_normal", lambda s: [key(s)], ALL, device)):
        want = np.asarray(jax.random.normal(key(seed), shape))
        assert got.shape == want.shape
        # erfinv is a polynomial of log1p, which the two compute each in their way.
        assert (np.abs(got - want) <= 8 * np.spacing(np.maximum(np.abs(want), 0.01))).all(), (seed, shape)
    many = drawn("random_normal", lambda s: [key(s)], [(3, (100003,))], device)[0]
    assert abs(many.mean()) < 0.02 and abs(many.std() - 1) < 0.02


@pytest.mark.parametrize("device", DEVICES)
def test_bernoulli(device):
    for p in (0.0, 0.3, 1.0):
        got = drawn("random_bernoulli", lambda s: [key(s), np.float32(p)], ALL, device)
        for (seed, shape), g in zip(ALL, got):
            assert (g == np.asarray(jax.random.bernoulli(key(seed), p, shape))).all(), (seed, shape, p)


@pytest.mark.parametrize("device", DEVICES)
def test_int(device):
    for low, high in ((-5, 7), (3, 3), (-2**31, 2**31 - 1), (0, 65537)):
        got = drawn("random_int", lambda s: [key(s), np.int32(low), np.int32(high)], ALL, device)
        for (seed, shape), g in zip(ALL, got):
            want = np.asarray(jax.random.randint(key(seed), shape, low, high, jnp.int32))
            assert (g == want).all(), (seed, shape, low, high)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout(device):
    x = np.arange(1, 1001, dtype=np.float32).reshape(10, 100)
    for rate in (0.0, 0.25, 0.9):
        got = run([Case(TABLE["dropout"], [x, key(5), np.float32(rate)])], device)[0][0]
        keep = np.asarray(jax.random.uniform(key(5), x.shape)) >= np.float32(rate)
        want = np.where(keep, x * (np.float32(1) / (np.float32(1) - np.float32(rate))), 0)
        assert (got == want.astype(np.float32)).all(), rate
    assert (run([Case(TABLE["dropout"], [x, key(5), np.float32(1)])], device)[0][0] == 0).all()
