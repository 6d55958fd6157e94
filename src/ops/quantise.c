// Quantised tensors: quantised values (codes) of few bits, and scales. Their arrangement and meaning is
// given by a layout, a record of the table here; a quantised tensor is its two tensors.
#include <math.h>

#include "kinds/kind.h"
#include "kinds/quantised.h"
#include "ops/quantise.h"
#include "ops/rules.h"

typedef struct quant_layout {
    const char *name;
    ct_dtype code, scale; // scale u8: e8m0, an exponent of 2 only
    double max_code;      // codes are -max_code to max_code; 0: the layout can only be read
    int64_t block;        // elements along the last axis that share a scale; 0: all of them
    // bytes of a block that includes its scale (ops/ggml.c); 0: scales are a separate tensor
    int bytes;
} quant_layout;
static const quant_layout layouts[] = {
    [CT_LAYOUT_INT8] = {"int8", CT_I8, CT_F32, 127, 0, 0},
    [CT_LAYOUT_INT4_32] = {"int4 by 32", CT_I4, CT_F16, 7, 32, 0},
    [CT_LAYOUT_INT4_64] = {"int4 by 64", CT_I4, CT_F16, 7, 64, 0},
    [CT_LAYOUT_INT4_128] = {"int4 by 128", CT_I4, CT_F16, 7, 128, 0},
    [CT_LAYOUT_INT8_32] = {"int8 by 32", CT_I8, CT_F16, 127, 32, 0},
    [CT_LAYOUT_FP8] = {"fp8", CT_F8E4M3, CT_F32, 448, 0, 0},
    [CT_LAYOUT_MXFP4] = {"mxfp4", CT_F4, CT_U8, 6, 32, 0},
    [CT_LAYOUT_MXFP8] = {"mxfp8", CT_F8E4M3, CT_U8, 448, 32, 0},
    [CT_LAYOUT_Q8_0] = {"q8_0", CT_U8, CT_U8, 127, CT_GGML_BLOCK, CT_GGML_Q8_0},
    [CT_LAYOUT_Q4_0] = {"q4_0", CT_U8, CT_U8, 8, CT_GGML_BLOCK, CT_GGML_Q4_0},
    [CT_LAYOUT_INT4_16] = {"int4 by 16", CT_I4, CT_F16, 7, 16, 0},
    [CT_LAYOUT_INT8_16] = {"int8 by 16", CT_I8, CT_F16, 127, 16, 0},
    [CT_LAYOUT_Q4_K] = {"q4_k", CT_U8, CT_U8, 0, CT_GGML_LARGE_BLOCK, CT_GGML_Q4_K},
    [CT_LAYOUT_Q5_K] = {"q5_k", CT_U8, CT_U8, 0, CT_GGML_LARGE_BLOCK, CT_GGML_Q5_K},
    [CT_LAYOUT_Q6_K] = {"q6_k", CT_U8, CT_U8, 0, CT_GGML_LARGE_BLOCK, CT_GGML_Q6_K},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

#define QUANTISE_ATTRS(F, op) F(op, layout, layout)
CT_ATTRS(quantise, QUANTISE_ATTRS);
CT_ATTRS(dequantise, QUANTISE_ATTRS);

enum { GROUP = CT_LANES }; // interleaved rows, in layouts with groups

static bool quant_is_grouped(const void *attrs) {
    return ((const quantise_attrs *)attrs)->layout & CT_LAYOUT_INTERLEAVED;
}
static const quant_layout *quant_layout_of(const void *attrs) {
    const int64_t number =
        ((const quantise_attrs *)attrs)->layout & ~(int64_t)CT_LAYOUT_INTERLEAVED;
    const bool known = number >= 0 && number < N_LAYOUTS;
    return known ? &layouts[number] : NULL;
}
// True if the codes are integers or multiples of 1/2, which products of integers can use.
static bool quant_has_integer_product(const quant_layout *l) {
    return !l->bytes && (!ct__is_float(l->code) || l->code == CT_F4);
}
static const quant_layout *quant_check_layout(ct_call *call) {
    const quant_layout *l = quant_layout_of(call->attrs);
    if (l && quant_is_grouped(call->attrs) && !quant_has_integer_product(l)) {
        ct__call_err(call, CT_E_ARGUMENT, "%s has no groups", l->name);
        ct__call_hint(call, "CT_LAYOUT_INTERLEAVED goes with layouts of whole numbers and MXFP4");
        return NULL;
    }
    if (l) return l;
    ct__call_err(call, CT_E_ARGUMENT, "there is no layout %lld",
                 (long long)((const quantise_attrs *)call->attrs)->layout);
    ct__call_hint(call, "layouts are 0 (CT_LAYOUT_INT8) to %d (CT_LAYOUT_Q6_K)", N_LAYOUTS - 1);
    return NULL;
}

// ------------------------------------------------------------------------------------------- groups

// Returns the number of codes in a 32-bit word, for a layout that has groups.
static int64_t quant_codes_per_word(const quant_layout *l) {
    return 32 / (int64_t)ct_dtype_bits(l->code);
}

// Changes a type (..., N, K) to (..., N / 16, K / each, 16 * each).
static bool quant_groups_type(ct_call *call, const quant_layout *l, int64_t each, ct_type *type) {
    const int last = type->rank - 1;
    if (last < 1 || type->rank > CT_MAX_RANK - 2 || ct__is_dyn(type, last) ||
        ct__is_dyn(type, last - 1) || type->dim[last - 1] % GROUP || type->dim[last] % each) {
        ct__call_err(call, CT_E_SHAPE, "%s has no groups of %d rows", ct__type_text(type).s, GROUP);
        return ct__call_hint(call,
                             "rows in groups of %s are a multiple of %d, each a multiple of %lld "
                             "elements",
                             l->name, GROUP, (long long)quant_codes_per_word(l));
    }
    ct_shape shape = ct__call_shape(call, type->rank + 1);
    if (!shape.dim) return false;
    for (int a = 0; a < last - 1; a++) ct__shape_add_axis(&shape, type, a);
    ct__shape_add(&shape, type->dim[last - 1] / GROUP);
    ct__shape_add(&shape, type->dim[last] / each);
    ct__shape_add(&shape, GROUP * each);
    *type = ct__shaped(&shape, (ct_dtype)type->dtype, false);
    return true;
}
// Changes a type of groups back to (..., N, K).
static bool quant_rows_type(ct_call *call, const quant_layout *l, ct_type *type) {
    const int last = type->rank - 1;
    const int64_t each = quant_codes_per_word(l);
    if (last < 2 || ct__is_dyn(type, last - 2) || ct__is_dyn(type, last - 1) ||
        ct__is_dyn(type, last) || type->dim[last] != GROUP * each) {
        ct__call_err(call, CT_E_SHAPE, "the codes are %s, no groups of %s", ct__type_text(type).s,
                     l->name);
        return ct__call_hint(call, "groups of %d rows are (..., rows / %d, words, %lld)", GROUP,
                             GROUP, (long long)(GROUP * each));
    }
    ct_shape shape = ct__call_shape(call, type->rank - 1);
    if (!shape.dim) return false;
    for (int a = 0; a < last - 2; a++) ct__shape_add_axis(&shape, type, a);
    ct__shape_add(&shape, type->dim[last - 2] * GROUP);
    ct__shape_add(&shape, type->dim[last - 1] * each);
    *type = ct__shaped(&shape, (ct_dtype)type->dtype, false);
    return true;
}
static ct_tensor quant_swap_axes(ct_tensor x, int a, int b) { // exchanges two axes
    int64_t order[CT_MAX_RANK];
    const int rank = ct__type_of(x)->rank;
    for (int i = 0; i < rank; i++) order[i] = i == a ? b : i == b ? a : i;
    return ct_permute(x, ((ct_ints){rank, order}));
}
static ct_tensor quant_to_groups(ct_tensor x, int64_t each) {
    ct_dims_buffer dims;
    const int64_t n = ct__dims_of(x, &dims).n; // (..., N, K)
    const int64_t words = dims.v[n - 1] / each;
    dims.v[n - 2] /= GROUP;
    dims.v[n - 1] = GROUP;
    dims.v[n] = words;
    dims.v[n + 1] = each;
    x = quant_swap_axes(ct_reshape(x, ((ct_ints){n + 2, dims.v})), (int)n - 1, (int)n);
    dims.v[n - 1] = words;
    dims.v[n] = GROUP * each;
    return ct_reshape(x, ((ct_ints){n + 1, dims.v}));
}
static ct_tensor quant_from_groups(ct_tensor x, int64_t each) {
    ct_dims_buffer dims;
    const int64_t n = ct__dims_of(x, &dims).n; // (..., N / 16, K / each, 16 * each)
    const int64_t words = dims.v[n - 2];
    dims.v[n - 1] = GROUP;
    dims.v[n] = each;
    x = quant_swap_axes(ct_reshape(x, ((ct_ints){n + 1, dims.v})), (int)n - 2, (int)n - 1);
    dims.v[n - 3] = ct__size_mul(dims.v[n - 3], GROUP);
    dims.v[n - 2] = words * each;
    return ct_reshape(x, ((ct_ints){n - 1, dims.v}));
}

// -------------------------------------------------------------------------------------------- types

// Computes the type of the scales for elements of a type: one per block along the last axis.
static bool quant_scales_type(ct_call *call, const quant_layout *l, const ct_type *type,
                              ct_type *out) {
    const int last = type->rank - 1;
    if (last < 0)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs an axis", ct__type_text(type).s);
    if (l->block && (ct__is_dyn(type, last) || type->dim[last] % l->block)) {
        ct__call_err(call, CT_E_SHAPE, "the last axis of %s is no multiple of %lld",
                     ct__type_text(type).s, (long long)l->block);
        return ct__call_hint(call, "%s has a scale for %lld elements along it: ct_pad it", l->name,
                             (long long)l->block);
    }
    const int64_t n = l->bytes ? 0 : l->block ? type->dim[last] / l->block : 1;
    return ct__resized_type(call, type, last, n, l->scale, false, out);
}
// Changes the last axis of a type from `from` units to `to` units per block: between elements and bytes.
static bool quant_blocks_type(ct_call *call, ct_type *type, int64_t from, int64_t to) {
    const int last = type->rank - 1;
    return ct__resized_type(call, type, last, type->dim[last] / from * to, (ct_dtype)type->dtype,
                            false, type);
}
// Changes the type of codes to that of their elements: the same number, except for blocks of bytes.
static bool quant_elements_type(ct_call *call, const quant_layout *l, ct_type *type) {
    const int last = type->rank - 1;
    if (!l->bytes) return true;
    if (type->rank == CT_MAX_RANK)
        return ct__call_err(call, CT_E_SHAPE, "the codes have %d axes, at most %d are possible",
                            CT_MAX_RANK, CT_MAX_RANK - 1);
    if (last < 0 || ct__is_dyn(type, last) || type->dim[last] % l->bytes) {
        ct__call_err(call, CT_E_SHAPE, "the last axis of %s is no multiple of %d",
                     ct__type_text(type).s, l->bytes);
        return ct__call_hint(call, "a block of %s is %d bytes, %d elements", l->name, l->bytes,
                             (int)l->block);
    }
    return quant_blocks_type(call, type, l->bytes, l->block);
}

// Splits the last axis of x (..., K) into blocks and elements of a block; without blocks x is unchanged.
static ct_tensor quant_split_blocks(ct_tensor x, const quant_layout *l) {
    ct_dims_buffer dims;
    ct_ints list = ct__dims_of(x, &dims);
    if (!l->block || list.n == CT_MAX_RANK) return x;
    dims.v[list.n - 1] /= l->block;
    dims.v[list.n] = l->block;
    return ct_reshape(x, ((ct_ints){list.n + 1, dims.v}));
}

static bool quantise_infer(ct_call *call) {
    const quant_layout *l = quant_check_layout(call);
    if (!l || !ct__check_accepts(call, 0) ||
        !quant_scales_type(call, l, call->in[0], &call->out[1]))
        return false;
    if (l->max_code == 0)
        return ct__call_err(call, CT_E_ARGUMENT, "blocks of %s are read, not made", l->name);
    if (l->block && call->in[0]->rank == CT_MAX_RANK)
        return ct__call_err(call, CT_E_SHAPE, "x has %d axes, at most %d are possible", CT_MAX_RANK,
                            CT_MAX_RANK - 1);
    call->out[0] = *call->in[0];
    call->out[0].dtype = (uint8_t)l->code;
    call->out[0].weak = false;
    if (quant_is_grouped(call->attrs))
        return quant_groups_type(call, l, quant_codes_per_word(l), &call->out[0]) &&
               quant_groups_type(call, l, 1, &call->out[1]);
    return !l->bytes || quant_blocks_type(call, &call->out[0], l->block, l->bytes);
}
// e8m0 (OCP Microscaling Formats 1.0, 5.4.1): the exponent of 2 plus 127; 255 is NaN.
enum { E8M0_NAN = 255, F32_MANTISSA = 23 };

// Returns the values of scales, in f32.
static ct_tensor quant_scale_values(const quant_layout *l, ct_tensor scales) {
    if (l->scale != CT_U8) return ct_cast(scales, CT_F32);
    ct_tensor e = ct_cast(scales, CT_I32);
    ct_tensor bits = ct_shift_left(e, ct__number_like(F32_MANTISSA, e));
    ct_tensor smallest = ct__number_like(1 << (F32_MANTISSA - 1), e); // 2^-127 is subnormal
    bits = ct_select(ct_equal(e, ct__number_like(0, e)), smallest, bits);
    bits =
        ct_select(ct_equal(e, ct__number_like(E8M0_NAN, e)), ct__number_like(0x7fc00000, e), bits);
    return ct_bitcast(bits, CT_F32);
}
// Computes scales from the largest absolute value of each block, which becomes the largest code. For e8m0
// its exponent becomes that of the largest code (6.3 there), so that larger values saturate.
static ct_tensor quant_compute_scales(const quant_layout *l, ct_tensor largest) {
    if (l->scale != CT_U8) {
        ct_tensor scale = ct_div(largest, ct__number_like(l->max_code, largest));
        scale = ct_minimum(scale, ct__number_like(ct__float_max(l->scale), largest));
        return ct_cast(scale, l->scale);
    }
    ct_tensor bits = ct_bitcast(largest, CT_I32);
    ct_tensor e = ct_shift_right(bits, ct__number_like(F32_MANTISSA, bits));
    e = ct_maximum(ct_sub(e, ct__number_like(ilogb(l->max_code), e)), ct__number_like(0, e));
    e = ct_select(ct_is_nan(largest), ct__number_like(E8M0_NAN, e), e);
    return ct_cast(e, CT_U8);
}
// Returns the sizes of scales for x (..., K): (..., K / block).
static ct_ints quant_scale_dims(const quant_layout *l, ct_tensor x, ct_dims_buffer *dims) {
    const int64_t n = ct__dims_of(x, dims).n;
    dims->v[n - 1] /= l->block;
    return (ct_ints){n, dims->v};
}
// Computes in f32, so that any library that rounds as in IEEE 754 gets the same codes.
static bool quantise_body(ct_rule *r) {
    const quant_layout *l = quant_layout_of(r->attrs);
    const ct_type *type = r->node->out;
    ct_dims_buffer dims;
    ct_tensor x = quant_split_blocks(ct_cast(r->in[0], CT_F32), l);
    if (l->bytes) {
        r->body_out[0] = ct__of_type(ct__ggml_quantise(x, l->bytes), type);
        ct_tensor none = ct_slice(r->in[0], .stop = CT_INTS(0), .axes = CT_AXES(-1)); // (..., 0)
        r->body_out[1] = ct__of_type(ct_cast(none, CT_U8), &type[1]);
        return true;
    }
    ct_tensor scale =
        quant_compute_scales(l, ct_max(ct_abs(x), .axes = CT_AXES(-1), .keepdims = true));
    ct_tensor scale_value = quant_scale_values(l, scale), code = ct_div(x, scale_value);
    if (!ct__is_float(l->code)) code = ct_round(code);
    code = ct_clamp(code, ct__number_like(-l->max_code, x), ct__number_like(l->max_code, x));
    code = ct_select(ct_equal(scale_value, ct_f(0)), ct__number_like(0, x), code);
    if (quant_is_grouped(r->attrs)) {
        code = quant_to_groups(ct__shaped_like(code, r->in[0]), quant_codes_per_word(l));
        if (l->block) scale = ct_reshape(scale, quant_scale_dims(l, r->in[0], &dims));
        scale = quant_to_groups(scale, 1);
    }
    r->body_out[0] = ct_cast(ct__of_type(code, type), l->code);
    r->body_out[1] = ct__of_type(scale, &type[1]);
    return true;
}
const ct_opdef ct__op_quantise = {
    CT_COMPOSED(QUANTISE, quantise, 1, 2),
    .doc = "x as quants and scales of a layout: the largest size among elements that share a scale "
           "gets the largest quant, the others are rounded to nearest even. Of MX layouts scales "
           "are powers of 2, as OCP's specification computes them; ggml's blocks are its bytes.",
    CT_FIELDS(quantise),
    .accepts = CT_FLOATS,
    .jvp = CT_NO_GRAD,
    .widens = true,
};

// Computes the types of the numbers that codes represent, and of their scales.
static bool dequantise_types(ct_call *call, const quant_layout *l, ct_type *numbers,
                             ct_type *scales) {
    const bool grouped = quant_is_grouped(call->attrs);
    return (grouped ? quant_rows_type(call, l, numbers) : quant_elements_type(call, l, numbers)) &&
           quant_scales_type(call, l, numbers, scales) &&
           (!grouped || quant_groups_type(call, l, 1, scales));
}
static bool dequantise_infer(ct_call *call) {
    const quant_layout *l = quant_check_layout(call);
    ct_type scales = {0};
    if (!l) return false;
    if (call->in[0]->dtype != l->code)
        return ct__call_err(call, CT_E_DTYPE, "the codes are %s, of %s they are %s",
                            ct__type_text(call->in[0]).s, l->name, ct_dtype_name(l->code)) ||
               ct__call_hint(call, "codes and scales are those of ct_quantise with this layout");
    ct_type numbers = *call->in[0];
    if (!dequantise_types(call, l, &numbers, &scales)) return false;
    const bool wider = l->scale == CT_F16 && call->in[1]->dtype == CT_F32;
    if ((call->in[1]->dtype != l->scale && !wider) || !ct__same_sizes(call->in[1], &scales))
        return ct__call_err(call, CT_E_SHAPE, "the scales are %s, of codes %s they are %s",
                            ct__type_text(call->in[1]).s, ct__type_text(call->in[0]).s,
                            ct__type_text(&scales).s) ||
               ct__call_hint(call, "codes and scales are those of ct_quantise with this layout");
    *call->out = numbers;
    call->out->dtype = CT_F32;
    return true;
}
// Repeats each element of (..., blocks) for all elements of its block, in the sizes of `type`.
static ct_tensor quant_repeat_for_block(ct_tensor x, int64_t block, const ct_type *type) {
    ct_dims_buffer dims;
    ct_tensor each = ct__add_last(x); // (..., blocks, 1)
    ct__dims_of(each, &dims);
    dims.v[dims.list.n - 1] = block;
    return ct__of_type(ct_expand(each, dims.list), type);
}
// Keeps the order of the codes, so that rows are read as rows.
static bool dequantise_body(ct_rule *r) {
    const quant_layout *l = quant_layout_of(r->attrs);
    if (l->bytes) {
        ct_dims_buffer dims;
        ct_ints list = ct__dims_of(r->in[0], &dims); // (..., blocks, bytes)
        dims.v[list.n - 1] /= l->bytes;
        dims.v[list.n] = l->bytes;
        ct_tensor blocks = ct_reshape(r->in[0], ((ct_ints){list.n + 1, dims.v}));
        r->body_out[0] = ct__of_type(ct__ggml_numbers(blocks, l->bytes), r->node->out);
        return true;
    }
    ct_tensor codes = ct_cast(r->in[0], CT_F32), scales = quant_scale_values(l, r->in[1]);
    if (quant_is_grouped(r->attrs)) {
        codes = quant_from_groups(codes, quant_codes_per_word(l));
        scales = quant_from_groups(scales, 1);
    }
    if (l->block) scales = quant_repeat_for_block(scales, l->block, r->node->out);
    return ct__set_body(r, ct_mul(codes, scales));
}
const ct_opdef ct__op_dequantise = {
    CT_COMPOSED(DEQUANTISE, dequantise, 2, 1),
    .doc =
        "The f32 numbers that quants and scales of a layout represent: each quant times its scale. "
        "A matrix product that reads them makes them while it packs them: they are not stored.",
    CT_FIELDS(dequantise),
    .accepts =
        CT_MASK(CT_I8) | CT_MASK(CT_I4) | CT_MASK(CT_F4) | CT_MASK(CT_F8E4M3) | CT_MASK(CT_U8),
};

// codes (..., K), scales (..., blocks) and offsets (..., blocks) of one dtype -> (..., K).
static bool dequantise_offset_infer(ct_call *call) {
    const ct_type *codes = call->in[0], *scales = call->in[1], *offsets = call->in[2];
    const int last = codes->rank - 1;
    bool fit = last >= 0 && scales->rank == codes->rank && ct__is_float((ct_dtype)scales->dtype) &&
               !ct__is_dyn(codes, last) && !ct__is_dyn(scales, last) && scales->dim[last] > 0 &&
               codes->dim[last] % scales->dim[last] == 0;
    if (fit) {
        ct_type required;
        if (!ct__resized_type(call, codes, last, scales->dim[last], (ct_dtype)scales->dtype, false,
                              &required))
            return false;
        fit = ct__same_sizes(scales, &required) && ct__same_sizes(offsets, &required) &&
              offsets->dtype == scales->dtype;
    }
    if (!fit)
        return ct__call_err(call, CT_E_SHAPE, "codes %s, scales %s and offsets %s do not fit",
                            ct__type_text(codes).s, ct__type_text(scales).s,
                            ct__type_text(offsets).s);
    *call->out = *codes;
    call->out->dtype = CT_F32;
    return true;
}
static bool dequantise_offset_body(ct_rule *r) {
    const ct_type *scales = ct__type_of(r->in[1]), *out = r->node->out;
    const ct_dtype dtype = (ct_dtype)scales->dtype;
    const int last = out->rank - 1;
    const int64_t block = out->dim[last] / scales->dim[last];
    ct_type own = *out;
    own.dtype = (uint8_t)dtype;
    ct_tensor x = ct_mul(ct_cast(r->in[0], dtype), quant_repeat_for_block(r->in[1], block, &own));
    x = ct_add(x, quant_repeat_for_block(r->in[2], block, &own));
    return ct__set_body(r, ct_cast(x, CT_F32));
}
const ct_opdef ct__op_dequantise_offset = {
    CT_COMPOSED(DEQUANTISE_OFFSET, dequantise_offset, 3, 1),
    .doc = "The f32 numbers that quants represent, of which neighbours share a scale and an "
           "offset: quant times scale plus offset, each rounded to the dtype of the scales.",
    .accepts = CT_MASK(CT_I8) | CT_MASK(CT_I4) | CT_MASK(CT_U8) | CT_MASK(CT_U4),
};
ct_tensor ct__dequantise_offset(ct_tensor codes, ct_tensor scales, ct_tensor offsets, ct_loc here) {
    const ct_tensor in[3] = {codes, scales, offsets};
    return ct__record(&ct__op_dequantise_offset, NULL, in, 3, here);
}

// ---------------------------------------------------------------- products with quantised activations

enum { ROW_BLOCK = CT_QUANTISED_BLOCK, ROW_MAX = 127 };

// Checks that sizes are static, since kernels are generated for them; dynamic sizes that were not
// requested become static again.
static bool quant_check_static(ct_call *call, const ct_type *codes) {
    for (int a = 0; a < codes->rank; a++)
        if (ct__is_dyn(codes, a))
            return ct__call_err(call, CT_E_SHAPE,
                                "the codes are %s, whose sizes are dynamic: they have to be known",
                                ct__type_text(codes).s);
    return true;
}

// rows (M, K) i8, row_scales (M, K / 32) f32, codes (N, K) or groups, scales (N, blocks of the layout) ->
// (M, N).
static bool quantised_product_infer(ct_call *call) {
    ct_shape shape = ct__call_shape(call, 2);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[0], 0);
    const int first = call->n_in > 4; // one of several matrices
    if (!quant_check_static(call, call->in[2])) return false;
    if (quant_is_grouped(call->attrs))
        ct__shape_add(&shape, call->in[2]->dim[first] * GROUP);
    else
        ct__shape_add_axis(&shape, call->in[2], first);
    return ct__set_out(call, &shape, CT_F32, false);
}
// Reshapes (N, K) to (blocks, N, each), as i32.
static ct_tensor quant_blocks_first(ct_tensor codes, int64_t each) {
    ct_dims_buffer dims;
    ct__dims_of(codes, &dims);
    dims.v[1] /= each;
    dims.v[2] = each;
    codes = ct_reshape(ct_cast(codes, CT_I32), ((ct_ints){3, dims.v}));
    return ct_permute(codes, CT_AXES(1, 0, 2));
}
// Repeats each element along the last axis: (N, own) to (N, own * times).
static ct_tensor quant_repeat(ct_tensor x, int64_t times) {
    ct_dims_buffer dims;
    if (times == 1) return x;
    ct__dims_of(ct__add_last(x), &dims);
    dims.v[2] = times;
    x = ct_expand(ct__add_last(x), ((ct_ints){3, dims.v}));
    dims.v[1] *= times;
    return ct_reshape(x, ((ct_ints){2, dims.v}));
}
static ct_tensor quantised_product(ct_rule *r, ct_tensor codes, ct_tensor columns) {
    const quant_layout *l = quant_layout_of(r->attrs);
    const int64_t each = l->block == ROW_BLOCK / 2 ? ROW_BLOCK / 2 : ROW_BLOCK;
    const int64_t times = ROW_BLOCK / each, blocks = ct__type_of(r->in[1])->dim[1] * times;
    const bool grouped = quant_is_grouped(r->attrs);
    const bool halves =
        l->code == CT_F4; // twice these numbers are integers, and half of a scale is exact
    if (grouped)
        codes =
            quant_from_groups(ct_cast(codes, halves ? CT_F32 : CT_I32), quant_codes_per_word(l));
    if (halves) codes = ct_mul(ct_cast(codes, CT_F32), ct_f(2));
    ct_tensor sums = ct_matmul(quant_blocks_first(r->in[0], each),
                               ct__swap_last(quant_blocks_first(codes, each))); // (blocks, M, N)
    ct_tensor rows =
        ct__add_last(ct_permute(quant_repeat(r->in[1], times), CT_AXES(1, 0))); // (blocks, M, 1)
    columns = quant_scale_values(l, columns);                                   // (N, scales)
    if (grouped) columns = quant_from_groups(columns, 1);
    if (halves) columns = ct_mul(columns, ct_f(0.5));
    const ct_type *scales = ct__type_of(columns);
    const int64_t n = ct__size_of(scales, 0);
    columns = quant_repeat(columns, blocks / scales->dim[1]);
    columns =
        ct_reshape(ct_permute(columns, CT_AXES(1, 0)), CT_DIMS(blocks, 1, n)); // (blocks, 1, N)
    ct_tensor scaled = ct_mul(ct_cast(sums, CT_F32), ct_mul(rows, columns));
    return ct_sum(scaled, .axes = CT_AXES(0)); // (M, N)
}
static bool quantised_product_body(ct_rule *r) {
    return ct__set_body(r, ct__of_type(quantised_product(r, r->in[2], r->in[3]), r->node->out));
}
// Merges the first two axes: (M, N, ...) to (M * N, ...).
static ct_tensor quant_merge_first(ct_tensor x) {
    ct_dims_buffer dims;
    ct__dims_of(x, &dims);
    dims.v[1] = ct__size_mul(dims.v[0], dims.v[1]);
    return ct_reshape(x, ((ct_ints){dims.list.n - 1, dims.v + 1}));
}
// With a matrix per row: multiplies all rows by all matrices and selects each row's own. This body is a
// reference; kernels do not compute it this way.
static bool chosen_product_body(ct_rule *r) {
    ct_tensor codes = ct_gather(r->in[2], r->in[4]), scales = ct_gather(r->in[3], r->in[4]);
    const ct_type *out = r->node->out;
    if (!ct__type_of(r->in[4])->rank) {
        r->body_out[0] = ct__of_type(quantised_product(r, codes, scales), out);
        return true;
    }
    const int64_t rows = ct__size_of(out, 0);
    ct_tensor y =
        quantised_product(r, quant_merge_first(codes), quant_merge_first(scales)); // (M, M * N)
    y = ct_reshape(y, CT_DIMS(rows, rows, out->dim[1]));
    ct_ints dims = CT_DIMS(rows, rows, 1);
    ct_tensor own = ct_equal(ct_iota(CT_I32, dims, 0), ct_iota(CT_I32, dims, 1));
    y = ct_sum(ct_select(own, y, ct_f(0)), .axes = CT_AXES(1)); // a sum from +0 is never -0
    return ct__set_body(r, ct__of_type(y, out));
}
CT_ATTRS(quantised_product, QUANTISE_ATTRS);
CT_ATTRS(quantised_matmul, QUANTISE_ATTRS);
const ct_opdef ct__op_quantised_product = {
    CT_OP(QUANTISED_PRODUCT, quantised_product, quantised, 4, 1),
    .doc = "Rows of i8, with a scale for 32 of them, times columns of codes of a layout: in each "
           "block of 32 products "
           "are summed as integers, then scaled, and blocks are added in their order.",
    CT_FIELDS(quantised_product),
    .accepts = CT_MASK(CT_I8),
    .infer = quantised_product_infer,
    .body = quantised_product_body,
    .jvp = CT_NO_GRAD,
    .samples = {.ulp = 32},
};

