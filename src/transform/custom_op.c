// Custom ops of plugins (cotan/custom_op.h): their definitions, their rules, and calls of them.
#define _GNU_SOURCE // dladdr
#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "ops/custom_op.h"
#include "transform/trace.h"
#include "base/library.h"

CT_ATTR_FIELDS(outside, OUTSIDE_ATTRS);

static const int64_t *plugin_numbers(const ct_node *node) {
    return ((const outside_attrs *)node->attrs)->numbers.v;
}

// ------------------------------------------------------------------------------------------- rules

// Calls a rule. Entries of `to` that it does not set remain NONE. Returns false with the error in the
// context.
static bool plugin_call_rule(const ct_node *node, ct_op_rule_fn f, const ct_tensor *in,
                             const ct_tensor *out, const ct_tensor *slopes, ct_tensor *to) {
    const ct_op *op = ct__outside(node);
    f(&(ct_op_rule){.in = in,
                    .out = out,
                    .tangents = slopes,
                    .outputs = to,
                    .attributes = plugin_numbers(node),
                    .user = op->user});
    return !ct_failed();
}

// Checks that a result of a rule has this type. Cotangents of an operand that broadcasts may have the shape
// of the whole batch.
static bool plugin_check_type(const ct_node *node, const char *rule, const char *what, int i,
                              ct_tensor t, const ct_type *type, bool allow_broadcast) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ct__resolve(ctx, t, &v, node->op->name, CT_OUTPUT(i), node->here)) return false;
    const ct_type *is = ct__type(v);
    const int lead = is->rank - type->rank;
    bool same = allow_broadcast ? lead >= 0 : lead == 0;
    for (int a = 0; a < type->rank && same; a++)
        same = is->dim[lead + a] == type->dim[a] || (allow_broadcast && type->dim[a] == 1);
    if (same && is->dtype == type->dtype) return true;
    return ct__refuse(ctx, CT_E_SHAPE, node->here, node->op->name,
                      "its %s made %s %d %s, it should be %s", rule, what, i + 1,
                      ct__type_text(is).s, ct__type_text(type).s);
}

static bool plugin_record_jvp(const ct_node *node, const ct_tensor *in, const ct_tensor *outs,
                              const ct_tensor *tangents, ct_tensor *slopes) {
    for (int i = 0; i < node->n_out; i++) slopes[i] = CT_NONE;
    if (!plugin_call_rule(node, ct__outside(node)->jvp, in, outs, tangents, slopes)) return false;
    for (int i = 0; i < node->n_out; i++) {
        if (ct__is_none(slopes[i]))
            slopes[i] = ct__zeros_like(outs[i]);
        else if (!plugin_check_type(node, "jvp", "the tangent of result", i, slopes[i],
                                    ct__type_of(outs[i]), false))
            return false;
    }
    return true;
}
static bool plugin_jvp(ct_rule *r) {
    return ct__apply_forward_rule(r, &(ct_forward_rule){.node = r->node,
                                                        .n_in = (size_t)r->n_in,
                                                        .n_out = (size_t)r->n_out,
                                                        .record = plugin_record_jvp});
}

static bool plugin_vjp(ct_rule *r) {
    ct_tensor slopes[CT_CUSTOM_OP_MAX_RESULTS];
    for (int i = 0; i < r->n_out; i++) slopes[i] = ct__or_zeros(r->c_out[i], r->out[i]);
    if (!plugin_call_rule(r->node, ct__outside(r->node)->vjp, r->in, r->out, slopes, r->c_in))
        return false;
    for (int i = 0; i < r->n_in; i++)
        if (!ct__is_none(r->c_in[i]) &&
            !plugin_check_type(r->node, "vjp", "the cotangent of operand", i, r->c_in[i],
                               ct__type_of(r->in[i]), true))
            return false;
    return true;
}

