"""cotan pull against a mirror on this machine: what comes, what is refused, what goes on where it ended."""
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.mirror import COMMIT, Mirror
from support.program import command

WEIGHTS = random.Random(5).randbytes(3_000_000)
FILES = {
    "config.json": b"{\"model_type\": \"small\"}\n", "README.md": b"# small\n", "tokenizer.json": b"{}", "chat_template.jinja": b"{{ bos_token }}x",
    "tokenizer_config.json": b"{\"bos_token\": \"<s>\"}", "additional_chat_templates/tool_use.jinja": b"tools",
    "modules.json": b"[]", "sentence_bert_config.json": b"{}", "1_Pooling/config.json": b"{}", "2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"dense",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode(),
    "model-00001-of-00002.safetensors": WEIGHTS, "model-00002-of-00002.safetensors": WEIGHTS[:1000],
    "extra.safetensors": b"not of the index", "pytorch_model.bin": b"old", "onnx/model.onnx": b"other",
}
BROUGHT = sorted(set(FILES) - {"README.md", "extra.safetensors", "pytorch_model.bin", "onnx/model.onnx"})


@pytest.fixture
def mirror():
    made = Mirror(FILES)
    yield made
    made.close()


@pytest.fixture
def pull(mirror, tmp_path):
    def run(*args, wait=True, limit=None, **env):
        full = {**{k: v for k, v in os.environ.items() if "proxy" not in k.lower()}, "HF_ENDPOINT": mirror.endpoint,
                "HF_HUB_CACHE": str(tmp_path / "cache"), **env}
        full = {k: v for k, v in full.items() if v is not None}
        before = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        process = subprocess.Popen([*command("cotan"), "pull", *args], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=before)
        if not wait:
            return process
        process.out, process.err = process.communicate(timeout=120)
        return process
    return run


def model(tmp_path):
    return tmp_path / "cache/models--org--small"


def snapshot(tmp_path):
    folder = model(tmp_path) / "snapshots" / COMMIT
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_model(mirror, pull, tmp_path):
    done = pull("org/small")
    assert (done.returncode, done.out) == (0, f"{model(tmp_path)}/snapshots/{COMMIT}\n"), done.err
    assert snapshot(tmp_path) == {name: FILES[name] for name in BROUGHT}
    link = model(tmp_path) / "snapshots" / COMMIT / "additional_chat_templates/tool_use.jinja"
    assert os.readlink(link) == "../../../blobs/" + mirror.tag("additional_chat_templates/tool_use.jinja")
    assert (model(tmp_path) / "refs/main").read_text() == COMMIT
    assert sorted(p.name for p in (model(tmp_path) / "blobs").iterdir()) == sorted({mirror.tag(n) for n in BROUGHT})
    assert {p.name for p in (tmp_path / "cache/.locks/models--org--small").iterdir()} == {mirror.tag(n) + ".lock" for n in BROUGHT}
    assert "model-00001-of-00002.safetensors: 3 MB\n" in done.err
    # A second time nothing is brought again.
    mirror.requests.clear()
    again = pull("org/small", "--quiet")
    assert (again.returncode, again.out, again.err) == (0, done.out, "")
    assert not [r for r in mirror.requests if r[0] == "cdn"]


