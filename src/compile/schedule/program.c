// A program being put together: buffers, launches, places of leaves.
#include "compile/schedule/program.h"
#include "kir/kir.h"

uint32_t ct__program_buf(ct_program *p, ct_buf buf) {
    if (!CT_GROW(p->bufs, p->bufs_cap, p->n_bufs + 1)) return UINT32_MAX;
    p->bufs[p->n_bufs] = buf;
    return (uint32_t)p->n_bufs++;
}

ct_launch *ct__program_append(ct_program *p, ct_launch launch) {
    if (!CT_GROW(p->launches, p->launches_cap, p->n_launches + 1)) return NULL;
    p->launches[p->n_launches] = launch;
    return &p->launches[p->n_launches++];
}

ct_launch *ct__program_launch(ct_program *p, ct_launch launch, uint32_t n_args,
                              uint32_t n_numbers) {
    launch.args = ct__arena_zero(p->arena, (n_args + 1) * sizeof *launch.args);
    launch.numbers = ct__arena_zero(p->arena, (n_numbers + 1) * sizeof *launch.numbers);
    launch.n_args = n_args;
    launch.n_numbers = n_numbers;
    return launch.args && launch.numbers ? ct__program_append(p, launch) : NULL;
}

bool ct__program_copy(ct_program *p, ct_arg from, ct_arg to, const ct_node *node, size_t bytes) {
    if (bytes == 0) return true;
    ct_launch launch = {.kind = CT_LAUNCH_COPY, .node = node, .bytes = bytes};
    ct_launch *copy = ct__program_launch(p, launch, 2, 0);
    if (!copy) return false;
    copy->args[0] = from;
    copy->args[1] = to;
    copy->args[1].write = true;
    return true;
}

bool ct__program_leaf(ct_program *p, const ct_node *node, uint32_t *leaf_buf, uint32_t *scalars,
                      ct_place *to) {
    size_t bytes = ct__type_bytes(node->out);
    uint32_t *shared = NULL; // its buffer, once it has one
    ct_buf buf = {.kind = CT_BUF_LEAF, .bytes = bytes, .node = node};
    *to = (ct_place){.buf = UINT32_MAX};
    if (node->op == &ct__op_scalar) {
        shared = scalars;
        buf = (ct_buf){.kind = CT_BUF_SCALARS};
        to->offset = node->number * 8;
    } else if (node->op == &ct__op_const) {
        buf.kind = CT_BUF_CONST;
        buf.data = ((const ct_data_bytes *)node->attrs)->bytes;
    } else {
        shared = &leaf_buf[node->number];
        buf.index = (uint32_t)node->number;
    }
    if (shared && *shared != UINT32_MAX)
        to->buf = *shared;
    else
        to->buf = ct__program_buf(p, buf);
    if (shared) *shared = to->buf;
    return to->buf != UINT32_MAX;
}

ct_command ct__program_command(const ct_program *p, const ct_launch *l) {
    ct_command c = {.kind = CT_COMMAND_KERNEL,
                    .node = l->node,
                    .n_args = l->n_args,
                    .numbers = l->numbers,
                    .n_numbers = l->n_numbers,
                    .grid = l->grid,
                    .bytes = l->bytes,
                    .flops = l->flops};
    if (l->kind == CT_LAUNCH_NODE)
        c.kind = CT_COMMAND_NODE;
    else if (l->kind == CT_LAUNCH_COPY)
        c.kind = CT_COMMAND_COPY;
    else
        c.kernel = p->kernels[l->kernel].made;
    return c;
}

size_t ct__program_uses(const ct_program *p, size_t kernel, const ct_node **first) {
    size_t uses = 0;
    *first = NULL;
    for (size_t i = 0; i < p->n_launches; i++) {
        const ct_launch *l = &p->launches[i];
        if (l->kind == CT_LAUNCH_KERNEL && l->kernel == kernel && !uses++) *first = l->node;
    }
    return uses;
}

void ct__program_free(ct_program *p) {
    for (size_t i = 0; i < p->n_kernels; i++) {
        if (p->kernels[i].ir) ct__kir_free(p->kernels[i].ir);
        ct__free(p->kernels[i].ir);
    }
    ct__free(p->bufs);
    ct__free(p->launches);
    ct__free(p->kernels);
    *p = (ct_program){0};
}
