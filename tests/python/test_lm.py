"""cotan.lm: published models from Python. Logits are those that Hugging Face's library gave (tests/unit/language_models.npz); all
else is compared with what NumPy makes of logits."""
import gc
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

os.environ.setdefault("COTAN_CC", "none")  # models are small: to interpret their kernels takes less than to compile them

import cotan  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import language_models as lm  # noqa: E402
from support.gguf import gguf  # noqa: E402

RECORDED = np.load(lm.RECORDED)
TEXT = "Now is the winter of our discontent"


def make(folder, name, **options):
    lm.save(folder, json.loads(str(RECORDED[f"{name}.config"])), json.loads(str(RECORDED[f"{name}.shapes"])))
    lm.save_tokenizer(folder, **options)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("qwen3"), "qwen3", chat=lm.TEMPLATE)


@pytest.fixture(scope="module")
def model(folder):
    return cotan.lm.load(folder)


def log_softmax(x):
    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def judged(model, ids, n):
    """Log-likelihood of the last n ids, and whether each is the likeliest in its place."""
    scores = log_softmax(model.logits(ids[:-1]).numpy())[-n:]
    return scores[range(n), ids[-n:]].sum(), bool((scores.argmax(1) == ids[-n:]).all())


def error(kind, function, *args, **options):
    with pytest.raises(kind) as found:
        function(*args, **options)
    text = str(found.value).split(os.path.basename(__file__) + ":")[-1]
    return text.split(": ", 1)[1] if text[:1].isdigit() else text


# ------------------------------------------------------------------------------------------------ tensors

@pytest.mark.parametrize("name", ["llama2", "mixtral", "gpt2", "bert", "mamba"])
def test_logits_are_the_recorded_ones(name, tmp_path):
    m = cotan.lm.load(make(tmp_path / name, name))
    want, got = RECORDED[f"{name}.logits"], m.logits(lm.IDS).numpy()
    assert abs(got[:1, RECORDED["at"]] - want).max() < 1e-4 * max(1, abs(want).max())
    assert m(lm.IDS[0].tolist()).shape == (40, 96) and m.hidden(cotan.asarray(lm.IDS)).shape == (2, 40, 32)


def test_one_that_reads_one_text_and_writes_another(tmp_path):
    m = cotan.lm.load(make(tmp_path / "t5", "t5"))
    got = m.logits(lm.IDS, lm.WRITTEN).numpy()
    want = RECORDED["t5.logits"]
    assert abs(got[:1, RECORDED["at"] % 12] - want).max() < 1e-4 * abs(want).max()
    assert error(ValueError, m.logits, lm.IDS) == "logits: t5 is an encoder-decoder model; give decoder_ids, too"
    assert error(ValueError, m.embed, "a") == "lm_embed: t5 is an encoder-decoder model"
    assert error(ValueError, m.generate, "a") == (
        "generate: t5 is an encoder-decoder model; logits(ids, decoder_ids) takes both")


def loss_of(m):
    logits, ids = m.logits(lm.IDS), cotan.asarray(lm.IDS)
    return cotan.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 96), ids[:, 1:].reshape(-1))


def test_training(tmp_path, folder):
    m = cotan.lm.load(folder, trainable=True)
    names = [name for name, _ in m.named_parameters()]
    assert "model.layers.0.self_attn.q_proj.weight" in names and len(names) == len(m.parameters()) == len(m.state_dict())
    loss = loss_of(m)
    loss.backward()
    # A small step along one gradient changes the loss by its slope.
    value = m.state_dict()["model.layers.1.mlp.up_proj.weight"]
    slope, step = value.grad.numpy(), 1e-2 / np.sqrt((value.grad.numpy() ** 2).sum())
    with cotan.no_grad():
        value += cotan.asarray(step * slope)
        up = loss_of(m).item()
        value -= cotan.asarray(2 * step * slope)
        down = loss_of(m).item()
        value += cotan.asarray(step * slope)
    assert abs((up - down) / (2 * step) - (slope ** 2).sum()) < 0.01 * (slope ** 2).sum()
    optimizer, losses = cotan.optim.AdamW(m.parameters(), lr=1e-2), []
    for _ in range(3):
        m.zero_grad()
        loss = loss_of(m)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]
    m.save(tmp_path / "saved")
    again = cotan.lm.load(tmp_path / "saved")
    assert (again.logits(lm.IDS).numpy() == m.logits(lm.IDS).numpy()).all()
    assert again.tokenizer.encode("ab") == m.tokenizer.encode("ab") and again.apply_chat_template([{"role": "user"}]).endswith("assistant: ")
    # What was trained is what writes and judges.
    ids = lm.IDS[0].tolist()
    assert m.generate(ids, max_tokens=4, temperature=0).token_ids == again.generate(ids, max_tokens=4, temperature=0).token_ids
    assert m.loglikelihood([(ids[:3], ids[3:])]) == again.loglikelihood([(ids[:3], ids[3:])])