def test_the_library_finds_it(pull, tmp_path):
    assert pull("org/small").returncode == 0
    offline = pull("org/small", HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    assert (offline.returncode, offline.out) == (0, f"{model(tmp_path)}/snapshots/{COMMIT}\n")
    by_home = pull("org/small", HF_HUB_OFFLINE="1", HF_HUB_CACHE=None, HF_HOME=str(tmp_path / "nothing"))
    assert by_home.returncode == 1
    assert by_home.err == (f"cotan: org/small: revision main is not in the cache, {tmp_path}/nothing/hub/models--org--small\n"
                           "  hint: download it: cotan pull org/small\n")


def test_one_file_of_gguf(mirror, pull, tmp_path):
    mirror.files = {"config.json": b"{}", "small-Q4_K_M.gguf": b"q4", "small-Q4_K_S.gguf": b"q4s", "small-Q8_0-00001-of-00002.gguf": b"a",
                    "small-Q8_0-00002-of-00002.gguf": b"b", "mmproj-Q8_0.gguf": b"m"}
    for what, names in (("org/small:q4_k_m", ["small-Q4_K_M.gguf"]), ("org/small:Q8_0", ["small-Q8_0-00001-of-00002.gguf", "small-Q8_0-00002-of-00002.gguf"]),
                        ("org/small/small-Q4_K_S.gguf", ["small-Q4_K_S.gguf"])):
        done = pull(what, "--dry-run")
        assert (done.returncode, [line.split()[1] for line in done.out.splitlines()[:-1]]) == (0, names)
    assert pull("org/small:Q5").err == "cotan: pull: org/small: it has no GGUF file of Q5\n"
    assert pull("org/small").err == ("cotan: pull: org/small: there are several; name one, as ORG/NAME:TAG or ORG/NAME/FILE.gguf: "
                                     "small-Q4_K_M.gguf, small-Q4_K_S.gguf, small-Q8_0-00001-of-00002.gguf\n")
    assert pull("org/small/no.gguf").err == "cotan: pull: org/small: no file of it is \"no.gguf\"\n"
    assert pull("org/small:Q4_K_M").returncode == 0 and snapshot(tmp_path) == {"small-Q4_K_M.gguf": b"q4"}
    for other in ("small/no.gguf", "small-imatrix-Q4_K_M.gguf", "q5/small-Q5-00002-of-00002.gguf", "q5/small-Q5-00001-of-00002.gguf"):
        mirror.files[other] = b"gguf"
    several = "small-Q4_K_M.gguf, small-imatrix-Q4_K_M.gguf"
    assert pull("org/small:Q4_K_M").err == (
        f"cotan: pull: org/small: there are several; name one, as ORG/NAME:TAG or ORG/NAME/FILE.gguf: {several}\n")
    # What was brought is named as it was.
    def info(name):
        env = os.environ | {"HF_HUB_CACHE": str(tmp_path / "cache")}
        return subprocess.run([*command("cotan"), "run", name, "--prompt", "x"], env=env, capture_output=True, text=True).stderr
    for name in ("org/small:q4_k_m", "org/small/small-Q4_K_M.gguf"):
        assert f"snapshots/{COMMIT}/small-Q4_K_M.gguf: " in info(name)
    assert info("org/small:Q5").endswith(": org/small: in the cache it has no GGUF file of Q5\n  hint: download it: cotan pull org/small:Q5\n")
    assert info("org/small/x.gguf").endswith(": org/small: in the cache it has no file x.gguf\n  hint: download it: cotan pull org/small/x.gguf\n")
    # Of several nothing is chosen silently, and a folder a tag is looked into.
    assert pull("org/small", "--include", "*").returncode == 0
    assert info("org/small:Q4_K_M") == (f"cotan: hub_find: org/small: in the cache it has several GGUF files of Q4_K_M: {several}\n"
                                        "  hint: name one, as ORG/NAME/FILE.gguf\n")
    assert f"snapshots/{COMMIT}/q5/small-Q5-00001-of-00002.gguf: " in info("org/small:Q5")
    assert f"snapshots/{COMMIT}/small-imatrix-Q4_K_M.gguf: " in info("org/small:imatrix")


def test_include_and_bin(mirror, pull, tmp_path):
    assert pull("org/small", "--include", "*.zz").err == "cotan: pull: org/small: no file of it is \"*.zz\"\n"
    assert pull("org/small", "--include", "on*").returncode == 0 and snapshot(tmp_path) == {"onnx/model.onnx": b"other"}
    mirror.files = {"config.json": b"{}", "pytorch_model.bin": b"old", "tf_model.h5": b"x"}
    assert [line.split()[1] for line in pull("org/small", "--dry-run").out.splitlines()[:-1]] == ["config.json", "pytorch_model.bin"]


def test_a_part_goes_on(mirror, pull, tmp_path):
    """A connection that ends early is taken up where it ended; so is a part that lies there from before."""
    big, cut = mirror.tag("model-00001-of-00002.safetensors"), []

    def hook(handler, path):
        if path != "/" + big or len(cut) == 2:
            return False
        cut.append(handler.headers.get("Range"))
        start = int(cut[-1][6:-1]) if cut[-1] else 0
        data = WEIGHTS[start:start + 1_000_000]
        headers = {"Content-Range": f"bytes {start}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"} if start else {}
        Mirror.send(handler, 206 if start else 200, data, headers, length=len(WEIGHTS) - start)
        handler.close_connection = True
        return True

    mirror.hooks["cdn"] = hook
    part = model(tmp_path) / "blobs" / (big + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:500_000])
    done = pull("org/small")
    assert done.returncode == 0, done.err
    assert cut == ["bytes=500000-", "bytes=1500000-"]
    assert snapshot(tmp_path)["model-00001-of-00002.safetensors"] == WEIGHTS
    assert not part.exists()


