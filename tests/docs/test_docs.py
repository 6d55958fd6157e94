"""The blocks of README.md and docs/*.md do what the pages say: code is compiled and run, commands too, output is compared.

What stands in a comment of HTML directly before a block says what it is:

    <!-- file: NAME -->      c: a program, written to NAME for the commands that follow
    <!-- with: CODE -->      c: a fragment, compiled as the body of main behind CODE, in a scope; errors tell its lines
                             as those of NAME in <!-- name: NAME -->
    <!-- exit status: N -->  c, sh: what it ends with, where that is not 0
    <!-- from: PATH -->      any: stands in the file PATH of the repository, word for word
    <!-- run -->             sh: run in the page's folder, where build/, examples/ and include/ are the repository's;
                             <!-- run: as in a terminal --> shows its output in the order a terminal does
    <!-- not run: WHY -->    c, sh: left alone

A program or a fragment is compiled and run; a `text` block directly behind what ran is what it prints, on either
stream. In it a line `...` stands for any lines; behind <!-- numbers vary --> any number stands for any other.
With COTAN_DOCS=write the pages get what is printed now, but for blocks with a line `...`. Each c, cpp and sh block must be of one of these kinds, and no block may be made by indenting.
"""
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
PAGES = sorted(str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"(?m)((?:^<!--(?:(?!-->)[\s\S])*-->\n)*)^```(\w*)\n([\s\S]*?)^```$")
HEADERS = "".join(f"#include <cotan/{p.name}>\n" for p in sorted((ROOT / "include/cotan").glob("*.h")))
FRAGMENT = f"""{HEADERS}#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
    CT_SCOPE;
    BEFORE
#line 1 "NAME"
BLOCK
    if (!ct_failed()) return 0;
    fprintf(stderr, "%s\\n", ct_error_text());
    return 1;
}}
"""
NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"


class Block:
    def __init__(self, page, text, match):
        self.page, self.line = page, text[:match.start(2)].count("\n") + 1
        self.language, self.text, self.end = match.group(2), match.group(3), match.end()
        self.directly_behind = None
        self.notes = {}
        for note in re.findall(r"<!--([\s\S]*?)-->", match.group(1)):
            key, _, value = note.strip().partition(":")
            self.notes[key.strip()] = value.strip("\n ")

    def __repr__(self):
        return f"{self.page}:{self.line}"


def blocks(page):
    text, found = (ROOT / page).read_text(), []
    for match in BLOCK.finditer(text):
        block = Block(page, text, match)
        if found and not text[found[-1].end:match.start()].strip():
            block.directly_behind = found[-1]
        found.append(block)
    return found


def sanitizers():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return ["-fsanitize=address,undefined"] if "COTAN_SANITIZE:BOOL=ON" in cache else []


def compiled(source, program, folder):
    command = ["cc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused", *sanitizers(), "-I", ROOT / "include",
               "-I", BUILD / "derived", source, "-o", program, BUILD / "libcotan.so", f"-Wl,-rpath,{BUILD}"]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def output(command, folder, environment=None):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=300, env=environment, errors="replace", encoding="utf-8")
    return done.returncode, done.stdout