def test_without_gradients(model, folder):
    m = cotan.lm.load(folder, trainable=True)
    with cotan.no_grad():
        assert not m.logits(lm.IDS).requires_grad
    assert m.logits(lm.IDS).requires_grad and not model.logits(lm.IDS).requires_grad
    assert all(not p.requires_grad for p in model.parameters())


def test_a_model_may_go_before_what_was_made_of_it(tmp_path):
    folder = make(tmp_path / "m", "qwen3")
    maps = Path("/proc/self/maps")
    m = cotan.lm.load(folder)
    want, lazy = m.logits(lm.IDS).numpy(), m.logits(lm.IDS)
    del m
    gc.collect()
    assert not maps.exists() or str(folder) in maps.read_text()  # it is to be read yet
    got = lazy.numpy()
    assert (got == want).all()
    (cotan.ones(2) + 1).sum().item()
    assert not maps.exists() or str(folder) not in maps.read_text()
    m = cotan.lm.load(folder, trainable=True)
    want, weights = m.logits(lm.IDS).numpy(), m.parameters()
    lazy, first = m.logits(lm.IDS), weights[0].numpy()
    m.generate([1, 2], max_tokens=1)
    del m
    gc.collect()
    assert (lazy.numpy() == want).all() and (weights[0].numpy() == first).all()


# ------------------------------------------------------------------------------------------------ texts

def test_the_tokenizer(model):
    t = model.tokenizer
    ids = t.encode(TEXT)
    assert [lm.CHARACTERS[i] for i in ids] == list(TEXT) and t.decode(ids) == TEXT and t.decode(ids[0]) == "N"
    assert t.encode("a<s>") == [lm.CHARACTERS.index("a"), 0] and t.encode("<s>", allow_special=False) == t.encode("<") + t.encode("s>")
    assert t.decode([0, *ids], skip_special_tokens=True) == TEXT and t.decode([0, *ids]) == "<s>" + TEXT
    assert (t.vocab_size, len(t), t.bos_token_id, t.eos_token_id, t.pad_token_id, t.eos_token_ids, t.all_special_ids) == (96, 96, 0, 0, None, [0], [0])
    assert t.encode("ab", return_offsets=True) == (t.encode("ab"), [(0, 1), (1, 2)])
    assert t(["a", "bc"]) == {"input_ids": [t.encode("a"), t.encode("bc")]} and t.batch_decode([ids, ids[:3]]) == [TEXT, "Now"]
    assert t.convert_ids_to_tokens(ids[:3]) == ["N", "o", "w"] and t.convert_tokens_to_ids(["N", "no"]) == [ids[0], None]
    assert error(TypeError, t.encode, 5) == "encode: the text must be a str, not int"


def test_chat_templates(model):
    messages = [{"role": "user", "content": "Hello"}]
    assert model.apply_chat_template(messages) == "user: Hello\nassistant: " and model.apply_chat_template(messages, add_generation_prompt=False) == "user: Hello\n"
    assert cotan.lm.ChatTemplate(text="{{ tools[0].name }} {{ mood }}").render([{}], tools=[{"name": "look"}], mood="fine") == "look fine"
    assert error(TypeError, cotan.lm.ChatTemplate) == "ChatTemplate: it takes a path or text=, one of them"
    answer = model.generate(messages, max_tokens=5, temperature=0)
    assert answer.text == model.generate(model.apply_chat_template(messages), max_tokens=5, temperature=0).text