def test_a_mirror_without_parts(mirror, pull, tmp_path):
    big = mirror.tag("model-00001-of-00002.safetensors")
    mirror.hooks["cdn"] = lambda handler, path: path == "/" + big and Mirror.send(handler, 200, WEIGHTS)
    part = model(tmp_path) / "blobs" / (big + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 500_000)
    assert pull("org/small").returncode == 0
    assert snapshot(tmp_path)["model-00001-of-00002.safetensors"] == WEIGHTS


BIG = "model-00001-of-00002.safetensors"


def test_wrong_bytes(mirror, pull, tmp_path):
    wrong = b"y" * len(WEIGHTS)
    mirror.hooks["cdn"] = lambda handler, path: path == "/" + mirror.tag(BIG) and Mirror.send(handler, 200, wrong)
    done = pull("org/small", "--quiet")
    assert done.returncode == 1
    assert done.err == (f"cotan: pull: org/small: {BIG}: its SHA-256 is {hashlib.sha256(wrong).hexdigest()}, and {mirror.tag(BIG)} was announced: "
                        "the bytes are wrong, and were removed\n")
    assert not [p for p in (model(tmp_path) / "blobs").iterdir() if mirror.tag(BIG) in p.name]
    assert not (model(tmp_path) / "refs").exists()


def test_wrong_sizes(mirror, pull):
    mirror.hooks["cdn"] = lambda handler, path: path == "/" + mirror.tag(BIG) and Mirror.send(handler, 200, WEIGHTS + b"z")
    assert pull("org/small", "--quiet").err == f"cotan: pull: org/small: {BIG}: more bytes came than the 3000000 that were announced\n"
    mirror.hooks.clear()
    mirror.headers[BIG] = {"X-Linked-Size": "7"}
    assert pull("org/small", "--quiet").err == f"cotan: pull: org/small: {BIG}: its size is 3000000 in the list, and 7 where it is stored\n"
    mirror.hooks["cdn"] = lambda handler, path: path == "/" + mirror.tag(BIG) and Mirror.send(handler, 200, WEIGHTS[:-1])
    mirror.headers.clear()
    assert pull("org/small", "--quiet").err == f"cotan: pull: org/small: {BIG}: 2999999 bytes came, and 3000000 were announced\n"


@pytest.mark.parametrize("status, token, error", [
    (401, None, "there is no such model, or it wants a token (401): set HF_TOKEN"), (401, "hf_x", "HF_TOKEN is not accepted (401)"),
    (403, "hf_x", "it may not be read with this token, or its terms are not accepted yet (403): see {endpoint}/org/small"),
    (404, None, "it is not there, in revision main (404)"), (429, None, "too many requests (429); try again later"),
    (500, None, "the answer is HTTP's status 500"), (418, None, "the answer is HTTP's status 418")])
def test_statuses(mirror, pull, status, token, error):
    mirror.hooks["hub"] = lambda handler, path: Mirror.send(handler, status, b"page")
    done = pull("org/small", HF_TOKEN=token)
    assert (done.returncode, done.out) == (1, "")
    assert done.err == "cotan: pull: org/small: the list of its files: " + error.format(endpoint=mirror.endpoint) + "\n"
    assert len(mirror.requests) == (4 if status in (429, 500) else 1)
    if status == 404:
        mirror.hooks["hub"] = lambda handler, path: path.endswith("config.json") and Mirror.send(handler, 404)
        assert pull("org/small").err == "cotan: pull: org/small: config.json: it is not there, in revision main (404)\n"


