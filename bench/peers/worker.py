"""A peer's side of `make bench`: worker.py PEER ROW OPTIONS THREADS SECONDS, with OPTIONS as JSON.

It says in a line of JSON which cases it has, and then answers each line of standard input as `build/bench/rows --stdin` does:
CASE is timed, `check CASE` gives mean and mean square of its results. Only what the peer needs is imported.
"""
import ctypes
import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from peers import rows  # noqa: E402

VENV = Path(__file__).resolve().parents[2] / ".venv-bench"


def flat(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


# A peer: `version`, has(case), and make(case) -> (run, read): run() computes, ready when it returns; read() -> the
# results as arrays.

class Torch:
    channels_last = False

    def __init__(self, threads, compiled):
        import torch
        self.torch, self.compiled, self.version = torch, compiled, torch.__version__
        torch.set_num_threads(threads)

    def has(self, case):
        return bool(case.torch or case.program and not (case.eager and self.compiled) or case.product and not self.compiled)

    def make(self, case):
        torch = self.torch
        if case.program:
            return case.program(torch, self.compiled)
        operands = [torch.from_numpy(np.ascontiguousarray(x)) for x in case.inputs()]
        if case.product:
            return self.products(case, operands)
        if self.channels_last:
            operands = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in operands]
        function = torch.compile(case.torch) if self.compiled else case.torch
        out = []
        if case.sgd:
            weights = [operands[i].requires_grad_() for i in case.wrt]
            optimizer = torch.optim.SGD(weights, lr=case.sgd[0], momentum=case.sgd[1], fused=True)

            def run():
                loss = function(torch, *operands)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                out[:] = [loss.detach(), weights[0].detach()]
        elif not case.wrt:
            def run():
                with torch.no_grad():
                    out[:] = [function(torch, *operands)]
        else:
            wrt = [operands[i].requires_grad_() for i in case.wrt]
            # A loss comes back as 1; dropout and cross-entropy give their result as well.
            cotangent = operands[1] if case.cotangent != -1 else None

            def run():
                y = function(torch, *operands)
                out[:] = torch.autograd.grad(y, wrt, cotangent)
                if case.cotangent < 0:
                    out.insert(0, y.detach())
        return run, lambda: [x.float().numpy() for x in out]

    def products(self, case, operands):
        m, k, n, form, times = case.product
        right, lefts = operands[0], operands[1:]
        right = right.t() if form == "dx" else right
        lefts = [x.t() for x in lefts] if form == "dw" else lefts
        out = [self.torch.empty(x.shape[0], right.shape[1]) for x in lefts]

        def run():
            for left, result in zip(lefts, out):
                self.torch.mm(left, right, out=result)
        return run, lambda: [x.numpy() for x in out]

    def cold_start(self, gradient, turn):
        torch, width = self.torch, 5 + turn % 2995
        x, w1, w2 = (torch.rand(8, width), torch.rand(width, 16, requires_grad=gradient), torch.rand(16, 4))
        y = torch.softmax(torch.tanh(x @ w1) @ w2, -1).square().mean()
        return torch.autograd.grad(y, w1)[0] if gradient else y.item()


class TorchChannelsLast(Torch):
    channels_last = True


class CotanPython(Torch):
    """Ours by PyTorch's names."""

    def __init__(self, threads, _):
        import cotan
        self.torch, self.compiled, self.version = cotan, False, cotan.__version__
        cotan.set_num_threads(threads)

    def has(self, case):
        return bool(case.torch or case.program)


class Jax:
    def __init__(self, threads, _):
        import jax
        self.jax, self.version = jax, jax.__version__

    def has(self, case):
        return bool(case.jax or case.vmapped)

    def make(self, case):
        jax = self.jax
        if case.vmapped:
            return case.vmapped(jax)
        operands = [jax.numpy.asarray(x) for x in case.inputs()]
        function = lambda *operands: case.jax(jax, *operands)  # noqa: E731
        if case.wrt:
            def gradient(*operands):
                def of(*wrt):
                    merged = list(operands)
                    for i, x in zip(case.wrt, wrt):
                        merged[i] = x
                    return case.jax(jax, *merged)
                y, back = jax.vjp(of, *(operands[i] for i in case.wrt))
                grads = back(jax.numpy.ones_like(y) if case.cotangent == -1 else operands[1])
                return ([y] if case.cotangent < 0 else []) + list(grads)
            compiled = jax.jit(gradient)
        else:
            compiled = jax.jit(function)
        out = []

        def run():
            out[:] = flat(jax.block_until_ready(compiled(*operands)))
        return run, lambda: [np.asarray(x, dtype=np.float64) for x in out]

    def cold_start(self, gradient, turn):
        jax, width = self.jax, 5 + turn % 2995
        x, w1, w2 = (np.ones(shape, np.float32) for shape in ((8, width), (width, 16), (16, 4)))

        def loss(w1, x, w2):
            return jax.numpy.square(jax.nn.softmax(jax.numpy.tanh(x @ w1) @ w2, -1)).mean()
        return jax.block_until_ready(jax.jit(jax.grad(loss) if gradient else loss)(w1, x, w2))


