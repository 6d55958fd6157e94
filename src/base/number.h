// Small facts about numbers and their dtypes that every layer asks for.
#ifndef COTAN_BASE_NUMBER_H
#define COTAN_BASE_NUMBER_H

#include "cotan/cotan.h"

static inline bool ct__is_float(ct_dtype d) { return d >= CT_F16 && d <= CT_F64; }
static inline bool ct__is_signed(ct_dtype d) { return d >= CT_I8 && d <= CT_I64; }
// The least and the greatest integer of a dtype (bool: 0 and 1), a u64 by its bits.
static inline int64_t ct__least(ct_dtype d) {
    return ct__is_signed(d) ? INT64_MIN >> (64 - 8 * ct_dtype_size(d)) : 0;
}
static inline int64_t ct__greatest(ct_dtype d) {
    if (d == CT_BOOL) return 1;
    return (int64_t)(UINT64_MAX >> (64 - 8 * ct_dtype_size(d) + ct__is_signed(d)));
}

// The greatest common divisor, >= 0; of 0 and x it is |x|. Neither may be INT64_MIN.
static inline int64_t ct__gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

// The least multiple of `unit` that holds n.
static inline size_t ct__round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

#endif