def test_what_passes_is_tried_again(mirror, pull):
    left = [503, 429, 500]
    mirror.hooks["hub"] = lambda handler, path: bool(left) and Mirror.send(handler, left.pop(), b"", {"Retry-After": "0"})
    assert pull("org/small").returncode == 0 and not left


def test_nobody_answers(pull):
    done = pull("org/small", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1 and done.err.startswith("cotan: pull: org/small: the list of its files: ") and "127.0.0.1" in done.err


def test_the_token_goes_to_the_hub_alone(mirror, pull):
    assert pull("org/small", HF_TOKEN="hf_secret").returncode == 0
    sent = {machine: {headers.get("Authorization") for m, _, _, headers in mirror.requests if m == machine} for machine in ("hub", "cdn")}
    assert sent == {"hub": {"Bearer hf_secret"}, "cdn": {None}}
    bad = pull("org/small", HF_TOKEN="a\r\nX: y")
    assert bad.err == "cotan: pull: HF_TOKEN holds what no token does: blanks, line ends or other signs\n"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x", "relative"])
def test_where_nobody_goes(mirror, pull, location):
    mirror.hooks["hub"] = lambda handler, path: Mirror.send(handler, 302, b"", {"Location": location})
    assert pull("org/small").err == ("cotan: pull: org/small: the list of its files: it sends elsewhere, to "
                                     f"\"{location}\", where may not be gone to\n")


def test_circles(mirror, pull):
    mirror.hooks["hub"] = lambda handler, path: Mirror.send(handler, 302, b"", {"Location": path})
    assert pull("org/small").err == "cotan: pull: org/small: the list of its files: it sends elsewhere more than 10 times\n"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a//b", ".", "..", "a/.", "a\\b", "a\nb", "", "a/", "x" * 300])
def test_names_that_lead_away(mirror, pull, tmp_path, name):
    mirror.listing = {"sha": COMMIT, "siblings": [{"rfilename": "config.json"}, {"rfilename": name}]}
    done = pull("org/small")
    assert done.returncode == 1 and done.err.startswith("cotan: pull: org/small: a file of the list has the name \"")
    assert done.err.endswith("\", which may not be used\n") and not model(tmp_path).exists()


@pytest.mark.parametrize("listing, error", [
    ({"sha": "main", "siblings": []}, "the list of its files names no commit"), ({"sha": "../" + COMMIT[3:], "siblings": []}, "the list of its files names no commit"),
    ({"sha": COMMIT}, "the list of its files is none, or has more than 100000"),
    ({"sha": COMMIT, "siblings": [{"rfilename": "a"}]}, "it has no weights: neither safetensors nor .bin nor GGUF; --include chooses files"),
    ({"sha": COMMIT, "siblings": [{"rfilename": "a\0b"}]}, "the list of its files is not JSON: line 1, column 89: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"a\\u0000b\"'")])
def test_lists(mirror, pull, listing, error):
    mirror.listing = listing
    assert pull("org/small").err == f"cotan: pull: org/small: {error}\n"


@pytest.mark.parametrize("headers, error", [
    ({"X-Linked-Etag": '"../../x"'}, "it comes without an ETag that could name it"), ({"X-Linked-Etag": '"/etc/x"'}, "it comes without an ETag that could name it"),
    ({"X-Linked-Etag": '".x"'}, "it comes without an ETag that could name it"),
    ({"X-Repo-Commit": "f" * 40}, f"commit {COMMIT} was asked for, and {'f' * 40} answers")])
def test_tags(mirror, pull, headers, error):
    mirror.headers[BIG] = headers
    assert pull("org/small", "--quiet").err == f"cotan: pull: org/small: {BIG}: {error}\n"


def test_an_index_of_others(mirror, pull):
    mirror.files["model.safetensors.index.json"] = b"{\"weight_map\": {\"a\": \"../../x\"}}"
    assert pull("org/small").err == "cotan: pull: org/small: its index names \"../../x\", and there is no such file\n"
    mirror.files["model.safetensors.index.json"] = b"[]"
    assert pull("org/small").err == "cotan: pull: org/small: model.safetensors.index.json has no weight_map\n"


def test_interrupted(mirror, pull, tmp_path):
    begun = []

    def slow(handler, path):
        if path != "/" + mirror.tag(BIG) or begun:
            return False
        begun.append(1)
        Mirror.send(handler, 200, WEIGHTS[:200_000], length=len(WEIGHTS))
        time.sleep(20)
        return True

    mirror.hooks["cdn"] = slow
    process = pull("org/small", "--quiet", wait=False)
    part = model(tmp_path) / "blobs" / (mirror.tag(BIG) + ".incomplete")
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size == 200_000) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "\ncotan: pull: org/small: interrupted; the downloaded part is kept, and the same command resumes\n")
    assert part.read_bytes() == WEIGHTS[:200_000]
    assert pull("org/small").returncode == 0
    assert [h.get("Range") for m, _, path, h in mirror.requests if path == "/" + mirror.tag(BIG)] == [None, "bytes=200000-"]