const ct_opdef ct__op_chosen_product = {
    CT_OP(CHOSEN_PRODUCT, chosen_product, quantised, 5, 1),
    .doc = "The same with one of several matrices of quants, which the last operand names, for all "
           "rows or for each: it is read in place.",
    CT_FIELDS(quantised_product),
    .accepts = CT_MASK(CT_I8),
    .infer = quantised_product_infer,
    .body = chosen_product_body,
    .jvp = CT_NO_GRAD,
    .samples = {.ulp = 32},
};

static bool quantised_matmul_infer(ct_call *call) {
    const quant_layout *l = quant_check_layout(call);
    const ct_type *x = call->in[0], *codes = call->in[1];
    ct_type scales = {0};
    if (!l || !ct__check_accepts(call, 0)) return false;
    if (l->bytes)
        return ct__call_err(call, CT_E_ARGUMENT, "blocks of %s are no codes with scales",
                            l->name) ||
               ct__call_hint(call, "ct_matmul takes ct_dequantise of them");
    if (!quant_has_integer_product(l))
        return ct__call_err(call, CT_E_ARGUMENT, "codes of %s are no whole numbers", l->name) ||
               ct__call_hint(call, "ct_matmul takes ct_dequantise of them");
    if (codes->dtype != l->code)
        return ct__call_err(call, CT_E_DTYPE, "the codes are %s, of %s they are %s",
                            ct__type_text(codes).s, l->name, ct_dtype_name(l->code));
    const int last = x->rank - 1;
    ct_type numbers = *codes;
    if (!dequantise_types(call, l, &numbers, &scales) || !quant_check_static(call, codes))
        return false;
    if (last < 0 || numbers.rank != 2 || ct__is_dyn(x, last) || x->dim[last] != numbers.dim[1] ||
        numbers.dim[1] % ROW_BLOCK)
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., K) and (N, K): x is %s, the codes are %s",
                            ct__type_text(x).s, ct__type_text(codes).s) ||
               ct__call_hint(call, "K is a multiple of %d, and a row of codes an output's weights",
                             ROW_BLOCK);
    if (call->in[2]->dtype != l->scale || !ct__same_sizes(call->in[2], &scales))
        return ct__call_err(call, CT_E_SHAPE, "the scales are %s, of codes %s they are %s",
                            ct__type_text(call->in[2]).s, ct__type_text(codes).s,
                            ct__type_text(&scales).s) ||
               ct__call_hint(call, "codes and scales are those of ct_quantise with this layout");
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < last; a++) ct__shape_add_axis(&shape, x, a);
    ct__shape_add_axis(&shape, &numbers, 0);
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, false);
}
// Quantises rows (M, K) to i8, with a scale for each 32 elements.
static void quantise_rows(ct_tensor x, int64_t rows, int64_t inner, ct_tensor out[2]) {
    ct_tensor in = ct_reshape(ct_cast(x, CT_F32), CT_DIMS(rows, inner / ROW_BLOCK, ROW_BLOCK));
    ct_tensor largest = ct_max(ct_abs(in), .axes = CT_AXES(2), .keepdims = true);
    ct_tensor scale = ct_div(largest, ct_f(ROW_MAX)); // (rows, blocks, 1)
    ct_tensor code = ct_round(ct_div(in, scale));
    code = ct_select(ct_equal(scale, ct_f(0)), ct_f(0), code);
    out[0] = ct_cast(ct_reshape(code, CT_DIMS(rows, inner)), CT_I8);
    out[1] = ct_reshape(scale, CT_DIMS(rows, inner / ROW_BLOCK));
}
static bool quantised_matmul_body(ct_rule *r) {
    const ct_type *x = ct__type_of(r->in[0]);
    int64_t rows = 1, inner = x->dim[x->rank - 1];
    for (int a = 0; a < x->rank - 1; a++) rows = ct__size_mul(rows, ct__size_of(x, a));
    ct_tensor operands[4] = {CT_NONE, CT_NONE, r->in[1], r->in[2]};
    quantise_rows(r->in[0], rows, inner, operands);
    ct_tensor y = ct__record(&ct__op_quantised_product, r->attrs, operands, 4, r->node->here);
    if (ct__type_of(y)->dtype != r->node->out->dtype) y = ct_cast(y, (ct_dtype)r->node->out->dtype);
    return ct__set_body(r, ct__of_type(y, r->node->out));
}
ct_tensor ct__chosen_matmul(ct_tensor x, ct_tensor codes, ct_tensor scales, ct_layout as,
                            ct_tensor which, ct_loc here) {
    ct_tensor operands[5] = {CT_NONE, CT_NONE, codes, scales, which};
    if (!ct_ok(x) || !ct_ok(codes) || !ct_ok(scales) || !ct_ok(which)) return x;
    quantise_rows(x, ct__size_like(x, 0), ct_dim(x, 1), operands);
    const quantised_product_attrs attrs = {.layout = as};
    return ct__record(&ct__op_chosen_product, &attrs, operands, 5, here);
}
const ct_opdef ct__op_quantised_matmul = {
    CT_COMPOSED(QUANTISED_MATMUL, quantised_matmul, 3, 1),
    .doc =
        "x (..., K) times codes (N, K) and scales of a layout of whole numbers or f4: (..., N), as "
        "language models run. x "
        "is made bytes, too, with a scale for each 32 numbers, so that products are of "
        "integers; the codes' sizes are known ones. For more digits, or a "
        "gradient: ct_matmul of x and ct_dequantise.",
    CT_FIELDS(quantised_matmul),
    .accepts = CT_FLOATS,
    .jvp = CT_NO_GRAD,
};

