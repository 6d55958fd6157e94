// Small integer functions.
#ifndef COTAN_BASE_NUMBER_H
#define COTAN_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

// Returns the greatest common divisor, >= 0; of 0 and x it is |x|. Neither may be INT64_MIN.
static inline int64_t ct__gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

// Rounds n up to a multiple of `unit`.
static inline size_t ct__round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

#endif
