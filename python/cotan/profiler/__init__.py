"""Profiles where a program's time goes: torch.profiler's names over Cotan's profile, which covers the
process.

    with cotan.profiler.profile() as p:
        for batch in batches:
            train(batch)
            p.step()
    print(p.key_averages().table())
    p.export_chrome_trace("trace.json")  # ui.perfetto.dev shows it

Ops are recorded first and computed together later, so a row is a kernel, with the line of its first op;
`record_function` covers what is computed inside of it: read a result there where that matters.
"""
import enum
import os
import shutil
import socket
import tempfile
import time

from .. import _core
from .._decorated import decorate_with_context


class ProfilerActivity(enum.Enum):
    """All devices are profiled at once; the names exist for programs that give them."""
    CPU = 0
    CUDA = 1


class ProfilerAction(enum.Enum):
    """What a step of the schedule does."""
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait, warmup, active, repeat=0, skip_first=0):
    """Returns a function of a step's number: after `skip_first` steps, in each of `repeat` cycles (0: without
    end), `wait` steps and `warmup` steps are not recorded, then `active` steps are."""
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(f"wait {wait}, warmup {warmup}, active {active}, repeat {repeat}, skip_first {skip_first}: active must be at "
                         "least 1, the others 0")
    cycle = wait + warmup + active

    def action(step):
        step -= skip_first
        if step < 0 or (repeat and step >= repeat * cycle):
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


class FunctionEventAvg:
    """All calls of one kernel (or plan, or named range) of one line. Times are in microseconds."""

    def __init__(self, kind, name, device, line, calls, seconds, min_seconds, max_seconds, nbytes, flops):
        self.kind, self.key, self.device, self.line, self.count = kind, name, device, line, calls
        self.cpu_time_total, self.cpu_time_min, self.cpu_time_max = seconds * 1e6, min_seconds * 1e6, max_seconds * 1e6
        self.nbytes, self.flops = nbytes, flops

    @property
    def cpu_time(self):
        return self.cpu_time_total / self.count

    def __repr__(self):
        place = f" of {self.line[0]}:{self.line[1]}" if self.line else ""
        return f"<{self.kind} {self.key}{place}: {self.count} calls, {self.cpu_time_total:.0f} us>"


class EventList(list):
    """Rows, the longest first."""

    def __init__(self, rows, table):
        super().__init__(rows)
        self._table = table

    def table(self, sort_by=None, row_limit=100, *, header=None):
        """Returns the rows as text: kernels, then host events, at most `row_limit` of each (-1: all), the
        longest first; with sort_by "count", "flops" or "nbytes" the largest of these first."""
        if sort_by is not None and sort_by not in (*TIMES, *AMOUNTS):
            raise ValueError(f"table: rows are sorted by a time, \"count\", \"flops\" or \"nbytes\", not {sort_by!r}\n"
                             "  hint: what devices hold is in the profile's peak_bytes and in its trace")
        kernels = [row for row in self if row.kind in ("kernel", "copy")]
        host = [row for row in self if row.kind not in ("kernel", "copy")]
        parts = self._table.split("\n\n")
        for i, part in enumerate(parts):
            head, *lines = part.split("\n")
            rows = kernels if head.startswith("kernel") else host if head.startswith("on the host") else None
            if rows is None:
                continue
            order = range(len(lines))
            if sort_by in AMOUNTS and len(lines) == len(rows):
                order = sorted(order, key=lambda at: -getattr(rows[at], sort_by))
            parts[i] = "\n".join([head, *(lines[at] for at in order)][:None if row_limit < 0 else row_limit + 1])
        return "\n\n".join(parts if header is None else [header, *parts])


