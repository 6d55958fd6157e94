// Shared by ops of linear algebra: operands that are batches of matrices, a LAPACK call per matrix, and
// helpers for rules.
#ifndef COTAN_OPS_MATRICES_H
#define COTAN_OPS_MATRICES_H

#include "ops/lapack.h"
#include "ops/rules.h"

// One matrix of the batch: `of[i]` is operand i, then result i - n_in. The function returns 0,
// CT_MATRIX_NO_MEMORY, or a code that `say` describes.
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
// Calls `one` for each matrix. The first failure is the error: "`what` `say` ...".
bool ct__each_matrix(const ct_ref *ref, ct_matrix_fn one, ct_matrix_say say);

// Memory for matrices and LAPACK workspaces, in pieces aligned to 64 bytes so that bits do not depend on the
// address. Sizes are numbers of elements of `dtype`.
typedef struct ct_scratch {
    char *at, *memory;
} ct_scratch;
static inline size_t ct__scratch_bytes(ct_dtype dtype, int64_t n) {
    return (ct__dtype_bytes(dtype, n) + 127) & ~(size_t)63;
}
static inline bool ct__scratch_make(ct_scratch *scratch, size_t bytes) {
    return (scratch->at = scratch->memory = ct__aligned(64, bytes + 64)) != NULL;
}
static inline void *ct__scratch_take(ct_scratch *scratch, ct_dtype dtype, int64_t n) {
    void *at = scratch->at;
    scratch->at += ct__scratch_bytes(dtype, n);
    return at;
}
// Converts a matrix from row-major to column-major, or back with rows and columns exchanged.
void ct__to_column_major(ct_dtype dtype, int64_t rows, int64_t columns, const void *from, void *to);
// Helpers for matrices of floats or complex numbers that contain NaN or infinity.
bool ct__all_finite(ct_dtype dtype, const void *x, int64_t n);
void ct__fill_nan(ct_dtype dtype, void *x, int64_t n);
void ct__fill_identity(ct_dtype dtype, void *x, int64_t n); // (n, n)

// Shape rules. Checks that operand i is a batch of matrices, or with `square` of square ones. Reports an
// error if not.
bool ct__check_matrices(ct_call *call, int i, bool square);
// Computes the common batch of the operands, each of which has `core` axes after it. Reports an error if
// there is none.
bool ct__batch_of(ct_call *call, const int *core, ct_type *batch);
// Sets an output's type: the batch, then n sizes.
bool ct__matrix_out(ct_call *call, int out, ct_dtype dtype, const ct_type *batch, int n,
                    const int64_t *sizes);
// The same for each matrix of operand 0: matrices (rows, columns) for n = 2, vectors for n = 1, numbers for 0.
bool ct__factor_out(ct_call *call, int out, ct_dtype dtype, int n, int64_t rows, int64_t columns);
// The dtype of the parts of complex numbers, else the dtype itself.
static inline ct_dtype ct__part_or_own(ct_dtype dtype) {
    return ct__is_complex(dtype) ? ct__part(dtype) : dtype;
}

// Helpers for rules, for matrices in the last two axes.
ct_tensor ct__adjoint(ct_tensor t); // transposed, and complex numbers conjugated
ct_tensor ct__conj_of(ct_tensor t); // floats are unchanged
ct_tensor ct__real_of(ct_tensor t);
// tril: keeps elements (i, j) with i - j >= least, the others become 0.
ct_tensor ct__lower_part(ct_tensor t, int64_t least);
ct_tensor ct__upper_part(ct_tensor t, int64_t least);   // triu: those with j - i >= least
int64_t ct__diagonal_size(const ct_type *x);            // of (..., M, N): min(M, N)
ct_tensor ct__diagonal_of(ct_tensor t);                 // (..., M, N) as (..., min(M, N))
ct_tensor ct__identity(ct_tensor like);                 // (N, N) for the size N of the last axis
ct_tensor ct__scale_columns(ct_tensor t, ct_tensor by); // (..., M, N) times (..., N)
ct_tensor ct__to(ct_tensor t, ct_dtype dtype);          // casts if needed

// `transpose` of a system that is solved: 0 for the matrix itself, 1 for its transpose, 2 for its conjugate
// transpose.
bool ct__check_transpose(ct_call *call, int64_t transpose);
ct_tensor ct__apply_transpose(ct_tensor a, int64_t transpose);
// Solves a x = b, given the factors and pivots of a.
ct_tensor ct__lu_solve(ct_tensor lu, ct_tensor pivots, ct_tensor b, int64_t transpose);

#endif
