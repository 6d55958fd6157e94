// Shared by ops on moving windows: lists of one number per spatial axis, and the number of windows.
#ifndef COTAN_OPS_WINDOWS_H
#define COTAN_OPS_WINDOWS_H

#include "ops/rules.h"

// Larger sizes, steps and paddings are refused, so that products of two do not overflow.
enum { CT_MOST_STEP = 1 << 30 };

#define CT_LIST_HINT "give one number an axis, or one for all of them"
#define CT_PADDING_HINT                                                                            \
    "give one for all, one an axis, or one an axis for what is before and then one an axis for "   \
    "what is after"

// Normalises a list of one number per axis, of n: as given, one number for all of them, or none (`normal`).
// Reports another count, and numbers that are not in `least` to CT_MOST_STEP.
bool ct__window_list(ct_call *call, const char *name, ct_ints *list, int n, int64_t least,
                     int64_t normal);
// Normalises padding to n numbers before the axes, then n after them, from that, or n or one number for both
// sides, or none (0).
bool ct__window_padding(ct_call *call, ct_ints *padding, int n);

// Windows along one axis of a tensor.
typedef struct ct_window {
    int64_t size, stride, dilation, low, high;
} ct_window;
static inline int64_t ct__window_span(const ct_window *w) {
    return (w->size - 1) * (w->dilation < 0 ? -w->dilation : w->dilation) + 1;
}
// Returns the number of windows in an axis with `n` elements, dynamic or static, where at least one is known
// to fit.
static inline int64_t ct__window_count(const ct_window *w, int64_t n) {
    return ct__size_div_up(ct__size_add(n, w->low + w->high - ct__window_span(w) + 1), w->stride);
}
// True if a window fits axis `axis` of operand `operand`; else an error is reported.
bool ct__window_fits(ct_call *call, const ct_window *w, int operand, int axis);

#endif
