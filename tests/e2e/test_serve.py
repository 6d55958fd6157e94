"""cotan serve: what it answers, and what it says of requests that cannot be answered, by Python's http.client alone."""
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import language_models as lm
from support.program import command
from support.serving import Server, make_model

CHAT, OLD = "/v1/chat/completions", "/v1/completions"
ENDLESS = {"0": -100, "2": -100}  # the tokens that end a text
ASK = {"messages": [{"role": "user", "content": "fox"}], "max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("serve") / "small", context=8192)


@pytest.fixture(scope="module")
def server(model):
    s = Server(model, "--context", 512)
    yield s
    assert s.stop() == 0, s.errors


@pytest.fixture(scope="module")
def slow(model):
    """One text at a time and one that waits; requests arrive within a second."""
    s = Server(model, "--max-sequences", 1, "--max-queued", 1, "--timeout", 1)
    yield s
    assert s.stop() == 0, s.errors


def test_a_conversation(server):
    whole = server.say("/v1/chat/completions", **ASK)
    message = whole["choices"][0]["message"]
    assert whole["object"] == "chat.completion" and whole["model"] == "small" and message["role"] == "assistant"
    assert whole["choices"][0]["finish_reason"] == "length" and whole["usage"]["completion_tokens"] == 6
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + 6
    raw = server.say("/v1/completions", prompt="<user>fox</user><assistant>", max_tokens=6, temperature=0)
    assert raw["choices"][0]["text"] == message["content"] and raw["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    *chunks, usage, done = server.events("/v1/chat/completions", **ASK, stream_options={"include_usage": True})
    assert done == "[DONE]" and usage["choices"] == [] and usage["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""} and chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == message["content"]
    parts = [{"type": "text", "text": "f"}, {"type": "text", "text": "ox"}]
    again = server.say("/v1/chat/completions", **ASK | {"messages": [{"role": "user", "content": parts}]})
    assert again["choices"][0]["message"] == message


def test_a_stretched_model_has_its_original_context(tmp_path):
    """Of which short texts are not stretched; more has to be asked for."""
    folder = make_model(tmp_path / "long", context=64)
    config = json.loads((folder / "config.json").read_text())
    stretch = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}}
    (folder / "config.json").write_text(json.dumps(config | stretch))
    for more, context in ((), 64), (("--context", 256), 256):
        s = Server(folder, *more)
        assert s.ask("/v1/models/long")[1]["max_model_len"] == context
        assert s.stop() == 0, s.errors


def test_zero_bytes(server):
    """What a model of bytes may say comes back in the next turn."""
    read = [server.say("/v1/chat/completions", **ASK | {"messages": [{"role": "user", "content": text}]})["usage"]["prompt_tokens"]
            for text in ("ab", "a\0b")]
    assert read[1] > read[0]
    assert server.say("/v1/completions", prompt="a\0b", max_tokens=1)["usage"]["prompt_tokens"] == 3


def test_choices(server):
    several = server.say("/v1/completions", prompt=["the quick", "fox"], n=2, max_tokens=4, seed=3)
    assert [c["index"] for c in several["choices"]] == [0, 1, 2, 3]
    assert several["choices"][0]["text"] != several["choices"][1]["text"]
    alone = server.say("/v1/completions", prompt="fox", n=2, max_tokens=4, seed=3)
    assert [c["text"] for c in alone["choices"]] == [c["text"] for c in several["choices"][2:]]
    read = [len(server.say("/tokenize", content=p, add_special=True)["tokens"]) for p in ("the quick", "fox")]
    assert several["usage"]["completion_tokens"] == 16 and several["usage"]["prompt_tokens"] == sum(read)


def test_log_probabilities(server):
    old = server.say("/v1/completions", prompt="the", max_tokens=4, temperature=0, logprobs=2)["choices"][0]
    assert len(old["logprobs"]["tokens"]) == 4 and old["logprobs"]["text_offset"][0] == 0
    assert all(max(top.values()) == pytest.approx(own) for top, own in zip(old["logprobs"]["top_logprobs"], old["logprobs"]["token_logprobs"]))
    new = server.say("/v1/chat/completions", **ASK, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert len(new) == 6 and all(len(t["top_logprobs"]) == 3 and t["top_logprobs"][0]["token"] == t["token"] for t in new)
    assert all(t["logprob"] == pytest.approx(t["top_logprobs"][0]["logprob"]) and t["logprob"] < 0 for t in new)
    streamed = [e for c in server.events("/v1/chat/completions", **ASK, logprobs=True, top_logprobs=3)[:-1]
                for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == new


def test_log_probabilities_of_prompts(server):
    """What is echoed has those that it would have had, had it been written."""
    ids = server.say("/tokenize", content="the quick")["tokens"]
    assert server.say("/detokenize", tokens=ids)["content"] == "the quick"
    both = server.say(OLD, prompt="the quick", max_tokens=3, logprobs=0, echo=True, logit_bias=ENDLESS)["choices"][0]["logprobs"]
    assert len(both["tokens"]) == len(ids) + 3 and both["token_logprobs"][0] is None and both["top_logprobs"][0] is None
    assert "".join(both["tokens"][:len(ids)]) == "the quick" and both["text_offset"][len(ids)] == len("the quick")
    written = [40, 41, 42, 43, 44]
    forced = [server.say(OLD, prompt=written[:i], max_tokens=1, logprobs=3, logit_bias={str(written[i]): 100})["choices"][0]["logprobs"]
              for i in range(1, 5)]
    ask = dict(prompt=written, max_tokens=1, echo=True, logprobs=3, n=2)
    for echoed in (server.say(OLD, **ask)["choices"][1], server.events(OLD, **ask)[1]["choices"][0]):
        assert echoed["logprobs"]["token_logprobs"][1:5] == pytest.approx([f["token_logprobs"][0] for f in forced])
        for own, other in zip(echoed["logprobs"]["top_logprobs"][1:5], forced):
            assert sorted(own.values()) == pytest.approx(sorted(other["top_logprobs"][0].values()))


def test_a_prompt_alone(server):
    """With echo no token need be written: its log-probabilities are those that it has with one."""
    ask = dict(prompt=["the quick", [40, 41]], echo=True, logprobs=2)
    one = server.say(OLD, **ask, max_tokens=1)
    none = server.say(OLD, **ask, max_tokens=0)
    read = [len(server.say("/tokenize", content="the quick")["tokens"]), 2]
    for own, other, text, n in zip(none["choices"], one["choices"], ("the quick", server.say("/detokenize", tokens=[40, 41])["content"]), read):
        assert (own["text"], own["finish_reason"]) == (text, "length")
        assert own["logprobs"] == {key: values[:n] for key, values in other["logprobs"].items()}
    assert none["usage"] == one["usage"] | {"completion_tokens": 0, "total_tokens": sum(read), "prompt_tokens_details": {"cached_tokens": 0}}
    *chunks, done = server.events(OLD, **ask, max_tokens=0)
    assert done == "[DONE]" and [c["choices"][0]["text"] for c in chunks] == [none["choices"][0]["text"], none["choices"][1]["text"], "", ""]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, "length", "length"]
    assert server.say(OLD, prompt="fox", echo=True, max_tokens=0)["choices"][0] == {
        "index": 0, "finish_reason": "length", "logprobs": None, "text": "fox"}


def test_seeds(server):
    """All 64 bits of them count, where a double has 53."""
    def drawn(path, seed):
        if path == OLD:
            return server.say(OLD, prompt="fox", max_tokens=12, seed=seed, logit_bias=ENDLESS)["choices"][0]["text"]
        return server.say(path, prompt="fox", raw=True, stream=False, options={"seed": seed, "num_predict": 12})["response"]
    for path in (OLD, "/api/generate"):
        assert drawn(path, 2**53) != drawn(path, 2**53 + 1) == drawn(path, 2**53 + 1)
        assert drawn(path, 2**63 - 1) != drawn(path, 2**63 - 2)
    assert drawn(OLD, 7) == drawn(OLD, 7.0)


def test_what_an_assistant_did_not_say(server):
    """No content beside calls; a refusal, as a part or beside no content."""
    def read(assistant):
        messages = [{"role": "user", "content": "fox"}, {"role": "assistant"} | assistant, {"role": "user", "content": "dog"}]
        return server.say(CHAT, messages=messages, max_tokens=6, temperature=0)
    said = read({"content": "I will not."})
    for refusal in ({"content": None, "refusal": "I will not."}, {"content": [{"type": "refusal", "refusal": "I will not."}]}):
        got = read(refusal)
        assert got["choices"] == said["choices"] and got["usage"]["prompt_tokens"] == said["usage"]["prompt_tokens"]
    call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    both = [read(content | {"tool_calls": [call]})["choices"] for content in ({"content": None}, {}, {"content": ""})]
    assert both[0] == both[1] == both[2] != said["choices"]


@pytest.mark.parametrize("text, why", [
    (r'"\ud800"', r"invalid Unicode '\uD800'"), (r'"\ud800\u0041"', r"invalid Unicode '\uD800\u0041'"),
    (r'"\udc00x"', r"invalid Unicode '\uDC00'"), (b'"\xff"', "unable to decode byte 0xff"),
])
def test_half_a_character(server, text, why):
    body = b'{"prompt": %s}' % (text if isinstance(text, bytes) else text.encode())
    status, said = server.refused(OLD, body)
    assert status == 400 and re.fullmatch(r"the body is no JSON: line 1, column \d+: " + re.escape(why) + r"( near .*)?", said), said
    assert server.ask("/health")[0] == 200


def test_stops_and_biases(server):
    text = server.say("/v1/completions", prompt="the", max_tokens=12, temperature=0)["choices"][0]["text"]
    stop = text[4:6]
    cut = server.say("/v1/completions", prompt="the", max_tokens=12, temperature=0, stop=[stop, "never"])["choices"][0]
    assert cut["text"] == text[:text.index(stop)] and cut["finish_reason"] == "stop"
    one = server.say("/v1/completions", prompt="the", max_tokens=1, temperature=0, logit_bias={"40": 100}, logprobs=0)["choices"][0]
    assert one["logprobs"]["tokens"] == [one["text"]] and server.say("/v1/completions", prompt=[40], echo=True, max_tokens=1)["choices"][0]["text"].startswith(one["text"])


def test_equal_prompts_are_read_once(server):
    long = "the quick brown fox jumps over the lazy dog. " * 6
    first = server.say("/v1/completions", prompt=long, max_tokens=2, temperature=0)
    second = server.say("/v1/completions", prompt=long, max_tokens=2, temperature=0)
    assert first["choices"] == second["choices"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= second["usage"]["prompt_tokens"] - 32 > 0


def test_equal_prompts_of_any_length(server):
    """Of what another text has read, all but the last token is shared: also where that ends a page, or is all that there is to read."""
    for n in (1, 2, 14, 15, 16, 17, 31, 32, 33):
        ask = dict(prompt=[40 + (n + i) % 50 for i in range(n)], max_tokens=3, temperature=0)
        said = [server.say("/v1/completions", **ask)["choices"] for _ in range(3)]
        assert said[0] == said[1] == said[2]


def test_responses(server):
    whole = server.say("/v1/responses", input="fox", max_output_tokens=6, temperature=0)
    chat = server.say("/v1/chat/completions", **ASK)["choices"][0]["message"]["content"]
    assert whole["output"][0]["content"][0]["text"] == chat
    assert whole["status"] == "incomplete" and whole["incomplete_details"] == {"reason": "max_output_tokens"}
    events = server.events("/v1/responses", input=[{"role": "user", "content": [{"type": "input_text", "text": "fox"}]}],
                           max_output_tokens=6, temperature=0)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == chat
    done = next(e for e in events if e["type"] == "response.output_text.done")
    assert done["text"] == chat and all(e["logprobs"] == [] for e in events if e["type"].startswith("response.output_text."))
    usage = whole["usage"]
    assert usage["output_tokens"] == 6 and usage["input_tokens"] > 0 and usage["total_tokens"] == usage["input_tokens"] + 6
    assert events[-1]["response"]["usage"] | {"input_tokens_details": 0} == usage | {"input_tokens_details": 0}
    assert [e["type"] for e in events if "delta" not in e] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.done",
        "response.content_part.done", "response.output_item.done", "response.incomplete"]


def test_embeddings_and_ranking(server):
    two = server.say("/v1/embeddings", input=["the quick", "fox"])
    vectors = [d["embedding"] for d in two["data"]]
    assert all(sum(x * x for x in v) == pytest.approx(1, abs=1e-5) for v in vectors) and len(vectors[0]) == 32
    assert server.say("/v1/embeddings", input="fox")["data"][0]["embedding"] == vectors[1]
    ranked = server.say("/rerank", query="fox", documents=["the quick", "fox", "dog"], top_n=2)["results"]
    assert len(ranked) == 2 and ranked[0]["index"] == 1 and ranked[0]["relevance_score"] == pytest.approx(1, abs=1e-5)
    cosine = sum(a * b for a, b in zip(*vectors))
    scores = {r["index"]: r["relevance_score"] for r in server.say("/v1/rerank", query="fox", documents=["the quick", "fox"])["results"]}
    assert scores[0] == pytest.approx(cosine, abs=1e-5)
    cohere = {"query": "fox", "documents": ["the quick", "fox"]}
    assert [{*r} for r in server.say("/rerank", **cohere)["results"]] == [{"index", "relevance_score"}] * 2
    with_documents = server.say("/rerank", **cohere, return_documents=True)["results"]
    assert [r["document"] for r in with_documents] == [{"text": "fox"}, {"text": "the quick"}] and {*with_documents[0]} == {"index", "relevance_score", "document"}
    inference = {"query": "fox", "texts": ["the quick", "fox"]}
    assert [{*r} for r in server.say("/rerank", **inference)] == [{"index", "score"}] * 2
    assert [(r["index"], r["text"], {*r}) for r in server.say("/rerank", **inference, return_text=True)] == [
        (1, "fox", {"index", "score", "text"}), (0, "the quick", {"index", "score", "text"})]


def test_vectors_are_those_of_cotan_embed(model, tmp_path):
    """As the folder has it: sentence-transformers' files say how tokens are pooled."""
    folder = tmp_path / "small"
    shutil.copytree(model, folder)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode": "max"}')
    done = subprocess.run([*command("cotan"), "embed", folder, "the quick fox", "fox"], capture_output=True, text=True, check=True,
                          env=os.environ | {"COTAN_CC": "none"})
    want = [json.loads(line) for line in done.stdout.splitlines()]
    s = Server(folder, "--context", 128)
    made = s.say("/v1/embeddings", input=["the quick fox", "fox"])["data"]
    assert len(made) == len(want) == 2
    for got, one in zip(made, want):
        assert got["embedding"] == pytest.approx(one["embedding"] if isinstance(one, dict) else one, rel=1e-6)
    assert s.stop() == 0, s.errors


def test_ollama(server):
    body = {"messages": ASK["messages"], "options": {"num_predict": 6, "temperature": 0}}
    whole = server.say("/api/chat", **body, stream=False)
    assert whole["message"]["content"] == server.say("/v1/chat/completions", **ASK)["choices"][0]["message"]["content"]
    assert whole["done"] and whole["done_reason"] == "length" and whole["eval_count"] == 6 and whole["total_duration"] > 0
    lines = [json.loads(line) for line in server.ask("/api/chat", body)[1].splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"] and [line["done"] for line in lines][-2:] == [False, True]
    raw = server.say("/api/generate", prompt="<user>fox</user><assistant>", raw=True, stream=False, options=body["options"])
    assert raw["response"] == whole["message"]["content"]
    assert server.say("/api/generate", prompt="", stream=False)["done_reason"] == "load"
    assert server.ask("/api/tags")[1]["models"][0]["name"] == "small:latest" and server.ask("/api/version")[1]["version"]
    assert server.say("/api/show", model="small:latest")["model_info"]["llama.context_length"] == 512
    assert server.say("/api/show", model="small")["capabilities"] == ["completion", "tools"]
    assert server.refused("/api/create", {"model": "x"}) == (
        501, "/api/create: models are served as their files are; cotan pull brings others, and cotan serve names those that are served")


def test_other_pages(server):
    assert server.ask("/health")[:2] == (200, {"status": "ok"})
    assert server.ask("/v1/models/small")[1]["max_model_len"] == 512
    status, page, headers = server.ask("/")
    assert status == 200 and page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", page), "the page brings all that it needs"
    _, text, headers = server.ask("/metrics")
    assert headers["Content-Type"].startswith("text/plain") and 'cotan_http_requests_total{endpoint="/health",code="200"}' in text
    assert all(re.fullmatch(r"# (HELP|TYPE) cotan_\w+ .+|cotan_\w+(\{[^}]*\})? [0-9.e+-]+", line) for line in text.splitlines())


# What is wrong, and the whole sentence that is said of it: (path, what the body has beside what it needs, status, message).
WRONG = [
    (CHAT, {"messages": "hi"}, 400, 'messages must be a list, not "hi"'),
    (CHAT, {"messages": []}, 400, "messages must be a list of at least one, not []"),
    (CHAT, {"messages": None}, 400, "messages must be a list of at least one, not missing"),
    (CHAT, {"messages": [3]}, 400, "messages[0] must be an object, not 3"),
    (CHAT, {"messages": [{"content": "x"}]}, 400, "messages[0].role must be system, developer, user, assistant or tool, not missing"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, 400,
     'messages[0].role must be system, developer, user, assistant or tool, not "robot"'),
    (CHAT, {"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content must be a string or a list of parts, not 3"),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "messages[0].content must be a string or a list of parts, not missing"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
     'messages[0].content[0] must be a part of type text with a text, not {"type":"image_url"}'),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": 3}]}, 400, "messages[0].tool_calls must be a list, not 3"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, 400,
     "messages[0].tool_calls[0] must have a function with a name, not {}"),
    (CHAT, {"model": 3}, 400, "model must be a string, not 3"),
    (CHAT, {"model": "large"}, 404, 'there is no model "large" here, but small'),
    (CHAT, {"temperature": "hot"}, 400, 'temperature must be a number from 0 to 2, not "hot"'),
    (CHAT, {"temperature": 2.5}, 400, "temperature must be a number from 0 to 2, not 2.5"),
    (CHAT, {"top_p": -0.5}, 400, "top_p must be a number from 0 to 1, not -0.5"),
    (CHAT, {"min_p": 2}, 400, "min_p must be a number from 0 to 1, not 2"),
    (CHAT, {"typical_p": 2}, 400, "typical_p must be a number from 0.001 to 1, not 2"),
    (CHAT, {"top_k": 1.5}, 400, "top_k must be a whole number from -1 to 1000000000, not 1.5"),
    (CHAT, {"repetition_penalty": 0}, 400, "repetition_penalty must be a number from 0.01 to 100, not 0"),
    (CHAT, {"presence_penalty": 3}, 400, "presence_penalty must be a number from -2 to 2, not 3"),
    (CHAT, {"frequency_penalty": []}, 400, "frequency_penalty must be a number from -2 to 2, not []"),
    (CHAT, {"max_tokens": 0}, 400, "max_tokens must be a whole number from 1 to 1000000000, or -1, not 0"),
    (CHAT, {"max_completion_tokens": True}, 400, "max_completion_tokens must be a whole number from 1 to 1000000000, or -1, not true"),
    (CHAT, {"n": 65}, 400, "n must be a whole number from 1 to 64, not 65"),
    (CHAT, {"seed": "x"}, 400, 'seed must be a whole number from -9223372036854775808 to 9223372036854775807, not "x"'),
    (CHAT, {"seed": 1.5}, 400, "seed must be a whole number from -9223372036854775808 to 9223372036854775807, not 1.5"),
    (CHAT, {"seed": 1e30}, 400, "seed must be a whole number from -9223372036854775808 to 9223372036854775807, not 1e30"),
    (CHAT, {"messages": [{"role": "assistant", "content": None, "refusal": None}]}, 400,
     "messages[0].content must be a string or a list of parts, not null"),
    (CHAT, {"messages": [{"role": "assistant", "content": [{"type": "refusal", "text": "No."}]}]}, 400,
     'messages[0].content[0] must be a part of type text with a text, not {"type":"refusal","text":"No."}'),
    (CHAT, {"stop": 3}, 400, "stop must be a string or a list of at most 16, none of them empty, not 3"),
    (CHAT, {"stop": ["a", ""]}, 400, 'stop must be a string or a list of at most 16, none of them empty, not ["a",""]'),
    (CHAT, {"stop": ["a"] * 17}, 400,
     'stop must be a string or a list of at most 16, none of them empty, not ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"...'),
    (CHAT, {"stream": 1}, 400, "stream must be true or false, not 1"),
    (CHAT, {"stream_options": 1}, 400, "stream_options must be an object, not 1"),
    (CHAT, {"stream_options": {"include_usage": 1}}, 400, "stream_options.include_usage must be true or false, not 1"),
    (CHAT, {"logprobs": 1}, 400, "logprobs must be true or false, not 1"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs must be a whole number from 0 to 20, not 21"),
    (CHAT, {"top_logprobs": 2}, 400, "top_logprobs needs logprobs to be true"),
    (CHAT, {"logit_bias": 3}, 400, "logit_bias must be an object, not 3"),
    (CHAT, {"logit_bias": [[300, 1]]}, 400, "logit_bias has numbers of tokens, from 0 to 299, not 300"),
    (CHAT, {"logit_bias": [["fox", 1]]}, 400, 'logit_bias has numbers of tokens, from 0 to 299, not "fox"'),
    (CHAT, {"logit_bias": [[3, 101]]}, 400, "logit_bias.3 must be a number from -100 to 100, not 101"),
    (CHAT, {"stop_token_ids": [300]}, 400, "stop_token_ids has tokens, from 0 to 299, not 300"),
    (CHAT, {"stop_token_ids": [1] * 17}, 400, "stop_token_ids must be a list of at most 16 tokens, not [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
    (CHAT, {"repeat_last_n": 64, "repeat_penalty": 1.1}, 400,
     "repeat_last_n: penalties count all tokens of the sequence, not the last 64; use -1"),
    (CHAT, {"prompt_logprobs": 1, "stream": True}, 400, "prompt_logprobs come with a whole answer, not with a stream"),
    (CHAT, {"continue_final_message": True, "add_generation_prompt": True}, 400,
     "continue_final_message and add_generation_prompt exclude each other"),
    (CHAT, {"continue_final_message": True, "messages": [{"role": "user", "content": ""}]}, 400,
     "continue_final_message: the chat template does not show the last message, or it is empty"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": "required"}, 400,
     "tool_choice: required: a call cannot be forced; auto leaves it to the model"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": {"type": "function", "function": {"name": "a"}}}, 400,
     "tool_choice: a: a call cannot be forced; auto leaves it to the model"),
    (CHAT, {"logit_bias": {"300": 1}}, 400, 'logit_bias has numbers of tokens, from 0 to 299, not "300"'),
    (CHAT, {"logit_bias": {"3": 101}}, 400, "logit_bias.3 must be a number from -100 to 100, not 101"),
    (CHAT, {"chat_template_kwargs": 3}, 400, "chat_template_kwargs must be an object, not 3"),
    (CHAT, {"reasoning_effort": 3}, 400, "reasoning_effort must be a string, not 3"),
    (CHAT, {"response_format": {"type": "json_object"}}, 400,
     "response_format: json_object is not supported: output cannot be constrained; use text"),
    (CHAT, {"functions": [{}]}, 400, "functions: they are called tools by now"),
    (CHAT, {"tools": 3}, 400, "tools must be a list, not 3"),
    (CHAT, {"tools": [{}]}, 400, "tools[0] must be of type function with a function's name, not {}"),
    (CHAT, {"tool_choice": "soon"}, 400, 'tool_choice must be none, auto, required or the name of a function, not "soon"'),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": {"type": "function", "function": {"name": "b"}}}, 400,
     "tool_choice names b, which is none of the tools"),
    (CHAT, {"messages": [{"role": "user", "content": "fox " * 600}]}, 400, None),
    (OLD, {"prompt": 3}, 400, "prompt must be a string, a list of tokens, or a list of these, not 3"),
    (OLD, {"prompt": None}, 400, "prompt must be a string, a list of tokens, or a list of these, not null"),
    (OLD, {"prompt": []}, 400, "prompt: the list is empty"),
    (OLD, {"prompt": ""}, 400, "prompt: the prompt is empty"),
    (OLD, {"prompt": [300]}, 400, "prompt: a token is a whole number from 0 to 299, not 300"),
    (OLD, {"prompt": [1, "x"]}, 400, 'prompt: a token is a whole number from 0 to 299, not "x"'),
    (OLD, {"prompt": ["x"] * 129}, 400, "prompt: there are more than 128"),
    (OLD, {"prompt": [7] * 512}, 400, "prompt: 512 tokens do not fit into the context of small: 512"),
    (OLD, {"max_tokens": 0}, 400, "max_tokens must be a whole number from 1 to 1000000000, or -1, not 0"),
    (OLD, {"max_tokens": -2, "echo": True}, 400, "max_tokens must be a whole number from 0 to 1000000000, or -1, not -2"),
    (OLD, {"logprobs": True}, 400, "logprobs must be a whole number from 0 to 20, not true"),
    (OLD, {"echo": 1}, 400, "echo must be true or false, not 1"),
    ("/tokenize", {}, 400, "content must be a string, not missing"),
    ("/detokenize", {"tokens": [300]}, 400, "tokens: a token is a whole number from 0 to 299, not 300"),
    (OLD, {"suffix": "x"}, 400, "suffix: fill-in-the-middle is not supported"),
    (OLD, {"best_of": 3}, 400, "best_of: all n choices are returned; it must be n, 1, or left out"),
    ("/v1/responses", {"input": 3}, 400, "input must be a string or a list of items, not 3"),
    ("/v1/responses", {"input": [3]}, 400, "input[0] must be a message, function_call, function_call_output or reasoning, not 3"),
    ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, 400,
     "previous_response_id: responses are not stored; send the items again"),
    ("/v1/responses", {"input": "x", "conversation": {"id": "conv_1"}}, 400,
     "conversation: conversations are not stored; send the items again"),
    ("/v1/responses", {"input": "x", "prompt": {"id": "pmpt_1"}}, 400, "prompt: prompts are not stored; send instructions and input"),
    ("/v1/responses", {"input": "x", "background": True}, 400,
     "background: responses are not stored; the answer comes with the request"),
    ("/v1/responses", {"input": "x", "max_output_tokens": 0}, 400, "max_output_tokens must be a whole number from 1 to 1000000000, or -1, not 0"),
    ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema"}}}, 400,
     "text.format: json_schema is not supported: output cannot be constrained; use text"),
    ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]}, 400, 'tools[0] must be of type function, not {"type":"web_search"}'),
    ("/v1/embeddings", {"input": 3}, 400, "input must be a string, a list of tokens, or a list of these, not 3"),
    ("/v1/embeddings", {"input": [""]}, 400, "input: the prompt is empty"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, 400, 'encoding_format must be float or base64, not "hex"'),
    ("/v1/embeddings", {"input": "x", "dimensions": 8}, 400, "dimensions: small has 32, not 8"),
    ("/rerank", {"query": "a\0b", "documents": ["x"]}, 400, r'query must be a string without zero bytes, not "a\u0000b"'),
    ("/v1/completions", {"prompt": "a", "stop": "a\0"}, 400,
     r'stop must be a string or a list of at most 16, none of them empty, not "a\u0000"'),
    ("/rerank", {"documents": ["x"]}, 400, "query must be a string, not missing"),
    ("/rerank", {"query": "x", "documents": []}, 400, "documents must be a list of at least one, not []"),
    ("/rerank", {"query": "x", "documents": [3]}, 400, "documents[0] must be a string, not 3"),
    ("/rerank", {"query": "x", "documents": ["x"], "top_n": 0}, 400, "top_n must be a whole number from 1 to 1000000000, not 0"),
    ("/api/chat", {"format": "json"}, 400, "format: constrained output (grammars) is not supported"),
    ("/api/chat", {"think": 3}, 400, "think must be true, false, low, medium or high, not 3"),
    ("/api/chat", {"options": {"top_k": -1}}, 400, "options.top_k must be a whole number from 0 to 1000000000, not -1"),
    ("/api/chat", {"options": {"stop": 3}}, 400, "options.stop must be a string or a list of at most 16, none of them empty, not 3"),
    ("/api/chat", {"options": {"num_ctx": 4096}}, 400,
     "options.num_ctx: the context of small is 512, not 4096: it is chosen where the server starts"),
    ("/api/chat", {"options": {"seed": "x"}}, 400,
     'options.seed must be a whole number from -9223372036854775808 to 9223372036854775807, not "x"'),
    ("/api/chat", {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x", "images": ["aGk="]}]}, 400,
     "messages[1].images: the model accepts text only"),
    ("/api/embed", {"input": "x", "dimensions": 8}, 400, "dimensions: small has 32, not 8"),
    ("/api/generate", {"prompt": "x", "images": ["x"]}, 400, "images: the model accepts text only"),
    ("/api/generate", {"prompt": "x", "suffix": "x"}, 400, "suffix: fill-in-the-middle is not supported"),
]


