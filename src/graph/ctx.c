// Contexts, their errors and logs, and the scope stack.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/handle.h"

_Thread_local ct_ctx *ct__ctx_now;
static _Thread_local ct_ctx *ctx_own; // made by this thread's first call
static _Thread_local ct_callback_guard *ctx_callback;

// ---------------------------------------------------------------------- the library in its process

static pthread_mutex_t ctx_use_lock = PTHREAD_MUTEX_INITIALIZER;
static bool ctx_library_in_use;    // from the first context until ct_shutdown
static pthread_key_t ctx_exit_key; // while in use: frees a context when its thread ends
static atomic_bool ctx_forked;     // in a child of a process that was using the library
atomic_size_t ct__sets;

static void ctx_end(ct_ctx *ctx);
static void ctx_free_at_thread_exit(void *ctx) {
    if (!ct__forked()) ctx_end(ctx);
}

// Runs in the child after fork, where only the forking thread exists and locks of others may be held:
// only what is safe there.
static void ctx_atfork_child(void) {
    if (!ctx_library_in_use) return;
    atomic_store(&ctx_forked, true);
    ct__ctx_now = ctx_own = NULL;
}

static bool ctx_begin_use(void) {
    static bool watching;
    pthread_mutex_lock(&ctx_use_lock);
    if (!watching) watching = pthread_atfork(NULL, NULL, ctx_atfork_child) == 0;
    if (!ctx_library_in_use)
        ctx_library_in_use =
            watching && pthread_key_create(&ctx_exit_key, ctx_free_at_thread_exit) == 0;
    bool ok = ctx_library_in_use;
    pthread_mutex_unlock(&ctx_use_lock);
    return ok;
}

bool ct__forked(void) { return atomic_load_explicit(&ctx_forked, memory_order_relaxed); }

// All contexts, for scopes that end when their context may be gone.
static pthread_mutex_t ctx_list_lock = PTHREAD_MUTEX_INITIALIZER;
static ct_ctx *ctx_list;

static void ctx_list_add(ct_ctx *ctx) {
    static uint64_t made;
    pthread_mutex_lock(&ctx_list_lock);
    ctx->id = ++made;
    ctx->next = ctx_list;
    ctx_list = ctx;
    pthread_mutex_unlock(&ctx_list_lock);
}
static void ctx_list_remove(const ct_ctx *ctx) {
    pthread_mutex_lock(&ctx_list_lock);
    ct_ctx **at = &ctx_list;
    while (*at != ctx) at = &(*at)->next;
    *at = ctx->next;
    pthread_mutex_unlock(&ctx_list_lock);
}
static bool ctx_is_alive(const ct_ctx *ctx, uint64_t id) {
    if (ctx == ct__ctx_now) return ctx->id == id;
    pthread_mutex_lock(&ctx_list_lock);
    const ct_ctx *at = ctx_list;
    while (at && at->id != id) at = at->next;
    pthread_mutex_unlock(&ctx_list_lock);
    return at != NULL;
}
static size_t ctx_count_others(void) {
    size_t n = 0;
    pthread_mutex_lock(&ctx_list_lock);
    for (const ct_ctx *at = ctx_list; at; at = at->next) n += at != ctx_own;
    pthread_mutex_unlock(&ctx_list_lock);
    return n;
}

// The owner takes its list as a whole; one that is found alive here takes it once more when it ends.
bool ct__var_defer_free(ct_var *var) {
    pthread_mutex_lock(&ctx_list_lock);
    ct_ctx *at = ctx_list;
    while (at && at->id != var->owner) at = at->next;
    if (at) {
        var->next = atomic_load(&at->deferred_vars);
        while (!atomic_compare_exchange_weak(&at->deferred_vars, &var->next, var)) {
        }
    }
    pthread_mutex_unlock(&ctx_list_lock);
    return at != NULL;
}

// A context must not end while it calls a user's function, which needs it when it returns.
static bool ctx_can_end(ct_ctx *ctx, const char *op) {
    if (!ctx->logging && !ctx->tracing) return true;
    return ct__refuse(ctx, CT_E_ARGUMENT, CT_NOWHERE, op, "%s has not returned",
                      ctx->logging ? "the context's log function"
                                   : "a function that the context traces");
}

