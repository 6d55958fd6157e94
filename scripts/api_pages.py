"""The pages of docs/api from the public headers: a page for each section of cotan.h, one for each other header.

What a header says above its declarations becomes text, the declarations become code: as one calls them, so the macro
that adds the caller's line replaces the function that it calls.
"""
import itertools
import re
import textwrap

HEADING = re.compile(r"^// -{5,} (.+)$")
CALL = re.compile(r"(?s)^(\w+)\((.*)\)$")
MOST_NAMES = 6  # in a heading
NOTE = "<!-- Written by scripts/make-docs from include/cotan/{}; do not edit. -->"


def plain_c(text):
    """The header as C sees it, without what is no declaration for users."""
    text = re.sub(r"#ifdef __cplusplus\n(?:(?!#endif).*\n)*?#else\n((?:(?!#endif).*\n)*)#endif\n", r"\1", text)
    text = re.sub(r"#ifdef __cplusplus\n(?:(?!#endif).*\n)*#endif\n", "\n", text)
    text = re.sub(r" *\\\n *", " ", text)
    text = re.sub(r"(?m)^(#define CT_CODE|#undef CT_CODE|#include \"cotan/errors).*\n", "", text)
    text = re.sub(r"(?m)^#define (CT_[A-Z]+(?:\(\w+\))?) CT__.*$", r"#define \1", text)
    return re.sub(r"(?m)^(?!//|#define ct_)(#endif|#include|#ifndef|#define COTAN_|.*\bCT__|.*\bct__).*\n", "", text)


def split_arguments(text):
    """What commas separate, but for those in brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()] if part.strip() else parts


def statements(lines):
    """Top-level declarations and definitions, comments at their ends included."""
    found, part, depth = [], [], 0
    for line in filter(str.strip, lines):
        part.append(line)
        code = line.split("//")[0]
        depth += code.count("{") - code.count("}")
        if depth == 0 and (code.startswith("#") or code.rstrip().endswith((";", "}"))):
            found.append("\n".join(part))
            part = []
    return found + (["\n".join(part)] if part else [])


class Prototype:
    """result name(parameters); with the comment behind it."""

    PATTERN = re.compile(r"(?s)^CT_API\s+(?:CT_MUST_USE\s+)?(.*?[\s*])(\w+)\((.*?)\)"
                         r"(?:\s*__attribute__\(\(.*\)\))?;[ ]*(//.*)?$")

    def __init__(self, match):
        self.result, self.name, parameters, self.comment = match.groups()
        self.parameters = split_arguments(" ".join(parameters.split()))

    def text(self, name=None, parameters=None, comment=None):
        comment = comment or self.comment
        head = f"{self.result}{name or self.name}("
        line = head + ", ".join(self.parameters if parameters is None else parameters) + ");"
        whole = f"{line} {comment}" if comment else line
        if len(whole) <= 100:
            return whole
        lines = [head]
        for part in re.split(r"(?<=,) ", line[len(head):]):
            if len(lines[-1]) + len(part) > 99:
                lines.append(" " * min(len(head), 24))
            lines[-1] += part if lines[-1].endswith(("(", "    ")) else f" {part}"
        return "\n".join([comment, *lines] if comment else lines)


def as_called(macro, prototypes):
    """How a macro over an exported function is called, or None when it is none."""
    name, arguments, body = macro
    call = CALL.match(body.strip())
    behind = prototypes.get(call.group(1)) if call else None
    if not behind or "CT_HERE" not in body:
        return None
    wanted, given, comment = {}, split_arguments(call.group(2)), None
    for value, parameter in zip(given, behind.parameters):
        if inner := re.fullmatch(r"\((\w+)\)", value):
            own = inner.group(1)
            wanted[own] = re.sub(r"\w+(\W*)$", own + r"\1", parameter)
        elif options := re.match(r"\((\w+)(\[\])?\)\{__VA_ARGS__", value):
            wanted["..."] = "..."
            comment = f"// ...: the values of {options.group(1)}, named" if not options.group(2) else \
                f"// ...: one {options.group(1)} or more"
    return behind.name, behind.text(name, [wanted.get(a, a) for a in split_arguments(arguments)], comment)


def code(lines, prototypes, called):
    """The declarations of an item as a user meets them."""
    out = []
    for text in statements(lines):
        macro = re.match(r"(?s)^#define (ct_\w+)\(([^)]*)\) (.*)$", text)
        function = Prototype.PATTERN.match(text)
        if macro:
            call = as_called(macro.groups(), prototypes)
            out.append(call[1] if call else f"#define {macro.group(1)}({macro.group(2)})")
        elif function:
            if function.group(2) not in called:
                out.append(Prototype(function).text())
        elif text.startswith("#define"):
            out.append(re.sub(r"^(#define \w+\([^)]*\)).*?(//.*)?$", lambda m: " ".join(filter(None, m.groups())), text))
        elif "ct_code {" in text:
            out.append("typedef enum ct_code {\n    CT_OK = 0,\n    // and CT_E_MEMORY ...: ../errors.md\n} ct_code;")
        else:
            out.append(text.replace("CT_API ", ""))
    return "\n".join(align(out))


def align(texts):
    """Comments behind declarations of one line each stand below each other."""
    parts = [re.fullmatch(r"([^\n]*;) (//[^\n]*)", text) for text in texts]
    widest = max((len(m.group(1)) for m in parts if m), default=0)
    if widest + max((len(m.group(2)) for m in parts if m), default=0) > 98:
        return texts
    return [f"{m.group(1):{widest}} {m.group(2)}" if m else text for m, text in zip(parts, texts)]


def paragraphs(comment):
    """The text of a comment; its indented lines are a block of code."""
    out = []
    for is_code, lines in itertools.groupby(comment, lambda line: line.startswith("//     ")):
        if is_code:
            out += ["", "```c", *(line[7:] for line in lines), "```", ""]
        else:
            out += textwrap.wrap(" ".join(line[2:].strip() for line in lines), 118, break_long_words=False,
                                 break_on_hyphens=False)
    return "\n".join(out).strip("\n")


def examples(text):
    """The blocks of code in a header's comments."""
    blocks = re.findall(r"(?m)(?:^//     .*\n)+", text)
    return [re.sub(r"(?m)^//     ", "", block) for block in blocks]


