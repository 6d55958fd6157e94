// Batching rules of loops and branches: the same node, with bodies that take a batch.
//
// A carried tensor is batched if it is at the beginning or becomes so in an iteration; the rest remains
// unbatched, such as the loop index. A while loop whose predicate is batched runs until the predicate is
// false for all elements, and an element whose predicate has become false keeps its value. A branch whose
// predicate is batched becomes a select between the results of all branches.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"
#include "transform/loop.h"

typedef struct {
    const ct_batching *b;
    ct_loop loop;
    size_t body;            // of a branch: which one
    bool *carried;          // (n_carry) true if batched
    bool *results;          // (n_out of the node) true if batched as a result of the body
    bool batched_predicate; // the predicate of a while loop is batched
} batched_loop;

static bool loop_batch_no_memory(const ct_batching *b, size_t n) {
    return ct__err_memory(&b->node->ctx->err, b->node->here, b->node->op->name,
                          n * sizeof(ct_tensor));
}
static size_t loop_batch_arg_count(const ct_body *body) {
    return body->n_params + body->n_captured;
}

// ------------------------------------------------------------------------- which values are batched

// Computes which outputs of a body are batched: those that depend on a batched argument.
static bool loop_batch_propagate(const batched_loop *l, size_t body, const bool *args, bool *outs) {
    const ct_body *f = l->loop.bodies.v[body];
    CT_ARENA scratch = {0};
    bool *has = ct__arena_zero(&scratch, f->n_nodes + 1);
    if (!has) return loop_batch_no_memory(l->b, f->n_nodes);
    for (size_t i = 0; i < f->n_nodes; i++) {
        ct_node *node = f->nodes[i];
        node->index = (uint32_t)i; // no other walk visits them
        if (node->op == &ct__op_param) has[i] = args[node->number];
        for (int k = 0; k < node->n_in; k++) has[i] |= has[node->in[k].node->index];
    }
    for (size_t i = 0; i < f->n_outs; i++) outs[i] = has[f->outs[i].node->index];
    return true;
}

// Computes which arguments of a body are batched.
static void loop_batch_args(const batched_loop *l, size_t body, bool *args) {
    const bool carries = l->loop.form != CT_LOOP_SWITCH;
    for (size_t p = 0; p < loop_batch_arg_count(l->loop.bodies.v[body]); p++)
        args[p] = carries && p < l->loop.n_carry
                      ? l->carried[p]
                      : l->b->batched[ct__loop_operand(&l->loop, body, p)];
}

// Propagates through one body. Sets *changed if more values become batched.
static bool loop_batch_propagate_body(batched_loop *l, size_t body, bool *changed) {
    const ct_body *f = l->loop.bodies.v[body];
    const size_t nc = l->loop.form == CT_LOOP_SWITCH ? 0 : l->loop.n_carry;
    const bool predicate = l->loop.form == CT_LOOP_WHILE;
    CT_ARENA scratch = {0};
    bool *args = ct__arena(&scratch, loop_batch_arg_count(f) + 1),
         *outs = ct__arena(&scratch, f->n_outs + 1);
    bool ok = (args && outs) || loop_batch_no_memory(l->b, loop_batch_arg_count(f));
    if (ok) loop_batch_args(l, body, args);
    ok = ok && loop_batch_propagate(l, body, args, outs);
    for (size_t i = 0; i < f->n_outs && ok; i++) {
        const bool last = predicate && i + 1 == f->n_outs;
        bool *to = last ? &l->batched_predicate : &l->results[i];
        if (!outs[i] || *to) continue;
        *to = *changed = true;
        if (i < nc && !last) l->carried[i] = true;
    }
    return ok;
}