@pytest.mark.parametrize("path, body, status, message", WRONG)
def test_wrong_fields(server, path, body, status, message):
    needs = {"messages": ASK["messages"]} if path == CHAT else {"prompt": "x"} if path == OLD else {}
    said = server.refused(path, needs | body)
    assert said[0] == status
    if message:
        assert said[1] == message
    else:
        assert re.fullmatch(r"messages: \d+ tokens do not fit into the context of small: 512", said[1])


@pytest.mark.parametrize("options", [
    {"temperature": 5e-324}, {"top_p": 0}, {"top_p": 1e-300}, {"min_p": 1}, {"typical_p": 0.001}, {"top_k": -1}, {"top_k": 10**9},
    {"repetition_penalty": 0.01}, {"repetition_penalty": 100, "temperature": 1e-9}, {"seed": -2**63}, {"seed": 2**63 - 1}, {"seed": 3.0}, {"n": 64}, {"max_tokens": 10**9, "stop": ["e"]},
    {"logit_bias": {str(i): -100 for i in range(300)}}, {"stop": ["x" * 10000]}])
def test_fields_at_their_ends(server, options):
    assert server.say(OLD, **{"prompt": "the", "max_tokens": 2} | options)["choices"]


@pytest.mark.parametrize("options", [{"min_p": 0}, {"min_p": 0.05}, {"min_p": 1}, {"top_p": 0.5}, {"temperature": 0}, {"top_k": 1}, {"repeat_penalty": 1.1}])
def test_options_of_ollama_at_their_ends(server, options):
    assert "response" in server.say("/api/generate", prompt="the", stream=False, options={"num_predict": 2} | options)


