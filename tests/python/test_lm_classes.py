"""cotan.lm's classify, cotan embed --classify and --rank, and the server's /rerank, /predict and /embed: models that tell classes of texts apart
score a text, and two that are read together, as Hugging Face's library does (tests/unit/language_models.npz)."""
import json
import os
import subprocess

os.environ.setdefault("COTAN_CC", "none")  # models are small: to interpret their kernels takes less than to compile them

import cotan  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import language_models as lm  # noqa: E402
from support.program import command  # noqa: E402
from support.serving import Server  # noqa: E402

RECORDED = np.load(lm.RECORDED)
DOCUMENTS = ["Nothing.", lm.ANSWER, "a", "Something else, of no use."]


def make(folder, name, around=True, **config):
    was = json.loads(str(RECORDED[f"{name}.config"])) | config
    lm.save(folder, {k: v for k, v in was.items() if v is not None}, json.loads(str(RECORDED[f"{name}.shapes"])))
    lm.save_tokenizer(folder, around=around)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name), name) for name in [*lm.CLASSES, "bert"]
            if f"{name}.config" in RECORDED.files}


def run(*words, fails=0):
    done = subprocess.run([*command("cotan"), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.mark.parametrize("name", lm.CLASSES)
def test_scores(folders, name):
    model = cotan.lm.load(folders[name])
    want = RECORDED[f"{name}.scores"]
    got = model.classify([lm.QUESTION, (lm.QUESTION, lm.ANSWER)]).numpy()
    assert got.shape == want.shape == (2, len(model.labels)) and abs(got - want).max() < 1e-4
    assert (model.classify((lm.QUESTION, lm.ANSWER)).numpy() == got[1]).all()
    likely = model.classify([lm.QUESTION], probabilities=True).numpy()[0]
    e = np.exp(want[0].astype(np.float64))
    assert abs(likely - (e / (1 + e) if len(e) == 1 else e / e.sum())).max() < 1e-5
    assert model.labels == (["bad", "so so", "good"] if name == "modernbert_classes" else [f"LABEL_{i}" for i in range(len(e))])
    assert not model.is_generative
    with pytest.raises(cotan.Error, match="the model is a classifier: it has no logits of tokens"):
        model.logits([1, 2, 3]).numpy()


def test_what_is_saved(folders, tmp_path):
    model = cotan.lm.load(folders["roberta_classes"], trainable=True)
    model.save(tmp_path / "saved")
    for file in folders["roberta_classes"].glob("tokenizer*"):
        (tmp_path / "saved" / file.name).write_bytes(file.read_bytes())
    again = cotan.lm.load(tmp_path / "saved").classify(lm.QUESTION).numpy()
    assert abs(again - RECORDED["roberta_classes.scores"][0]).max() < 1e-4


def test_labels_that_do_not_exclude_each_other(tmp_path):
    model = cotan.lm.load(make(tmp_path, "roberta_classes", problem_type="multi_label_classification"))
    want = 1 / (1 + np.exp(-RECORDED["roberta_classes.scores"][0].astype(np.float64)))
    assert abs(model.classify(lm.QUESTION, probabilities=True).numpy() - want).max() < 1e-5


def test_kinds_of_tokens(tmp_path):
    """The template's, also where tokenizer_config.json names no inputs; of one that names others alone all are of the first kind, as in transformers."""
    def scores(names, kind=1):
        folder = make(tmp_path / f"{names}{kind}", "bert_rank")
        config, tokenizer = (json.loads((folder / file).read_text()) for file in ("tokenizer_config.json", "tokenizer.json"))
        assert "model_input_names" not in config
        (folder / "tokenizer_config.json").write_text(json.dumps(config | ({} if names is None else {"model_input_names": names.split()})))
        for piece in tokenizer["post_processor"]["pair"]:
            for part in piece.values():
                part["type_id"] = min(part["type_id"], kind)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        return cotan.lm.load(folder).classify([lm.QUESTION, (lm.QUESTION, lm.ANSWER)]).numpy()

    want, without = scores(None), scores(None, kind=0)
    assert abs(want - RECORDED["bert_rank.scores"]).max() < 1e-4
    assert want[0] == without[0] and abs(want[1] - without[1]) > 1e-3
    assert (scores("input_ids token_type_ids attention_mask") == want).all()
    assert (scores("input_ids attention_mask") == without).all()


def said(function, *args, **options):
    with pytest.raises((cotan.Error, TypeError, ValueError)) as found:
        function(*args, **options)
    return str(found.value)


def test_errors(folders, tmp_path):
    model = cotan.lm.load(folders["bert_rank"])
    long = "a" * 200
    assert said(model.classify, long).endswith("lm_classify: text 0 has 202 tokens, the model reads 128 at most")
    assert said(model.classify, [("a", long)]).endswith("lm_classify: text 0 has 204 tokens, the model reads 128 at most")
    assert model.classify([long, (long, long)], truncate=True).shape == (2, 1)
    assert said(model.classify, [3]) == "classify: texts must be str, or tuples of two, not 3"
    assert said(cotan.lm.load(folders["bert"]).classify, "a").endswith("lm_classify: the model has no classification head (bert)")
    front = cotan.lm.load(make(tmp_path / "front", "bert_rank", around=False))
    assert front.classify([("a", "b")]).shape == (1, 1)
    file = tmp_path / "front/tokenizer.json"
    tokenizer = json.loads((folders["bert_rank"] / "tokenizer.json").read_text())
    tokenizer["post_processor"]["pair"] = []
    file.write_text(json.dumps(tokenizer))
    assert said(cotan.lm.load(tmp_path / "front").classify, [("a", "b")]).endswith(
        "lm_classify: text 0 is a pair, and the tokenizer has no pair format")
    assert said(cotan.lm.load, make(tmp_path / "other", "bert_rank", architectures=["BertForSequenceClassification"], model_type="mamba", state_size=8,
                                    conv_kernel=4, time_step_rank=2)).endswith(
        '"architectures" is "BertForSequenceClassification", whose head is not known')
    shapes = json.loads(str(RECORDED["bert_rank.shapes"]))
    del shapes["classifier.weight"]
    lm.save(tmp_path / "none", json.loads(str(RECORDED["bert_rank.config"])), shapes)
    lm.save_tokenizer(tmp_path / "none", around=True)
    assert '"classifier.weight" is missing' in said(cotan.lm.load, tmp_path / "none")


def test_program(folders, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(DOCUMENTS))
    scores = cotan.lm.load(folders["bert_rank"]).classify([(lm.QUESTION, d) for d in DOCUMENTS]).numpy()[:, 0]
    got = [json.loads(line) for line in run("embed", folders["bert_rank"], "--file", lines, "--rank", lm.QUESTION, "--json").splitlines()]
    order = np.argsort(-scores, kind="stable")
    assert [one["index"] for one in got] == list(order) and [one["text"] for one in got] == [DOCUMENTS[i] for i in order]
    assert np.allclose([one["score"] for one in got], scores[order], atol=1e-6)
    model = cotan.lm.load(folders["modernbert_classes"])
    likely = model.classify([lm.QUESTION], probabilities=True).numpy()[0]
    assert run("embed", folders["modernbert_classes"], lm.QUESTION, "--classify") == (
        f"{likely.max():7.4f}  {model.labels[likely.argmax()]:12}  {lm.QUESTION}\n")
    one = json.loads(run("embed", folders["modernbert_classes"], lm.QUESTION, "--classify", "--json"))
    assert one["index"] == 0 and one["text"] == lm.QUESTION and np.allclose([one["scores"][k] for k in model.labels], likely, atol=1e-6)
    bert, rank, classes = folders["bert"], folders["bert_rank"], folders["roberta_classes"]
    for words, message in [
            ([bert, "a", "--classify"], f"{bert} has no classification head"),
            ([classes, "a", "--rank", "b"], f"{classes} has 3 classes; --rank needs a model with one label, or an embedding model"),
            ([rank, "a", "--classify", "--rank", "b"], "--classify and --rank are two things"),
            ([rank, "a", "--classify", "--out", "b.npy"], "--classify and --out are two things"),
            ([rank, "a", "--rank", "b", "--no-normalize"], f"--no-normalize is for vectors, which {rank} does not make for that"),
            ([rank, "a", "--classify", "--pooling", "cls"], f"--pooling is for vectors, which {rank} does not make for that"),
            ([rank, "a", "--json"], "--json is for --rank and --classify"), ([rank, "a", "--top", 1], "--top is for --rank")]:
        assert run("embed", *words, fails=2) == f"cotan: embed: {message}\n"


def test_server(folders):
    names = {"bert_rank": "rank", "modernbert_classes": "classes", "bert": "vectors"}
    server = Server(*(folders[name] for name in names), "--served-name", ",".join(names.values()))
    try:
        rank, classes = (cotan.lm.load(folders[name]) for name in ("bert_rank", "modernbert_classes"))
        pairs = [(lm.QUESTION, d) for d in DOCUMENTS]
        logits, likely = (rank.classify(pairs, probabilities=p).numpy()[:, 0] for p in (False, True))
        order = list(np.argsort(-logits, kind="stable"))
        got = server.say("/v1/rerank", model="rank", query=lm.QUESTION, documents=DOCUMENTS, return_documents=True)
        assert [r["index"] for r in got["results"]] == order and got["results"][0]["document"] == {"text": DOCUMENTS[order[0]]}
        assert np.allclose([r["relevance_score"] for r in got["results"]], likely[order], atol=1e-6)
        assert got["usage"]["total_tokens"] == sum(3 + len(a) + len(b) for a, b in pairs)
        # As text-embeddings-inference has it.
        got = server.say("/rerank", query=lm.QUESTION, texts=DOCUMENTS, raw_scores=True, return_text=True, top_n=3)
        assert [r["index"] for r in got] == order[:3] and [r["text"] for r in got] == [DOCUMENTS[i] for i in order[:3]]
        assert np.allclose([r["score"] for r in got], logits[order][:3], atol=1e-5)
        # Vectors are compared by their cosine, as ever.
        vectors = cotan.lm.load(folders["bert"]).embed([*DOCUMENTS, lm.QUESTION]).numpy()
        got = server.say("/rerank", model="vectors", query=lm.QUESTION, documents=DOCUMENTS)["results"]
        assert np.allclose([r["relevance_score"] for r in got], np.sort(vectors[:-1] @ vectors[-1])[::-1], atol=1e-5)
        assert np.allclose(server.say("/embed", model="vectors", inputs=DOCUMENTS), vectors[:-1], atol=1e-6)
        assert np.allclose(server.say("/embed", model="vectors", inputs="a"), vectors[2:3], atol=1e-6)
        raw = np.array(server.say("/embed", model="vectors", inputs="a", normalize=False)[0])
        assert np.allclose(raw / np.linalg.norm(raw), vectors[2], atol=1e-6) and abs(np.linalg.norm(raw) - 1) > 1e-3

        def labels(texts, **options):
            scores = classes.classify(texts, **options).numpy()
            return [sorted(({"score": pytest.approx(float(s), abs=1e-5), "label": name} for s, name in zip(row, classes.labels)),
                           key=lambda one: -one["score"].expected) for row in scores]
        assert server.say("/predict", model="classes", inputs="a") == labels(["a"], probabilities=True)[0]
        assert server.say("/predict", model="classes", inputs=["a", "b"], raw_scores=True) == labels([("a", "b")])[0]
        assert server.say("/predict", model="classes", inputs=[["a"], ["a", "b"]], raw_scores=True) == labels(["a", ("a", "b")])
        long = "a" * 300
        assert len(server.say("/predict", model="classes", inputs=long, truncate=True)) == 3
        for path, body, message in [
                ("/predict", {"model": "vectors", "inputs": "a"}, "vectors has no classification head"),
                ("/predict", {"inputs": ["a", "b", "c"]}, 'inputs must be a string, a list of one or two, or a list of such lists, not ["a","b","c"]'),
                ("/predict", {}, "inputs must be a string, a list of one or two, or a list of such lists, not missing"),
                ("/predict", {"inputs": long}, "lm_classify: text 0 has 302 tokens, the model reads 128 at most"),
                ("/embed", {"inputs": [1]}, "inputs[0] must be a string, not 1"),
                ("/embed", {"inputs": []}, "inputs must be a string or a list of them, not []"),
                ("/rerank", {"query": "a", "texts": ["b"] * 2049}, "texts: at most 2048 at a time, not 2049"),
                ("/rerank", {"query": "a", "texts": [long]}, "lm_classify: text 0 has 304 tokens, the model reads 128 at most"),
                ("/rerank", {"model": "classes", "query": "a", "documents": ["b"]},
                 "classes has 3 classes; reranking needs a model with one label, or an embedding model")]:
            assert server.refused(path, body) == (400, message)
    finally:
        server.stop()
