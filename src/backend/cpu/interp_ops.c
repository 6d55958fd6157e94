// The interpreter's instructions, each a function, made of the operations of compiled kernels. This
// file is compiled once for each vector width (CMakeLists.txt); the results are equal, only the
// speed differs. clang-format is off because it takes lists of macros for statements.
// clang-format off
#include <stddef.h>

#include "backend/cpu/interp_code.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wtype-limits"
#include "backend/cpu/prelude.inc"
#include "backend/prelude_shared.inc"
#pragma GCC diagnostic pop
#pragma GCC diagnostic ignored "-Wconversion" // C's promotion of small types is intended

#ifndef CT_INTERP_TABLE
#define CT_INTERP_TABLE ct__interp_base
#endif

typedef bool t_b;
typedef u8 t_u8;
typedef i32 t_i32;
typedef u32 t_u32;
typedef i64 t_i64;
typedef u64 t_u64;
typedef f32 t_f32;
typedef f64 t_f64;

#define FRAME ((const ct_iframe *)(const void *)f)
#define S(t, slot) (*(t_##t *)(void *)(f + (slot)))
#define W(t, slot, u) (((t##x16 *)(void *)(f + (slot)))[u])
#define DO(name) static const ct_iins *name(char *f, const ct_iins *i)
#define GROUPS(n) for (int u = 0, n = (int)FRAME->groups; u < n; u++)

#define INT_TYPES(X) X(u8, U8) X(i32, I32) X(u32, U32) X(i64, I64) X(u64, U64)
#define FLOAT_TYPES(X) X(f32, F32) X(f64, F64)
#define NUMBERS(X) INT_TYPES(X) FLOAT_TYPES(X)
#define ALL_TYPES(X) NUMBERS(X) X(b, BOOL)

// ------------------------------------------------------------------------------------ arithmetic

