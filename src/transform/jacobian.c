// Jacobians, Hessians and Hessian-vector products, recorded as compositions of jvp, vjp and vmap.
#include "ops/rules.h"
#include "transform/trace.h"

// The function that is differentiated.
typedef struct function {
    ct_ctx *ctx;
    const char *op;
    ct_fn f;
    void *user;
    size_t n_in, n_out;
    size_t which; // the operand or the result over whose basis is mapped
    ct_loc here;
} function;

static bool jacobian_no_memory(const function *s, size_t n) {
    return ct__err_memory(&s->ctx->err, s->here, s->op, n * sizeof(ct_tensor));
}

// Returns all unit tensors of a type: (size, its sizes...).
static ct_tensor jacobian_basis(const ct_type *type, ct_loc here) {
    int64_t size = 1, dims[CT_MAX_RANK + 1];
    for (int a = 0; a < type->rank; a++) size = ct__size_mul(size, ct__size_of(type, a));
    const int64_t column[2] = {dims[0] = size, 1};
    ct_dims_buffer own;
    ct__type_dims(type, &own);
    for (int a = 0; a < type->rank; a++) dims[a + 1] = own.v[a];
    ct_tensor i = ct_iota_at(CT_I64, (ct_ints){2, column}, 0, here),
              k = ct_iota_at(CT_I64, (ct_ints){1, column}, 0, here);
    ct_tensor eye = ct_cast_at(ct_equal_at(i, k, here), (ct_dtype)type->dtype, here);
    return ct_reshape_at(eye, (ct_ints){type->rank + 1, dims}, here);
}

// Reshapes a tensor that has a single axis for each of two types to (sizes of `first`, sizes of `second`).
static ct_tensor jacobian_reshape(ct_tensor t, const ct_type *first, const ct_type *second,
                                  ct_loc here) {
    int64_t dims[2 * CT_MAX_RANK];
    ct_dims_buffer a, b;
    int n = 0;
    ct__type_dims(first, &a);
    ct__type_dims(second, &b);
    for (int i = 0; i < first->rank; i++) dims[n++] = a.v[i];
    for (int i = 0; i < second->rank; i++) dims[n++] = b.v[i];
    return ct_reshape_at(t, (ct_ints){n, dims}, here);
}

// Operands of f, then a tangent of operand `which` -> tangents of the results.
static void jacobian_push_forward(const ct_tensor *in, ct_tensor *out, void *user) {
    const function *s = user;
    CT_ARENA scratch = {0};
    ct_tensor *tangents = ct__arena_zero(&scratch, (s->n_in + 1) * sizeof *tangents),
              *outs = ct__arena(&scratch, (s->n_out + 1) * sizeof *outs);
    if (tangents && outs) {
        tangents[s->which] = in[s->n_in];
        ct_jvp_at(s->f, s->user, in, s->n_in, outs, s->n_out, tangents, out, s->here);
    } else {
        jacobian_no_memory(s, s->n_in);
    }
}

// Operands of f, then a cotangent of result `which` -> gradients of the operands, with zeros for those that
// are not floats.
static void jacobian_pull_back(const ct_tensor *in, ct_tensor *out, void *user) {
    const function *s = user;
    CT_ARENA scratch = {0};
    ct_tensor *cotangents = ct__arena_zero(&scratch, (s->n_out + 1) * sizeof *cotangents),
              *outs = ct__arena(&scratch, (s->n_out + 1) * sizeof *outs);
    if (cotangents && outs) {
        cotangents[s->which] = in[s->n_in];
        ct_vjp_at(s->f, s->user, in, s->n_in, outs, s->n_out, cotangents, out, s->here);
        for (size_t i = 0; i < s->n_in; i++)
            if (ct__is_none(out[i])) out[i] = ct__zeros_like(in[i]);
    } else {
        jacobian_no_memory(s, s->n_out);
    }
}

// Maps `derive` over all unit tensors of a type, as one batch along an axis of each result.
static bool jacobian_map_basis(const function *s, ct_fn derive, const ct_tensor *in,
                               const ct_type *type, int64_t out_axis, ct_tensor *out,
                               size_t n_out) {
    CT_ARENA scratch = {0};
    size_t n = s->n_in + 1;
    ct_tensor *all = ct__arena(&scratch, n * sizeof *all);
    int64_t *axes = ct__arena(&scratch, n * sizeof *axes),
            *out_axes = ct__arena(&scratch, (n_out + 1) * sizeof *out_axes);
    bool ok = (all && axes && out_axes) || jacobian_no_memory(s, n);
    for (size_t i = 0; i < s->n_in && ok; i++) all[i] = in[i], axes[i] = CT_NO_AXIS;
    for (size_t i = 0; i < n_out && ok; i++) out_axes[i] = out_axis;
    if (ok) {
        all[s->n_in] = jacobian_basis(type, s->here);
        axes[s->n_in] = 0;
        ct_vmap_with((ct_vmap_args){.f = derive,
                                    .user = (void *)(uintptr_t)s,
                                    .in = all,
                                    .n_in = n,
                                    .out = out,
                                    .n_out = n_out,
                                    .in_axes = {(int64_t)n, axes},
                                    .out_axes = {(int64_t)n_out, out_axes},
                                    .here = s->here});
    }
    return ok && !s->ctx->err.code;
}

// The common first step: computes f's results to `out`, which must be floats.
static bool jacobian_call_function(const function *s, const ct_tensor *in, ct_tensor *out,
                                   ct_tensor *room) {
    if (!ct__call_given(s->ctx, s->op, in, s->n_in, out, s->n_out, s->here) ||
        !ct__given(s->ctx, room, s->here, s->op, "the array for the derivatives"))
        return false;
    ct_call_at(s->f, s->user, in, s->n_in, out, s->n_out, s->here);
    for (size_t i = 0; i < s->n_out && !s->ctx->err.code; i++)
        if (!ct__has_slope(out[i]))
            ct__fail(s->ctx, CT_E_DTYPE, s->here, s->op,
                     "result %zu is %s, only floats have derivatives", i + 1,
                     ct__type_text(ct__type_of(out[i])).s);
    return true;
}

