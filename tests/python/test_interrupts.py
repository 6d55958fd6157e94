"""Ctrl-C at any instant: each part of a training step happens whole or not at all, and no mode stays behind."""
import collections
import functools
import os
import random
import signal
import sys
import threading
import time
import _thread

import numpy as np
import pytest

import cotan
from cotan import nn, optim
from cotan.func import functional_call
from cotan.nn import functional as F
from cotan.nn.utils import clip_grad_norm_, parametrizations, parametrize


@pytest.fixture(autouse=True)
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


PACKAGE = os.path.dirname(cotan.__file__)


class At:
    """with At(n): the interrupt comes before the n-th instruction of the package and of this file, and is raised where the
    interpreter next looks for such. .seen: how many there were.

    The lookup in a dict that has no such key calls C alone, so that the tracer itself does not meet the signal."""

    def __init__(self, n):
        self.n, self.seen = n, 0
        self.trip = collections.defaultdict(functools.partial(_thread.interrupt_main, signal.SIGINT))

    def trace(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith((PACKAGE, __file__)):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.seen += 1
            if self.seen == self.n:
                sys.settrace(None)  # or the next call of this function would meet it
                self.trip[0]
        return self.trace

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *exception):
        sys.settrace(None)


def once(work, n):
    """The number of instructions of work(), and whether it was interrupted, at the n-th."""
    at = At(n)
    try:
        with at:
            work()
    except KeyboardInterrupt:
        return at.seen, True
    finally:
        sys.settrace(None)
    return at.seen, False


# ----------------------------------------------------------------------------------------- training


class Run:
    """A loop whose data and random numbers are by the step's number, which is that of the optimizer's steps."""

    def __init__(self, make, scaled=False, accumulate=1):
        cotan.manual_seed(0)
        draw = np.random.default_rng(0)
        self.x = draw.standard_normal((32, 8)).astype("float32")
        self.y = np.sin(self.x[:, :1])
        self.model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 1))
        self.optimizer = make(self.model.parameters())
        self.scheduler = optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, 5, 2)
        self.scaler = cotan.amp.GradScaler(init_scale=8.0, growth_interval=3, enabled=scaled)
        self.scaled, self.accumulate = scaled, accumulate

    @property
    def steps(self):
        state = [*self.optimizer.state.values()]
        return int(state[0]["step"]) if state else 0

    def step(self):
        i = self.steps
        if self.scheduler.last_epoch < i:  # the interrupt came between the two
            self.scheduler.step()
        cotan.manual_seed(i)
        self.optimizer.zero_grad(set_to_none=i % 2 == 0)
        for k in range(self.accumulate):
            rows = slice(4 * ((i + k) % 8), 4 * ((i + k) % 8) + 4)
            loss = F.mse_loss(self.model(cotan.asarray(self.x[rows])), cotan.asarray(self.y[rows]))
            self.scaler.scale(loss).backward() if self.scaled else loss.backward()
        if i % 3 == 0:
            loss.item()
        if self.scaled:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
        self.scheduler.step()

    def state(self):
        tensors = [*self.model.parameters()]
        for inside in self.optimizer.state_dict()["state"].values():
            tensors += [value for key, value in sorted(inside.items()) if key != "step"]
        numbers = [inside.get("step") for inside in self.optimizer.state_dict()["state"].values()]
        return ([one.detach().numpy().tobytes() for one in tensors], list(map(str, numbers)),
                self.optimizer.param_groups[0]["lr"], self.scheduler.T_cur, self.scaler.get_scale())


RUNS = {
    "adam": functools.partial(Run, functools.partial(optim.Adam, lr=1e-2, amsgrad=True, weight_decay=1e-2)),
    "adam, two parts a step": functools.partial(Run, functools.partial(optim.Adam, lr=1e-2), accumulate=2),
    "radam": functools.partial(Run, functools.partial(optim.RAdam, lr=1e-2)),
    "adamw, scaled": functools.partial(Run, functools.partial(optim.AdamW, lr=1e-2), scaled=True),
}
TRIALS = int(os.environ.get("COTAN_INTERRUPTS", 45))  # of each


@pytest.mark.parametrize("name", RUNS)
def test_a_step_is_interrupted_at_any_instruction(name):
    plain, run = RUNS[name](), RUNS[name]()
    for _ in range(2):
        plain.step()
    run.step()
    n, _ = once(run.step, 0)
    pick, interrupted = random.Random(1), 0
    for trial in range(TRIALS):
        at, steps = pick.randrange(1, n), run.steps
        interrupted += once(run.step, at)[1]
        assert cotan.is_grad_enabled() and run.steps - steps in (0, 1), at
        if run.steps == steps:
            run.step()
        elif run.scheduler.last_epoch < run.steps:
            run.scheduler.step()
        if run.scaled and run.scaler._stages:  # the interrupt came between the step and the update
            run.scaler.update()
        plain.step()
        assert run.state() == plain.state(), (trial, at)
    assert interrupted > TRIALS * 8 // 10


