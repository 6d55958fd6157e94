"""cotan.memory_snapshot: what the memory is taken by, and the line of what a loop leaves behind."""
import inspect

import cotan


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def step(kept):
    x = cotan.ones(1000)
    y = (x * 3).exp()  # leaks
    y.sum().item()
    kept.append(y)
    kept[-1].numpy()


def test_a_list_that_grows_is_found_by_its_line():
    kept = []
    for _ in range(3):
        step(kept)
    before = cotan.memory_snapshot()
    for _ in range(5):
        step(kept)
    grown = cotan.memory_snapshot() - before
    row = grown.rows[0]
    assert row.line == (__file__, line_of(step, "leaks")), str(grown)
    assert (row.op, row.type, row.count, row.nbytes) == ("exp", "(1000,) f32", 5, 20000), str(grown)
    assert f"      20,000       5  exp (1000,) f32 of {__file__}:{row.line[1]}" in str(grown)
    del kept[:]
    cotan.zeros(1).numpy()  # names that are gone wait for the next call
    assert not [r for r in (cotan.memory_snapshot() - before).rows if r.line == row.line]


def test_a_loop_that_leaves_nothing_behind_grows_by_nothing():
    step([])
    step([])
    before = cotan.memory_snapshot()
    for _ in range(5):
        step([])
    assert [r for r in (cotan.memory_snapshot() - before).rows if r.count > 1] == []


def test_all_that_is_alive_is_listed():
    weight = cotan.nn.Linear(30, 20).weight
    weight.numpy()
    s = cotan.memory_snapshot()
    assert s.values == cotan.stats()["live_bytes"]
    assert [r.type for r in s.rows if r.nbytes >= 2400 and "(20, 30) f32" in r.type]
    assert s.arenas == cotan.stats()["arena_bytes"]
    assert s.__sub__(1) is NotImplemented
