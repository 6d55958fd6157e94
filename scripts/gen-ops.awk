# Derives the public face of the ops from src/ops/ops.list and the attribute lists and docs in the definitions.
# usage: awk -v part=header|source|enum|docs|python -f scripts/gen-ops.awk src/ops/ops.list src/ops/*.c src/transform/*.c src/kinds/*.h
#   header: cotan/ops.h    source: the table, the exported functions    enum: opcode.h
#   python: the table of Python's extension (python/src/call.h)
#
# What stands in a header for an op is a paragraph that depends on that op alone, not on its place in the list: a new op
# only adds one (scripts/replace-derived).
BEGIN {
    for (i = 32; i < 127; i++) ordinal[sprintf("%c", i)] = i
    ctype["i64"] = "int64_t"; ctype["f64"] = "double"; ctype["bool"] = "bool"; ctype["num"] = "ct_num"
    ctype["dtype"] = "ct_dtype"; ctype["ints"] = "ct_ints"
    # of a meaning (src/graph/op.h)
    ctype["axis"] = ctype["leading"] = ctype["count"] = ctype["mode"] = ctype["layout"] = "int64_t"; ctype["reverse"] = ctype["unique"] = ctype["sorted"] = "bool"
    ctype["axes"] = ctype["permutation"] = ctype["sizes"] = "ct_ints"
    ctype["offsets"] = ctype["limits"] = ctype["strides"] = ctype["gaps"] = ctype["extents"] = "ct_ints"
}

