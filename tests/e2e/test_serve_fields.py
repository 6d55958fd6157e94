"""Names that clients of OpenAI, vLLM, llama-server and Ollama document: each is followed, changes no answer, or is refused in a sentence."""
import gzip
import json
import re
import zlib
from pathlib import Path

import pytest
from support.serving import Server, make_model

ROOT = Path(__file__).resolve().parents[2]
CHAT, OLD, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
USER = [{"role": "user", "content": "fox"}]
ASK = {"messages": USER, "max_tokens": 6, "temperature": 0}
PATHS = {"CHAT": (CHAT, ASK), "COMPLETION": (OLD, {"prompt": "fox", "max_tokens": 6, "temperature": 0}),
         "RESPONSES": ("/v1/responses", {"input": "fox", "max_output_tokens": 6, "temperature": 0}),
         "NATIVE": (NATIVE, {"prompt": "fox", "n_predict": 6, "temperature": 0}),
         "OLLAMA": ("/api/generate", {"prompt": "fox", "stream": False, "options": {"num_predict": 6, "temperature": 0}}),
         "OLLAMA_OPTIONS": ("/api/generate", {"prompt": "fox", "stream": False, "options": {"num_predict": 6, "temperature": 0}})}
GROUPS = {"OPENAI": ["CHAT", "COMPLETION", "RESPONSES"], "GENERATION": ["CHAT", "COMPLETION", "NATIVE"],
          "ALL": ["CHAT", "COMPLETION", "RESPONSES", "NATIVE"], "OPTIONS": ["OLLAMA_OPTIONS"],
          "SAMPLING": ["CHAT", "COMPLETION", "RESPONSES", "NATIVE", "OLLAMA_OPTIONS"], "OLLAMA_ALL": ["OLLAMA"]}


def rows():
    """(family, name, neutral values, sentence) of each name that may be refused; (family, name) of each that is taken."""
    source = (ROOT / "cli/serve_unsupported.c").read_text()
    words = {name: "".join(re.findall(r'"([^"]*)"', text)) for name, text in re.findall(r'(\w+)\[\] =((?:\s*"[^"]*")+)', source)}
    table = source.split("known_fields[] = {")[1].split("\n};")[0]
    refused, taken = [], []

    def families(text):
        return [f for word in text.replace("FIELDS_", "").split(" | ") for f in GROUPS.get(word, [word])]
    for where, name, neutral, why in re.findall(
            r'\{([A-Z_ |]+),\s*"(\w+)",\s*(NULL|"(?:[^"\\]|\\.)*"),\s*((?:"(?:[^"\\]|\\.)*"\s*)+|\w+)\}', table):
        values = [] if neutral == "NULL" else json.loads(json.loads(neutral))
        text = words.get(why) or "".join(json.loads(piece) for piece in re.findall(r'"(?:[^"\\]|\\.)*"', why))
        refused += [(family, name, values, text) for family in families(where)]
    for where, names in re.findall(r'ACCEPTED\(([A-Z_ |]+),((?:\s*"[\w ]+")+)\)', table):
        taken += [(family, name) for family in families(where) for name in "".join(re.findall(r'"([^"]*)"', names)).split()]
    assert len(refused) > 100 and len(taken) > 100
    return refused, taken


REFUSED, TAKEN = rows()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    bare = make_model(folder / "bare", template="{% for m in messages %}{{ m.content }}{% endfor %}")
    s = Server(make_model(folder / "small", context=512), bare)
    yield s
    assert s.stop() == 0, s.errors


def body(family, **more):
    path, ask = PATHS[family]
    return path, ask | {"options": ask["options"] | more} if family == "OLLAMA_OPTIONS" else ask | more


def test_each_name_stands_once():
    names = [(family, name) for family, name, _, _ in REFUSED] + TAKEN
    assert len(names) == len(set(names))
    page = (ROOT / "docs/serving.md").read_text()
    missing = sorted({name for _, name, _, _ in REFUSED if f"`{name}`" not in page})
    assert not missing, missing


