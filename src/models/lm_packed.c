#include "models/lm_packed.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "io/unpack.h"
#include "io/utf8.h"

// --------------------------------------------------------------------------------------- the config

// The object, of the model or of its text's part.
static const json_t *part_of(const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    return value ? value : json_object_get(json_object_get(config, "text_config"), key);
}

static bool refuse(const char *path, const char *method, const char *format, ct_err *err) {
    char shown[CT_PRINTABLE], more[CT_PRINTABLE] = "";
    if (format) ct__printable(format, strlen(format), more, sizeof more);
    ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
            "the weights are quantised by \"%s\"%s%s%s, a way that is not read",
            ct__printable(method, strlen(method), shown, sizeof shown), format ? " as \"" : "",
            more, format ? "\"" : "");
    ct__err_hint(err, "GGUF files, MLX's codes, FP8 and MXFP4 are");
    return false;
}

bool ct__lm_packed_known(const json_t *config, const char *path, ct_err *err) {
    const json_t *mlx = part_of(config, "quantization"),
                 *other = part_of(config, "quantization_config");
    const char *mode = json_string_value(json_object_get(mlx, "mode")),
               *method = json_string_value(json_object_get(other, "quant_method")),
               *format = json_string_value(json_object_get(other, "format"));
    if (mode && strcmp(mode, "affine")) return refuse(path, "mlx", mode, err);
    if (!method || !strcmp(method, "fp8") || !strcmp(method, "mxfp4")) return true;
    if (strcmp(method, "compressed-tensors")) return refuse(path, method, NULL, err);
    return (format && !strcmp(format, "float-quantized")) || refuse(path, method, format, err);
}

// Rows and columns that share a scale, as the config has it.
static void find_block(const json_t *config, int64_t *rows, int64_t *columns) {
    const json_t *size =
        json_object_get(part_of(config, "quantization_config"), "weight_block_size");
    *rows = json_integer_value(json_array_get(size, 0));
    *columns = json_integer_value(json_array_get(size, 1));
    if (*rows < 1 || *columns < 1) *rows = *columns = 128; // DeepSeek's
}

void ct__lm_packed_adapt(ct_lm *lm) {
    static const char end[] = "experts.gate_up_proj_blocks";
    for (size_t i = 0; i < lm->files->n; i++)
        if (ct__ends_with(lm->files->entries[i].name, end)) lm->spec.expert_in_out = 0;
}

// --------------------------------------------------------------------------------------- the tensors

static const ct_weight *beside(const ct_lm *lm, const char *name, size_t n, const char *end) {
    char other[CT_NN_PATH + 48];
    snprintf(other, sizeof other, "%.*s%s", (int)n, name, end);
    return ct__lm_weight(lm, other);
}

static bool same_sizes(const ct_weight *w, ct_ints dims, int64_t n) {
    if ((int64_t)w->rank < n) return false;
    for (int64_t a = 0; a < n; a++)
        if (w->dim[a] != dims.v[a]) return false;
    return true;
}

static bool is_mlx(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    static const char end[] = ".weight";
    const size_t n = strlen(name);
    if (dims.n != 2 || n < sizeof end || strcmp(name + n - strlen(end), end)) return false;
    p->codes = ct__lm_weight(lm, name);
    if (!p->codes || p->codes->dtype != CT_U32) return false;
    p->scales = beside(lm, name, n - strlen(end), ".scales");
    p->biases = beside(lm, name, n - strlen(end), ".biases");
    if (!p->scales || !p->biases || p->codes->rank != 2 || p->scales->rank != 2 ||
        !same_sizes(p->codes, dims, 1) || p->scales->dim[1] < 1 || p->codes->dim[1] > INT32_MAX)
        return false;
    p->bits = (int)(p->codes->dim[1] * 32 / p->width); // both follow from the sizes
    p->group = p->width / p->scales->dim[1];
    return p->codes->dim[1] * 32 == p->width * p->bits;
}

static bool is_fp8(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    p->codes = ct__lm_weight(lm, name);
    if (!p->codes || (p->codes->dtype != CT_F8E4M3 && p->codes->dtype != CT_F8E5M2)) return false;
    p->scales = beside(lm, name, strlen(name), "_scale_inv");
    if (!p->scales) p->scales = beside(lm, name, strlen(name), "_scale");
    if (!p->scales || dims.n != 2 || p->codes->rank != 2 || !same_sizes(p->codes, dims, 2))
        return false;
    find_block(lm->config.root, &p->rows, &p->columns);
    const bool by_row =
        p->scales->rank == 2 && p->scales->dim[1] == 1 && p->scales->dim[0] == dims.v[0];
    if (by_row) p->rows = 1, p->columns = p->width;
    return true;
}

static bool is_mxfp4(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    p->codes = beside(lm, name, strlen(name), "_blocks");
    p->scales = beside(lm, name, strlen(name), "_scales");
    const int64_t last = dims.n - 1;
    return p->codes && p->scales && dims.n >= 2 && (int64_t)p->codes->rank == dims.n + 1 &&
           same_sizes(p->codes, dims, last) && p->codes->dim[last] == dims.v[last] / 32 &&
           dims.v[last] % 32 == 0;
}

