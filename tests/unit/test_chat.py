"""Chat templates: the same text as transformers', as tests/data/chat/record.py recorded it; limits; what is refused, in words."""
import json
import sys
import time
import unicodedata

import pytest

from support.chat import DATA, Renderer

sys.path.insert(0, str(DATA))
import conversations  # noqa: E402
import expressions  # noqa: E402

EXPRESSIONS = [json.loads(line) for line in (DATA / "expressions.jsonl").read_text().splitlines()]
TEMPLATES = sorted((DATA / "templates").glob("*.jinja"))


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    made = Renderer(tmp_path_factory.mktemp("chat"))
    yield made
    made.close()


@pytest.fixture
def render(renderer):
    def ask(template, messages=(conversations.USER,), **more):
        return renderer.ask(template=template, messages=list(messages), now=conversations.NOW, **more)
    return ask


def test_expressions(render):
    """Hundreds of small templates; jinja2's text, or refused where it refuses."""
    wrong = []
    for template, text in EXPRESSIONS:
        got = render(template, variables=expressions.VARIABLES)
        if got.get("text") != text:
            wrong.append((template, text, got))
    assert not wrong, wrong[:5]
    assert len(EXPRESSIONS) == len(expressions.templates()) > 340


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates(render, path):
    expected = json.loads((DATA / "expected" / (path.stem + ".json")).read_text())
    for name, messages, tools, variables in conversations.CONVERSATIONS:
        got = render(path.read_text(), messages, tools=tools, variables={**conversations.TOKENS, **variables})
        assert got.get("text") == expected[name], (name, got)
    assert any(expected.values())


def test_there_are_enough_templates():
    assert len(TEMPLATES) >= 25


def test_characters(render):
    """Case and classes of every character, as the Python at hand has them: of those that Unicode had long ago, since newer
    versions only add."""
    template = ("{% for c in cs %}{{ c.upper() }},{{ c.lower() }},{{ c.title() }},{{ ('A' ~ c ~ '\u03a3').lower() }},{{ [c] }},"
                "{{ c.isalpha() }}{{ c.isdecimal() }}{{ c.isdigit() }}{{ c.isnumeric() }}{{ c.isspace() }}{{ c.isupper() }}"
                "{{ c.islower() }}{{ c.isprintable() }}{{ c.istitle() }}\n{% endfor %}")
    old = unicodedata.ucd_3_2_0
    cs = [chr(c) for c in range(0x110000) if old.category(chr(c)) not in ("Cn", "Cs", "Co")]
    for i in range(0, len(cs), 20000):
        part = cs[i:i + 20000]
        want = "".join(f"{c.upper()},{c.lower()},{c.title()},{('A' + c + chr(0x3a3)).lower()},{[c]},{c.isalpha()}{c.isdecimal()}"
                       f"{c.isdigit()}{c.isnumeric()}{c.isspace()}{c.isupper()}{c.islower()}{c.isprintable()}{c.istitle()}\n" for c in part)
        got = render(template, variables={"cs": part})["text"]
        if got != want:
            pytest.fail(str([pair for pair in zip(want.split("\n"), got.split("\n")) if pair[0] != pair[1]][:10]))


DEEP = "(" * 150 + "1" + ")" * 150


