// What ops over moving windows share: lists of one number a spatial axis, and how many windows fit.
#ifndef COTAN_OPS_WINDOWS_H
#define COTAN_OPS_WINDOWS_H

#include "ops/rules.h"

// Sizes, steps and paddings beyond it are refused: products of two stay countable.
enum { CT_MOST_STEP = 1 << 30 };

#define CT_LIST_HINT "give one number an axis, or one for all of them"
#define CT_PADDING_HINT                                                                            \
    "give one for all, one an axis, or one an axis for what lies before and then one an axis for " \
    "what lies behind"

// A list of one number an axis of n: as given, one number for all of them, or none (`normal`). Reports
// another count, and numbers that are not `least` to CT_MOST_STEP.
bool ct__window_list(ct_call *call, const char *name, ct_ints *list, int n, int64_t least,
                     int64_t normal);
// Padding in its normal form, n numbers before the axes, then n behind: as given, or n or one number
// for both sides, or none (0).
bool ct__window_padding(ct_call *call, ct_ints *padding, int n);

// Windows along one axis of a tensor.
typedef struct ct_window {
    int64_t size, stride, dilation, low, high;
} ct_window;
static inline int64_t ct__window_span(const ct_window *w) {
    return (w->size - 1) * (w->dilation < 0 ? -w->dilation : w->dilation) + 1;
}
// How many fit an axis with `n` elements, dynamic or not, of which it is known that one does.
static inline int64_t ct__window_count(const ct_window *w, int64_t n) {
    return ct__size_div_up(ct__size_add(n, w->low + w->high - ct__window_span(w) + 1), w->stride);
}
// Does none fit axis `axis` of operand `operand`? Reports it.
bool ct__window_fits(ct_call *call, const ct_window *w, int operand, int axis);

#endif