def test_errors_have_openais_form(server):
    _, said, _ = server.ask(CHAT, {"messages": ASK["messages"], "model": "large"})
    assert said["error"] == {"message": 'there is no model "large" here, but small', "type": "invalid_request_error", "param": "model",
                             "code": "model_not_found"}
    _, said, _ = server.ask(OLD, {"prompt": [7] * 600})
    assert said["error"]["code"] == "context_length_exceeded" and said["error"]["param"] == "prompt"


def test_what_is_no_request(server):
    assert server.refused(CHAT, "{") == (400, "the body is no JSON: line 1, column 1: string or '}' expected near end of file")
    assert server.refused(CHAT, "") == (400, "the body must be a JSON object: it is empty")
    assert server.refused(CHAT, "[1]") == (400, "the body must be a JSON object, not [1]")
    assert server.refused(CHAT, '{"a":' * 65 + "1" + "}" * 65) == (400, "the body has lists and objects deeper than 64")
    assert server.refused("/v1/nothing", None) == (404, "there is no /v1/nothing")
    assert server.refused("/api/nothing", None) == (404, "there is no /api/nothing")
    status, _, headers = server.ask(CHAT)
    assert status == 405 and headers["Allow"] == "POST"
    assert server.refused(CHAT, None) == (405, "/v1/chat/completions takes POST, not GET")
    assert server.refused(CHAT, b" " * ((16 << 20) + 1)) == (413, "the body is larger than 16 MiB")


