// Random numbers as functions of a key and an index: Threefry-2x32, with the bits of JAX under
// jax_threefry_partitionable=True. A key is an operand, (2,) u32; there is no state.
#include <math.h>

#include "base/threefry.h"
#include "cotan/binding.h"
#include "ops/rules.h"

ct_tensor ct_random_key_at(int64_t seed, ct_loc here) {
    const uint32_t random_words[2] = {(uint32_t)((uint64_t)seed >> 32), (uint32_t)seed};
    return ct_from_at(random_words, CT_U32, CT_DIMS(2), here);
}

ct_tensor ct_random_key_folded_at(int64_t seed, uint64_t number, ct_loc here) {
    const ct_u32x2 lower = {{0, (uint32_t)number}}, upper = {{0, (uint32_t)(number >> 32)}};
    ct_u32x2 key = {{(uint32_t)((uint64_t)seed >> 32), (uint32_t)seed}};
    key = ct__threefry(key, lower);
    if (upper.v[1]) key = ct__threefry(key, upper);
    return ct_from_at(key.v, CT_U32, CT_DIMS(2), here);
}

static bool random_check_key(ct_call *call) {
    const ct_type *key = call->in[0];
    if (key->dtype == CT_U32 && key->rank == 1 && key->dim[0] == 2) return true;
    return ct__call_err(call, CT_E_SHAPE, "the key is %s, it must be (2,) u32",
                        ct__type_text(key).s) ||
           ct__call_hint(call, "a key is ct_random_key(seed), or a row of ct_random_split");
}

typedef struct random_words {
    ct_tensor v[2];
} random_words;

static random_words random_key_words(ct_tensor key) {
    random_words w;
    for (int64_t i = 0; i < 2; i++) {
        int64_t stop = i + 1;
        w.v[i] = ct_reshape(ct_slice(key, .start = {1, &i}, .stop = {1, &stop}), CT_SCALAR);
    }
    return w;
}

static ct_tensor random_rotate_left(ct_tensor x, int64_t by) {
    return ct_or(ct_shift_left(x, ct_i(by)), ct_shift_right(x, ct_i(32 - by)));
}