bool ct__contexts_end(void) {
    if (ct__forked() || ct__in_callback()) return false;
    size_t others = ctx_count_others(), sets = atomic_load(&ct__sets);
    if (others || sets) {
        ct_ctx *ctx = ct__ctx();
        if (ctx)
            ct__fail(ctx, CT_E_ARGUMENT, CT_NOWHERE, "shutdown",
                     "%zu other contexts and %zu parameter sets are still there", others, sets);
        return false;
    }
    if (ctx_own && !ctx_can_end(ctx_own, "shutdown")) return false;
    ct_ctx_free(ctx_own);
    pthread_mutex_lock(&ctx_use_lock);
    if (ctx_library_in_use) pthread_key_delete(ctx_exit_key);
    ctx_library_in_use = false;
    pthread_mutex_unlock(&ctx_use_lock);
    return true;
}

bool ct_set_allocator(const ct_allocator *a) {
    bool whole = !a || (a->alloc && a->realloc && a->free);
    if (whole && ct__set_allocator(a)) return true;
    ct_ctx *ctx = ct__ctx();
    if (ctx)
        ct__fail(ctx, CT_E_ARGUMENT, CT_NOWHERE, "set_allocator", "%s",
                 whole ? "the library has allocated memory already"
                       : "alloc, realloc and free are needed, all three");
    return false;
}

const char *ct_version(void) { return CT_VERSION; }

// -------------------------------------------------------------------------------------------- logs

static void ctx_log_to_stderr(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    fprintf(stderr, "%s%s%s", kind == CT_LOG_WARNING ? "cotan: " : "", text,
            kind == CT_LOG_DUMP ? "" : "\n");
}

bool ct__env_flag(const char *name) {
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0") != 0;
}

struct ct_log_message {
    struct ct_log_message *next;
    ct_log_kind kind;
    char text[];
};

static void ctx_deliver_log(ct_ctx *ctx) {
    if (ctx->logging || ctx->running) return;
    ctx->logging = true;
    while (ctx->log_queue) {
        ct_log_message *first = ctx->log_queue;
        if (!(ctx->log_queue = first->next)) ctx->log_tail = &ctx->log_queue;
        if (ctx->log) ctx->log(first->kind, first->text, ctx->log_user);
        ct__free(first);
    }
    ctx->logging = false;
}

void ct__log(ct_ctx *ctx, ct_log_kind kind, const char *text) {
    if (!ctx->log) return;
    if (ctx->log == ctx_log_to_stderr) { // no queue: a crash must not lose it
        ctx->log(kind, text, ctx->log_user);
        return;
    }
    size_t bytes = strlen(text) + 1;
    ct_log_message *message = ct__malloc(sizeof *message + bytes);
    if (!message) return;
    message->next = NULL;
    message->kind = kind;
    memcpy(message->text, text, bytes);
    *ctx->log_tail = message;
    ctx->log_tail = &message->next;
    ctx_deliver_log(ctx);
}

void ct__run_begin(ct_ctx *ctx) { ctx->running++; }
void ct__run_end(ct_ctx *ctx) {
    ctx->running--;
    ctx_deliver_log(ctx);
}

void ct__warn(ct_ctx *ctx, const char *format, ...) {
    CT_TEXT text = {0};
    va_list args;
    va_start(args, format);
    ct__textf_v(&text, format, args);
    va_end(args);
    if (!text.failed) ct__log(ctx, CT_LOG_WARNING, text.s);
}

void ct__hint_scope(ct_ctx *ctx, ct_loc here, const char *format, ...) {
    const ct_node *newest = ct__top(ctx)->nodes;
    va_list args;
    if (ctx->scope_hinted) return;
    ctx->scope_hinted = true;
    while (newest && (!newest->n_in || !newest->here.file)) newest = newest->next;
    ct_loc made = newest ? newest->here : here;
    char what[256];
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ct__warn(ctx,
             "%s:%u: nodes recorded at %s:%u pile up, %s\n"
             "  hint: put CT_SCOPE; into the loop: what an iteration records is freed at its end",
             here.file ? here.file : "?", here.line, made.file ? made.file : "?", made.line, what);
}

void ct_set_log(ct_log_fn fn, void *user) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return;
    ctx->log = fn;
    ctx->log_user = user;
}

