"""The page of all ops, docs/api/ops.md, from src/ops/ops.list and the definitions: an entry an op.

What the preprocessor would put together is read as text: a definition's fields are its own and those of the macros that it names.
tests/ops/test_ops_page.py compares what is found with the table of the built library.
"""
import re
import subprocess

WHAT = {"ints": "a list", "i64": "a whole number", "f64": "a number", "num": "a number", "bool": "true or false", "dtype": "a dtype",
        # of a meaning (src/graph/op.h)
        "axis": "an axis", "axes": "a list of axes", "permutation": "a list of axes", "sizes": "a list of sizes",
        "offsets": "a list, one an axis", "limits": "a list, one an axis", "strides": "a list, one an axis", "gaps": "a list, one an axis", "extents": "a list, one for each axis that is named",
        "leading": "a whole number", "count": "a whole number", "reverse": "true or false",
        "mode": "a ct_index_mode", "layout": "a ct_layout", "unique": "true or false", "sorted": "true or false"}
DEFINITION = re.compile(r"^const ct_opdef ct__op_(\w+) = \{(.*?)\};", re.S | re.M)
MACRO = re.compile(r"^#define ([A-Z_]+)\(([^)]*)\)[ \t]+(\.id = .*)$", re.M)


def masks(header):
    """{name: set of dtypes} of what `.accepts` is said in, from base/dtype.h."""
    found = {}
    for name, value in re.findall(r"^#define (CT_\w+) (.*CT_.*)$", re.sub(r"\\\n", " ", header), re.M):
        try:
            found[name] = mask(value.strip("() "), found)
        except KeyError:  # a macro that is no set of dtypes
            pass
    return found


def mask(text, known):
    out = set()
    for part in text.split("|"):
        one = re.fullmatch(r"\s*CT_MASK\(CT_(\w+)\)?\s*", part)
        out |= {one.group(1)} if one else known[part.strip()]
    return out


def macros_of(text):
    return {name: body for name, _, body in MACRO.findall(text)}


def definitions(sources, headers):
    """{op: text of its record, with that of the macros in it}, which stand in the same file or in a header."""
    out, shared = {}, macros_of(re.sub(r"\\\n", " ", "\n".join(headers)))
    for source in sources:
        text = re.sub(r"\\\n", " ", source)
        macros = shared | macros_of(text)
        for op, body in DEFINITION.findall(text):
            for name in re.findall(r"^\s*([A-Z_]+)\(", body, re.M):
                body += macros.get(name, "")
            out[op] = body
    return out


def attributes(sources):
    """{OP: [(kind, name)]}."""
    text = re.sub(r"\\\n", " ", "\n".join(sources))
    lists = {op: re.findall(r"F\(op, *(\w+), *(\w+)\)", fields)
             for op, fields in re.findall(r"^#define ([A-Z0-9_]+)_ATTRS\(F, op\)(.*)$", text, re.M)}
    return lists | {op.upper(): lists[of] for op, of in re.findall(r"^CT_ATTRS\((\w+), ([A-Z0-9_]+)_ATTRS\);", text, re.M)}


def facts(root):
    """{op: (dtypes it accepts, has it a gradient?, its options)}, of all ops of the list."""
    sources = [p.read_text() for folder in ("ops", "transform") for p in sorted((root / "src" / folder).glob("*.c"))]
    order = re.findall(r"^    CT_(\w+),", (root / "include/cotan/cotan.h").read_text().split("typedef enum ct_dtype {")[1].split("}")[0], re.M)
    known, options = masks((root / "src/base/dtype.h").read_text()), attributes([*sources, *(p.read_text() for p in sorted((root / "src/kinds").glob("*.h")))])
    out = {}
    headers = [p.read_text() for p in sorted((root / "src/ops").glob("*.h"))]
    for op, body in definitions(sources, headers).items():
        accepts = mask(re.search(r"\.accepts =\s+([^,]*),?", body).group(1).strip(), known)
        dtypes = [d.lower() for d in order if d in accepts]
        assert len(dtypes) == len(accepts), f"{op}: {accepts}"
        out[op] = (dtypes, ".jvp = CT_NO_GRAD" not in body, options.get(op.upper(), []))
    return out


def autocast(root):
    """The table of which op takes its floats in which dtype where autocasting is on."""
    sources = [p.read_text() for folder in ("ops", "transform") for p in sorted((root / "src" / folder).glob("*.c"))]
    found = {"LOW": [], "F32": [], "WIDEST": []}
    for op, body in sorted(definitions(sources, []).items()):
        for kind in re.findall(r"\.autocast = CT_CAST_(\w+)", body):
            found[kind].append(f"`{op}`")
    what = {"LOW": "in the low dtype, bf16 or f16", "F32": "in f32", "WIDEST": "in the widest dtype among them"}
    return ["## Autocast", "", "Inside `CT_AUTOCAST`, ops take operands of f16, bf16 and f32 ([mixed precision](../mixed-precision.md)):", "",
            "| | ops |", "|---|---|", *(f"| {what[kind]} | {', '.join(ops)} |" for kind, ops in found.items()), "| as they are | all others |"]


def entry(name, signature, outputs, doc, fact):
    dtypes, gradient, options = fact
    has = f"Dtypes: {' '.join(dtypes)}. " + ("Has a gradient." if gradient else "No gradient.")
    lines = [f"### ct_{name}", "", doc, "", "```c", signature, "```", "", has]
    if outputs:
        lines[-1] += f" Results: {', '.join(f'`.{o}`' for o in outputs.split())}."
    default = {n for kind, n in options if WHAT[kind] in ("a whole number", "an axis") and f".{n}" in signature}
    said = [f"`{n}` {WHAT[kind]}" + f", default {int(n == 'groups')}" * (n in default) for kind, n in options if n != "present"]
    if said:
        lines[-1] += f" Attributes: {', '.join(said)}."
    return lines + [""]


def page(root):
    sources = [root / "src/ops/ops.list", *sorted(root.glob("src/ops/*.c")), *sorted(root.glob("src/transform/*.c")), *sorted(root.glob("src/kinds/*.h"))]
    rows = subprocess.run(["awk", "-v", "part=docs", "-f", str(root / "scripts/gen-ops.awk"), *map(str, sources)],
                          check=True, capture_output=True, text=True).stdout.splitlines()
    known, shown = facts(root), None
    lines = ["<!-- Written by scripts/make-docs from src/ops/ops.list and the definitions; do not edit. -->", "# Ops", "",
             "`#include <cotan/cotan.h>`", "",
             "Operands come first, then attributes: by place, or by name where `.` stands before them. Named ones may be left out, and",
             "so may operands with a `.`. Operands of elementwise ops broadcast as NumPy's do and promote to one dtype. The gradient of",
             "an op without one is zero. Attributes are part of the plan: a new value compiles; operands are not.", "",
             "Calls are macros: a list in braces stands in parentheses of its own, `ct_concat(((ct_tensor[]){a, b}), 2, 0)`, unless it is one",
             "of `CT_DIMS`, `CT_AXES` and `CT_INTS`.", ""]
    for row in rows:
        group, name, signature, outputs, doc = row.split("\t")
        if group != shown:
            family = group.split(": ")[-1]
            lines += [f"## {family[0].upper()}{family[1:]}", ""]
            shown = group
        lines += entry(name, signature, outputs, doc, known[name])
    return "\n".join(lines + autocast(root)).rstrip() + "\n"