@pytest.mark.parametrize("template, error", [
    ("\n\n{{ nope.x }}", "line 3: 'nope' is undefined"),
    ("{{ messages[0].nope.x }}", "line 1: a dict has no member 'nope'"),
    ("{{ messages[7].role }}", "line 1: a list has no member 7"),
    ("{{ none.x.y }}", "line 1: None has no member 'x'"),
    ("{{ 1 + 'a' }}", "line 1: + is not defined between a int and a str"),
    ("{{ 1 < 'a' }}", "line 1: a int and a str cannot be compared by <"),
    ("{{ 5() }}", "line 1: a int cannot be called"),
    ("{{ 5|nosuch }}", "line 1: there is no filter 'nosuch'"),
    ("{{ 5 is nosuch }}", "line 1: there is no test 'nosuch'"),
    ("{{ messages.append(1) }}", "line 1: lists and dicts cannot be changed in place"),
    ("{{ messages[0].update({}) }}", "line 1: lists and dicts cannot be changed in place"),
    ("{% set messages.x = 1 %}", "line 1: 'messages' is no namespace: nothing else has members that can be set"),
    ("{% set x = namespace() %}{% set x.__y = 1 %}", "line 1: a namespace has no members that begin with an underscore"),
    ("{{ raise_exception('Say \"please\".') }}", "line 1: Say \"please\"."),
    ("{{ 9223372036854775807 + 1 }}", "line 1: an integer needs more than 64 bits"),
    ("{{ 9223372036854775808 }}", "line 1: an integer needs more than 64 bits: '9223372036854775808'"),
    ("{{ 2 ** 64 }}", "line 1: an integer needs more than 64 bits"),
    ("{{ (-9223372036854775807 - 1)|abs }}", "line 1: an integer needs more than 64 bits"),
    ("{{ '9223372036854775808'|int }}", "line 1: an integer needs more than 64 bits: '9223372036854775808'"),
    ("{{ 1 // 0 }}", "line 1: division of 1 by zero"),
    ("{{ 1.5 % 0 }}", "line 1: division by zero"),
    ("{% for a, b in [[1]] %}{% endfor %}", "line 1: 1 values are assigned to 2 names"),
    ("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "line 1: the macro 'm' takes at most 1 arguments, not 2"),
    ("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "line 1: the macro 'm' has no argument 'b'"),
    ("{{ 'a'.split(by=1) }}", "line 1: split has no argument 'by'"),
    ("{{ 'a'.replace('b') }}", "line 1: replace needs 2 arguments"),
    ("{{ 'a'.strip(1, 2) }}", "line 1: strip takes at most 1 arguments, not 2"),
    ("{{ range|tojson }}", "line 1: tojson: a function has no JSON"),
    ("{{ range(100001) }}", "line 1: range: it has more than 100000 numbers"),
    ("{{ '%d' % 'x' }}", "line 1: what a number's place is given must be an int, not a str"),
    ("{% include 'x' %}", "line 1: 'include' needs other templates, and a chat template cannot use any"),
    ("{% from 'x' import y %}", "line 1: 'from' needs other templates, and a chat template cannot use any"),
    ("{% fro x in y %}", "line 1: there is no statement 'fro'; is for meant?"),
    ("{% for x in y recursive %}{% endfor %}", "line 1: a loop that is not recursive is expected, not 'recursive'"),
    ("a\n{% if x %}", "line 2: the template ends, and {% endif %} is missing"),
    ("{% break %}", "line 1: break and continue are only allowed in a loop"),
    ("{{ (1 }}", "line 1: '}' closes nothing"),
    ("{{ 1 + }}", "line 1: an expression is expected, not }}"),
    ("{{ 1", "line 1: a tag has no end: }} is missing"),
    ("{{ 'a", "line 1: a string has no end: ' is missing"),
    ("{# a", "line 1: a comment has no end: #} is missing"),
    ("{% raw %}", "line 1: a raw block has no end: {% endraw %} is missing"),
    ("{{ '\\ud800' }}", "line 1: an escape of a string is no character"),
    ("{{ '\\x4' }}", "line 1: an escape of a string lacks digits"),
    ("{{ $ }}", "line 1: unexpected character '$'"),
    ("{{ " + "(" * 201 + " }}", "line 1: more than 200 brackets inside each other"),
    ("{{ " + "not " * 2000 + "1 }}", "line 1: more than 1000 calls or values inside each other"),
    ("{{ 1" + " + 1" * 2000 + " }}", "line 1: more than 1000 calls or values inside each other"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "line 1: more than 1000 calls or values inside each other"),
    ("{% set x = namespace(l=[]) %}{% for i in range(2000) %}{% set x.l = [x.l] %}{% endfor %}{{ x.l }}",
     "line 1: more than 1000 calls or values inside each other"),
    ("{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
     "line 1: the template takes more than 200000000 steps"),
    ("{{ 'x' * 2000000000 }}", "line 1: the template takes more than 1073 MB of memory"),
    ("{% for a in range(10000) %}{{ 'x' * 10000 }}{% endfor %}", "line 1: the template writes more than 64 MB"),
])
def test_refused(render, template, error):
    start = time.monotonic()
    assert render(template) == {"error": "chat template: " + error}
    assert time.monotonic() - start < 60


MOST = 2**63 - 1
LEAST = f"(-{MOST} - 1)"
MEMORY = "the template takes more than 1073 MB of memory"


@pytest.mark.parametrize("template, text", [
    (f"{{{{ 'abc def ghi'|truncate({MOST}) }}}}", "abc def ghi"),
    (f"{{{{ 'abc def ghi'|truncate(5, true, '...', {MOST}) }}}}", "abc def ghi"),
    (f"{{{{ 'a'|indent({LEAST}, true) }}}}", "a"),
    (f"{{{{ [1]|batch({MOST})|list }}}}", "[[1]]"),
    (f"{{{{ [1]|slice({LEAST})|list }}}}", "[]"),
    ("{{ [1]|batch(3, 0)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ [1, 2, 3]|slice(2, 0)|list }}", "[[1, 0, 0]] [[1, 2], [3, 0]] [[1, 2], [3, 0]]"),
    ("{{ [1, 2] * 2 }} {{ (1,) * 2 }} {{ [] * 3 }} {{ [1] * -1 }}", "[1, 2, 1, 2] (1, 1) [] []"),
    (f"{{{{ range({LEAST}, {MOST}, {MOST})|list }}}}", "[-9223372036854775808, -1, 9223372036854775806]"),
    (f"{{{{ 'abc'[{LEAST}:{MOST}] }}}}{{{{ 'abc'[::{LEAST}] }}}}", "abcc"),
    ("{{ 4000000000000000000|round(-19) }} {{ -5000000000000000000|round(-19) }}", "0 0"),
    ("{{ '11'|int(0, 4294967298) }} {{ '11'|int(0, 2) }}", "11 3"),
    ("{{ '%*d|' % (-5, 3) }}{{ '%*d|' % (5, 3) }}{{ '%-*d|' % (5, 3) }}", "3    |    3|3    |"),
    ("{{ '%.500d'|format(3)|length }} {{ '{:é^7}'.format('ab') }}", "500 ééabééé"),
])
def test_large_numbers(render, template, text):
    """What jinja2 3.1 makes of them."""
    assert render(template) == {"text": text}


@pytest.mark.parametrize("template, error", [
    *((f"{{{{ {what.replace('N', str(MOST))} }}}}", MEMORY) for what in (
        "'a'|center(N)", "'a'|indent(N)", "'a'|indent(N, true)", "[1]|batch(N, 0)|list", "[1]|slice(N)|list", "'a'.ljust(N)", "'a'.rjust(N)",
        "'a'.center(N, 'é')", "'a'.zfill(N)", "'a\tb'.expandtabs(N)", "'a' * N", "[1] * N", "[1, 2] * N", "(1,) * N", "{'a': 1}|tojson(indent=N)")),
    (f"{{{{ '%*d' % ({MOST}, 3) }}}}", f"a field is {MOST} characters wide"),
    (f"{{{{ '%*d' % ({LEAST}, 3) }}}}", f"a field is {MOST} characters wide"),
    (f"{{{{ '{{:{MOST}d}}'.format(3) }}}}", "a number of a format is too large"),
    ("{{ '%.101f' % 0.1 }}", "a float has 101 digits in a format, at most 100 are written"),
    ("{{ '{:.101e}'.format(0.1) }}", "a float has 101 digits in a format, at most 100 are written"),
    ("{{ 9000000000000000000|round(-19) }}", "an integer needs more than 64 bits"),
    *((f"{{{{ {what}, '{method}') }}}}", f"round: a float has no digits at a precision of {precision}") for method in ("ceil", "floor")
      for what, precision in (("2.5|round(400", 400), ("2.5|round(-400", -400), ("1e308|round(10", 10), (f"2.5|round({MOST}", MOST))),
])
def test_large_numbers_that_are_refused(render, template, error):
    """At once: not when memory is full."""
    start = time.monotonic()
    assert render(template) == {"error": f"chat template: line 1: {error}"}
    assert time.monotonic() - start < 2


def test_what_is_fine(render):
    """Loops of 100,000 turns, long texts that grow piece by piece, brackets and names inside each other."""
    assert render("{% set n = namespace(s='', t=0) %}{% for i in range(100000) %}{% set n.s = n.s ~ 'ab' %}{% set n.t = n.t + i %}{% endfor %}"
                  "{{ n.s|length }} {{ n.t }}")["text"] == "200000 4999950000"
    assert render("{{ " + DEEP + " }}")["text"] == "1"
    long = [{"role": "user", "content": "x" * 1000000}]
    assert len(render("{{ messages[0].content|upper|replace('X', 'yz') }}", long)["text"]) == 2000000


def test_nothing_inside_is_reached(render):
    for name in ("__class__", "__init__", "__globals__", "__mro__", "_undefined_name", "__dict__"):
        for of in ("''", "[]", "{}", "messages", "range", "namespace()", "raise_exception", "1", "none", "''.upper"):
            assert render("{{ (%s).%s is defined }}{{ (%s)['%s'] is defined }}" % (of, name, of, name))["text"] == "FalseFalse"


@pytest.mark.parametrize("request_of, error", [
    (dict(messages={}), "messages: a JSON list is expected"),
    (dict(messages=[]), "messages: there is none"),
    (dict(messages=[1]), "messages: message 0 is no object"),
    (dict(messages=[conversations.USER], variables=[1]), "variables: a JSON object is expected"),
    (dict(messages=[conversations.USER], tools={"a": 1}), "tools: a JSON list is expected"),
    (dict(messages=[conversations.USER], variables='{"a": 1180591620717411303424}'), "variables: not JSON: line 1, column 28: too big integer"),
])
def test_requests_that_are_refused(renderer, request_of, error):
    assert renderer.ask(template="x", **request_of) == {"error": error}


def folder_of(path, files):
    for name, value in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


TOKENS = {"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": False}}


@pytest.mark.parametrize("files, tools, text", [
    ({"chat_template.jinja": "own {{ bos_token }}{{ eos_token }}\n", "tokenizer_config.json": {**TOKENS, "chat_template": "config"}}, None, "own <b><e>"),
    ({"tokenizer_config.json": {**TOKENS, "chat_template": "config {{ eos_token }}"}}, None, "config <e>"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}}, None, "plain"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}}, [1], "tools"),
    ({"chat_template.jinja": "plain", "additional_chat_templates/tool_use.jinja": "{{ tools|length }} tools"}, [1, 2], "2 tools"),
    ({"chat_template.jinja": "plain"}, [1], "plain"),
    ({"chat_template.json": {"chat_template": "processor {{ pad_token }}"}, "special_tokens_map.json": {"pad_token": "<p>"}}, None, "processor <p>"),
])
def test_folders(renderer, tmp_path, files, tools, text):
    assert renderer.ask(path=folder_of(tmp_path, files), messages=[conversations.USER], tools=tools) == {"text": text}


