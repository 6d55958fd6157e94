"""GGUF files of the gguf package as Cotan reads them, and ggml's blocks of every type as gguf.quants unpacks them."""
import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
quants = pytest.importorskip("gguf.quants")
from support.weights_dump import build, dump  # noqa: E402


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dump"))


def write(path, tensors):
    writer = gguf.GGUFWriter(path, "none")
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_blocks(tmp_path, program):
    """Bytes of any value: scales that are infinite, no number, or subnormal come with them. All of 2 bytes' values too."""
    rng = np.random.default_rng(12)
    tensors, want = {}, {}
    for kind in gguf.GGMLQuantizationType:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = 256 if elements > 1 else 4
        blocks = rng.integers(0, 256, (rows, 4096 // elements * size), dtype=np.uint8)
        if size == 2:
            blocks = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(16, -1)
        try:
            want[kind.name] = quants.dequantize(blocks, kind)
        except NotImplementedError:
            continue
        tensors[kind.name] = blocks, kind
    assert len(tensors) == 26
    write(tmp_path / "m.gguf", tensors)
    got = dump(program, tmp_path / "m.gguf")
    for name, numbers in want.items():
        mine = got[name]
        if name == "BF16":
            mine = (mine.astype(np.uint32) << 16).view(np.float32)
        mine, numbers = mine.astype(np.float32).reshape(-1), numbers.reshape(-1)
        same = (mine.view(np.uint32) == numbers.view(np.uint32)) | np.isnan(mine) & np.isnan(numbers)
        assert same.all(), (name, np.flatnonzero(~same)[:4], mine[~same][:4], numbers[~same][:4])
        assert np.isfinite(mine).mean() > 0.5, name


def test_quantised_rows(tmp_path, program):
    """What gguf.quants quantises comes back near what it was, whatever the rank."""
    x = np.random.default_rng(3).normal(size=(2, 3, 512)).astype(np.float32)
    kinds = [gguf.GGMLQuantizationType[k] for k in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")]
    packed = {k.name: (quants.quantize(x, k), k) for k in kinds}
    write(tmp_path / "m.gguf", packed)
    for name, mine in dump(program, tmp_path / "m.gguf").items():
        assert mine.shape == x.shape
        assert (mine == quants.dequantize(*packed[name])).all()
        assert abs(mine - x).max() < 1
