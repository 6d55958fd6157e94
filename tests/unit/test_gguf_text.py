"""A GGUF file alone: its tokenizer and its chat templates, by its metadata; and metadata of every fault, in words."""
import ctypes
import os
import subprocess

import pytest

from support.chat import SANITIZED, Renderer
from support.gguf import gguf

pytestmark = pytest.mark.skipif(SANITIZED, reason="Python has no sanitizers to load the library with; the corpus of gguf_text has them")
if not SANITIZED:
    from support import tokenizer as ours

BYTES = ["".join(c) for c in [map(chr, [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)])]][0]
WORDS = ["he", "ll", "llo", "hello", "\u0120w", "\u0120wo"]
SPECIAL = ["<|begin|>", "<|im_end|>", "<|eot|>"]
TOKENS = [*BYTES, *WORDS, *SPECIAL]
BOS, END, EOT = range(len(TOKENS) - 3, len(TOKENS))
GPT2 = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": ("i32", [1] * (len(TOKENS) - 3) + [3] * 3),
        "tokenizer.ggml.merges": ["h e", "l l", "ll o", "he llo", "\u0120 w", "\u0120w o"], "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": END, "tokenizer.ggml.eot_token_id": EOT, "tokenizer.chat_template": "{{ bos_token }}{% for m in messages "
        "%}{{ m.content }}{{ eos_token }}{% endfor %}"}