def test_signals_of_other_threads_while_plans_run():
    plain, run = RUNS["adam"](), RUNS["adam"]()
    pick, interrupted, reached = random.Random(2), 0, 0
    while interrupted < TRIALS // 2:
        timer = threading.Timer(pick.random() * 0.01, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                run.step()
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        assert cotan.is_grad_enabled()
        if run.scheduler.last_epoch < run.steps:
            run.scheduler.step()
        while reached < run.steps:
            plain.step()
            reached += 1
        assert run.state() == plain.state()


def test_a_handler_that_raises_nothing_costs_no_step():
    """SIGINT ends the plan that runs; where its handler goes on, so does the plan, with all that it assigns."""
    def train(noted):
        weight = nn.Parameter(cotan.ones(300, 300) / 300)
        optimizer = optim.SGD([weight], lr=1e-3)
        for i in range(4):
            y = weight
            for _ in range(8):
                y = y @ weight
            y.sum().backward()
            timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            if noted is not None:
                timer.start()
            optimizer.step()
            optimizer.zero_grad()
            if noted is not None:
                timer.join()
        return weight.detach().numpy().tobytes()

    plain, noted = train(None), []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    assert train(noted) == plain and noted == [signal.SIGINT] * 4


# ------------------------------------------------------------------------------------- other changes


def each_instant(work, check, most=200):
    """check() after work() was interrupted at each instruction (of many, at so many of them)."""
    n, _ = once(work, 0)
    for at in range(1, n + 1, max(1, n // most)):
        once(work, at)
        check(at)


def test_statistics_and_their_count_change_together():
    batches = np.random.default_rng(1).standard_normal((2000, 4, 3)).astype("float32")

    def make():
        layer = nn.BatchNorm1d(3)
        return layer, lambda: layer(cotan.asarray(batches[int(layer.num_batches_tracked)]))

    (one, forward), (plain, plainly) = make(), make()

    def check(at):
        while int(plain.num_batches_tracked) < int(one.num_batches_tracked):
            plainly()
        for name, value in one.state_dict().items():
            assert np.array_equal(value.numpy(), plain.state_dict()[name].numpy()), (at, name)

    each_instant(forward, check)
    layer = parametrizations.spectral_norm(nn.Linear(3, 3))
    inside = layer.parametrizations.weight[0]
    matrix = layer.parametrizations.weight.original.detach().numpy()

    def together(at):
        u, v = inside._u.numpy(), inside._v.numpy()
        assert np.allclose(v, matrix.T @ u / np.linalg.norm(matrix.T @ u), atol=1e-5), at

    each_instant(lambda: layer(cotan.ones(1, 3)), together, 100)


def test_zero_grad_and_backward_give_all_or_nothing():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    hooked = nn.Linear(2, 1)
    model[1].weight.register_hook(lambda grad: grad * 2)

    class Double(cotan.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def backward():
        h = model(cotan.ones(1, 2))
        h.retain_grad()
        work.h = h
        hooked(Double.apply(h)).sum().backward()

    class work:
        h = None

    parameters = [*model.parameters(), *hooked.parameters()]

    def whole(at):
        there = [one.grad is not None for one in parameters] + [work.h is not None and work.h.grad is not None]
        assert len(set(there)) == 1, (at, there)
        model.zero_grad()
        hooked.zero_grad()
        work.h = None

    each_instant(backward, whole, 150)
    optimizer = optim.SGD(parameters)
    for at in range(1, 200):
        for one in parameters:
            one.grad = cotan.ones(*one.shape)
        once(optimizer.zero_grad, at)
        assert len({one.grad is None for one in parameters}) == 1, at


def test_modes_are_what_they_were():
    layer = nn.Linear(2, 2)
    weight = layer.weight
    spectral = parametrizations.spectral_norm(nn.Linear(2, 2))
    x = cotan.ones(1, 2)

    @cotan.no_grad()
    def decorated():
        return x + 1

    def recorded(y):
        return layer(y) + cotan.rand(1, 2)

    def work():
        with cotan.no_grad(), cotan.enable_grad(), cotan.inference_mode():
            x + 1
        with cotan.set_grad_enabled(False):
            x + 1
        decorated()
        with cotan.autocast("cpu", dtype=cotan.bfloat16):
            x @ x.T
        functional_call(layer, {"weight": cotan.ones(2, 2), "bias": cotan.ones(2)}, (x,))
        with parametrize.cached():
            spectral.weight
        cotan.compile(recorded)(x)

    def check(at):
        assert cotan.is_grad_enabled() and cotan._core._autocast_dtype() == cotan.float32, at
        assert layer.weight is weight and weight.shape == (2, 2) and weight.requires_grad, at
        assert not parametrize._cached and not parametrize._cache, at
        assert cotan._random._given.keys is None, at

    each_instant(work, check, 200)
    mode = cotan.no_grad()
    with mode:
        with mode:
            pass
        assert not cotan.is_grad_enabled()
    assert cotan.is_grad_enabled()


def test_other_signals_wait_too():
    """SIGALRM's handler raises: a step and its count are one."""
    class Late(Exception):
        pass

    def late(number, frame):
        raise Late

    plain, run, came = RUNS["radam"](), RUNS["radam"](), 0
    pick, reached = random.Random(3), 0
    before = signal.signal(signal.SIGALRM, late)
    try:
        while came < 20:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-3 + pick.random() * 4e-3)
                while True:
                    run.step()
            except Late:
                came += 1
            if run.scheduler.last_epoch < run.steps:
                run.scheduler.step()
            while reached < run.steps:
                plain.step()
                reached += 1
            assert run.state() == plain.state()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_never_ends_is_ended_by_the_second_signal():
    optimizer = optim.SGD([nn.Parameter(cotan.ones(1))])
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    optimizer.step()

    begin = time.monotonic()

    def forever(step):
        signal.raise_signal(signal.SIGINT)
        while True:
            time.sleep(0.01)
            if time.monotonic() - begin > 1.2:
                signal.raise_signal(signal.SIGINT)

    schedule.lr_lambdas = [forever]
    with pytest.raises(KeyboardInterrupt):
        schedule.step()
    assert time.monotonic() - begin > 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