void ct_cancel(ct_ctx *ctx) {
    if (ctx) atomic_store(&ctx->cancelled, true);
}

ct_ctx *ct_ctx_new(void) {
    ct_ctx *ctx =
        ct__forked() || ct__in_callback() || !ctx_begin_use() ? NULL : ct__calloc(1, sizeof *ctx);
    if (!ctx) return NULL;
    ctx_list_add(ctx);
    ctx->log = ctx_log_to_stderr;
    ctx->log_tail = &ctx->log_queue;
    // The poisoned node for a failed allocation is made now, with its slot.
    ct_frame *base = ct__frame_push(ctx, CT_FRAME_SCOPE, NULL, CT_NOWHERE);
    ct_node *poison = base ? ct__leaf(ctx, &ct__op_data, NULL, (ct_type){0}, CT_NOWHERE) : NULL;
    if (!poison || !ct__handle(poison, 0).bits) {
        ct_ctx_free(ctx);
        return NULL;
    }
    poison->flags = CT_NODE_POISON;
    ctx->poison = poison;
    return ctx;
}

ct_ctx *ct__ctx_begin(void) {
    if (ct__in_callback()) return NULL;
    if (ctx_own) return ct__ctx_now = ctx_own;
    ct__ctx_now = ctx_own = ct_ctx_new();
    if (ctx_own) pthread_setspecific(ctx_exit_key, ctx_own);
    return ct__ctx_now;
}

ct_ctx *ct_ctx_current(void) { return ct__ctx(); }

ct_ctx *ct_ctx_use(ct_ctx *ctx) {
    ct_ctx *before = ct__ctx_now;
    if (!ct__in_callback()) ct__ctx_now = ct__forked() ? NULL : ctx;
    return before;
}

void ct__callback_begin(ct_callback_guard *a) {
    *a = (ct_callback_guard){.before = ct__ctx_now, .around = ctx_callback};
    ct__ctx_now = NULL;
    ctx_callback = a;
}
bool ct__callback_end(ct_callback_guard *a) {
    ct__ctx_now = a->before;
    ctx_callback = a->around;
    return a->asked;
}
bool ct__in_callback(void) {
    if (ctx_callback) ctx_callback->asked = true;
    return ctx_callback != NULL;
}

static void ctx_pop_frame(ct_ctx *ctx, ct_past_kind why, ct_loc here);
static void ctx_free_frame(ct_frame *frame) {
    if (frame) ct__arena_free(&frame->own);
    ct__free(frame);
}

static void ctx_log_unread_error(ct_ctx *ctx) {
    if (ctx->err.code && !ctx->err_noticed) ct__log(ctx, CT_LOG_WARNING, ctx->err.text);
}

// The context of the thread that ends the process: thread-specific keys are not destroyed then.
__attribute__((destructor)) static void ctx_log_at_process_exit(void) {
    if (ctx_own) ctx_log_unread_error(ctx_own);
}

void ct_ctx_free(ct_ctx *ctx) {
    if (ctx && !ct__forked() && !ct__in_callback() && ctx_can_end(ctx, "ctx_free")) ctx_end(ctx);
}

static void ctx_end(ct_ctx *ctx) {
    // Messages to a user's log function are delivered while the context is complete: it may use it.
    ctx_log_unread_error(ctx);
    ct__hooks.settle(ctx);
    if (ctx->log) ctx->log = ctx_log_to_stderr;
    ct__roots_abandon(ctx);
    while (ctx->depth) ctx_pop_frame(ctx, CT_PAST_CONTEXT, CT_NOWHERE);
    ct__hooks.close(ctx);
    ctx_free_frame(ctx->spare);
    for (size_t i = 0; i < ctx->n_metrics; i++) {
        ct__free(ctx->metrics[i].name);
        ct__storage_unref(ctx->metrics[i].value);
    }
    ct__free(ctx->metrics);
    ct__free(ctx->roots);
    ct__free(ctx->foreign);
    ct__free(ctx->frames);
    ct__free(ctx->unused);
    ct__free(ctx->ended);
    ct__slots_return(ctx);
    if (ct__ctx_now == ctx) ct__ctx_now = NULL;
    if (ctx_own == ctx) {
        ctx_own = NULL;
        pthread_setspecific(ctx_exit_key, NULL);
    }
    ctx_list_remove(ctx);
    ct__vars_free_deferred(ctx);
    ct__free(ctx);
}