def test_a_body_that_is_far_too_large_is_not_waited_for(server):
    c = server.connect(timeout=10)
    c.putrequest("POST", CHAT)
    c.putheader("Content-Length", str(1 << 40))
    c.endheaders()
    assert c.getresponse().status == 413
    c.close()


def test_half_a_request(server):
    for part in (b"POST", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"mess"):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(part)
    assert server.say(CHAT, **ASK)["choices"]


def test_a_slow_client_is_closed(slow):
    """A byte now and then does not keep it open, in a header as in a body; nor does silence."""
    for begin in (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n",
                  b""):
        with socket.create_connection(("127.0.0.1", slow.port), timeout=20) as s:
            began = time.monotonic()
            s.sendall(begin)
            while not select.select([s], [], [], 0.05)[0]:
                assert time.monotonic() - began < 8
                if begin:
                    s.sendall(b"a")
            try:
                assert s.recv(100) == b""
            except ConnectionError:
                pass
            assert time.monotonic() - began > 0.5


def stream(server, **body):
    """A stream that has begun, as a connection and its reply."""
    c = server.connect()
    c.request("POST", OLD, json.dumps({"prompt": "the", "stream": True, "logit_bias": ENDLESS} | body))
    reply = c.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    return c, reply


def wait_for(what, seconds=20):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_client_that_vanishes_ends_its_text(slow):
    before = slow.metric("cotan_sequences_cancelled_total")
    c, reply = stream(slow, max_tokens=8000)
    wait_for(lambda: slow.metric("cotan_sequences_running") == 1)
    reply.close()
    c.sock.close() if c.sock else None
    c.close()
    wait_for(lambda: slow.metric("cotan_sequences_cancelled_total") == before + 1)
    # So does one that waits for a whole answer, before its text has begun, too.
    runs, waits = slow.connect(), slow.connect()
    for c, counter in ((runs, "running"), (waits, "queued")):
        c.request("POST", OLD, json.dumps({"prompt": "fox", "max_tokens": 8000, "logit_bias": ENDLESS}))
        wait_for(lambda: slow.metric(f"cotan_sequences_{counter}") == 1)
    waits.close()
    wait_for(lambda: slow.metric("cotan_sequences_queued") == 0)
    runs.close()
    wait_for(lambda: slow.metric("cotan_sequences_cancelled_total") == before + 3)
    assert slow.metric("cotan_sequences_running") == 0


