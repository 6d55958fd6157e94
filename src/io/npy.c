#include "io/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/type.h"
#include "io/utf8.h"

// Larger sizes cannot occur in tensors, and may be confused with sizes that CT_DYN marks.
static const int64_t max_dim = ((int64_t)1 << 61) - 1;
static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

typedef struct reader {
    ct_npy_name name;
    const char *start, *at, *end; // the file's first bytes, and the scanner's position
    uint64_t file_n;
    ct_npy *npy;
    ct_err *err;
} reader;

#define npy_refuse(name, err, ...) ct__err_part((err), (name).label, (name).part, __VA_ARGS__)

static bool npy_refuse_expected(reader *r, const char *what) {
    char found[CT_PRINTABLE];
    if (r->at == r->end)
        return npy_refuse(r->name, r->err, "the header ends where %s was expected", what);
    return npy_refuse(r->name, r->err, "the header has \"%s\" where %s was expected, at byte %zu",
                      ct__printable(r->at, 1, found, sizeof found), what,
                      (size_t)(r->at - r->start));
}

// ---------------------------------------------------------------------------------- the header

static void npy_skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool npy_accept(reader *r, char c) {
    npy_skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

// Reads 'text' or "text" without escapes, which the format does not need.
static bool npy_read_string(reader *r, const char *what, const char **s, size_t *n) {
    npy_skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return npy_refuse_expected(r, what);
    char quote = *r->at++;
    *s = r->at;
    while (r->at < r->end && *r->at != quote && *r->at != '\\' && *r->at != '\n') r->at++;
    if (r->at == r->end || *r->at != quote) return npy_refuse_expected(r, "the end of a string");
    *n = (size_t)(r->at++ - *s);
    return true;
}

static bool npy_accept_word(reader *r, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

// Parses the size after the letter of a descr: a decimal number and nothing else.
static bool npy_parse_size(const char *s, size_t n, size_t *size) {
    *size = 0;
    if (n == 0 || n > 9) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *size = *size * 10 + (size_t)(s[i] - '0');
    }
    return n == 1 || s[0] != '0';
}

// Parses "<f4": byte order, kind, size. The size of types that Cotan lacks is set, too, so that a
// file that has some can be listed.
static bool npy_parse_descr(reader *r, const char *s, size_t n) {
    ct_npy *npy = r->npy;
    char shown[CT_PRINTABLE];
    ct__printable(s, n, shown, sizeof shown);
    size_t unit = 0;
    if (n >= 2 && s[1] == 'O')
        return npy_refuse(r->name, r->err,
                          "descr \"%s\" means Python objects, pickled; they are never read", shown);
    if (n < 3 || n >= sizeof npy->descr || !memchr("<>|=", s[0], 4))
        return npy_refuse(r->name, r->err,
                          "descr \"%s\" is not a byte order, a kind and a size, as in \"<f4\"",
                          shown);
    if (s[1] == 'M' || s[1] == 'm') // "<M8[ns]"
        unit = n > 3 && s[3] == '[' && s[n - 1] == ']' ? n - 3 : 0;
    if (!memchr("biufcSaUVMm", s[1], 11) || !npy_parse_size(s + 2, n - 2 - unit, &npy->size))
        return npy_refuse(r->name, r->err, "descr \"%s\" is no dtype of NumPy's", shown);
    if (s[1] == 'U') npy->size *= 4;
    for (ct_dtype d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++)
        if (ct__dtype(d)->numpy == s[1] && ct_dtype_size(d) == npy->size) npy->dtype = d;
    if (npy->dtype && npy->size > 1 && s[0] == '|')
        return npy_refuse(r->name, r->err, "descr \"%s\" does not specify a byte order", shown);
    npy->swapped = s[0] == '>' && npy->size > 1;
    memcpy(npy->descr, s, n);
    npy->descr[n] = '\0';
    return true;
}

static bool npy_read_descr(reader *r) {
    const char *s;
    size_t n;
    npy_skip_space(r);
    if (r->at < r->end && (*r->at == '[' || *r->at == '('))
        return npy_refuse(r->name, r->err, "descr is a list: arrays of records are not supported");
    return npy_read_string(r, "a string for descr", &s, &n) && npy_parse_descr(r, s, n);
}

static bool npy_read_order(reader *r) {
    npy_skip_space(r);
    if (npy_accept_word(r, "True"))
        r->npy->fortran = true;
    else if (!npy_accept_word(r, "False"))
        return npy_refuse_expected(r, "True or False for fortran_order");
    return true;
}

static bool npy_read_dim(reader *r) {
    ct_npy *npy = r->npy;
    const char *begin = r->at;
    int64_t value = 0;
    bool fits = true;
    if (r->at < r->end && *r->at == '-')
        return npy_refuse(r->name, r->err, "shape[%d] is negative", npy->rank);
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, *r->at - '0', &value);
    if (r->at == begin) return npy_refuse_expected(r, "a size");
    if (*begin == '0' && r->at - begin > 1) {
        r->at = begin;
        return npy_refuse_expected(r, "a size without superfluous zeros");
    }
    if (!fits || value > max_dim) {
        char shown[CT_PRINTABLE];
        return npy_refuse(
            r->name, r->err, "shape[%d] is %s, at most %" PRId64 " is allowed", npy->rank,
            ct__printable(begin, (size_t)(r->at - begin), shown, sizeof shown), max_dim);
    }
    if (npy->version < 3) (void)npy_accept_word(r, "L"); // Python 2 wrote some sizes with it
    if (npy->rank == CT_MAX_RANK)
        return npy_refuse(r->name, r->err, "shape has more than %d sizes", CT_MAX_RANK);
    npy->shape[npy->rank++] = value;
    return true;
}

