"""Threads: each records and runs at once with the others, and what one made is of use to all."""
import concurrent.futures
import copy
import gc
import io
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import cotan
from cotan import nn, optim
from cotan.nn import functional as F
from cotan.utils.data import DataLoader, Dataset

THREADS = 8


def in_thread(function, *args):
    """What the function gives, or raises, in a thread that has ended by then."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def together(function, n=THREADS):
    """function(i) for n numbers, in as many threads that begin at once."""
    start = threading.Barrier(n)

    def run(i):
        start.wait()
        return function(i)

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return [future.result() for future in [pool.submit(run, i) for i in range(n)]]


def data(seed, rows=32):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 8)).astype("float32")  # (rows, 8)
    return x, x @ rng.standard_normal((8, 1)).astype("float32")  # (rows, 1)


def make_model(seed):
    rng = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    with cotan.no_grad():
        for p in model.parameters():
            p.copy_(cotan.asarray(rng.standard_normal(p.shape).astype("float32")))
    return model


def train(seed, steps=20):
    """All that a training comes to: losses and parameters, as bytes."""
    model, losses = make_model(seed), []
    adam = optim.Adam(model.parameters(), lr=1e-2)
    x, y = map(cotan.asarray, data(seed))
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy().tobytes() for p in model.parameters()]


def forward(model, x):
    """The same by NumPy, for the model of make_model."""
    w1, b1, w2, b2 = [p.detach().numpy().astype("float64") for p in model.parameters()]
    return np.tanh(x @ w1.T + b1) @ w2.T + b2


# ------------------------------------------------------------------------------------ values handed over

@pytest.mark.parametrize("when", ["pending", "evaluated"])
def test_values_outlive_their_thread(when):
    def make():
        x = cotan.asarray(np.arange(6, dtype="float32").reshape(2, 3)) * 2 + 1
        if when == "evaluated":
            cotan.eval(x)
        return x, x.T, x[1], cotan.asarray(3), cotan.asarray([True, False])

    x, turned, row, three, mask = in_thread(make)
    want = np.arange(6, dtype="float32").reshape(2, 3) * 2 + 1
    assert x.shape == (2, 3) and x.dtype == cotan.float32 and not x.requires_grad
    assert np.array_equal(x.numpy(), want) and np.array_equal(turned.numpy(), want.T)
    assert row.tolist() == [7, 9, 11] and int(three) == 3 and list(range(5))[three] == 3
    assert np.array_equal((x + row).numpy(), want + want[1]) and x[mask].tolist() == [[1, 3, 5]]
    assert np.array_equal(np.from_dlpack(x), want) and "7." in repr(x)
    assert cotan.asarray(x) is x and np.array_equal(cotan.asarray(x, copy=True).numpy(), want)


def test_a_tensor_of_a_thread_that_waits():
    """A pool's thread does not end, and what it made has not run."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda i: cotan.asarray([float(i)]) * i, range(50)))
        assert [part.item() for part in parts] == [float(i * i) for i in range(50)]
        total = pool.submit(lambda: sum(parts[1:], parts[0])).result()
    assert total.item() == sum(i * i for i in range(50))


def test_the_other_way_round():
    x = cotan.asarray([1.0, 2.0]) * 3
    assert together(lambda i: (x * i).tolist()) == [[3.0 * i, 6.0 * i] for i in range(THREADS)]
    before = x.tolist()
    in_thread(x.__iadd__, 1)
    assert x.tolist() == [value + 1 for value in before]
    y = x[:1]
    in_thread(x.zero_)
    assert y.tolist() == [0]
    in_thread(y.fill_, 5.0)
    assert x.tolist() == [5, 0]


def test_without_a_copy():
    x = in_thread(lambda: cotan.asarray(np.zeros(1000, "float32")) + 1)
    view = x.numpy()
    assert np.shares_memory(view, x.numpy())
    assert in_thread(lambda: np.shares_memory(view, x.numpy()))


def test_collected_by_whom_it_may():
    """Memory of a tensor is free at the next call, whichever thread named it last."""
    cotan.eval()

    def live():
        cotan.eval(cotan.asarray(0.0))
        return cotan._core.stats()["live_bytes"]

    before = live()
    box = [cotan.asarray(np.zeros(1 << 20, "float32")) + 1]
    cotan.eval(box[0])
    assert live() > before + (4 << 20) - 1000
    in_thread(box.clear)
    assert live() < before + 100000
    box = in_thread(lambda: [cotan.asarray(np.zeros(1 << 20, "float32")) + 1])
    assert box[0].sum().item() == 1 << 20
    box.clear()
    assert live() < before + 100000


