#include "ops/matrices.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

// -------------------------------------------------------------------------------- matrix by matrix

typedef struct {
    const ct_ref *ref;
    const ct_lapack *lapack;
    ct_matrix_fn one;
    ct_type batch;
    int *info; // (n)
    int64_t n, grain;
    int rows, columns;
} matrices_job;

// Returns the number of elements of one matrix: the product of the sizes of the axes from `from` on.
static int64_t matrices_elements_from(const ct_type *type, int from) {
    int64_t n = 1;
    for (int a = from; a < type->rank; a++) n *= type->dim[a];
    return n;
}

static void matrices_run(void *arg, int64_t begin, int64_t end, int worker) {
    const matrices_job *job = arg;
    const ct_ref *ref = job->ref;
    void *of[8];
    (void)worker;
    begin *= job->grain;
    end = end * job->grain < job->n ? end * job->grain : job->n;
    for (int64_t i = begin; i < end; i++) {
        for (int k = 0; k < ref->n_in; k++) {
            ct_type batch = ref->in_type[k];
            batch.rank = (uint8_t)(batch.rank - ref->node->op->core[k]);
            const int64_t index = ct__broadcast_index(&job->batch, &batch, i);
            of[k] = (char *)(uintptr_t)ref->in[k] +
                    (size_t)(index * matrices_elements_from(&ref->in_type[k], batch.rank)) *
                        ct_dtype_size(ref->in_type[k].dtype);
        }
        for (int k = 0; k < ref->n_out; k++)
            of[ref->n_in + k] =
                (char *)ref->out[k] +
                (size_t)(i * matrices_elements_from(&ref->out_type[k], job->batch.rank)) *
                    ct_dtype_size(ref->out_type[k].dtype);
        const ct_matrix one = {.ref = ref,
                               .lapack = job->lapack,
                               .dtype = (ct_dtype)ref->in_type->dtype,
                               .rows = job->rows,
                               .columns = job->columns,
                               .of = of};
        job->info[i] = ref->stop && atomic_load(ref->stop) ? 0 : job->one(&one);
    }
}

static bool matrices_report(const matrices_job *job, ct_matrix_say say) {
    const ct_ref *ref = job->ref;
    int64_t i = 0;
    while (i < job->n && !job->info[i]) i++;
    if (i == job->n) return true;
    if (job->info[i] == CT_MATRIX_NO_MEMORY)
        return ct__err_memory(ref->err, ref->node->here, ref->node->op->name,
                              ct__type_bytes(ref->in_type));
    CT_TEXT text = {0};
    ct__text_add(&text, job->batch.rank ? "matrix " : "the matrix ");
    if (job->batch.rank) {
        ct__print_index(&text, &job->batch, i);
        ct__text_add(&text, " of the batch ");
    }
    say(ref, job->info[i], &text);
    ct__err(ref->err, CT_E_LINALG, ref->node->here, ref->node->op->name, "%s",
            text.failed ? "a matrix has no such result" : text.s);
    return false;
}

static bool matrices_check_stop(const ct_ref *ref) {
    if (!ref->stop || !atomic_load(ref->stop)) return false;
    return !ct__err(ref->err, CT_E_INTERRUPTED, CT_NOWHERE, "run",
                    "cancelled: no variable has changed");
}

bool ct__each_matrix(const ct_ref *ref, ct_matrix_fn one, ct_matrix_say say) {
    enum { MIN_WORK = 50000 }; // of a task, in floating-point operations
    const ct_type *x = &ref->in_type[0];
    matrices_job job = {.ref = ref, .one = one, .n = 1, .batch = ref->out_type[0]};
    int n_batch = 0;
    for (int k = 0; k < ref->n_in; k++)
        if (ref->in_type[k].rank - ref->node->op->core[k] > n_batch)
            n_batch = ref->in_type[k].rank - ref->node->op->core[k];
    job.batch.rank = (uint8_t)n_batch;
    for (int a = 0; a < n_batch; a++) job.n *= job.batch.dim[a];
    for (int k = 0; k < ref->n_in; k++)
        for (int a = 1; a <= ref->node->op->core[k]; a++)
            if (ref->in_type[k].dim[ref->in_type[k].rank - a] > INT32_MAX)
                return ct__err(ref->err, CT_E_UNSUPPORTED, ref->node->here, ref->node->op->name,
                               "operand %d is %s: LAPACK's sizes end at 2147483647", k + 1,
                               ct__type_text(&ref->in_type[k]).s);
    job.rows = (int)x->dim[x->rank - 2];
    job.columns = (int)x->dim[x->rank - 1];
    if (!(job.lapack = ct__lapack((ct_dtype)x->dtype, ref->node, ref->err))) return false;
    if (!(job.info = ct__calloc((size_t)job.n + 1, sizeof *job.info)))
        return ct__err_memory(ref->err, ref->node->here, ref->node->op->name,
                              (size_t)job.n * sizeof *job.info);
    const double work = pow((double)job.rows * job.columns + 1, 1.5);
    job.grain = 1 + (int64_t)(MIN_WORK / work);
    const int64_t tasks = (job.n + job.grain - 1) / job.grain;
    ct__lapack_begin();
    if (ref->spread && tasks > 1)
        ref->spread(matrices_run, &job, tasks);
    else if (tasks)
        matrices_run(&job, 0, tasks, 0);
    ct__lapack_end();
    const bool ok = !matrices_check_stop(ref) && matrices_report(&job, say);
    ct__free(job.info);
    return ok;
}