// Reads a tuple: "()", "(3,)", "(3, 4)"; "(3)" would be a number.
static bool npy_read_shape(reader *r) {
    bool comma = true;
    if (!npy_accept(r, '(')) return npy_refuse_expected(r, "'(' of shape");
    while (!npy_accept(r, ')')) {
        if (!comma) return npy_refuse_expected(r, "',' or ')' in shape");
        if (!npy_read_dim(r)) return false;
        comma = npy_accept(r, ',');
        if (!comma && r->npy->rank == 1)
            return npy_refuse_expected(r, "',' after the only size of shape");
    }
    return true;
}

static bool npy_read_header(reader *r) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    static bool (*const read[])(reader *) = {npy_read_descr, npy_read_order, npy_read_shape};
    unsigned seen = 0;
    char shown[CT_PRINTABLE];
    bool comma = true;
    if (!npy_accept(r, '{')) return npy_refuse_expected(r, "'{'");
    while (!npy_accept(r, '}')) {
        const char *s;
        size_t n, k = 0;
        if (!comma) return npy_refuse_expected(r, "',' or '}'");
        if (!npy_read_string(r, "a key", &s, &n)) return false;
        while (k < 3 && (strlen(keys[k]) != n || memcmp(keys[k], s, n) != 0)) k++;
        if (k == 3)
            return npy_refuse(r->name, r->err, "the header has an unknown key \"%s\"",
                              ct__printable(s, n, shown, sizeof shown));
        if (seen & 1u << k) return npy_refuse(r->name, r->err, "the header has %s twice", keys[k]);
        seen |= 1u << k;
        if (!npy_accept(r, ':')) return npy_refuse_expected(r, "':'");
        if (!read[k](r)) return false;
        comma = npy_accept(r, ',');
    }
    for (size_t k = 0; k < 3; k++)
        if (!(seen & 1u << k)) return npy_refuse(r->name, r->err, "the header lacks %s", keys[k]);
    npy_skip_space(r);
    if (r->at < r->end) return npy_refuse_expected(r, "its end");
    return true;
}

// ------------------------------------------------------------------------------------- the file