def test_cycles_and_finalizers():
    """The collector frees tensors in whichever thread it runs."""
    seen = []

    class Node:
        def __init__(self, i):
            self.me, self.tensor = self, cotan.asarray([float(i)] * 100) * 2
            self.leaf = cotan.Tensor([1.0], requires_grad=True)
            weakref.finalize(self.tensor, seen.append, i)

    def work(i):
        for k in range(200):
            node = Node(k)
            if k % 50 == 0:
                assert node.tensor.sum().item() == 200.0 * k
                gc.collect()
        return node

    nodes = together(work)
    assert [node.tensor[0].item() for node in nodes] == [398.0] * THREADS
    del nodes
    gc.collect()
    assert len(seen) == THREADS * 200


def test_hand_overs_hold_memory_level():
    def make(i):
        return cotan.asarray([float(i)] * 64) * 2

    levels = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for turn in range(11):
            for i in range(1000):
                assert pool.submit(make, i).result()[0].item() == 2 * i
            levels.append(cotan._core.stats()["memory"])
    assert max(levels[1:]) <= levels[1] + 20000
    levels = []
    for turn in range(4):
        for i in range(200):  # the threads end
            box = []
            thread = threading.Thread(target=lambda: box.append(make(i)))
            thread.start()
            thread.join()
            assert box.pop()[0].item() == 2 * i
        levels.append(cotan._core.stats()["memory"])
    assert max(levels[1:]) <= levels[1] + 20000


def test_a_thread_that_ends_with_pending_work():
    def record():
        x = cotan.Tensor([1.0, 2.0], requires_grad=True)
        with cotan.no_grad():
            x.copy_(x * 10)
        y = cotan.asarray([3.0]) + 1
        y += 1
        return x, y

    x, y = in_thread(record)
    assert x.requires_grad and x.tolist() == [10, 20] and y.tolist() == [5]
    (x * y).sum().backward()
    assert x.grad.tolist() == [5, 5]


# ------------------------------------------------------------------------------------------------ models

def test_inference_of_one_model():
    model, xs = make_model(0), [data(i)[0] for i in range(THREADS)]
    model.register_buffer("scale", cotan.asarray([2.0]) * 2)

    def infer(i):
        with cotan.no_grad():
            return [(model(cotan.asarray(xs[i])) * model.scale).numpy().tobytes() for _ in range(10)]

    alone = [infer(i) for i in range(THREADS)]
    assert np.allclose(np.frombuffer(alone[3][0], "float32"), 4 * forward(model, xs[3])[:, 0], atol=1e-4)
    for _ in range(3):
        assert together(infer) == alone


def test_gradients_of_one_model():
    model, batches = make_model(0), [data(i) for i in range(THREADS)]
    names = list(model.parameters())

    def slopes(i):
        x, y = map(cotan.asarray, batches[i])
        return [g.numpy().tobytes() for g in cotan.autograd.grad(F.mse_loss(model(x), y), names)]

    alone = [slopes(i) for i in range(THREADS)]
    for _ in range(3):
        assert together(slopes) == alone


def test_backward_in_all_threads_adds_up():
    model, batches = make_model(0), [data(i) for i in range(THREADS)]

    def backward(i):
        x, y = map(cotan.asarray, batches[i])
        for _ in range(5):
            F.mse_loss(model(x), y).backward()

    for i in range(THREADS):
        backward(i)
    alone = [p.grad.numpy() for p in model.parameters()]
    for _ in range(3):
        model.zero_grad()
        together(backward)
        for p, want in zip(model.parameters(), alone):
            assert np.allclose(p.grad.numpy(), want, rtol=1e-4, atol=1e-4)
    together(lambda i: backward(i) if i % 4 else [model.zero_grad() for _ in range(50)])


def test_each_thread_trains():
    alone = [train(i) for i in range(THREADS)]
    for _ in range(3):
        assert together(train) == alone


def test_a_model_that_is_made_and_trained_elsewhere():
    model = in_thread(make_model, 5)
    x, y = data(5)
    assert np.allclose(model(cotan.asarray(x)).detach().numpy(), forward(make_model(5), x), atol=1e-5)

    def fit():
        sgd = optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        for _ in range(50):
            sgd.zero_grad()
            loss = F.mse_loss(model(cotan.asarray(x)), cotan.asarray(y))
            loss.backward()
            sgd.step()
        return loss

    first = F.mse_loss(model(cotan.asarray(x)), cotan.asarray(y)).item()
    for _ in range(3):  # each time another thread
        last = in_thread(fit)
    assert last.item() < first / 10
    assert np.allclose(model(cotan.asarray(x)).detach().numpy(), forward(model, x), atol=1e-5)