// ------------------------------------------------------------------------- products by dequantising

// x (M, K) f32, codes (N, K), scales, and offsets if there are any -> (M, N).
static bool dequantised_product_infer(ct_call *call) {
    ct_shape shape = ct__call_shape(call, 2);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, call->in[0], 0);
    ct__shape_add_axis(&shape, call->in[1], 0);
    return ct__set_out(call, &shape, CT_F32, false);
}
static bool dequantised_product_body(ct_rule *r) {
    ct_tensor w = ct__record(&ct__op_dequantise, r->attrs, &r->in[1], 2, r->node->here);
    return ct__set_body(r, ct_matmul(r->in[0], ct__swap_last(w)));
}
CT_ATTRS(dequantised_product, QUANTISE_ATTRS);
const ct_opdef ct__op_dequantised_product = {
    CT_OP(DEQUANTISED_PRODUCT, dequantised_product, dequantised, 3, 1),
    .doc = "Rows times the numbers that columns of quants represent: the matrix product's sums, in "
           "its order.",
    CT_FIELDS(dequantised_product),
    .accepts = CT_MASK(CT_F32),
    .infer = dequantised_product_infer,
    .body = dequantised_product_body,
    .samples = {.ulp = 32},
};

static bool offset_product_body(ct_rule *r) {
    ct_tensor w = ct__dequantise_offset(r->in[1], r->in[2], r->in[3], r->node->here);
    return ct__set_body(r, ct_matmul(r->in[0], ct__swap_last(w)));
}
const ct_opdef ct__op_offset_product = {
    CT_OP(OFFSET_PRODUCT, offset_product, dequantised, 4, 1),
    .doc = "The same of codes with scales and offsets.",
    .accepts = CT_MASK(CT_F32),
    .infer = dequantised_product_infer,
    .body = offset_product_body,
    .samples = {.ulp = 32},
};