// The results of each iteration depend on those of the previous one, so this iterates to a fixed point.
static bool loop_batch_find(batched_loop *l) {
    const size_t nc = l->loop.n_carry;
    bool ok = true;
    for (bool changed = true; changed && ok;) {
        changed = false;
        for (size_t i = 0; i < l->loop.bodies.n && ok; i++)
            ok = loop_batch_propagate_body(l, i, &changed);
        for (size_t i = 0; i < nc && l->batched_predicate; i++) {
            changed |= !l->carried[i];
            l->carried[i] = l->results[i] = true;
        }
    }
    return ok;
}

static bool loop_batch_begin(batched_loop *l, ct_batching *b, ct_arena *scratch) {
    *l = (batched_loop){.b = b, .loop = ct__loop_of(b->node)};
    const size_t nc = l->loop.n_carry;
    l->carried = ct__arena_zero(scratch, nc + 1);
    l->results = ct__arena_zero(scratch, (size_t)b->n_out + 1);
    if (!l->carried || !l->results) return loop_batch_no_memory(b, nc);
    for (size_t i = 0; i < nc && l->loop.form != CT_LOOP_SWITCH; i++)
        l->carried[i] = l->results[i] = b->batched[i];
    return loop_batch_find(l);
}

// ------------------------------------------------------------------------------------------ values

// Broadcasts t to the batch.
static ct_tensor loop_batch_broadcast(const ct_batching *b, ct_tensor t) {
    ct_dims_buffer dims;
    int64_t all[CT_MAX_RANK + 1] = {b->size};
    ct__dims_of(t, &dims);
    for (int64_t a = 0; a < dims.list.n; a++) all[a + 1] = dims.v[a];
    return ct_expand_at(t, (ct_ints){dims.list.n + 1, all}, b->node->here);
}
// Reshapes one bool per element, so that it broadcasts against a tensor that has `rank` axes after the batch.
static ct_tensor loop_batch_align(const ct_batching *b, ct_tensor each, int rank) {
    int64_t dims[CT_MAX_RANK + 1] = {b->size};
    for (int a = 0; a < rank; a++) dims[a + 1] = 1;
    return ct_reshape_at(each, (ct_ints){rank + 1, dims}, b->node->here);
}
static ct_tensor loop_batch_select(const ct_batching *b, ct_tensor each, ct_tensor yes,
                                   ct_tensor no) {
    return ct_select(loop_batch_align(b, each, ct__type_of(yes)->rank - 1), yes, no);
}

// Inlines a body. Each result has the batch if `wanted` says so (NULL: all), which holds wherever it is
// batched.
static bool loop_batch_inline_body(const batched_loop *l, size_t body, const ct_tensor *args,
                                   const bool *wanted, ct_tensor *out) {
    const ct_body *f = l->loop.bodies.v[body];
    CT_ARENA scratch = {0};
    bool *in = ct__arena(&scratch, loop_batch_arg_count(f) + 1),
         *has = ct__arena(&scratch, f->n_outs + 1);
    bool ok = (in && has) || loop_batch_no_memory(l->b, loop_batch_arg_count(f));
    if (ok) loop_batch_args(l, body, in);
    ok = ok && ct__inline_batched(l->b->node->ctx, f, l->b->size, args, in, out, has);
    for (size_t i = 0; i < f->n_outs && ok; i++)
        if (!has[i] && (!wanted || wanted[i])) out[i] = loop_batch_broadcast(l->b, out[i]);
    return ok && !l->b->node->ctx->err.code;
}

// Returns the arguments of a loop body: `in` (the carried tensors and elements), then what it captured.
static ct_tensor *loop_batch_arguments(const batched_loop *l, size_t body, const ct_tensor *in,
                                       ct_arena *scratch) {
    const ct_body *f = l->loop.bodies.v[body];
    const size_t own = l->loop.n_shared;
    ct_tensor *args = ct__arena(scratch, (loop_batch_arg_count(f) + 1) * sizeof *args);
    if (!args) return loop_batch_no_memory(l->b, loop_batch_arg_count(f)), NULL;
    for (size_t p = 0; p < loop_batch_arg_count(f); p++)
        args[p] = p < own ? in[p] : l->b->in[ct__loop_operand(&l->loop, body, p)];
    return args;
}

