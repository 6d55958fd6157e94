"""The worker threads of a data loader."""
import collections
import copy
import itertools
import queue
import threading

from ... import _core

WorkerInfo = collections.namedtuple("WorkerInfo", "id num_workers seed dataset")
_worker = threading.local()


def get_worker_info():
    """Returns, inside a worker, its id, the number of workers, its seed and dataset; elsewhere None."""
    return getattr(_worker, "info", None)


class Workers:
    """The state of a loader's workers: each has a copy of the dataset, which worker_init_fn may reduce to a
    part."""

    def __init__(self, dataset, is_dataset, n, init):
        self.datasets = [replica(dataset, is_dataset) if is_dataset(dataset) else dataset for _ in range(n)]
        self.init, self.ready = init, [False] * n

    def begin(self, number, seed):
        """Returns the dataset of a worker; called in its thread."""
        dataset = self.datasets[number]
        _worker.info = WorkerInfo(number, len(self.datasets), seed + number, dataset)
        if self.init and not self.ready[number]:
            self.init(number)
        self.ready[number] = True
        return dataset


def replica(dataset, is_dataset):
    """Copies the object and the datasets that it holds; everything else that it holds is shared, and so is an
    object with a finalizer, which would run for each copy."""
    if hasattr(type(dataset), "__del__"):
        return dataset
    try:
        made = copy.copy(dataset)
        inside = vars(made)
    except Exception:  # it cannot be copied
        return dataset
    for name, value in inside.items():
        if is_dataset(value):
            inside[name] = replica(value, is_dataset)
        elif isinstance(value, (list, tuple)) and any(map(is_dataset, value)) and not hasattr(value, "_fields"):
            inside[name] = type(value)(replica(one, is_dataset) if is_dataset(one) else one for one in value)
    return made


def _start_threads(work, n):
    for i in range(n):
        threading.Thread(target=work, args=(i,), daemon=True).start()


def _timeout_error(seconds):
    return RuntimeError(f"DataLoader timed out after {seconds} seconds")


def of_indices(workers, seed, indices, fetch, ahead, timeout):
    """Yields fetch(dataset, index) for each index, in order, made by whichever worker is free."""
    wanted, ready, stop, changed = queue.Queue(), {}, threading.Event(), threading.Condition()
    n = len(workers.datasets)

    def work(number):
        failure = dataset = None
        try:
            dataset = workers.begin(number, seed)
        except BaseException as error:
            failure = error
        while not stop.is_set():
            order, index = wanted.get()
            if order is None:
                return
            made = (None, failure)
            if failure is None:
                try:
                    batch = fetch(dataset, index)
                    # Evaluated in the worker, in parallel with the loop, and not when the loop reads it.
                    _core.eval()
                    made = (batch, None)
                except BaseException as error:  # raised in the loop that uses the batches
                    made = (None, error)
            with changed:
                ready[order] = made
                changed.notify_all()

    _start_threads(work, n)
    numbered, asked, given = enumerate(indices), 0, 0
    try:
        while True:
            for order, index in itertools.islice(numbered, n * ahead - (asked - given)):
                wanted.put((order, index))
                asked += 1
            if given == asked:
                return
            with changed:
                if not changed.wait_for(lambda: given in ready, timeout or None):
                    raise _timeout_error(timeout)
                batch, error = ready.pop(given)
            if error is not None:
                raise error
            given += 1
            yield batch
    finally:
        stop.set()
        for _ in range(n):
            wanted.put((None, None))


def of_streams(workers, seed, batches, ahead, timeout):
    """Yields the batches(dataset) of each worker's copy, one of each in turn, until all have ended."""
    n, stop = len(workers.datasets), threading.Event()
    made, room = [queue.Queue() for _ in range(n)], [threading.Semaphore(ahead) for _ in range(n)]

    def work(number):
        try:
            stream = batches(workers.begin(number, seed))
            while room[number].acquire() and not stop.is_set():
                batch = next(stream, made)
                if batch is made:
                    break
                _core.eval()
                made[number].put((batch, None))
            made[number].put((made, None))
        except BaseException as error:
            made[number].put((None, error))

    _start_threads(work, n)
    active = collections.deque(range(n))
    try:
        while active:
            number = active.popleft()
            try:
                batch, error = made[number].get(timeout=timeout or None)
            except queue.Empty:
                raise _timeout_error(timeout) from None
            if error is not None:
                raise error
            if batch is made:
                continue
            room[number].release()
            active.append(number)
            yield batch
    finally:
        stop.set()
        for one in room:
            one.release()
