// Operands of the benchmarks: numbers that bench/peers/rows.py makes as well.
#include <stdlib.h>

#include "rows.h"

// Returns a 24-bit pseudorandom hash.
static uint32_t numbers_hash(int64_t i, uint32_t seed) {
    uint32_t u = (uint32_t)i * 2654435761u + seed * 2246822519u;
    u = (u ^ u >> 15) * 2246822519u;
    return (u ^ u >> 13) >> 8;
}

static int64_t numbers_count(ct_ints dims) {
    int64_t count = 1;
    for (int64_t i = 0; i < dims.n; i++) count *= dims.v[i];
    return count;
}

ct_tensor bench_numbers(ct_ints dims, uint32_t seed) {
    int64_t count = numbers_count(dims);
    float *v = malloc((size_t)count * sizeof *v);
    if (!v) return CT_NONE;
    for (int64_t i = 0; i < count; i++)
        v[i] = 0.1f + 0.8f * ((float)numbers_hash(i, seed) / (float)(1 << 24));
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}

ct_tensor bench_integers(ct_ints dims, uint32_t seed, uint32_t below, ct_dtype dtype) {
    int64_t count = numbers_count(dims);
    int32_t *v = malloc((size_t)count * sizeof *v);
    if (!v) return CT_NONE;
    uint8_t *narrow = (uint8_t *)v;
    for (int64_t i = 0; i < count; i++) {
        uint32_t number = numbers_hash(i, seed) % below;
        if (dtype == CT_U8)
            narrow[i] = (uint8_t)number;
        else
            v[i] = (int32_t)number;
    }
    ct_tensor t = ct_from(v, dtype, dims);
    free(v);
    return t;
}
