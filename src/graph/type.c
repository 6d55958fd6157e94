#include "graph/symbols.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int64_t ct__count(const ct_type *type) {
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++) n *= type->dim[i];
    return n;
}

bool ct__is_dyn(const ct_type *type, int axis) { return type->dyn >> axis & 1; }

bool ct__same_shape(const ct_type *a, const ct_type *b) {
    if (a->rank != b->rank || a->dyn != b->dyn) return false;
    if (a->dim == b->dim) return true;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

bool ct__same_sizes(const ct_type *a, const ct_type *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

bool ct__same_type(const ct_type *a, const ct_type *b) {
    return a->dtype == b->dtype && a->weak == b->weak && a->device == b->device &&
           ct__same_shape(a, b);
}

bool ct__type_from_dims(ct_arena *arena, ct_dtype dtype, ct_ints dims, ct_type *type, ct_err *err,
                        ct_loc here, const char *op) {
    if (!ct__is_dtype(dtype))
        return ct__err(err, CT_E_DTYPE, here, op, "%d is not a dtype", (int)dtype);
    if (dims.n < 0 || dims.n > CT_MAX_RANK)
        return ct__err(err, CT_E_SHAPE, here, op, "%lld axes, at most %d are possible",
                       (long long)dims.n, CT_MAX_RANK);
    if (dims.n && !dims.v)
        return ct__err(err, CT_E_ARGUMENT, here, op, "the sizes of %lld axes are NULL",
                       (long long)dims.n);
    int64_t *dim = ct__arena(arena, (size_t)dims.n * sizeof *dim);
    if (!dim) return ct__err_memory(err, here, op, (size_t)dims.n * sizeof *dim);
    *type = (ct_type){.dtype = (uint8_t)dtype, .rank = (uint8_t)dims.n, .dim = dim};
    int64_t *mark = NULL;
    if (ct__symbols_now() && !(mark = ct__arena(arena, (size_t)dims.n * sizeof *mark)))
        return ct__err_memory(err, here, op, (size_t)dims.n * sizeof *mark);
    for (int i = 0; i < dims.n; i++) {
        if (mark) mark[i] = dims.v[i];
        dim[i] = ct__unmarked(dims.v[i]);
        type->dyn |= (uint32_t)ct__marked(dims.v[i]) << i;
        if (dim[i] < 0)
            return ct__err(err, CT_E_SHAPE, here, op, "axis %d has size %lld", i,
                           (long long)dim[i]);
    }
    if (type->dyn) type->mark = mark;
    return ct__type_fits(type, err, here, op);
}

bool ct__type_fits(const ct_type *type, ct_err *err, ct_loc here, const char *op) {
    int64_t bytes = type->dtype == CT_C128 ? 16 : 8; // of an element; most have fewer
    for (int i = 0; i < type->rank; i++) {
        int64_t size = type->dim[i];
        if (ct__is_dyn(type, i) && size >= CT_DYN_END)
            return ct__err(err, CT_E_SHAPE, here, op,
                           "%s is too large: a dynamic size must be below 2^48",
                           ct__type_text(type).s);
        if (__builtin_mul_overflow(bytes, size ? size : 1, &bytes))
            return ct__err(err, CT_E_SHAPE, here, op,
                           "%s is too large: the sizes multiply to 2^%d or more",
                           ct__type_text(type).s, type->dtype == CT_C128 ? 59 : 60);
    }
    return true;
}

// Copies the sizes of a result that still shares those of an operand.
static bool broadcast_copy_sizes(ct_arena *arena, ct_type *out, bool marks) {
    const ct_type before = *out;
    int64_t *dim = ct__arena(arena, before.rank * sizeof *dim),
            *mark = marks ? ct__arena(arena, before.rank * sizeof *mark) : NULL;
    if (!dim || (marks && !mark)) return false;
    for (int a = 0; a < before.rank; a++) {
        dim[a] = before.dim[a];
        if (mark) mark[a] = ct__size_of(&before, a);
    }
    out->dim = dim;
    out->mark = mark;
    return true;
}

// Broadcasts the result with one more operand.
static bool broadcast_operand(ct_arena *arena, const ct_type *in, bool *own, bool marks,
                              ct_type *out) {
    const int lead = out->rank - in->rank;
    for (int i = 0; i < in->rank; i++) {
        const int a = lead + i;
        const bool dynamic = in->dyn >> i & 1, was_dynamic = out->dyn >> a & 1;
        if (in->dim[i] == 1 && !dynamic) continue;
        const bool was_one = out->dim[a] == 1 && !was_dynamic;
        if (!was_one && in->dim[i] != out->dim[a]) return false;
        if (!was_one && marks) ct__size_equal(ct__size_of(out, a), ct__size_of(in, i));
        if (!was_one && was_dynamic >= dynamic) continue;
        if (!*own && !broadcast_copy_sizes(arena, out, marks)) return false;
        *own = true;
        ((int64_t *)(uintptr_t)out->dim)[a] = in->dim[i];
        if (marks) ((int64_t *)(uintptr_t)out->mark)[a] = ct__size_of(in, i);
        out->dyn |= (uint32_t)dynamic << a;
    }
    return true;
}

bool ct__broadcast(ct_arena *arena, const ct_type *const *types, int n, ct_type *out) {
    const ct_type *widest = types[0];
    bool marks = false, own = false;
    for (int i = 0; i < n; i++) {
        if (types[i]->rank > widest->rank) widest = types[i];
        marks |= types[i]->mark != NULL;
    }
    out->rank = widest->rank;
    out->dyn = widest->dyn;
    out->dim = widest->dim;
    out->mark = widest->mark;
    for (int i = 0; i < n; i++)
        if (types[i] != widest && !broadcast_operand(arena, types[i], &own, marks, out))
            return false;
    return true;
}

void ct__print_index(ct_text *text, const ct_type *type, int64_t i) {
    int64_t index[CT_MAX_RANK];
    ct__index_of(type, i, index);
    ct__text_add(text, "(");
    for (int a = 0; a < type->rank; a++)
        ct__textf(text, a ? ", %lld" : "%lld", (long long)index[a]);
    ct__text_add(text, type->rank == 1 ? ",)" : ")");
}

int64_t ct__broadcast_index(const ct_type *out, const ct_type *in, int64_t i) {
    int64_t index = 0, stride = 1;
    for (int a = out->rank - 1, b = in->rank - 1; b >= 0; a--, b--) {
        if (in->dim[b] != 1) index += i % out->dim[a] * stride;
        i /= out->dim[a];
        stride *= in->dim[b];
    }
    return index;
}

void ct__strides(const ct_type *type, int64_t *stride) {
    int64_t s = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= type->dim[i];
    }
}

int ct__axis(int64_t axis, int rank) {
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

void ct__text_dims(ct_text *text, const ct_type *type) {
    ct__text_add(text, "(");
    for (int i = 0; i < type->rank; i++)
        ct__textf(text, "%s%s%lld", i ? ", " : "", ct__is_dyn(type, i) ? "n=" : "",
                  (long long)type->dim[i]);
    ct__text_add(text, type->rank == 1 ? ",)" : ")");
}

const char *ct__shape_text(char *out, size_t cap, const char *dtype, size_t rank,
                           const uint64_t *dim, uint32_t dyn) {
    size_t n = 0, suffix = strlen(dtype) + sizeof "...,) ";
    if (n + 1 < cap) out[n++] = '(';
    for (size_t i = 0; i < rank; i++) {
        char size[32];
        bool dynamic = i < CT_MAX_RANK && (dyn >> i & 1);
        int w =
            snprintf(size, sizeof size, "%s%s%" PRIu64, i ? ", " : "", dynamic ? "n=" : "", dim[i]);
        bool fits = n + (size_t)w + suffix < cap;
        if (fits || n + suffix < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s", fits ? size : "...");
        if (!fits) break;
    }
    snprintf(out + n, cap - n, "%s %s", rank == 1 ? ",)" : ")", dtype);
    return out;
}

ct_type_text ct__type_text(const ct_type *type) {
    ct_type_text out;
    ct__shape_text(out.s, sizeof out.s, ct_dtype_name(type->dtype), type->rank,
                   (const uint64_t *)type->dim, type->dyn);
    return out;
}

static unsigned nibble_load(const void *data, int64_t i) {
    return ((const uint8_t *)data)[i >> 1] >> (4 * (i & 1)) & 15u;
}
static void nibble_store(void *data, int64_t i, unsigned v) {
    uint8_t *byte = (uint8_t *)data + (i >> 1);
    *byte = (uint8_t)((*byte & (i & 1 ? 0x0fu : 0xf0u)) | (v & 15u) << (4 * (i & 1)));
}

double ct__load_f64(ct_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case CT_F4: return ct__decode_float(dtype, nibble_load(data, i));
    case CT_F8E4M3:
    case CT_F8E5M2: return ct__decode_float(dtype, ((const uint8_t *)data)[i]);
    case CT_F16:
    case CT_BF16: return ct__decode_float(dtype, ((const uint16_t *)data)[i]);
    case CT_F32: return (double)((const float *)data)[i];
    case CT_F64: return ((const double *)data)[i];
    case CT_C64: return (double)((const float *)data)[2 * i];
    case CT_C128: return ((const double *)data)[2 * i];
    case CT_U64: return (double)((const uint64_t *)data)[i];
    default: return (double)ct__load_i64(dtype, data, i);
    }
}

int64_t ct__load_i64(ct_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case CT_U4: return (int64_t)nibble_load(data, i);
    case CT_I4: return (int64_t)(nibble_load(data, i) ^ 8u) - 8;
    case CT_BOOL:
    case CT_U8: return ((const uint8_t *)data)[i];
    case CT_U16: return ((const uint16_t *)data)[i];
    case CT_U32: return ((const uint32_t *)data)[i];
    case CT_U64:
    case CT_I64: return ((const int64_t *)data)[i];
    case CT_I8: return ((const int8_t *)data)[i];
    case CT_I16: return ((const int16_t *)data)[i];
    case CT_I32: return ((const int32_t *)data)[i];
    default: return (int64_t)ct__load_f64(dtype, data, i);
    }
}

// Truncates towards zero and saturates to the range of an integer dtype; NaN gives 0.
static int64_t float_to_int(ct_dtype dtype, double v) {
    const ct_dtype_info *info = ct__dtype(dtype);
    bool negative = info->class == CT_CLASS_INT;
    double above = ldexp(1, info->bits - negative);
    if (isnan(v)) return 0;
    if (v >= above) return ct__int_max(dtype);
    if (!negative) return v <= 0 ? 0 : (int64_t)(uint64_t)v;
    return v < -above ? ct__int_min(dtype) : (int64_t)v;
}

void ct__store_f64(ct_dtype dtype, void *data, int64_t i, double v) {
    switch (dtype) {
    case CT_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case CT_F4: nibble_store(data, i, ct__encode_float(dtype, v)); break;
    case CT_F8E4M3:
    case CT_F8E5M2: ((uint8_t *)data)[i] = (uint8_t)ct__encode_float(dtype, v); break;
    case CT_F16:
    case CT_BF16: ((uint16_t *)data)[i] = (uint16_t)ct__encode_float(dtype, v); break;
    case CT_F32: {
        const uint32_t bits = ct__encode_float(CT_F32, v);
        memcpy((float *)data + i, &bits, sizeof bits);
        break;
    }
    case CT_F64: ((double *)data)[i] = v; break;
    case CT_C64:
    case CT_C128:
        ct__store_f64(ct__part(dtype), data, 2 * i, v);
        ct__store_f64(ct__part(dtype), data, 2 * i + 1, 0);
        break;
    default: ct__store_i64(dtype, data, i, float_to_int(dtype, v)); break;
    }
}

// Converts to 8 and 16 bits through f32, as kernels (and ml_dtypes) do.
// Integers that a double cannot represent would be rounded twice: the bits below float's precision are merged
// into one sticky bit.
static void store_integer(ct_dtype dtype, void *data, int64_t i, uint64_t size, bool negative) {
    if (dtype != CT_F64 && size >> 53)
        size = size >> 11 << 11 | (uint64_t)((size & 2047) != 0) << 11;
    double v = (double)size;
    if (ct__is_narrow_float(dtype)) v = ct__decode_float(CT_F32, ct__encode_float(CT_F32, v));
    ct__store_f64(dtype, data, i, negative ? -v : v);
}

void ct__store_i64(ct_dtype dtype, void *data, int64_t i, int64_t v) {
    switch (dtype) {
    case CT_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case CT_I4:
    case CT_U4: nibble_store(data, i, (unsigned)v); break;
    case CT_I8:
    case CT_U8: ((uint8_t *)data)[i] = (uint8_t)v; break;
    case CT_I16:
    case CT_U16: ((uint16_t *)data)[i] = (uint16_t)v; break;
    case CT_I32:
    case CT_U32: ((uint32_t *)data)[i] = (uint32_t)v; break;
    case CT_I64:
    case CT_U64: ((int64_t *)data)[i] = v; break;
    default: store_integer(dtype, data, i, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0); break;
    }
}
void ct__store_u64(ct_dtype dtype, void *data, int64_t i, uint64_t v) {
    if (ct__is_float(dtype))
        store_integer(dtype, data, i, v, false);
    else
        ct__store_i64(dtype, data, i, (int64_t)v);
}

ct_int_text ct__int_text(ct_dtype dtype, int64_t bits) {
    ct_int_text text;
    if (dtype == CT_U64)
        snprintf(text.s, sizeof text.s, "%llu", (unsigned long long)bits);
    else
        snprintf(text.s, sizeof text.s, "%lld", (long long)bits);
    return text;
}