def test_generate(model):
    ids = model.tokenizer.encode(TEXT)
    got = model.generate(TEXT, max_tokens=12, temperature=0, logprobs=3, stop_token_ids=[])
    assert got.finish_reason == "length" and got.prompt_tokens == len(ids) and str(got) == got.text == model.tokenizer.decode(got.token_ids, True)
    scores = log_softmax(model.logits(ids + got.token_ids).numpy())[len(ids) - 1:-1]
    assert scores.argmax(1).tolist() == got.token_ids
    assert abs(scores.max(1) - got.logprobs).max() < 1e-4
    for row, top in zip(scores, got.top_logprobs):
        best = np.argsort(-row)[:3].tolist()
        assert list(top) == best and abs(row[best] - list(top.values())).max() < 1e-4
    assert model.generate(cotan.asarray(ids), max_tokens=12, temperature=0, stop_token_ids=[]).token_ids == got.token_ids
    pieces = list(model.generate(TEXT, max_tokens=12, temperature=0, stop_token_ids=[], stream=True))
    assert [p.token_id for p in pieces] == got.token_ids and "".join(map(str, pieces)) == got.text
    ended = model.generate(TEXT, max_tokens=12, temperature=0, stop_token_ids=[got.token_ids[4]])
    assert ended.finish_reason == "stop" and ended.token_ids == got.token_ids[:got.token_ids.index(got.token_ids[4])]


def test_stop_strings(model):
    whole = model.generate(TEXT, max_tokens=30, seed=3, stop_token_ids=[]).text
    mark = whole[10:13]
    got = model.generate(TEXT, max_tokens=30, seed=3, stop_token_ids=[], stop=[mark, "no such text"])
    assert got.text == whole[:whole.index(mark)] and (got.stop, got.finish_reason) == (mark, "stop")
    streamed = model.generate(TEXT, max_tokens=30, seed=3, stop_token_ids=[], stop=mark, stream=True)
    assert "".join(chunk.text for chunk in streamed) == got.text


def test_batches_give_what_each_prompt_gives_alone(model):
    prompts = [TEXT, lm.IDS[1, :9].tolist(), [{"role": "user", "content": "Hi"}], TEXT[:5]]
    together = model.generate(prompts, max_tokens=10, seed=7)
    assert [x.token_ids for x in together] == [model.generate(p, max_tokens=10, seed=7 + i).token_ids for i, p in enumerate(prompts)]
    assert model.generate([TEXT, TEXT], max_tokens=10, temperature=2.0)[0].text != model.generate([TEXT, TEXT], max_tokens=10, temperature=2.0)[1].text
    streamed = {}
    for chunk in model.generate(prompts, max_tokens=10, seed=7, stream=True):
        streamed.setdefault(chunk.index, []).append(chunk.token_id)
    assert [streamed[i] for i in range(4)] == [x.token_ids for x in together]


def test_what_generation_config_says(tmp_path, folder):
    m = cotan.lm.load(make(tmp_path / "m", "qwen3"))
    drawn = m.generate(TEXT, max_tokens=12, seed=1).token_ids
    (tmp_path / "m/generation_config.json").write_text('{"do_sample": false, "top_k": 5}')
    likeliest = cotan.lm.load(tmp_path / "m").generate(TEXT, max_tokens=12, seed=1).token_ids
    assert likeliest == m.generate(TEXT, max_tokens=12, temperature=0).token_ids != drawn
    assert m.generate(TEXT, max_tokens=12, top_k=1).token_ids == likeliest
    banned = m.generate(TEXT, max_tokens=12, temperature=0, bad_words_ids=[[likeliest[0]]])
    assert likeliest[0] not in banned.token_ids
    assert m.generate(TEXT, max_tokens=3, temperature=0, logit_bias={7: 100.0}).token_ids == [7] * 3

    def says(**generation):
        (tmp_path / "m/generation_config.json").write_text(json.dumps({"do_sample": False} | generation))
        return cotan.lm.load(tmp_path / "m").generate(TEXT, max_tokens=12, stop_token_ids=[likeliest[0]]).token_ids
    assert says() == []
    assert len(says(min_new_tokens=5)) >= 5 and likeliest[0] not in says(min_new_tokens=5)
    assert says(sequence_bias=[[[7], 100.0]]) == says(sequence_bias=[[[7], 100.0]], bad_words_ids=[[8]]) == [7] * 12
    assert 7 not in says(sequence_bias=[[[7], 100.0]], suppress_tokens=[7, -1])
    assert 7 not in says(sequence_bias=[[[7], 100.0]], bad_words_ids=[[7]])
    assert says(sequence_bias=[[[7], 100.0]], no_repeat_ngram_size=3).count(7) < 12
    with pytest.warns(UserWarning) as told:
        says(num_beams=4, top_h=None, sequence_bias=[[[7, 8], 1.0]])
    assert str(told[0].message) == (f"{tmp_path}/m: generation_config.json has keys that are not supported: sequence_bias, num_beams; "
                                    "output may differ from that of transformers")
    assert told[0].filename == __file__
    for wrong in ("x", 3, {"a": 1}, [[]], [[[]]], [["x"]], [[[1], "x"]], [[[-1], 2.0]], [[[10**6], 2.0]]):
        with pytest.warns(UserWarning, match="not supported: bad_words_ids, sequence_bias; output"):
            assert says(bad_words_ids=wrong, sequence_bias=wrong) == []
    with pytest.warns(UserWarning, match="not supported: suppress_tokens; output"):
        says(suppress_tokens="x")
    assert says(suppress_tokens=[None, 2.5, "x", 10**6]) == []
    for name in ("no_repeat_ngram_size", "min_new_tokens", "min_length"):
        with pytest.raises(cotan.ArgumentError, match=f"engine_add: {name} is -1, it must be 0 to 2.14748e\\+09"):
            m.generate(TEXT, **{name: -1})