def shown_in_a_terminal(command, folder, environment):
    """To a terminal a program writes line by line, to a pipe when it ends: the streams' order differs."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    with os.fdopen(mine, "rb", buffering=0) as screen:
        try:
            while part := screen.read(65536):
                text += part
        except OSError:  # the end: nobody has the other side open
            pass
    return process.wait(timeout=300), text.decode(errors="replace").replace("\r\n", "\n")


def same(shown, got, vary):
    """Is what a page shows what was printed?"""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
            continue
        parts = re.split(f"({NUMBER})", line) if vary else [line]
        # What stands in columns moves with the numbers.
        pieces = [NUMBER if i % 2 else re.sub(r"(\\ )+", r" +" if vary else r"\g<0>", re.escape(part))
                  for i, part in enumerate(parts)]
        pattern += "".join(pieces) + r" *\n"
    return re.fullmatch(pattern, got if got.endswith("\n") or not got else got + "\n") is not None


def commands(page_blocks, folder):
    """Runs the page's commands in order, as one person would in one shell."""
    printed = {}
    environment = os.environ | {"HOME": str(folder), "PS1": ""}
    for block in page_blocks:
        if "file" in block.notes:
            (folder / block.notes["file"]).write_text(block.text)
        elif block.language == "sh" and "run" in block.notes:
            script = f"[ -e .state ] && . ./.state\nset -e\n{block.text}\nset +e\nexport -p > .state\n"
            run = shown_in_a_terminal if block.notes["run"] == "as in a terminal" else output
            status, text = run(["bash", "-c", script], folder, environment)
            printed[block] = text
            wanted = int(block.notes.get("exit status", 0))
            assert status == wanted, f"{block}: exit status {status}\n{text}"
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_a_known_kind(page):
    text = (ROOT / page).read_text()
    for block in blocks(page):
        if block.language in ("c", "cpp", "sh", "python"):
            kinds = {"file", "with", "from", "run", "not run"} & block.notes.keys()
            assert kinds or "int main(" in block.text, f"{block}: say what this block is"
            assert block.notes.get("not run", "x"), f"{block}: why is it not run?"
        else:
            assert block.language == "text", f"{block}: language '{block.language}'"
        if path := block.notes.get("from"):
            assert block.text in (ROOT / path).read_text(), f"{block}: this does not stand in {path}"
    bare = BLOCK.sub("", text)
    indented = re.search(r"(?m)^\n {4,}\S", bare)
    assert not indented, f"{page}: a block made by indenting: {indented.group(0).strip()}"
    assert "```" not in bare, f"{page}: a block that does not end"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", BLOCK.sub("", (ROOT / page).read_text())):
        assert re.match("https?:", target) or (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_pages_share_a_folder():
    """Who reads them in order works in one folder: what a page makes is no other page's."""
    makers = {}
    for page in PAGES:
        for block in blocks(page):
            made = re.findall(r"(?:--out|-o) (\S+)", block.text) if "run" in block.notes else [block.notes.get("file")]
            for name in made:
                makers.setdefault(name, set()).add(page)
    del makers[None]
    assert len(makers) > 10 and {name: pages for name, pages in makers.items() if len(pages) > 1} == {}


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)])
def test_blocks_run(page, tmp_path):
    if "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text():
        pytest.skip("programs that link the library are not built with the sanitizers")
    for name in ("build", "examples", "include", "README.md", "docs"):
        (tmp_path / name).symlink_to(BUILD if name == "build" else ROOT / name)
    found = blocks(page)
    printed = commands(found, tmp_path)
    for n, block in enumerate(found):
        whole = "int main(" in block.text
        if block.language != "c" or {"not run", "file", "from"} & block.notes.keys() or not (whole or "with" in block.notes):
            continue
        source = tmp_path / f"block{n}.c"
        # The line numbers that errors tell are those of the block.
        fragment = FRAGMENT.replace("BEFORE", block.notes.get("with", "")).replace("BLOCK", block.text)
        source.write_text(block.text if whole else fragment.replace("NAME", block.notes.get("name", "example.c")))
        compiled(source, tmp_path / f"block{n}", tmp_path)
        status, printed[block] = output([str(tmp_path / f"block{n}")], tmp_path)
        assert status == int(block.notes.get("exit status", 0)), f"{block}: exit status {status}\n{printed[block]}"
    shown = [b for b in found if b.language == "text" and b.directly_behind in printed]
    if os.environ.get("COTAN_DOCS") == "write":
        text = (ROOT / page).read_text()
        for block in reversed([b for b in shown if "\n...\n" not in b.text]):
            begin = block.end - len(block.text) - 3
            text = text[:begin] + printed[block.directly_behind] + text[block.end - 3:]
        (ROOT / page).write_text(text)
        return
    for block in shown:
        got = printed[block.directly_behind]
        assert same(block.text, got, "numbers vary" in block.notes), f"{block}: printed was\n{got}"


def test_every_variable_is_in_the_table_and_the_help():
    read = set()
    for path in [*(ROOT / "src").rglob("*.c"), *(ROOT / "cli").rglob("*.c")]:
        read |= set(re.findall(r'"(COTAN_[A-Z0-9_]+)"', path.read_text()))
    table = re.findall(r"(?m)^\| `(COTAN_[A-Z0-9_]+)` \|", (ROOT / "docs/debugging.md").read_text())
    assert len(read) >= 10 and sorted(read) == sorted(table)
    shown = subprocess.run([BUILD / "cotan", "help"], capture_output=True, text=True, check=True).stdout
    assert sorted(set(re.findall(r"COTAN_[A-Z0-9_]+", shown))) == sorted(table)


def test_shown_and_printed_are_compared():
    assert same("a 1\n...\nc\n", "a 1\nb\nb\nc\n", False) and same("...\n", "", False)
    assert not same("a 1\n", "a 2\n", False) and same("a 1.5 ms\n", "a 2,000 ms\n", True)
    assert not same("a 1\n", "a 1\nb\n", False) and not same("a 1 ms\n", "a 1 s\n", True)
    assert same("(a) 1    b\n", "(a) 1000 b\n", True) and not same("x.y\n", "x-y\n", True)