// Returns the node that computes a value, skipping casts to the value's own dtype. Returns NULL if the
// value has other users or comes from outside the graph.
static const ct_node *quant_producer(const ct_match *m, ct_val v) {
    while (m->is_alone(m->env, v)) {
        const ct_node *node = v.node;
        if (!node->op->converts || ct__type(node->in[0])->dtype != node->out->dtype) return node;
        v = node->in[0];
    }
    return NULL;
}
// Matches the product of rows and a transposed matrix that is dequantised for this product only.
ct_tensor ct__match_dequantised_product(const ct_match *m) {
    const ct_node *node = m->node, *transposed = quant_producer(m, node->in[1]);
    const ct_type *x = ct__type(node->in[0]);
    const ct_node *w =
        transposed && ct__is_swap_of_last(transposed) ? quant_producer(m, transposed->in[0]) : NULL;
    const bool offset = w && w->op == &ct__op_dequantise_offset;
    if (!w || (!offset && w->op != &ct__op_dequantise)) return CT_NONE;
    const ct_type *codes = ct__type(w->in[0]);
    int64_t rows = 1;
    for (int a = 0; a < x->rank - 1; a++) rows = ct__size_mul(rows, ct__size_of(x, a));
    if (codes->rank != 2 || x->dtype != CT_F32 || node->out->dtype != CT_F32 || rows == 0 ||
        (!offset && !quant_has_integer_product(quant_layout_of(w->attrs))))
        return CT_NONE;
    ct_tensor in[4] = {m->operand(m->env, node->in[0])};
    in[0] = ct_reshape(in[0], CT_DIMS(rows, x->dim[x->rank - 1]));
    for (int i = 0; i < w->n_in; i++) in[1 + i] = m->operand(m->env, w->in[i]);
    const ct_opdef *product = offset ? &ct__op_offset_product : &ct__op_dequantised_product;
    return ct__of_type(ct__record(product, w->attrs, in, 1 + w->n_in, node->here), node->out);
}