// --------------------------------------------------------------------------------- one matrix's memory

// Transposes in blocks, so that neither matrix is traversed across its cache lines.
static inline void matrices_transpose(size_t size, int64_t rows, int64_t columns, const char *from,
                                      char *to) {
    enum { BLOCK = 16 };
    for (int64_t i = 0; i < rows; i += BLOCK)
        for (int64_t j = 0; j < columns; j += BLOCK)
            for (int64_t r = i; r < rows && r < i + BLOCK; r++)
                for (int64_t c = j; c < columns && c < j + BLOCK; c++)
                    memcpy(to + (size_t)(c * rows + r) * size,
                           from + (size_t)(r * columns + c) * size, size);
}
void ct__to_column_major(ct_dtype dtype, int64_t rows, int64_t columns, const void *from,
                         void *to) {
    switch (ct_dtype_size(dtype)) {
    case 4: matrices_transpose(4, rows, columns, from, to); break;
    case 8: matrices_transpose(8, rows, columns, from, to); break;
    default: matrices_transpose(16, rows, columns, from, to); break;
    }
}

static ct_dtype matrices_part_dtype(ct_dtype dtype, int64_t *n) {
    if (!ct__is_complex(dtype)) return dtype;
    *n *= 2;
    return ct__part(dtype);
}
bool ct__all_finite(ct_dtype dtype, const void *x, int64_t n) {
    if (matrices_part_dtype(dtype, &n) == CT_F32) {
        const float *v = x;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(v[i])) return false;
    } else {
        const double *v = x;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(v[i])) return false;
    }
    return true;
}
void ct__fill_nan(ct_dtype dtype, void *x, int64_t n) {
    const ct_dtype part = matrices_part_dtype(dtype, &n);
    for (int64_t i = 0; i < n; i++) ct__store_f64(part, x, i, NAN);
}

void ct__fill_identity(ct_dtype dtype, void *x, int64_t n) {
    const int parts = ct__is_complex(dtype) ? 2 : 1;
    const ct_dtype part = parts == 2 ? ct__part(dtype) : dtype;
    for (int64_t i = 0; i < n * n * parts; i++) ct__store_f64(part, x, i, 0);
    for (int64_t i = 0; i < n; i++) ct__store_f64(part, x, (i * n + i) * parts, 1);
}

// --------------------------------------------------------------------------------------- shape rules

bool ct__check_matrices(ct_call *call, int i, bool square) {
    const ct_type *x = call->in[i];
    if (!ct__check_accepts(call, i)) return false;
    if (x->rank < 2)
        return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, and no matrix", i + 1,
                            ct__type_text(x).s) ||
               ct__call_hint(call, "matrices are the last two axes, (..., M, N)");
    if (!square) return true;
    if (x->dim[x->rank - 1] != x->dim[x->rank - 2])
        return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, and no square matrix", i + 1,
                            ct__type_text(x).s);
    (void)ct__same_size(x, x->rank - 1, x, x->rank - 2);
    return true;
}

bool ct__batch_of(ct_call *call, const int *core, ct_type *batch) {
    ct_type own[3];
    const ct_type *list[3];
    for (int i = 0; i < call->n_in; i++) {
        own[i] = *call->in[i];
        own[i].rank = (uint8_t)(own[i].rank - core[i]);
        own[i].dyn &= (1u << own[i].rank) - 1;
        list[i] = &own[i];
    }
    *batch = (ct_type){.dtype = call->in[0]->dtype};
    if (ct__broadcast(call->arena, list, call->n_in, batch)) return true;
    return ct__call_err(
        call, CT_E_SHAPE, "batch axes do not broadcast: operand 1 is %s, operand %d is %s",
        ct__type_text(call->in[0]).s, call->n_in, ct__type_text(call->in[call->n_in - 1]).s);
}

