#include "support/case_file.h"

#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"

int64_t read_word(reader *r) {
    if (r->at >= r->end) {
        fputs("the file of cases ends early\n", stderr);
        exit(2);
    }
    return *r->at++;
}
double read_number(reader *r) {
    int64_t w = read_word(r);
    double d;
    memcpy(&d, &w, sizeof d);
    return d;
}
const void *read_bytes(reader *r, size_t n) {
    const void *p = r->at;
    for (size_t i = 0; i < (n + 7) / 8; i++) read_word(r);
    return p;
}
ct_ints read_list(reader *r) {
    int64_t n = read_word(r);
    const int64_t *v = r->at;
    for (int64_t i = 0; i < n; i++) read_word(r);
    return (ct_ints){n, n ? v : NULL};
}

void write_word(FILE *out, int64_t w) { fwrite(&w, sizeof w, 1, out); }
void write_bytes(FILE *out, const void *p, size_t n) {
    static const char zero[8];
    if (n) fwrite(p, 1, n, out);
    fwrite(zero, 1, (8 - n % 8) % 8, out);
}
void write_tensor(FILE *out, ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    const void *data = ct_data(t);
    write_word(out, type->dtype);
    write_word(out, type->rank);
    for (int i = 0; i < type->rank; i++) write_word(out, type->dim[i]);
    if (!data) { // the caller reads the error first
        fputs("a value was lost\n", stderr);
        exit(2);
    }
    write_bytes(out, data, ct__type_bytes(type));
}

void read_attrs(reader *r, const ct_opdef *op, char *attrs) {
    for (size_t i = 0; i < op->n_fields; i++) {
        char *to = attrs + op->fields[i].offset;
        switch (op->fields[i].kind) {
        case CT_FIELD_i64: *(int64_t *)(void *)to = read_word(r); break;
        case CT_FIELD_f64: *(double *)(void *)to = read_number(r); break;
        case CT_FIELD_num: {
            bool given = read_word(r);
            *(ct_num *)(void *)to = (ct_num){read_number(r), given};
            break;
        }
        case CT_FIELD_bool: *(bool *)to = read_word(r) != 0; break;
        case CT_FIELD_dtype: *(ct_dtype *)(void *)to = (ct_dtype)read_word(r); break;
        case CT_FIELD_ints: *(ct_ints *)(void *)to = read_list(r); break;
        default: fprintf(stderr, "%s has an attribute that no case can give\n", op->name); exit(2);
        }
    }
}

enum { PLAIN, REVERSED, EXPANDED }; // how an operand is seen

ct_tensor read_operand(reader *r) {
    int64_t view = read_word(r);
    ct_dtype dtype = (ct_dtype)read_word(r);
    ct_ints dims = read_list(r), wide = {0, NULL};
    if (view == EXPANDED) wide = read_list(r);
    size_t bytes = (size_t)read_word(r);
    ct_tensor t = ct_from(read_bytes(r, bytes), dtype, dims);
    if (view == REVERSED) return ct_permute(t, CT_SCALAR);
    return view == EXPANDED ? ct_expand(t, wide) : t;
}

void write_results(FILE *out, const ct_tensor *t, size_t n, bool ok) {
    write_word(out, ok ? 0 : 1);
    if (ok) {
        write_word(out, (int64_t)n);
        for (size_t i = 0; i < n; i++) write_tensor(out, t[i]);
        return;
    }
    const char *text = ct_error_text();
    write_word(out, (int64_t)strlen(text));
    write_bytes(out, text, strlen(text));
    ct_error_clear();
}

int run_cases(const char *device, const char *from, const char *to,
              void (*next)(reader *r, FILE *out)) {
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out) return fprintf(stderr, "cannot open %s or %s\n", from, to), 2;
    fseek(in, 0, SEEK_END);
    size_t n = (size_t)ftell(in);
    rewind(in);
    int64_t *all = malloc(n + 8);
    if (!all || fread(all, 1, n, in) != n) return 2;
    fclose(in);
    if (!ct_set_device(device)) return fprintf(stderr, "%s\n", ct_error_text()), 2;
    reader r = {all, all + n / 8};
    while (r.at < r.end) next(&r, out);
    free(all);
    const bool whole = fclose(out) == 0;
    // A device from outside may hide its pointers, so that what it still holds looks lost.
    return whole && ct_shutdown() ? 0 : 2;
}
