// LAPACK, loaded on first use: OpenBLAS if it is installed, else the reference library.
//
// Its functions have a Fortran interface: all arguments by address, matrices by columns, the lengths of
// strings after all other arguments. There is one table for each dtype: f32, f64, c64, c128.
#ifndef COTAN_OPS_LAPACK_H
#define COTAN_OPS_LAPACK_H

#include "graph/graph.h"

typedef const char *ct_text_arg;
typedef const int *ct_int_arg;
typedef struct ct_lapack {
    void (*potrf)(ct_text_arg uplo, ct_int_arg n, void *a, ct_int_arg lda, int *info, size_t);
    void (*trsm)(ct_text_arg side, ct_text_arg uplo, ct_text_arg trans, ct_text_arg diag,
                 ct_int_arg m, ct_int_arg n, const void *alpha, const void *a, ct_int_arg lda,
                 void *b, ct_int_arg ldb, size_t, size_t, size_t, size_t);
    void (*getrf)(ct_int_arg m, ct_int_arg n, void *a, ct_int_arg lda, int *pivots, int *info);
    void (*getrs)(ct_text_arg trans, ct_int_arg n, ct_int_arg columns, const void *a,
                  ct_int_arg lda, ct_int_arg pivots, void *b, ct_int_arg ldb, int *info, size_t);
    void (*geqrf)(ct_int_arg m, ct_int_arg n, void *a, ct_int_arg lda, void *tau, void *work,
                  ct_int_arg lwork, int *info);
    void (*orgqr)(ct_int_arg m, ct_int_arg n, ct_int_arg k, void *a, ct_int_arg lda,
                  const void *tau, void *work, ct_int_arg lwork, int *info);
    // The variants for floats have no `rwork` and `lrwork`.
    void (*syevd)(ct_text_arg jobz, ct_text_arg uplo, ct_int_arg n, void *a, ct_int_arg lda,
                  void *w, void *work, ct_int_arg lwork, int *iwork, ct_int_arg liwork, int *info,
                  size_t, size_t);
    void (*heevd)(ct_text_arg jobz, ct_text_arg uplo, ct_int_arg n, void *a, ct_int_arg lda,
                  void *w, void *work, ct_int_arg lwork, void *rwork, ct_int_arg lrwork, int *iwork,
                  ct_int_arg liwork, int *info, size_t, size_t);
    void (*gesdd)(ct_text_arg jobz, ct_int_arg m, ct_int_arg n, void *a, ct_int_arg lda, void *s,
                  void *u, ct_int_arg ldu, void *vt, ct_int_arg ldvt, void *work, ct_int_arg lwork,
                  int *iwork, int *info, size_t);
    void (*gesdd_complex)(ct_text_arg jobz, ct_int_arg m, ct_int_arg n, void *a, ct_int_arg lda,
                          void *s, void *u, ct_int_arg ldu, void *vt, ct_int_arg ldvt, void *work,
                          ct_int_arg lwork, void *rwork, int *iwork, int *info, size_t);
    void (*geev)(ct_text_arg left, ct_text_arg right, ct_int_arg n, void *a, ct_int_arg lda,
                 void *wr, void *wi, void *vl, ct_int_arg ldvl, void *vr, ct_int_arg ldvr,
                 void *work, ct_int_arg lwork, int *info, size_t, size_t);
    void (*geev_complex)(ct_text_arg left, ct_text_arg right, ct_int_arg n, void *a, ct_int_arg lda,
                         void *w, void *vl, ct_int_arg ldvl, void *vr, ct_int_arg ldvr, void *work,
                         ct_int_arg lwork, void *rwork, int *info, size_t, size_t);
} ct_lapack;

// Returns the functions for a dtype and loads the library if needed. Returns NULL if it is not installed,
// which is reported as an error of the node.
const ct_lapack *ct__lapack(ct_dtype dtype, const ct_node *node, ct_err *err);
// Between these calls the library computes on the calling thread only, regardless of the settings of the host
// program.
void ct__lapack_begin(void);
void ct__lapack_end(void);
// Returns a description of what the bits of a device's results depend on: `device`, and the library once it
// is loaded. The string is never freed.
const char *ct__lapack_numerics(const char *device);

#endif