PIECES = ["<unk>", "<s>", "</s>", "\u2581", "\u2581h", "i", "\u2581hi", *(f"<0x{i:02X}>" for i in range(256))]
LLAMA = {"general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": PIECES,
         "tokenizer.ggml.scores": ("f32", [0, 0, 0, -3, -2, -1, -0.5] + [0] * 256),
         "tokenizer.ggml.token_type": ("i32", [2, 3, 3, 1, 1, 1, 1] + [6] * 256), "tokenizer.ggml.bos_token_id": 1,
         "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 0xffffffff}


def write(path, pairs, **more):
    path.write_bytes(gguf({k: v for k, v in (pairs | more).items() if v is not None}, ["token_embd.weight"]))
    return path


def ends(t):
    ids = (ctypes.c_int64 * 8)()
    return list(ids[:ours.lib.ct_tokenizer_eos_ids(t.handle, ids, 8)])


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    made = Renderer(tmp_path_factory.mktemp("chat"))
    yield made
    made.close()


def test_words_of_bytes(tmp_path):
    for name in ("m.gguf", "blob"):  # by its name, and by its content
        t = ours.Tokenizer(write(tmp_path / name, GPT2))
        assert t.ids("hello wo<|im_end|>") == [TOKENS.index("hello"), TOKENS.index("\u0120wo"), END]
        assert t.ids("hello", add_special=True) == [BOS, TOKENS.index("hello")]  # llama-bpe, where nothing is said
        assert ends(t) == [END, EOT]
        assert t.decode(t.ids("hello wo")) == "hello wo"
    silent = ours.Tokenizer(write(tmp_path / "m.gguf", GPT2, **{"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.eot_token_id": None}))
    assert silent.ids("he", add_special=True) == [TOKENS.index("he")] and ends(silent) == [END]


def test_pieces(tmp_path):
    t = ours.Tokenizer(write(tmp_path / "m.gguf", LLAMA))
    assert t.ids("hi", add_special=True) == [1, 6] and t.decode([6]) == "hi" and ends(t) == [2]
    assert [ours.lib.ct_tokenizer_special(t.handle, role) for role in range(4)] == [1, 2, 0, -1]


def test_ends_that_no_key_names(tmp_path):
    """By their texts, if they are special; of gpt-oss <|end|> ends a message alone."""
    def of(*texts):
        kinds = [1] * (len(TOKENS) - 3) + [3] * (3 + len(texts))
        t = ours.Tokenizer(write(tmp_path / "m.gguf", GPT2, **{
            "tokenizer.ggml.tokens": [*TOKENS, *texts], "tokenizer.ggml.token_type": ("i32", kinds), "tokenizer.ggml.eot_token_id": None}))
        return ends(t)
    n = len(TOKENS)
    assert of("<|end|>", "<end_of_turn>") == [END, n + 1, n]
    assert of("<|end|>", "<|return|>", "<|call|>") == [END, n + 1, n + 2]


def test_of_a_folder_its_own_files_count(tmp_path):
    write(tmp_path / "m-00001-of-00002.gguf", LLAMA)
    (tmp_path / "m-00002-of-00002.gguf").write_text("the tokenizer is in the first part")
    assert ours.Tokenizer(tmp_path).ids("hi") == [6]
    write(tmp_path / "other.gguf", LLAMA)
    with pytest.raises(ours.Error, match=f"^{tmp_path}: the folder has 2 models in GGUF: name the file of one$"):
        ours.Tokenizer(tmp_path)
    (tmp_path / "other.gguf").rename(tmp_path / "model.safetensors")
    with pytest.raises(ours.Error, match=f"^{tmp_path}: the folder has no tokenizer: neither"):
        ours.Tokenizer(tmp_path)


def test_cotan_tokenize(tmp_path):
    done = subprocess.run([ours.BUILD / "cotan", "tokenize", write(tmp_path / "m.gguf", LLAMA), "--text", "hi", "--ids", "--add-special"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 6\n", "")


def test_templates(renderer, tmp_path):
    path = write(tmp_path / "m.gguf", GPT2, **{"tokenizer.chat_templates": ["tool_use"], "tokenizer.chat_template.tool_use": "with tools"})
    user = [{"role": "user", "content": "Hello"}]
    for place in (path, tmp_path):
        assert renderer.ask(path=str(place), messages=user) == {"text": "<|begin|>Hello<|im_end|>"}
        assert renderer.ask(path=str(place), messages=user, tools=[]) == {"text": "with tools"}


BAD = [
    (GPT2, "model", None, 'gguf: key "tokenizer.ggml.model" is missing'),
    (GPT2, "model", 3, 'gguf: key "tokenizer.ggml.model" is of type u32, not a string'),
    (GPT2, "model", "grown", 'tokenizer.ggml.model is "grown"; known are gpt2, llama, bert and t5'),
    (GPT2, "pre", True, 'gguf: key "tokenizer.ggml.pre" is of type bool, not a string'),
    (GPT2, "pre", "own", 'tokenizer.ggml.pre is "own", an unknown pre-tokenizer'),
    (GPT2, "tokens", None, 'gguf: key "tokenizer.ggml.tokens" is missing'),
    (GPT2, "tokens", ("u8", [1, 2]), 'gguf: key "tokenizer.ggml.tokens" is an array of u8, not an array of string'),
    (GPT2, "tokens", [b"\xff", *TOKENS[1:]], f"no UTF-8 is token 0 of {len(TOKENS)}"),
    (GPT2, "tokens", TOKENS[:-1],
     f'gguf: key "tokenizer.ggml.token_type" has {len(TOKENS)} elements, and there are {len(TOKENS) - 1} tokens'),
    (GPT2, "token_type", 1, 'gguf: key "tokenizer.ggml.token_type" is of type u32, not an array of u32'),
    (GPT2, "token_type", ("f32", [1]), 'gguf: key "tokenizer.ggml.token_type" is an array of f32, not an array of i32'),
    (GPT2, "token_type", ("i32", [1, 7] + [1] * (len(TOKENS) - 2)), f"a type that is not 0 to 6 has token 1 of {len(TOKENS)}"),
    (GPT2, "token_type", ("i32", [-1] * len(TOKENS)), f"a type that is not 0 to 6 has token 0 of {len(TOKENS)}"),
    (GPT2, "merges", None, 'gguf: key "tokenizer.ggml.merges" is missing'),
    (GPT2, "merges", ("f64", [1]), 'gguf: key "tokenizer.ggml.merges" is an array of f64, not an array of string'),
    (GPT2, "merges", ["he"], "no pair of tokens is merge 0 of 1"),
    (GPT2, "merges", ["h e", "h zz"], "tokens that are not there has merge 1 of 2"),
    (GPT2, "bos_token_id", len(TOKENS), f'gguf: key "tokenizer.ggml.bos_token_id" is {len(TOKENS)}, and there are {len(TOKENS)} tokens'),
    (GPT2, "eot_token_id", "2", 'gguf: key "tokenizer.ggml.eot_token_id" is of type string, not an integer'),
    (GPT2, "eom_token_id", ("i32", -2), 'gguf: key "tokenizer.ggml.eom_token_id" is -2, not from -1 to 4294967295'),
    (GPT2, "add_bos_token", 1, 'gguf: key "tokenizer.ggml.add_bos_token" is of type u32, not a bool'),
    (LLAMA, "scores", None, "the tokens have no scores (tokenizer.ggml.scores)"),
    (LLAMA, "scores", ("f32", [1, 2]), f'gguf: key "tokenizer.ggml.scores" has 2 elements, and there are {len(PIECES)} tokens'),
    (LLAMA, "scores", ("i32", [0] * len(PIECES)), 'gguf: key "tokenizer.ggml.scores" is an array of i32, not an array of f32'),
    (LLAMA, "scores", ("f32", [0, float("nan")] + [0] * (len(PIECES) - 2)), f"no finite score has token 1 of {len(PIECES)}"),
    (LLAMA, "precompiled_charsmap", "x", 'gguf: key "tokenizer.ggml.precompiled_charsmap" is of type string, not an array of u8'),
]


@pytest.mark.parametrize("of, key, value, said", BAD, ids=[f"{i}-{key}" for i, (_, key, _, _) in enumerate(BAD)])
def test_faults(tmp_path, of, key, value, said):
    path = write(tmp_path / "m.gguf", of, **{f"tokenizer.ggml.{key}": value})
    with pytest.raises(ours.Error) as error:
        ours.Tokenizer(path)
    assert str(error.value) == f"{path}: {said}"


BAD_CHATS = [
    ({"tokenizer.chat_template": None}, 'the file has no chat template: there is no key "tokenizer.chat_template"'),
    ({"tokenizer.chat_template": 5}, 'gguf: key "tokenizer.chat_template" is of type u32, not a string'),
    ({"tokenizer.chat_template": b"\xff"}, 'gguf: key "tokenizer.chat_template" is no UTF-8'),
    ({"tokenizer.chat_template": "{{"}, "chat_template: line 1: a tag has no end: }} is missing"),
    ({"tokenizer.chat_templates": ("u8", [1])}, 'gguf: key "tokenizer.chat_templates" is an array of u8, not an array of string'),
    ({"tokenizer.chat_templates": ["rag"]}, 'gguf: key "tokenizer.chat_template.rag" is missing'),
    ({"tokenizer.chat_templates": ["x" * 65]}, f'gguf: key "tokenizer.chat_templates" has "{"x" * 65}", which is no name'),
    ({"tokenizer.ggml.bos_token_id": "1"}, 'gguf: key "tokenizer.ggml.bos_token_id" is of type string, not an integer'),
]


@pytest.mark.parametrize("more, said", BAD_CHATS, ids=range(len(BAD_CHATS)))
def test_faults_of_templates(renderer, tmp_path, more, said):
    path = write(tmp_path / "m.gguf", GPT2, **more)
    assert renderer.ask(path=str(path), messages=[{"role": "user", "content": "Hello"}])["error"] == f"{path}: {said}"
