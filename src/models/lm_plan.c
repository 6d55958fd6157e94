// Estimates the memory of a run before it begins: a dry run records everything once for a dry device.
#include <stdio.h>

#include "base/os.h"
#include "graph/plans.h"
#include "models/lm.h"

// Bytes of the process per compiled kernel: some pages of its file, and what the loader keeps.
enum { KERNEL_BYTES = 24 << 10 };

bool ct__dry_run_begin(ct_lm_dry_run *h, ct_ctx *outer, uint64_t within, ct_err *err) {
    char name[32];
    snprintf(name, sizeof name, "dry:%s", ct__ctx_device(outer));
    h->outer = outer;
    h->bytes_before = ct_get_stats().memory;
    h->ctx = ct_ctx_new();
    if (!h->ctx) return ct__err_memory(err, CT_NOWHERE, "plan", sizeof *h->ctx);
    // Dumps and explanations belong to the run itself, if one follows.
    h->ctx->log = h->part ? outer->log : NULL;
    h->ctx->log_user = outer->log_user;
    ct_ctx_use(h->ctx);
    if (!ct_set_device(name)) return false;
    ct__ctx_limit_memory(h->ctx, within > h->bytes_before ? within - h->bytes_before : within > 0);
    return true;
}

bool ct__dry_run_report(ct_lm_dry_run *h, const char *name) {
    const ct_plan_cost *c = h->ctx->err.code ? NULL : ct_latest_plan();
    if (!c) return false;
    h->n_kernels += c->new_kernels;
    if (c->n_remat_regions > h->blocks) h->blocks = c->n_remat_regions;
    if (c->n_recomputed > h->again) h->again = c->n_recomputed;
    ct__text_free(&h->largest);
    ct__write_tensors(&h->largest, c->tensors, c->n_tensors);
    if (h->part) h->part(name, c, h->user);
    return true;
}

void ct__dry_run_end(ct_lm_dry_run *h, ct_lm_cost *cost, ct_err *err) {
    const ct_ctx_memory m = h->ctx ? ct__ctx_memory(h->ctx) : (ct_ctx_memory){0};
    if (m.is_planned) {
        cost->arenas = m.arenas;
        cost->constants = m.constants;
        cost->workspaces = m.workspaces;
        cost->devices = m.peak + h->bytes_before;
    }
    cost->save_buffers =
        cost->weights > cost->optimizer_state ? cost->weights : cost->optimizer_state;
    // memory that is unused is not counted with the process
    if (h->outer) ct__ctx_release_unused(h->outer);
    cost->process = ct__resident_bytes();
    cost->code = h->n_kernels * KERNEL_BYTES;
    cost->blocks = h->blocks;
    cost->recomputed_blocks = h->again;
    // The current context's memory is part of the process, and also counted with the devices.
    cost->total = cost->process + cost->code + cost->save_buffers + cost->batches +
                  cost->loss_history + cost->devices - h->bytes_before;
    if (h->ctx) {
        if (!err->code) *err = h->ctx->err;
        h->ctx->err.code = CT_OK;
        ct_ctx_use(h->outer);
        ct_ctx_free(h->ctx);
        ct__trim_heap(); // so that the next dry run does not count it with the process
    }
    ct_ctx_use(h->outer);
    h->ctx = NULL;
}

uint64_t ct__lm_room(const ct_lm_cost *cost) {
    uint64_t limit = ct_memory_limit(), available = limit ? 0 : ct__available_bytes();
    if (limit) return limit;
    return available ? available + cost->process : UINT64_MAX;
}

bool ct__lm_fits(const ct_lm_cost *cost, const char *command, const ct_text *largest,
                 const char *hint, ct_err *err) {
    uint64_t available = ct__lm_room(cost);
    if (cost->total <= available) return true;
    ct_text remat = {0};
    if (cost->recomputed_blocks)
        ct__textf(&remat, " with %zu of %zu blocks computed again in gradients",
                  cost->recomputed_blocks, cost->blocks);
    ct__err(err, CT_E_LIMIT, CT_NOWHERE, command,
            "%s of memory are needed%s, %s %s; the largest tensors are %s",
            ct__bytes_text(cost->total).s, remat.s && !remat.failed ? remat.s : "",
            ct_memory_limit() ? "the limit is" : "this machine has left",
            ct__bytes_text(available).s, largest->s && !largest->failed ? largest->s : "not known");
    ct__err_hint(err, "%s", hint);
    ct__text_free(&remat);
    return false;
}
