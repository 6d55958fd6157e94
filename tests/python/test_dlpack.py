"""Arrays to and from other libraries by DLPack: shared memory, right values, errors as whole messages."""
import ctypes
import gc
import os
import subprocess
import threading
import weakref

import jax
import ml_dtypes
import numpy
import pytest

import cotan

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
          "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpys_arrays_go_there_and_back_without_a_copy(dtype):
    x = (numpy.arange(12).reshape(3, 4) % 5).astype(dtype)
    t = cotan.from_dlpack(x)
    assert t.dtype == getattr(cotan, dtype) and t.shape == (3, 4) and (t.numpy() == x).all()
    back = numpy.from_dlpack(t)
    assert back.dtype == x.dtype and numpy.shares_memory(back, x) and not back.flags.writeable
    assert t.__dlpack_device__() == (1, 0)


def test_what_is_no_row_major_memory_is_copied():
    x = numpy.arange(24.0).reshape(4, 6)
    odd = numpy.frombuffer(b"x" + x.tobytes(), "u1")[1:].view("f8").reshape(4, 6)
    for array in (x.T, x[::-1], x[::2, ::-3], numpy.broadcast_to(x[0], (3, 6)), numpy.asfortranarray(x), odd):
        assert (cotan.from_dlpack(array).numpy() == array).all()
        with pytest.raises(BufferError, match="^copy=False: the array(?:'s | is not contiguous)"):
            cotan.from_dlpack(array, copy=False)
        with pytest.raises(ValueError, match="^copy=False: the array(?:'s | is not contiguous)"):
            cotan.asarray(array, copy=False)
    for array in (x[:0], numpy.zeros((3, 0)).T, numpy.array(2.5), x[2:], x[1:2].T):
        t = cotan.from_dlpack(array, copy=False)
        assert t.shape == array.shape and (t.numpy() == array).all()


def test_sharing_sees_writes_and_copies_do_not():
    x = numpy.zeros(4, "float32")
    shared, asked = cotan.from_dlpack(x), cotan.asarray(x, copy=False)
    copies = [cotan.from_dlpack(x, copy=True), cotan.from_numpy(x), cotan.asarray(x), cotan.asarray(x, copy=True)]
    later = shared + 1
    x[:] = 5
    assert shared.tolist() == asked.tolist() == [5.0] * 4 and later.tolist() == [6.0] * 4
    assert [t.tolist() for t in copies] == [[0.0] * 4] * 4
    assert cotan.asarray(shared, copy=False) is shared and cotan.asarray(shared, copy=True) is not shared
    data = bytearray(b"abc")
    t = cotan.asarray(data, copy=False)
    data[0] = 0
    assert t.tolist() == [0, 98, 99]


def test_exports_stay_as_they_are_while_they_live():
    t = cotan.asarray([1.0, 2.0, 3.0])
    view = numpy.from_dlpack(t)
    own = numpy.from_dlpack(t, copy=True)
    own[0] = 7  # of its own memory
    for _ in range(5):
        t += 1
        t.tolist()
    del t
    gc.collect()
    (cotan.asarray([5.0, 5.0, 5.0]) * 2).tolist()
    assert view.tolist() == [1.0, 2.0, 3.0] and own.tolist() == [7.0, 2.0, 3.0]
    thread = threading.Thread(target=lambda box: box.clear(), args=([view],))
    del view
    thread.start()
    thread.join()


def test_an_array_is_given_back_when_no_tensor_needs_it():
    class Watched(numpy.ndarray):
        pass

    gone = []
    x = numpy.zeros(3, "float32").view(Watched)
    weakref.finalize(x, gone.append, 1)
    t = cotan.from_dlpack(x)
    u = t + 1
    del x
    gc.collect()
    assert not gone and u.tolist() == [1.0] * 3
    del t, u
    cotan.eval()
    cotan.asarray(0)
    cotan.eval()
    cotan.asarray(0)
    assert gone


def test_jax_and_pytorch_share_it_too():
    x = jax.numpy.arange(6.0).reshape(2, 3)
    assert (numpy.asarray(cotan.from_dlpack(x)) == numpy.asarray(x)).all()
    assert jax.dlpack.from_dlpack(cotan.asarray([1.5, 2])).tolist() == [1.5, 2.0]
    b = cotan.from_dlpack(jax.numpy.ones(3, "bfloat16"))
    assert b.dtype == cotan.bfloat16 and (b.numpy() == numpy.ones(3, ml_dtypes.bfloat16)).all()


PYTORCH = """
import cotan, torch
x = torch.arange(6.0).reshape(2, 3)
t, moved, capsule = cotan.from_dlpack(x), cotan.from_dlpack(x.T), cotan.from_dlpack(torch.utils.dlpack.to_dlpack(x))
x[0, 0] = 7
print(t.tolist(), moved.tolist(), capsule.tolist())
y = cotan.asarray([[1.0, 2.0]])
a, b = torch.from_dlpack(y), torch.from_dlpack(y)
print(a.tolist(), a.data_ptr() == b.data_ptr(), torch.from_dlpack(cotan.asarray([1.5], dtype="bfloat16")).dtype)
"""