def test_evaluated_and_saved_while_it_trains(tmp_path):
    model, x = nn.Linear(64, 1, bias=False), cotan.ones(1, 64)
    with cotan.no_grad():
        model.weight.fill_(0.0)
    done, failures, seen = threading.Event(), [], []

    def look(i):
        try:
            while not done.is_set():
                with cotan.no_grad():
                    if i == 0:  # all of the weights are one step's
                        out = [model.weight.numpy()]
                    elif i == 1:
                        file = io.BytesIO()
                        cotan.save(model.state_dict(), file)
                        out = [cotan.load(io.BytesIO(file.getvalue()))["weight"].numpy()]
                    elif i == 2:
                        out = [copy.deepcopy(model).weight.numpy()]
                    else:
                        y = model(x)
                        time.sleep(0.001)
                        out = [model.weight.numpy(), y.numpy() / 64]
                for part in out:
                    assert (part == part.ravel()[0]).all()
                assert out[-1].max() >= 0 and out[0].max() <= 400 and out[0].max() >= out[-1].max()
                seen.append(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    sgd = optim.SGD(model.parameters(), lr=1.0)
    for step in range(400):
        sgd.zero_grad()
        (-model(x).sum()).backward()
        sgd.step()
    while not failures and set(seen) != {0, 1, 2, 3}:
        time.sleep(0.001)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert model.weight.tolist() == [[400.0] * 64]


def test_all_threads_assign_one_model_by_turns():
    model, x, lock = nn.Linear(16, 1, bias=False), cotan.ones(1, 16), threading.Lock()
    with cotan.no_grad():
        model.weight.fill_(0.0)

    def work(i):
        for turn in range(50):
            slope, = cotan.autograd.grad(model(x).sum(), [model.weight])
            with lock, cotan.no_grad():
                model.weight += slope  # ones
            if turn % 10 == i:
                with cotan.no_grad():
                    row = (model.weight * x).numpy().ravel()
                assert (row == row[0]).all() and turn < row[0] <= THREADS * 50

    for _ in range(3):
        before = model.weight.tolist()[0][0]
        together(work)
        assert model.weight.tolist() == [[before + THREADS * 50] * 16]
        model.weight.data.fill_(0.0)


def test_workers_of_a_loader():
    images = cotan.asarray(np.arange(60, dtype="float32").reshape(20, 3)) / 2

    class Scaled(Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, i):
            return images[i] * 2, i

    made = []

    def collate(batch):
        made.append(threading.get_ident())
        return cotan.stack([x for x, _ in batch]), [i for _, i in batch]

    for _ in range(5):
        batches = list(DataLoader(Scaled(), batch_size=5, num_workers=3, collate_fn=collate))
        assert np.array_equal(np.concatenate([x.numpy() for x, _ in batches]), np.arange(60).reshape(20, 3))
        assert [i for _, rows in batches for i in rows] == list(range(20))
    assert threading.get_ident() not in made


# ------------------------------------------------------------------------------------------- other states

def test_modes_are_the_thread_s():
    with cotan.no_grad():
        assert in_thread(cotan.is_grad_enabled) and not cotan.is_grad_enabled()

    def leave_off():
        cotan.set_grad_enabled(False)

    in_thread(leave_off)
    assert in_thread(cotan.is_grad_enabled)  # the next thread has its context


def test_traced_functions_in_all_threads():
    w = cotan.asarray([1.0, 2.0])

    def work(i):
        x = cotan.asarray(np.arange(6, dtype="float32").reshape(3, 2) + i)
        return [cotan.vmap(lambda row: (row * w).sum())(x).tolist() for _ in range(5)]

    for got, i in zip(together(work), range(THREADS)):
        assert got == [[2.0 + 3 * i, 8.0 + 3 * i, 14.0 + 3 * i]] * 5


def test_errors():
    x = cotan.Tensor([1.0], requires_grad=True)

    y = in_thread(lambda: x * 2)
    assert y.requires_grad and not y.is_leaf and y.item() == 2 and y.shape == (1,)
    with pytest.raises(cotan.ContextError) as error:
        y + 1
    assert str(error.value) == (
        f"{__file__}:{error.traceback[0].lineno + 1}: read: the tensor has a history, which another thread recorded and keeps\n"
        "  hint: detach() gives its value; backward() belongs into the thread that computed it")
    with pytest.raises(cotan.ContextError, match="the tensor has a history, which another thread recorded and keeps"):
        y.backward()
    assert (y.detach() + 1).tolist() == [3]
    with cotan.no_grad():
        assert (y + 1).tolist() == [3]

    def trace():
        def inside(row):
            with pytest.raises(cotan.TraceError) as error:
                in_thread(row.tolist)
            assert str(error.value) == ("read: the tensor is a traced function's, in another thread\n"
                                        "  hint: return it as a result of the function, and read it outside")
            return row

        return cotan.vmap(inside)(cotan.asarray([[1.0], [2.0]])).tolist()

    assert trace() == [[1.0], [2.0]]


def test_a_thread_that_waits_for_one_that_traces():
    pending, begun, got = cotan.asarray([1.0]) * 2, threading.Event(), []
    other = threading.Thread(target=lambda: (begun.set(), got.append(pending.tolist())))

    def inside(row):
        other.start()
        begun.wait()
        time.sleep(0.05)
        with pytest.raises(cotan.TraceError):
            row.item()  # is no time for the other's turn, either
        return row

    assert cotan.vmap(inside)(cotan.asarray([[1.0], [2.0]])).tolist() == [[1.0], [2.0]]
    other.join()
    assert got == [[2.0]]


def test_what_fails_is_told_where_it_is_read():
    def fail():
        return cotan.ops.cholesky(cotan.asarray([[-1.0]])), cotan.asarray([1.0]) + 1

    lines = range(fail.__code__.co_firstlineno, fail.__code__.co_firstlineno + 2)
    says = "cholesky: the matrix is not positive definite: its first 1 rows and columns are not"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        bad, good = pool.submit(fail).result()
        with pytest.raises(cotan.Error) as error:
            bad.numpy()
        assert str(error.value) in [f"{__file__}:{line}: {says}" for line in lines]
        assert pool.submit(lambda: (cotan.asarray([1.0]) + 1).tolist()).result() == [2]  # which goes on
    bad, good = in_thread(fail)  # the thread has ended
    for _ in range(2):
        with pytest.raises(cotan.Error) as error:
            bad.tolist()
        assert str(error.value) in [f"{__file__}:{line}: {says}" for line in lines]
        assert in_thread(lambda: (cotan.asarray([1.0]) + 1).tolist()) == [2]  # and who comes after it goes on
    assert good.tolist() == [2]


WAITS = """
import os, signal, threading, time
import cotan
big = cotan.ones(1000, 1000) * 1e-3
cotan.eval(big)
box, started, done = [], threading.Event(), threading.Event()
def work():
    y = big
    for _ in range(200):
        y = y @ big
    box.append(y)
    started.set()
    y.sum().item()
    done.set()
threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.2)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    box[0].LOOK
except KeyboardInterrupt:
    print("interrupted", done.is_set())
"""


@pytest.mark.parametrize("look", ["shape", "tolist()"])
def test_waiting_for_a_busy_thread_is_interrupted(look):
    done = subprocess.run([sys.executable, "-c", WAITS.replace("LOOK", look)], capture_output=True, text=True, timeout=100, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted False\n", "")


PROGRAM = """
import threading, time
import cotan
def work():
    x = cotan.Tensor([1.0] * 100, requires_grad=True)
    while True:
        y = (x * 2).sum()
        y.backward()
        y.item()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
kept = []
threading.Thread(target=lambda: kept.append(cotan.asarray([1.0]) * 2)).start()
time.sleep(0.5)
print(kept[0].item())
"""


def test_the_process_ends_with_daemon_threads():
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, env=os.environ)
        assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


FORK = """
import collections, os, threading, cotan
x = cotan.asarray([1.0]) * 2
stop, last = threading.Event(), collections.deque(maxlen=3)
def work():
    y = cotan.asarray([1.0] * 1000)
    while not stop.is_set():
        y = y * 1.0
        last.append(y)
        y.sum().item()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
while len(last) < 3: pass
for _ in range(40):
    child = os.fork()
    if not child:
        for look in (x.item, last[0].tolist, last[-1].tolist, lambda: last[-1] + 1):
            try:
                look()
                os._exit(1)
            except cotan.ForkError:
                pass
        del x
        last.clear()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
for thread in threads: thread.join()
print(x.item())
"""


def test_forked_while_others_run():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")