def test_a_full_queue(slow):
    runs = [stream(slow, max_tokens=600)]
    waits = slow.connect()
    waits.request("POST", OLD, json.dumps({"prompt": "fox", "max_tokens": 1}))
    wait_for(lambda: slow.metric("cotan_sequences_queued") == 1)
    status, said, headers = slow.ask(OLD, {"prompt": "dog", "max_tokens": 1})
    assert status == 429 and headers["Retry-After"] == "1" and said["error"]["type"] == "rate_limit_error", said
    assert slow.refused(OLD, {"prompt": "dog", "max_tokens": 1, "n": 2}) == (400, "2 sequences are requested at once, at most 1 can be queued")
    assert re.fullmatch(r"the queue is full with \d requests: try again later", said["error"]["message"]), said
    kept = slow.connect()
    for _ in range(2):  # the second request is on the connection whose first one was refused
        kept.request("POST", OLD, json.dumps({"prompt": "dog", "max_tokens": 1}))
        reply = kept.getresponse()
        assert (reply.status, json.loads(reply.read())["error"]["message"]) == (429, "the queue is full with 1 requests: try again later")
    for c, reply in runs:
        reply.read()
        c.close()
    assert waits.getresponse().status == 200
    waits.close()
    kept.close()


def test_keys(model, tmp_path):
    (tmp_path / "keys").write_text("first\nsecond\n")
    s = Server(model, "--api-key-file", tmp_path / "keys", "--api-key", "third", env={"COTAN_API_KEY": "fourth"})
    try:
        assert s.refused("/v1/models", None) == (401, "an API key is needed: Authorization: Bearer KEY")
        status, said, headers = s.ask("/v1/models", headers={"Authorization": "Bearer firs"})
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert said["error"] == {"message": "the API key is wrong", "type": "authentication_error", "param": None, "code": "invalid_api_key"}
        for key in ("first", "second", "third", "fourth"):
            assert s.ask("/v1/models", headers={"Authorization": "Bearer " + key})[0] == 200
        assert s.ask("/health")[0] == s.ask("/")[0] == 200 and s.ask("/metrics")[0] == 401
    finally:
        assert s.stop() == 0