@pytest.mark.skipif(not os.path.exists("/usr/lib/python3/dist-packages/torch"), reason="needs Debian's python3-torch")
def test_pytorch_shares_it():
    done = subprocess.run(["/usr/bin/python3", "-c", PYTORCH], capture_output=True, text=True, timeout=120)
    assert done.stdout == ("[[7.0, 1.0, 2.0], [3.0, 4.0, 5.0]] [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] "
                           "[[7.0, 1.0, 2.0], [3.0, 4.0, 5.0]]\n[[1.0, 2.0]] True torch.bfloat16\n"), done.stderr


# ---------------------------------------------------------------------- capsules made by hand

class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("sizes", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("owner", ctypes.c_void_p),
                ("end", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", Array)]


ENDED = []
END = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ENDED.append)
DATA = (ctypes.c_float * 8)(*range(8))
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
KEPT = []


def capsule(sizes=(2, 3), strides=None, name=b"dltensor_versioned", major=1, **fields):
    held = Versioned(major=major, minor=3, end=ctypes.cast(END, ctypes.c_void_p))
    numbers = [(ctypes.c_int64 * 8)(*sizes), (ctypes.c_int64 * 8)(*(strides or ()))]
    a = dict(data=ctypes.addressof(DATA), type=1, rank=len(sizes), code=2, bits=32, lanes=1,
             sizes=ctypes.addressof(numbers[0]), strides=ctypes.addressof(numbers[1]) if strides else None)
    for key, value in {**a, **fields}.items():
        setattr(held.array, key, value)
    KEPT.append((held, numbers))
    return new_capsule(ctypes.addressof(held), name, None)


@pytest.mark.parametrize("options, want", [
    ({}, [[0, 1, 2], [3, 4, 5]]),
    ({"offset": 8}, [[2, 3, 4], [5, 6, 7]]),
    ({"strides": (3, 1)}, [[0, 1, 2], [3, 4, 5]]),
    ({"strides": (1, 2)}, [[0, 2, 4], [1, 3, 5]]),
    ({"strides": (-3, 1), "offset": 12}, [[3, 4, 5], [0, 1, 2]]),
    ({"strides": (0, 1)}, [[0, 1, 2], [0, 1, 2]]),
    ({"sizes": (0, 3), "data": None}, []),
    ({"sizes": ()}, 0),
])
def test_capsules_give_their_values_and_end_once(options, want):
    before = len(ENDED)
    t = cotan.from_dlpack(capsule(**options))
    assert t.tolist() == want
    del t
    cotan.eval()
    cotan.asarray(0)
    assert len(ENDED) == before + 1


@pytest.mark.parametrize("options, text", [
    ({"type": 2}, "DLPack: the array is on a device of type 2, only type 1, the CPU, is read\n"
                  "  hint: copy it to the CPU first"),
    ({"lanes": 4}, "DLPack: elements of 4 lanes, only 1 can be read"),
    ({"bits": 24}, "DLPack: elements are float of 24 bits, which Cotan has not"),
    ({"code": 3, "bits": 64}, "DLPack: elements are of type code 3 with 64 bits, which Cotan has not"),
    ({"rank": 99}, "DLPack: the array has 99 axes, a tensor has at most 32"),
    ({"sizes": (2, -3)}, "DLPack: axis 1 has -3 elements"),
    ({"major": 2}, "DLPack: the array is of version 2.3, 1.x can be read"),
])
def test_arrays_that_cannot_be_read_say_why_and_are_given_back(options, text):
    before = len(ENDED)
    with pytest.raises(BufferError) as error:
        cotan.from_dlpack(capsule(**options))
    assert str(error.value) == text and len(ENDED) == before + 1


def test_misuse_says_what_is_wrong():
    used, x = capsule(), cotan.asarray([1.0])
    cotan.from_dlpack(used)
    for call, kind, text in (
            (lambda: cotan.from_dlpack(used), ValueError,
             "the DLPack capsule was used before; each is good for one use"),
            (lambda: cotan.from_dlpack(capsule(name=b"other")), ValueError,
             'a capsule named "other" is none of DLPack\'s'),
            (lambda: cotan.from_dlpack(3), TypeError,
             "from_dlpack() takes an array that has __dlpack__, or a capsule, not 3"),
            (lambda: cotan.from_dlpack(x, device="cuda"), ValueError,
             "device 'cuda': arrays are exchanged on \"cpu\" alone"),
            (lambda: cotan.from_numpy([1]), TypeError, "from_numpy() takes a NumPy array, not [1]"),
            (lambda: cotan.asarray([1], copy=False), ValueError,
             "copy=False: [1] has no memory that a tensor could share"),
            (lambda: cotan.asarray(numpy.zeros(2), dtype="float32", copy=False), ValueError,
             "copy=False: the array is float64, and float32 takes a copy"),
            (lambda: x.__dlpack__(stream=1), BufferError, "__dlpack__: the CPU has no streams, stream is 1"),
            (lambda: x.__dlpack__(dl_device=(2, 0)), BufferError,
             "__dlpack__: the tensor is on device (1, 0), the CPU, and goes to no other; dl_device is (2, 0)"),
            (lambda: cotan.asarray([1], dtype="int4").__dlpack__(), BufferError,
             "__dlpack__: elements of int4 have fewer than 8 bits"),
            (lambda: x.__dlpack__(max_version=(1,)), ValueError, "max_version must be two numbers, not (1,)")):
        with pytest.raises(kind) as error:
            call()
        assert str(error.value) == text


def test_capsules_are_named_by_the_version_that_is_asked_for():
    x = cotan.asarray([1.0])
    assert '"dltensor"' in repr(x.__dlpack__()) and '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 0)))