bool ct__lm_packed(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    static bool (*const is[])(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) = {
        [CT_PACKED_MLX] = is_mlx, [CT_PACKED_FP8] = is_fp8, [CT_PACKED_MXFP4] = is_mxfp4};
    if (dims.n < 2) return false;
    for (int kind = CT_PACKED_MLX; kind <= CT_PACKED_MXFP4; kind++) {
        *p = (ct_packed){.kind = (ct_packed_kind)kind, .n = 1, .width = dims.v[dims.n - 1]};
        for (int64_t a = 0; a < dims.n - 1; a++) p->n *= dims.v[a];
        if (p->width > 0 && is[kind](lm, name, dims, p)) return true;
    }
    *p = (ct_packed){0};
    return false;
}

bool ct__lm_packed_check(const ct_packed *p, ct_err *err) {
    switch (p->kind) {
    case CT_PACKED_MLX: return ct__fits_mlx(p->codes, p->scales, p->biases, p->bits, p->group, err);
    case CT_PACKED_FP8: return ct__fits_fp8(p->codes, p->scales, p->rows, p->columns, err);
    case CT_PACKED_MXFP4: return ct__fits_mxfp4(p->codes, p->scales, err);
    default: return true;
    }
}

// ---------------------------------------------------------------------------------------- the numbers

enum { AT_ONCE = 1 << 18 }; // numbers
int64_t ct__lm_packed_rows(const ct_packed *p) {
    const int64_t unit = p->kind == CT_PACKED_FP8 ? p->rows : 1, units = AT_ONCE / p->width / unit;
    return unit * (units > 1 ? units : 1);
}

// `count` of a tensor's `rows` rows, from `first` on.
static ct_weight some_rows(const ct_weight *w, int64_t rows, int64_t first, int64_t count) {
    ct_weight some = *w;
    const uint64_t each = rows ? w->bytes / (uint64_t)rows : 0;
    some.dim[0] = count;
    some.bytes = each * (uint64_t)count;
    some.data = (const char *)w->data + each * (uint64_t)first;
    return some;
}

// The axes before the last ones as one.
static ct_weight flat(const ct_weight *w, int64_t n, size_t last) {
    ct_weight all = *w;
    for (size_t a = 0; a < last; a++) all.dim[1 + a] = w->dim[w->rank - last + a];
    all.dim[0] = n;
    all.rank = last + 1;
    return all;
}

bool ct__lm_unpack(const ct_packed *p, int64_t first, int64_t count, float *to, ct_err *err) {
    const uint64_t numbers = (uint64_t)count * (uint64_t)p->width;
    if (p->kind == CT_PACKED_MXFP4) {
        const ct_weight codes = flat(p->codes, p->n, 2), scales = flat(p->scales, p->n, 1);
        const ct_weight some = some_rows(&codes, p->n, first, count),
                        by = some_rows(&scales, p->n, first, count);
        return ct__unpack_mxfp4(&some, &by, to, numbers, err);
    }
    const ct_weight codes = some_rows(p->codes, p->n, first, count);
    if (p->kind == CT_PACKED_MLX) {
        const ct_weight by = some_rows(p->scales, p->n, first, count),
                        plus = some_rows(p->biases, p->n, first, count);
        return ct__unpack_mlx(&codes, &by, &plus, p->bits, p->group, to, numbers, err);
    }
    ct_weight by = *p->scales;
    if (by.rank == 2 && by.dim[0] > 1) { // else one of all rows
        const int64_t begin = first / p->rows, end = (first + count - 1) / p->rows + 1;
        by = some_rows(p->scales, by.dim[0], begin, end - begin);
    }
    return ct__unpack_fp8(&codes, &by, p->rows, p->columns, to, numbers, err);
}

// ---------------------------------------------------------------------------------------------- codes

static bool is_wide(const ct_packed *p) {
    return p->kind == CT_PACKED_MXFP4 || p->bits > 4 || p->width % CT_LM_CODES_STEP;
}
static int64_t layout_group(const ct_packed *p) { return is_wide(p) ? 32 : p->group; }

ct_layout ct__lm_packed_layout(const ct_packed *p) {
    if (is_wide(p)) return CT_LAYOUT_INT8_32;
    return p->group == 32   ? CT_LAYOUT_INT4_32
           : p->group == 64 ? CT_LAYOUT_INT4_64
                            : CT_LAYOUT_INT4_128;
}

int64_t ct__lm_packed_groups(const ct_packed *p) { return p->width / layout_group(p); }

void ct__lm_packed_codes(const ct_packed *p, int64_t row, int8_t *to) {
    static const int8_t twice_f4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const bool f4 = p->kind == CT_PACKED_MXFP4;
    const int bits = f4 ? 4 : p->bits, less = 1 << (bits - 1);
    ct__unpack_codes((const char *)p->codes->data + row * (p->width * bits / 8), bits, p->width,
                     (uint8_t *)to);
    for (int64_t i = 0; i < p->width; i++)
        to[i] = f4 ? twice_f4[to[i]] : (int8_t)((uint8_t)to[i] - less);
}

void ct__lm_packed_group(const ct_packed *p, int64_t row, int64_t group, float *scale,
                         float *offset) {
    if (p->kind == CT_PACKED_MXFP4) {
        *scale = 0.5f * ct__scale_at(p->scales, (uint64_t)(row * ct__lm_packed_groups(p) + group));
        *offset = 0;
        return;
    }
    const int64_t at = row * (p->width / p->group) + group * layout_group(p) / p->group;
    *scale = ct__scale_at(p->scales, (uint64_t)at);
    *offset = ct__scale_at(p->biases, (uint64_t)at) + (float)(1 << (p->bits - 1)) * *scale;
}