def test_no_room(pull, tmp_path):
    done = pull("org/small", "--quiet", limit=1_000_000)
    assert done.returncode == 1 and done.err.startswith(f"cotan: pull: org/small: {BIG}: cannot write ") and done.err.endswith(": File too large\n")


def test_a_disk_that_is_too_small(mirror, pull):
    huge = 10**17
    mirror.listing = {"sha": COMMIT, "siblings": [{"rfilename": "model-00002-of-00002.safetensors", "size": huge}]}
    mirror.headers["model-00002-of-00002.safetensors"] = {"X-Linked-Size": str(huge)}
    done = pull("org/small", "--quiet")
    assert done.returncode == 1 and ": the disk is full: 1e+05 TB are needed, and " in done.err


@pytest.mark.parametrize("what, error", [
    (["small"], "pull: \"small\" is no model of the Hub, which is like ORG/NAME, ORG/NAME:TAG or ORG/NAME/FILE"),
    (["org/small/../x"], "pull: \"org/small/../x\" is no model of the Hub, which is like ORG/NAME, ORG/NAME:TAG or ORG/NAME/FILE"),
    (["org/small", "--revision", "../x"], "pull: --revision cannot be \"../x\""),
    (["org/small:Q4", "--include", "*"], "pull: --include goes with ORG/NAME alone")])
def test_words_that_are_refused(pull, what, error):
    done = pull(*what)
    assert (done.returncode, done.err) == (2, f"cotan: {error}\n")


def test_names_that_are_no_models(pull):
    for name in ("../x", "org/..", "a--b/c"):
        done = pull(name)
        assert done.returncode in (1, 2) and "no model" in done.err


def test_without_libcurl(pull):
    assert pull("org/small", COTAN_CURL_LIBRARY="/none.so").err == (
        "cotan: pull: cotan pull needs libcurl, and /none.so is not there; install it (Debian: libcurl4, Fedora: libcurl, Arch: curl)\n")
    assert pull("org/small", COTAN_CURL_LIBRARY="libm.so.6").err == "cotan: pull: libm.so.6 has no curl_global_init: it is no libcurl\n"


def test_two_at_once(mirror, pull, tmp_path):
    both = [pull("org/small", "--quiet", wait=False) for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert snapshot(tmp_path)[BIG] == WEIGHTS
    assert len([r for r in mirror.requests if r[2] == "/" + mirror.tag(BIG) and r[1] == "GET"]) == 1


def test_a_revision(mirror, pull, tmp_path):
    assert pull("org/small", "--revision", "v1.0").returncode == 0
    assert (model(tmp_path) / "refs/v1.0").read_text() == COMMIT
    assert mirror.requests[0][2] == "/api/models/org/small/revision/v1.0?blobs=true"


def test_the_program_needs_no_libcurl():
    linked = subprocess.run(["ldd", *command("cotan")[-1:]], capture_output=True, text=True)
    assert "curl" not in linked.stdout and Path(command("cotan")[-1]).exists()
