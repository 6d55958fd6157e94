// Writes the source of a plan compiled ahead of time: the header, and the function with its kernels.
#include <inttypes.h>
#include <string.h>

#include "backend/cpu/prelude.h"
#include "base/number.h"
#include "compile/ahead/ahead.h"
#include "compile/run/cost.h"
#include "compile/render/render_impl.h"

// ---------------------------------------------------------------------------------------- comments

// Names and paths are the user's and may contain any characters; only those are written into a comment that
// cannot end it, form a trigraph or change the reading direction.
static void ahead_put_user_text(ct_text *out, const char *s) {
    enum { MAX_LENGTH = 200 };
    for (int i = 0; s[i] && i < MAX_LENGTH; i++) {
        char c = s[i];
        bool is_safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       strchr("_.-/ +:,()[]", c);
        ct__text_bytes(out, is_safe ? &c : "_", 1);
    }
}

static void ahead_put_location(ct_text *out, ct_loc here) {
    if (!here.file) return;
    ct__text_add(out, " of ");
    ahead_put_user_text(out, here.file);
    ct__textf(out, ":%u", here.line);
}

static void ahead_put_node(ct_text *out, const ct_node *node) {
    ct__text_add(out, node ? node->op->name : "what the plan needs");
    if (node) ahead_put_location(out, node->here);
}

// ----------------------------------------------------------------------------------------- members

static void ahead_put_type(ct_text *out, int dtype) {
    const ct_dtype_info *d = ct__dtype((ct_dtype)dtype);
    if (d->class == CT_CLASS_COMPLEX) return ahead_put_type(out, d->part);
    if (dtype == CT_F32 || dtype == CT_F64)
        ct__text_add(out, dtype == CT_F32 ? "float" : "double");
    else // bool is a byte, narrow floats are their bits, two 4-bit elements are a byte
        ct__textf(out, "%sint%d_t", d->class == CT_CLASS_INT && d->bits >= 8 ? "" : "u",
                  d->bits < 8 ? 8 : d->bits);
}

static bool ahead_is_pointer(const ct_member *m) {
    return m->kind != CT_MEMBER_SCALAR && !m->embedded;
}

// The first launch that takes the scalar, or NULL.
static const ct_launch *ahead_first_use_of_scalar(const ct_ahead *a, size_t scalar) {
    const ct_program *p = &a->plan->program;
    for (size_t i = 0; i < p->n_launches; i++)
        for (uint32_t k = 0; k < p->launches[i].n_args; k++) {
            const ct_arg *arg = &p->launches[i].args[k];
            if (p->bufs[arg->buf].kind == CT_BUF_SCALARS && arg->offset == 8 * scalar)
                return &p->launches[i];
        }
    return NULL;
}

static void ahead_put_member(const ct_ahead *a, ct_text *out, size_t i) {
    const ct_member *m = &a->members[i];
    ct__text_add(out, ahead_is_pointer(m) && !m->written ? "    const " : "    ");
    ahead_put_type(out, m->type->dtype);
    ct__textf(out, " %s%s; // ", ahead_is_pointer(m) ? "*" : "", m->name);
    if (m->kind == CT_MEMBER_SCALAR) {
        const ct_launch *use = ahead_first_use_of_scalar(a, i - a->scalars);
        ct__textf(out, "%s, it was %g%s", ct_dtype_name((ct_dtype)m->type->dtype),
                  ct__load_f64(m->type->dtype, &m->value, 0),
                  use ? "; first needed for " : "; not needed");
        if (use) ahead_put_node(out, use->node);
    } else {
        ct__text_add(out, ct__type_text(m->type).s);
        if (m->kind == CT_MEMBER_VARIABLE) ct__text_add(out, m->written ? ", updated" : ", read");
        if (m->user_name) ct__text_add(out, ": ");
        if (m->user_name) ahead_put_user_text(out, m->user_name);
        ahead_put_location(out, m->here);
    }
    ct__text_add(out, "\n");
}

