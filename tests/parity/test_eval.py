"""cotan eval and cotan embed against Hugging Face's library: what EleutherAI's lm-evaluation-harness (0.4) and sentence-transformers
make of its models, written out here; the harness itself is compared with, too, where it is installed."""
import json
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

transformers = pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from support import language_models as lm  # noqa: E402

COTAN = Path(os.environ["COTAN_BUILD"]) / "cotan"
BOOK = Path(os.environ.get("COTAN_DATA", Path(__file__).parents[3] / "shared/data")) / "tinyshakespeare.txt"
VOCAB, CONTEXT = 400, 128
transformers.logging.set_verbosity_error()


def cotan(*args, stdin=None):
    done = subprocess.run([COTAN, *map(str, args)], input=stdin, capture_output=True, text=True,
                          env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def book():
    if not BOOK.exists():
        pytest.skip(f"{BOOK} is not there")
    return BOOK.read_text()


def tokenizer_of(book, folder, bos):
    """A byte-level BPE of the book; bos: it puts <s> in front of each text."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.train_from_iterator([book[:200000]], tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<s>", "</s>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        t.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    given = {"bos_token": "<s>"} if bos else {}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="</s>", **given)
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(scope="module", params=[False, True], ids=["eos alone", "bos in front"])
def decoder(request, book, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder")
    torch.manual_seed(5)
    config = transformers.LlamaConfig(**lm.GROUPED | dict(vocab_size=VOCAB, max_position_embeddings=CONTEXT, initializer_range=0.2))
    model = transformers.LlamaForCausalLM(config).eval().float()
    model.save_pretrained(folder)
    return folder, model, tokenizer_of(book, folder, request.param)


# -------------------------------------------------------------------------------- the harness's HFLM, of a causal model

def prefix(t):
    return t.eos_token_id if t.bos_token_id is None else t.bos_token_id


def encode(t, text, **options):
    if not options and text.startswith(t.decode(prefix(t))):
        options = dict(add_special_tokens=False)
    return t.encode(text, **options)


def pair(t, given, rest):
    if given == "":
        ids = encode(t, rest, add_special_tokens=False)
        return ([prefix(t)], ids) if ids[0] != prefix(t) else (ids[:1], ids[1:])
    spaces = len(given) - len(given.rstrip())
    if spaces:
        given, rest = given[:-spaces], given[-spaces:] + rest
    whole = encode(t, given + rest)
    n = len(encode(t, given))
    return whole[:n], whole[n:]


def likelihood(model, given, rest, length=CONTEXT):
    read = torch.tensor([(given + rest)[-(length + 1):][:-1]])
    with torch.no_grad():
        scores = torch.log_softmax(model(read).logits[0].float(), -1)[-len(rest):]
    return float(scores[range(len(rest)), rest].sum()), bool((scores.argmax(-1) == torch.tensor(rest)).all())


def windows(ids, first, length, context_len):
    if not ids:
        return
    n = min(length, len(ids))
    yield [first] + ids[:n - 1], ids[:n]
    done = n
    while done < len(ids):
        n = min(len(ids) - done, length - context_len + 1)
        end = done + n
        yield ids[end - length - 1:end - 1], ids[end - n:end]
        done = end


def rolling(model, t, text, length, context_len=1):
    total = 0.0
    for read, wanted in windows(encode(t, text), prefix(t), length, context_len):
        given = read[:len(read) - (len(wanted) - 1)]
        total += likelihood(model, given, wanted, length)[0]
    return total


# ------------------------------------------------------------------------------------------------------------------ tests

@pytest.mark.parametrize("length, stride", [(CONTEXT, CONTEXT), (48, 48), (48, 16)])
def test_perplexity(decoder, book, tmp_path, length, stride):
    folder, model, t = decoder
    texts = [book[:6000], book[6000:6900] + " \n", "<s>" + book[:300], "</s>" + book[:300], "A"]
    paths = [tmp_path / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_text(text)
    said = json.loads(cotan("eval", folder, "--perplexity", *paths, "--context", length, "--stride", stride, "--json"))
    sums = np.zeros(3)
    for text, got in zip(texts, said["perplexity"]):
        want, words, n = rolling(model, t, text, length, length - stride + 1), len(re.split(r"\s+", text)), len(text.encode())
        assert abs(got["log_likelihood"] - want) < 1e-3, text[:20]
        assert (got["tokens"], got["words"], got["bytes"]) == (len(encode(t, text)), words, n)
        assert got["word_perplexity"] == pytest.approx(math.exp(-want / words), rel=1e-3)
        assert got["byte_perplexity"] == pytest.approx(math.exp(-want / n), rel=1e-3)
        assert got["bits_per_byte"] == pytest.approx(-want / n / math.log(2), abs=1e-3)
        sums += want, words, n
    assert said["perplexity"][-1]["word_perplexity"] == pytest.approx(math.exp(-sums[0] / sums[1]), rel=1e-3)


def questions(book):
    """Of lines of the book: which one follows?"""
    lines = [line for line in book.splitlines() if len(line) > 20][:400]
    rng, made = np.random.default_rng(3), []
    for i in range(60):
        gold = int(rng.integers(4))
        choices = [lines[j] for j in rng.integers(0, 400, 4)]
        choices[gold] = lines[i + 1]
        made.append({"query": lines[i] + "  " * (i % 3 == 0) if i % 7 else " ".join(lines[i:i + 12]), "choices": choices, "gold": gold})
    return made


def test_choices(decoder, book, tmp_path):
    folder, model, t = decoder
    asked = questions(book)
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(q) + "\n" for q in asked))
    got = json.loads(cotan("eval", folder, "--task", path, "--json"))["tasks"][0]
    right = []
    for q in asked:
        scores = np.array([likelihood(model, *pair(t, q["query"], " " + c))[0] for c in q["choices"]])
        by = scores, scores / [len(c) for c in q["choices"]], scores / [len(c.encode()) for c in q["choices"]]
        right.append([int(x.argmax() == q["gold"]) for x in by])
    right = np.array(right)
    assert [got["acc"], got["acc_norm"], got["acc_bytes"]] == pytest.approx(right.mean(0).tolist())
    assert got["acc_stderr"] == pytest.approx(right[:, 0].std(ddof=1) / math.sqrt(len(asked)))
    assert got["questions"] == 60 and 0 < right.mean() < 1


def test_the_harness_itself(decoder, book, tmp_path):
    """Its own HFLM and its own request types, where lm-eval is installed."""
    harness = pytest.importorskip("lm_eval.models.huggingface", reason="lm-evaluation-harness is not there")
    from lm_eval.api.instance import Instance
    folder, model, t = decoder
    theirs = harness.HFLM(pretrained=model, tokenizer=t, batch_size=4, device="cpu")
    asked = questions(book)[:20]
    pairs = [(q["query"], " " + c) for q in asked for c in q["choices"]] + [("", "A text")]
    want = theirs.loglikelihood([Instance("loglikelihood", {}, p, i) for i, p in enumerate(pairs)])
    for p, (value, greedy) in zip(pairs, want):
        mine = likelihood(model, *pair(t, *p))
        assert abs(mine[0] - value) < 1e-3 and mine[1] == greedy
    texts = [book[:6000], "<s>" + book[:300], "A"]
    want = theirs.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), i) for i, text in enumerate(texts)])
    paths = [tmp_path / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_text(text)
    got = json.loads(cotan("eval", folder, "--perplexity", *paths, "--json"))["perplexity"]
    for value, one in zip(want, got):
        assert abs(value - one["log_likelihood"]) < 1e-3


# -------------------------------------------------------------------------------------------------------------- embedding

def pooled(hidden, mask, how):
    """sentence-transformers' Pooling, of hidden states (batch, time, width) and their mask."""
    mask = mask[..., None].float()
    if how == "cls":
        return hidden[:, 0]
    if how == "lasttoken":
        return hidden[range(len(hidden)), mask[..., 0].sum(1).long() - 1]
    if how == "max":
        return hidden.masked_fill(mask == 0, -1e9).max(1).values
    if how == "weightedmean":
        mask = mask * torch.arange(1, hidden.shape[1] + 1)[None, :, None]
    n = mask.sum(1).clamp(min=1e-9)
    return (hidden * mask).sum(1) / (n.sqrt() if how == "mean_sqrt_len" else n)


TEXTS = ["To be, or not to be", "that is the question:", "Whether 'tis nobler in the mind to suffer the slings and arrows of outrageous fortune", "a"]
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens",
         "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}


@pytest.mark.parametrize("kind, how, normal", [
    ("BertModel", "mean", True), ("BertModel", "cls", True), ("BertModel", "max", False), ("BertModel", "mean_sqrt_len", False),
    ("RobertaModel", "mean", True), ("DistilBertModel", "mean", True), ("ModernBertModel", "cls", False), ("Qwen3Model", "lasttoken", True),
    ("LlamaModel", "weightedmean", True)])
def test_embeddings(book, tmp_path, kind, how, normal):
    name = {"BertModel": "bert", "RobertaModel": "roberta", "DistilBertModel": "distilbert", "ModernBertModel": "modernbert",
            "Qwen3Model": "qwen3", "LlamaModel": "llama2"}[kind]
    _, config, given = lm.MODELS[name]
    torch.manual_seed(3)
    model = getattr(transformers, kind)(getattr(transformers, config)(**given | dict(
        vocab_size=VOCAB, attn_implementation="eager"))).eval().float()
    model.save_pretrained(tmp_path)
    t = tokenizer_of(book, tmp_path, True)
    t.pad_token = "</s>"
    modules = ["Transformer", "Pooling"] + ["Normalize"] * normal
    (tmp_path / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": "1_Pooling" if m == "Pooling" else "", "type": f"sentence_transformers.models.{m}"}
        for i, m in enumerate(modules)]))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{v}": k == how for k, v in MODES.items()}))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 24, "do_lower_case": false}')
    read = t(TEXTS, padding=True, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        want = pooled(model(input_ids=read["input_ids"], attention_mask=read["attention_mask"]).last_hidden_state, read["attention_mask"], how)
    if normal:
        want = torch.nn.functional.normalize(want, p=2, dim=1)
    out = tmp_path / "vectors.npy"
    cotan("embed", tmp_path, "--out", out, "--truncate", stdin="\n".join(TEXTS))
    assert abs(np.load(out) - want.numpy()).max() < 1e-5 * max(1, float(want.abs().max()))
    lines = [json.loads(line) for line in cotan("embed", tmp_path, *TEXTS, "--truncate").splitlines()]
    assert [x["text"] for x in lines] == TEXTS and abs(np.array([x["embedding"] for x in lines]) - np.load(out)).max() < 1e-6