def items(lines):
    """(comment, declarations) pairs: a comment begins one, a blank line ends it."""
    comment, declarations = [], []
    depth = 0
    for line in [*lines, ""]:
        starts = line.startswith("//") and depth == 0
        if (starts and declarations) or (not line.strip() and depth == 0):
            if comment or declarations:
                yield comment, declarations
            comment, declarations = [], []
        if starts:
            comment.append(line)
        elif line.strip():
            declarations.append(line)
            bare = line.split("//")[0]
            depth += bare.count("{") - bare.count("}") + bare.count("(") - bare.count(")")


def heading(declarations, prototypes, called):
    """The names that an item declares: types, constants, what is called."""
    text = "\n".join(line.split("//")[0] for line in declarations)
    names = re.findall(r"(?m)^\} (ct_\w+);|^typedef [^{(]*?(ct_\w+);|^typedef [^{]*?\(\*(ct_\w+)\)|^typedef enum \{[^}]*\} (ct_\w+);"
                       r"|^#define (CT_\w+)|^enum \{\s*(\w+)", text)
    names = ["".join(n) for n in names]
    names = list(dict.fromkeys(names + [n for n in calls(declarations, prototypes, called)]))
    return ", ".join(f"`{n}`" for n in names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


def section(lines, prototypes, called, level):
    """An item is a heading, its text, its declarations."""
    out = []
    for comment, declarations in items(lines):
        text = code(declarations, prototypes, called) if declarations else ""
        name = heading(declarations, prototypes, called) if text else ""
        out += [f"{level} {name}", ""] if name else []
        out += [paragraphs(comment), ""] if comment else []
        out += ["```c", text, "```", ""] if text else []
    return out


def sections(text):
    """(heading or None, lines) of a header's text."""
    heading, lines = None, []
    for line in text.splitlines():
        if m := HEADING.match(line):
            yield heading, lines
            heading, lines = m.group(1), []
        else:
            lines.append(line)
    yield heading, lines


def calls(lines, prototypes, called):
    """The names of functions and macros that users call, in order; of types where there is nothing to call."""
    names = []
    for text in statements([line for line in lines if not line.startswith("//")]):
        if m := re.match(r"#define (\w+)\(", text):
            names.append(m.group(1))
        elif (m := Prototype.PATTERN.match(text)) and m.group(2) not in called:
            names.append(m.group(2))
    names = names or re.findall(r"(?m)^} (ct_\w+);", "\n".join(lines))
    return list(dict.fromkeys(names))


def pages(headers):
    """{file name: text} of docs/api; headers: {name: text}, cotan.h among them."""
    out, index = {}, []
    for name in sorted(headers, key=lambda n: (n != "cotan.h", n)):
        text = plain_c(headers[name])
        found = [Prototype(m) for m in map(Prototype.PATTERN.match, statements(
            [line for line in text.splitlines() if not line.startswith("//")])) if m]
        prototypes = {p.name: p for p in found}
        macros = re.findall(r"(?m)^#define (ct_\w+)\(([^)]*)\) (.*)$", text)
        called = {call[0] for call in (as_called(m, prototypes) for m in macros) if call}
        parts = list(sections(text[text.index("\n\n"):]))
        top = paragraphs(headers[name][:headers[name].index("\n#")].splitlines())
        if name == "cotan.h":
            for heading, lines in parts[1:]:
                page = heading.replace(" ", "-") + ".md"
                out[page] = [f"# {heading[0].upper()}{heading[1:]}", "", f"`#include <cotan/{name}>`", "",
                             *section(lines, prototypes, called, "##")]
                index.append((page, heading, calls(lines, prototypes, called)))
        else:
            page = name[:-2] + ".md"
            body = []
            for heading, lines in parts:
                body += [f"## {heading[0].upper()}{heading[1:]}", ""] if heading else []
                body += section(lines, prototypes, called, "###" if len(parts) > 1 else "##")
            out[page] = [f"# cotan/{name}", "", top, "", *body]
            index.append((page, f"`cotan/{name}`", calls([x for _, part in parts for x in part], prototypes, called)))
        for page, lines in out.items():
            if isinstance(lines, list):
                out[page] = "\n".join([NOTE.format(name), *lines]).rstrip() + "\n"
    out["README.md"] = index_page(index)
    return out


def index_page(index):
    lines = [NOTE.format("*.h"), "# The API by topic", "",
             "What the public headers declare, as one calls it. Most calls are macros that pass the caller's file and line to",
             "the exported function that they call: `ct_NAME_at` takes the same arguments and a `ct_loc`, `ct_NAME_with` a struct of",
             "the named options. Bindings of other languages call those.", "",
             "The [ops](ops.md) (`ct_add` to `ct_dropout`) are derived from their definitions; the build writes their header,",
             "`build/derived/cotan/ops.h`.", "", "| Topic | What it declares |",
             "|---|---|"]
    for page, title, names in index:
        lines.append(f"| [{title}]({page}) | {', '.join(f'`{n}`' for n in names)} |")
    return "\n".join(lines) + "\n"