def test_vectors_do_not_hold_the_end(model):
    """Texts whose vectors are asked for are not cancelled: the server does not wait for them."""
    s = Server(model)
    c = s.connect()
    c.request("POST", "/v1/embeddings", json.dumps({"input": ["the quick brown fox " * 60] * 2000}))
    time.sleep(1)
    began = time.monotonic()
    assert s.stop() in (0, 130) and time.monotonic() - began < 20
    c.close()


def test_vectors_that_nobody_waits_for(model):
    """A client that goes away ends the making of its vectors: the next one does not wait for them."""
    s = Server(model)
    try:
        c = s.connect()
        c.request("POST", "/v1/embeddings", json.dumps({"input": ["the quick brown fox " * 60] * 2000}))
        time.sleep(1)
        c.close()
        began = time.monotonic()
        assert len(s.say("/v1/embeddings", input="fox")["data"]) == 1 and time.monotonic() - began < 10
    finally:
        assert s.stop() == 0


def test_pages_of_other_places(server, model):
    own = {"Origin": server.url}
    assert server.ask("/v1/models", headers=own)[0] == 200
    assert server.refused("/v1/models", None, headers={"Origin": "https://example.org"}) == (
        403, "pages of https://example.org may not use this server (--cors allows it)")
    rebound = {"Origin": "http://example.org:1", "Host": "example.org:1"}  # a name that was made to lead here
    assert server.ask("/v1/models", headers=rebound)[0] == 403
    open_ = Server(model, "--cors", "https://example.org")
    try:
        status, _, headers = open_.ask("/v1/models", headers={"Origin": "https://example.org"})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://example.org"
        status, _, headers = open_.ask(CHAT, method="OPTIONS", headers={"Origin": "https://example.org"})
        assert status == 204 and "Authorization" in headers["Access-Control-Allow-Headers"]
        asked = "authorization,content-type,x-stainless-os"
        for ask, allowed in ((asked, asked), ("x-a: b", "Authorization, Content-Type")):
            headers = open_.ask(CHAT, method="OPTIONS", headers={"Origin": "https://example.org", "Access-Control-Request-Headers": ask})[2]
            assert headers["Access-Control-Allow-Headers"] == allowed
    finally:
        assert open_.stop() == 0