def test_keys_that_are_not_supported():
    """Python's table is the library's."""
    text = (Path(__file__).parents[2] / "src/models/generation.c").read_text()
    theirs = {key: None if harmless == "NAN" else int(harmless) for key, harmless in re.findall(r'\{"(\w+)", (NAN|\d)\},', text)}
    assert theirs == cotan.lm.UNSUPPORTED_GENERATION_KEYS and len(theirs) > 15


def test_activations(folder, model, tmp_path):
    """Products with quantised weights take them as f32 where that is asked for, with the bits of the numbers that the weights stand for."""
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    lm.save_quantised(folder, packed, plain)
    ids = list(range(3, 40))
    usual, exact, numbers, same = (cotan.lm.load(path, **more) for path, more in (
        (packed, {}), (packed, {"activations": "f32"}), (plain, {}), (plain, {"activations": "f32"})))
    assert [m.activations for m in (usual, exact, numbers, same, model)] == ["int8", "f32", "f32", "f32", "f32"]
    got, want, *others = (m.logits(ids).numpy() for m in (usual, exact, numbers, same))
    assert all(x.tobytes() == want.tobytes() for x in others) and (got != want).any()
    assert exact.generate(ids, max_tokens=8, temperature=0).token_ids == numbers.generate(ids, max_tokens=8, temperature=0).token_ids
    assert usual.logits(ids).numpy().tobytes() == got.tobytes()  # both in one process


def test_an_architecture_of_ones_own(tmp_path):
    """By a row of text: the same model under another name, and one whose parts have no place in it."""
    folder = make(tmp_path / "m", "qwen3")
    want = cotan.lm.load(folder).logits([[5, 6, 7]]).tolist()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "my_qwen"}))
    with pytest.raises(Exception, match='key "model_type" is "my_qwen", an architecture that is not known'):
        cotan.lm.load(folder)
    cotan.lm.add_architecture("my_qwen: like=qwen3")
    assert cotan.lm.load(folder).logits([[5, 6, 7]]).tolist() == want
    with pytest.raises(Exception, match='there is no architecture "qwem" to be like'):
        cotan.lm.add_architecture("my_qwen: like=qwem")


def test_numbers_without_an_end(tmp_path):
    """Python writes whole numbers of any size: such a one, that nobody asks for, leaves the others what they are."""
    folder = make(tmp_path / "m", "qwen3")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_length": 10**30, "list": [1, {"x": 10**40}]}))
    m = cotan.lm.load(folder)
    assert (m.context_length, m.vocab_size) == (128, 96) and abs(m.logits(lm.IDS).numpy()[0, 0] - RECORDED["qwen3.logits"][0, 0]).max() < 1e-3
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 10**30}))
    with pytest.raises(cotan.FormatError, match=r'config.json: "width" .* it must be a whole number'):
        cotan.lm.load(folder)


def test_streams_that_are_left_and_threads(model):
    stream = model.generate(TEXT, max_tokens=90, stream=True, stop_token_ids=[])
    next(stream)
    stream.close()
    model.generate(TEXT, max_tokens=50, stream=True)  # never begun
    gc.collect()
    want = [model.generate(TEXT, max_tokens=15, seed=i).token_ids for i in range(4)]
    got = [None] * 4

    def write(i):
        got[i] = model.generate(TEXT, max_tokens=15, seed=i).token_ids
    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == want