static bool plugin_no_rule(ct_rule *r) {
    const ct_op *op = ct__outside(r->node);
    ct_ctx *ctx = ct__ctx();
    return ct__refuse(ctx, CT_E_GRAD, r->node->here, op->name,
                      op->vjp ? "it has a vjp, and no jvp for forward mode"
                              : "it was defined without a vjp or jvp");
}

static bool plugin_body(ct_rule *r) {
    const ct_op *op = ct__outside(r->node);
    for (int i = 0; i < r->n_out; i++) r->body_out[i] = CT_NONE;
    if (!plugin_call_rule(r->node, op->body, r->in, NULL, NULL, r->body_out)) return false;
    for (int i = 0; i < r->n_out; i++)
        if (!plugin_check_type(r->node, "body", "result", i, r->body_out[i], &r->node->out[i],
                               false))
            return false;
    return true;
}

// ------------------------------------------------------------------------------------- definitions

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ct_op *first, **last = &first;

static bool plugin_is_identifier(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n && !name[n] && n < 64 && !isdigit((unsigned char)*name);
}

static bool plugin_id_is_taken(uint32_t id) {
    for (uint32_t i = 0; i < ct__n_ops; i++)
        if (ct__ops[i]->id == id) return true;
    for (const ct_op *op = first; op; op = op->next)
        if (op->def.id == id) return true;
    return false;
}
// Registers the op. Its id is unique, also if another op had the name before: plans are found by it.
static void plugin_register(ct_op *op) {
    pthread_mutex_lock(&lock);
    uint32_t id = (uint32_t)ct__hash_bytes(op->name, strlen(op->name), (ct_hash){0}).lo;
    while (plugin_id_is_taken(id)) id++;
    op->def.id = id;
    *last = op;
    last = &op->next;
    pthread_mutex_unlock(&lock);
}

// Splits a text at blanks or commas into words. Returns false if out of memory, there are too many, or one is
// not an identifier; reported.
static bool plugin_split_words(const ct_op *op, const char *what, const char *text, int max_words,
                               char **copy, const char **to, int *n, ct_err *err, ct_loc here) {
    if (!(*copy = ct__strdup(text))) return ct__err_memory(err, here, op->name, strlen(text) + 1);
    char *state = NULL;
    for (char *word = strtok_r(*copy, " ,", &state); word; word = strtok_r(NULL, " ,", &state)) {
        if (*n == max_words)
            return ct__err(err, CT_E_ARGUMENT, here, op->name, "%s: at most %d are possible", what,
                           max_words);
        if (!plugin_is_identifier(word))
            return ct__err(err, CT_E_ARGUMENT, here, op->name, "%s: \"%s\" is no name", what, word);
        to[(*n)++] = word;
    }
    return true;
}

static bool plugin_read_dtypes(ct_op *op, const char *text, ct_err *err, ct_loc here) {
    const char *names[CT_DTYPE_COUNT + 1] = {0};
    char *copy = NULL;
    int n = 0;
    bool ok = plugin_split_words(op, "dtypes", text, CT_DTYPE_COUNT, &copy, names, &n, err, here);
    for (int i = 0; i < n && ok; i++) {
        int d = 1;
        while (d < CT_DTYPE_COUNT && strcmp(ct_dtype_name((ct_dtype)d), names[i]) != 0) d++;
        ok = d < CT_DTYPE_COUNT ||
             ct__err(err, CT_E_ARGUMENT, here, op->name, "dtypes: there is no \"%s\"", names[i]);
        if (ok) op->dtypes |= CT_MASK(d);
    }
    ct__free(copy);
    return ok;
}

static bool plugin_copy_text(char **to, const char *text) {
    *to = ct__strdup(text ? text : "");
    return *to;
}