def test_several_models(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    bare = make_model(folder / "bare", template=None)
    reads = make_model(folder / "reads", name="bert", template=None)
    s = Server(model, bare, reads, "--served-name", "one,two,three")
    try:
        assert {m["id"]: m["capabilities"] for m in s.ask("/v1/models")[1]["data"]} == {
            "one": ["completion", "chat", "embedding"], "two": ["completion", "embedding"], "three": ["embedding"]}
        assert s.say(OLD, prompt="fox", max_tokens=2, temperature=0, model="two")["model"] == "two"
        assert s.say(OLD, prompt="fox", max_tokens=2, temperature=0)["model"] == "one"
        assert s.refused(CHAT, ASK | {"model": "two"}) == (400, "two has no chat template: use /v1/completions")
        assert s.refused(OLD, {"prompt": "fox", "model": "three"}) == (400, "three does not write: it is an encoder (bert)")
        assert [s.say("/api/show", model=name)["capabilities"] for name in ("two", "three")] == [["completion"], ["embedding"]]
        vector = s.say("/v1/embeddings", input="fox", model="three")["data"][0]["embedding"]
        assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-5)
    finally:
        assert s.stop() == 0


def test_what_a_folder_says(tmp_path):
    """Biases of generation_config.json stay where a request has others, and keys that are not followed are told; a template without tools."""
    folder = make_model(tmp_path / "small", template="{% for m in messages %}{{ m.content }}{% endfor %}{# tools #}")
    (folder / "generation_config.json").write_text(json.dumps({"sequence_bias": [[[40], 200.0]], "num_beams": 4, "bad_words_ids": [[40, 40]]}))
    s = Server(folder)
    try:
        assert s.say("/api/show", model="small")["capabilities"] == ["completion"]
        said = [s.say(OLD, prompt="fox", max_tokens=3, temperature=0, logprobs=0, logit_bias=bias)["choices"][0]["logprobs"]["tokens"]
                for bias in ({}, {"41": 100}, {"40": -100})]
        forty, one = s.say("/detokenize", tokens=[40])["content"], s.say("/detokenize", tokens=[41])["content"]
        assert said[1] == [forty, one, forty] and said[0][0] == said[2][0] == said[0][2] == said[2][2] == forty != said[0][1]
    finally:
        assert s.stop() == 0
    assert s.errors == ["cotan: small: warning: generation_config.json has keys that are not supported: num_beams; output may differ from "
                        "that of transformers\n"]


