// Elements of 4 bits: two per byte, the first in the lower half. Kernels load and store their codes, one
// per byte; a cast converts these to numbers.
#include "ops/rules.h"

// ------------------------------------------------------------------------ unpacking and packing codes

static bool unpack_infer(ct_call *call) {
    *call->out = *call->in[0];
    call->out->dtype = CT_U8;
    call->out->weak = false;
    return true;
}
static bool unpack_eval(const ct_ref *ref) {
    const uint8_t *bytes = ref->in[0];
    for (int64_t i = 0; i < ct__count(ref->out_type); i++)
        ((uint8_t *)ref->out[0])[i] = bytes[i >> 1] >> (4 * (i & 1)) & 15;
    return true;
}
// it is read from memory, so it is never emitted
static ct_kval unpack_emit(const ct_elem *e) { return (void)e, -1; }
const ct_opdef ct__op_unpack = {
    CT_OP(UNPACK, unpack, elementwise, 1, 1),
    .doc = "The codes of elements of 4 bits, a byte each.",
    .accepts = CT_PACKED,
    .infer = unpack_infer,
    .eval = unpack_eval,
    .jvp = CT_NO_GRAD,
    .emit = unpack_emit,
    .part = 1,
    .undoes = &ct__op_pack,
};

#define PACK_ATTRS(F, op) F(op, dtype, dtype)
CT_ATTRS(pack, PACK_ATTRS);

static bool pack_infer(ct_call *call) {
    *call->out = *call->in[0];
    call->out->dtype = (uint8_t)((const pack_attrs *)call->attrs)->dtype;
    call->out->weak = false;
    return true;
}
static bool pack_eval(const ct_ref *ref) {
    const uint8_t *code = ref->in[0];
    int64_t n = ct__count(ref->in_type);
    for (int64_t b = 0; b < (n + 1) / 2; b++)
        ((uint8_t *)ref->out[0])[b] =
            (uint8_t)(code[2 * b] | (2 * b + 1 < n ? code[2 * b + 1] << 4 : 0));
    return true;
}
const ct_opdef ct__op_pack = {
    CT_OP(PACK, pack, pack, 1, 1),
    .doc = "Codes as elements of 4 bits, two a byte.",
    CT_FIELDS(pack),
    .accepts = CT_MASK(CT_U8),
    .infer = pack_infer,
    .eval = pack_eval,
    .jvp = CT_NO_GRAD,
};

ct_tensor ct__part_of(ct_tensor t, int part) {
    if (ct__is_complex((ct_dtype)ct__type_of(t)->dtype)) return part ? ct_imag(t) : ct_real(t);
    return ct__record(&ct__op_unpack, NULL, &t, 1, CT_NOWHERE);
}
ct_tensor ct__of_parts(ct_dtype dtype, const ct_tensor *parts) {
    if (ct__is_complex(dtype)) return ct_complex(parts[0], parts[1]);
    return ct__record(&ct__op_pack, &(pack_attrs){dtype}, parts, 1, CT_NOWHERE);
}

// --------------------------------------------------------------------------------- ops on parts

static int split_n_parts(ct_dtype dtype) { return ct__is_complex(dtype) ? 2 : 1; }

bool ct__split_each(ct_rule *r) {
    const ct_opdef *op = r->node->op;
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    CT_ARENA scratch = {0};
    ct_tensor *in = ct__arena(&scratch, (r->n_in + 1u) * sizeof *in), parts[2] = {CT_NONE, CT_NONE};
    if (!in) return ct__err_memory(&ct__ctx()->err, r->node->here, op->name, r->n_in * sizeof *in);
    for (int p = 0; p < split_n_parts(dtype); p++) {
        for (int i = 0; i < r->n_in; i++) {
            in[i] = r->in[i];
            if (!(op->data >> (i < 31 ? i : 31) & 1)) continue;
            if ((ct_dtype)ct__type_of(in[i])->dtype != dtype) in[i] = ct_cast(in[i], dtype);
            in[i] = ct__part_of(in[i], p);
        }
        parts[p] = ct__record(op, r->attrs, in, r->n_in, r->node->here);
    }
    return ct__set_body(r, ct__of_parts(dtype, parts));
}

// -------------------------------------------------------------------------------------------- casts