class Onnx:
    def __init__(self, threads, _):
        import onnx
        import onnxruntime
        self.onnx, self.runtime, self.version = onnx, onnxruntime, onnxruntime.__version__
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads

    def has(self, case):
        return bool(case.onnx and not case.wrt)

    def make(self, case):
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        operands = case.inputs()
        nodes = case.onnx(helper)
        used = {name for node in nodes for name in node.input if name.startswith("in")}
        constants = [self.onnx.numpy_helper.from_array(operands[i], f"in{i}") for i in case.constants if i < len(operands)]
        used -= {constant.name for constant in constants}
        inputs = [helper.make_tensor_value_info(f"in{i}", kind, x.shape) for i, x in enumerate(operands)
                  if f"in{i}" in used]
        result = helper.make_tensor_value_info("out", kind, None)
        graph = helper.make_graph(nodes, case.name, inputs, [result], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        session = self.runtime.InferenceSession(model.SerializeToString(), self.options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        for i, x in enumerate(operands):
            if f"in{i}" in used:
                binding.bind_cpu_input(f"in{i}", x)
        binding.bind_output("out")

        def run():
            session.run_with_iobinding(binding)
        return run, lambda: [binding.copy_outputs_to_cpu()[0]]


class Library:
    """Products by a function of a library: (a, b, c) -> None of arrays in row-major order."""

    def has(self, case):
        return bool(case.product)

    def make(self, case):
        m, k, n, form, times = case.product
        operands = case.inputs()
        sizes = {"forward": (m, k, n), "dx": (m, n, k), "dw": (k, m, n)}[form]  # rows, inner, columns of this product
        multiply = self.multiply(*sizes, form == "dw", form == "dx")
        out = [np.zeros((sizes[0], sizes[2]), np.float32) for _ in range(times)]
        of = [(left.ctypes.data, operands[0].ctypes.data, result.ctypes.data) for left, result in zip(operands[1:], out)]

        def run():
            for a, b, c in of:
                multiply(a, b, c)
        return run, lambda: (operands, out)[1]


class OpenBlas(Library):
    def __init__(self, threads, _):
        self.library = ctypes.CDLL(str(next(VENV.glob("debian/usr/lib/*/openblas-pthread/libopenblas.so.0"))))
        self.library.openblas_set_num_threads(threads)
        for name in ("config", "corename"):
            getattr(self.library, f"openblas_get_{name}").restype = ctypes.c_char_p
        self.version = f"{self.library.openblas_get_config().decode()}, core {self.library.openblas_get_corename().decode()}"

    def multiply(self, m, k, n, turned_a, turned_b):
        sgemm, row_major, plain, turned = self.library.cblas_sgemm, 101, 111, 112
        i, f, p = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        sgemm.argtypes = [i] * 6 + [f, p, i, p, i, f, p, i]
        how = (row_major, turned if turned_a else plain, turned if turned_b else plain, m, n, k, 1.0)
        strides = (m if turned_a else k, k if turned_b else n)
        return lambda a, b, c: sgemm(*how, a, strides[0], b, strides[1], 0.0, c, n)


class OneDnn(Library):
    def __init__(self, threads, _):
        self.library = ctypes.CDLL(str(VENV / "onednn.so"))
        self.library.onednn_new.restype = ctypes.c_void_p
        self.library.onednn_new.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_int] * 2
        self.library.onednn_run.argtypes = [ctypes.c_void_p] * 4
        self.version = "2.6, plain operands"

    def multiply(self, *what):
        product = self.library.onednn_new(*what)
        if not product:
            sys.exit("oneDNN refuses the product")
        return lambda a, b, c: self.library.onednn_run(product, a, b, c)


PEERS = {"PyTorch": (Torch, False), "PyTorch compiled": (Torch, True),
         "PyTorch channels last": (TorchChannelsLast, False), "JAX": (Jax, None),
         "Cotan in Python": (CotanPython, None), "ONNX Runtime": (Onnx, None), "OpenBLAS": (OpenBlas, None), "oneDNN": (OneDnn, None)}


def say(**what):
    print(json.dumps(what), flush=True)


def timed(run, seconds, times):
    """The median, as bench/rows measures: once at least, until the seconds are over."""
    all_ms, begin = [], time.perf_counter()
    while not all_ms or time.perf_counter() - begin < seconds and len(all_ms) < 1000:
        start = time.perf_counter()
        run()
        all_ms.append((time.perf_counter() - start) * 1e3 / times)
    return sorted(all_ms)[len(all_ms) // 2]


def serve_cases(peer, row, options, seconds):
    cases = {case.name: case for case in rows.ROWS[row].cases(options) if row == "cold-start" or peer.has(case)}
    say(cases=[{"case": name} for name in cases], version=peer.version)
    made, turn = (None, None), 0
    for line in sys.stdin:
        name = line.strip().removeprefix("check ")
        case = cases[name]
        if row == "cold-start":
            begin, turn = time.perf_counter(), turn + 1
            peer.cold_start(name == "gradient", turn)
            say(case=name, ms=(time.perf_counter() - begin) * 1e3)
            continue
        if made[0] != name:
            made = (None, None)
            made = (name, peer.make(case))
        run, read = made[1]
        run()  # it compiles, and fills the caches again
        if line.startswith("check "):
            say(case=name, moments=[rows.moments(x) for x in read()])
        else:
            say(case=name, ms=timed(run, seconds, case.product[-1] if case.product else 1))


def serve_training(kind, options, threads):
    from peers import gpt2_jax, gpt2_torch
    if kind == "JAX":
        step, version = gpt2_jax.trainer(options)
    else:
        framework = importlib.import_module("cotan" if kind == "Cotan in Python" else "torch")
        step, version = gpt2_torch.trainer(framework, options, threads, kind == "PyTorch compiled")
    for _ in range(3):
        step()
    say(cases=[{"case": "step"}], version=version)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = step()
        say(case="step", ms=(time.perf_counter() - begin) * 1e3, loss=loss, peak_rss_bytes=peak_rss())


def peak_rss():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    kind, row, options, threads, seconds = sys.argv[1:]
    options, threads = json.loads(options), int(threads)
    if row == "train gpt2":
        serve_training(kind, options, threads)
    else:
        make, how = PEERS[kind]
        serve_cases(make(threads, how), row, options, float(seconds))


if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[4])])  # JAX asks for no other number
    main()