// ------------------------------------------------------------------------------------------ errors

ct_tensor ct__poison(ct_ctx *ctx, ct_loc here) {
    ct_node *node = ctx->depth ? ct__leaf_quiet(ctx, &ct__op_data, NULL, (ct_type){0}, here) : NULL;
    if (!node) node = ctx->poison;
    node->flags |= CT_NODE_POISON;
    ct_tensor t = ct__handle(node, 0);
    return t.bits ? t : ct__handle(ctx->poison, 0);
}

ct_tensor ct__fail(ct_ctx *ctx, ct_code code, ct_loc here, const char *op, const char *format,
                   ...) {
    va_list args;
    va_start(args, format);
    if (!ctx->err.code) ctx->err_noticed = false;
    ct__err_v(&ctx->err, code, here, op, format, args);
    va_end(args);
    return ct__poison(ctx, here);
}

bool ct__refuse(ct_ctx *ctx, ct_code code, ct_loc here, const char *op, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!ctx->err.code) ctx->err_noticed = false;
    ct__err_v(&ctx->err, code, here, op, format, args);
    va_end(args);
    return false;
}

bool ct__given(ct_ctx *ctx, const void *argument, ct_loc here, const char *op, const char *what) {
    return argument || ct__refuse(ctx, CT_E_ARGUMENT, here, op, "%s must not be NULL", what);
}

bool ct__readable(ct_ctx *ctx, ct_loc here, const char *op) {
    if (!ctx->tracing) return true;
    ct__fail(ctx, CT_E_TRACE, here, op, "a value is read inside a traced function");
    return ct__err_hint(&ctx->err, "return it as a result of the function, and read it outside");
}

bool ct__possible(ct_ctx *ctx, size_t n, ct_loc here, const char *op, const char *what) {
    if (n > UINT16_MAX)
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "%s are %zu, at most %d are possible", what, n,
                 UINT16_MAX);
    return n <= UINT16_MAX;
}

bool ct_failed(void) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return true;
    if (ctx->err.code) ctx->err_noticed = true;
    return ctx->err.code != CT_OK;
}
const char *ct_error_text(void) {
    ct_ctx *ctx = ct__ctx();
    if (ct__forked())
        return "fork: this process was forked while its parent used the library, and cannot use it"
               "\n  hint: fork before the first use or after ct_shutdown; exec is always possible";
    if (ctx_callback)
        return "outside: a function that computes an op calls the library, which is running its "
               "plan";
    if (!ctx) return "out of memory: there is none for a context";
    ctx->err_noticed = true;
    return ctx->err.code ? ctx->err.text : "";
}
ct_code ct_error_code(void) {
    ct_ctx *ctx = ct__ctx();
    return ctx            ? ctx->err.code
           : ct__forked() ? CT_E_FORK
           : ctx_callback ? CT_E_CUSTOM_OP
                          : CT_E_MEMORY;
}
void ct_error_clear(void) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return;
    // In a rolling scope an error is an exception, raised where it occurs: other pending work stays.
    if (ctx->err.code && !ctx->rolling) ct__roots_abandon(ctx);
    if (ctx->rolling) (void)ct__roots_keep_assignments(ctx);
    ctx->err.code = CT_OK;
    ctx->err.text[0] = '\0';
    ctx->err_noticed = false;
}

// ------------------------------------------------------------------------------------------ frames

ct_frame *ct__frame_push(ct_ctx *ctx, ct_frame_kind kind, ct_arena *arena, ct_loc here) {
    if (!CT_GROW(ctx->frames, ctx->frames_cap, ctx->depth + 1)) return NULL;
    ct_frame *frame = ctx->spare;
    ctx->spare = NULL;
    if (!frame) frame = ct__calloc(1, sizeof *frame);
    if (!frame) return NULL;
    ct_arena kept = frame->own;
    *frame = (ct_frame){.kind = kind, .serial = ++ctx->serial, .own = kept, .here = here};
    frame->arena = arena ? arena : &frame->own;
    frame->depth = (uint32_t)ctx->depth;
    ctx->frames[ctx->depth++] = frame;
    ctx->tracing += kind == CT_FRAME_TRACE || kind == CT_FRAME_BODY;
    return frame;
}