bool ct__npy_prefix(ct_npy_name name, const void *bytes, size_t n, size_t *prefix, ct_err *err) {
    const unsigned char *b = bytes;
    if (n < 10)
        return npy_refuse(name, err, "there are %zu bytes, but the shortest beginning takes 10", n);
    if (memcmp(b, magic, sizeof magic) != 0) {
        char shown[CT_PRINTABLE];
        return npy_refuse(name, err, "it begins with \"%s\", not with \"\\x93NUMPY\"",
                          ct__printable_bytes(b, sizeof magic, shown, sizeof shown));
    }
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return npy_refuse(name, err, "version %d.%d of the format is unknown; 1.0, 2.0 and 3.0 are",
                          b[6], b[7]);
    size_t fixed = b[6] == 1 ? 10 : 12, length = b[8] | (size_t)b[9] << 8;
    if (n < fixed)
        return npy_refuse(name, err, "there are %zu bytes, but the shortest beginning takes %zu", n,
                          fixed);
    if (fixed == 12) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > CT_NPY_HEADER)
        return npy_refuse(name, err,
                          "the header takes %zu bytes by its length, at most %d are allowed",
                          length, CT_NPY_HEADER);
    *prefix = fixed + length;
    return true;
}

static bool npy_multiply(uint64_t *product, uint64_t by) {
    return !__builtin_mul_overflow(*product, by, product) && *product <= INT64_MAX;
}

// Computes the size in bytes from dtype and shape, and the offset of the data. Sizes of 0 do not
// hide an overflow of the others, which would recur when the array is sliced or concatenated.
static bool npy_check_size(reader *r) {
    ct_npy *npy = r->npy;
    char what[200];
    uint64_t total = npy->size;
    bool empty = npy->size == 0, fits = true;
    for (int i = 0; i < npy->rank; i++) {
        empty = empty || npy->shape[i] == 0;
        if (npy->shape[i]) fits = fits && npy_multiply(&total, (uint64_t)npy->shape[i]);
    }
    if (!fits)
        return npy_refuse(r->name, r->err, "the bytes of %s are more than 63 bits can count",
                          ct__npy_describe(npy, what, sizeof what));
    npy->bytes = empty ? 0 : total;
    npy->count = npy->size ? npy->bytes / npy->size : 0;
    npy->begin = (uint64_t)(r->end - r->start);
    uint64_t have = r->file_n - npy->begin;
    if (npy->bytes > have)
        return npy_refuse(r->name, r->err,
                          "%s takes %" PRIu64 " bytes, but %" PRIu64
                          " follow the header: it is cut short",
                          ct__npy_describe(npy, what, sizeof what), npy->bytes, have);
    if (npy->bytes < have)
        return npy_refuse(r->name, r->err,
                          "%s takes %" PRIu64 " bytes, but %" PRIu64
                          " follow the header: files of several arrays are not supported",
                          ct__npy_describe(npy, what, sizeof what), npy->bytes, have);
    return true;
}

bool ct__npy_parse(ct_npy_name name, const void *bytes, size_t prefix, uint64_t file_n, ct_npy *npy,
                   ct_err *err) {
    size_t need;
    const char *text = bytes;
    *npy = (ct_npy){0};
    if (!ct__npy_prefix(name, bytes, prefix, &need, err)) return false;
    npy->version = text[6];
    size_t fixed = npy->version == 1 ? 10 : 12;
    if (need > file_n || need > prefix)
        return npy_refuse(name, err,
                          "the header takes %zu bytes by its length, but only %" PRIu64
                          " follow: it is cut short",
                          need - fixed, file_n - fixed);
    reader r = {.name = name,
                .start = text,
                .at = text + fixed,
                .end = text + need,
                .file_n = file_n,
                .npy = npy,
                .err = err};
    if (npy->version == 3) {
        size_t bad = ct__utf8_bad(r.at, need - fixed);
        if (bad < need - fixed)
            return npy_refuse(name, err, "the header is not UTF-8 at byte %zu", fixed + bad);
    }
    return npy_read_header(&r) && npy_check_size(&r);
}

bool ct__npy_check_dtype(ct_npy_name name, const ct_npy *npy, ct_err *err) {
    if (npy->dtype) return true;
    ct__err(err, CT_E_DTYPE, CT_NOWHERE, name.label,
            "%s: its dtype is \"%s\", of which Cotan has none", name.part, npy->descr);
    return ct__err_hint(
        err, "bool, u8, u16, u32, u64, i8, i16, i32, i64, f16, f32, f64, c64 and c128 can be "
             "read; "
             "NumPy's astype makes one of them");
}

const char *ct__npy_describe(const ct_npy *npy, char *out, size_t cap) {
    return ct__shape_text(out, cap, npy->dtype ? ct_dtype_name(npy->dtype) : npy->descr,
                          (size_t)npy->rank, (const uint64_t *)npy->shape, 0);
}

