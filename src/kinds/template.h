// What every kernel template sees of its operands and results: functions of logical positions.
//
// A template builds a kernel for one op without knowing where its operands come from. An operand is
// either plain (a buffer read with strides) or computed (a fused prologue); a result is either
// plain or given to a function (a fused epilogue). Positions are one i64 value per logical axis.
#ifndef COTAN_KINDS_TEMPLATE_H
#define COTAN_KINDS_TEMPLATE_H

#include "kir/kir.h"

typedef struct ct_source {
    int buf;               // plain: its buffer
    ct_kval offset;        // plain: of its first element; -1 for 0
    const ct_kval *stride; // plain: elements from one position to the next along each axis
    ct_kval (*value)(void *env, ct_kir *k, const ct_kval *at); // computed: else NULL
    void *env;
    int along;    // computed: the axis along which its loads are contiguous; -1: none
    bool is_load; // computed: by one load and nothing else
    // Computed, of bf16 or f16: two neighbours along `along`, where the position is the pair's number, in
    // the order of memory as the halves of a u32. NULL: its pairs do not lie so.
    ct_kval (*pair)(void *env, ct_kir *k, const ct_kval *at);
    ct_dtype pair_of;
    int64_t step; // computed: elements between neighbours along the other of the last two axes, if
                  // loads are contiguous along one; 0: not known
} ct_source;

typedef struct ct_sink {
    int buf;
    ct_kval offset;
    const ct_kval *stride;
    void (*store)(void *env, ct_kir *k, const ct_kval *at, ct_kval value); // else NULL: plain
    void *env;
} ct_sink;

// The element at a position, in the operand's compute dtype.
ct_kval ct__source_load(ct_kir *k, const ct_source *o, int rank, const ct_kval *at);
// A plain operand's element number.
ct_kval ct__source_index(ct_kir *k, const ct_source *o, int rank, const ct_kval *at);
// Is memory contiguous along this axis?
bool ct__source_along(const ct_kir *k, const ct_source *o, int axis);
// Elements between neighbours along the one of the last two axes that is not contiguous; 0: not known.
int64_t ct__source_step(const ct_kir *k, const ct_source *o, int rank);
// May each element be loaded as often as it is wanted?
bool ct__source_is_load(const ct_source *o);
void ct__sink_store(ct_kir *k, const ct_sink *r, int rank, const ct_kval *at, ct_kval value);

// Position n of all positions of the axes in row-major order, as one value per axis.
void ct__unflatten(ct_kir *k, ct_kval n, int rank, const ct_kval *dim, ct_kval *at);
// Opens a loop that runs once if `cond` holds.
void ct__kir_if(ct_kir *k, ct_kval cond);

#endif
