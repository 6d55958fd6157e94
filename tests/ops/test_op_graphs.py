"""Graphs of several ops against NumPy, on ref and cpu, which share the passes before them.

What two devices of the library agree on may still be wrong in both: that two nodes are one, that a constant folds, that
an output is not needed. So whole graphs are evaluated by something else. COTAN_TEST_ALL=1: ten times as many,
where kernels are interpreted; to compile those of a graph takes a second.
"""
import os

import numpy as np
import op_samples as samples
import pytest
from graph_cases import KNOWN, TABLE, Graph, random_graph, twins
from op_cases import Failure, run

SEED = 20250611
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
COUNT = 4000 if os.environ.get("COTAN_TEST_ALL") and {*DEVICES} <= {"ref", "cpu"} else 400
# Attributes of which two values never fit the same operands, promise what is so, change a later result alone, or differ
# only where all that is looked at is masked.
SINGLE = {("attention", "present"), ("attention_backward", "present"), ("linear_cross_entropy", "present"), ("rms_norm", "present"), ("unique", "present"), ("searchsorted", "batch_dims"),
          ("attention", "masked_nan"), ("attention_backward", "masked_nan"), ("softmax", "masked_zero"), ("conv", "groups"), ("conv", "present"), ("conv_transpose", "present"), ("batch_norm_train", "momentum"),
          *((name, field) for name in samples.SCATTERS for field in ("batch_dims", "unique", "sorted"))}


def check(graphs, device):
    errors = []
    for graph, results in zip(graphs, run(graphs, device, compiled=False, mode="--graphs")):
        wrong = str(results) if isinstance(results, Failure) else graph.compare(results)
        if wrong:
            errors.append(f"{wrong}\n{graph}")
    assert not errors, f"seed {SEED}: {len(errors)} of {len(graphs)} are wrong\n" + "\n".join(errors[:3])


@pytest.fixture(scope="module")
def graphs():
    return [random_graph(SEED, number) for number in range(COUNT)]


@pytest.mark.parametrize("device", DEVICES)
def test_random_graphs(graphs, device):
    check(graphs, device)


def test_random_graphs_are_of_many_ops(graphs):
    for graph in graphs:
        assert graph.ops >= 8, graph
    names = {line.split("(")[0] for graph in graphs for line in graph.lines}
    assert set(KNOWN) <= names, set(KNOWN) - names


@pytest.fixture(scope="module")
def pairs():
    """By op and attribute: graphs of two nodes that differ in that attribute alone; by op and None: in any."""
    return {(name, field): [g for same in (True, False) if (g := twins(SEED, TABLE[name], field, same))]
            for name in KNOWN if TABLE[name].fields for field in [None, *(f for _, f in TABLE[name].fields)]}


def test_each_attribute_has_twins(pairs):
    without = {key for key, found in pairs.items() if not found}
    assert without == SINGLE, (
        f"attributes of which no two values are compared; Drawer.several() of graph_cases.py draws them: {without ^ SINGLE}")


@pytest.mark.parametrize("device", DEVICES)
def test_nodes_that_differ_in_an_attribute_are_two(pairs, device):
    check([graph for found in pairs.values() for graph in found], device)


@pytest.mark.parametrize("device", DEVICES)
def test_gaps_that_grow_with_the_size(device):
    """In one process: a size that takes a second value becomes dynamic, and what is in proportion to it may, too."""
    graphs = []
    for n in (6, 3, 12):
        graph = Graph(SEED, n)
        x, fill = graph.leaf(graph.rng.uniform(-1, 1, n).astype(np.float32)), graph.leaf(np.float32(7))
        for low, high, interior in ((0, 0, n // 3), (n // 3, 0, 0), (0, n, n), (n, n, 2 * n)):
            graph.op("pad", [x, fill], {"low": [low], "high": [high], "interior": [interior]})
        graphs.append(graph.finish())
    check(graphs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_of_one_node_are_several(device):
    """Two outputs of one type, and the same ops of each."""
    graph = Graph(SEED)
    x = graph.leaf(graph.rng.permutation(24).reshape(4, 6).astype(np.int32))
    for value in graph.op("topk", [x], {"k": 4}):
        graph.op("neg", [value])
        graph.op("sum", [value], {"axes": [1]})
        graph.op("cumsum", [graph.op("permute", [value], {"axes": [1, 0]})[0]], {"axis": 0})
    check([graph.finish()], device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "logsumexp", "any", "all", "argmax", "argmin", "softmax",
                                  "cumsum"])
def test_all_axes_of_one_square(name, device):
    op, graph = TABLE[name], Graph(SEED)
    for rank in (2, 3):
        array = graph.rng.uniform(0.5, 1.5, (5,) * rank).astype(np.float32)
        x = graph.leaf(array if "f32" in op.accepts else array > 0.6 if name == "all" else array > 1.4)
        if ("ints", "axes") in op.fields:
            for bits in range(1, 2**rank):
                graph.op(name, [x], {"axes": [a for a in range(rank) if bits >> a & 1]})
        else:
            for axis in range(rank):
                graph.op(name, [x], {"axis": axis})
    check([graph.finish()], device)