static void ahead_put_members(const ct_ahead *a, ct_text *out) {
    static const char *const titles[] = {"variables", "inputs", "scalars", "results"};
    ct__textf(out,
              "// Tensors are dense and row-major and do not overlap. bool is a byte, 0 or 1; f16 "
              "and bf16 are\n// their bits.\nstruct %s {\n    void *arena; // memory to work in\n",
              a->name);
    for (int kind = 0; kind < CT_MEMBER_KINDS; kind++) {
        bool any = false;
        for (size_t i = 0; i < a->n_members; i++) {
            if ((int)a->members[i].kind != kind || a->members[i].embedded) continue;
            if (!any) ct__textf(out, "\n    // %s\n", titles[kind]);
            any = true;
            ahead_put_member(a, out, i);
        }
    }
    ct__text_add(out, "};\n");
}

// ------------------------------------------------------------------------------------------ header

static void ahead_put_upper(const ct_ahead *a, ct_text *out, const char *end) {
    for (const char *c = a->name; *c; c++)
        ct__textf(out, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    ct__text_add(out, end);
}

static size_t ahead_max_scratch(const ct_program *p) {
    size_t max_bytes = 0;
    for (size_t i = 0; i < p->n_kernels; i++) {
        size_t bytes = ct__round_up(ct__kir_scratch(p->kernels[i].ir), 64);
        if (bytes > max_bytes) max_bytes = bytes;
    }
    return max_bytes;
}

static const char *ahead_any_pointer(const ct_ahead *a) { // there is a result or a variable
    size_t i = 0;
    while (i + 1 < a->n_members && !ahead_is_pointer(&a->members[i])) i++;
    return a->members[i].name;
}

static bool ahead_put_description(const ct_ahead *a, ct_text *out) {
    const ct_plan_cost *c = ct__plan_cost(a->ctx, a->engine, a->plan);
    const char *calls[CT_AHEAD_SYMBOLS];
    const size_t n_calls = ct__ahead_symbols(a, calls, CT_AHEAD_SYMBOLS);
    if (!c) return false;
    ct__textf(
        out,
        "// %s: a plan of Cotan %s, written ahead of time. Needs %s.c, the C library and its\n"
        "// libm: no Cotan, no allocation, no threads. Calls on different memory may run at "
        "the same time.\n"
        "// A call computes %.4g MFLOP in %zu launches of %zu kernels and moves %.4g MB.\n",
        a->name, CT_VERSION, a->name, c->flops * 1e-6, c->n_launches, c->n_kernels,
        (double)c->bytes * 1e-6);
    for (size_t i = 0; i < n_calls; i++)
        ct__textf(out, i ? ", %s" : "// It calls functions of custom ops: %s", calls[i]);
    ct__text_add(out, n_calls ? ".\n//\n" : "//\n");
    ct__text_add(out, "//     static unsigned char arena[");
    ahead_put_upper(a, out, "_ARENA_BYTES] __attribute__((aligned(64)));\n");
    ct__textf(
        out,
        "//     struct %s s;\n"
        "//     %s_init(&s);   // scalars are as they were when this was written\n"
        "//     s.arena = arena;\n"
        "//     s.%s = ...     // and so every member below that is a pointer\n"
        "//     if (%s(&s)) ...  // 0: done; 1: the arena is NULL or no multiple of 64; 2: "
        "another pointer is NULL%s\n"
        "//\n"
        "// Compile it with GCC 12 or newer, or Clang: cc -O2 %s.c ... -lm. With -march=native "
        "it is several\n"
        "// times as fast. Whatever is optimized the bits are those of Cotan, by its numerics "
        "\"%s\",\n"
        "// on this type of machine. -ffast-math is refused; its parts, and -ffp-contract=fast, "
        "are "
        "not for Clang.\n",
        a->name, a->name, ahead_any_pointer(a), a->name, n_calls ? "; 3: a custom op failed" : "",
        a->name, ct__numerics(a->engine->device));
    return true;
}

static bool ahead_put_header(const ct_ahead *a, ct_text *out, uint32_t *number) {
    const ct_program *p = &a->plan->program;
    size_t bytes = p->arena_bytes + ahead_max_scratch(p);
    ct_text members = {0};
    ahead_put_members(a, &members);
    ct_hash hash = ct__hash_bytes(members.s ? members.s : "", members.n, a->plan->hash);
    *number = (uint32_t)hash.lo;
    bool ok = ahead_put_description(a, out);
    ct__text_add(out, "#ifndef ");
    ahead_put_upper(a, out, "_COTAN_H\n#define ");
    ahead_put_upper(a, out,
                    "_COTAN_H\n\n#include <stdint.h>\n\n"
                    "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n#define ");
    ahead_put_upper(a, out, "_ARENA_BYTES ");
    ct__textf(out, "%zu // its contents are only used during a call\n#define ", bytes ? bytes : 64);
    ahead_put_upper(a, out, "_PLAN ");
    ct__textf(out, "0x%08" PRIx32 "u // header and source are of the same plan\n\n", *number);
    ct__text_bytes(out, members.s ? members.s : "", members.n);
    ct__textf(out,
              "\n// All pointers NULL, all scalars as they were when this was written.\n"
              "void %s_init(struct %s *s);\n"
              "int %s(const struct %s *s); // 0: done\n\n"
              "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
              a->name, a->name, a->name, a->name);
    if (members.failed) out->failed = true;
    ct__text_free(&members);
    return ok;
}

// ------------------------------------------------------------------------------------------- data

// Data in the source file: constants and embedded variables.
static const ct_member *ahead_embedded_member(const ct_ahead *a, const ct_buf *b) {
    const ct_member *m = b->kind == CT_BUF_LEAF ? &a->members[a->leaf_member[b->index]] : NULL;
    return m && m->embedded ? m : NULL;
}
static bool ahead_is_data(const ct_ahead *a, size_t i) {
    const ct_buf *b = &a->plan->program.bufs[i];
    return a->used[i] && (b->kind == CT_BUF_CONST || ahead_embedded_member(a, b));
}

// Data is written as words of this size, so that it does not depend on the byte order.
static size_t ahead_word_bytes(const ct_ahead *a, const ct_buf *b) {
    const ct_member *m = ahead_embedded_member(a, b);
    const ct_type *type = m ? m->type : b->node ? b->node->out : NULL;
    return type && !ct__has_parts((ct_dtype)type->dtype) ? ct_dtype_size(type->dtype) : 1;
}

static void ahead_declare_data(const ct_ahead *a, ct_text *out, size_t i) {
    const ct_buf *b = &a->plan->program.bufs[i];
    size_t bytes = ahead_word_bytes(a, b), n = b->bytes / bytes;
    ct__textf(out, "static const uint%zu_t data_%zu[%zu]", bytes * 8, i, n ? n : 1);
}

static void ahead_put_words(ct_text *out, const unsigned char *data, size_t n, size_t bytes) {
    size_t digits = 2 * bytes, words_per_line = 96 / (digits + 4);
    for (size_t i = 0; i < n / bytes; i++) {
        char word[24] = " 0x";
        for (size_t k = 0; k < digits; k++) // the host is little-endian
            word[2 + digits - k] = "0123456789abcdef"[data[i * bytes + k / 2] >> 4 * (k % 2) & 15];
        word[3 + digits] = ',';
        if (i % words_per_line == 0) ct__text_add(out, "\n   ");
        ct__text_bytes(out, word, digits + 4);
    }
}

static bool ahead_define_data(const ct_ahead *a, ct_text *out, size_t i) {
    const ct_buf *b = &a->plan->program.bufs[i];
    const ct_member *m = ahead_embedded_member(a, b);
    void *copy = NULL;
    bool ok = true;
    if (m) {
        ct_var *var = (ct_var *)(uintptr_t)m->var;
        copy = ct__malloc(b->bytes + 1);
        ct__rwlock_lock(var->lock, false, NULL);
        ok = copy ? ct__hooks.download(a->ctx, var->storage, copy, b->bytes)
                  : ct__err_memory(&a->ctx->err, a->args->here, "compile", b->bytes);
        ct__rwlock_unlock(var->lock, false);
        ct__text_add(out, "\n// ");
        ahead_put_user_text(out, m->user_name);
        ct__textf(out, ", %s\n", ct__type_text(m->type).s);
    } else {
        ct__text_add(out, "\n// a constant\n");
    }
    ahead_declare_data(a, out, i);
    ct__text_add(out, " = {");
    if (ok) ahead_put_words(out, copy ? copy : b->data, b->bytes, ahead_word_bytes(a, b));
    ct__text_add(out, b->bytes ? "\n};\n" : "0};\n");
    ct__free(copy);
    return ok;
}

// ---------------------------------------------------------------------------------------- function

// Writes a comma, and breaks the line in a list within braces if it is long.
static void ahead_put_comma(ct_text *out) {
    size_t column = 0;
    while (column < out->n && out->s[out->n - 1 - column] != '\n') column++;
    ct__text_add(out, column > 72 ? ",\n        " : ", ");
}

static void ahead_put_operand(const ct_ahead *a, ct_text *out, const ct_launch *l,
                              uint32_t number) {
    const ct_arg *arg = &l->args[number];
    const ct_buf *b = &a->plan->program.bufs[arg->buf];
    size_t offset = arg->offset + (b->kind == CT_BUF_TEMP ? b->offset : 0);
    if (b->kind == CT_BUF_SCALARS)
        ct__text_add(out, "(char *)scalars");
    else if (b->kind == CT_BUF_TEMP)
        ct__text_add(out, "arena");
    else if (ahead_is_data(a, arg->buf))
        ct__textf(out, "(char *)data_%u", arg->buf);
    else
        ct__textf(
            out, "(char *)s->%s",
            a->members[b->kind == CT_BUF_LEAF ? a->leaf_member[b->index] : a->root_member[b->index]]
                .name);
    if (offset) ct__textf(out, " + %zu", offset);
    for (uint32_t i = 0; i < l->n_steps; i++)
        if (l->steps[i].arg == number) {
            const ct_step *s = &l->steps[i];
            ct__textf(out, " + %" PRId64 " * ", s->bytes);
            if (s->reverse)
                ct__textf(out, "(n%u - 1 - i%u)", s->depth, s->depth);
            else
                ct__textf(out, "i%u", s->depth);
        }
}

static void ahead_put_kernel_args(const ct_ahead *a, ct_text *out, const ct_launch *l) {
    const ct_program *p = &a->plan->program;
    ct__textf(out, "kernel_%u((void *[]){", l->kernel);
    for (uint32_t k = 0; k < l->n_args; k++) {
        if (k) ahead_put_comma(out);
        ahead_put_operand(a, out, l, k);
    }
    ct__text_add(out, "}, ");
    for (uint32_t k = 0; k < l->n_numbers; k++) {
        ct__text_add(out, k ? ", " : "(const int64_t[]){");
        if (l->turn && k + 1 == l->n_numbers)
            ct__textf(out, "i%u", l->turn - 1);
        else
            ct__textf(out, "%" PRId64, l->numbers[k]);
    }
    ct__textf(out, "%s, 0, %" PRId64 ", ", l->n_numbers ? "}" : "NULL", l->grid);
    if (ct__kir_scratch(p->kernels[l->kernel].ir))
        ct__textf(out, "arena + %zu);\n", p->arena_bytes);
    else
        ct__text_add(out, "NULL);\n");
}

static void ahead_put_indent(ct_text *out, int depth) {
    ct__textf(out, "%*s", 4 * (depth + 1), "");
}

static void ahead_put_loop(const ct_ahead *a, ct_text *out, const ct_launch *l, int loops) {
    ct__textf(out, "for (int64_t i%d = 0", loops);
    if (l->count == INT64_MAX)
        ct__text_add(out, "; ");
    else
        ct__textf(out, ", n%d = %" PRId64 "; i%d < n%d", loops, l->count, loops, loops);
    if (l->n_args) {
        ct__textf(out, "%s*(const _Bool *)(", l->count != INT64_MAX ? " && " : "");
        ahead_put_operand(a, out, l, 0);
        ct__text_add(out, ")");
    }
    ct__textf(out, "; i%d++) { // ", loops);
    ahead_put_node(out, l->node);
    ct__text_add(out, "\n");
}

static void ahead_put_switch(const ct_ahead *a, ct_text *out, const ct_launch *l) {
    ct__text_add(out, "{ const int64_t branch = *(const ");
    ahead_put_type(out, l->dtype);
    ct__text_add(out, " *)(");
    ahead_put_operand(a, out, l, 0);
    ct__text_add(out, "); // ");
    ahead_put_node(out, l->node);
    ct__text_add(out, "\n");
}

// Writes branch `number` of a SWITCH; a number out of range selects the nearest branch.
static void ahead_put_branch(ct_text *out, const ct_launch *of, int64_t number) {
    if (number) ct__text_add(out, "} else ");
    if (number + 1 < of->count) ct__textf(out, "if (branch <= %" PRId64 ") ", number);
    ct__text_add(out, "{\n");
}

static void ahead_put_copy(const ct_ahead *a, ct_text *out, const ct_launch *l) {
    ct__text_add(out, "memmove(");
    ahead_put_operand(a, out, l, 1);
    ct__text_add(out, ", ");
    ahead_put_operand(a, out, l, 0);
    ct__textf(out, ", %zu);\n", l->bytes);
}

static void ahead_put_comment(ct_text *out, const ct_launch *l, int depth) {
    ct__text_add(out, "// ");
    ahead_put_node(out, l->node);
    ct__text_add(out, "\n");
    ahead_put_indent(out, depth);
}
static void ahead_put_kernel_call(const ct_ahead *a, ct_text *out, const ct_launch *l, int depth) {
    ahead_put_comment(out, l, depth);
    ahead_put_kernel_args(a, out, l);
}

// A loop or switch that is open at a launch.
typedef struct {
    const ct_launch *of;
    int64_t branches; // of a SWITCH: number of branches that have begun
} ahead_open_launch;

static bool ahead_put_launches(const ct_ahead *a, ct_text *out) {
    const ct_program *p = &a->plan->program;
    const size_t bytes = (p->n_launches + 1) * sizeof(ahead_open_launch);
    ahead_open_launch *open = ct__malloc(bytes);
    int depth = 0, loops = 0;
    if (!open) return ct__err_memory(&a->ctx->err, a->args->here, "compile", bytes);
    for (size_t i = 0; i < p->n_launches; i++) {
        const ct_launch *l = &p->launches[i];
        bool is_end = l->kind == CT_LAUNCH_END;
        if (is_end) loops -= open[--depth].of->kind == CT_LAUNCH_LOOP;
        ahead_put_indent(out, depth - (l->kind == CT_LAUNCH_BRANCH));
        switch (l->kind) {
        case CT_LAUNCH_LOOP: ahead_put_loop(a, out, l, loops++); break;
        case CT_LAUNCH_SWITCH: ahead_put_switch(a, out, l); break;
        case CT_LAUNCH_BRANCH:
            ahead_put_branch(out, open[depth - 1].of, open[depth - 1].branches++);
            break;
        case CT_LAUNCH_BATCH: ct__text_add(out, "{\n"); break;
        case CT_LAUNCH_END:
            ct__text_add(out, open[depth].of->kind == CT_LAUNCH_SWITCH ? "}}\n" : "}\n");
            break;
        case CT_LAUNCH_COPY: ahead_put_copy(a, out, l); break;
        case CT_LAUNCH_NODE:
            ahead_put_comment(out, l, depth);
            ct__ahead_call(a, out, l, ahead_put_operand);
            break;
        case CT_LAUNCH_KERNEL: ahead_put_kernel_call(a, out, l, depth); break;
        }
        if (!is_end && !ct__launch_runs(l) && l->kind != CT_LAUNCH_BRANCH)
            open[depth++] = (ahead_open_launch){.of = l};
    }
    ct__free(open);
    return true;
}

static void ahead_put_value(ct_text *out, const ct_member *m) {
    ct_dtype dtype = (ct_dtype)m->type->dtype;
    ct_kins literal = {0};
    if (dtype == CT_F32 || dtype == CT_F64)
        literal.imm.f = ct__load_f64(dtype, &m->value, 0);
    else
        literal.imm.i = ct__load_i64(dtype, &m->value, 0);
    if (ct__is_narrow_float((ct_dtype)dtype)) // the member holds bits
        ct__textf(out, "0x%04x", (unsigned)(m->value & 0xffff));
    else
        ct__render_literal(out, dtype, &literal);
}

static void ahead_put_init(const ct_ahead *a, ct_text *out) {
    ct__textf(out, "void %s_init(struct %s *s) {\n    memset(s, 0, sizeof *s);\n", a->name,
              a->name);
    for (size_t i = 0; i < a->n_members; i++) {
        const ct_member *m = &a->members[i];
        if (m->kind != CT_MEMBER_SCALAR) continue;
        ct__textf(out, "    s->%s = ", m->name);
        ahead_put_value(out, m);
        ct__text_add(out, ";\n");
    }
    ct__text_add(out, "}\n\n");
}

// All arguments of a call are checked before it changes anything.
static void ahead_put_checks(const ct_ahead *a, ct_text *out) {
    bool any = false;
    for (size_t i = 0; i < a->n_members; i++) {
        const ct_member *m = &a->members[i];
        if (!ahead_is_pointer(m) || !ct__type_bytes(m->type)) continue;
        if (any) ahead_put_comma(out);
        ct__textf(out, "%ss->%s", any ? "" : "    const void *const given[] = {", m->name);
        any = true;
    }
    ct__text_add(out, any ? "};\n" : "");
    ct__text_add(out, "    if (!arena || (uintptr_t)arena % 64) return 1;\n");
    if (any)
        ct__text_add(out, "    for (unsigned i = 0; i < sizeof given / sizeof *given; i++)\n"
                          "        if (!given[i]) return 2;\n");
}

static bool ahead_put_function(const ct_ahead *a, ct_text *out) {
    size_t n = a->engine->order.n_scalars;
    ct__textf(out, "int %s(const struct %s *s) {\n    char *const arena = s->arena;\n", a->name,
              a->name);
    ahead_put_checks(a, out);
    if (n) ct__textf(out, "    uint64_t scalars[%zu] = {0};\n", n);
    for (size_t i = 0; i < n; i++) {
        const char *name = a->members[a->scalars + i].name;
        ct__textf(out, "    memcpy(&scalars[%zu], &s->%s, sizeof s->%s);\n", i, name, name);
    }
    ct__text_add(out, "    fenv_t callers; // to nearest, and small numbers are kept\n"
                      "    fegetenv(&callers);\n    fesetenv(FE_DFL_ENV);\n");
    bool ok = ahead_put_launches(a, out) ||
              ct__err_memory(&a->ctx->err, a->args->here, "compile", sizeof(ahead_open_launch));
    ct__text_add(out, "    fesetenv(&callers);\n    return 0;\n}\n\n");
    return ok;
}

// ------------------------------------------------------------------------------------------ source

// Requirements on the compiler, whatever its options: GCC gets them by the optimize pragma. Clang has the
// standard's pragma for contraction; the header names the options that this does not cover.
static const char ahead_compiler_requirements[] =
    "#if !defined(__clang__) && (!defined(__GNUC__) || __GNUC__ < 12)\n"
    "#error \"GCC 12 or newer, or Clang, is needed\"\n"
    "#elif defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)\n"
    "#error \"-ffast-math computes other numbers\"\n"
    "#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)\n"
    "#error \"floats must be computed as floats: -mfpmath=sse\"\n"
    "#endif\n"
    "#if defined(__clang__)\n"
    "#pragma STDC FP_CONTRACT OFF\n"
    "#else\n"
    "#pragma GCC optimize(\"fp-contract=off\", \"wrapv\", \"no-strict-aliasing\", "
    "\"no-math-errno\", \\\n"
    "    \"no-unsafe-math-optimizations\", \"no-reciprocal-math\", "
    "\"no-associative-math\", \"signed-zeros\")\n"
    "#pragma GCC diagnostic ignored \"-Wmaybe-uninitialized\"\n"
    "#endif\n"
    "#pragma GCC diagnostic ignored \"-Wunused-function\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
    "#pragma GCC diagnostic ignored \"-Wsign-compare\"\n"
    "#pragma GCC diagnostic ignored \"-Wtype-limits\"\n"
    "#pragma GCC diagnostic ignored \"-Wpsabi\"\n\n";

static void ahead_put_kernel(const ct_ahead *a, ct_text *out, size_t number) {
    const ct_program *p = &a->plan->program;
    const ct_kernel *made = p->kernels[number].made;
    const ct_node *first;
    size_t uses = ct__program_uses(p, number, &first);
    // Math functions, then the kernel: it is renamed, since this file does not need its global name.
    const char *name = strstr(made->text, made->name);
    size_t before = (size_t)(name - made->text) - strlen("void ");
    ct__text_bytes(out, made->text, before);
    ct__textf(out, "\n// kernel %zu: launched %zu time%s%s", number, uses, uses == 1 ? "" : "s",
              uses == 1 ? ", for " : ", first for ");
    ahead_put_node(out, first);
    ct__textf(out, "\nstatic __attribute__((noinline)) void kernel_%zu%s", number,
              name + strlen(made->name));
}

static bool ahead_put_prelude(const ct_ahead *a, ct_text *out) {
    const ct_program *p = &a->plan->program;
    const size_t bytes = (p->n_kernels + 1) * sizeof(char *);
    const char **texts = ct__malloc(bytes);
    if (!texts) return ct__err_memory(&a->ctx->err, a->args->here, "compile", bytes);
    for (size_t i = 0; i < p->n_kernels; i++) texts[i] = p->kernels[i].made->text;
    ct__text_add(out, CT_AHEAD_PRELUDE "\n\n");
    ct__prelude_add(out, texts, p->n_kernels);
    ct__text_add(out, "\n// ---- kernels\n\n");
    ct__free(texts);
    return true;
}

bool ct__ahead_write(const ct_ahead *a, ct_text *header, ct_text *out) {
    const ct_program *p = &a->plan->program;
    uint32_t number;
    if (!ahead_put_header(a, header, &number)) return false;
    ct__textf(out, "// What %s.h declares, written by Cotan %s.\n#include \"%s.h\"\n\n", a->name,
              CT_VERSION, a->name);
    ct__text_add(out, "#include <fenv.h>\n#include <stddef.h>\n#include <string.h>\n\n#if ");
    ahead_put_upper(a, out, "_PLAN != ");
    ct__textf(out, "0x%08" PRIx32 "u\n#error \"%s.h is of another plan\"\n#endif\n%s", number,
              a->name, ahead_compiler_requirements);
    ct__text_add(out, "typedef void kernel_");
    ct__textf(out,
              "%s(void *const *bufs, const int64_t *args, int64_t begin, int64_t end,\n"
              "    void *scratch);\n",
              a->name);
    for (size_t i = 0; i < p->n_kernels; i++) {
        if (!i) ct__textf(out, "static kernel_%s ", a->name);
        ct__textf(out, "kernel_%zu", i);
        if (i + 1 < p->n_kernels)
            ahead_put_comma(out);
        else
            ct__text_add(out, ";\n");
    }
    for (size_t i = 0; i < p->n_bufs; i++) {
        if (!ahead_is_data(a, i)) continue;
        ahead_declare_data(a, out, i);
        ct__text_add(out, " __attribute__((aligned(64)));\n");
    }
    ct__text_add(out, "\n");
    ct__ahead_declare_calls(a, out);
    ahead_put_init(a, out);
    if (!ahead_put_function(a, out)) return false;
    if (!ahead_put_prelude(a, out)) return false;
    for (size_t i = 0; i < p->n_kernels; i++) ahead_put_kernel(a, out, i);
    for (size_t i = 0; i < p->n_bufs; i++)
        if (ahead_is_data(a, i) && !ahead_define_data(a, out, i)) return false;
    return true;
}