def test_interrupt(folder):
    code = f"""
import cotan, os, signal, threading
m = cotan.lm.load({str(folder)!r})
m.generate("ab", max_tokens=2)
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        m.generate("ab", max_tokens=100, stop_token_ids=[])
except KeyboardInterrupt:
    print("interrupted", len(m.generate("ab", max_tokens=3, stop_token_ids=[]).token_ids))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted 3\n", done.stderr


# ------------------------------------------------------------------------------------------------ judging

def test_loglikelihood(model):
    t = model.tokenizer
    ids = t.encode(TEXT)
    best = model.generate(ids, max_tokens=2, temperature=0, stop_token_ids=[]).token_ids
    pairs = [(ids[:5], ids[5:9]), (ids, best), (ids[:1], ids[1:])]
    got = model.loglikelihood(pairs)
    assert got[1][1] is True
    for (given, rest), (value, greedy) in zip(pairs, got):
        want, likeliest = judged(model, given + rest, len(rest))
        assert abs(value - want) < 1e-4 and greedy == likeliest
    texts = model.loglikelihood([("Now is ", "the"), ("", "Now")])  # the space is judged; nothing given: <s> is
    assert texts[0][0] == pytest.approx(judged(model, t.encode("Now is the"), 4)[0], abs=1e-4)
    assert texts[1][0] == pytest.approx(judged(model, [0, *t.encode("Now")], 3)[0], abs=1e-4)
    long = (ids * 8)[:200]  # beyond the context of 128: its beginning is left out
    assert model.loglikelihood([(long[:190], long[190:])])[0][0] == pytest.approx(judged(model, long[-129:], 10)[0], abs=1e-4)


def test_perplexity(model):
    text = (TEXT + " \n") * 9
    ids = model.tokenizer.encode(text)
    for context, stride in ((0, 0), (32, 0), (32, 8)):
        got = model.perplexity(text, context=context, stride=stride)
        context, done, want, windows = context or 128, 0, 0.0, 0
        while done < len(ids):
            end = min(len(ids), done + (stride or context if done else context))
            want += judged(model, [0, *ids][max(0, end - context):end + 1], end - done)[0]
            done, windows = end, windows + 1
        assert got.log_likelihood == pytest.approx(want, abs=1e-3)
        assert (got.tokens, got.bytes, got.words, got.windows) == (len(ids), len(text), 7 * 9 + 1, windows)
    assert got.token_perplexity == pytest.approx(np.exp(-want / len(ids))) and got.bits_per_byte == pytest.approx(-want / len(text) / np.log(2))
    assert got.word_perplexity == pytest.approx(np.exp(-want / 64)) and got.byte_perplexity == pytest.approx(np.exp(-want / len(text)))


QUESTIONS = [
    {"query": "To be or not", "choices": ["to be", "a question of some length", "x"], "gold": 1},
    {"ctx": "Now is", "endings": ["the winter", "a sun"], "label": "0"},
    {"question": "Which?", "choices": {"text": ["one", "three", "two"], "label": ["A", "B", "C"]}, "answerKey": "B"},
    {"goal": "Boil water", "sol1": "with fire", "sol2": "with ice", "label": 0},
    {"context": "And", "options": ["é", "ee"], "answer": "A"}]


def test_multiple_choice(model, tmp_path):
    path = tmp_path / "task.jsonl"
    questions = QUESTIONS[:4]  # the last has a character that the tokenizer does not know
    path.write_text("\n".join(map(json.dumps, questions)) + "\n\n")
    got = model.multiple_choice(path)
    right = np.zeros((3, 4))
    for i, q in enumerate(questions):
        given = next(q[k] for k in ("query", "ctx", "question", "goal") if k in q)
        choices = q.get("choices", q.get("endings"))
        choices = [q["sol1"], q["sol2"]] if choices is None else choices["text"] if isinstance(choices, dict) else choices
        scores = np.array([s for s, _ in model.loglikelihood([(given, " " + c) for c in choices])])
        lengths = np.array([len(c) for c in choices])
        right[:, i] = np.array([scores.argmax(), (scores / lengths).argmax(), (scores / lengths).argmax()]) == [1, 0, 1, 0][i]
    assert [got["acc"], got["acc_norm"], got["acc_bytes"]] == right.mean(1).tolist() and got["questions"] == 4
    assert got["acc_stderr"] == pytest.approx(np.std(right[0], ddof=1) / 2)
    assert model.multiple_choice(path, limit=2)["questions"] == 2


# ---------------------------------------------------------------------------------------------- embedding

def test_embeddings(model, tmp_path):
    texts = [TEXT, "Now", "is the winter of", "of our discontent " * 3]
    encoder = cotan.lm.load(make(tmp_path / "bert", "bert", bos=True))
    for m, usual in ((model, "last"), (encoder, "mean")):
        rows = [m.hidden(m.tokenizer.encode(text)).numpy().astype(np.float64) for text in texts]
        weights = [np.arange(1, len(r) + 1)[:, None] for r in rows]
        want = {"mean": [r.mean(0) for r in rows], "cls": [r[0] for r in rows], "last": [r[-1] for r in rows], "max": [r.max(0) for r in rows],
                "sqrt": [r.sum(0) / np.sqrt(len(r)) for r in rows], "weighted": [(w * r).sum(0) / w.sum() for w, r in zip(weights, rows)]}
        for name, vectors in want.items():
            got = m.embed(texts, pooling=name, normalize=False).numpy()
            assert abs(got - vectors).max() < 1e-5 * max(1, np.abs(vectors).max()), name
        unit = np.array(want[usual]) / np.linalg.norm(want[usual], axis=1, keepdims=True)
        assert abs(m.embed(texts).numpy() - unit).max() < 1e-6 and m.embed(TEXT).shape == (32,)
        # What a text gives does not depend on the others, in any bit.
        assert all((m.embed(texts, batch_tokens=64).numpy()[i] == m.embed(text).numpy()).all() for i, text in enumerate(texts))


def test_embeddings_as_the_folder_says(tmp_path):
    folder = make(tmp_path / "m", "bert")
    (folder / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    (folder / "1_Pooling").mkdir()
    pooling = folder / "1_Pooling/config.json"
    pooling.write_text('{"word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8, "do_lower_case": False, "more": 10**30}))
    m = cotan.lm.load(folder)
    want = m.hidden(m.tokenizer.encode(TEXT[:8])).numpy()[0]
    assert abs(m.embed(TEXT, truncate=True).numpy() - want).max() < 1e-5
    assert error(cotan.ArgumentError, m.embed, TEXT) == "lm_embed: text 0 has 35 tokens, the model reads 8 at most"
    said = str(pooling)
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}')
    assert error(cotan.UnsupportedError, m.embed, "a").endswith(f"{said}: 2 pooling modes are set, exactly one is needed")
    pooling.write_text('{"pooling_mode": "middle"}')
    assert error(cotan.UnsupportedError, m.embed, "a").endswith(f'{said}: pooling_mode "middle" is not known')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
    assert error(cotan.UnsupportedError, m.embed, "a").endswith(f'{folder}/modules.json: module "Dense" is not known')
    (folder / "modules.json").write_text('{')
    assert error(cotan.FormatError, m.embed, "a").endswith(f"{folder}/modules.json: it is no JSON list of modules")


def test_a_file_without_an_output_layer(tmp_path):
    """BertModel and Qwen3Model, of which embeddings are made: names without what stands in front, and no logits."""
    for name, prefix, kind, head in (("bert", "bert.", "BertModel", "cls."), ("llama2", "model.", "LlamaModel", "lm_head")):
        whole = make(tmp_path / name, name)
        tensors = {k: v for k, v in lm.safetensors.read(whole / "model.safetensors").items() if not k.startswith(head)}
        bare = tmp_path / f"{name}.bare"
        bare.mkdir()
        lm.safetensors.write(bare / "model.safetensors", {k.removeprefix(prefix): v for k, v in tensors.items()})
        config = json.loads((whole / "config.json").read_text())
        (bare / "config.json").write_text(json.dumps(config | {"architectures": [kind]}))
        lm.save_tokenizer(bare)
        m = cotan.lm.load(bare)
        assert (m.hidden(lm.IDS).numpy() == cotan.lm.load(whole).hidden(lm.IDS).numpy()).all() and m.embed("a").shape == (32,)
        assert error(cotan.ArgumentError, m.logits, lm.IDS) == "lm_logits: the model's file has no output layer, of which logits come"
        if name == "llama2":
            assert error(cotan.ArgumentError, m.generate, "a") == "engine_new: llama does not generate text: its file has no output layer"
        (bare / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
        with pytest.raises(cotan.FormatError, match="is missing"):
            cotan.lm.load(bare)


# ------------------------------------------------------------------------------------------------ bad input

def test_what_is_wrong(model, tmp_path):
    none = tmp_path / "none"
    lm.save(none, json.loads(str(RECORDED["qwen3.config"])), json.loads(str(RECORDED["qwen3.shapes"])))
    bare = cotan.lm.load(none)
    assert bare.tokenizer is None and len(bare.generate([5, 6], max_tokens=3).token_ids) == 3
    for name, args in (("generate", ("a",)), ("embed", ("a",)), ("perplexity", ("a",)), ("loglikelihood", ([("a", "b")],)),
                       ("multiple_choice", ("a",))):
        assert error(ValueError, getattr(bare, name), *args) == f"{name}: the model in {none} has no tokenizer; give token ids"
    assert error(ValueError, bare.apply_chat_template, []) == f"apply_chat_template: the model in {none} has no chat template"
    wrong = [("temperature", -1, "engine_add: temperature is -1, it must be 0 to 1e+06"), ("top_p", 2, "engine_add: top_p is 2, it must be 0 to 1"),
             ("max_tokens", 0, "generate: max_tokens must be 1 or more, not 0"),
             ("seed", -1, "generate: seed must be a whole number from 0 to 2**63 - 1, not -1"),
             ("logprobs", 129, "generate: logprobs must be True, or a number from 0 to 128, not 129"),
             ("stop", [""], "engine_add: stop string 0 is empty")]
    for name, value, text in wrong:
        assert error(ValueError, model.generate, TEXT, **{name: value}) == text
    assert error(ValueError, model.generate, [96]) == "engine_add: token 0 of the prompt is 96, it must be 0 to 95"
    assert error(ValueError, model.generate, "a" * 128) == ("engine_add: the prompt has 128 tokens; it must have 1 to 127, one less than "
                                                           "the context")
    assert error(TypeError, model.generate, [1.5]) == "generate: prompt 0 is no text, no list of messages and no list of token ids"
    assert error(TypeError, model.generate, []) == (
        "generate: the prompt must be a text, a list of messages, a list of token ids, or a list of such prompts")
    assert error(TypeError, model.logits, [1.5]) == "logits: ids must be whole numbers, not cotan.float32"
    assert error(TypeError, model.embed, [5]) == "embed: texts must be str, not int"
    assert error(ValueError, model.embed, "a", pooling="middle") == (
        "embed: pooling is one of mean, cls, last, max, sqrt, weighted, not 'middle'")
    assert error(ValueError, model.embed, ["a", ""]) == "lm_embed: text 1 is empty"
    assert error(ValueError, model.embed, "a" * 129) == "lm_embed: text 0 has 129 tokens, the model reads 128 at most"
    assert error(TypeError, model.loglikelihood, [("a", [5])]) == "loglikelihood: pair 0 must be two texts or two lists of token ids"
    assert error(TypeError, model.loglikelihood, [("a", "b"), ([1], [5])]) == "loglikelihood: pairs must all be texts or all be token ids"
    assert error(ValueError, model.loglikelihood, [("a", "")]) == "eval_log_likelihood: pair 0 has no token that is scored"
    assert error(ValueError, model.loglikelihood, [([], [5])]) == (
        "lm_score_tokens: text 0 has 1 tokens, of which 1 are scored; one at least is given")
    assert error(ValueError, model.loglikelihood, [([1], [96])]) == "lm_score_tokens: token 1 of text 0 is 96, it must be 0 to 95"
    assert error(ValueError, model.loglikelihood, [([1], [5] * 129)]) == (
        "lm_score_tokens: 129 tokens of text 0 are scored; they must be 128 at most, the context")
    assert error(ValueError, model.perplexity, "") == "eval_perplexity: the text is empty"
    assert error(ValueError, model.perplexity, "a", context=129) == "eval_perplexity: context is 129, it must be 2 to 128"
    assert error(ValueError, model.perplexity, "a", context=8, stride=9) == "eval_perplexity: stride is 9, it must be 1 to 8, the context"
    encoder = cotan.lm.load(make(tmp_path / "bert", "bert"))
    assert error(ValueError, encoder.perplexity, "a") == "eval_perplexity: bert does not generate text"
    assert error(ValueError, encoder.generate, "a") == "engine_new: bert does not generate text"
    assert error(ValueError, cotan.lm.load, none, activations="f16") == 'load: activations must be "int8" or "f32", not \'f16\''
    with pytest.raises(cotan.FileError, match="no-such-org"):
        cotan.lm.load("no-such-org/model")


@pytest.mark.parametrize("line, text", [
    ("{", "line 2: column 1: string or '}' expected near end of file"),
    ("[]", "line 2: it is no JSON object"),
    ('{"choices": ["a", "b"], "gold": 0}', 'line 2: it has no text ("query", "ctx", "question", "goal", "context")'),
    ('{"query": "", "choices": ["a", "b"], "gold": 0}', "line 2: its text is empty"),
    ('{"query": "q", "gold": 0}', 'line 2: it has no choices ("choices", "endings", "options")'),
    ('{"query": "q", "choices": ["a"], "gold": 0}', "line 2: choices are a list of two texts or more"),
    ('{"query": "q", "choices": ["a", 5], "gold": 0}', "line 2: choice 1 is no text"),
    ('{"query": "q", "choices": ["a", ""], "gold": 0}', "line 2: choice 1 is empty"),
    ('{"query": "q", "choices": ["a", "b"]}', 'line 2: it does not have the index of the right choice ("gold", "label", "answer", "answerKey")'),
    ('{"query": "q", "choices": ["a", "b"], "gold": 2}', 'line 2: "gold" is choice 2, there are 0 to 1'),
    ('{"query": "q", "choices": ["a", "b"], "gold": "C"}', 'line 2: "gold" is choice 2, there are 0 to 1'),
    ('{"query": "q", "choices": ["a", "b"], "label": "no"}', 'line 2: "label" is "no", no label of a choice'),
    ('{"query": "q", "choices": ["a", "b"], "label": 0.5}', 'line 2: "label" is no number or label of a choice'),
])
def test_questions_that_are_wrong(model, tmp_path, line, text):
    path = tmp_path / "task.jsonl"
    path.write_text(json.dumps(QUESTIONS[0]) + "\n" + line + "\n")
    assert error(cotan.FormatError, model.multiple_choice, path).endswith(f"{path}: {text}")
    path.write_text("\n \n")
    assert error(cotan.FormatError, model.multiple_choice, path).endswith(f"{path}: it has no questions")


def test_the_page(tmp_path, monkeypatch, capsys):
    """The blocks of docs/python-language-models.md, one after the other."""
    make(tmp_path / "my-model", "qwen3", chat=lm.TEMPLATE)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/python-language-models.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "the page", "exec"), names)
    assert (tmp_path / "trained/tokenizer.json").exists() and "user: Hello" in capsys.readouterr().out
    assert names["logits"].shape == (1, 5, 96) and names["vectors"].shape == (2, 32)


# ---------------------------------------------------------------------------------------------- encoders in GGUF

BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.LayerNorm": "token_embd_norm", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "attention.self.query": "attn_q", "attention.self.key": "attn_k",
        "attention.self.value": "attn_v", "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


@pytest.mark.parametrize("number, pooling", [(1, "mean"), (2, "cls"), (3, "last"), (None, "mean")])
def test_a_bert_in_gguf(number, pooling, tmp_path):
    """Vectors are those of the folder's hidden states, pooled as the file's number says."""
    config, shapes = (json.loads(str(RECORDED[f"bert.{what}"])) for what in ("config", "shapes"))
    lm.save(tmp_path / "folder", config, shapes)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + [f"\u2581{c}" for c in "abcdefghijklmnopqrstuvwxyz"] + [f"{a}{b}" for a in "abcdef" for b in "ghijklmnopq"]
    pairs = {"general.architecture": "bert", **{f"bert.{k}": v for k, v in {
        "block_count": 3, "context_length": 128, "embedding_length": 32, "feed_forward_length": 48, "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-12, "attention.causal": False, **({} if number is None else {"pooling_type": number})}.items()},
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": words, "tokenizer.ggml.token_type": ("i32", [3, 2, 3, 3] + [1] * 92),
        "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.padding_token_id": 0}
    tensors = {}
    for full, shape in shapes.items():
        if not full.startswith("bert."):
            continue
        base, end = full.removeprefix("bert.").rsplit(".", 1)
        own = f"blk.{base.split('.')[2]}.{BERT[base.split('.', 3)[3]]}" if base.startswith("encoder") else BERT[base]
        x = lm.weight(full, tuple(shape))
        tensors[f"{own}.{end}"] = 0, x.shape[::-1], x.tobytes()
    (tmp_path / "m.gguf").write_bytes(gguf(pairs, tensors))
    m, text = cotan.lm.load(tmp_path / "m.gguf"), "a b c d e"
    ids = m.tokenizer.encode(text)
    assert len(set(ids)) > 4
    hidden = cotan.lm.load(tmp_path / "folder").hidden(np.array([ids], np.int32)).numpy()[0]
    want = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
    np.testing.assert_allclose(m.embed(text), want / np.linalg.norm(want), rtol=1e-5, atol=1e-6)