class profile:
    """Profiles the process while it is open. schedule: see `schedule`; `step` then ends a step, and
    on_trace_ready is called with the profile when an active cycle has ended. limits: measures at the end, in
    a second, what the machine can do, for the utilisation in the table.

    The memory of devices, and the lines and FLOPs of rows, are always recorded: profile_memory, with_stack
    and with_flops change nothing. Neither do record_shapes and with_modules, since a kernel computes several
    ops: rows have no shapes and modules."""

    _trace = None  # set also for an object whose __init__ failed

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False,
                 with_stack=False, with_flops=False, with_modules=False, experimental_config=None, acc_events=False, limits=False):
        for activity in activities or ():
            if not isinstance(activity, ProfilerActivity):
                raise ValueError(f"activities are ProfilerActivity.CPU and ProfilerActivity.CUDA, not {activity!r}")
        if experimental_config is not None:
            raise NotImplementedError("profile: experimental_config is asked for, which has settings of another profiler")
        if acc_events:
            raise NotImplementedError("profile: acc_events is asked for, a profile has the rows of its last cycle\n"
                                      "  hint: on_trace_ready is called with those of each")
        self._schedule, self._ready, self._limits = schedule, on_trace_ready, limits
        self._open, self._trace, self._seen, self.step_num = False, None, None, 0

    def _begin(self):
        _core._profile_begin()
        self._open = True
        if self._schedule and self._action() in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            _core._profile_pause()

    def _action(self):
        return self._schedule(self.step_num)

    def _end(self):
        self._open = False
        self._forget()
        handle, self._trace = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        _core._profile_end(self._trace, bool(self._limits))
        self._seen = _core._profile_seen()
        if self._ready:
            self._ready(self)

    def _forget(self):
        if self._trace and os.path.exists(self._trace):
            os.unlink(self._trace)
        self._trace = None

    def start(self):
        self._begin()

    def stop(self):
        if self._open:
            self._end()

    def step(self):
        """Ends a step of the schedule."""
        if not self._schedule or not self._open:
            self.step_num += 1
            return
        saved = self._action() is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if saved:
            self._end()
            self._begin()
        elif self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            _core._profile_resume()
        else:
            _core._profile_pause()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        if self._schedule and self._open and self._seen and self._action() in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._open = False  # nothing was recorded since the last cycle
            kept = _core._profile_end(None, False)
            return kept
        self.stop()

    def __del__(self):
        self._forget()

    def _have(self):
        if not self._seen:
            raise RuntimeError("the profile has not ended: leave its with block first")
        return self._seen

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        if group_by_input_shape:
            raise NotImplementedError("key_averages: group_by_input_shape is asked for, rows have no shapes\n"
                                      "  hint: each line of the program has rows of its own")
        rows = self._have()[0]
        return EventList([FunctionEventAvg(*row) for row in rows], self._seen[-1])

    def events(self):
        return self.key_averages()

    @property
    def seconds(self):
        """The seconds that were profiled."""
        return self._have()[1]

    @property
    def launch_seconds(self):
        """The seconds of these in kernels and copies."""
        return self._have()[2]

    @property
    def peak_bytes(self):
        """The maximum of bytes that devices held."""
        return self._have()[4]

    def export_chrome_trace(self, path):
        """Writes a file for ui.perfetto.dev or chrome://tracing."""
        self._have()
        shutil.copyfile(self._trace, path)


TIMES = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "cuda_time", "cuda_time_total", "self_cuda_time_total", "device_time",
         "device_time_total", "self_device_time_total")
AMOUNTS = ("count", "flops", "nbytes")


def tensorboard_trace_handler(dir_name, worker_name=None):
    """Returns a function for on_trace_ready that writes a file for each cycle to the folder."""
    os.makedirs(dir_name, exist_ok=True)
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def handler(p):
        p.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns() // 1_000_000}.pt.trace.json"))
    return handler


class record_function:
    """Profiles a range of the program under a name, as a with block or around a function."""

    def __init__(self, name):
        self.name = str(name)

    def __enter__(self):
        self._begin = _core._annotate_begin()
        return self

    def __exit__(self, *exception):
        _core._annotate_end(self.name, self._begin)

    def __call__(self, function):
        return decorate_with_context(function, lambda: record_function(self.name))


class emit_nvtx:
    """with emit_nvtx(): does nothing, as no tool of NVIDIA's listens."""

    def __init__(self, enabled=True, record_shapes=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


emit_itt = emit_nvtx


def kineto_available():
    """Returns False: kernels are timed by Cotan itself."""
    return False


__all__ = ["EventList", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule",
           "tensorboard_trace_handler"]