uint64_t ct__nodes_recorded(void) { return ct__ctx_now ? ct__ctx_now->nodes : 0; }

void ct__release_values(ct_ctx *ctx, ct_node *node) {
    if (node->flags & CT_NODE_EXTRA) ctx->n_extras--;
    if (node->var) {
        ct__free(node->mirror);
        node->mirror = NULL;
        if (node->held && node->value != &node->held) {
            node->held->assigner_holds--;
            ct__storage_unref(node->held);
        }
        ct__var_unref(node->var, node->ctx);
    }
    if (!node->value) return;
    for (int i = 0; i < node->n_out; i++) ct__storage_unref(node->value[i]);
    node->value = NULL;
}

void ct__forget_values(const ct_ctx *ctx, ct_node *node) {
    ct_storage **value = node->value;
    ct__handles_lock(ctx);
    ct__node_set_values(node, NULL);
    ct__handles_unlock(ctx);
    for (int i = 0; i < node->n_out; i++) ct__storage_unref(value[i]);
}

static void leaf_release(ct_node *leaf) {
    ct__slot_release(leaf->ctx, leaf, CT_PAST_DROP, CT_NOWHERE);
    ct__release_values(leaf->ctx, leaf);
    ct__leaf_recycle(leaf);
}

void ct__unuse(ct_node *node) {
    if (--node->users) return;
    if (node->flags & CT_NODE_DROPPED)
        leaf_release(node);
    else if (node->ctx->rolling)
        ct__rolling_unused(node);
}

// Frees a leaf now, or with its last user.
void ct__leaf_drop(ct_node *leaf) {
    ct__flag(leaf, CT_NODE_DROPPED);
    if (!leaf->users) leaf_release(leaf);
}
static void node_release_operands(const ct_node *node) {
    for (int i = 0; i < node->n_in; i++) ct__unuse(node->in[i].node);
}

// Before any node is freed: other threads may be looking at the nodes until then.
static void frame_end_handles(ct_ctx *ctx, const ct_frame *frame, ct_past_kind why, ct_loc here) {
    ct__handles_lock(ctx);
    for (; frame; frame = frame->older)
        for (ct_node *node = frame->nodes; node; node = node->next)
            if (node->slot) ct__slot_end(ctx, node, why, here);
    ct__handles_unlock(ctx);
}

// Newest first: users of a leaf come before it.
static void frame_release_nodes(ct_ctx *ctx, ct_frame *frame) {
    for (ct_node *node = frame->nodes; node; node = node->next) {
        if (node->flags & CT_NODE_FREED) continue;
        if (ct__is_mark(node)) ct__mark_ended(ctx, node);
        node_release_operands(node);
        if (node->value || node->var) ct__release_values(ctx, node);
    }
}

void ct__frame_spare(ct_ctx *ctx, ct_frame *frame) {
    ct__arena_reset(&frame->own);
    if (ctx->spare)
        ctx_free_frame(frame);
    else
        ctx->spare = frame;
}

static void ctx_pop_frame(ct_ctx *ctx, ct_past_kind why, ct_loc here) {
    ct_frame *frame = ct__top(ctx);
    if (atomic_load_explicit(&ctx->deferred_vars, memory_order_relaxed))
        ct__vars_free_deferred(ctx);
    if (frame->rolling) ctx->rolling = false; // only when its context ends
    frame_end_handles(ctx, frame, why, here);
    for (ct_frame *f = frame; f; f = f->older) frame_release_nodes(ctx, f);
    ctx->depth--;
    ctx->tracing -= frame->kind == CT_FRAME_TRACE || frame->kind == CT_FRAME_BODY;
    for (ct_frame *f = frame, *older; f; f = older) {
        older = f->older;
        ct__frame_spare(ctx, f);
    }
}

void ct__frame_pop(ct_ctx *ctx, ct_loc here) {
    ct_frame_kind kind = ct__top(ctx)->kind;
    bool traced = kind == CT_FRAME_TRACE || kind == CT_FRAME_BODY;
    ctx_pop_frame(ctx, traced ? CT_PAST_TRACE : CT_PAST_SCOPE, here);
}

// ------------------------------------------------------------------------------------------ scopes

