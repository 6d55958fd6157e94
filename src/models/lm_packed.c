// Reads weights that are stored as several tensors: MLX, FP8 and MXFP4.
#include "models/lm_packed.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "io/unpack.h"
#include "io/utf8.h"

// -------------------------------------------------------------------------------------------- config

// Returns the object of the model's config, or that of its text_config.
static const json_t *packed_config_get(const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    return value ? value : json_object_get(json_object_get(config, "text_config"), key);
}

static bool packed_refuse(const char *path, const char *method, const char *format, ct_err *err) {
    char shown[CT_PRINTABLE], more[CT_PRINTABLE] = "";
    if (format) ct__printable(format, strlen(format), more, sizeof more);
    ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
            "the weights are quantised by \"%s\"%s%s%s, which is not supported",
            ct__printable(method, strlen(method), shown, sizeof shown), format ? " as \"" : "",
            more, format ? "\"" : "");
    return ct__err_hint(err, "GGUF files, MLX's quants, FP8 and MXFP4 are");
}

bool ct__lm_packed_known(const json_t *config, const char *path, ct_err *err) {
    const json_t *mlx = packed_config_get(config, "quantization"),
                 *other = packed_config_get(config, "quantization_config");
    const char *mode = json_string_value(json_object_get(mlx, "mode")),
               *method = json_string_value(json_object_get(other, "quant_method")),
               *format = json_string_value(json_object_get(other, "format"));
    if (mode && strcmp(mode, "affine")) return packed_refuse(path, "mlx", mode, err);
    if (!method || !strcmp(method, "fp8") || !strcmp(method, "mxfp4")) return true;
    if (strcmp(method, "compressed-tensors")) return packed_refuse(path, method, NULL, err);
    return (format && !strcmp(format, "float-quantized")) ||
           packed_refuse(path, method, format, err);
}

// Reads the block size that shares a scale from the config.
static void packed_get_fp8_block(const json_t *config, int64_t *rows, int64_t *columns) {
    const json_t *size =
        json_object_get(packed_config_get(config, "quantization_config"), "weight_block_size");
    *rows = json_integer_value(json_array_get(size, 0));
    *columns = json_integer_value(json_array_get(size, 1));
    if (*rows < 1 || *columns < 1) *rows = *columns = 128; // DeepSeek's default
}

void ct__lm_packed_adapt(ct_lm *lm) {
    static const char suffix[] = "experts.gate_up_proj_blocks";
    for (size_t i = 0; i < lm->files->n; i++)
        if (ct__ends_with(lm->files->entries[i].name, suffix)) lm->spec.expert_in_out = 0;
}

// ------------------------------------------------------------------------------------------- tensors

static const ct_weight *packed_find_tensor(const ct_lm *lm, const char *name, size_t n,
                                           const char *suffix) {
    char full_name[CT_NN_MAX_PATH + 48];
    snprintf(full_name, sizeof full_name, "%.*s%s", (int)n, name, suffix);
    return ct__lm_weight(lm, full_name);
}

static bool packed_has_sizes(const ct_weight *w, ct_ints dims, int64_t n) {
    if ((int64_t)w->rank < n) return false;
    for (int64_t a = 0; a < n; a++)
        if (w->dim[a] != dims.v[a]) return false;
    return true;
}

static bool packed_is_mlx(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    static const char suffix[] = ".weight";
    const size_t n = strlen(name);
    if (dims.n != 2 || n < sizeof suffix || strcmp(name + n - strlen(suffix), suffix)) return false;
    p->quants = ct__lm_weight(lm, name);
    if (!p->quants || p->quants->dtype != CT_U32) return false;
    p->scales = packed_find_tensor(lm, name, n - strlen(suffix), ".scales");
    p->biases = packed_find_tensor(lm, name, n - strlen(suffix), ".biases");
    if (!p->scales || !p->biases || p->quants->rank != 2 || p->scales->rank != 2 ||
        !packed_has_sizes(p->quants, dims, 1) || p->scales->dim[1] < 1 ||
        p->quants->dim[1] > INT32_MAX)
        return false;
    p->bits = (int)(p->quants->dim[1] * 32 / p->n_columns); // both follow from the sizes
    p->group_size = p->n_columns / p->scales->dim[1];
    return p->quants->dim[1] * 32 == p->n_columns * p->bits;
}

