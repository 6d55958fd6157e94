// Products with columns of codes: of rows of bytes, sums that are exact in each block, then scaled
// (quantised_bytes.c); and of rows of floats, with the numbers that codes stand for (quantised_floats.c).
#ifndef COTAN_KINDS_QUANTISED_H
#define COTAN_KINDS_QUANTISED_H

#include "kinds/template.h"
#include "kir/target.h"

enum { CT_QUANTISED_BLOCK = 32 }; // codes along k whose products are summed as integers

// Of bytes: out[row, column] = the chain, over blocks in their order and from +0, of
// fma(sum of codes times codes of the block, row's scale times column's scale, before); of halves of blocks, where those
// have scales.
// Of floats: the matrix product's chains (docs/design/bits.md) of a row's numbers and code times scale, rounded.
typedef struct ct_quantised_spec {
    ct_kval rows, columns;
    int64_t n_rows; // where they are known; else 0
    int64_t inner;  // k: whole steps
    int bits;       // of the columns' codes: 4 or 8
    bool f4; // codes are f4: products of bytes take twice the number, and half the columns' scales
    int64_t
        scale_codes; // codes that share a scale of the columns: half a block, or whole ones; 0: all of a column
    // Columns are known by a first one and which of those behind it. Grouped, the first one is the number of a group
    // of CT_LANES, whose words, and scales, of one number along k are neighbours in memory. Lined, words of one column
    // are neighbours.
    bool grouped, lined;
    // What stands first in a task of rows from `row` on; NULL: nothing. Where each row meets columns of its own a task
    // has one row.
    void (*begin)(void *env, ct_kir *k, ct_kval row);
    bool each;
    void *env;
    // Four bytes, as i32: of a row's codes from 4 * word on; of a column's codes, as they lie.
    ct_source row_words;    // row, word: of rows of bytes
    ct_source row_numbers;  // row, k: f32, of rows of floats
    ct_source column_words; // first, lane, word
    ct_source row_scale;    // row, block: f32, of rows of bytes
    ct_source column_scale; // first, lane, number: f32
    ct_sink out;            // row, column: f32
    ct_target target;
} ct_quantised_spec;

// What a code of 4 bits stands for.
double ct__quantised_number(const ct_quantised_spec *s, int code);
// Codes that a step of the kernel takes: k must be a multiple.
static inline int64_t ct__quantised_step(int bits) { return CT_LANES * 32 / bits; }
void ct__template_quantised(ct_kir *k, const ct_quantised_spec *spec);
// Rows are few, and known; columns are at least CT_QUANTISED_WIDTH.
enum { CT_QUANTISED_ROWS = 16, CT_QUANTISED_WIDTH = 64 };
void ct__template_dequantised(ct_kir *k, const ct_quantised_spec *spec);

// The scales of `width` columns as they lie, in scratch (width, numbers), and turned (numbers, width). Grouped ones are
// turned in memory.
typedef struct ct_quantised_scales {
    int64_t width, numbers; // whole vectors
    int rows, turned;
    ct_kval first;
} ct_quantised_scales;
// The first of the columns behind so many groups of CT_LANES.
ct_kval ct__quantised_behind(ct_kir *k, const ct_quantised_spec *s, ct_kval first, ct_kval groups);
// Tiles of `width` columns that a task has, at most `most`: some tasks a core, so that none waits long at the end.
int64_t ct__quantised_tiles(const ct_kir *k, const ct_quantised_spec *s, int64_t width,
                            int64_t most);
int64_t ct__quantised_numbers(const ct_quantised_spec *s);
void ct__quantised_scales(ct_kir *k, const ct_quantised_spec *s, const ct_quantised_scales *to);

#endif
