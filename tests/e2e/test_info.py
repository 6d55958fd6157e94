"""cotan info of files that are no run's: what they hold is said whatever they are called."""
import ctypes
import gzip
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from support.gguf import gguf

COTAN = Path(os.environ.get("COTAN_BUILD", Path(__file__).resolve().parents[2] / "build")) / "cotan"


def info(path):
    done = subprocess.run([COTAN, "info", path], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def idx(code, dims, data):
    return bytes([0, 0, code, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + data


IMAGES = idx(8, (3, 28, 28), bytes(3 * 28 * 28))


@pytest.mark.parametrize("content,said", [
    (IMAGES, f"idx: {'(3, 28, 28) u8':<28} 2352 bytes\n"),
    (idx(14, (2,), bytes(16)), f"idx: {'(2,) f64':<28} 16 bytes\n"),
    (idx(11, (0, 7), b""), f"idx: {'(0, 7) i16':<28} 0 bytes\n"),
    (gzip.compress(IMAGES, mtime=0), "gzip: {n} bytes, packed; unpack it: gunzip {path}\n"),
    (b"\0\0\x08\0a", "not UTF-8 text: 5 bytes; there are zero bytes in it\n"),  # too little to go by
    (b"\0\0\x0a\1\0\0\0\1a", "not UTF-8 text: 9 bytes; there are zero bytes in it\n"),  # an unknown type
    (b"\0\0\x08\x21\0\0\0\1a", "not UTF-8 text: 9 bytes; there are zero bytes in it\n"),  # too many axes
], ids=["images", "f64", "of-nothing", "packed", "no-axes", "unknown-type", "many-axes"])
def test_files_known_by_their_content(tmp_path, content, said):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    assert info(path) == (0, said.format(n=len(content), path=path))


def test_an_idx_file_that_is_cut_short(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(IMAGES[:-1])
    assert info(path) == (
        1, f"cotan: {path}: the sizes ask for 2352 elements of 1 bytes, the file holds 2351 bytes\n")


def test_metrics_alone(tmp_path):
    """The line of a run's last step evaluated the weights behind it, which its configuration tells."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "loss": 4.5, "val_loss": 4}\n{"step": 1, "loss": 3.25}\n'
                    '{"step": 2, "loss": 2.5, "val_loss": 2}\n')
    told = "training: 3 steps, loss 4.5000 at first and 2.5000 at last\nvalidation: loss 2.0000 after {} steps\n"
    assert info(path) == (0, told.format(2))
    (tmp_path / "config.json").write_text('{"training": {"last_evaluated_step": 3}}')
    assert info(path) == (0, told.format(3))
    done = subprocess.run([COTAN, "info", path.name], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, told.format(3))
    path.write_text('{"step": 0, "accuracy": 1}\n')
    assert info(path) == (0, "metrics: no losses\n")
    path.rename(other := tmp_path / "my-metrics.jsonl")
    assert info(other)[1].startswith("text: 27 bytes, 27 characters, 1 lines\n")


# ------------------------------------------------------------------------------------------ models

MODELS = Path(__file__).resolve().parents[1] / "data" / "models"
TABLE = f"  {'type':<10} {'tensors':>8} {'parameters':>16}  size\n"


def kind(name, tensors, parameters, size):
    return f"  {name:<10} {tensors:>8} {parameters:>16}  {size}\n"


def test_gguf_in_parts():
    name = "parts-0000{}-of-00003.gguf"
    said = ("model: llama, context 8\ntokenizer: none, no chat template\n"
            "weights: GGUF, 2 tensors, 12 parameters, 48 bytes in 3 files\n")
    files = "".join(f"  {name.format(i)}  192 bytes\n" for i in (1, 2, 3))
    assert info(MODELS / name.format(1)) == (0, said + files + TABLE + kind("f32", 2, 12, "48 bytes"))
    assert info(MODELS / name.format(3)) == (
        1, f"cotan: {MODELS / name.format(3)}: gguf: it is part 3 of 3, not part 1 of 3\n")


def test_gguf_by_its_content_with_hostile_names(tmp_path):
    (tmp_path / "sha256-1f").write_bytes(gguf({
        "general.architecture": "qwen2", "general.name": "A\x1b[2Jmodel", "qwen2.block_count": 24, "qwen2.context_length": 32768,
        "qwen2.attention.head_count": 14, "qwen2.attention.head_count_kv": 2, "qwen2.embedding_length": 896,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": ["a", "b", "c"],
        "tokenizer.chat_template": "{{ messages }}"}, ["blk.0\x07", "b"]))
    assert info(tmp_path / "sha256-1f") == (0, (
        "model: qwen2, 24 layers, 14 heads, 2 of keys and values, width 896, context 32768\n"
        "name: A\\u001b[2Jmodel\ntokenizer: gpt2 (qwen2), 3 tokens, with a chat template\n"
        "weights: GGUF, 2 tensors, 256 parameters, 144 bytes\n") + TABLE + kind("Q4_0", 2, 256, "144 bytes"))
    (tmp_path / "m.gguf").write_text("text")
    assert info(tmp_path / "m.gguf") == (
        1, f"cotan: {tmp_path}/m.gguf: this is no GGUF file: it begins with \"text\"\n")


@pytest.mark.parametrize("name", ["views.pt", "views_before_1_6.pt"])
def test_pytorch(name):
    rows = [("whole", "(2, 3, 4) f32", 96), ("inner.permuted", "(4, 2, 3) f32", 96), ("inner.7", "(3, 2) f32", 24),
            ("bf16", "(3, 4) bf16", 24), ("parameter", "(2,) f32", 8), ("u16", "() u16", 2)]
    assert info(MODELS / name) == (0, "weights: PyTorch, 6 tensors, 69 parameters, 250 bytes\n" + "".join(
        f"  {n:<14}  {t:<28} {b} bytes\n" for n, t, b in rows))


def safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def test_the_folder_of_a_published_model(tmp_path):
    """Scales are no parameters, codes as many as they stand for."""
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 100,
              "max_position_embeddings": 2048, "quantization": {"bits": 4, "group_size": 32}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    first = {"a.weight": ("U32", [64, 8], 2048), "a.scales": ("BF16", [64, 2], 256), "a.biases": ("BF16", [64, 2], 256)}
    second = {"experts_blocks": ("U8", [2, 3, 16], 96), "experts_scales": ("U8", [2, 3], 6), "norm": ("BF16", [64], 128)}
    safetensors(tmp_path / "model-1.safetensors", first)
    safetensors(tmp_path / "model-2.safetensors", second)
    files = {n: f"model-{1 + (n in second)}.safetensors" for n in first | second}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    sizes = [(tmp_path / f"model-{i}.safetensors").stat().st_size for i in (1, 2)]
    said = ("model: llama, 2 layers, 4 heads, width 64, context 2048, vocabulary 100\n"
            "quantised: 4 bits in groups of 32 (MLX)\ntokenizer: tokenizer.json, with a chat template\n"
            "weights: safetensors, 6 tensors, 4352 parameters, 2790 bytes in 2 files\n")
    said += "".join(f"  model-{i}.safetensors  {size} bytes\n" for i, size in zip((1, 2), sizes)) + TABLE
    assert info(tmp_path) == (0, said + kind("u32", 1, 4096, "2048 bytes") + kind("bf16", 3, 64, "640 bytes")
                              + kind("u8", 2, 192, "102 bytes"))
    (tmp_path / "model-2.safetensors").unlink()
    assert info(tmp_path) == (
        1, f"cotan: {tmp_path}/model.safetensors.index.json: weight_map: shard \"model-2.safetensors\" cannot be found: "
        "No such file or directory\n")


# ----------------------------------------------------------------------------------- parts of models

@pytest.mark.parametrize("name,content,what", [
    ("config.json", '{"model_type": "llama"}', "its configuration"),
    ("generation_config.json", '{"do_sample": true}', "default generation settings"),
    ("tokenizer.json", "{}", "its tokenizer"),
    ("tokenizer_config.json", "{}", "settings of its tokenizer"),
    ("chat_template.jinja", "{{ messages }}", "its chat template"),
    ("model.safetensors.index.json", "{}", "which of its files holds which weights"),
    ("README.md", "# A model", "model card"),
])
def test_a_file_that_is_no_model(tmp_path, name, content, what):
    """It is told what it is a part of, and what to name instead; cotan run, too, names the folder."""
    for file, text in (("config.json", '{"model_type": "llama"}'), (name, content)):
        (tmp_path / file).write_text(text)
    said = "part of a model: {}; the folder is what to name: cotan info {}\n".format
    assert info(tmp_path / name) == (0, said(what, tmp_path))
    for command, words in (("info", []), ("run", ["--prompt", "x"])):
        for path, folder in ((name, "."), (f"./{name}", "."), (f"../{tmp_path.name}/{name}", f"../{tmp_path.name}")):
            done = subprocess.run([COTAN, command, path, *words], capture_output=True, text=True, timeout=60, cwd=tmp_path)
            assert done.stdout + done.stderr == (said(what, folder) if command == "info" else
                                                 f"cotan: pretrained_load: {path}: this file alone is no model\n"
                                                 f"  hint: its folder is what to name: {folder}\n")


def test_files_of_these_names_elsewhere(tmp_path):
    """Without a model around them they are texts."""
    for name in ("config.json", "README.md", "my-config.json"):
        (tmp_path / name).write_text('{"a": 1}\n')
        assert info(tmp_path / name)[1].startswith("text: 9 bytes, 9 characters, 1 lines\n")
    done = subprocess.run([COTAN, "run", tmp_path / "README.md"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"cotan: pretrained_load: {tmp_path}/README.md: this file alone is no model\n"
                                              f"  hint: its folder is what to name: {tmp_path}\n")
    (tmp_path / "config.json").unlink()
    done = subprocess.run([COTAN, "run", tmp_path / "README.md"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"cotan: pretrained_load: {tmp_path}/README.md: this file alone is no "
                                                 "model\n"
                                                 "  hint: a model is a folder, a GGUF file, or ORG/NAME that cotan pull "
                                                 "downloaded\n")


def bound_by_modes():
    """Root, too, may then read only what modes allow."""
    prctl, drop = ctypes.CDLL(None).prctl, 24  # PR_CAPBSET_DROP
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if os.geteuid() == 0 and prctl(drop, capability, 0, 0, 0) != 0:
            raise OSError("a capability cannot be dropped")


READERS = [("run", "--prompt", "x"), ("serve",), ("embed", "x"), ("eval", "--perplexity", "/etc/hostname"), ("pack",), ("info",),
           ("sample",), ("train", "--data", "/etc/hostname", "--out", "new", "--from")]


def said_of(model, words, cwd, **env):
    """What each command says of a model, without the name of who says it."""
    order = [*words, model] if words[-1] == "--from" else [words[0], model, *words[1:]]
    done = subprocess.run([COTAN, *order], capture_output=True, text=True, timeout=60, cwd=cwd, stdin=subprocess.DEVNULL,
                          preexec_fn=bound_by_modes, env=os.environ | env)
    assert done.returncode == 1 and not done.stdout
    return done.stderr.replace("cotan: serve: ", "cotan: ").replace("cotan: pretrained_load: ", "cotan: ").replace("cotan: hub_find: ", "cotan: ")


@pytest.mark.parametrize("files, what, hint", [
    ({"adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "org/base"}', "adapter_model.safetensors": "", "tokenizer.json": "{}"},
     "this is an adapter (LORA), not a model: its weights are added to those of org/base",
     "merge_and_unload() and save_pretrained() of PEFT make a model of both; without the adapter it is org/base"),
    ({"adapter_config.json": "{", "adapter_model.bin": ""},
     "this is an adapter (PEFT), not a model: its weights are added to those of another model",
     "merge_and_unload() and save_pretrained() of PEFT make a model of both; without the adapter it is that other model"),
    *(({"config.json": "{}", **dict.fromkeys(names, "")}, f"this is a model for {program} ({names[0]}), whose files are not read",
       "name the model that it was made from: a folder with safetensors or PyTorch's .bin, or a GGUF file")
      for names, program in ((("model.bin", "vocabulary.json"), "CTranslate2"), (("model.bin", "shared_vocabulary.txt"), "CTranslate2"),
                             (("onnx/model.onnx", "tokenizer.json"), "ONNX"), (("openvino_model.xml",), "OpenVINO"), (("tf_model.h5",), "TensorFlow"),
                             (("flax_model.msgpack",), "Flax"), (("consolidated.00.pth", "params.json"), "Meta's own program"))),
])
def test_folders_for_other_programs(tmp_path, files, what, hint):
    for name, text in files.items():
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_text(text)
    for words in READERS:
        assert said_of("model", words, tmp_path) == f"cotan: model: {what}\n  hint: {hint}\n", words


def test_folders_that_may_not_be_read(tmp_path):
    """Of a folder that cannot be looked at nothing is known: neither that it is absent, nor that a name is one of the Hub's."""
    (tmp_path / "closed/model").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    (tmp_path / "hub/models--org--name").mkdir(parents=True)
    closed = [tmp_path / "closed", tmp_path / "open", tmp_path / "hub/models--org--name"]
    try:
        for folder in closed:
            folder.chmod(0)
        for name in ("closed/model", "./closed/model"):
            for words in READERS:
                file = name + "/config.json" if words[0] == "sample" else name
                assert said_of(name, words, tmp_path) == f"cotan: {file}: cannot open: Permission denied\n", words
        for words in READERS:
            said = said_of("open", words, tmp_path).replace("tokenizer_load: ", "")
            assert said == {"info": "cotan: open: cannot open the folder: Permission denied\n",
                            "sample": "cotan: open/config.json: cannot open: Permission denied\n"}.get(
                                words[0], "cotan: open: cannot read: Permission denied\n"), words
            if words[0] not in ("info", "sample"):
                assert said_of("org/name", words, tmp_path, HF_HUB_CACHE=str(tmp_path / "hub")) == (
                    f"cotan: {closed[2]}: cannot read the folder: Permission denied\n"), words
    finally:
        for folder in closed:
            folder.chmod(0o755)
