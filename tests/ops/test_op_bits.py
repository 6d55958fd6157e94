"""Attention's rows are the same bits however many queries, keys behind them, or blocks a call has."""
import os

import numpy as np
import pytest
from op_cases import Case, read_table, run

TABLE = read_table()
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
SEED = 20240711


def attend(q, k, v, position, device):
    case = Case(TABLE["attention"], [q, k, v, np.int32(position)], {"causal": True, "present": 1})
    out, _ = run([case], device)[0]
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length,capacity", [(5, 64), (64, 64), (65, 256), (100, 300), (130, 192)])
def test_decoding_is_prefill(length, capacity, device):
    rng = np.random.default_rng(SEED)
    q, k, v = (rng.normal(size=(2, length, 16)).astype(np.float32) for _ in range(3))
    prefill = attend(q, k, v, 0, device)
    cache_k, cache_v = (np.zeros((2, capacity, 16), np.float32) for _ in range(2))
    cases = []
    for at in range(length):
        cache_k[:, at], cache_v[:, at] = k[:, at], v[:, at]
        cases.append(Case(TABLE["attention"], [q[:, at:at + 1], cache_k.copy(), cache_v.copy(), np.int32(at)],
                          {"causal": True, "present": 1}))
    steps = np.concatenate([r[0] for r in run(cases, device)], 1)
    assert prefill.tobytes() == steps.tobytes()


@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_are_masked_change_nothing(device):
    rng = np.random.default_rng(SEED)
    q, k, v = (rng.normal(size=(n, 8)).astype(np.float32) for n in (3, 200, 200))
    mask = np.arange(200) < 70
    cases = [Case(TABLE["attention"], [q, k[:70], v[:70]]),
             Case(TABLE["attention"], [q, k, v, mask], {"present": 2})]
    (short, lse_short), (masked, lse_masked) = run(cases, device)
    assert short.tobytes() == masked.tobytes() and lse_short.tobytes() == lse_masked.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name,attrs", [("softmax", {}), ("layer_norm", {}), ("log_softmax", {})])
def test_a_row_does_not_see_its_batch(name, attrs, device):
    x = np.random.default_rng(SEED).normal(size=(64, 131)).astype(np.float32)
    whole, one = run([Case(TABLE[name], [x], attrs), Case(TABLE[name], [x[17:18]], attrs)], device)
    assert whole[0][17:18].tobytes() == one[0].tobytes()
