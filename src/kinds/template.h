// Operands and results of kernel templates: functions of logical positions.
//
// A template builds a kernel for one op without knowing where its operands come from. An operand is either
// plain (a buffer read with strides) or computed (a fused prologue); a result is either plain or passed to a
// function (a fused epilogue). Positions are one i64 value per logical axis.
#ifndef COTAN_KINDS_TEMPLATE_H
#define COTAN_KINDS_TEMPLATE_H

#include "kir/kir.h"

typedef struct ct_source {
    int buf;               // plain: its buffer
    ct_kval offset;        // plain: offset of its first element; -1 for 0
    const ct_kval *stride; // plain: elements from one position to the next along each axis
    ct_kval (*value)(void *env, ct_kir *k, const ct_kval *at); // computed: else NULL
    void *env;
    int along;    // computed: the axis along which its loads are contiguous; -1: none
    bool is_load; // computed: as a single load
    // Computed, for bf16 or f16: returns two neighbours along `along`, whose coordinate counts pairs, in
    // memory order as the halves of a u32. NULL: pairs are not adjacent in memory.
    ct_kval (*pair)(void *env, ct_kir *k, const ct_kval *at);
    ct_dtype pair_of;
    // Computed: distance in elements between neighbours along the other of the last two axes, if loads are
    // contiguous along one; 0: unknown.
    int64_t step;
} ct_source;

typedef struct ct_sink {
    int buf;
    ct_kval offset;
    const ct_kval *stride;
    void (*store)(void *env, ct_kir *k, const ct_kval *at, ct_kval value); // NULL: plain
    void *env;
} ct_sink;

// Returns the element at a position, in the operand's compute dtype.
ct_kval ct__source_load(ct_kir *k, const ct_source *o, int rank, const ct_kval *at);
// Returns the element offset of a position of a plain operand.
ct_kval ct__source_index(ct_kir *k, const ct_source *o, int rank, const ct_kval *at);
// True if memory is contiguous along this axis.
bool ct__source_along(const ct_kir *k, const ct_source *o, int axis);
// Returns the distance in elements between neighbours along the one of the last two axes that is not
// contiguous; 0: unknown.
int64_t ct__source_step(const ct_kir *k, const ct_source *o, int rank);
// True if an element is so cheap to load that it may be loaded repeatedly.
bool ct__source_is_load(const ct_source *o);
void ct__sink_store(ct_kir *k, const ct_sink *r, int rank, const ct_kval *at, ct_kval value);

// Splits flat position n, in row-major order, into one value per axis.
void ct__unflatten(ct_kir *k, ct_kval n, int rank, const ct_kval *dim, ct_kval *at);
// Opens a loop that runs once if `cond` is true.
void ct__kir_if(ct_kir *k, ct_kval cond);

#endif