#define BINARY(op, t, expr)                                                                        \
    DO(op##_##t##_s) {                                                                             \
        t_##t x = S(t, i->a), y = S(t, i->b);                                                      \
        S(t, i->d) = (t_##t)(expr);                                                                \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(op##_##t##_w) {                                                                             \
        GROUPS(n) W(t, i->d, u) = op##_##t(W(t, i->a, u), W(t, i->b, u));                          \
        return i + 1;                                                                              \
    }
#define COMPARE(op, t, infix)                                                                      \
    DO(op##_##t##_s) {                                                                             \
        S(b, i->d) = S(t, i->a) infix S(t, i->b);                                                  \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(op##_##t##_w) {                                                                             \
        GROUPS(n) W(b, i->d, u) = op##_##t(W(t, i->a, u), W(t, i->b, u));                          \
        return i + 1;                                                                              \
    }
#define UNARY(op, t, expr)                                                                         \
    DO(op##_##t##_s) {                                                                             \
        t_##t x = S(t, i->a);                                                                      \
        S(t, i->d) = (t_##t)(expr);                                                                \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(op##_##t##_w) {                                                                             \
        GROUPS(n) W(t, i->d, u) = op##_##t(W(t, i->a, u));                                         \
        return i + 1;                                                                              \
    }

#define TERNARY(op, t, expr)                                                                       \
    DO(op##_##t##_s) {                                                                             \
        t_##t x = S(t, i->a), y = S(t, i->b), z = S(t, i->c);                                      \
        S(t, i->d) = (t_##t)(expr);                                                                \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(op##_##t##_w) {                                                                             \
        GROUPS(n) W(t, i->d, u) = op##_##t(W(t, i->a, u), W(t, i->b, u), W(t, i->c, u));           \
        return i + 1;                                                                              \
    }

#define OF_NUMBERS(t, T)                                                                           \
    BINARY(add, t, x + y) BINARY(sub, t, x - y) BINARY(mul, t, x * y)                              \
    BINARY(min, t, s_min_##t(x, y)) BINARY(max, t, s_max_##t(x, y))                                \
    BINARY(mod, t, s_mod_##t(x, y)) UNARY(neg, t, -x) UNARY(abs, t, s_abs_##t(x))                  \
    COMPARE(lt, t, <) COMPARE(le, t, <=) COMPARE(eq, t, ==) COMPARE(ne, t, !=)
#define OF_INTS(t, T)                                                                              \
    BINARY(div, t, s_div_##t(x, y)) BINARY(shl, t, s_shl_##t(x, y))                                \
    BINARY(shr, t, s_shr_##t(x, y)) BINARY(and, t, x & y) BINARY(or, t, x | y)                     \
    BINARY(xor, t, x ^ y) UNARY(not, t, ~x)
#define OF_FLOATS(t, T)                                                                            \
    BINARY(div, t, x / y) UNARY(sqrt, t, s_sqrt_##t(x)) UNARY(floor, t, s_floor_##t(x))            \
    UNARY(ceil, t, s_ceil_##t(x)) UNARY(round, t, s_round_##t(x))                                  \
    UNARY(trunc, t, s_trunc_##t(x)) BINARY(scale, t, s_scale_##t(x, y))                            \
    TERNARY(fma, t, s_fma_##t(x, y, z))

NUMBERS(OF_NUMBERS) INT_TYPES(OF_INTS) FLOAT_TYPES(OF_FLOATS)
TERNARY(dot4, i32, s_dot4_i32(x, y, z))
DO(dot2_u32_s) {
    S(f32, i->d) = s_dot2_u32(S(u32, i->a), S(u32, i->b), S(f32, i->c));
    return i + 1;
}
DO(dot2_u32_w) {
    GROUPS(n) W(f32, i->d, u) = dot2_u32(W(u32, i->a, u), W(u32, i->b, u), W(f32, i->c, u));
    return i + 1;
}
#define UNPACK_HALF(name)                                                                          \
    DO(name##_u32_s) {                                                                             \
        S(f32, i->d) = s_##name##_u32(S(u32, i->a));                                               \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(name##_u32_w) {                                                                             \
        GROUPS(n) W(f32, i->d, u) = name##_u32(W(u32, i->a, u));                                   \
        return i + 1;                                                                              \
    }
UNPACK_HALF(low_half)
UNPACK_HALF(high_half)
DO(lookup4_i32_s) {
    S(i32, i->d) = s_lookup4_i32(S(i32, i->a), S(i64, i->b), S(i64, i->c));
    return i + 1;
}
DO(lookup4_i32_w) {
    GROUPS(n) W(i32, i->d, u) = lookup4_i32(W(i32, i->a, u), W(i64, i->b, u).a[0], W(i64, i->c, u).a[0]);
    return i + 1;
}
BINARY(and, b, x & y) BINARY(or, b, x | y) BINARY(xor, b, x ^ y) UNARY(not, b, !x)
COMPARE(lt, b, <) COMPARE(le, b, <=) COMPARE(eq, b, ==) COMPARE(ne, b, !=)

// ---------------------------------------------------------------------------- moving and choosing

DO(copy_s) {
    S(i64, i->d) = S(i64, i->a);
    return i + 1;
}
DO(const_s) {
    S(i64, i->d) = i->imm.i;
    return i + 1;
}
DO(const_f32) {
    S(f32, i->d) = (f32)i->imm.f;
    return i + 1;
}
DO(arg_s) {
    S(i64, i->d) = FRAME->args[i->imm.i];
    return i + 1;
}
DO(select_s) { // any scalar
    S(i64, i->d) = S(b, i->a) ? S(i64, i->b) : S(i64, i->c);
    return i + 1;
}
DO(ramp_w) {
    i64 base = S(i64, i->a), stride = i->imm.i;
    GROUPS(n) W(i64, i->d, u) = iota_i64(base + CT_LANES * u * stride, stride);
    return i + 1;
}
#define MOVES(t, T)                                                                                \
    DO(copy_##t##_w) {                                                                             \
        GROUPS(n) W(t, i->d, u) = W(t, i->a, u);                                                   \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(splat_all_##t) { /* all groups: made outside of a LANES loop, used inside */                \
        t##x16 x = splat_##t(S(t, i->a));                                                          \
        for (int u = 0; u < CT_GROUPS; u++) W(t, i->d, u) = x;                                     \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(select_##t##_w) {                                                                           \
        GROUPS(n) W(t, i->d, u) = sel_##t(W(b, i->a, u), W(t, i->b, u), W(t, i->c, u));            \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(select_uniform_##t) {                                                                       \
        uint32_t from = S(b, i->a) ? i->b : i->c;                                                  \
        GROUPS(n) W(t, i->d, u) = W(t, from, u);                                                   \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(zip_low_##t##_w) {                                                                          \
        W(t, i->d, 0) = zip_low_##t(W(t, i->a, 0), W(t, i->b, 0));                                 \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(zip_high_##t##_w) {                                                                         \
        W(t, i->d, 0) = zip_high_##t(W(t, i->a, 0), W(t, i->b, 0));                                \
        return i + 1;                                                                              \
    }
ALL_TYPES(MOVES)
#define FILLS(t, T)                                                                                \
    DO(fill_##t) {                                                                                 \
        t_##t x = S(t, i->a), *to = &S(t, i->d);                                                   \
        for (i64 l = 0; l < i->imm.i; l++) to[l] = x;                                              \
        return i + 1;                                                                              \
    }
ALL_TYPES(FILLS)

// ------------------------------------------------------------------------------------------ casts

#define CAST(t, s, scalar)                                                                         \
    DO(t##_from_##s##_s) {                                                                         \
        t_##s x = S(s, i->a);                                                                      \
        S(t, i->d) = scalar;                                                                       \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(t##_from_##s##_w) {                                                                         \
        GROUPS(n) W(t, i->d, u) = t##_of_##s(W(s, i->a, u));                                       \
        return i + 1;                                                                              \
    }
#define TO_BOOL(s, T)                                                                              \
    DO(b_from_##s##_s) {                                                                           \
        S(b, i->d) = 0 != S(s, i->a);                                                              \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(b_from_##s##_w) {                                                                           \
        GROUPS(n) W(b, i->d, u) = ne_##s(splat_##s(0), W(s, i->a, u));                             \
        return i + 1;                                                                              \
    }
#define FROM_BOOL(t, T) CAST(t, b, (t_##t)x)
#define PLAIN_CAST(t, s) CAST(t, s, (t_##t)x)
#define TRUNCATION(t, s) CAST(t, s, s_##t##_of_##s(x))
NUMBERS(TO_BOOL) NUMBERS(FROM_BOOL)
PLAIN_CAST(u8, i32) PLAIN_CAST(u8, u32) PLAIN_CAST(u8, i64) TRUNCATION(u8, f32) TRUNCATION(u8, f64)
PLAIN_CAST(i32, u8) PLAIN_CAST(i32, u32) PLAIN_CAST(i32, i64) TRUNCATION(i32, f32) TRUNCATION(i32, f64)
PLAIN_CAST(u32, u8) PLAIN_CAST(u32, i32) PLAIN_CAST(u32, i64) TRUNCATION(u32, f32) TRUNCATION(u32, f64)
PLAIN_CAST(i64, u8) PLAIN_CAST(i64, i32) PLAIN_CAST(i64, u32) TRUNCATION(i64, f32) TRUNCATION(i64, f64)
PLAIN_CAST(u64, u8) PLAIN_CAST(u64, i32) PLAIN_CAST(u64, u32) PLAIN_CAST(u64, i64) TRUNCATION(u64, f32) TRUNCATION(u64, f64)
PLAIN_CAST(u8, u64) PLAIN_CAST(i32, u64) PLAIN_CAST(u32, u64) PLAIN_CAST(i64, u64) PLAIN_CAST(f32, u64) PLAIN_CAST(f64, u64)
PLAIN_CAST(f32, u8) PLAIN_CAST(f32, i32) PLAIN_CAST(f32, u32) PLAIN_CAST(f32, i64) PLAIN_CAST(f32, f64)
PLAIN_CAST(f64, u8) PLAIN_CAST(f64, i32) PLAIN_CAST(f64, u32) PLAIN_CAST(f64, i64) PLAIN_CAST(f64, f32)

#define ROUND_TO(h)                                                                                \
    DO(round_to_##h##_s) {                                                                         \
        S(f32, i->d) = s_round_to_##h(S(f32, i->a));                                               \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(round_to_##h##_w) {                                                                         \
        GROUPS(n) W(f32, i->d, u) = round_to_##h(W(f32, i->a, u));                                 \
        return i + 1;                                                                              \
    }
ROUND_TO(f16) ROUND_TO(bf16) ROUND_TO(f8e4m3) ROUND_TO(f8e5m2)

// ----------------------------------------------------------------------------------------- memory

// Returns the lanes of group u that an access touches.
static inline unsigned interp_active_lanes(const char *f, const ct_iins *i, int u) {
    unsigned k = FRAME->mask[u];
    if (!i->c) return k;
    if (!i->flag) return *(const bool *)(f + i->c) ? k : 0;
    return k & bits_of(((const bx16 *)(const void *)(f + i->c))[u]);
}
static inline unsigned interp_count_mask(const char *f, uint32_t slot) {
    return slot ? lanes_below(*(const i64 *)(const void *)(f + slot)) : ALL;
}
#define AS_IS(x) x
// Storage type m (named M) of values of type t; up and down convert vectors, s_up and s_down
// scalars.
#define MEMORY_OF(M, t, m, up, down, s_up, s_down)                                                 \
    DO(load_##M##_s) {                                                                             \
        const m *p = FRAME->bufs[i->buf];                                                          \
        S(t, i->d) = !i->c || S(b, i->c) ? s_up(p[S(i64, i->a)]) : 0;                              \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(load_##M##_w) {                                                                             \
        const m *p = (const m *)FRAME->bufs[i->buf] + S(i64, i->a);                                \
        GROUPS(n) {                                                                                \
            unsigned k = interp_active_lanes(f, i, u);                                             \
            t##x16 none = splat_##t(0);                                                            \
            W(t, i->d, u) = k ? sel_##t(mask_of(k), splat_##t(s_up(*p)), none) : none;             \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(load_s_##M) {                                                                               \
        const m *p = (const m *)FRAME->bufs[i->buf] + S(i64, i->a);                                \
        i64 s = i->imm.i;                                                                          \
        GROUPS(n) {                                                                                \
            unsigned k = interp_active_lanes(f, i, u);                                             \
            const m *at = p + CT_LANES * u * s;                                                    \
            W(t, i->d, u) = up(s != 1     ? lds_##m(at, s, k)                                      \
                               : k == ALL ? ld_##m(at)                                             \
                                          : ldm_##m(at, k));                                       \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(load_g_##M) {                                                                               \
        const m *p = FRAME->bufs[i->buf];                                                          \
        GROUPS(n) W(t, i->d, u) = up(ldg_##m(p, W(i64, i->a, u), interp_active_lanes(f, i, u)));   \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(load_n_##M) {                                                                               \
        const m *p = (const m *)FRAME->bufs[i->buf] + S(i64, i->a);                                \
        W(t, i->d, 0) = up(ldm_##m(p, interp_count_mask(f, i->b)));                                \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(store_##M) {                                                                                \
        m *p = FRAME->bufs[i->buf];                                                                \
        if (!i->c || S(b, i->c)) p[S(i64, i->a)] = s_down(S(t, i->b));                             \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(store_s_##M) {                                                                              \
        m *p = (m *)FRAME->bufs[i->buf] + S(i64, i->a);                                            \
        i64 s = i->imm.i;                                                                          \
        GROUPS(n) {                                                                                \
            unsigned k = interp_active_lanes(f, i, u);                                             \
            m *at = p + CT_LANES * u * s;                                                          \
            if (s != 1)                                                                            \
                sts_##m(at, s, k, down(W(t, i->b, u)));                                            \
            else                                                                                   \
                stm_##m(at, k, down(W(t, i->b, u)));                                               \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(store_g_##M) {                                                                              \
        m *p = FRAME->bufs[i->buf];                                                                \
        GROUPS(n) stg_##m(p, W(i64, i->a, u), interp_active_lanes(f, i, u), down(W(t, i->b, u)));  \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(store_n_##M) {                                                                              \
        m *p = (m *)FRAME->bufs[i->buf] + S(i64, i->a);                                            \
        stm_##m(p, interp_count_mask(f, i->c), down(W(t, i->b, 0)));                               \
        return i + 1;                                                                              \
    }
#define MEMORIES(X)                                                                                \
    X(BOOL, b, u8, up_bool, down_bool, s_up_bool, AS_IS)                                           \
    X(U8, u8, u8, AS_IS, AS_IS, AS_IS, AS_IS)                                                      \
    X(I32, i32, i32, AS_IS, AS_IS, AS_IS, AS_IS)                                                   \
    X(U32, u32, u32, AS_IS, AS_IS, AS_IS, AS_IS)                                                   \
    X(I64, i64, i64, AS_IS, AS_IS, AS_IS, AS_IS)                                                   \
    X(U64, u64, u64, AS_IS, AS_IS, AS_IS, AS_IS)                                                   \
    X(I8, i32, i8, up_i8, down_i8, s_up_i8, s_down_i8)                                             \
    X(I16, i32, i16, up_i16, down_i16, s_up_i16, s_down_i16)                                       \
    X(U16, i32, u16, up_u16, down_u16, s_up_u16, s_down_u16)                                       \
    X(F8E4M3, f32, u8, up_f8e4m3, down_f8e4m3, s_up_f8e4m3, s_down_f8e4m3)                         \
    X(F8E5M2, f32, u8, up_f8e5m2, down_f8e5m2, s_up_f8e5m2, s_down_f8e5m2)                         \
    X(F16, f32, u16, up_f16, down_f16, s_up_f16, s_down_f16)                                       \
    X(BF16, f32, u16, up_bf16, down_bf16, s_up_bf16, s_down_bf16)                                  \
    X(F32, f32, f32, AS_IS, AS_IS, AS_IS, AS_IS)                                                   \
    X(F64, f64, f64, AS_IS, AS_IS, AS_IS, AS_IS)
MEMORIES(MEMORY_OF)

// ------------------------------------------------------------------------------------------ loops

// Sets the frame up for the next iterations of a LANES loop: `strip` (imm) of them or the rest.
static inline void interp_set_strip(char *f, i64 rest, i64 strip) {
    ct_iframe *h = (void *)f;
    h->groups = ((rest < strip ? rest : strip) + CT_LANES - 1) / CT_LANES;
    for (int u = 0; u < CT_GROUPS; u++) h->mask[u] = lanes_below(rest - CT_LANES * u);
}
DO(interp_seq) {
    S(i64, i->d) = 0;
    return S(i64, i->a) > 0 ? i + 1 : i + i->buf;
}
DO(interp_seq_next) { return ++S(i64, i->d) < S(i64, i->a) ? i + i->buf : i + 1; }
DO(interp_vector) {
    S(i64, i->d) = 0;
    if (S(i64, i->a) <= 0) return i + i->buf;
    interp_set_strip(f, S(i64, i->a), i->imm.i);
    return i + 1;
}
DO(interp_vector_next) {
    i64 rest = S(i64, i->a) - (S(i64, i->d) += i->imm.i);
    if (rest > 0) {
        interp_set_strip(f, rest, i->imm.i);
        return i + i->buf;
    }
    ((ct_iframe *)(void *)f)->groups = 1;
    ((ct_iframe *)(void *)f)->mask[0] = ALL;
    return i + 1;
}
DO(interp_rows) {
    S(i64, i->d) = FRAME->begin;
    return FRAME->begin < FRAME->end ? i + 1 : i + i->buf;
}
DO(interp_rows_next) { return ++S(i64, i->d) < FRAME->end ? i + i->buf : i + 1; }
DO(interp_break_if) { return S(b, i->a) ? i + i->buf : i + 1; }
DO(interp_skip_unless) { return S(b, i->a) ? i + 1 : i + i->buf; }
DO(interp_skip_if_none) {
    GROUPS(n) if (any(W(b, i->a, u))) return i + 1;
    return i + i->buf;
}
DO(interp_stop) {
    (void)f, (void)i;
    return NULL;
}

// ------------------------------------------------------------------------------------- reductions

#define START(t) ((t_##t)(_Generic((t_##t)0, f32 : i->imm.f, f64 : i->imm.f, default : i->imm.i)))
// Inactive lanes give the start value, which changes nothing.
#define MASKED_LANES(t, u)                                                                         \
    (FRAME->mask[u] == ALL ? W(t, i->a, u)                                                         \
                          : sel_##t(mask_of(FRAME->mask[u]), W(t, i->a, u), splat_##t(START(t))))
#define ACCUMULATE_LANES(op, t)                                                                    \
    DO(accumulate_##op##_##t##_lanes) {                                                            \
        t##x16 sum = W(t, i->d, 0);                                                                \
        GROUPS(n) sum = op##_##t(sum, MASKED_LANES(t, u));                                         \
        W(t, i->d, 0) = sum;                                                                       \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(fold_##op##_##t##_s) {                                                                      \
        S(t, i->d) = fold_##op##_##t(W(t, i->a, 0));                                               \
        return i + 1;                                                                              \
    }
// The order does not change the bits: one accumulator.
#define FREE_ORDER(op, t)                                                                          \
    ACCUMULATE_LANES(op, t)                                                                        \
    DO(accumulate_##op##_##t##_wide) {                                                             \
        GROUPS(n) W(t, i->d, u) = op##_##t(W(t, i->d, u), W(t, i->a, u));                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(accumulate_##op##_##t##_scalar) {                                                           \
        S(t, i->d) = s_##op##_##t(S(t, i->d), S(t, i->a));                                         \
        return i + 1;                                                                              \
    }
// The order changes the bits: 16 accumulators by index, and a tree of blocks. A block is pushed
// into the tree where it ends (END_BLOCK); the last, shorter one after the loop (RESULT). Without a
// tree (c is 0) there is one block.
#define ORDERED(op, t)                                                                             \
    TREE(op##_##t, t, s_##op##_##t)                                                                \
    TREE(op##x_##t, t##x16, op##_##t)                                                              \
    ACCUMULATE_LANES(op, t)                                                                        \
    DO(accumulate_##op##_##t##_wide) {                                                             \
        uint32_t d =                                                                               \
            i->d + (uint32_t)(S(i64, i->b) & 15) * (uint32_t)(CT_GROUPS * sizeof(t##x16));         \
        GROUPS(n) W(t, d, u) = op##_##t(W(t, d, u), W(t, i->a, u));                                \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(accumulate_##op##_##t##_scalar) {                                                           \
        t *sum = &S(t, i->d) + (S(i64, i->b) & 15);                                                \
        *sum = s_##op##_##t(*sum, S(t, i->a));                                                     \
        return i + 1;                                                                              \
    }                                                                                              \
    static void push_block_##op##_##t##_lanes(char *f, const ct_iins *i, uint32_t acc) {           \
        tree_##op##_##t *tree = (void *)(f + i->c);                                                \
        push_##op##_##t(tree, 0, fold_##op##_##t(W(t, acc, 0)), START(t));                         \
        W(t, acc, 0) = splat_##t(START(t));                                                        \
    }                                                                                              \
    static void fold_accumulators_##op##_##t(char *f, uint32_t acc, int u) {                       \
        t##x16(*sum)[CT_GROUPS] = (void *)(f + acc);                                               \
        for (int h = 8; h; h >>= 1)                                                                \
            for (int l = 0; l < h; l++) sum[l][u] = op##_##t(sum[l][u], sum[l + h][u]);            \
    }                                                                                              \
    static void push_block_##op##_##t##_wide(char *f, const ct_iins *i, uint32_t acc) {            \
        tree_##op##x_##t *tree = (void *)(f + i->c);                                               \
        t##x16 start = splat_##t(START(t));                                                        \
        GROUPS(n) {                                                                                \
            fold_accumulators_##op##_##t(f, acc, u);                                               \
            push_##op##x_##t(&tree[u], 0, W(t, acc, u), start);                                    \
            for (int l = 0; l < CT_LANES; l++) W(t, acc, l *CT_GROUPS + u) = start;                \
        }                                                                                          \
    }                                                                                              \
    static void push_block_##op##_##t##_scalar(char *f, const ct_iins *i, uint32_t acc) {          \
        t *sum = &S(t, acc);                                                                       \
        FOLD_ARRAY(sum, s_##op##_##t);                                                             \
        push_##op##_##t((void *)(f + i->c), 0, *sum, START(t));                                    \
        EACH(sum, START(t));                                                                       \
    }                                                                                              \
    END_OF_BLOCK(op, t, lanes)                                                                     \
    END_OF_BLOCK(op, t, wide)                                                                      \
    END_OF_BLOCK(op, t, scalar)                                                                    \
    DO(result_##op##_##t##_lanes) {                                                                \
        if (!i->c) return fold_##op##_##t##_s(f, i);                                               \
        if (S(i64, i->b) % CT_REDUCE_BLOCK) push_block_##op##_##t##_lanes(f, i, i->a);             \
        S(t, i->d) = total_##op##_##t((void *)(f + i->c), START(t));                               \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(result_##op##_##t##_wide) {                                                                 \
        tree_##op##x_##t *tree = (void *)(f + i->c);                                               \
        if (i->c && S(i64, i->b) % CT_REDUCE_BLOCK) push_block_##op##_##t##_wide(f, i, i->a);      \
        GROUPS(n) {                                                                                \
            if (!i->c) fold_accumulators_##op##_##t(f, i->a, u);                                   \
            W(t, i->d, u) =                                                                        \
                i->c ? total_##op##x_##t(&tree[u], splat_##t(START(t))) : W(t, i->a, u);           \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(result_##op##_##t##_scalar) {                                                               \
        t *sum = &S(t, i->a);                                                                      \
        if (i->c && S(i64, i->b) % CT_REDUCE_BLOCK) push_block_##op##_##t##_scalar(f, i, i->a);    \
        if (!i->c) FOLD_ARRAY(sum, s_##op##_##t);                                                  \
        S(t, i->d) = i->c ? total_##op##_##t((void *)(f + i->c), START(t)) : *sum;                 \
        return i + 1;                                                                              \
    }
// flag: iterations in one round of the loop; a: its extent.
#define END_OF_BLOCK(op, t, mode)                                                                  \
    DO(end_of_block_##op##_##t##_##mode) {                                                         \
        i64 next = S(i64, i->b) + i->flag;                                                         \
        if (next % CT_REDUCE_BLOCK == 0 && next <= S(i64, i->a))                                   \
            push_block_##op##_##t##_##mode(f, i, i->d);                                            \
        return i + 1;                                                                              \
    }
// The first index of the best value.
#define ARG_INDEX(op, t)                                                                           \
    DO(accumulate_arg##op##_##t##_lanes) {                                                         \
        t##x16 best = W(t, i->d, 0);                                                               \
        i64x16 index = W(i64, i->c, 0);                                                            \
        GROUPS(n) {                                                                                \
            t##x16 x = MASKED_LANES(t, u);                                                         \
            bx16 better = better_##op##_##t(x, best);                                              \
            best = sel_##t(better, x, best);                                                       \
            index = sel_i64(better, iota_i64(S(i64, i->b) + CT_LANES * u, 1), index);              \
        }                                                                                          \
        W(t, i->d, 0) = best;                                                                      \
        W(i64, i->c, 0) = index;                                                                   \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(accumulate_arg##op##_##t##_wide) {                                                          \
        i64x16 at = splat_i64(S(i64, i->b));                                                       \
        GROUPS(n) {                                                                                \
            t##x16 x = W(t, i->a, u);                                                              \
            bx16 better = better_##op##_##t(x, W(t, i->d, u));                                     \
            W(t, i->d, u) = sel_##t(better, x, W(t, i->d, u));                                     \
            W(i64, i->c, u) = sel_i64(better, at, W(i64, i->c, u));                                \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(accumulate_arg##op##_##t##_scalar) {                                                        \
        if (s_better_##op##_##t(S(t, i->a), S(t, i->d))) {                                         \
            S(t, i->d) = S(t, i->a);                                                               \
            S(i64, i->c) = S(i64, i->b);                                                           \
        }                                                                                          \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(result_arg##op##_##t##_lanes) {                                                             \
        S(i64, i->d) = argfold_##op##_##t(W(t, i->a, 0), W(i64, i->c, 0));                         \
        return i + 1;                                                                              \
    }
DO(index_wide) {
    GROUPS(n) W(i64, i->d, u) = W(i64, i->c, u);
    return i + 1;
}
DO(index_scalar) {
    S(i64, i->d) = S(i64, i->c);
    return i + 1;
}
#define FREE_INTS(t, T) FREE_ORDER(add, t) FREE_ORDER(mul, t) FREE_ORDER(and, t) FREE_ORDER(or, t)
#define FREE_NUMBERS(t, T) FREE_ORDER(max, t) FREE_ORDER(min, t) ARG_INDEX(max, t) ARG_INDEX(min, t)
#define ORDERED_FLOATS(t, T) ORDERED(add, t) ORDERED(mul, t)
INT_TYPES(FREE_INTS) NUMBERS(FREE_NUMBERS) FREE_ORDER(or, b) FREE_ORDER(and, b) FLOAT_TYPES(ORDERED_FLOATS)

// ------------------------------------------------------------------------------------------ tiles

typedef struct { // the addresses that a part of a tile reads, and their strides per step of k
    const char *from[16];
    i64 step[16];
} tile_side;

// R rows by V vectors of a tile from (row, vector) on.
#define UNROLLED _Pragma("GCC unroll 8") for
#define TILE_PART(t, R, V)                                                                         \
    static void tile_##t##_##R##x##V(char *f, const ct_itile *tile, const tile_side *a,            \
                                     const tile_side *b, int row, int vector, i64 n) {             \
        t##x16 acc[R][V], y[V];                                                                    \
        const uint32_t *slot = tile->acc + row * tile->vectors + vector;                           \
        UNROLLED (int r = 0; r < R; r++)                                                           \
            UNROLLED (int v = 0; v < V; v++) acc[r][v] = W(t, slot[r * tile->vectors + v], 0);     \
        for (i64 k = 0; k < n; k++) {                                                              \
            UNROLLED (int v = 0; v < V; v++) {                                                     \
                const t *from = (const t *)(const void *)b->from[vector + v];                      \
                y[v] = ld_##t(from + k * b->step[vector + v]);                                     \
            }                                                                                      \
            UNROLLED (int r = 0; r < R; r++) {                                                     \
                const t *from = (const t *)(const void *)a->from[row + r];                         \
                t##x16 x = splat_##t(from[k * a->step[row + r]]);                                  \
                UNROLLED (int v = 0; v < V; v++) acc[r][v] = fma_##t(x, y[v], acc[r][v]);          \
            }                                                                                      \
        }                                                                                          \
        UNROLLED (int r = 0; r < R; r++)                                                           \
            UNROLLED (int v = 0; v < V; v++) W(t, slot[r * tile->vectors + v], 0) = acc[r][v];     \
    }
// The indices are linear in k: the slots hold those at k = 0 and 1.
#define TILE(t, T)                                                                                 \
    TILE_PART(t, 4, 2)                                                                             \
    TILE_PART(t, 1, 2)                                                                             \
    TILE_PART(t, 4, 1)                                                                             \
    TILE_PART(t, 1, 1)                                                                             \
    static void side_##t(char *f, int buf, const uint32_t *slot, int n, tile_side *s) {            \
        for (int l = 0; l < n; l++) {                                                              \
            i64 first = S(i64, slot[l]), second = S(i64, slot[n + l]);                             \
            s->from[l] = (const char *)FRAME->bufs[buf] + first * (i64)sizeof(t);                  \
            s->step[l] = second - first;                                                           \
        }                                                                                          \
    }                                                                                              \
    DO(tile_##t) {                                                                                 \
        const ct_itile *tile = i->imm.data;                                                        \
        i64 n = S(i64, i->a);                                                                      \
        tile_side a, b;                                                                            \
        side_##t(f, tile->buf_a, tile->a, tile->rows, &a);                                         \
        side_##t(f, tile->buf_b, tile->b, tile->vectors, &b);                                      \
        for (int v = 0; v < tile->vectors; v += 2) {                                               \
            bool two = v + 1 < tile->vectors;                                                      \
            for (int r = 0; r < tile->rows;) {                                                     \
                bool four = r + 4 <= tile->rows;                                                   \
                (four  ? two ? tile_##t##_4x2 : tile_##t##_4x1                                     \
                 : two ? tile_##t##_1x2                                                            \
                       : tile_##t##_1x1)(f, tile, &a, &b, r, v, n);                                \
                r += four ? 4 : 1;                                                                 \
            }                                                                                      \
        }                                                                                          \
        return i + 1;                                                                              \
    }
FLOAT_TYPES(TILE)
#define CLEARS(t, T)                                                                               \
    DO(clear_##t##_s) {                                                                            \
        tree_add_##t *tree = (void *)(f + i->d);                                                   \
        CLEAR((*tree));                                                                            \
        return i + 1;                                                                              \
    }                                                                                              \
    DO(clear_##t##_w) {                                                                            \
        tree_addx_##t *tree = (void *)(f + i->d);                                                  \
        for (int u = 0; u < CT_GROUPS; u++) CLEAR(tree[u]);                                        \
        return i + 1;                                                                              \
    }
FLOAT_TYPES(CLEARS)

// ------------------------------------------------------------------------------------------ table

#define BOTH(NAME, name, t, T) [CT_K_##NAME][CT_##T] = {name##_##t##_s, name##_##t##_w},
#define T_NUMBERS(t, T)                                                                            \
    BOTH(ADD, add, t, T) BOTH(SUB, sub, t, T) BOTH(MUL, mul, t, T) BOTH(DIV, div, t, T)            \
    BOTH(MOD, mod, t, T) BOTH(MIN, min, t, T) BOTH(MAX, max, t, T) BOTH(NEG, neg, t, T)            \
    BOTH(ABS, abs, t, T)
#define T_INTS(t, T) BOTH(SHL, shl, t, T) BOTH(SHR, shr, t, T)
#define T_FLOATS(t, T)                                                                             \
    BOTH(SQRT, sqrt, t, T) BOTH(FLOOR, floor, t, T) BOTH(CEIL, ceil, t, T)                         \
    BOTH(ROUND, round, t, T) BOTH(TRUNC, trunc, t, T) BOTH(FMA, fma, t, T) BOTH(SCALE, scale, t, T) \
    [CT_I_TILE][CT_##T] = {tile_##t, tile_##t},                                                    \
    [CT_I_CLEAR][CT_##T] = {clear_##t##_s, clear_##t##_w},
#define T_LOGIC(t, T)                                                                              \
    BOTH(AND, and, t, T) BOTH(OR, or, t, T) BOTH(XOR, xor, t, T) BOTH(NOT, not, t, T)
#define T_ANY(t, T)                                                                                \
    BOTH(LT, lt, t, T) BOTH(LE, le, t, T) BOTH(EQ, eq, t, T) BOTH(NE, ne, t, T)                    \
    [CT_K_SELECT][CT_##T] = {select_s, select_##t##_w},                                            \
    [CT_I_COPY][CT_##T] = {copy_s, copy_##t##_w},                                                  \
    [CT_I_SPLAT][CT_##T] = {NULL, splat_all_##t},                                                  \
    [CT_I_SELECT_UNIFORM][CT_##T] = {select_s, select_uniform_##t},                                \
    [CT_K_ZIP][CT_##T] = {NULL, zip_low_##t##_w},                                                  \
    [CT_I_ZIP_HIGH][CT_##T] = {NULL, zip_high_##t##_w},                                            \
    [CT_I_FILL][CT_##T] = {fill_##t, fill_##t},
#define T_MEMORY(M, t, m, up, down, s_up, s_down)                                                  \
    [CT_I_LOAD][CT_##M] = {load_##M##_s, load_##M##_w},                                            \
    [CT_I_LOAD_S][CT_##M] = {NULL, load_s_##M}, [CT_I_LOAD_G][CT_##M] = {NULL, load_g_##M},        \
    [CT_I_LOAD_N][CT_##M] = {NULL, load_n_##M}, [CT_I_STORE][CT_##M] = {store_##M, NULL},          \
    [CT_I_STORE_S][CT_##M] = {NULL, store_s_##M}, [CT_I_STORE_G][CT_##M] = {NULL, store_g_##M},    \
    [CT_I_STORE_N][CT_##M] = {NULL, store_n_##M},
#define FROM(t, T, s, F) [CT_I_CAST_FROM + CT_##F][CT_##T] = {t##_from_##s##_s, t##_from_##s##_w},
#define T_BOOLS(t, T) FROM(t, T, b, BOOL) FROM(b, BOOL, t, T)
#define MODE(I, RED, mode, T) [CT_I_##I + 3 * CT_RED_##RED + CT_I_##mode][CT_##T]
#define T_FREE(RED, op, t, T)                                                                      \
    MODE(ACCUMULATE, RED, LANES, T) = {accumulate_##op##_##t##_lanes, accumulate_##op##_##t##_lanes}, \
    MODE(ACCUMULATE, RED, WIDE, T) = {accumulate_##op##_##t##_wide, accumulate_##op##_##t##_wide}, \
    MODE(ACCUMULATE, RED, SCALAR, T) = {accumulate_##op##_##t##_scalar, accumulate_##op##_##t##_scalar},
#define T_FOLD(RED, op, t, T)                                                                      \
    [CT_I_FOLD + CT_RED_##RED][CT_##T] = {fold_##op##_##t##_s, fold_##op##_##t##_s},
#define T_RED(RED, op, t, T)                                                                       \
    T_FREE(RED, op, t, T) T_FOLD(RED, op, t, T)                                                    \
    MODE(RESULT, RED, LANES, T) = {fold_##op##_##t##_s, fold_##op##_##t##_s},                      \
    MODE(RESULT, RED, WIDE, T) = {copy_##t##_w, copy_##t##_w},                                     \
    MODE(RESULT, RED, SCALAR, T) = {copy_s, copy_s},
#define T_BLOCKS(RED, op, mode, MODE_, t, T)                                                       \
    MODE(END_BLOCK, RED, MODE_, T) = {end_of_block_##op##_##t##_##mode, end_of_block_##op##_##t##_##mode}, \
    MODE(RESULT, RED, MODE_, T) = {result_##op##_##t##_##mode, result_##op##_##t##_##mode},
#define T_ORDERED(RED, op, t, T)                                                                   \
    T_FREE(RED, op, t, T) T_FOLD(RED, op, t, T) T_BLOCKS(RED, op, lanes, LANES, t, T)              \
    T_BLOCKS(RED, op, wide, WIDE, t, T) T_BLOCKS(RED, op, scalar, SCALAR, t, T)
#define T_ARG_INDEX(RED, op, t, T)                                                                 \
    T_FREE(RED, arg##op, t, T)                                                                     \
    MODE(RESULT, RED, LANES, T) = {result_arg##op##_##t##_lanes, result_arg##op##_##t##_lanes},    \
    MODE(RESULT, RED, WIDE, T) = {index_wide, index_wide},                                         \
    MODE(RESULT, RED, SCALAR, T) = {index_scalar, index_scalar},
#define T_RED_INTS(t, T) T_RED(ADD, add, t, T) T_RED(MUL, mul, t, T)
#define T_RED_LOGIC(t, T) T_RED(AND, and, t, T) T_RED(OR, or, t, T)
#define T_RED_NUMBERS(t, T)                                                                        \
    T_RED(MAX, max, t, T)                                                                          \
    T_RED(MIN, min, t, T) T_ARG_INDEX(ARGMAX, max, t, T) T_ARG_INDEX(ARGMIN, min, t, T)
#define T_RED_FLOATS(t, T) T_ORDERED(ADD, add, t, T) T_ORDERED(MUL, mul, t, T)
#define ANY_TYPE(NAME, fn) [CT_I_##NAME] = {[0 ... CT_DTYPE_COUNT - 1] = {fn, fn}},

const ct_itable CT_INTERP_TABLE = {
    .fn = {
        NUMBERS(T_NUMBERS) INT_TYPES(T_INTS) FLOAT_TYPES(T_FLOATS) INT_TYPES(T_LOGIC) T_LOGIC(b, BOOL)
        ALL_TYPES(T_ANY) MEMORIES(T_MEMORY) NUMBERS(T_BOOLS)
        FROM(u8, U8, i32, I32) FROM(u8, U8, u32, U32) FROM(u8, U8, i64, I64) FROM(u8, U8, f32, F32) FROM(u8, U8, f64, F64)
        FROM(i32, I32, u8, U8) FROM(i32, I32, u32, U32) FROM(i32, I32, i64, I64) FROM(i32, I32, f32, F32) FROM(i32, I32, f64, F64)
        FROM(u32, U32, u8, U8) FROM(u32, U32, i32, I32) FROM(u32, U32, i64, I64) FROM(u32, U32, f32, F32) FROM(u32, U32, f64, F64)
        FROM(i64, I64, u8, U8) FROM(i64, I64, i32, I32) FROM(i64, I64, u32, U32) FROM(i64, I64, f32, F32) FROM(i64, I64, f64, F64)
        FROM(f32, F32, u8, U8) FROM(f32, F32, i32, I32) FROM(f32, F32, u32, U32) FROM(f32, F32, i64, I64) FROM(f32, F32, f64, F64)
        FROM(f64, F64, u8, U8) FROM(f64, F64, i32, I32) FROM(f64, F64, u32, U32) FROM(f64, F64, i64, I64) FROM(f64, F64, f32, F32)
        FROM(u64, U64, u8, U8) FROM(u64, U64, i32, I32) FROM(u64, U64, u32, U32) FROM(u64, U64, i64, I64) FROM(u64, U64, f32, F32) FROM(u64, U64, f64, F64)
        FROM(u8, U8, u64, U64) FROM(i32, I32, u64, U64) FROM(u32, U32, u64, U64) FROM(i64, I64, u64, U64) FROM(f32, F32, u64, U64) FROM(f64, F64, u64, U64)
        [CT_K_DOT4] = {[CT_I32] = {dot4_i32_s, dot4_i32_w}},
        [CT_K_DOT2] = {[CT_U32] = {dot2_u32_s, dot2_u32_w}},
        [CT_K_LOW_HALF] = {[CT_U32] = {low_half_u32_s, low_half_u32_w}},
        [CT_K_HIGH_HALF] = {[CT_U32] = {high_half_u32_s, high_half_u32_w}},
        [CT_K_LOOKUP4] = {[CT_I32] = {lookup4_i32_s, lookup4_i32_w}},
        [CT_I_ROUND] = {
            [CT_F16] = {round_to_f16_s, round_to_f16_w}, [CT_BF16] = {round_to_bf16_s, round_to_bf16_w},
            [CT_F8E4M3] = {round_to_f8e4m3_s, round_to_f8e4m3_w}, [CT_F8E5M2] = {round_to_f8e5m2_s, round_to_f8e5m2_w},
        },
        [CT_I_CONST] = {[0 ... CT_F32 - 1] = {const_s, NULL}, [CT_F32] = {const_f32, NULL}, [CT_F32 + 1 ... CT_DTYPE_COUNT - 1] = {const_s, NULL}},
        ANY_TYPE(ARG, arg_s) ANY_TYPE(RAMP, ramp_w)
        ANY_TYPE(SEQ, interp_seq) ANY_TYPE(SEQ_NEXT, interp_seq_next) ANY_TYPE(VECTOR, interp_vector) ANY_TYPE(VECTOR_NEXT, interp_vector_next)
        ANY_TYPE(ROWS, interp_rows) ANY_TYPE(ROWS_NEXT, interp_rows_next) ANY_TYPE(STOP, interp_stop) ANY_TYPE(BREAK, interp_break_if)
        [CT_I_SKIP_IF_NONE] = {[CT_BOOL] = {interp_skip_unless, interp_skip_if_none}},
        INT_TYPES(T_RED_INTS) INT_TYPES(T_RED_LOGIC) T_RED_LOGIC(b, BOOL) NUMBERS(T_RED_NUMBERS) FLOAT_TYPES(T_RED_FLOATS)
    },
    .tree_bytes = {[CT_F32] = {sizeof(tree_add_f32), CT_GROUPS * sizeof(tree_addx_f32)},
                   [CT_F64] = {sizeof(tree_add_f64), CT_GROUPS * sizeof(tree_addx_f64)}},
};