def test_refused_names(server):
    """Whole sentences; and each value that asks for nothing changes nothing."""
    said = {}
    for family, name, neutral, why in REFUSED:
        value = False if any(v is True for v in neutral) else 0.5 if neutral and isinstance(neutral[0], int) else "x"
        path, ask = body(family, **{name: value})
        where = f"options.{name}" if family == "OLLAMA_OPTIONS" else name
        assert server.refused(path, ask) == (400, f"{where}: {why}"), (family, name)
        for nothing in [None, *neutral, *([] if name == "n" else [""])]:
            path, ask = body(family, **{name: nothing})
            status, got, _ = server.ask(path, ask)
            assert status == 200, (family, name, nothing, got)
            said.setdefault(family, set()).add(text_of(got))
    assert all(len(texts) == 1 for texts in said.values()), said


def text_of(said):
    if "choices" in said:
        return said["choices"][0].get("text") or said["choices"][0]["message"]["content"]
    if "output" in said:
        return said["output"][0]["content"][0]["text"]
    return said.get("content") or said.get("response")


def test_names_outside_of_the_table(server):
    for family, (path, ask) in PATHS.items():
        assert text_of(server.say(path, **ask, of_a_client_alone={"a": [1]})) == text_of(server.say(path, **ask)), family


def test_ends(server):
    """ignore_eos, min_tokens and stop_token_ids."""
    eager = {"prompt": "fox", "max_tokens": 8, "logit_bias": {"0": 100}}
    first = server.say(OLD, **eager)
    assert first["choices"][0] | {"logprobs": None} == {"index": 0, "finish_reason": "stop", "logprobs": None, "text": ""}
    assert first["usage"]["completion_tokens"] == 0
    on = server.say(OLD, **eager, ignore_eos=True)
    assert on["choices"][0]["finish_reason"] == "length" and on["usage"]["completion_tokens"] == 8
    later = server.say(OLD, **eager, min_tokens=3)
    assert later["choices"][0]["finish_reason"] == "stop" and later["usage"]["completion_tokens"] == 3
    ask = dict(prompt="fox", max_tokens=8, logit_bias={"40": 100, "0": -100, "2": -100})
    assert server.say(OLD, **ask)["choices"][0]["finish_reason"] == "length"
    ended = server.say(OLD, **ask, stop_token_ids=[40])
    assert ended["choices"][0]["finish_reason"] == "stop" and ended["choices"][0]["text"] == "" and ended["usage"]["completion_tokens"] == 0
    both = server.say(OLD, **ask, stop_token_ids=[40], ignore_eos=True, min_tokens=2)
    assert both["usage"]["completion_tokens"] == 2


def test_as_many_as_there_is_room_for(server):
    read = server.say(OLD, prompt="fox", max_tokens=1)["usage"]["prompt_tokens"]
    for path, ask in ((OLD, {"prompt": "fox", "max_tokens": -1}), (NATIVE, {"prompt": "fox", "n_predict": -1})):
        said = server.say(path, **ask, logit_bias={"0": -100, "2": -100}, temperature=0)
        assert said.get("tokens_predicted", said.get("usage", {}).get("completion_tokens")) == 512 - read


def test_penalties_by_either_name(server):
    ask = dict(prompt="the quick brown fox", max_tokens=12, temperature=0)
    plain, one, other = (server.say(OLD, **ask, **more)["choices"][0]["text"]
                         for more in ({}, {"repeat_penalty": 1.8, "repeat_last_n": -1}, {"repetition_penalty": 1.8}))
    assert one == other != plain
    assert server.say(OLD, **ask, repeat_last_n=64)["choices"][0]["text"] == plain


def test_biases_as_a_list(server):
    ask = dict(prompt="the", max_tokens=2, temperature=0)
    assert server.say(OLD, **ask, logit_bias=[[40, 100]])["choices"] == server.say(OLD, **ask, logit_bias={"40": 100})["choices"]
    never = server.say(OLD, **ask, logit_bias=[[40, 50], [40, False]], logprobs=0)["choices"][0]
    assert server.say("/detokenize", tokens=[40])["content"] not in never["logprobs"]["tokens"]


def test_special_tokens_are_shown_where_asked(server):
    ask = dict(prompt="fox", max_tokens=2, ignore_eos=True, logit_bias={"0": 100})
    special = server.say("/detokenize", tokens=[0])["content"]
    assert server.say(OLD, **ask)["choices"][0]["text"] == ""
    assert server.say(OLD, **ask, skip_special_tokens=False)["choices"][0]["text"] == 2 * special != ""