static void plugin_fill(ct_op *op, const ct_op_spec *spec) {
    op->body = spec->body, op->compute = spec->compute, op->jvp = spec->jvp, op->vjp = spec->vjp;
    op->user = spec->user;
    ct__outside_record(op);
    op->def.fields = outside_fields, op->def.attr_size = sizeof(outside_attrs);
    op->def.n_fields = sizeof outside_fields / sizeof *outside_fields;
    if (op->body) op->def.body = plugin_body;
    if (op->vjp) op->def.vjp = plugin_vjp;
    if (op->jvp || op->compute) op->def.jvp = op->jvp ? plugin_jvp : plugin_no_rule;
    op->about = (ct_op_properties){
        op->name,     op->doc, op->operands, op->numbers, op->signature.n_in, op->signature.n_out,
        op->n_numbers};
}

static bool plugin_read_spec(ct_op *op, const ct_op_spec *spec, ct_err *err, ct_loc here) {
    const int n_definitions = !!spec->expression + !!spec->body + !!spec->compute;
    ct_signature *s = &op->signature;
    if (!plugin_copy_text(&op->name, spec->name) || !plugin_copy_text(&op->doc, spec->doc) ||
        !plugin_copy_text(&op->operands, spec->operands) ||
        !plugin_copy_text(&op->numbers, spec->attributes) ||
        (spec->symbol && !plugin_copy_text(&op->symbol, spec->symbol)))
        return ct__err_memory(err, here, "op_define", sizeof *op);
    if (!plugin_is_identifier(op->name))
        return ct__err(err, CT_E_ARGUMENT, here, "op_define", "\"%s\" is no name for an op",
                       op->name);
    if (n_definitions != 1)
        return ct__err(err, CT_E_ARGUMENT, here, op->name,
                       "exactly one of expression, body and compute must be given, not %d",
                       n_definitions);
    if (spec->symbol && !plugin_is_identifier(spec->symbol))
        return ct__err(err, CT_E_ARGUMENT, here, op->name, "its symbol \"%s\" is no name",
                       spec->symbol);
    if (!plugin_split_words(op, "operands", op->operands, CT_CUSTOM_OP_MAX_OPERANDS,
                            &op->split_operands, op->operand_names, &s->n_in, err, here) ||
        !plugin_split_words(op, "numbers", op->numbers, CT_CUSTOM_OP_MAX_ATTRIBUTES,
                            &op->split_numbers, op->number_names, &op->n_numbers, err, here) ||
        !plugin_read_dtypes(op, spec->dtypes ? spec->dtypes : "f32 f64", err, here))
        return false;
    if (!spec->expression)
        return spec->signature ? ct__read_signature(op, spec->signature, err, here)
                               : ct__err(err, CT_E_ARGUMENT, here, op->name, "it has no signature");
    if (spec->signature || op->n_numbers || spec->dtypes || !s->n_in)
        return ct__err(err, CT_E_ARGUMENT, here, op->name,
                       s->n_in ? "an expression has neither signature, numbers nor dtypes"
                               : "an expression needs the names of its operands");
    s->n_out = 1;
    return ct__read_expression(op, spec->expression, err, here);
}

static void plugin_free(ct_op *op) {
    char *texts[] = {op->name,           op->doc,          op->operands, op->numbers, op->symbol,
                     op->split_operands, op->split_numbers};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) ct__free(texts[i]);
    ct__free(op->expression.v);
    ct__free(op);
}

const ct_op *ct_op_define_with(ct_op_spec spec) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return NULL;
    if (spec.struct_size && spec.struct_size != sizeof spec) {
        ct__fail(ctx, CT_E_ARGUMENT, CT_NOWHERE, "op_define",
                 "the definition was compiled with the headers of another version of Cotan");
        return NULL;
    }
    const ct_loc here = spec.here;
    if (!ct__given(ctx, spec.name, here, "op_define", "the name")) return NULL;
    ct_op *op = ct__calloc(1, sizeof *op);
    if (!op) return ct__null_memory(&ctx->err, here, "op_define", sizeof *op);
    ct_err err = {0};
    if (!plugin_read_spec(op, &spec, &err, here)) {
        if (!ctx->err.code) ctx->err = err;
        plugin_free(op);
        return NULL;
    }
    plugin_fill(op, &spec);
    plugin_register(op);
    return op;
}

