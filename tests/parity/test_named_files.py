"""save_file and load_file beside the `safetensors` package: bytes that are written, and what is read."""
import os

import numpy
import pytest

cotan = pytest.importorskip("cotan")
reference = pytest.importorskip("safetensors.numpy")
from safetensors import safe_open  # noqa: E402

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64".split()
NAMES = ("a.b/c d", "", "Ünï ☃", 'q"\n\\', "x" * 300)


def arrays(rng):
    made = {name: rng.standard_normal((2, 3)).astype("float32") for name in NAMES}
    made.update({dtype: (rng.standard_normal((rng.integers(0, 4), 2)) * 50).astype(dtype) for dtype in DTYPES})
    made["scalar"] = numpy.array(2.5)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_both_write_the_same_bytes(tmp_path, seed):
    theirs, ours, made = tmp_path / "theirs", tmp_path / "ours", arrays(numpy.random.default_rng(seed))
    metadata = {"format": "np", "ü": "é\n"} if seed % 2 else {"one": ""}
    reference.save_file(made, os.fspath(theirs), metadata)
    cotan.save_file({name: cotan.asarray(array) for name, array in made.items()}, ours, metadata)
    assert cotan.safe_open(theirs).metadata() == cotan.safe_open(ours).metadata() == metadata
    # The order of the metadata's keys is the reference's hash table's.
    if len(metadata) == 1:
        assert ours.read_bytes() == theirs.read_bytes()
    for path in (theirs, ours):
        read, again = cotan.load_file(path), reference.load_file(os.fspath(path))
        assert set(read) == set(made) == set(again)
        for name, array in made.items():
            for found in (read[name].numpy(), again[name]):
                assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all()
    with safe_open(os.fspath(ours), "np") as file:
        assert file.metadata() == metadata and sorted(file.keys()) == sorted(made)