size_t ct__outside_depth(const ct_ctx *ctx) {
    if (!ctx->tracing) return ctx->depth;
    for (size_t d = 0; d < ctx->depth; d++)
        if (ctx->frames[d]->kind == CT_FRAME_BODY) return d;
    return ctx->depth;
}

ct_scope ct_scope_begin(ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return (ct_scope){0};
    ct_frame *outer = ct__top(ctx);
    bool inner = ctx->tracing > 0;
    ct_frame *frame = ct__frame_push(ctx, inner ? CT_FRAME_INNER : CT_FRAME_SCOPE,
                                     inner ? outer->arena : NULL, here);
    if (!frame) {
        ct__fail(ctx, CT_E_MEMORY, here, "scope", "out of memory for a scope");
        return (ct_scope){0};
    }
    return (ct_scope){ctx, ctx->id, (uint32_t)ctx->depth, frame->serial};
}

ct_node *ct__replace_by_leaf(ct_ctx *ctx, ct_frame *to, ct_node *node, unsigned flags) {
    ct_node *leaf = ct__leaf_like(ctx, to, node);
    if (!leaf) return NULL;
    bool evaluated = node->value || node->op == &ct__op_scalar;
    leaf->flags = (uint16_t)((node->flags & CT_NODE_PINNED) | (evaluated ? 0 : CT_NODE_POISON));
    to->has_kept = to->has_kept || node->flags & CT_NODE_PINNED;
    if (!node->n_in) leaf->number = node->number;
    if (node->op == &ct__op_scalar) leaf->precise = node->precise;
    if (node->value)
        for (int i = 0; i < node->n_out; i++) leaf->value[i] = ct__storage_ref(node->value[i]);
    leaf->flags |= (uint16_t)flags;
    ct__slot_move(node, leaf);
    return leaf;
}

static void scope_replace_by_leaf(ct_ctx *ctx, ct_frame *to, ct_node *node) {
    const bool from = node->flags & CT_NODE_FROM_VARIABLE && node->op != &ct__op_scalar;
    ct__replace_by_leaf(ctx, to, node, from ? CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF : 0);
}

// Kept nodes of a scope inside a trace stay nodes: they keep their handles, all others' handles end.
static void scope_end_inner(ct_ctx *ctx, ct_loc here) {
    ct_frame *frame = ct__top(ctx), *outer = ctx->frames[ctx->depth - 2];
    ct_node *last = NULL;
    ct__handles_lock(ctx);
    for (ct_node *node = frame->nodes; node; last = node, node = node->next) {
        if (node->flags & (CT_NODE_KEPT | CT_NODE_PINNED))
            ct__unflag(node, CT_NODE_KEPT);
        else if (node->slot)
            ct__slot_end(ctx, node, CT_PAST_SCOPE, here);
        node->frame = outer;
    }
    ct__handles_unlock(ctx);
    outer->has_kept = outer->has_kept || frame->has_kept;
    if (last) {
        last->next = outer->nodes;
        outer->nodes = frame->nodes;
        outer->n_nodes += frame->n_nodes;
        outer->n_gone += frame->n_gone;
        frame->nodes = NULL;
    }
    ct__frame_pop(ctx, here);
}

// Moves kept values to the enclosing frame, and pinned ones to the context's own.
static void scope_carry_out_kept(ct_ctx *ctx, ct_frame *frame) {
    for (ct_node *node = frame->nodes; node; node = node->next)
        if (node->flags & CT_NODE_PINNED)
            scope_replace_by_leaf(ctx, ctx->frames[0], node);
        else if (node->flags & CT_NODE_KEPT)
            scope_replace_by_leaf(ctx, ctx->frames[frame->depth - 1], node);
}

static void scope_end_outer(ct_ctx *ctx, ct_frame *frame, ct_loc here) {
    if (ctx->err.code)
        ct__roots_abandon(ctx);
    else if (ctx->n_roots)
        ct__hooks.run(ctx, here);
    if (frame->has_kept) scope_carry_out_kept(ctx, frame);
}

static void scope_end_top(ct_ctx *ctx, ct_loc here) {
    ct_frame *frame = ct__top(ctx);
    if (frame->kind == CT_FRAME_INNER) {
        scope_end_inner(ctx, here);
        return;
    }
    if (frame->kind == CT_FRAME_SCOPE) scope_end_outer(ctx, frame, here);
    ct__frame_pop(ctx, here);
}

