// Matrix products as kernels: (batch..., M, K) x (batch..., K, N), any strides.
#ifndef COTAN_KINDS_MATMUL_H
#define COTAN_KINDS_MATMUL_H

#include "kinds/template.h"
#include "kir/target.h"

// A dot product is split into chunks of this many k. Each chunk is one chain of fused multiply-adds from +0
// in the order of k, and the chunk sums are added in order (docs/design/bits.md).
enum { CT_DOT_CHUNK = 256 };
enum { CT_TILE_ROWS = 16 }; // largest number of rows of a register tile

// Blocking sizes, which change speed but never bits. Zero: chosen from the sizes and the target. If `rows` is
// set, both operands are packed.
typedef struct ct_matmul_tile {
    int rows;          // rows of a register tile
    int vectors;       // 16-lane vectors in a row of the tile
    int64_t row_block; // rows of a task, a multiple of `rows`
    int64_t column_block;
    int group; // panels of b that are packed together
} ct_matmul_tile;

typedef struct ct_matmul_spec {
    ct_dtype dtype; // f32 or f64: the dtype of the products and sums
    // Elements of a and b are pairs of bf16 along k, as u32 with the first one in the high half. k, `inner`
    // and chunks count pairs. Sums use DOT2, which has the order of one chain.
    bool pairs;
    int n_batch; // number of leading (batch) axes; an operand without one has stride 0 there
    const ct_kval *batch; // their sizes
    ct_kval rows, columns, inner;
    // If the columns or the inner index run over several axes in row-major order: the numbers of these axes
    // and their sizes, whose products are `columns` and `inner`. Operands then have one index along each of
    // them, and the result along each of the axes that columns are to it. 0: one axis. Loops go by runs of
    // the last axis, so that what is contiguous along it alone is read in vectors and no lane divides its
    // index.
    int n_column_axes, n_inner_axes, n_result_axes;
    const ct_kval *column_axis, *inner_axis, *result_axis;
    ct_source a, b; // at batch..., i, k and batch..., k, j; in the dtype above
    // a is a plain buffer of (batch..., chunks of k, rows, CT_DOT_CHUNK), laid out as tasks would pack it,
    // with capacity for CT_TILE_ROWS rows after the last one, since a tile may read them.
    bool a_packed;
    // For products by panels (matmul_panels.c): number of elements of a row for each channel that are
    // adjacent in memory, where k is ordered by taps. a_in_memory returns the element of channel `from` +
    // `more` at a tap. `env` is that of a.
    int64_t a_taps;
    ct_kval (*a_in_memory)(void *env, ct_kir *k, ct_kval row, ct_kval from, int64_t more,
                           int64_t tap);
    const struct ct_matmul_windows
        *windows; // window structure of the rows (matmul_windows.c); NULL: unknown
    ct_sink c;    // at batch..., i, j; called once per element, inside a LANES loop
    ct_target target;
    ct_matmul_tile tile;
} ct_matmul_spec;

// Steps of k in a chunk, the dtype of packed elements, and one multiply-add step of a sum.
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

// Appends the whole kernel: one ROWS loop. Errors are recorded in k.
void ct__template_matmul(ct_kir *k, const ct_matmul_spec *spec);
// The same for few rows, whose number is static (matmul_rows.c).
enum { CT_FEW_ROWS = 4 };
bool ct__matmul_has_few_rows(const ct_kir *k, const ct_matmul_spec *spec);
void ct__template_few_rows(ct_kir *k, const ct_matmul_spec *spec);

// The same for few columns, whose number is static, and many rows in whole vectors (matmul_panels.c).
enum { CT_MOST_TAPS = 9 };
bool ct__matmul_has_panels(int64_t rows, int64_t columns, int64_t inner, int64_t taps);
void ct__template_panels(ct_kir *k, const ct_matmul_spec *spec);

// Rows that are channels and taps of windows, with k over images and positions; the last two of each are
// given here. With one spatial axis, the first axis has one tap and one position.
typedef struct ct_matmul_windows {
    int64_t channels, taps[2], positions[2], stride[2];
    // Returns the element of a channel and an image at `offset` (one per spatial axis) from the first element that a window
    // covers. `env` is that of a.
    ct_kval (*value)(void *env, ct_kir *k, ct_kval channel, ct_kval image, const ct_kval *offset);
} ct_matmul_windows;
// True if there is a register tile for the windows. The columns, whose number is static, are then contiguous
// along k.
bool ct__matmul_has_windows(const ct_target *target, ct_dtype dtype, const ct_matmul_windows *w);
void ct__template_windows(ct_kir *k, const ct_matmul_spec *spec);

// Returns the rows of a register tile, at most `most`, so that few rows exceed the edge and there are few
// tiles.
int ct__matmul_tile_rows(int64_t rows, int most);

#endif