bool ct__matrix_out(ct_call *call, int out, ct_dtype dtype, const ct_type *batch, int n,
                    const int64_t *sizes) {
    ct_shape shape = ct__call_shape(call, batch->rank + n);
    if (!shape.dim) return false;
    for (int a = 0; a < batch->rank; a++) ct__shape_add_axis(&shape, batch, a);
    for (int i = 0; i < n; i++) ct__shape_add(&shape, sizes[i]);
    call->out[out] = ct__shaped(&shape, dtype, false);
    return true;
}

bool ct__factor_out(ct_call *call, int out, ct_dtype dtype, int n, int64_t rows, int64_t columns) {
    ct_type batch = *call->in[0];
    batch.rank = (uint8_t)(batch.rank - 2);
    return ct__matrix_out(call, out, dtype, &batch, n, (int64_t[]){rows, columns});
}

bool ct__check_transpose(ct_call *call, int64_t transpose) {
    return (transpose >= 0 && transpose <= 2) ||
           ct__call_err(call, CT_E_ARGUMENT,
                        "transpose is %lld: 0 takes the matrix as it is, 1 its transpose, 2 its "
                        "conjugate transpose",
                        (long long)transpose);
}

// ---------------------------------------------------------------------------------------------- rules

ct_tensor ct__apply_transpose(ct_tensor a, int64_t transpose) {
    return transpose == 0 ? a : transpose == 1 ? ct__swap_last(a) : ct__adjoint(a);
}

static bool matrices_is_complex(ct_tensor t) {
    return ct__is_complex((ct_dtype)ct__type_of(t)->dtype);
}

ct_tensor ct__conj_of(ct_tensor t) { return matrices_is_complex(t) ? ct_conj(t) : t; }
ct_tensor ct__adjoint(ct_tensor t) { return ct__conj_of(ct__swap_last(t)); }
ct_tensor ct__real_of(ct_tensor t) { return matrices_is_complex(t) ? ct_real(t) : t; }
ct_tensor ct__to(ct_tensor t, ct_dtype dtype) {
    return (ct_dtype)ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}

// Returns i - j for each element of the matrices of t, (M, N).
static ct_tensor matrices_row_minus_column(ct_tensor t) {
    const int rank = ct__type_of(t)->rank;
    const int64_t dims[2] = {ct__size_like(t, rank - 2), ct__size_like(t, rank - 1)};
    ct_tensor row = ct_iota(CT_I32, ((ct_ints){2, dims}), 0);
    return ct_sub(row, ct_iota(CT_I32, ((ct_ints){2, dims}), 1));
}
static ct_tensor matrices_mask(ct_tensor mask, ct_tensor t) {
    return ct_select(mask, t, ct__number_like(0, t));
}
ct_tensor ct__lower_part(ct_tensor t, int64_t least) {
    return matrices_mask(ct_less_equal(ct_i(least), matrices_row_minus_column(t)), t);
}
ct_tensor ct__upper_part(ct_tensor t, int64_t least) {
    return matrices_mask(ct_less_equal(matrices_row_minus_column(t), ct_i(-least)), t);
}
ct_tensor ct__identity(ct_tensor like) {
    const int64_t n = ct__size_like(like, ct__type_of(like)->rank - 1), dims[2] = {n, n};
    ct_tensor row = ct_iota(CT_I32, ((ct_ints){2, dims}), 0);
    ct_tensor column = ct_iota(CT_I32, ((ct_ints){2, dims}), 1);
    return ct_cast(ct_equal(row, column), (ct_dtype)ct__type_of(like)->dtype);
}
int64_t ct__diagonal_size(const ct_type *x) {
    const int64_t m = ct__size_of(x, x->rank - 2), n = ct__size_of(x, x->rank - 1);
    ct_symbols *table = ct__symbols_now();
    if (ct__size_canonical(table, m) == ct__size_canonical(table, n)) return n;
    ct__specialise_size(m);
    ct__specialise_size(n);
    return ct__unmarked(m) < ct__unmarked(n) ? m : n;
}
ct_tensor ct__diagonal_of(ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    const int rank = type->rank;
    if (rank < 2) return t; // poisoned
    const bool wide = ct__diagonal_size(type) != ct__size_of(type, rank - 1);
    const int64_t summed_axis =
        wide ? rank - 1 : rank - 2; // the other axis has the diagonal's size
    return ct_sum(matrices_mask(ct_equal(matrices_row_minus_column(t), ct_i(0)), t),
                  .axes = {1, &summed_axis});
}

ct_tensor ct__scale_columns(ct_tensor t, ct_tensor by) {
    ct_dims_buffer dims;
    ct_ints list = ct__dims_of(by, &dims);
    if (!list.n) return by; // poisoned
    dims.v[list.n] = dims.v[list.n - 1];
    dims.v[list.n - 1] = 1;
    return ct_mul(t, ct_reshape(by, ((ct_ints){list.n + 1, dims.v})));
}
