"""cotan.profiler: rows with lines, traces, schedules, parts with names."""
import inspect
import json
import time

import pytest

import cotan
from cotan.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

X = cotan.ones((64, 64))


def work():
    with record_function("forward"):
        y = (X @ X).exp().sum()  # the product
        return y.item()


def test_rows_have_lines():
    lines, first = inspect.getsourcelines(work)
    line = first + next(i for i, text in enumerate(lines) if "the product" in text)
    work()
    with profile(activities=[ProfilerActivity.CPU]) as p:
        for _ in range(5):
            work()
    rows = p.key_averages()
    kernels = [r for r in rows if r.kind == "kernel" and r.line == (__file__, line)]
    assert kernels and sum(r.flops for r in kernels) >= 5 * 2 * 64 ** 3 and all(r.count == 5 for r in kernels)
    named, = (r for r in rows if r.key == "forward")
    assert named.kind == "user" and named.count == 5 and named.cpu_time_total <= p.seconds * 1e6
    assert 0 < p.launch_seconds <= p.seconds and p.peak_bytes > 0
    assert "test_profiler.py" in rows.table() and "on the host" in rows.table()


def test_a_trace_is_events(tmp_path):
    with profile() as p:
        work()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    complete = [e for e in events if e.get("ph") == "X"]
    assert complete and all({"name", "ts", "dur", "pid", "tid"} <= e.keys() and e["dur"] >= 0 for e in complete)
    assert any(e["name"] == "forward" for e in complete)


def test_a_schedule_leaves_steps_out(tmp_path):
    seen = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: seen.append(
            next(r.count for r in p.key_averages() if r.key == "forward"))) as p:
        for _ in range(10):
            work()
            p.step()
    assert seen == [2, 2]
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=2), on_trace_ready=tensorboard_trace_handler(tmp_path, "w")) as p:
        for _ in range(3):
            work()
            time.sleep(0.002)
            p.step()
    assert len(list(tmp_path.glob("w.*.pt.trace.json"))) == 2


def test_a_function_has_a_name():
    @record_function("part")
    def part(x):
        """Doubles."""
        return x * 2
    assert part.__doc__ == "Doubles."
    with profile() as p:
        assert part(3) == 6
    assert [r.count for r in p.key_averages() if r.key == "part"] == [1]


def test_mistakes_are_said():
    with pytest.raises(ValueError, match="active 0, repeat 0, skip_first 0: active must be at least 1"):
        schedule(wait=0, warmup=0, active=0)
    with pytest.raises(ValueError, match="activities are ProfilerActivity.CPU and ProfilerActivity.CUDA, not 'cuda'"):
        profile(activities=["cuda"])
    p = profile()
    with pytest.raises(RuntimeError, match="the profile has not ended: leave its with block first"):
        p.key_averages()
    with profile():
        with pytest.raises(cotan.ArgumentError, match=r"profile: a profile is under way, which profile.stop\(\) ends"):
            profile().start()


def test_what_programs_of_pytorch_ask_for():
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, profile_memory=True, with_stack=True,
                 with_flops=True, with_modules=True, experimental_config=None, acc_events=False) as p:
        for _ in range(3):
            work()
        (X + 1).sum().item()
    rows = p.key_averages(group_by_stack_n=5)
    assert p.peak_bytes > 0 and any(row.flops for row in rows) and all(row.line for row in rows if row.kind == "kernel")
    whole = rows.table()
    for sort_by in ("self_cpu_time_total", "cuda_time_total", None):
        assert rows.table(sort_by=sort_by, row_limit=-1) == whole
    short = rows.table(sort_by="cpu_time_total", row_limit=1, header="ALL").split("\n\n")
    assert short[0] == "ALL" and [len(part.splitlines()) for part in short[1:3]] == [2, 2]
    by_count = rows.table("count").split("\n\n")[1].splitlines()
    assert sorted(by_count) == sorted(whole.split("\n\n")[1].splitlines())
    counts = [int(line.split(":")[1].split()[1]) for line in by_count[1:]]
    assert counts == sorted(counts, reverse=True) and len(set(counts)) > 1
    for call, kind, words in (
            (lambda: rows.table(sort_by="self_cpu_memory_usage"), ValueError,
             'table: rows are sorted by a time, "count", "flops" or "nbytes", not \'self_cpu_memory_usage\'\n'
             "  hint: what devices hold is in the profile's peak_bytes and in its trace"),
            (lambda: p.key_averages(group_by_input_shape=True), NotImplementedError,
             "key_averages: group_by_input_shape is asked for, rows have no shapes\n  hint: each line of the program has rows of its own"),
            (lambda: profile(experimental_config=object()), NotImplementedError,
             "profile: experimental_config is asked for, which has settings of another profiler"),
            (lambda: profile(acc_events=True), NotImplementedError,
             "profile: acc_events is asked for, a profile has the rows of its last cycle\n"
             "  hint: on_trace_ready is called with those of each")):
        with pytest.raises(kind) as error:
            call()
        assert str(error.value) == words
