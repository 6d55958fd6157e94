// Values as text in NumPy's layout.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

enum { MAX_WHOLE = 1000, EDGE = 3, MAX_WIDTH = 32 };

typedef struct {
    ct_text *text;
    const ct_type *type;
    const void *bytes;
    bool whole; // print all elements; else EDGE at both ends of each axis
    int width;  // of an element: all are aligned in columns
    int64_t stride[CT_MAX_RANK];
} layout;

static void format_add_float(ct_text *text, double x, bool sign) {
    if (isnan(x))
        ct__text_add(text, sign ? "+nan" : "nan"); // without the sign that some printf print
    else
        ct__textf(text, sign ? "%+.5g" : "%.5g", x);
}
static void format_element(const layout *l, int64_t at, char text[MAX_WIDTH]) {
    CT_TEXT one = {0};
    ct_dtype d = l->type->dtype, part = ct__part(d);
    if (ct__is_complex(d)) { // as NumPy: 1+2j
        format_add_float(&one, ct__load_f64(part, l->bytes, 2 * at), false);
        format_add_float(&one, ct__load_f64(part, l->bytes, 2 * at + 1), true);
        ct__text_add(&one, "j");
    } else if (d == CT_BOOL)
        ct__text_add(&one, ct__load_i64(d, l->bytes, at) ? "true" : "false");
    else if (ct__is_float(d))
        format_add_float(&one, ct__load_f64(d, l->bytes, at), false);
    else
        ct__text_add(&one, ct__int_text(d, ct__load_i64(d, l->bytes, at)).s);
    snprintf(text, MAX_WIDTH, "%s", one.s ? one.s : "?");
}

// The index of the i-th element printed along an axis, or -1 for the ellipsis.
static int64_t format_shown_index(const layout *l, int axis, int64_t i) {
    int64_t n = l->type->dim[axis];
    if (l->whole || n <= 2 * EDGE) return i < n ? i : n;
    return i < EDGE ? i : i == EDGE ? -1 : n - 2 * EDGE + i - 1;
}

static void format_measure(layout *l, int axis, int64_t at) {
    if (axis == l->type->rank) {
        char text[MAX_WIDTH];
        format_element(l, at, text);
        int width = (int)strlen(text);
        if (width > l->width) l->width = width;
        return;
    }
    for (int64_t i = 0, k; (k = format_shown_index(l, axis, i)) < l->type->dim[axis]; i++)
        if (k >= 0) format_measure(l, axis + 1, at + k * l->stride[axis]);
}

// Recursion depth is the rank, at most CT_MAX_RANK.
static void format_layout(const layout *l, int axis, int64_t at) {
    const ct_type *type = l->type;
    if (axis == type->rank) {
        char text[MAX_WIDTH];
        format_element(l, at, text);
        ct__textf(l->text, "%*s", l->width, text);
        return;
    }
    ct__text_add(l->text, "[");
    for (int64_t i = 0, k; (k = format_shown_index(l, axis, i)) < type->dim[axis]; i++) {
        if (i && axis == type->rank - 1) ct__text_add(l->text, " ");
        if (i && axis < type->rank - 1) {
            for (int lines = axis; lines < type->rank - 1; lines++) ct__text_add(l->text, "\n");
            for (int spaces = 0; spaces <= axis; spaces++) ct__text_add(l->text, " ");
        }
        if (k < 0)
            ct__text_add(l->text, "...");
        else
            format_layout(l, axis + 1, at + k * l->stride[axis]);
    }
    ct__text_add(l->text, "]");
}

// False: the value cannot be read, and the error tells why.
static bool format_tensor(ct_text *text, ct_tensor t, const char *op, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return false;
    ct_val v;
    if (!ct__readable(ctx, here, op)) return false;
    const void *bytes = ct_data_at(t, here);
    if (ctx->err.code || !ct__resolve(ctx, t, &v, op, 0, here)) return false;
    layout l = {.text = text, .type = ct__type(v), .bytes = bytes};
    int64_t n = ct__count(l.type);
    l.whole = n <= MAX_WHOLE;
    ct__strides(l.type, l.stride);
    ct__textf(text, "%s", ct__type_text(l.type).s);
    if (n) {
        ct__text_add(text, l.type->rank ? "\n" : " = ");
        format_measure(&l, 0, 0);
        format_layout(&l, 0, 0);
    }
    return !text->failed || ct__err_memory(&ctx->err, here, op, text->n);
}

size_t ct_format_at(ct_tensor t, char *to, size_t size, ct_loc here) {
    ct_text text = {0};
    bool ok = format_tensor(&text, t, "format", here);
    size_t n = ok ? text.n : 0;
    if (to && size) {
        size_t kept = n < size ? n : size - 1;
        if (kept) memcpy(to, text.s, kept);
        to[kept] = '\0';
    }
    ct__text_free(&text);
    return n;
}

bool ct_print_at(ct_tensor t, const char *name, ct_loc here) {
    CT_TEXT text = {0};
    if (here.file) ct__textf(&text, "%s:%u: ", here.file, here.line);
    if (name && *name) ct__textf(&text, "%s: ", name);
    bool ok = format_tensor(&text, t, "print", here);
    if (ok) ct__log(ct__ctx(), CT_LOG_PRINT, text.s);
    return ok;
}