def test_the_last_message_is_continued(server):
    """As the template shows it, but for what comes after its content."""
    messages = USER + [{"role": "assistant", "content": "the quick "}]
    ask = dict(max_tokens=6, temperature=0)
    for more in ({}, {"add_generation_prompt": False}):
        said = server.say(CHAT, messages=messages, continue_final_message=True, **more, **ask)
        raw = server.say(OLD, prompt="<user>fox</user><assistant>the quick ", add_special_tokens=False, **ask)
        assert said["choices"][0]["message"]["content"] == raw["choices"][0]["text"]
        assert said["usage"]["prompt_tokens"] == raw["usage"]["prompt_tokens"]
    bare = server.say(CHAT, messages=USER, add_generation_prompt=False, **ask)
    raw = server.say(OLD, prompt="<user>fox</user>", add_special_tokens=False, **ask)
    assert bare["choices"][0]["message"]["content"] == raw["choices"][0]["text"]


def test_log_probabilities_of_the_prompt(server):
    """vLLM's: those that echo has, with ranks, by number of the token."""
    ids = [40, 41, 42, 43]
    ask = dict(prompt=ids, max_tokens=1)
    echoed = server.say(OLD, **ask, echo=True, logprobs=2)["choices"][0]["logprobs"]
    said = server.say(OLD, **ask, prompt_logprobs=2)["choices"][0]["prompt_logprobs"]
    assert said[0] is None and len(said) == len(ids)
    for i in range(1, len(ids)):
        own = said[i][str(ids[i])]
        assert own["logprob"] == pytest.approx(echoed["token_logprobs"][i]) and own["decoded_token"] == echoed["tokens"][i]
        best = sorted(said[i].values(), key=lambda one: one["rank"])
        assert [one["rank"] for one in best[:2]] == [1, 2] and len(best) == (2 if own["rank"] <= 2 else 3)
        # Tokens of the same text are one there.
        assert all(any(one["logprob"] == pytest.approx(p) for one in best) for p in echoed["top_logprobs"][i].values())
    whole = server.say(CHAT, **ASK, prompt_logprobs=0)
    assert len(whole["prompt_logprobs"]) == whole["usage"]["prompt_tokens"] and all(len(one) == 1 for one in whole["prompt_logprobs"][1:])


def test_bytes_of_parts_of_characters(server):
    """They join to the text, where a token is a part of a character, too."""
    said = server.say(CHAT, messages=[{"role": "user", "content": "é"}], max_tokens=40, temperature=2, seed=5, logprobs=True,
                      logit_bias={"0": -100})["choices"][0]
    parts = [one["bytes"] for one in said["logprobs"]["content"]]
    assert bytes(b for part in parts for b in part).decode(errors="replace") == said["message"]["content"]
    assert any(one["token"] == "\ufffd" and len(one["bytes"]) == 1 for one in said["logprobs"]["content"])


def test_llama_servers_completion(server):
    ask = dict(prompt="the quick", temperature=0)
    whole = server.say(NATIVE, **ask, n_predict=6, return_tokens=True, n_probs=2)
    old = server.say(OLD, **ask, max_tokens=6)
    assert whole["content"] == old["choices"][0]["text"] and (whole["stop"], whole["stop_type"], whole["truncated"]) == (True, "limit", False)
    assert (whole["tokens_evaluated"], whole["tokens_predicted"]) == (old["usage"]["prompt_tokens"], 6) == (whole["timings"]["prompt_n"] + whole["timings"]["cache_n"], 6)
    assert server.say("/detokenize", tokens=whole["tokens"])["content"] == whole["content"] and whole["prompt"] == "the quick"
    assert [one["id"] for one in whole["completion_probabilities"]] == whole["tokens"]
    assert [one["top_logprobs"][0]["id"] for one in whole["completion_probabilities"]] == whole["tokens"]
    *pieces, last = server.events(NATIVE, **ask, n_predict=6, return_tokens=True)
    assert "".join(one["content"] for one in pieces) == whole["content"] and not any(one["stop"] for one in pieces)
    assert [i for one in pieces for i in one["tokens"]] == whole["tokens"] and last["stop"] and last["tokens_predicted"] == 6
    word = whole["content"][2:4]
    stopped = server.say(NATIVE, **ask, n_predict=6, stop=[word])
    assert (stopped["stop_type"], stopped["stopping_word"], stopped["content"]) == ("word", word, whole["content"].split(word)[0])
    ended = server.say(NATIVE, prompt="fox", logit_bias=[[0, 100]])
    assert (ended["stop_type"], ended["content"], ended["tokens_predicted"]) == ("eos", "", 0)
    ids = server.say("/tokenize", content="quick")["tokens"]
    mixed = server.say(NATIVE, prompt=["the ", *ids], n_predict=2)
    assert mixed["tokens_evaluated"] == len(server.say("/tokenize", content="the ", add_special=True)["tokens"]) + len(ids)
    several = server.say(NATIVE, prompt=["the quick", [40, 41]], n_predict=6, temperature=0)
    assert [one["index"] for one in several] == [0, 1] and several[0]["content"] == whole["content"]
    assert server.refused(NATIVE, {}) == (400, "prompt must be a string, a list of strings and tokens, or a list of these, not missing")
    assert server.refused(NATIVE, {"prompt": [1, 300]}) == (400, "prompt: a token is a whole number from 0 to 299, not 300")
    assert server.refused(NATIVE, {"prompt": [["a"], {}]}) == (
        400, "prompt must be a string, a list of strings and tokens, or a list of these, not {}")


