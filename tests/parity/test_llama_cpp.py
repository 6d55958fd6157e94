"""GGUF models here and in llama.cpp: the same likeliest tokens where all is f32; of quantised weights logits that are as near to what the weights
stand for as llama.cpp's. COTAN_LLAMA_CPP names a folder with its sources and, anywhere below, the libllama.so built of them."""
import ctypes
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")

import test_gguf_models as files  # noqa: E402
from support import language_models as lm  # noqa: E402
from test_language_models import fill, make, run  # noqa: E402

ROOT = Path(os.environ.get("COTAN_LLAMA_CPP", "/nonexistent"))
LIBRARY, HEADER = next(ROOT.glob("**/libllama.so"), None), next(ROOT.glob("**/include/llama.h"), None)
pytestmark = pytest.mark.skipif(not (LIBRARY and HEADER), reason="COTAN_LLAMA_CPP names no folder with include/llama.h and a libllama.so")
WRITTEN, VOCAB = 64, lm.SIZES["vocab_size"]
KINDS = ["F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q5_K", "Q6_K"]
MODELS = {"llama2": lm.GROUPED, "qwen2": lm.GROUPED | dict(use_sliding_window=False), "gemma": lm.GROUPED | dict(head_dim=64)}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    program, at = tmp_path_factory.mktemp("llama") / "logits", LIBRARY.parent
    source = HEADER.parent.parent
    subprocess.run(["c++", "-O1", "-std=c++17", Path(__file__).with_name("llama_cpp_logits.cpp"), f"-I{HEADER.parent}", f"-I{source}/ggml/include",
                    f"-L{at}", "-lllama", "-lggml-base", "-lggml", f"-Wl,-rpath,{at}", "-o", program], check=True)
    base = ctypes.CDLL(str(at / "libggml-base.so"))
    base.ggml_quantize_chunk.restype = ctypes.c_size_t

    def ask(path, tmp_path):
        lm.IDS.tofile(tmp_path / "ids")
        subprocess.run([program, path, tmp_path / "ids", *map(str, [*lm.IDS.shape, WRITTEN]), tmp_path / "out"], check=True)
        raw = (tmp_path / "out").read_bytes()
        n = lm.IDS.size * VOCAB * 4
        return np.frombuffer(raw[:n], np.float32).reshape(*lm.IDS.shape, VOCAB), np.frombuffer(raw[n:], np.int32)

    def quantised(x, kind):
        """By llama.cpp's own quantisers, of all types."""
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        out = np.empty((x.shape[0], x.shape[1] // elements * size), np.uint8)
        x = np.ascontiguousarray(x, np.float32)
        done = base.ggml_quantize_chunk(int(kind), x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
                                        ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]), None)
        assert done == out.size
        return out
    ask.quantised = quantised
    return ask


def made(name, kind, theirs, tmp_path, monkeypatch):
    """The file, and the folder of the numbers that its weights stand for."""
    model, config, _ = lm.MODELS[name]
    fill(make((model, config, MODELS[name] | dict(hidden_size=256, intermediate_size=512))), tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    monkeypatch.setattr(files, "quantised", theirs.quantised)
    add = gguf.GGUFWriter.add_block_count

    def more(self, n):
        add(self, n)
        self.add_tokenizer_model("none")
        self.add_vocab_size(VOCAB)
    monkeypatch.setattr(gguf.GGUFWriter, "add_block_count", more)
    weights = lm.safetensors.read(tmp_path / "model/model.safetensors")
    held = files.write(tmp_path / "model.gguf", name, config, weights, kind)
    lm.safetensors.write(tmp_path / "model/model.safetensors", {k: np.ascontiguousarray(v) for k, v in held.items()})
    return tmp_path / "model.gguf", tmp_path / "model"


@pytest.mark.parametrize("name", MODELS)
def test_f32(name, theirs, tmp_path, monkeypatch):
    path, _ = made(name, "F32", theirs, tmp_path, monkeypatch)
    want, tokens = theirs(path, tmp_path)
    got = run("logits", name, path, tmp_path)["logits"]
    most = 2e-3 if name == "gemma" else 1e-4  # GELU is a table of f16 there
    assert abs(got - want).max() < most * max(1, abs(want).max())
    assert (run("write", name, path, tmp_path)["tokens"][:WRITTEN] == tokens).all()


def error(x, want):
    return float(np.sqrt(((x - want) ** 2).mean() / (want ** 2).mean()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_quantised(name, kind, theirs, tmp_path, monkeypatch):
    path, folder = made(name, kind, theirs, tmp_path, monkeypatch)
    want = run("logits", name, folder, tmp_path)["logits"]
    own, other = error(run("logits", name, path, tmp_path)["logits"], want), error(theirs(path, tmp_path)[0], want)
    print(f"{name} {kind}: {own:.2e} here, {other:.2e} there")
    assert own <= 1.2 * other + 1e-6
