// An op's signature: "(t, d), (s, d) -> (t, s)". Axes have names, and axes of the same name have the same
// size; axes before these are the batch, which broadcasts. (NumPy's generalised universal functions, NEP
// 5, with dtypes and attributes.)
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ops/custom_op.h"

// -------------------------------------------------------------------------------------- parsing

typedef struct signature_parser {
    ct_op *op;
    const char *text, *at;
    ct_err *err;
    ct_loc here;
} signature_parser;

static bool signature_error(signature_parser *r, const char *what) {
    return ct__err(r->err, CT_E_ARGUMENT, r->here, r->op->name, "column %zu of its signature: %s",
                   (size_t)(r->at - r->text) + 1, what);
}
void ct__skip_spaces(const char **at) {
    while (isspace((unsigned char)**at)) ++*at;
}
bool ct__accept(const char **at, const char *token) {
    ct__skip_spaces(at);
    const size_t n = strlen(token);
    if (strncmp(*at, token, n) != 0) return false;
    *at += n;
    return true;
}
static size_t signature_word_length(const char *at) {
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

// Returns the index of a size, which is a name or an integer. Returns -1 if an error was reported.
static int signature_add_size(signature_parser *r, size_t n) {
    ct_signature *s = &r->op->signature;
    struct ct_signature_size size = {.value = -1, .number = -1};
    if (n >= sizeof size.name) return signature_error(r, "the name of a size is too long") - 1;
    memcpy(size.name, r->at, n);
    for (int i = 0; i < s->n_sizes; i++)
        if (strcmp(s->sizes[i].name, size.name) == 0) return i;
    if (s->n_sizes == CT_SIGNATURE_SIZES) return signature_error(r, "it has too many sizes") - 1;
    if (isdigit((unsigned char)*size.name)) {
        size.value = 0;
        for (size_t i = 0; i < n; i++) {
            if (!isdigit((unsigned char)size.name[i]) || size.value > INT32_MAX)
                return signature_error(r, "a size is a name or a whole number") - 1;
            size.value = 10 * size.value + (size.name[i] - '0');
        }
    }
    for (int i = 0; i < r->op->n_numbers; i++)
        if (strcmp(r->op->number_names[i], size.name) == 0) size.number = i;
    s->sizes[s->n_sizes] = size;
    return s->n_sizes++;
}

static bool signature_parse_dtype(signature_parser *r, ct_dtype *dtype) {
    const size_t n = signature_word_length(r->at);
    for (int d = 1; d < CT_DTYPE_COUNT && n; d++) {
        const char *name = ct_dtype_name((ct_dtype)d);
        if (strlen(name) != n || memcmp(name, r->at, n) != 0) continue;
        *dtype = (ct_dtype)d;
        r->at += n;
        return true;
    }
    return !n || signature_error(r, "there is no such dtype");
}

static bool signature_parse_array(signature_parser *r, struct ct_signature_array *array) {
    if (!ct__accept(&r->at, "(")) return signature_error(r, "\"(\" was expected");
    while (!ct__accept(&r->at, ")")) {
        if (array->rank && !ct__accept(&r->at, ","))
            return signature_error(r, "\",\" or \")\" was expected");
        ct__skip_spaces(&r->at);
        const size_t n = signature_word_length(r->at);
        if (!n) return signature_error(r, "the name of a size was expected");
        if (array->rank == CT_SIGNATURE_AXES) return signature_error(r, "it has too many axes");
        if ((array->size[array->rank] = signature_add_size(r, n)) < 0) return false;
        array->rank++;
        r->at += n;
    }
    return signature_parse_dtype(r, &array->dtype);
}

static bool signature_parse_arrays(signature_parser *r, struct ct_signature_array *arrays, int max,
                                   int *n) {
    do {
        if (*n == max) return signature_error(r, "it has too many operands or results");
        if (!signature_parse_array(r, &arrays[(*n)++])) return false;
    } while (ct__accept(&r->at, ","));
    return true;
}

// Checks that each size of a result is determined by an operand or a number.
static bool signature_check_sizes(signature_parser *r) {
    const ct_signature *s = &r->op->signature;
    for (int i = 0; i < s->n_sizes; i++) {
        bool known = s->sizes[i].value >= 0 || s->sizes[i].number >= 0;
        for (int k = 0; k < s->n_in && !known; k++)
            for (int a = 0; a < s->in[k].rank; a++) known = known || s->in[k].size[a] == i;
        if (!known)
            return ct__err(r->err, CT_E_ARGUMENT, r->here, r->op->name,
                           "size %s of its signature is in no operand, and no number",
                           s->sizes[i].name);
    }
    return true;
}

bool ct__read_signature(ct_op *op, const char *signature, ct_err *err, ct_loc here) {
    signature_parser r = {.op = op, .text = signature, .at = signature, .err = err, .here = here};
    ct_signature *s = &op->signature;
    const int n_names = s->n_in;
    s->n_in = 0;
    if (!signature_parse_arrays(&r, s->in, CT_CUSTOM_OP_MAX_OPERANDS, &s->n_in)) return false;
    if (!ct__accept(&r.at, "->")) return signature_error(&r, "\"->\" was expected");
    if (!signature_parse_arrays(&r, s->out, CT_CUSTOM_OP_MAX_RESULTS, &s->n_out)) return false;
    ct__skip_spaces(&r.at);
    if (*r.at) return signature_error(&r, "nothing was expected any more");
    if (n_names && n_names != s->n_in)
        return ct__err(err, CT_E_ARGUMENT, here, op->name,
                       "%d operands have names, its signature has %d", n_names, s->n_in);
    return signature_check_sizes(&r);
}

// --------------------------------------------------------------------------------------- shape rule

ct_dtype ct__outside_dtype(const ct_op *op, const ct_type *const *in) {
    ct_promotion met = CT_PROMOTION_START;
    bool any = false;
    for (int i = 0; i < op->signature.n_in; i++) {
        if (op->signature.in[i].dtype) continue;
        met = ct__promotion_add(met, (ct_dtype)in[i]->dtype, in[i]->weak);
        any = true;
    }
    return any ? ct__promotion_result(met) : CT_DEFAULT;
}

typedef struct signature_text {
    char s[64];
} signature_text;
static signature_text signature_operand(const ct_op *op, int i) { // "operand 2 (k)"
    signature_text text;
    const char *name = op->operand_names[i];
    if (name)
        snprintf(text.s, sizeof text.s, "operand %d (%.40s)", i + 1, name);
    else
        snprintf(text.s, sizeof text.s, "operand %d", i + 1);
    return text;
}

static bool signature_check_dtypes(ct_call *call, const ct_op *op, ct_dtype common) {
    for (int i = 0; i < call->n_in; i++) {
        const ct_dtype dtype = (ct_dtype)call->in[i]->dtype, required = op->signature.in[i].dtype;
        if (required ? dtype == required : dtype == common && op->dtypes >> dtype & 1) continue;
        ct_text list = {0};
        for (int d = 1; d < CT_DTYPE_COUNT; d++)
            if (required ? d == (int)required : op->dtypes >> d & 1)
                ct__textf(&list, "%s%s", list.n ? " or " : "", ct_dtype_name((ct_dtype)d));
        ct__call_err(call, CT_E_DTYPE, "%s is %s, it must be %s", signature_operand(op, i).s,
                     ct__type_text(call->in[i]).s, list.s ? list.s : "another");
        ct__text_free(&list);
        return ct__call_hint(call, "cast it");
    }
    return true;
}

// Sizes by index, as found in operands; `of`: the operand in which each was found first.
typedef struct signature_sizes {
    int64_t size[CT_SIGNATURE_SIZES];
    const ct_type *type[CT_SIGNATURE_SIZES];
    int of[CT_SIGNATURE_SIZES], axis[CT_SIGNATURE_SIZES];
} signature_sizes;

static bool signature_bind_size(ct_call *call, const ct_op *op, signature_sizes *k, int index,
                                int i, int axis) {
    const struct ct_signature_size *size = &op->signature.sizes[index];
    const ct_type *type = call->in[i];
    const int64_t required = size->number >= 0
                                 ? ((const outside_attrs *)call->attrs)->numbers.v[size->number]
                                 : size->value;
    if (required >= 0 && type->dim[axis] != required)
        return ct__call_err(call, CT_E_SHAPE, "axis %d of %s, %s, must be %lld", axis,
                            signature_operand(op, i).s, ct__type_text(type).s, (long long)required);
    const ct_type *first = k->type[index];
    if (!first) {
        k->type[index] = type, k->of[index] = i, k->axis[index] = axis;
        k->size[index] = ct__size_of(type, axis);
        return true;
    }
    if (first->dim[k->axis[index]] != type->dim[axis])
        return ct__call_err(call, CT_E_SHAPE, "size %s differs: %s is %s, %s is %s", size->name,
                            signature_operand(op, k->of[index]).s, ct__type_text(first).s,
                            signature_operand(op, i).s, ct__type_text(type).s);
    k->size[index] = ct__same_size(first, k->axis[index], type, axis);
    return true;
}

static bool signature_bind_operands(ct_call *call, const ct_op *op, signature_sizes *k,
                                    ct_type *batch) {
    const ct_signature *s = &op->signature;
    ct_type own[CT_CUSTOM_OP_MAX_OPERANDS];
    const ct_type *list[CT_CUSTOM_OP_MAX_OPERANDS];
    for (int i = 0; i < s->n_in; i++) {
        const struct ct_signature_array *a = &s->in[i];
        const int n_batch = call->in[i]->rank - a->rank;
        if (n_batch < 0)
            return ct__call_err(call, CT_E_SHAPE, "%s is %s, it needs %d axes",
                                signature_operand(op, i).s, ct__type_text(call->in[i]).s, a->rank);
        for (int axis = 0; axis < a->rank; axis++)
            if (!signature_bind_size(call, op, k, a->size[axis], i, n_batch + axis)) return false;
        own[i] = *call->in[i];
        own[i].rank = (uint8_t)n_batch;
        own[i].dyn &= (1u << n_batch) - 1;
        list[i] = &own[i];
    }
    *batch = (ct_type){.dtype = call->in[0]->dtype};
    if (ct__broadcast(call->arena, list, s->n_in, batch)) return true;
    return ct__call_err(
        call, CT_E_SHAPE, "batch axes do not broadcast: operand 1 is %s, operand %d is %s",
        ct__type_text(call->in[0]).s, call->n_in, ct__type_text(call->in[call->n_in - 1]).s);
}

bool ct__signature_infer(ct_call *call) {
    const ct_op *op = (const ct_op *)(const void *)((const char *)call->op - offsetof(ct_op, def));
    const ct_signature *s = &op->signature;
    const ct_ints numbers = ((const outside_attrs *)call->attrs)->numbers;
    const ct_dtype common = ct__outside_dtype(op, call->in);
    signature_sizes k = {0};
    ct_type batch;
    if (!signature_check_dtypes(call, op, common)) return false;
    for (int i = 0; i < s->n_sizes; i++) {
        k.size[i] = s->sizes[i].number >= 0 ? numbers.v[s->sizes[i].number] : s->sizes[i].value;
        if (s->sizes[i].number >= 0 && k.size[i] < 0)
            return ct__call_err(call, CT_E_ARGUMENT, "%s is %lld, and a size", s->sizes[i].name,
                                (long long)k.size[i]);
    }
    if (!signature_bind_operands(call, op, &k, &batch)) return false;
    for (int i = 0; i < s->n_out; i++) {
        ct_shape shape = ct__call_shape(call, batch.rank + s->out[i].rank);
        if (!shape.dim) return false;
        for (int a = 0; a < batch.rank; a++) ct__shape_add_axis(&shape, &batch, a);
        for (int a = 0; a < s->out[i].rank; a++) ct__shape_add(&shape, k.size[s->out[i].size[a]]);
        const ct_dtype dtype = s->out[i].dtype ? s->out[i].dtype
                               : common        ? common
                                               : (ct_dtype)call->in[0]->dtype;
        call->out[i] = ct__shaped(&shape, dtype, false);
    }
    return true;
}