const ct_op *ct_op_find(const char *name) {
    const ct_op *found = NULL;
    pthread_mutex_lock(&lock);
    for (const ct_op *each = first; each && name; each = each->next)
        if (strcmp(each->name, name) == 0) found = each;
    pthread_mutex_unlock(&lock);
    return found;
}
const ct_op *ct_op_next(const ct_op *op) {
    pthread_mutex_lock(&lock);
    const ct_op *next = op ? op->next : first;
    pthread_mutex_unlock(&lock);
    return next;
}
const ct_op_properties *ct_op_info(const ct_op *op) { return op ? &op->about : NULL; }

// Makes the symbols of the library that contains this function available to plugins.
static void plugin_export_symbols(void) {
    Dl_info self;
    if (dladdr((void *)(uintptr_t)&ct_op_load_at, &self) && self.dli_fname)
        ct__library_open(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}
bool ct_op_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "op_load", "the path") || ctx->err.code) return false;
    plugin_export_symbols();
    void *library = ct__library_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return ct__err(&ctx->err, CT_E_FILE, here, "op_load", "%s", ct__library_error());
    void (*define)(void);
    void *at = dlsym(library, "cotan_ops");
    memcpy(&define, &at, sizeof define);
    if (at) define();
    dlclose(library); // it stays loaded
    if (!at)
        return ct__err(&ctx->err, CT_E_FORMAT, here, "op_load",
                       "%s has no function cotan_ops, which defines the ops", path);
    return !ctx->err.code;
}

// ------------------------------------------------------------------------------------------- calls

// Casts operands that may have several dtypes to a common one.
static bool plugin_promote(ct_ctx *ctx, const ct_op *op, const ct_tensor *in, ct_tensor *to,
                           ct_loc here) {
    const ct_type *types[CT_CUSTOM_OP_MAX_OPERANDS];
    ct_val v;
    for (int i = 0; i < op->signature.n_in; i++) {
        if (!ct__resolve(ctx, in[i], &v, op->name, i, here)) return false;
        types[i] = ct__type(v);
        to[i] = in[i];
    }
    if (op->expression.n) return true; // its shape rule promotes
    const ct_dtype dtype = ct__outside_dtype(op, types);
    for (int i = 0; i < op->signature.n_in && dtype; i++)
        if (!op->signature.in[i].dtype && (ct_dtype)types[i]->dtype != dtype)
            to[i] = ct_cast_at(in[i], dtype, here);
    return !ctx->err.code;
}

void ct_op_call_at(const ct_op *op, const ct_tensor *in, size_t n_in, ct_ints attributes,
                   ct_tensor *out, size_t n_out, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    const char *name = op ? op->name : "op_call";
    ct_tensor operands[CT_CUSTOM_OP_MAX_OPERANDS];
    if (!ctx || !ct__call_given(ctx, name, in, n_in, out, n_out, here)) return;
    bool ok = ct__given(ctx, op, here, "op_call", "the op");
    if (ok && (n_in != (size_t)op->signature.n_in || n_out != (size_t)op->signature.n_out ||
               attributes.n != op->n_numbers)) {
        ct__fail(ctx, CT_E_ARGUMENT, here, name,
                 "it has %d operands, %d results and %d numbers, not %zu, %zu and %lld",
                 op->signature.n_in, op->signature.n_out, op->n_numbers, n_in, n_out,
                 (long long)attributes.n);
        ok = false;
    }
    const outside_attrs attrs = {.numbers = attributes};
    if (ok && plugin_promote(ctx, op, in, operands, here))
        ct__outputs(ct__record(&op->def, &attrs, operands, (int)n_in, here), out, n_out);
    else
        ct__poison_all(ctx, out, n_out, here);
}