FILENAME ~ /ops\.list$/ {
    if ($0 ~ /^\/\/ [a-z_\/]+\.c/) { heading = $0; sub(/^\/\/ /, "", heading) }
    if ($0 !~ /^OP\(/) next
    line = $0
    sub(/^OP\(/, "", line); sub(/\).*$/, "", line)
    split(line, cell, /, */)
    n++
    upper[n] = cell[1]; name[n] = cell[2]; operands[n] = cell[3]; group[n] = heading
    next
}

# #define SUM_ATTRS(F, op) F(op, ints, axes) F(op, bool, keepdims)      (maybe continued by backslashes)
/^#define [A-Z0-9_]+_ATTRS\(F, op\)/ {
    text = $0
    while (text ~ /\\$/ && (getline more) > 0) { sub(/\\$/, "", text); text = text more }
    key = text
    sub(/^#define /, "", key); sub(/_ATTRS.*/, "", key)
    sub(/^#define [A-Z0-9_]+_ATTRS\(F, op\)/, "", text)
    attrs[key] = text
}

# CT_ATTRS(prod, SUM_ATTRS);      of an op that has another's attributes
/^CT_ATTRS\([a-z0-9_]+, [A-Z0-9_]+_ATTRS\);/ {
    split($0, cell, /[(, )]+/)
    sub(/_ATTRS$/, "", cell[3])
    list_of[toupper(cell[2])] = cell[3]
}

# The definition's .doc: the strings that follow it, until something else does.
/^const ct_opdef ct__op_/ { current = $0; sub(/^const ct_opdef ct__op_/, "", current); sub(/ .*/, "", current) }
/\.doc = *$/ || /\.doc = "/ { in_doc = 1; piece = $0; sub(/^.*\.doc = */, "", piece); take_doc(piece); next }
in_doc { take_doc($0) }
function take_doc(piece) {
    sub(/^ */, "", piece)
    while (match(piece, /^"([^"\\]|\\.)*"/)) {
        doc[current] = doc[current] substr(piece, 2, RLENGTH - 2)
        piece = substr(piece, RSTART + RLENGTH)
        sub(/^ */, "", piece)
    }
    if (piece != "") in_doc = 0
}

# Splits an attribute list into akind[1..], aname[1..]; returns how many.
function fields(list,    m, cell, k, parts, i) {
    k = 0
    m = split(list, parts, /F\(op, */)
    for (i = 2; i <= m; i++) {
        sub(/\).*/, "", parts[i])
        split(parts[i], cell, /, */)
        akind[++k] = cell[1]; aname[k] = cell[2]
    }
    return k
}

# An op's number: a hash of its name.
function number(text,    h, j) {
    h = length(text)
    for (j = 1; j <= length(text); j++) h = (h * 8191 + ordinal[substr(text, j, 1)]) % 2147483647
    return h
}

function wrap(text,    out, line, words, k, i) {
    k = split(text, words, / +/)
    for (i = 1; i <= k; i++) {
        if (length(line) + length(words[i]) > 95) { out = out "// " line "\n"; line = "" }
        line = line (line == "" ? "" : " ") words[i]
    }
    return out "// " line "\n"
}

function parse(i,    k, w, j, out) {
    n_ops = 0; n_needed = 0; n_outs = 0; mode = ""; variadic = 0; out = 0
    k = split(operands[i], w, / +/)
    for (j = 1; j <= k; j++) {
        if (w[j] == ";" || w[j] == ".") mode = w[j]
        else if (w[j] == "->") out = 1
        else if (out) outname[++n_outs] = w[j]
        else if (w[j] ~ /\*$/) { variadic = 1; opname[++n_ops] = substr(w[j], 1, length(w[j]) - 1) }
        else if (w[j] ~ /\?$/) opname[++n_ops] = substr(w[j], 1, length(w[j]) - 1)
        else if (w[j] != "") { opname[++n_ops] = w[j]; n_needed = n_ops }
    }
    n_attrs = mode == "" ? 0 : fields(attrs[upper[i] in list_of ? list_of[upper[i]] : upper[i]])
    result = n_outs ? "ct_" name[i] "_out" : "ct_tensor"
}

# Is attribute j an argument? `present` is filled in by the function.
function given(j) { return aname[j] != "present" }

# "ct_tensor a, ct_tensor b, int64_t axis" and "a, b, axis"
function signature(    s, j) {
    s = variadic ? ", const ct_tensor *" opname[1] ", int n" : ""
    for (j = 1; j <= n_ops && !variadic; j++) s = s ", ct_tensor " opname[j]
    for (j = 1; j <= n_attrs; j++) if (given(j)) s = s ", " ctype[akind[j]] " " aname[j]
    return substr(s, 3)
}
function names(pre, post,    s, j) {
    s = variadic ? ", " pre opname[1] post ", " pre "n" post : ""
    for (j = 1; j <= n_ops && !variadic; j++) s = s ", " pre opname[j] post
    for (j = 1; j <= n_attrs; j++) if (given(j)) s = s ", " pre aname[j] post
    return substr(s, 3)
}

function header(i,    j) {
    if (doc[name[i]] != "") printf "%s", wrap(doc[name[i]])
    if (n_outs) {
        printf "typedef struct ct_%s_out {\n    ct_tensor ", name[i]
        for (j = 1; j <= n_outs; j++) printf "%s%s", (j > 1 ? ", " : ""), outname[j]
        printf ";\n} ct_%s_out;\n", name[i]
    }
    if (mode == ".") {
        printf "typedef struct ct_%s_args {\n", name[i]
        for (j = 1; j <= n_ops; j++) printf "    ct_tensor %s;%s\n", opname[j], (j > n_needed ? " // may be CT_NONE" : "")
        for (j = 1; j <= n_attrs; j++) if (given(j)) printf "    %s %s;\n", ctype[akind[j]], aname[j]
        printf "    ct_loc here;\n} ct_%s_args;\n", name[i]
        printf "CT_API %s ct_%s_with(ct_%s_args args);\n", result, name[i], name[i]
        printf "#define ct_%s(...) ct_%s_with((ct_%s_args){__VA_ARGS__, .here = CT_HERE})\n\n", name[i], name[i], name[i]
        return
    }
    printf "CT_API %s ct_%s_at(%s, ct_loc here);\n", result, name[i], signature()
    printf "CT_API %s(ct_%s)(%s);\n", result, name[i], signature()
    printf "#define ct_%s(%s) ct_%s_at(%s, CT_HERE)\n\n", name[i], names("", ""), name[i], names("(", ")")
}

# The function's body: operands, attributes, the record. `pre` stands before each argument's name.
function body(i, pre, here,    j, in_name, count, init) {
    in_name = variadic ? opname[1] : n_ops ? "in" : "NULL"
    count = variadic ? "n" : n_needed < n_ops ? "n" : n_ops
    if (n_ops && !variadic) {
        printf "    %sct_tensor in[%d] = {", (n_needed < n_ops ? "" : "const "), n_ops
        for (j = 1; j <= n_needed; j++) printf "%s%s%s", (j > 1 ? ", " : ""), pre, opname[j]
        printf "};\n"
    }
    if (n_needed < n_ops && !variadic) {
        printf "    int n = %d;\n    int64_t present = 0;\n", n_needed
        for (j = n_needed + 1; j <= n_ops; j++)
            printf "    if (%s%s.bits) in[n++] = %s%s, present |= %d;\n", pre, opname[j], pre, opname[j], 2 ^ (j - n_needed - 1)
    }
    init = n_attrs ? "&attrs" : "NULL"
    if (n_attrs) {
        printf "    const struct %s_attrs attrs = {", name[i]
        for (j = 1; j <= n_attrs; j++) printf "%s.%s = %s%s", (j > 1 ? ", " : ""), aname[j], (given(j) ? pre : ""), aname[j]
        printf "};\n"
    }
    printf "    %s ct__record(&ct__op_%s, %s, %s, %s, %s);\n", (n_outs ? "ct_tensor t =" : "return"), name[i], init, in_name, count, here
    if (n_outs) {
        printf "    return (ct_%s_out){", name[i]
        for (j = 1; j <= n_outs; j++) printf "%s", j == 1 ? "t" : ", ct__output(t, " j - 1 ")"
        printf "};\n"
    }
}

function source(i) {
    if (mode == ".") {
        printf "%s ct_%s_with(ct_%s_args args) {\n", result, name[i], name[i]
        body(i, "args.", "args.here")
        printf "}\n\n"
        return
    }
    printf "%s ct_%s_at(%s, ct_loc here) {\n", result, name[i], signature()
    body(i, "", "here")
    printf "}\n%s(ct_%s)(%s) { return ct_%s_at(%s, CT_NOWHERE); }\n\n", result, name[i], signature(), name[i], names("", "")
}

# How it is called, for the page: what has a name, and may be left out, behind a dot.
function call(i,    s, j) {
    s = variadic ? ", const ct_tensor *" opname[1] ", int n" : ""
    for (j = 1; j <= n_ops && !variadic; j++)
        s = s ", " (j > n_needed ? "." opname[j] : "ct_tensor " opname[j])
    for (j = 1; j <= n_attrs; j++) if (given(j)) s = s ", " (mode == "." ? "." aname[j] : ctype[akind[j]] " " aname[j])
    return result " ct_" name[i] "(" substr(s, 3) ");"
}
# A line an op for scripts/ops_page.py: family, name, call, outputs, sentence.
function docs(i,    j, outs) {
    for (j = 1; j <= n_outs; j++) outs = outs (j > 1 ? " " : "") outname[j]
    printf "%s\t%s\t%s\t%s\t%s\n", group[i], name[i], call(i), outs, doc[name[i]]
}

# The attribute structs again, for the functions: the same lists, the same members.
function structs(i,    j) {
    if (!n_attrs) return
    printf "struct %s_attrs {\n", name[i]
    for (j = 1; j <= n_attrs; j++) printf "    %s %s;\n", ctype[akind[j]], aname[j]
    printf "};\n"
}

# For Python: the arguments as a struct (for options it is the public one), what calls the op with them, how they bind.
function python_kind(kind) {
    if (kind in python_kinds) return python_kinds[kind]
    return ctype[kind] == "ct_ints" ? "ATTR_INTS" : ctype[kind] == "bool" ? "ATTR_BOOL" : "ATTR_INT"
}
function python_struct(i,    j) {
    if (mode == ".") return "ct_" name[i] "_args"
    printf "typedef struct %s_values {\n", name[i]
    if (variadic) printf "    const ct_tensor *%s;\n    int n;\n", opname[1]
    for (j = 1; j <= n_ops && !variadic; j++) printf "    ct_tensor %s;\n", opname[j]
    for (j = 1; j <= n_attrs; j++) if (given(j)) printf "    %s %s;\n", ctype[akind[j]], aname[j]
    printf "} %s_values;\n", name[i]
    return name[i] "_values"
}
function python_signature(i,    s, j, sep) {
    s = "$module"
    for (j = 1; j <= n_ops; j++) s = s ", " opname[j] (j > n_needed && !variadic ? "=None" : "")
    sep = mode == "." && n_attrs > (aname[n_attrs] == "present") ? ", *" : ""
    s = s sep
    for (j = 1; j <= n_attrs; j++) if (given(j)) s = s ", " aname[j] (mode == "." ? "=None" : "")
    return s
}
function python_list(kind, stem, list, count,    j) {
    printf "static const char *const %s_%s[] = {", stem, kind
    for (j = 1; j <= count; j++) printf "\"%s\", ", list[j]
    printf "NULL};\n"
}
function python(i,    args, j, given_attrs, title) {
    title = name[i] (name[i] ~ /^(and|or|not)$/ ? "_" : "")
    args = python_struct(i)
    printf "_Static_assert(sizeof(%s) <= OP_MOST_BYTES, \"arguments of %s\");\n", args, name[i]
    python_list("operands", name[i], opname, n_ops)
    if (n_outs) python_list("outputs", name[i], outname, n_outs)
    if (n_outs) printf "static PyTypeObject *%s_result;\n", name[i]
    given_attrs = 0
    for (j = 1; j <= n_attrs; j++) given_attrs += given(j)
    if (given_attrs) {
        printf "static const op_attr %s_attrs[] = {\n", name[i]
        for (j = 1; j <= n_attrs; j++)
            if (given(j)) printf "    {\"%s\", %s, offsetof(%s, %s)},\n", aname[j], python_kind(akind[j]), args, aname[j]
        printf "};\n"
    }
    printf "static void %s_run(void *bytes, ct_loc here, ct_tensor *out) {\n    %s *args = bytes;\n", name[i], args
    if (mode == ".") printf "    args->here = here;\n    %s t = ct_%s_with(*args);\n", result, name[i]
    else printf "    %s t = ct_%s_at(%s, here);\n", result, name[i], names("args->", "")
    for (j = 1; j <= n_outs; j++) printf "    out[%d] = t.%s;\n", j - 1, outname[j]
    if (!n_outs) printf "    out[0] = t;\n"
    printf "}\nstatic const op_entry %s_entry = {\n    .name = \"%s\",\n    .operands = %s_operands,\n", name[i], title, name[i]
    if (given_attrs) printf "    .attrs = %s_attrs,\n", name[i]
    printf "    .n_operands = %d,\n    .n_needed = %d,\n    .n_attrs = %d,\n    .n_out = %d,\n", n_ops, (variadic ? n_ops : n_needed), given_attrs, (n_outs ? n_outs : 1)
    printf "    .list = %d,\n    .options = %d,\n    .run = %s_run,\n", variadic, mode == ".", name[i]
    if (n_outs) printf "    .outputs = %s_outputs,\n    .result = &%s_result,\n", name[i], name[i]
    printf "};\nstatic PyObject *%s_call(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names) {\n", name[i]
    printf "    (void)module;\n    return call_op(&%s_entry, args, n, names);\n}\n\n", name[i]
    text = doc[name[i]]
    gsub(/ct_/, "", text)
    method[++n_methods] = sprintf("    {\"%s\", (PyCFunction)(void (*)(void))%s_call, METH_FASTCALL | METH_KEYWORDS,\n     \"%s(%s)\\n--\\n\\n%s\"},", title, name[i], title, python_signature(i), text)
    entry[n_methods] = "    &" name[i] "_entry,"
}
function python_table(    i) {
    python_kinds["f64"] = "ATTR_FLOAT"; python_kinds["num"] = "ATTR_NUM"; python_kinds["dtype"] = "ATTR_DTYPE"
    python_kinds["mode"] = "ATTR_MODE"; python_kinds["layout"] = "ATTR_LAYOUT"
    print "// Derived from src/ops/ops.list and the definitions by scripts/gen-ops.awk; do not edit.\n#include \"call.h\"\n"
    for (i = 1; i <= n; i++) if (operands[i] != "-") { parse(i); python(i) }
    print "PyMethodDef op_methods[] = {"
    for (i = 1; i <= n_methods; i++) print method[i]
    print "    {0},\n};\nconst op_entry *const op_entries[] = {"
    for (i = 1; i <= n_methods; i++) print entry[i]
    printf "};\nconst size_t op_count = %d;\n", n_methods
}

END {
    if (part == "python") {
        python_table()
        exit
    }
    if (part == "enum") {
        print "// Derived from src/ops/ops.list by scripts/gen-ops.awk; do not edit."
        print "#ifndef COTAN_OPS_OPCODE_H\n#define COTAN_OPS_OPCODE_H\n\n#include \"graph/graph.h\"\n"
        for (i = 1; i <= n; i++) {
            h = number(name[i])
            if (h in taken) {
                print "scripts/gen-ops.awk: " name[i] " and " taken[h] " have the same number: rename one" >"/dev/stderr"
                exit 1
            }
            taken[h] = name[i]
            printf "enum { CT_OP_%s = %d };\nextern const ct_opdef ct__op_%s;\n\n", upper[i], h, name[i]
        }
        print "// All of them, in the order of the list."
        print "extern const ct_opdef *const ct__ops[];\nextern const uint32_t ct__n_ops;\n\n#endif"
        exit
    }
    if (part == "docs") {
        for (i = 1; i <= n; i++) if (operands[i] != "-") { parse(i); docs(i) }
        exit
    }
    print "// Derived from src/ops/ops.list and the definitions by scripts/gen-ops.awk; do not edit."
    if (part == "header") print "#ifndef COTAN_OPS_H\n#define COTAN_OPS_H\n\n#include \"cotan/cotan.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
    else {
        print "#include \"ops/opcode.h\"\n\nconst ct_opdef *const ct__ops[] = {"
        for (i = 1; i <= n; i++) printf "    &ct__op_%s,\n", name[i]
        printf "};\nconst uint32_t ct__n_ops = %d;\n\n", n
    }
    for (i = 1; i <= n; i++) {
        if (operands[i] == "-") continue
        parse(i)
        if (part == "header") header(i)
        else { structs(i); source(i) }
    }
    if (part == "header") print "#ifdef __cplusplus\n}\n#endif\n\n#endif"
}
