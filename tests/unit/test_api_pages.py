"""scripts/api_pages.py: headers become pages; a small header whole, and nothing of the real ones is lost."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "scripts"))
import api_pages  # noqa: E402

HEADER = """\
// Things: to have
// and to hold.
#ifndef COTAN_THING_H
#define COTAN_THING_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------ keeping things

// What a thing is; it has
// a size.
//     use(
//         thing);
// And more.
typedef struct ct_thing {
    int64_t size; // in units
} ct_thing;
#ifdef __cplusplus
#define CT_NO_THING (ct_thing{0})
#else
#define CT_NO_THING ((ct_thing){0})
#endif
CT_API CT_MUST_USE ct_thing *ct_thing_new_at(const char *name, int64_t size, ct_loc here);
#define ct_thing_new(label) ct_thing_new_at((label), 1, CT_HERE)
// Frees it.
CT_API void ct_thing_free(ct_thing *thing); // NULL too
CT_API void ct__thing_secret(void);

CT_API void ct_thing_set_with(ct_thing *thing, ct_thing_args args);
#define ct_thing_set(thing, ...)                                                                   \\
    ct_thing_set_with((thing), (ct_thing_args){__VA_ARGS__, .here = CT_HERE})

#ifdef __cplusplus
}
#endif

#endif
"""
PAGE = """\
<!-- Written by scripts/make-docs from include/cotan/thing.h; do not edit. -->
# cotan/thing.h

Things: to have and to hold.

## Keeping things

### `ct_thing`, `CT_NO_THING`, `ct_thing_new`

What a thing is; it has a size.

```c
use(
    thing);
```

And more.

```c
typedef struct ct_thing {
    int64_t size; // in units
} ct_thing;
#define CT_NO_THING ((ct_thing){0})
ct_thing *ct_thing_new(const char *label);
```

### `ct_thing_free`

Frees it.

```c
void ct_thing_free(ct_thing *thing); // NULL too
```

### `ct_thing_set`

```c
void ct_thing_set(ct_thing *thing, ...); // ...: the values of ct_thing_args, named
```
"""


def test_a_header_becomes_a_page():
    pages = api_pages.pages({"thing.h": HEADER})
    assert pages["thing.md"] == PAGE
    assert "| [`cotan/thing.h`](thing.md) | `ct_thing_new`, `ct_thing_free`, `ct_thing_set` |\n" in pages["README.md"]


# What the examples in the headers' comments stand behind.
BEFORE = {"chat.h": "int use(ct_chat_template *chat, const char *messages, const char *prompt);\n"
                    "int use(ct_chat_template *chat, const char *messages, const char *prompt) {{\n{}"
                    "(void)chat, (void)messages, (void)prompt; return 0; }}\n",
          "profile.h": "#include <stdio.h>\nvoid train(int step);\nint main(void) {{\n{}}}\n",
          "lm.h": "typedef bool (*told)(int32_t token, double log_probability, void *user);\n"
                  "int go_on(ct_lm *lm, const int32_t *ids, size_t n, told print);\n"
                  "int go_on(ct_lm *lm, const int32_t *ids, size_t n, told print) {{\n{}(void)lm, (void)ids, (void)n, (void)print; return 0; }}\n",
          "engine.h": "#include <stdio.h>\n"
                      "typedef bool (*told)(const ct_engine_token *token, void *user);\n"
                      "void answer(ct_engine *engine, const int32_t *ids, size_t n, told print, void *out, const ct_pretrained *model);\n"
                      "void answer(ct_engine *engine, const int32_t *ids, size_t n, told print, void *out, const ct_pretrained *model) {{\n"
                      "(void)model, (void)engine, (void)ids, (void)n, (void)print, (void)out;\n{}}}\n",
          "embed.h": "int embed(ct_lm *lm, ct_tokenizer *tokenizer, ct_lm_text *texts, size_t n, float *vectors, float *scores, ct_pooling_config config);\n"
                     "int embed(ct_lm *lm, ct_tokenizer *tokenizer, ct_lm_text *texts, size_t n, float *vectors, float *scores, ct_pooling_config config) "
                     "{{\n(void)vectors, (void)scores, (void)config;\n{}return 0; }}\n",
          "eval.h": "int look(ct_lm *lm, ct_tokenizer *tokenizer, ct_lm_score_input *texts, const char *text, size_t n, ct_lm_score *scores);\n"
                    "int look(ct_lm *lm, ct_tokenizer *tokenizer, ct_lm_score_input *texts, const char *text, size_t n, ct_lm_score *scores) "
                    "{{\n(void)tokenizer, (void)texts, (void)text, (void)scores;\n{}return 0; }}\n",
          "memory.h": "#include <stdio.h>\nvoid train(int step);\nvoid look(void);\nvoid look(void) {{\n{}}}\n",
          "optim.h": "ct_tensor batch(int i), loss_of(ct_tensor rows);\nvoid step(ct_optim *optim, int n);\n"
                     "void step(ct_optim *optim, int n) {{\n{}}}\n",
          "tokenizer.h": "#include <string.h>\nint learn(ct_tokenizer *t, const char *text, const char *const *paths);\n"
                         "int learn(ct_tokenizer *t, const char *text, const char *const *paths) {{\n{}(void)t, (void)text, (void)paths; return 0; }}\n",
          "io.h": "int save(const ct_named_tensor *arrays);\nint save(const ct_named_tensor *arrays) {{\n{}return 0; }}\n"}


def test_examples_in_the_headers_are_c(tmp_path):
    found = {path.name: api_pages.examples(path.read_text()) for path in (ROOT / "include/cotan").glob("*.h")}
    assert {name for name, blocks in found.items() if blocks} == set(BEFORE)
    for name, before in BEFORE.items():
        for block in found[name]:
            source = tmp_path / "example.c"
            source.write_text(f"#include <cotan/{name}>\n" + before.format(block))
            done = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Wno-unused-variable", "-Werror", "-fsyntax-only",
                                   "-I", ROOT / "include", "-I", BUILD / "derived", source], capture_output=True, text=True)
            assert not done.returncode, done.stderr


def test_every_declaration_of_the_public_headers_has_its_place():
    headers = {p.name: p.read_text() for p in (ROOT / "include/cotan").glob("*.h")}
    pages = api_pages.pages(headers)
    text = "\n".join(pages.values())
    for name, header in headers.items():
        for word in re.findall(r"\b(?:ct|CT)_\w+", re.sub(r"//.*|CT_(API|MUST_USE|CODE|VERSION|E_)\w*|#ifdef.*", "", header)):
            if "__" in word:  # not for users
                continue
            behind = re.sub(r"_(at|with|of)$", "", word)
            assert re.search(rf"\b({word}|{behind})\b", text), f"{name}: {word} stands on no page"
    for name, page in pages.items():
        assert page.count("```") % 2 == 0 and "__attribute__" not in page and "CT_API" not in page, name
        assert len(page.splitlines()) > 8, name
        # each declaration has a heading of its own above it and its text
        blocks = page.count("```c\n")
        blocks -= len(api_pages.examples(headers.get(name.replace(".md", ".h"), "")))
        assert len(re.findall(r"(?m)^###? `", page)) == blocks, name
        for line in page.splitlines():
            assert len(line) <= 120 or line.startswith("|"), f"{name}: {line}"
