// Data loader: batches of windows over an array of tokens, random ones for training, all in order for
// validation.
//
// A batch is two arrays, x (B, T) and y (B, T), where y is x shifted by one token. The loader borrows the
// tokens and fills the caller's arrays.
#ifndef COTAN_DATA_LOADER_H
#define COTAN_DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

// The number of the n tokens used for training: the first 90 %, rounded down; the rest is for validation.
size_t ct__split(size_t n);

// Random windows. The start of the k-th window is a function of seed, stream and k only: (seed, step) is the
// loader's whole state, and any step can be computed without the previous ones.
typedef struct ct_loader {
    const int32_t *tokens;
    size_t n;              // at least context + 1
    size_t batch, context; // B and T
    uint64_t seed, stream; // streams of one seed are independent
    uint64_t step;         // of the next batch; set it to resume
} ct_loader;
void ct__loader_next(ct_loader *loader, int32_t *x, int32_t *y);
// The start of window k, uniform over 0 .. range - 1 without bias; range > 0.
uint64_t ct__window_start(uint64_t seed, uint64_t stream, uint64_t k, uint64_t range);

// Windows in order: window i has the inputs i·T .. i·T + T - 1, so inputs do not overlap and each token but
// the first is predicted once. A tail too short for a window is omitted.
typedef struct ct_windows {
    const int32_t *tokens;
    size_t n;
    size_t batch, context;
    size_t next; // index of the next window; 0 restarts
} ct_windows;
size_t ct__windows_count(const ct_windows *windows);
// Fills up to B rows; returns their number, fewer in the last batch, 0 after it.
size_t ct__windows_next(ct_windows *windows, int32_t *x, int32_t *y);

#endif