static bool packed_is_fp8(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    p->quants = ct__lm_weight(lm, name);
    if (!p->quants || (p->quants->dtype != CT_F8E4M3 && p->quants->dtype != CT_F8E5M2))
        return false;
    p->scales = packed_find_tensor(lm, name, strlen(name), "_scale_inv");
    if (!p->scales) p->scales = packed_find_tensor(lm, name, strlen(name), "_scale");
    if (!p->scales || dims.n != 2 || p->quants->rank != 2 || !packed_has_sizes(p->quants, dims, 2))
        return false;
    packed_get_fp8_block(lm->config.root, &p->block_rows, &p->block_columns);
    const bool by_row =
        p->scales->rank == 2 && p->scales->dim[1] == 1 && p->scales->dim[0] == dims.v[0];
    if (by_row) p->block_rows = 1, p->block_columns = p->n_columns;
    return true;
}

static bool packed_is_mxfp4(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    p->quants = packed_find_tensor(lm, name, strlen(name), "_blocks");
    p->scales = packed_find_tensor(lm, name, strlen(name), "_scales");
    const int64_t last = dims.n - 1;
    return p->quants && p->scales && dims.n >= 2 && (int64_t)p->quants->rank == dims.n + 1 &&
           packed_has_sizes(p->quants, dims, last) && p->quants->dim[last] == dims.v[last] / 32 &&
           dims.v[last] % 32 == 0;
}

bool ct__lm_packed(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p) {
    static bool (*const is[])(const ct_lm *lm, const char *name, ct_ints dims,
                              ct_packed *p) = {[CT_PACKED_MLX] = packed_is_mlx,
                                               [CT_PACKED_FP8] = packed_is_fp8,
                                               [CT_PACKED_MXFP4] = packed_is_mxfp4};
    if (dims.n < 2) return false;
    for (int kind = CT_PACKED_MLX; kind <= CT_PACKED_MXFP4; kind++) {
        *p = (ct_packed){.kind = (ct_packed_kind)kind, .n = 1, .n_columns = dims.v[dims.n - 1]};
        for (int64_t a = 0; a < dims.n - 1; a++) p->n *= dims.v[a];
        if (p->n_columns > 0 && is[kind](lm, name, dims, p)) return true;
    }
    *p = (ct_packed){0};
    return false;
}

bool ct__lm_packed_check(const ct_packed *p, ct_err *err) {
    switch (p->kind) {
    case CT_PACKED_MLX:
        return ct__check_mlx(p->quants, p->scales, p->biases, p->bits, p->group_size, err);
    case CT_PACKED_FP8:
        return ct__check_fp8(p->quants, p->scales, p->block_rows, p->block_columns, err);
    case CT_PACKED_MXFP4: return ct__check_mxfp4(p->quants, p->scales, err);
    default: return true;
    }
}

// -------------------------------------------------------------------------------------------- values

enum { PACKED_CHUNK_ELEMENTS = 1 << 18 }; // number of elements
int64_t ct__lm_packed_rows(const ct_packed *p) {
    const int64_t unit = p->kind == CT_PACKED_FP8 ? p->block_rows : 1,
                  units = PACKED_CHUNK_ELEMENTS / p->n_columns / unit;
    return unit * (units > 1 ? units : 1);
}

// Returns `count` of a tensor's `rows` rows, from row `first`.
static ct_weight packed_slice_rows(const ct_weight *w, int64_t rows, int64_t first, int64_t count) {
    ct_weight slice = *w;
    const uint64_t row_bytes = rows ? w->bytes / (uint64_t)rows : 0;
    slice.dim[0] = count;
    slice.bytes = row_bytes * (uint64_t)count;
    slice.data = (const char *)w->data + row_bytes * (uint64_t)first;
    return slice;
}

