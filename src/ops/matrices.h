// What ops of linear algebra share: operands that are batches of matrices, LAPACK called for one matrix
// after the other, and helpers for rules.
#ifndef COTAN_OPS_MATRICES_H
#define COTAN_OPS_MATRICES_H

#include "ops/lapack.h"
#include "ops/rules.h"

// A matrix of the batch: `of[i]` is operand i, then result i - n_in. What comes back is 0,
// CT_MATRIX_NO_MEMORY, or what `say` puts in words.
enum { CT_MATRIX_NO_MEMORY = INT32_MIN };
typedef struct ct_matrix {
    const ct_ref *ref;
    const ct_lapack *lapack;
    ct_dtype dtype;    // of operand 0
    int rows, columns; // of operand 0's matrices
    void *const *of;
} ct_matrix;
typedef int (*ct_matrix_fn)(const ct_matrix *matrix);
typedef void (*ct_matrix_say)(const ct_ref *ref, int info, ct_text *text);
// Calls `one` for each matrix; the first of which it fails is the error: "`what` `say` ...".
bool ct__each_matrix(const ct_ref *ref, ct_matrix_fn one, ct_matrix_say say);

// Memory for matrices and what LAPACK works in, in pieces of 64 bytes so that bits do not hang on
// where they lie. Sizes are numbers of elements of `dtype`.
typedef struct ct_room {
    char *at, *memory;
} ct_room;
static inline size_t ct__room_for(ct_dtype dtype, int64_t n) {
    return (ct__dtype_bytes(dtype, n) + 127) & ~(size_t)63;
}
static inline bool ct__room_make(ct_room *room, size_t bytes) {
    return (room->at = room->memory = ct__aligned(64, bytes + 64)) != NULL;
}
static inline void *ct__room_take(ct_room *room, ct_dtype dtype, int64_t n) {
    void *at = room->at;
    room->at += ct__room_for(dtype, n);
    return at;
}
// A matrix by rows as one by columns, or the other way round with rows and columns exchanged.
void ct__by_columns(ct_dtype dtype, int64_t rows, int64_t columns, const void *from, void *to);
// What of floats or complex numbers is no number.
bool ct__all_finite(ct_dtype dtype, const void *x, int64_t n);
void ct__fill_nan(ct_dtype dtype, void *x, int64_t n);
void ct__fill_identity(ct_dtype dtype, void *x, int64_t n); // (n, n)

// Shape rules. Is operand i a batch of matrices, and (square) of square ones? Reports if not.
bool ct__check_matrices(ct_call *call, int i, bool square);
// The batch that operands have in common, those with `core` axes behind it. Reports if there is none.
bool ct__batch_of(ct_call *call, const int *core, ct_type *batch);
// An output: the batch, then n sizes.
bool ct__matrix_out(ct_call *call, int out, ct_dtype dtype, const ct_type *batch, int n,
                    const int64_t *sizes);

// Rules, of matrices in the last two axes.
ct_tensor ct__adjoint(ct_tensor t); // exchanged, and complex numbers conjugated
ct_tensor ct__conj_of(ct_tensor t); // of floats: itself
ct_tensor ct__real_of(ct_tensor t);
// Elements (i, j) with i - j >= least stay, the others are 0.
ct_tensor ct__lower_part(ct_tensor t, int64_t least);
ct_tensor ct__upper_part(ct_tensor t, int64_t least);   // those with j - i >= least
int64_t ct__diagonal_size(const ct_type *x);            // of (..., M, N) min(M, N)
ct_tensor ct__diagonal_of(ct_tensor t);                 // (..., M, N) as (..., min(M, N))
ct_tensor ct__identity(ct_tensor like);                 // of the last axis' size, (N, N)
ct_tensor ct__columns_times(ct_tensor t, ct_tensor by); // (..., M, N) times (..., N)
ct_tensor ct__to(ct_tensor t, ct_dtype dtype);          // a cast where it is needed

// `transpose` of what is solved: 0 the matrix as it is, 1 its transpose, 2 its conjugate transpose.
bool ct__check_transpose(ct_call *call, int64_t transpose);
ct_tensor ct__meant(ct_tensor a, int64_t transpose);
// The x of a x = b, given the factors and pivots of a.
ct_tensor ct__lu_solve(ct_tensor lu, ct_tensor pivots, ct_tensor b, int64_t transpose);

#endif
