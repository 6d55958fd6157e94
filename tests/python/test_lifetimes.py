"""Memory follows Python's references: loops hold it level, cycles are collected, what others look at stays."""
import gc
import os
import subprocess
import sys
import textwrap
import weakref

import cotan
import numpy as np
import pytest
from cotan.utils import _pytree

STEPS = 100_000 if os.environ.get("COTAN_TEST_ALL") else 3_000


def run(program):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_steps_hold_memory_level():
    said = run(f"""
        import cotan, resource
        from cotan import nn, optim
        cotan.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
        optimizer = optim.Adam(model.parameters())
        x, y = cotan.randn(32, 8), cotan.randn(32, 1)
        kept = []
        for step in range({STEPS}):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                kept = [loss.detach()] + kept[:3]
            if step in ({STEPS} // 3, {STEPS} - 1):
                s = cotan.stats()
                print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, s["live_bytes"], s["memory"], s["plans_made"])
    """)
    first, last = ([int(word) for word in line.split()] for line in said.splitlines())
    assert last[0] - first[0] < 1024, "KiB of the process"
    assert last[1] <= first[1] + 4096 and last[2] <= first[2] + 65536 and last[3] == first[3]


@pytest.mark.parametrize("optimizer, tensors", [("SGD(p, 0.1)", 2), ("SGD(p, 0.1, momentum=0.9)", 3), ("Adam(p)", 4),
                                                ("Adam(p, amsgrad=True)", 5)])
def test_a_step_writes_in_place(optimizer, tensors):
    """At its peak a step holds parameters, their gradients and the optimizer's state once each, and 5 % at most."""
    share = run(f"""
        import cotan
        from cotan import nn, optim
        p = [nn.Parameter(cotan.zeros(256, 256)) for _ in range(12)]
        optimizer = optim.{optimizer}
        for step in range(4):
            optimizer.zero_grad()
            sum((x * x).sum() for x in p).backward()
            optimizer.step()
        print(cotan.stats()["peak_memory"] / sum(x.nbytes for x in p))
    """)
    assert tensors <= float(share) <= tensors * 1.05


def test_a_read_in_each_turn_holds_memory_level():
    said = run(f"""
        import cotan
        x = cotan.zeros(100)
        for step in range({STEPS}):
            x = x * 0.5 + 1
            if step % 3 == 0 and x[0] > 5:
                break
            if step in ({STEPS} // 3, {STEPS} - 1):
                s = cotan.stats()
                print(s["live_bytes"], s["memory"], s["plans_made"])
    """)
    first, last = ([int(word) for word in line.split()] for line in said.splitlines())
    assert last[0] <= first[0] + 4096 and last[1] <= first[1] + 65536 and last[2] == first[2]


def test_cycles_are_collected():
    class Holder:
        pass

    gc.collect()
    before = cotan.stats()["live_bytes"]
    holder = Holder()
    holder.x = cotan.ones(1 << 20) * 2
    holder.x.owner = holder  # a cycle through the tensor's attributes
    cotan.eval(holder.x)
    assert cotan.stats()["live_bytes"] >= before + (4 << 20)
    gone = weakref.ref(holder.x)
    del holder
    gc.collect()
    (cotan.ones(2) + 1).sum().item()  # freed at the next call
    assert gone() is None and cotan.stats()["live_bytes"] < before + (1 << 20)


def test_views_of_numpy_stay_valid():
    views = []
    for i in range(20):
        x = cotan.full((1000,), float(i)) + 0.5
        views.append(np.asarray(x) if i % 2 else np.frombuffer(memoryview(x), np.float32))
        x += 100  # gives x another value
        del x
        (cotan.ones(1000) * i).sum().item()  # would take memory that is free
    gc.collect()
    for i, view in enumerate(views):
        assert (view == i + 0.5).all()


def test_weak_references_and_finalizers():
    seen = []
    x = cotan.ones(3)
    weakref.finalize(x, seen.append, "gone")
    del x
    assert seen == ["gone"]


@pytest.mark.parametrize("call", [
    lambda model: model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()}),
    lambda model: _pytree.tree_flatten_with_path([model.weight * 2, {"bias": model.bias * 2}])])
def test_calls_leave_no_cycles(call):
    """What is in a cycle holds its tensors until a collection, whose time makes plans that no other step has."""
    model = cotan.nn.Linear(2, 3)
    call(model)
    gc.collect()
    call(model)
    assert gc.collect() == 0