// Computes the initial carried tensors.
static void loop_batch_first_carry(const batched_loop *l, ct_tensor *carry) {
    for (size_t i = 0; i < l->loop.n_carry; i++)
        carry[i] = l->carried[i] ? ct__batch_operand(l->b, (int)i) : l->b->in[i];
}
static void loop_batch_store_carry(const batched_loop *l, const ct_tensor *last) {
    for (size_t i = 0; i < l->loop.n_carry; i++) {
        l->b->out[i] = last[i];
        l->b->out_batched[i] = l->carried[i];
    }
}

// -------------------------------------------------------------------------------------------- scan

static void loop_batch_scan_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    CT_ARENA scratch = {0};
    const ct_tensor *args = loop_batch_arguments(l, 0, in, &scratch);
    if (args) loop_batch_inline_body(l, 0, args, l->results, out);
}

bool ct__scan_batch(ct_batching *b) {
    batched_loop l;
    CT_ARENA scratch = {0};
    const ct_ctx *ctx = b->node->ctx;
    bool ok = loop_batch_begin(&l, b, &scratch);
    const size_t n_carry = l.loop.n_carry, n_xs = l.loop.n_xs, n_out = (size_t)b->n_out;
    ct_tensor *carry = ct__arena(&scratch, (n_carry + n_xs + 1) * sizeof *carry),
              *last = ct__arena_zero(&scratch, (n_out + 1) * sizeof *last);
    ok = ok && ((carry && last) || loop_batch_no_memory(b, n_carry + n_xs));
    if (ok) {
        ct_tensor *xs = carry + n_carry;
        loop_batch_first_carry(&l, carry);
        for (size_t i = 0; i < n_xs; i++) { // elements are along axis 0, followed by the batch
            int rank = ct__type(b->node->in[n_carry + i])->rank + 1;
            xs[i] = b->batched[n_carry + i] ? ct__batch_move(b, b->in[n_carry + i], rank, 1, 0)
                                            : b->in[n_carry + i];
        }
        ct__scan((ct_scan_args){.body = loop_batch_scan_body,
                                .user = &l,
                                .carry = carry,
                                .n_carry = n_carry,
                                .xs = xs,
                                .n_xs = n_xs,
                                .n_ys = n_out - n_carry,
                                .length = l.loop.length,
                                .reverse = l.loop.reverse,
                                .here = b->node->here},
                 last, last + n_carry);
        loop_batch_store_carry(&l, last);
        for (size_t i = n_carry; i < n_out; i++)
            b->out[i] = l.results[i] ? ct__batch_move(b, last[i], b->node->out[i].rank + 1, 1, 0)
                                     : loop_batch_broadcast(b, last[i]);
    }
    return ok && !ctx->err.code;
}

// ------------------------------------------------------------------------------------------- while

static void loop_batch_while_cond(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    CT_ARENA scratch = {0};
    const bool one = false;
    const ct_tensor *args = loop_batch_arguments(l, 0, in, &scratch);
    if (args) loop_batch_inline_body(l, 0, args, &one, out);
}
// The body without the predicate among its results, which the loop evaluates itself.
static void loop_batch_while_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    const size_t nc = l->loop.n_carry;
    CT_ARENA scratch = {0};
    const ct_tensor *args = loop_batch_arguments(l, 1, in, &scratch);
    ct_tensor *results = ct__arena_zero(&scratch, (nc + 1) * sizeof *results);
    bool *wanted = ct__arena_zero(&scratch, nc + 1); // the predicate unchanged
    bool ok = args && ((results && wanted) || loop_batch_no_memory(l->b, nc));
    if (ok && nc) memcpy(wanted, l->results, nc);
    ok = ok && loop_batch_inline_body(l, 1, args, wanted, results);
    if (ok && nc) memcpy(out, results, nc * sizeof *out);
}