static ct_tensor cast_number(double value, ct_tensor like) { return ct__number_like(value, like); }

// Returns the numbers that codes represent: u8, i8 or f32.
static ct_tensor cast_from_codes(ct_tensor code, ct_dtype dtype) {
    if (dtype == CT_U4) return code;
    if (dtype == CT_I4) { // two's complement
        ct_tensor whole = ct_cast(ct_xor(code, cast_number(8, code)), CT_I8);
        return ct_sub(whole, cast_number(8, whole));
    }
    // f4: computes twice the number. Below 4, where the exponent is 0 or 1, it is the code; else it is the
    // mantissa with a leading 1, shifted.
    ct_tensor magnitude = ct_and(code, cast_number(7, code)), one = cast_number(1, code);
    ct_tensor shift = ct_sub(ct_shift_right(magnitude, one), one);
    ct_tensor large = ct_shift_left(ct_or(ct_and(magnitude, one), cast_number(2, code)), shift);
    ct_tensor twice = ct_select(ct_less(magnitude, cast_number(4, code)), magnitude, large);
    ct_tensor value = ct_mul(ct_cast(twice, CT_F32), ct_scalar(0.5, CT_F32));
    return ct_select(ct_less(code, cast_number(8, code)), value, ct_neg(value));
}

// Returns the nearest f4 code, ties to even: the number of midpoints below |x|, and the sign.
static ct_tensor cast_to_f4_code(ct_tensor x) {
    static const double midpoint[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
    if (!ct__is_float((ct_dtype)ct__type_of(x)->dtype) ||
        ct__is_narrow_float((ct_dtype)ct__type_of(x)->dtype))
        x = ct_cast(x, CT_F32);
    const bool wide = ct__type_of(x)->dtype == CT_F64;
    ct_tensor size = ct_abs(x), code = CT_NONE;
    for (int i = 0; i < 7; i++) { // the code above an odd midpoint is even
        ct_tensor limit = cast_number(midpoint[i], x);
        ct_tensor above = ct_cast(i & 1 ? ct_less_equal(limit, size) : ct_less(limit, size), CT_U8);
        code = i ? ct_add(code, above) : above;
    }
    ct_tensor bits = ct_bitcast(x, wide ? CT_U64 : CT_U32);
    ct_tensor negative = ct_cast(ct_shift_right(bits, cast_number(wide ? 63 : 31, bits)), CT_BOOL);
    ct_tensor sign = ct_xor(negative, ct_not_equal(x, x)); // inverted for NaN
    return ct_or(code, ct_shift_left(ct_cast(sign, CT_U8), cast_number(3, code)));
}

static ct_tensor cast_to_codes(ct_tensor x, ct_dtype dtype) {
    const bool is_float = ct__is_float((ct_dtype)ct__type_of(x)->dtype);
    if (dtype == CT_F4) return cast_to_f4_code(x);
    if (!is_float) {
        ct_tensor code = ct_cast(x, CT_U8); // wraps
        return ct_and(code, cast_number(15, code));
    }
    ct_tensor whole = ct_cast(x, dtype == CT_I4 ? CT_I8 : CT_U8); // saturates
    whole = ct_clamp(whole, cast_number((double)ct__int_min(dtype), whole),
                     cast_number((double)ct__int_max(dtype), whole));
    ct_tensor code = ct_cast(whole, CT_U8);
    return ct_and(code, cast_number(15, code));
}

bool ct__split_cast(ct_rule *r) {
    const ct_dtype from = (ct_dtype)ct__type_of(r->in[0])->dtype,
                   to = (ct_dtype)r->node->out->dtype;
    ct_tensor x = r->in[0];
    if (ct__is_complex(to) && from != to) return ct__split_to_complex(r);
    if (from != to) {
        if (ct__has_parts(from)) x = cast_from_codes(ct__part_of(x, 0), from);
        if (ct__has_parts(to)) {
            ct_tensor code = cast_to_codes(x, to);
            x = ct__of_parts(to, &code);
        } else {
            x = ct_cast(x, to);
        }
    }
    return ct__set_body(r, x);
}

bool ct__split_bitcast(ct_rule *r) {
    ct_tensor code = ct__part_of(r->in[0], 0);
    return ct__set_body(r, ct__of_parts((ct_dtype)r->node->out->dtype, &code));
}