def test_caches_and_guesses(model, server):
    ask = dict(prompt="the quick brown fox jumps over the lazy dog. the quick brown fox", max_tokens=24, temperature=0)
    said = server.say(OLD, **ask)["choices"][0]["text"]
    for kind, guesses in (("f32", 4), ("i8", 0)):
        s = Server(model, "--cache-type", kind, "--speculate", guesses, "--prefill-chunk", 16, "--cache-memory", "2MB",
                   "--context", 256)
        try:
            other = s.say(OLD, **ask)["choices"][0]["text"]
            assert other == said or kind == "i8" and other
        finally:
            assert s.stop() == 0
    assert run(model, "--cache-type", "f8") == (2, 'cotan: serve: --cache-type is f32, f16, bf16 or i8, not "f8"')


def test_activations(model, tmp_path):
    """Log-probabilities and vectors with f32 are those of a model of the numbers that quantised weights stand for."""
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    lm.save_quantised(model, packed, plain)
    said = []
    for folder, more in ((packed, ()), (packed, ("--activations", "f32")), (plain, ())):
        s = Server(folder, *more, "--context", 256, "--served-name", "small")
        try:
            chosen = s.say(OLD, prompt="the quick brown", max_tokens=8, temperature=0, logprobs=2)["choices"][0]
            said.append((chosen["text"], chosen["logprobs"], s.say("/v1/embeddings", input="fox")["data"]))
        finally:
            assert s.stop() == 0
    assert said[0] != said[1] == said[2]


def test_stopping(model):
    s = Server(model)
    c, reply = stream(s, max_tokens=40)
    s.process.send_signal(signal.SIGINT)
    rest = reply.read()
    assert rest.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in rest  # it was let to its end
    assert s.process.wait(10) == 0
    with pytest.raises(OSError):
        s.ask("/health")


def test_stopping_what_lasts(model):
    s = Server(model)
    c, reply = stream(s, max_tokens=8000)
    s.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    rest = reply.read()  # cut off after five seconds, in words
    assert rest.endswith(b'data: {"error":{"message":"the server is stopping","type":"server_error","param":null,"code":null}}\n\n')
    assert s.process.wait(10) == 0 and 3 < time.monotonic() - began < 12
    s = Server(model)
    c, reply = stream(s, max_tokens=8000)
    s.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert s.stop(signal.SIGINT) == 130  # a second one does not wait


def test_requests_and_stopping_while_it_loads(model, tmp_path):
    (tmp_path / "loads").touch()
    compiler = tmp_path / "cc"  # kernels are waited for, until the test is over
    compiler.write_text(f"#!/bin/sh\nwhile [ -e {tmp_path}/loads ]; do sleep 0.1; done\n")
    compiler.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    s = Server(model, "--port", port, wait=False,
               env={"COTAN_CC": str(compiler), "COTAN_COMPILE": "wait", "COTAN_CACHE_DIR": str(tmp_path / "cache")})
    s.port = port

    def listens():
        try:
            return s.ask("/health")
        except OSError:
            return None
    wait_for(listens)
    assert listens()[:2] == (503, {"status": "loading"})
    status, said, headers = s.ask(CHAT, ASK)
    assert status == 503 and headers["Retry-After"] == "1" and said["error"]["message"] == "small is being loaded"
    began = time.monotonic()
    assert s.stop(signal.SIGINT) == 130 and time.monotonic() - began < 5
    (tmp_path / "loads").unlink()


def run(*args, env=None):
    done = subprocess.run([*command("cotan"), "serve", *map(str, args)], capture_output=True, text=True, env=os.environ | (env or {}), timeout=60)
    return done.returncode, done.stderr.strip()


def test_what_cannot_be_served(model, server, tmp_path):
    assert run() == (2, "cotan: serve: it needs a MODEL: cotan serve MODEL... [options]")
    code, said = run(tmp_path / "nothing", "--port", 0)
    assert code == 1 and "nothing" in said and said.startswith("cotan: serve: ")
    assert run(model, "--port", server.port) == (1, f"cotan: serve: port {server.port} of 127.0.0.1: Address already in use\n"
                                                    "  hint: --port selects another, 0 a free one")
    assert run(model, model) == (2, "cotan: serve: two models are called small: --served-name gives them others")
    assert run(model, "--served-name", "a,b") == (2, "cotan: serve: --served-name a,b has more names than there are models")
    assert run(model, model, "--served-name", "a") == (2, "cotan: serve: --served-name a has fewer names than there are models")
    assert run(model, "--port", "70000") == (2, "cotan: serve: --port must be from 0 to 65535, not 70000")
    assert run(model, "--prefill-chunk", 15) == (2, "cotan: serve: --prefill-chunk must be from 16 to 4096, not 15")
    assert run(model, "--api-key", ",") == (2, "cotan: serve: --api-key names no key, and without one the server is open to all")
    assert run(model, env={"COTAN_API_KEY": ""}) == (
        2, "cotan: serve: COTAN_API_KEY names no key, and without one the server is open to all: unset it, or set it to a key")
    assert run(model, "--api-key-file", tmp_path / "none") == (2, f"cotan: serve: --api-key-file {tmp_path}/none: No such file or directory")
    assert run(model, env={"COTAN_HTTP_LIBRARY": "/nowhere.so"}) == (
        1, "cotan: serve: cotan serve needs libmicrohttpd, and /nowhere.so is not there; install it (Debian: libmicrohttpd12, Fedora and Arch: "
           "libmicrohttpd)")


def test_many_at_once(server):
    """Answers do not depend on what else is written: each is that of its request alone."""
    prompts = [f"the {'quick ' * (i % 5)}fox {i}" for i in range(16)]
    alone = [server.say(OLD, prompt=p, max_tokens=8, seed=i)["choices"][0]["text"] for i, p in enumerate(prompts)]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = server.say(OLD, prompt=prompts[i], max_tokens=8, seed=i)["choices"][0]["text"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


@pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason="takes ten seconds; make test-all does")
def test_two_hundred_clients(model):
    """Each sends one request after the other; none is refused or gets another answer than alone (bench/load.py)."""
    root = Path(__file__).parents[2]
    build = Path(os.environ.get("COTAN_BUILD", root / "build"))
    done = subprocess.run([sys.executable, root / "bench/load.py", build, model, "200"], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == 0 and "600 answers, 0 errors; 0 of 8 texts differ" in done.stdout, done.stdout + done.stderr