// Flattens all axes before the last ones to one.
static ct_weight packed_flatten(const ct_weight *w, int64_t n, size_t last) {
    ct_weight result = *w;
    for (size_t a = 0; a < last; a++) result.dim[1 + a] = w->dim[w->rank - last + a];
    result.dim[0] = n;
    result.rank = last + 1;
    return result;
}

bool ct__lm_unpack(const ct_packed *p, int64_t first, int64_t count, float *to, ct_err *err) {
    const uint64_t n_elements = (uint64_t)count * (uint64_t)p->n_columns;
    if (p->kind == CT_PACKED_MXFP4) {
        const ct_weight codes = packed_flatten(p->quants, p->n, 2),
                        scales = packed_flatten(p->scales, p->n, 1);
        const ct_weight quants_slice = packed_slice_rows(&codes, p->n, first, count),
                        scales_slice = packed_slice_rows(&scales, p->n, first, count);
        return ct__unpack_mxfp4(&quants_slice, &scales_slice, to, n_elements, err);
    }
    const ct_weight codes = packed_slice_rows(p->quants, p->n, first, count);
    if (p->kind == CT_PACKED_MLX) {
        const ct_weight scales_slice = packed_slice_rows(p->scales, p->n, first, count),
                        biases_slice = packed_slice_rows(p->biases, p->n, first, count);
        return ct__unpack_mlx(&codes, &scales_slice, &biases_slice, p->bits, p->group_size, to,
                              n_elements, err);
    }
    ct_weight scales_slice = *p->scales;
    if (scales_slice.rank == 2 && scales_slice.dim[0] > 1) { // else one scale is for all rows
        const int64_t begin = first / p->block_rows, end = (first + count - 1) / p->block_rows + 1;
        scales_slice = packed_slice_rows(p->scales, scales_slice.dim[0], begin, end - begin);
    }
    return ct__unpack_fp8(&codes, &scales_slice, p->block_rows, p->block_columns, to, n_elements,
                          err);
}

// ---------------------------------------------------------------------------------- quantised values

static bool packed_is_8bit(const ct_packed *p) {
    return p->kind == CT_PACKED_MXFP4 || p->bits > 4 || p->n_columns % CT_LM_CODES_STEP;
}
static int64_t packed_layout_block(const ct_packed *p) {
    return packed_is_8bit(p) ? 32 : p->group_size;
}

ct_layout ct__lm_packed_layout(const ct_packed *p) {
    if (packed_is_8bit(p)) return CT_LAYOUT_INT8_32;
    return p->group_size == 32   ? CT_LAYOUT_INT4_32
           : p->group_size == 64 ? CT_LAYOUT_INT4_64
                                 : CT_LAYOUT_INT4_128;
}

int64_t ct__lm_packed_groups(const ct_packed *p) { return p->n_columns / packed_layout_block(p); }

int ct__lm_packed_zero(const ct_packed *p) {
    return p->kind == CT_PACKED_MLX ? 1 << (p->bits - 1) : 0;
}

void ct__lm_packed_codes(const ct_packed *p, int64_t row, int8_t *to) {
    static const int8_t twice_f4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const bool f4 = p->kind == CT_PACKED_MXFP4;
    const int bits = f4 ? 4 : p->bits, zero = ct__lm_packed_zero(p);
    ct__unpack_quants((const char *)p->quants->data + row * (p->n_columns * bits / 8), bits,
                      p->n_columns, (uint8_t *)to);
    for (int64_t i = 0; i < p->n_columns; i++)
        to[i] = f4 ? twice_f4[to[i]] : (int8_t)((uint8_t)to[i] - zero);
}

void ct__lm_packed_group(const ct_packed *p, int64_t row, int64_t group, float *scale,
                         float *offset) {
    if (p->kind == CT_PACKED_MXFP4) {
        *scale =
            0.5f * ct__read_scale(p->scales, (uint64_t)(row * ct__lm_packed_groups(p) + group));
        *offset = 0;
        return;
    }
    const int64_t at =
        row * (p->n_columns / p->group_size) + group * packed_layout_block(p) / p->group_size;
    *scale = ct__read_scale(p->scales, (uint64_t)at);
    *offset = ct__read_scale(p->biases, (uint64_t)at);
}
