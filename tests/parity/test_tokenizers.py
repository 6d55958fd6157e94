"""Tokenizers against the libraries that define them: ids, offsets and text on 10,000 lines in many scripts."""
import json
import os
import subprocess
import unicodedata
from pathlib import Path

import pytest

os.environ["TOKENIZERS_PARALLELISM"] = "false"
tokenizers = pytest.importorskip("tokenizers", minversion="0.22", reason="tokenizers is older than 0.22")
sentencepiece = pytest.importorskip("sentencepiece")
from parity.tokenizers_made import SPECIALS, made  # noqa: E402
from support import tokenizer as ours  # noqa: E402
from support.tokenizers_texts import lines, new_lines  # noqa: E402

NAMES = ["gpt2", "llama3", "llama2", "t5", "bert", "words", "clip", "deepseek"]
LINES = int(os.environ.get("COTAN_TOKENIZER_LINES", 10000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("made")
    assert made(path) == NAMES
    return path


@pytest.mark.parametrize("name", NAMES)
def test_as_tokenizers(folder, name):
    theirs, mine = tokenizers.Tokenizer.from_file(str(folder / f"{name}.json")), ours.Tokenizer(folder / f"{name}.json")
    for text in lines(LINES, seed=7, specials=[*SPECIALS, "Fox", "dog", "CAFÉ", " [MASK] "]):
        for special in (False, True):
            want = theirs.encode(text, add_special_tokens=special)
            e = mine.run(text, add_special=special, offsets=True)
            assert e.ids[:e.n] == want.ids, text
            assert [(s.begin, s.end) for s in e.chars[:e.n]] == want.offsets, text
            assert [int(e.added[i]) for i in range(e.n)] == want.special_tokens_mask, text
        for skip in (False, True):
            assert mine.decode(want.ids, skip) == theirs.decode(want.ids, skip_special_tokens=skip), text


# Categories that changed later, a place where graphemes end, and numbers of Unicode 17.
OTHERWISE = {"t5": [0x113d1, 0x11a3a], "bert": [0xa9bd, 0x111c9], "words": [0x1cf2, 0x1cf3, 0x111c9, *range(0x11de0, 0x11dea), *range(0x16ff4, 0x16ff7)]}


@pytest.mark.parametrize("name", NAMES)
def test_new_characters(folder, name):
    """Lines with what came after Unicode 3.2, and each character of it, or none yet, between others."""
    theirs, mine = tokenizers.Tokenizer.from_file(str(folder / f"{name}.json")), ours.Tokenizer(folder / f"{name}.json")

    def same(text):
        want, e = theirs.encode(text, add_special_tokens=False), mine.run(text, add_special=False, offsets=True)
        return e.ids[:e.n] == want.ids and [(s.begin, s.end) for s in e.chars[:e.n]] == want.offsets

    def differing(part):
        if same(" ".join(f"a{c}b {c}{c} 1{c}.{c}e\u0301" for c in map(chr, part))):
            return []
        half = len(part) // 2
        return differing(part[:half]) + differing(part[half:]) if half else part

    cs = [c for c in [*range(0x80, 0x32400), *range(0xe0000, 0xe0200)]
          if not 0xd800 <= c < 0xe000 and unicodedata.ucd_3_2_0.category(chr(c)) == "Cn"]
    assert [c for i in range(0, len(cs), 64) for c in differing(cs[i:i + 64])] == OTHERWISE.get(name, [])
    for text in new_lines(LINES // 4, seed=5):
        assert same(text) or any(chr(c) in text for c in OTHERWISE.get(name, [])), ascii(text)


@pytest.mark.parametrize("name", ["unigram", "bpe"])
def test_as_sentencepiece(folder, name):
    """Where two ways to cut are equally good to a rounding, the library and we may take different ones; a BPE leaves no choice."""
    theirs, mine = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model")), ours.Tokenizer(folder / f"{name}.model")
    other = 0
    for text in lines(LINES, seed=7, specials=["<s>", "</s>", "<extra>", "fox", "dogs", "::"]):
        want, got = theirs.encode(text), mine.ids(text)
        assert mine.decode(want) == theirs.decode(want), text
        if want != got:
            assert name == "unigram" and sum(map(theirs.get_score, want)) == pytest.approx(sum(map(theirs.get_score, got)), rel=1e-6), text
            other += 1
    assert other <= LINES / 1000


@pytest.mark.parametrize("size", [600, 3000])
def test_merges_are_the_trainers(tmp_path, size):
    text = "\n".join(line.replace("\r", "") for line in lines(6000, seed=11))
    (tmp_path / "text").write_text(text, newline="")
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    subprocess.run([ours.BUILD / "cotan", "tokenize", tmp_path / "text", "--train", f"bpe:{size}", "--out", tmp_path / "out"], check=True,
                   stdout=subprocess.DEVNULL)
    got, want = json.loads((tmp_path / "out/tokenizer.json").read_text())["model"], json.loads(t.to_str())["model"]
    assert got["merges"] == want["merges"] and got["vocab"] == want["vocab"]
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json")).encode(text).ids == ours.Tokenizer(tmp_path / "out").ids(text)


def test_as_tiktoken(tmp_path):
    """A rank file of GPT-2's kind, with the patterns that are known by name."""
    tiktoken = pytest.importorskip("tiktoken")
    import base64
    from parity.tokenizers_made import gpt2
    chars = {}
    for byte in range(256):
        printable = 33 <= byte < 127 or 161 <= byte < 173 or byte >= 174
        chars[chr(byte) if printable else chr(256 + sum(not (33 <= b < 127 or 161 <= b < 173 or b >= 174) for b in range(byte)))] = byte
    vocab = sorted(gpt2(lines(2000, seed=2), 2500).get_vocab().items(), key=lambda item: item[1])
    ranks = {bytes(chars[c] for c in piece): rank for rank, (piece, _) in enumerate(v for v in vocab if v[0] != "<|endoftext|>")}
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(piece) + b" %d\n" % rank for piece, rank in ranks.items()))
    import ctypes
    for name in ("cl100k_base", "o200k_base", "gpt2"):
        pattern = {"cl100k_base": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                   "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
                   "o200k_base": "|".join([
                       r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                       r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                       r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])}[name]
        theirs = tiktoken.Encoding(name="own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        mine = ours.Tokenizer(handle=ours.lib.ct_tokenizer_tiktoken_with(str(path).encode(), ours.TiktokenOptions(
            name=name.encode(), specials=(ctypes.c_char_p * 2)(b"<|none here|>", None))))
        for text in lines(LINES // 4, seed=9):
            ids = theirs.encode_ordinary(text)
            assert mine.ids(text) == ids, text
            assert mine.decode(ids) == theirs.decode(ids)


# llama.cpp's sources, or what the source package of llama-cpp-python unpacks to
VOCABULARIES = {p.name: p for p in Path(os.environ.get("COTAN_LLAMA_CPP", "/nonexistent")).glob("**/models/ggml-vocab-*.gguf")}


def gguf_vocabulary(path):
    import ctypes

    from gguf import GGUFReader
    fields = GGUFReader(path).fields

    def value(key, otherwise=None):
        field = fields.get("tokenizer.ggml." + key)
        return otherwise if field is None else field.contents()

    tokens = [t.encode() for t in value("tokens")]
    merges = [m.encode() for m in value("merges", [])]
    scores, types, charsmap = value("scores"), value("token_type"), value("precompiled_charsmap")
    v = ours.Gguf(model=value("model").encode(), pre=(value("pre") or "default").encode(), n=len(tokens),
                  tokens=(ctypes.c_char_p * len(tokens))(*tokens), lengths=(ctypes.c_size_t * len(tokens))(*map(len, tokens)),
                  merges=(ctypes.c_char_p * (len(merges) or 1))(*merges), n_merges=len(merges))
    if scores:
        v.scores = (ctypes.c_float * len(scores))(*scores)
    if types:
        v.types = (ctypes.c_int32 * len(types))(*types)
    if charsmap:
        held = ctypes.create_string_buffer(bytes(charsmap), len(charsmap))
        v.charsmap, v.charsmap_n = ctypes.cast(held, ctypes.c_void_p), len(charsmap)
    for name, key in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")]:
        setattr(v, name, value(key + "_token_id", -1))
    for name, key in [("add_bos", "add_bos_token"), ("add_eos", "add_eos_token"), ("add_space_prefix", "add_space_prefix"),
                      ("remove_extra_whitespaces", "remove_extra_whitespaces")]:
        setattr(v, name, int(value(key, -1)))
    handle = ours.lib.ct_tokenizer_from_gguf_at(ctypes.byref(v), ours.Loc())
    if not handle:
        raise ours.failed()
    return ours.Tokenizer(handle=handle)


@pytest.mark.skipif(not VOCABULARIES, reason="COTAN_LLAMA_CPP names no folder with models/ggml-vocab-*.gguf")
@pytest.mark.parametrize("name", ["bert-bge", "command-r", "deepseek-coder", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2",
                                  "refact", "starcoder"])
def test_as_llama_cpp(name):
    """The texts and ids that llama.cpp's own tests hold its tokenizers to."""
    pytest.importorskip("gguf")
    path = VOCABULARIES.get(f"ggml-vocab-{name}.gguf")
    if not path:
        pytest.skip(f"ggml-vocab-{name}.gguf is not there")
    texts = Path(f"{path}.inp").read_text().split("\n__ggml_vocab_test__\n")
    for mine in (gguf_vocabulary(path), ours.Tokenizer(path)):  # by its arrays, and the file itself
        for text, want in zip(texts, Path(f"{path}.out").read_text().splitlines()):
            assert mine.ids(text) == [int(x) for x in want.split()], text