// Carried after the user's tensors: whether the predicate holds, for each element.
static void loop_batch_any_cond(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    out[0] = ct_any(in[l->loop.n_carry]);
}
static void loop_batch_masked_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    const size_t nc = l->loop.n_carry;
    const ct_tensor active = in[nc];
    CT_ARENA scratch = {0};
    const ct_tensor *args = loop_batch_arguments(l, 1, in, &scratch);
    ct_tensor *results = ct__arena_zero(&scratch, (nc + 1) * sizeof *results);
    bool ok = args && (results || loop_batch_no_memory(l->b, nc)) &&
              loop_batch_inline_body(l, 1, args, NULL, results);
    for (size_t i = 0; i < nc && ok; i++)
        out[i] = loop_batch_select(l->b, active, results[i], in[i]);
    if (ok) out[nc] = ct_and(active, results[nc]);
}

bool ct__while_batch(ct_batching *b) {
    batched_loop l;
    CT_ARENA scratch = {0};
    bool ok = loop_batch_begin(&l, b, &scratch);
    const size_t nc = l.loop.n_carry;
    ct_tensor *carry = ct__arena(&scratch, (nc + 1) * sizeof *carry),
              *last = ct__arena_zero(&scratch, (nc + 1) * sizeof *last);
    ok = ok && ((carry && last) || loop_batch_no_memory(b, nc));
    if (ok) loop_batch_first_carry(&l, carry);
    if (ok && l.batched_predicate) {
        const ct_tensor *args = loop_batch_arguments(&l, 0, carry, &scratch);
        ok = args && loop_batch_inline_body(&l, 0, args, NULL, &carry[nc]);
    }
    if (ok) {
        ct_while_with((ct_while_args){.cond = l.batched_predicate ? loop_batch_any_cond
                                                                  : loop_batch_while_cond,
                                      .body = l.batched_predicate ? loop_batch_masked_body
                                                                  : loop_batch_while_body,
                                      .user = &l,
                                      .carry = carry,
                                      .n_carry = nc + l.batched_predicate,
                                      .here = b->node->here},
                      last);
        loop_batch_store_carry(&l, last);
    }
    return ok && !b->node->ctx->err.code;
}

// ---------------------------------------------------------------------------------------- branches

// in: all operands after the index.
static bool loop_batch_inline_branch(const batched_loop *l, const ct_tensor *in, const bool *wanted,
                                     ct_tensor *out) {
    const ct_body *f = l->loop.bodies.v[l->body];
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (loop_batch_arg_count(f) + 1) * sizeof *args);
    bool ok = args || loop_batch_no_memory(l->b, loop_batch_arg_count(f));
    for (size_t p = 0; p < loop_batch_arg_count(f) && ok; p++)
        args[p] = in[ct__loop_operand(&l->loop, l->body, p) - 1];
    ok = ok && loop_batch_inline_body(l, l->body, args, wanted, out);
    return ok;
}
static void loop_batch_branch(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    loop_batch_inline_branch(l, in, l->results, out);
}

// One choice for all elements.
static bool loop_batch_choose_once(batched_loop *l, ct_arena *scratch) {
    const ct_batching *b = l->b;
    const size_t n = l->loop.bodies.n, n_out = (size_t)b->n_out;
    batched_loop *each = ct__arena(scratch, n * sizeof *each);
    void **users = ct__arena(scratch, n * sizeof *users);
    ct_fn *branches = ct__arena(scratch, n * sizeof *branches);
    ct_tensor node;
    if (!each || !users || !branches) return loop_batch_no_memory(b, n);
    for (size_t i = 0; i < n; i++) {
        each[i] = *l;
        each[i].body = i;
        users[i] = &each[i];
        branches[i] = loop_batch_branch;
    }
    const ct_choice c = {.op = b->node->op,
                         .index = b->in[0],
                         .branches = branches,
                         .users = users,
                         .n_branches = n,
                         .in = b->in + 1,
                         .n_in = (size_t)b->n_in - 1,
                         .n_out = n_out,
                         .here = b->node->here};
    if (!ct__record_choice(b->node->ctx, &c, &node)) return false;
    for (size_t i = 0; i < n_out; i++) {
        b->out[i] = ct__output(node, (uint32_t)i);
        b->out_batched[i] = l->results[i];
    }
    return true;
}