// The block function of base/threefry.h, on tensors.
static random_words random_threefry(random_words key, random_words x) {
    static const int64_t rotate[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    ct_tensor parity = ct_xor(ct_xor(key.v[0], key.v[1]), ct_i(0x1bd11bda));
    ct_tensor k[3] = {key.v[0], key.v[1], parity};
    ct_tensor a = ct_add(x.v[0], k[0]), b = ct_add(x.v[1], k[1]);
    for (int round = 0; round < 20; round++) {
        a = ct_add(a, b);
        b = ct_xor(random_rotate_left(b, rotate[round & 7]), a);
        if ((round & 3) == 3) {
            int s = round / 4 + 1;
            a = ct_add(a, k[s % 3]);
            // depends on the key only: once per kernel
            b = ct_add(b, ct_add(k[(s + 1) % 3], ct_i(s)));
        }
    }
    return (random_words){{a, b}};
}

// The words for counters 0 to n - 1: (n,) each.
static random_words random_counters(ct_tensor key, int64_t n) {
    const uint32_t zero = 0;
    random_words x = {{ct_const(&zero, CT_U32, CT_SCALAR), ct_iota(CT_U32, ((ct_ints){1, &n}), 0)}};
    return random_threefry(random_key_words(key), x);
}

// -------------------------------------------------------------------------------------------- bits

#define RANDOM_BITS_ATTRS(F, op) F(op, sizes, dims)
CT_ATTRS(random_bits, RANDOM_BITS_ATTRS);
CT_ATTRS(random_uniform, RANDOM_BITS_ATTRS);
CT_ATTRS(random_normal, RANDOM_BITS_ATTRS);
CT_ATTRS(random_bernoulli, RANDOM_BITS_ATTRS);
CT_ATTRS(random_int, RANDOM_BITS_ATTRS);

static bool random_infer(ct_call *call, ct_dtype dtype) {
    const random_bits_attrs *attrs = call->attrs; // all have the same layout
    if (!random_check_key(call) || !ct__type_from_dims(call->arena, dtype, attrs->dims, call->out,
                                                       call->err, call->here, call->op->name))
        return false;
    if (ct__count(call->out) <= UINT32_MAX) return true;
    return ct__call_err(call, CT_E_SHAPE, "%s has more elements than a key has counters, 2^32",
                        ct__type_text(call->out).s);
}

#define RANDOM(ID, op, n)                                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = 1,           \
    .infer = op##_infer, .body = op##_body, .jvp = CT_NO_GRAD

static bool random_bits_infer(ct_call *call) { return random_infer(call, CT_U32); }
static bool random_bits_body(ct_rule *r) {
    const ct_type *out = r->node->out;
    int64_t count = 1;
    for (int a = 0; a < out->rank; a++) count = ct__size_mul(count, ct__size_of(out, a));
    random_words w = random_counters(r->in[0], count);
    return ct__set_body(r, ct__of_type(ct_xor(w.v[0], w.v[1]), out));
}
const ct_opdef ct__op_random_bits = {
    RANDOM(RANDOM_BITS, random_bits, 1),
    CT_FIELDS(random_bits),
    .doc = "32 random bits an element (u32), determined by the key and the element's index.",
    .accepts = CT_MASK(CT_U32),
};

#define RANDOM_SPLIT_ATTRS(F, op) F(op, i64, n)
CT_ATTRS(random_split, RANDOM_SPLIT_ATTRS);
static bool random_split_infer(ct_call *call) {
    const random_split_attrs *attrs = call->attrs;
    if (!random_check_key(call)) return false;
    if (attrs->n < 0 || attrs->n > UINT32_MAX)
        return ct__call_err(call, CT_E_ARGUMENT, "%lld keys are asked for", (long long)attrs->n);
    int64_t *dim = ct__call_dims(call, 2);
    if (!dim) return false;
    dim[0] = attrs->n;
    dim[1] = 2;
    *call->out = (ct_type){.dtype = CT_U32, .rank = 2, .dim = dim};
    return true;
}
static bool random_split_body(ct_rule *r) {
    random_words w = random_counters(r->in[0], ((const random_split_attrs *)r->attrs)->n);
    const ct_tensor columns[2] = {ct__add_last(w.v[0]), ct__add_last(w.v[1])};
    return ct__set_body(r, ct_concat(columns, 2, 1));
}
const ct_opdef ct__op_random_split = {
    RANDOM(RANDOM_SPLIT, random_split, 1),
    CT_FIELDS(random_split),
    .doc = "n new keys (n, 2) from one, which should not be used again.",
    .accepts = CT_MASK(CT_U32),
};

static bool random_fold_in_infer(ct_call *call) {
    if (!random_check_key(call)) return false;
    if (call->in[1]->rank != 0 || !(CT_INTEGERS & CT_MASK(call->in[1]->dtype)))
        return ct__call_err(call, CT_E_DTYPE, "the number to fold in is %s, it must be one integer",
                            ct__type_text(call->in[1]).s);
    *call->out = *call->in[0];
    return true;
}
static bool random_fold_in_body(ct_rule *r) {
    const uint32_t zero = 0;
    random_words x = {{ct_const(&zero, CT_U32, CT_SCALAR), ct_cast(r->in[1], CT_U32)}};
    random_words w = random_threefry(random_key_words(r->in[0]), x);
    const ct_tensor parts[2] = {ct__add_last(w.v[0]), ct__add_last(w.v[1])};
    return ct__set_body(r, ct_concat(parts, 2, 0));
}
const ct_opdef ct__op_random_fold_in = {
    RANDOM(RANDOM_FOLD_IN, random_fold_in, 2),
    .doc = "A new key from a key and an integer, such as a step number (its lower 32 bits count).",
    .accepts = CT_MASK(CT_U32),
};

// ----------------------------------------------------------------------------------- distributions

static bool random_uniform_infer(ct_call *call) { return random_infer(call, CT_F32); }
static bool random_uniform_body(ct_rule *r) { // 23 bits as the mantissa of a number in [1, 2)
    const random_uniform_attrs *attrs = r->attrs;
    ct_tensor bits = ct_shift_right(ct_random_bits(r->in[0], attrs->dims), ct_i(9));
    ct_tensor above = ct_bitcast(ct_or(bits, ct_i(0x3f800000)), CT_F32);
    return ct__set_body(r, ct_sub(above, ct_f(1)));
}
const ct_opdef ct__op_random_uniform = {
    RANDOM(RANDOM_UNIFORM, random_uniform, 1),
    CT_FIELDS(random_uniform),
    .doc = "Numbers (f32) from 0 to 1, 1 excluded, all equally likely.",
    .accepts = CT_MASK(CT_U32),
};

static bool random_normal_infer(ct_call *call) { return random_infer(call, CT_F32); }
static bool random_normal_body(ct_rule *r) { // uniform over (-1, 1), through the inverse of erf
    const random_normal_attrs *attrs = r->attrs;
    ct_tensor low = ct_f((double)-0x1.fffffep-1f), u = ct_random_uniform(r->in[0], attrs->dims);
    ct_tensor wide = ct_maximum(ct_add(ct_mul(u, ct_f(2)), low), low);
    return ct__set_body(r, ct_mul(ct_erfinv(wide), ct_f(1.4142135623730951)));
}
const ct_opdef ct__op_random_normal = {
    RANDOM(RANDOM_NORMAL, random_normal, 1),
    CT_FIELDS(random_normal),
    .doc = "Numbers (f32) with the normal distribution of mean 0 and variance 1.",
    .accepts = CT_MASK(CT_U32),
    .samples = {.ulp = 16},
};

static bool random_check_scalar(ct_call *call, int operand, const char *what) {
    const ct_type *type = call->in[operand];
    if (type->rank == 0 && ct__is_float(type->dtype)) return true;
    return ct__call_err(call, CT_E_DTYPE, "%s is %s, it must be one float", what,
                        ct__type_text(type).s) ||
           ct__call_hint(call, "a number is ct_f(0.5)");
}

static bool random_bernoulli_infer(ct_call *call) {
    return random_check_scalar(call, 1, "the probability") && random_infer(call, CT_BOOL);
}
static bool random_bernoulli_body(ct_rule *r) {
    const random_bernoulli_attrs *attrs = r->attrs;
    return ct__set_body(
        r, ct_less(ct_random_uniform(r->in[0], attrs->dims), ct_cast(r->in[1], CT_F32)));
}
const ct_opdef ct__op_random_bernoulli = {
    RANDOM(RANDOM_BERNOULLI, random_bernoulli, 2),
    CT_FIELDS(random_bernoulli),
    .doc = "Bools that hold with probability p: never below 0 or of NaN, always above 1.",
    .accepts = CT_MASK(CT_U32),
};

static bool random_int_infer(ct_call *call) {
    for (int i = 1; i < 3; i++)
        if (call->in[i]->rank != 0 || call->in[i]->dtype != CT_I32)
            return ct__call_err(call, CT_E_DTYPE, "bound %d is %s, it must be one i32", i,
                                ct__type_text(call->in[i]).s) ||
                   ct__call_hint(call, "a number is ct_i(10)");
    return random_infer(call, CT_I32);
}
// Two words per element are taken as one 64-bit number modulo the span, bit for bit as in JAX. `unit` is
// 2^32 modulo the span, the weight of the upper word.
static bool random_int_body(ct_rule *r) {
    const random_int_attrs *attrs = r->attrs;
    ct_tensor low = r->in[1], high = r->in[2], keys = ct_random_split(r->in[0], 2), half[2];
    for (int64_t i = 0; i < 2; i++) {
        int64_t stop = i + 1;
        ct_tensor key = ct_slice(keys, .start = {1, &i}, .stop = {1, &stop});
        half[i] = ct_random_bits(ct_reshape(key, CT_DIMS(2)), attrs->dims);
    }
    ct_tensor span = ct_cast(ct_sub(high, low), CT_U32);
    span = ct_select(ct_less_equal(high, low), ct_i(1), span);
    ct_tensor unit = ct_mod(ct_cast(ct_i(65536), CT_U32), span);
    unit = ct_mod(ct_mul(unit, unit), span);
    ct_tensor offset = ct_add(ct_mul(ct_mod(half[0], span), unit), ct_mod(half[1], span));
    return ct__set_body(r, ct_add(low, ct_cast(ct_mod(offset, span), CT_I32)));
}
const ct_opdef ct__op_random_int = {
    RANDOM(RANDOM_INT, random_int, 3),
    CT_FIELDS(random_int),
    .doc = "Whole numbers (i32) from low to high, high excluded; low where high is not above it.",
    .accepts = CT_MASK(CT_U32),
};

// ----------------------------------------------------------------------------------------- dropout

static bool dropout_infer(ct_call *call) {
    const ct_type *key = call->in[1];
    if (!ct__check_accepts(call, 0)) return false;
    if (key->dtype != CT_U32 || key->rank != 1 || key->dim[0] != 2)
        return ct__call_err(call, CT_E_SHAPE, "the key is %s, it must be (2,) u32",
                            ct__type_text(key).s) ||
               ct__call_hint(call, "a key is ct_random_key(seed), or a row of ct_random_split");
    *call->out = *call->in[0];
    return random_check_scalar(call, 2, "the rate");
}
static bool dropout_body(ct_rule *r) {
    ct_dims_buffer dims;
    ct_tensor x = r->in[0], rate = r->in[2];
    ct_dtype dtype = (ct_dtype)ct__type_of(x)->dtype;
    ct_tensor u = ct_random_uniform(r->in[1], ct__dims_of(x, &dims));
    ct_tensor keep = ct_greater_equal(u, ct_cast(rate, CT_F32));
    rate = ct_cast(rate, dtype);
    ct_tensor scale = ct_div(ct_f(1), ct_sub(ct_f(1), rate));
    scale = ct_select(ct_less(rate, ct_f(1)), scale, ct_f(0)); // infinity times 0 is NaN
    return ct__set_body(r, ct_select(keep, ct_mul(x, scale), ct_f(0)));
}
const ct_opdef ct__op_dropout = {
    CT_COMPOSED(DROPOUT, dropout, 3, 1),
    .doc = "x where a draw from the key is at least `rate` (one float), divided by 1 - rate; else "
           "0. For training: in evaluation it is left out.",
    .accepts = CT_FLOATS,
    .widens = true,
    .onnx = "Dropout",
};