void ct_jacfwd_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                  size_t n_out, ct_tensor *jacobians, ct_loc here) {
    function s = {ct__ctx(), "jacfwd", f, user, n_in, n_out, 0, here};
    if (!s.ctx || !jacobian_call_function(&s, in, out, jacobians)) return;
    CT_ARENA scratch = {0};
    ct_tensor *columns = ct__arena(&scratch, (n_out + 1) * sizeof *columns);
    bool ok = columns ? !s.ctx->err.code : jacobian_no_memory(&s, n_out);
    for (size_t k = 0; k < n_in && ok; k++) {
        const ct_type *type = ct__type_of(in[k]);
        s.which = k;
        ok = !ct__has_slope(in[k]) ||
             jacobian_map_basis(&s, jacobian_push_forward, in, type, -1, columns, n_out);
        for (size_t i = 0; i < n_out && ok; i++)
            jacobians[i * n_in + k] =
                ct__has_slope(in[k]) ? jacobian_reshape(columns[i], ct__type_of(out[i]), type, here)
                                     : CT_NONE;
    }
    if (!ok) ct__poison_all(s.ctx, jacobians, n_in * n_out, here);
}

void ct_jacrev_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                  size_t n_out, ct_tensor *jacobians, ct_loc here) {
    function s = {ct__ctx(), "jacrev", f, user, n_in, n_out, 0, here};
    if (!s.ctx || !jacobian_call_function(&s, in, out, jacobians)) return;
    bool ok = !s.ctx->err.code;
    for (size_t i = 0; i < n_out && ok; i++) {
        const ct_type *type = ct__type_of(out[i]);
        ct_tensor *row = jacobians + i * n_in;
        s.which = i;
        ok = jacobian_map_basis(&s, jacobian_pull_back, in, type, 0, row, n_in);
        for (size_t k = 0; k < n_in && ok; k++)
            row[k] = ct__has_slope(in[k]) ? jacobian_reshape(row[k], type, ct__type_of(in[k]), here)
                                          : CT_NONE;
    }
    if (!ok) ct__poison_all(s.ctx, jacobians, n_in * n_out, here);
}

// Computes the Jacobians of f, with a scalar in place of those that do not exist.
static void jacobian_trace_all(const ct_tensor *in, ct_tensor *out, void *user) {
    const function *s = user;
    CT_ARENA scratch = {0};
    ct_tensor *outs = ct__arena(&scratch, (s->n_out + 1) * sizeof *outs);
    if (outs)
        ct_jacrev_at(s->f, s->user, in, s->n_in, outs, s->n_out, out, s->here);
    else
        jacobian_no_memory(s, s->n_out);
    for (size_t i = 0; i < s->n_in * s->n_out; i++)
        if (ct__is_none(out[i])) out[i] = ct_zeros_at(CT_F32, CT_SCALAR, s->here);
}

void ct_hessian_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                   size_t n_out, ct_tensor *hessians, ct_loc here) {
    function s = {ct__ctx(), "hessian", f, user, n_in, n_out, 0, here};
    if (!s.ctx || !jacobian_call_function(&s, in, out, hessians)) return;
    CT_ARENA scratch = {0};
    size_t n = n_in * n_out;
    ct_tensor *jacobians = ct__arena(&scratch, (n + 1) * sizeof *jacobians);
    if (jacobians && !s.ctx->err.code)
        ct_jacfwd_at(jacobian_trace_all, &s, in, n_in, jacobians, n, hessians, here);
    else if (!jacobians)
        jacobian_no_memory(&s, n);
    for (size_t i = 0; i < n && !s.ctx->err.code; i++)
        for (size_t k = 0; k < n_in; k++)
            if (!ct__has_slope(in[i % n_in])) hessians[i * n_in + k] = CT_NONE;
    if (s.ctx->err.code) ct__poison_all(s.ctx, hessians, n * n_in, here);
}

// Computes the gradients of f, with zeros for operands that have none.
static void jacobian_trace_gradients(const ct_tensor *in, ct_tensor *out, void *user) {
    const function *s = user;
    ct_tensor loss;
    ct__value_and_grad(s->op, s->f, s->user, in, s->n_in, &loss, 1, out, s->here);
    for (size_t i = 0; i < s->n_in; i++)
        if (ct__is_none(out[i])) out[i] = ct__zeros_like(in[i]);
}

void ct_hvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, const ct_tensor *vectors,
               ct_tensor *products, ct_loc here) {
    function s = {ct__ctx(), "hvp", f, user, n_in, 1, 0, here};
    if (!s.ctx || !ct__call_given(s.ctx, s.op, in, n_in, products, n_in, here)) return;
    CT_ARENA scratch = {0};
    ct_tensor *grads = ct__arena(&scratch, (n_in + 1) * sizeof *grads);
    if (grads && ct__given(s.ctx, (void *)(uintptr_t)f, here, s.op, "the function"))
        ct__jvp(s.op, "vector", jacobian_trace_gradients, &s, in, n_in, grads, n_in, vectors,
                products, here);
    else if (!grads)
        jacobian_no_memory(&s, n_in);
    for (size_t i = 0; i < n_in && !s.ctx->err.code; i++)
        if (!ct__has_slope(in[i])) products[i] = CT_NONE;
    if (s.ctx->err.code) ct__poison_all(s.ctx, products, n_in, here);
}