// Returns for which elements branch k, or an earlier one, is chosen.
static ct_tensor loop_batch_index_at_most(ct_tensor index, size_t k) {
    if (ct__type_of(index)->dtype == CT_BOOL) return ct_not(index);
    return ct_less_equal(index, ct__number_like((double)k, index));
}
// Returns for which elements branch k is chosen.
static ct_tensor loop_batch_where_chosen(ct_tensor index, size_t k, size_t n) {
    if (k == 0) return loop_batch_index_at_most(index, 0);
    const ct_tensor is_after = ct_not(loop_batch_index_at_most(index, k - 1));
    return k + 1 < n ? ct_and(is_after, loop_batch_index_at_most(index, k)) : is_after;
}

// Returns an operand of a branch that is computed for all elements: elements for which the branch is not
// chosen see it as a constant. Otherwise the derivative of the discarded result, which may be NaN, times 0
// would reach them.
static ct_tensor loop_batch_detach_unchosen(const ct_batching *b, ct_tensor chosen, int k) {
    const ct_tensor x = b->batched[k] ? b->in[k] : loop_batch_broadcast(b, b->in[k]);
    return loop_batch_select(b, chosen, x, ct_stop_gradient(x));
}

// A choice per element: computes all branches, from the last one backward.
static bool loop_batch_choose_each(batched_loop *l, ct_arena *scratch) {
    const ct_batching *b = l->b;
    const size_t n = l->loop.bodies.n, n_out = (size_t)b->n_out, n_in = (size_t)b->n_in;
    const ct_tensor index = b->in[0];
    ct_tensor *results = ct__arena_zero(scratch, (n_out + 1) * sizeof *results);
    ct_tensor *in = ct__arena(scratch, n_in * sizeof *in);
    bool *batched = ct__arena(scratch, n_in * sizeof *batched);
    if (!results || !in || !batched) return loop_batch_no_memory(b, n_out + n_in);
    memcpy(in, b->in, n_in * sizeof *in);
    ct_batching own = *b;
    own.batched = batched;
    l->b = &own;
    bool ok = true;
    for (size_t k = n; k-- > 0 && ok;) {
        const bool last = k + 1 == n;
        const ct_tensor chosen = n > 1 ? loop_batch_where_chosen(index, k, n) : CT_NONE;
        for (int i = 0; i < b->n_in; i++) {
            const ct_type *type = ct__type_of(b->in[i]);
            const bool moves =
                n > 1 && i > 0 && !type->weak && ct__is_differentiable((ct_dtype)type->dtype);
            if (moves) in[i] = loop_batch_detach_unchosen(b, chosen, i);
            batched[i] = b->batched[i] || moves;
        }
        l->body = k;
        ok = loop_batch_inline_branch(l, in + 1, NULL, last ? b->out : results);
        if (last || !ok) continue;
        const ct_tensor other = loop_batch_index_at_most(index, k);
        for (size_t i = 0; i < n_out; i++)
            b->out[i] = loop_batch_select(b, other, results[i], b->out[i]);
    }
    l->b = b;
    return ok;
}

bool ct__branch_batch(ct_batching *b) {
    batched_loop l;
    CT_ARENA scratch = {0};
    bool ok =
        loop_batch_begin(&l, b, &scratch) && (b->batched[0] ? loop_batch_choose_each(&l, &scratch)
                                                            : loop_batch_choose_once(&l, &scratch));
    return ok && !b->node->ctx->err.code;
}