// --------------------------------------------------------------------------------------- the data

bool ct__npy_is_native(const ct_npy *npy, const void *data) {
    const unsigned char *b = data;
    if (npy->swapped || (npy->fortran && npy->rank > 1)) return false;
    for (uint64_t i = 0; npy->dtype == CT_BOOL && i < npy->bytes; i++)
        if (b[i] > 1) return false;
    return true;
}

static void npy_swap_bytes(unsigned char *bytes, uint64_t count, size_t size) {
    for (uint64_t i = 0; i < count; i++, bytes += size)
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char c = bytes[k];
            bytes[k] = bytes[size - 1 - k];
            bytes[size - 1 - k] = c;
        }
}

// Converts column-major to row-major order: counts through the indices of all axes but the last.
static void npy_to_row_major(const ct_npy *npy, const char *from, char *to) {
    uint64_t stride[CT_MAX_RANK], at[CT_MAX_RANK] = {0}, offset = 0; // in bytes; per axis
    uint64_t step = npy->size;
    int last = npy->rank - 1;
    for (int a = 0; a < npy->rank; step *= (uint64_t)npy->shape[a++]) stride[a] = step;
    for (uint64_t done = 0; done < npy->count; done += (uint64_t)npy->shape[last]) {
        for (int64_t i = 0; i < npy->shape[last]; i++, to += npy->size)
            memcpy(to, from + offset + (uint64_t)i * stride[last], npy->size);
        for (int a = last - 1; a >= 0; a--) {
            offset += stride[a];
            if (++at[a] < (uint64_t)npy->shape[a]) break;
            offset -= at[a] * stride[a];
            at[a] = 0;
        }
    }
}

void ct__npy_convert(const ct_npy *npy, const void *from, void *to) {
    unsigned char *b = to;
    if (!npy->bytes) return;
    if (npy->fortran && npy->rank > 1)
        npy_to_row_major(npy, from, to);
    else
        memmove(to, from, npy->bytes);
    if (npy->swapped) { // the two parts of a complex number are swapped separately
        const uint64_t parts = 1u + (npy->descr[1] == 'c');
        npy_swap_bytes(to, npy->count * parts, npy->size / parts);
    }
    for (uint64_t i = 0; npy->dtype == CT_BOOL && i < npy->bytes; i++) b[i] = b[i] != 0;
}

// ----------------------------------------------------------------------------------------- writing

bool ct__npy_header(ct_npy_name name, ct_dtype dtype, int rank, const int64_t *shape, ct_text *out,
                    ct_err *err) {
    const char letter = ct__dtype(dtype)->numpy;
    const size_t size = ct_dtype_size(dtype);
    if (!letter) {
        ct__err(err, CT_E_DTYPE, CT_NOWHERE, name.label, "%s: NumPy has no dtype for %s", name.part,
                ct_dtype_name(dtype));
        return ct__err_hint(err, "cast to f32 first, or write a safetensors file");
    }
    char head[10] = {0}, digits[32];
    size_t start = out->n, pad;
    ct__text_bytes(out, head, sizeof head); // set below
    ct__textf(out, "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (", size == 1 ? '|' : '<',
              letter, size);
    for (int i = 0; i < rank; i++)
        ct__textf(out, "%s%" PRId64 "%s", i ? ", " : "", shape[i], rank == 1 ? "," : "");
    ct__text_add(out, "), }");
    // NumPy leaves space for axis 0 to grow to 21 digits in place, then pads to a multiple of 64.
    pad = rank ? 21 - (size_t)snprintf(digits, sizeof digits, "%" PRId64, shape[0]) : 0;
    pad += 64 - (out->n - start + pad + 1) % 64;
    for (; pad; pad--) ct__text_add(out, " ");
    ct__text_add(out, "\n");
    if (out->failed) return ct__err_memory(err, CT_NOWHERE, name.label, out->cap * 2);
    size_t length = out->n - start - sizeof head;
    memcpy(out->s + start, magic, sizeof magic);
    memcpy(out->s + start + 6, (const char[]){1, 0, (char)length, (char)(length >> 8)}, 4);
    return true;
}