def test_llama_servers_other_calls(server):
    props = server.ask("/props")[1]
    assert (props["default_generation_settings"]["n_ctx"], props["total_slots"], props["model_alias"]) == (512, 32, "small")
    assert props["chat_template"].startswith("{% for m in messages %}<{{ m.role }}>")
    slots = server.ask("/slots")[1]
    assert len(slots) == 32 and slots[0] == {"id": 0, "n_ctx": 512, "is_processing": False}
    assert server.say("/apply-template", messages=USER) == {"prompt": "<user>fox</user><assistant>"}
    pieces = server.say("/tokenize", content="the é", with_pieces=True)["tokens"]
    assert [one["id"] for one in pieces] == server.say("/tokenize", content="the é")["tokens"]
    assert b"".join(p.encode() if isinstance(p := one["piece"], str) else bytes(p) for one in pieces) == "the é".encode()


def test_what_ollama_lists(server):
    shown = server.say("/api/show", model="small:latest")
    assert shown["template"].startswith("{% for m in messages %}") and shown["modelfile"].startswith("FROM /")
    assert shown["details"]["quantization_level"] == "F32" and re.fullmatch(r"\d+\.\d\dK", shown["details"]["parameter_size"])
    info = shown["model_info"]
    assert info["llama.block_count"] == 3 and 1000 * float(shown["details"]["parameter_size"][:-1]) == pytest.approx(
        info["general.parameter_count"], abs=5)
    tags = server.ask("/api/tags")[1]["models"]
    assert [one["name"] for one in tags] == ["small:latest", "bare:latest"] == [one["model"] for one in tags]
    assert tags[0]["details"] == shown["details"] and tags[0]["size"] > 4 * info["general.parameter_count"]
    assert server.say("/api/generate", model="bare:latest", prompt="", stream=False)["done"]


def test_compressed_bodies(server):
    plain = server.say(OLD, prompt="fox", max_tokens=4, temperature=0)["choices"]
    body = json.dumps({"prompt": "fox", "max_tokens": 4, "temperature": 0}).encode()
    for encoding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("identity", body)):
        status, said, _ = server.ask(OLD, packed, headers={"Content-Encoding": encoding})
        assert status == 200 and said["choices"] == plain
    headers = {"headers": {"Content-Encoding": "gzip"}}
    for wrong in (body, gzip.compress(body)[:-9], b"", gzip.compress(b"")[:5]):
        assert server.refused(OLD, wrong, **headers) == (400, "the body is not gzip, although Content-Encoding is gzip")
    assert server.refused(OLD, gzip.compress(b" " * (17 << 20)), **headers) == (413, "the body is larger than 16 MiB")
    assert server.refused(OLD, body, headers={"Content-Encoding": "br"}) == (415, "Content-Encoding br is not read, but gzip and deflate")


def test_tools_of_a_template_without_them(server):
    tools = [{"type": "function", "function": {"name": "find"}}]
    why = "bare does not support tools: its chat template does not show them"
    assert server.refused(CHAT, ASK | {"model": "bare", "tools": tools}) == (400, why)
    assert server.refused("/api/chat", {"model": "bare", "messages": USER, "tools": tools}) == (400, why)
    assert server.refused("/v1/responses", {"model": "bare", "input": "x", "tools": [{"type": "function", "name": "find"}]}) == (400, why)
    assert server.say(CHAT, **ASK, model="bare", tools=tools, tool_choice="none")["choices"]
