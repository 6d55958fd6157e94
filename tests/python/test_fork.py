"""A forked child of a process that has used the library raises one sentence, and ends without hanging."""
import subprocess
import sys

PROGRAM = """
import os, signal, sys
import cotan, numpy
x = cotan.asarray([1.0, 2.0])
w = cotan.Tensor([1.0], requires_grad=True)
(x + w).tolist()
view, other = x.numpy(), numpy.from_dlpack(x)
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs dies of it
    for use in (lambda: x * 2, lambda: cotan.asarray([1]), x.tolist, lambda: w + 1):
        try:
            use()
        except RuntimeError as error:
            print(type(error).__name__, error, flush=True)
    print(view.sum(), flush=True)
    del view, other, x, w
    sys.exit(0)
print(os.waitpid(child, 0)[1], (x + w).tolist())
"""


def test_a_forked_child_says_what_to_do_and_ends():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    said = ("ForkError this process was forked from one that had used Cotan, and cannot use it\n  hint: "
            "multiprocessing's start methods \"spawn\" and \"forkserver\" work; or fork before the first use\n")
    assert done.stdout == 4 * said + "3.0\n0 [2.0, 3.0]\n", done.stderr
