#include "data/loader.h"

#include <string.h>

#include "base/threefry.h"

size_t ct__split(size_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }

// y (T) is x (T) shifted by one token.
static void loader_copy_window(const int32_t *tokens, size_t context, int32_t *x, int32_t *y) {
    memcpy(x, tokens, context * sizeof *x);
    memcpy(y, tokens + 1, context * sizeof *y);
}

static ct_u32x2 loader_halves(uint64_t v) { return (ct_u32x2){{(uint32_t)v, (uint32_t)(v >> 32)}}; }

// 64 random bits times the range, upper half (Lemire, "Fast random integer generation in an interval", 2019).
// The few products whose lower half is below 2^64 mod range would bias some results; they are drawn again
// with another counter: its upper byte counts attempts, which leaves 2^56 windows.
uint64_t ct__window_start(uint64_t seed, uint64_t stream, uint64_t k, uint64_t range) {
    __extension__ typedef unsigned __int128 u128;
    ct_u32x2 key = ct__threefry(loader_halves(seed), loader_halves(stream));
    uint64_t threshold = -range % range; // 2^64 mod range
    for (uint64_t attempt = 0;; attempt++) {
        ct_u32x2 bits = ct__threefry(key, loader_halves(k | attempt << 56));
        u128 product = (u128)((uint64_t)bits.v[1] << 32 | bits.v[0]) * range;
        // 256 rejections in a row do not occur; the bound only makes it evident that the loop ends.
        if ((uint64_t)product >= threshold || attempt == 255) return (uint64_t)(product >> 64);
    }
}

void ct__loader_next(ct_loader *loader, int32_t *x, int32_t *y) {
    size_t T = loader->context;
    for (size_t b = 0; b < loader->batch; b++) {
        uint64_t start = ct__window_start(loader->seed, loader->stream,
                                          loader->step * loader->batch + b, loader->n - T);
        loader_copy_window(loader->tokens + start, T, x + b * T, y + b * T);
    }
    loader->step++;
}

size_t ct__windows_count(const ct_windows *windows) {
    return windows->n ? (windows->n - 1) / windows->context : 0;
}

size_t ct__windows_next(ct_windows *windows, int32_t *x, int32_t *y) {
    size_t T = windows->context, left = ct__windows_count(windows) - windows->next;
    size_t rows = left < windows->batch ? left : windows->batch;
    for (size_t b = 0; b < rows; b++)
        loader_copy_window(windows->tokens + (windows->next + b) * T, T, x + b * T, y + b * T);
    windows->next += rows;
    return rows;
}
