"""Writes what stands beside this file: small tokenizers, and what tokenizers and sentencepiece make of some lines with them.

    PYTHONPATH=tests python tests/unit/tokenizers/make.py           # both
    PYTHONPATH=tests python tests/unit/tokenizers/make.py said      # what is made of lines, with the tokenizers that are there
"""
import json
import sys
import tempfile
from pathlib import Path

import sentencepiece
from parity.tokenizers_made import SPECIALS, made, sentencepiece_model
from support.tokenizers_texts import WORDS, lines, new_lines
from tokenizers import Tokenizer

HERE = Path(__file__).parent
RULES = {"Ａ": "A", "Ｂ": "B", "Ｃ": "C", "①": "1", "②": "2", "㎏": "kg", "ﬁ": "fi", "\t": " ", "\n": " ", "\u3000": " ", "\u00a0": " ",
         "e\u0301": "é", "\u200b": ""}


def few_lines(seed, specials):
    return [x for x in lines(60, seed=seed, specials=specials) if len(x) < 110][:14]


def train():
    few = [w for kind in ("latin", "greek", "cjk", "code") for w in WORDS[kind]][:90]
    texts = [" ".join(few[i:] + few[:i]) for i in range(0, len(few), 3)]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for old, new in RULES.items():
            rules.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
        rules.flush()
        made(HERE, texts, 400, rules.name)
    unknown(texts)


def unknown(texts):
    """Without bytes: what it does not know is <unk>. Some characters stand in its pieces alone."""
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto.FromString(
        sentencepiece_model(texts, model_type="bpe", vocab_size=260, character_coverage=0.98, normalization_rule_name="identity"))
    letters = [p for p in model.pieces if len(p.piece) == 1 and p.piece in "qzxcuo"]
    kept = [p for p in model.pieces if p not in letters]
    del model.pieces[:]
    model.pieces.extend(kept)
    (HERE / "unknown.model").write_bytes(model.SerializeToString())


def say():
    said = {}
    for name in ("gpt2", "llama3", "llama2", "t5", "bert", "words", "clip", "deepseek"):
        t = Tokenizer.from_file(str(HERE / f"{name}.json"))
        said[f"{name}.json"] = []
        for text in few_lines(5, SPECIALS) + [x for x in new_lines(12, seed=3) if len(x) < 110][:5]:
            e = t.encode(text)
            said[f"{name}.json"].append({"text": text, "ids": e.ids, "spans": [x for span in e.offsets for x in span],
                                         "plain": t.encode(text, add_special_tokens=False).ids,
                                         "decoded": t.decode(e.ids, skip_special_tokens=False), "skipped": t.decode(e.ids)})
    for name in ("unigram.model", "bpe.model", "unknown.model"):
        sp = sentencepiece.SentencePieceProcessor(model_file=str(HERE / name))
        texts = [x for x in few_lines(6, ["<extra>", "fox", "dogs", "::", "</s>"]) if "\0" not in x]
        if name == "unknown.model":
            texts += ["The quick brown fox jumps over the lazy dog", "q", "zz qq \u65e5\u672c\u8a9e x\u2603\u2603y", "coco uuoo zqxc", "\u2603 \u2603\u2603"]
        said[name] = [{"text": x, "plain": sp.encode(x), "decoded": sp.decode(sp.encode(x))} for x in texts]
    with open(HERE / "said.json", "w") as out:
        out.write(json.dumps(said, ensure_ascii=True, separators=(",", ":")).replace('{"text"', '\n{"text"') + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["said"]:
        train()
    say()
