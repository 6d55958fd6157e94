// Matrix products with quantised columns. Quantised rows (bytes) use exact integer sums in each block, which
// are then scaled (quantised_bytes.c); float rows use the dequantised columns (quantised_floats.c).
#ifndef COTAN_KINDS_QUANTISED_H
#define COTAN_KINDS_QUANTISED_H

#include "kinds/template.h"
#include "kir/target.h"

enum { CT_QUANTISED_BLOCK = 32 }; // quantised values along k whose products are summed as integers

// Quantised rows: out[row, column] = the chain, over blocks in order and from +0, of fma(sum of products of
// the block's quants, row's scale times column's scale, before); over half blocks, if those have scales.
// Float rows: the matrix product's chains (docs/design/bits.md) of a row's floats and quant times scale,
// rounded.
typedef struct ct_quantised_spec {
    ct_kval rows, columns;
    int64_t n_rows;    // if static; else 0
    int64_t inner;     // k: a multiple of the step
    int bits;          // of the columns' quants: 4 or 8
    bool without_sign; // quants are unsigned
    // The dtype to which quant times scale, and that plus the offset, are rounded; 0: there are no offsets.
    ct_dtype rounded;
    bool f4; // Quants are f4: integer products use twice the value, and half the columns' scales.
    // Quants that share a scale of the columns: half a block, or whole blocks; 0: all quants of a column.
    int64_t scale_codes;
    // Columns are addressed by a first column and the number of columns after it. Grouped: the first one is
    // the index of a group of CT_LANES columns, whose words, and scales, at one index along k are adjacent in
    // memory. Lined: words of one column are adjacent in memory.
    bool grouped, lined;
    // Called first in a task for rows starting at `row`; NULL: nothing to do. If each row has its own columns
    // (`each`), a task has one row.
    void (*begin)(void *env, ct_kir *k, ct_kval row);
    bool each;
    void *env;
    // Four bytes, as i32: a row's quants starting at 4 * word; a column's quants in memory order.
    ct_source row_words;     // row, word: quantised rows
    ct_source row_numbers;   // row, k: f32, float rows
    ct_source column_words;  // first, lane, word
    ct_source row_scale;     // row, block: f32, quantised rows
    ct_source column_scale;  // first, lane, number: f32
    ct_source column_offset; // the same, for float rows
    ct_sink out;             // row, column: f32
    ct_target target;
} ct_quantised_spec;

// Returns the value of a quant of 4 bits.
double ct__quantised_number(const ct_quantised_spec *s, int code);
// Returns the number of quants that a step of the kernel takes: k must be a multiple.
static inline int64_t ct__quantised_step(int bits) { return CT_LANES * 32 / bits; }
void ct__template_quantised(ct_kir *k, const ct_quantised_spec *spec);
// There are at least CT_QUANTISED_WIDTH columns. If the rows are few, and their number static, dequantised
// values are not stored.
enum { CT_QUANTISED_ROWS = 16, CT_QUANTISED_WIDTH = 64 };
void ct__template_dequantised(ct_kir *k, const ct_quantised_spec *spec);

// The scales of `width` columns in memory order in scratch (width, numbers), and transposed (numbers, width).
// Grouped scales are transposed in memory already.
typedef struct ct_quantised_scales {
    int64_t width, numbers; // whole vectors
    int rows, turned;
    ct_kval first;
} ct_quantised_scales;
// Returns the first column after so many groups of CT_LANES columns.
ct_kval ct__quantised_behind(ct_kir *k, const ct_quantised_spec *s, ct_kval first, ct_kval groups);
// Returns the number of tiles of `width` columns in a task, at most `most`, so that there are several tasks
// per core and the load is balanced at the end.
int64_t ct__quantised_tiles(const ct_kir *k, const ct_quantised_spec *s, int64_t width,
                            int64_t most);
int64_t ct__quantised_numbers(const ct_quantised_spec *s);
// `from` is column_scale or column_offset.
void ct__quantised_scales(ct_kir *k, const ct_quantised_spec *s, const ct_source *from,
                          const ct_quantised_scales *to);

#endif
