// Matrix products as kernels: (batch..., M, K) x (batch..., K, N), any strides.
#ifndef COTAN_KINDS_MATMUL_H
#define COTAN_KINDS_MATMUL_H

#include "kinds/template.h"
#include "kir/target.h"

// A dot product is chunks of this many k, each one chain of fused multiply-adds from +0 in the
// order of k; the chunk sums are added in order (docs/design/bits.md).
enum { CT_DOT_CHUNK = 256 };
enum { CT_TILE_ROWS = 16 }; // of a register tile, at most

// Sizes that change speed, never bits. Zero: chosen from the sizes and the target. Where `rows` is given,
// both operands are packed.
typedef struct ct_matmul_tile {
    int rows;          // of a register tile
    int vectors;       // 16-lane vectors in a row of it
    int64_t row_block; // rows of a task, a multiple of `rows`
    int64_t column_block;
    int group; // panels of b packed together
} ct_matmul_tile;

typedef struct ct_matmul_spec {
    ct_dtype dtype; // f32 or f64: of the products and sums
    // Elements of a and b are pairs of bf16 along k, as u32 whose high half is the first, and k, `inner`
    // and chunks count pairs: sums are of DOT2, which has the order of one chain.
    bool pairs;
    int n_batch;          // axes in front; an operand without one has stride 0 there
    const ct_kval *batch; // their sizes
    ct_kval rows, columns, inner;
    // Where columns, or the inner index, run over several axes in row-major order: how many, and their
    // sizes, of which `columns` and `inner` are the products. Operands then have a position along each of
    // them, and the result along each of the axes that columns are to it. 0: one axis. Loops go by runs
    // of the last axis, so that what is contiguous along it alone is read in vectors and no lane divides
    // its number.
    int n_column_axes, n_inner_axes, n_result_axes;
    const ct_kval *column_axis, *inner_axis, *result_axis;
    ct_source a, b; // at batch..., i, k and batch..., k, j; the dtype above
    // a is a plain buffer of (batch..., chunks of k, rows, CT_DOT_CHUNK), as tasks would pack it, with
    // room for CT_TILE_ROWS rows behind the last one: a tile may read them.
    bool a_packed;
    // Of products by panels (matmul_panels.c): an element of a row that lies `a_taps` steps of k for each
    // channel side by side, while k goes by taps: of channel `from` + `more`. `env` is a's.
    int64_t a_taps;
    ct_kval (*a_in_memory)(void *env, ct_kir *k, ct_kval row, ct_kval from, int64_t more,
                           int64_t tap);
    const struct ct_matmul_windows
        *windows; // what rows are (matmul_windows.c); NULL: nothing known
    ct_sink c;    // at batch..., i, j; called once an element, inside a LANES loop
    ct_target target;
    ct_matmul_tile tile;
} ct_matmul_spec;

// Steps of k in a chunk, what packed elements are, and sums with one more step.
static inline int64_t ct__matmul_chunk(const ct_matmul_spec *s) {
    return s->pairs ? CT_DOT_CHUNK / 2 : CT_DOT_CHUNK;
}
static inline ct_dtype ct__matmul_packed(const ct_matmul_spec *s) {
    return s->pairs ? CT_U32 : s->dtype;
}
static inline ct_kval ct__matmul_step(ct_kir *k, const ct_matmul_spec *s, ct_kval a, ct_kval b,
                                      ct_kval sum) {
    return s->pairs ? ct__kir_dot2(k, a, b, sum) : ct__kir_fma(k, a, b, sum);
}

// Appends the whole kernel: one ROWS loop. Mistakes are recorded in k.
void ct__template_matmul(ct_kir *k, const ct_matmul_spec *spec);
// The same where rows are few and known (matmul_rows.c).
enum { CT_FEW_ROWS = 4 };
bool ct__matmul_has_few_rows(const ct_kir *k, const ct_matmul_spec *spec);
void ct__template_few_rows(ct_kir *k, const ct_matmul_spec *spec);

// The same where columns are few and known, and rows are whole vectors and many (matmul_panels.c).
enum { CT_MOST_TAPS = 9 };
bool ct__matmul_has_panels(int64_t rows, int64_t columns, int64_t inner, int64_t taps);
void ct__template_panels(ct_kir *k, const ct_matmul_spec *spec);

// Rows that are channels and taps of windows; k runs over images and positions, of which the last stand here.
// Where there is one axis, the first has one tap and one position.
typedef struct ct_matmul_windows {
    int64_t channels, taps[2], positions[2], stride[2];
    // Of a channel and an image the element that lies so far behind the first that a window sees. `env` is
    // a's.
    ct_kval (*value)(void *env, ct_kir *k, ct_kval channel, ct_kval image, const ct_kval *behind);
} ct_matmul_windows;
// Is there a register tile for them? The columns, which are known, then lie along k.
bool ct__matmul_has_windows(const ct_target *target, ct_dtype dtype, const ct_matmul_windows *w);
void ct__template_windows(ct_kir *k, const ct_matmul_spec *spec);

// Rows of a register tile, at most `most`: few of them beyond the edge, and few tiles.
int ct__matmul_tile_rows(int64_t rows, int most);

#endif