@pytest.mark.parametrize("files, error", [
    ({}, "the folder has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"),
    ({"tokenizer_config.json": {"chat_template": 5}}, "tokenizer_config.json: key \"chat_template\" is neither a string nor a list of named ones"),
    ({"tokenizer_config.json": "{"}, "tokenizer_config.json: not JSON: line 1, column 1: string or '}' expected near end of file"),
    ({"tokenizer_config.json": {"chat_template": "a\n{{"}}, "tokenizer_config.json: chat_template: line 2: a tag has no end: }} is missing"),
    ({"chat_template.jinja": "{{"}, "chat_template.jinja: line 1: a tag has no end: }} is missing"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "x"}]}}, "chat template: there is none named \"default\", there are: rag"),
])
def test_folders_that_are_refused(renderer, tmp_path, files, error):
    got = renderer.ask(path=folder_of(tmp_path, files), messages=[conversations.USER])["error"]
    assert got.removeprefix(str(tmp_path)).lstrip("/").removeprefix(": ") == error


def test_reasoning_has_each_of_its_names(render):
    message = {"role": "assistant", "content": "a", "reasoning": "why"}
    assert render("{{ messages[0].reasoning_content }} {{ messages[0].thinking }} {{ messages[0].reasoning }}", [message])["text"] == "why why why"


def test_zero_bytes(render):
    assert render("{{ messages[0].content }}|{{ messages[0].content|length }}", [{"role": "user", "content": "a\0b"}])["text"] == "a\0b|3"


@pytest.mark.parametrize("word, text", [("break", "0;1;"), ("continue", "0;1;3;4;")])
def test_a_loop_is_left_from_within_with(render, word, text):
    template = "{% for i in range(5) %}{% with a = i %}{% if a == 2 %}{% WORD %}{% endif %}{{ a }}{% endwith %};{% endfor %}"
    assert render(template.replace("WORD", word))["text"] == text  # as jinja2 with its loop controls