// The scope's frame; NULL: it has ended, together with an outer one or its context.
static const ct_frame *scope_frame(const ct_scope *scope) {
    ct_ctx *ctx = scope->ctx;
    if (!ctx || ct__forked() || ct__in_callback() || !ctx_is_alive(ctx, scope->ctx_id) ||
        scope->depth < 2 || scope->depth > ctx->depth)
        return NULL;
    const ct_frame *frame = ctx->frames[scope->depth - 1];
    return frame->serial == scope->serial ? frame : NULL;
}

void ct_scope_end(ct_scope scope, ct_loc here) {
    if (!scope_frame(&scope)) return;
    ct_ctx *before = ct_ctx_use(scope.ctx); // nodes recorded for the plan belong to this context
    while (scope.ctx->depth >= scope.depth) scope_end_top(scope.ctx, here);
    ct_ctx_use(before);
}

void ct__scope_cleanup(ct_scope *scope) {
    const ct_frame *frame = scope_frame(scope);
    if (frame) ct_scope_end(*scope, frame->here);
}

// ----------------------------------------------------------------------------------- keep and drop

static ct_tensor tensor_keep(ct_tensor t, ct_loc here, const char *op, uint8_t flag) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx) return CT_NONE;
    if (!ct__resolve(ctx, t, &v, op, 0, here)) return ct__poison(ctx, here);
    if (v.node->flags & flag) return ct__handle_of(v);
    ct__request_value(ctx, v.node);
    bool traced = ctx->tracing > 0;
    if (traced && ct__top(ctx)->kind != CT_FRAME_INNER)
        return ct__fail(ctx, CT_E_TRACE, here, op,
                        "a traced function returns its results; it cannot keep a tensor");
    if (traced && v.node->op == &ct__op_param) return ct__handle_of(v); // outlives the scope anyway
    if (v.node->var) { // the variable will change: a value of its own is kept
        t = ct__record(&ct__op_same, NULL, &t, 1, here);
        if (!ct__resolve(ctx, t, &v, op, 0, here)) return ct__poison(ctx, here);
    }
    if (!traced && !v.node->value && v.node->op != &ct__op_scalar) {
        if (!ct__root_add(ctx, (ct_root){.kind = CT_ROOT_KEEP, .val = v, .here = here}))
            return ct__poison(ctx, here);
    }
    ct__flag(v.node, flag);
    v.node->frame->has_kept = true;
    return ct__handle_of(v);
}

ct_tensor ct_keep_at(ct_tensor t, ct_loc here) {
    return tensor_keep(t, here, "keep", CT_NODE_KEPT);
}
ct_tensor ct_pin_at(ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ctx->rolling ? ct__rolling_pin(ctx, t, here)
                               : tensor_keep(t, here, "pin", CT_NODE_PINNED);
}

// As with free: a handle that has ended or never existed is no error.
static void tensor_drop(ct_tensor t, ct_loc here, const char *op) {
    ct_peeked at;
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__peek_lock(t, &at)) return;
    const bool others = at.lock;
    const ct_loc made = at.node->here;
    ct__peek_unlock(&at);
    ct_var *var = ct__var_acquire(t, ctx);
    if (var) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "variable \"%s\" ends with its parameter set",
                 var->name);
        ct__var_unref(var, ctx);
    } else if (others) {
        ct__fail(ctx, CT_E_CONTEXT, here, op,
                 "the tensor of %s:%u belongs to another context, and can only be dropped there",
                 made.file ? made.file : "?", made.line);
    } else if (at.node != ctx->poison) {
        ct_node *node = at.node;
        ct__unflag(node, CT_NODE_KEPT | CT_NODE_PINNED);
        if (node->frame->rolling) {
            ct__rolling_unpin(ctx, node);
            return;
        }
        ct__slot_release(ctx, node, CT_PAST_DROP, here);
        if (node->op == &ct__op_data || (ctx->rolling && node->op == &ct__op_scalar))
            ct__leaf_drop(node); // memory of other nodes is freed with the scope
    }
}
void ct_drop_at(ct_tensor t, ct_loc here) { tensor_drop(t, here, "drop"); }
void ct_unpin_at(ct_tensor t, ct_loc here) { tensor_drop(t, here, "unpin"); }
