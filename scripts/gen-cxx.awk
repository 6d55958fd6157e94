# Derives the C++ face from the C headers: each function becomes one of namespace cotan, without its prefix; one that takes a line
# (`ct_..._at`, `ct_..._with`) finds it itself; a struct of options becomes one whose members may be left out without a warning; a
# list of tensors with its length may be given in braces.
# usage: awk -f scripts/gen-cxx.awk include/cotan/cotan.h build/derived/cotan/ops.h include/cotan/nn.h ...
BEGIN {
    print "// Derived from the C headers by scripts/gen-cxx.awk; do not edit. Included by cotan/cotan.hpp."
    print "#ifndef COTAN_FUNCTIONS_HPP\n#define COTAN_FUNCTIONS_HPP\n\nnamespace cotan {\n"
    split("and or xor not const while switch", words, " ")
    for (i in words) keyword[words[i]] = 1
}
END { print "\n} // namespace cotan\n\n#endif" }

# Statements, without comments and preprocessor lines. An operand that may be left out is marked by gen-ops.awk.
/^#/ || in_macro { in_macro = /\\$/; next }
{
    left_out = /\/\/ may be CT_NONE/
    sub(/\/\/.*/, "")
    if (left_out) sub(/;/, " @;")
    gsub(/[ \t]+/, " ")
    text = text " " $0
    depth += gsub(/\{/, "{") - gsub(/\}/, "}")
    if (/extern "C" \{/) { depth--; text = ""; next }
    if (depth < 0) { depth = 0; text = "" }
    if (depth == 0 && text ~ /; *$/) { statement(text); text = "" }
}

function trim(s) { sub(/^ +/, "", s); sub(/ +$/, "", s); return s }
function plain(name) { sub(/^ct_/, "", name); return name in keyword ? name "_" : name }
function cxx_type(type) {
    return type == "ct_ints" ? "ints" : type == "ct_num" ? "num" : type == "ct_named_list" ? "name_list" : type in fields ? plain(type) : type
}
# "const char *const *data" -> part["type"] = "const char *const *", part["name"] = "data"
function split_name(s) {
    s = trim(s)
    match(s, /[A-Za-z_0-9]+$/)
    part["name"] = substr(s, RSTART)
    part["type"] = trim(substr(s, 1, RSTART - 1))
}
function space(type) { return type ~ /\*$/ ? type : type " " }

function statement(s) {
    s = trim(s)
    if (s ~ /^typedef struct ct_[a-z0-9_]+ \{.*ct_loc here; \}/) options(s)
    else if (s ~ /^CT_API .*[( *]ct_[a-z0-9_]+_(at\(.*ct_loc here|with\(.*)\);$/) wrapped(s)
    else if (s ~ /^CT_API [^(]*[ *]ct_[a-z0-9]+[a-z0-9_]*\([^(]*\);$/ && s !~ /\.\.\./) plain_function(s)
}

# Without options. Where it takes a line as well it is a scope's begin or end, or has one of its own in cotan.hpp.
function plain_function(s,    must, result, name, n, i, list, params, args) {
    must = s ~ /CT_MUST_USE/ ? "[[nodiscard]] " : ""
    sub(/^CT_API (CT_MUST_USE )?/, "", s)
    match(s, /ct_[a-z0-9_]+\(/)
    result = trim(substr(s, 1, RSTART - 1))
    name = substr(s, RSTART, RLENGTH - 1)
    s = substr(s, RSTART + RLENGTH)
    sub(/\);$/, "", s)
    if (s ~ /ct_loc here/ || name in made) return
    n = s == "void" ? 0 : split(s, list, /, */)
    for (i = 1; i <= n; i++) {
        split_name(list[i])
        params = params ", " space(part["type"]) part["name"]
        args = args ", " part["name"]
    }
    printf "%sinline %s%s(%s) { %s::%s(%s); }\n", must, space(result), plain(name), substr(params, 3), \
        (result == "void" ? "" : "return "), name, substr(args, 3)
}

# Tensors that come first and are needed stay arguments (an op's operands); the rest has names.
function options(s,    name, list, n, i, j, m, kinds, out, fill, leading) {
    name = s
    sub(/^typedef struct /, "", name); sub(/ .*/, "", name)
    sub(/^[^{]*\{/, "", s); sub(/\}[^}]*$/, "", s)
    n = split(s, list, /;/)
    leading = name ~ /_args$/
    for (i = 1; i <= n; i++) {
        if (trim(list[i]) == "" || list[i] ~ /ct_loc here/) continue
        maybe = list[i] ~ /@/
        sub(/@/, "", list[i])
        if (list[i] ~ /\(\*/) { # a function pointer: the name stands inside
            match(list[i], /\(\*[a-z_0-9]+\)/)
            kinds[1] = substr(list[i], RSTART + 2, RLENGTH - 3)
            out = out "    " trim(list[i]) " = {};\n"
            fill = fill "        c." kinds[1] " = " kinds[1] ";\n"
            leading = 0
            continue
        }
        m = split(list[i], kinds, /,/)
        split_name(kinds[1])
        leading = leading && part["type"] == "ct_tensor" && !maybe
        for (j = 1; j <= m; j++) {
            if (j > 1) part["name"] = trim(kinds[j])
            if (leading) { operands[name] = operands[name] " " part["name"]; continue }
            out = out "    " space(cxx_type(part["type"])) part["name"] " = {};\n"
            fill = fill "        c." part["name"] " = " part["name"] ";\n"
        }
    }
    fields[name] = 1
    printf "struct %s {\n%s\n    %s to_c(ct_loc here) const {\n        %s c = {};\n%s        c.here = here;\n        return c;\n    }\n};\n\n", \
        plain(name), out, name, name, fill
}

function wrapped(s,    must, result, name, list, n, i, params, args, k, operand, pre, needed, braces_at) {
    must = s ~ /CT_MUST_USE/ ? "[[nodiscard]] " : ""
    sub(/^CT_API (CT_MUST_USE )?/, "", s)
    match(s, /ct_[a-z0-9_]+_(at|with)\(/)
    result = trim(substr(s, 1, RSTART - 1))
    name = substr(s, RSTART, RLENGTH - 1)
    s = substr(s, RSTART + RLENGTH)
    sub(/\);$/, "", s)
    n = split(s, list, /, */)
    for (i = 1; i <= n; i++) {
        split_name(list[i])
        if (part["type"] == "ct_loc") { args = args ", here"; continue }
        if (part["type"] in fields) {
            k = split(trim(operands[part["type"]]), operand, " ")
            for (j = 1; j <= k; j++) {
                params = params ", ct_tensor " operand[j]
                needed = needed "    c." operand[j] " = " operand[j] ";\n"
            }
            pre = part["type"] " c = " part["name"] ".to_c(here);\n" needed
            params = params ", const " plain(part["type"]) " &" part["name"] (i >= n - 1 && name ~ /_with$/ && i == n ? " = {}" : "")
            args = args ", c"
            continue
        }
        # a list of operands: given as {a, b}, or as anything with data() and size()
        if (part["type"] == "const ct_tensor *" && list[i + 1] ~ /^int n$/) {
            several(result, name, part["name"], list, i + 2, n)
            return
        }
        if (part["type"] == "const ct_tensor *" && list[i + 1] ~ /^size_t n[a-z_]*$/ && !braces_at) braces_at = i
        params = params ", " (part["type"] == "ct_ints" ? "const ints &" : space(part["type"])) part["name"]
        args = args ", " part["name"]
    }
    function_of(must, result, name, substr(params, 3), substr(args, 3), pre)
    if (braces_at) in_braces(must, result, name, params, args, list[braces_at])
}

# The same with a list of tensors in braces, in place of an address and a number.
function in_braces(must, result, name, params, args, list,    xs) {
    split_name(list)
    xs = part["name"]
    sub("const ct_tensor \\*" xs ", size_t n[a-z_]*", "std::initializer_list<ct_tensor> " xs, params)
    sub(", " xs ", n[a-z_]*", ", " xs ".begin(), " xs ".size()", args)
    function_of(must, result, name, substr(params, 3), substr(args, 3), "")
}

function function_of(must, result, name, params, args, pre,    short) {
    short = name
    sub(/_(at|with)$/, "", short)
    made[short] = 1
    printf "%sinline %s%s(%s%sCT__CALLER) {\n", must, space(result), plain(short), params, (params == "" ? "" : ", ")
    printf "    const ct_loc here = {file, line};\n"
    if (pre != "") printf "    %s", pre
    printf "    %s::%s(%s);\n}\n", (result == "void" ? "" : "return "), name, args
}

function several(result, name, xs, list, from, n,    rest, more, i) {
    for (i = from; i <= n; i++) {
        split_name(list[i])
        if (part["type"] == "ct_loc") continue
        rest = rest ", " space(cxx_type(part["type"])) part["name"]
        more = more ", " part["name"]
    }
    function_of("", result, name, "std::initializer_list<ct_tensor> " xs rest, xs ".begin(), static_cast<int>(" xs ".size())" more ", here", "")
    printf "template <class List>\n"
    function_of("", result, name, "const List &" xs rest, xs ".data(), static_cast<int>(" xs ".size())" more ", here", "")
}
