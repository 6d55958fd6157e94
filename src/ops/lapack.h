// LAPACK, loaded when it is used first: OpenBLAS where it is there, else the reference library.
//
// Its functions have Fortran's form: everything by address, matrices by columns, the lengths of texts
// behind all else. They are here by dtype: f32, f64, c64, c128.
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
    // Of floats without `rwork` and `lrwork`.
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

// The functions for a dtype, the library being loaded; NULL: it is not there, which is reported as an
// error of the node.
const ct_lapack *ct__lapack(ct_dtype dtype, const ct_node *node, ct_err *err);
// Between the two the library computes on the calling thread alone, whatever the host program has
// told it.
void ct__lapack_begin(void);
void ct__lapack_end(void);
// What a device's bits depend on: `device`, and the library once it is loaded. The text stays.
const char *ct__lapack_numerics(const char *device);

#endif
