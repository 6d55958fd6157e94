// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a keyed bijection of counters, JAX's default generator. The bits of an element depend on
// key and index alone, so any part of a stream can be computed in any order.
#ifndef COTAN_BASE_THREEFRY_H
#define COTAN_BASE_THREEFRY_H

#include <stdint.h>

typedef struct ct_u32x2 {
    uint32_t v[2];
} ct_u32x2;

static inline ct_u32x2 ct__threefry(ct_u32x2 key, ct_u32x2 counter) {
    // Rotations and parity constant from the paper's table 2 and section 2.2.
    static const unsigned char rotate[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    uint32_t k[3] = {key.v[0], key.v[1], 0x1bd11bdau ^ key.v[0] ^ key.v[1]};
    uint32_t a = counter.v[0] + k[0], b = counter.v[1] + k[1];
    for (unsigned round = 0; round < 20; round++) {
        unsigned r = rotate[round & 7];
        a += b;
        b = (b << r | b >> (32 - r)) ^ a;
        if ((round & 3) == 3) { // a key injection after every four rounds
            unsigned s = round / 4 + 1;
            a += k[s % 3];
            b += k[(s + 1) % 3] + s;
        }
    }
    return (ct_u32x2){{a, b}};
}

#endif
