// Builds a program: buffers, launches, locations of leaves.
#include "compile/schedule/program.h"
#include "kir/kir.h"

uint32_t ct__program_buf(ct_program *p, ct_buf buf) {
    if (!CT_GROW(p->bufs, p->bufs_cap, p->n_bufs + 1)) return UINT32_MAX;
    buf.bytes = (size_t)ct__unmarked(buf.size);
    p->bufs[p->n_bufs] = buf;
    return (uint32_t)p->n_bufs++;
}

int64_t ct__elements_of(const ct_type *type) {
    int64_t count = 1;
    for (int a = 0; a < type->rank; a++) count = ct__size_mul(count, ct__size_of(type, a));
    return count;
}
int64_t ct__bytes_of(const ct_type *type) {
    if (!type->mark) {
        if (type->dyn) ct__symbols_incomplete(ct__symbols_now());
        return (int64_t)ct__type_bytes(type);
    }
    const int64_t count = ct__elements_of(type);
    const int64_t bits = ct__dtype((ct_dtype)type->dtype)->bits;
    return bits % 8 ? ct__size_div_up(ct__size_mul(count, bits), 8) : ct__size_mul(count, bits / 8);
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
    launch.atoms = ct__arena_zero(p->arena, (n_numbers + 1) * sizeof *launch.atoms);
    launch.n_args = n_args;
    launch.n_numbers = n_numbers;
    return launch.args && launch.numbers && launch.atoms ? ct__program_append(p, launch) : NULL;
}

bool ct__program_copy(ct_program *p, ct_arg from, ct_arg to, const ct_node *node, int64_t size) {
    if (size == 0) return true;
    ct_launch launch = {
        .kind = CT_LAUNCH_COPY, .node = node, .size = size, .bytes = (size_t)ct__unmarked(size)};
    ct_launch *copy = ct__program_launch(p, launch, 2, 0);
    if (!copy) return false;
    copy->args[0] = from;
    copy->args[1] = to;
    copy->args[1].write = true;
    return true;
}

bool ct__program_kernel(ct_program *p, struct ct_kir **ir, uint32_t *number) {
    uint64_t hash = ct__kir_hash(*ir).lo;
    for (size_t i = 0; i < p->n_kernels; i++)
        if (p->kernels[i].hash == hash && ct__kir_same(p->kernels[i].ir, *ir)) {
            *number = (uint32_t)i;
            return true;
        }
    if (!CT_GROW(p->kernels, p->kernels_cap, p->n_kernels + 1)) return false;
    *number = (uint32_t)p->n_kernels;
    p->kernels[p->n_kernels++] = (struct ct_program_kernel){.ir = *ir, .hash = hash};
    *ir = NULL;
    return true;
}

bool ct__program_leaf(ct_program *p, const ct_node *node, uint32_t *leaf_buf, uint32_t *scalars,
                      ct_location *to) {
    uint32_t *shared = NULL; // the variable of its buffer's number, if it is shared
    ct_buf buf = {.kind = CT_BUF_LEAF, .size = ct__bytes_of(node->out), .node = node};
    *to = (ct_location){.buf = UINT32_MAX};
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

static ct_command_kind program_command_kind(ct_launch_kind kind) {
    switch (kind) {
    case CT_LAUNCH_NODE: return CT_COMMAND_NODE;
    case CT_LAUNCH_KERNEL: return CT_COMMAND_KERNEL;
    case CT_LAUNCH_COPY: return CT_COMMAND_COPY;
    case CT_LAUNCH_LOOP: return CT_COMMAND_LOOP;
    case CT_LAUNCH_SWITCH: return CT_COMMAND_SWITCH;
    case CT_LAUNCH_BRANCH: return CT_COMMAND_BRANCH;
    case CT_LAUNCH_BATCH: return CT_COMMAND_BATCH;
    case CT_LAUNCH_END: break;
    }
    return CT_COMMAND_END;
}

ct_command ct__program_command(const ct_program *p, const ct_launch *l) {
    const struct ct_program_kernel *k = l->kind == CT_LAUNCH_KERNEL ? &p->kernels[l->kernel] : NULL;
    return (ct_command){.kind = program_command_kind(l->kind),
                        .dtype = l->dtype,
                        .node = l->node,
                        .label = l->label,
                        .kernel = k ? k->made : NULL,
                        .ir = k ? k->ir : NULL,
                        .n_args = l->n_args,
                        .steps = l->steps,
                        .n_steps = l->n_steps,
                        .iteration_of = l->turn,
                        .batched = l->batched,
                        .numbers = l->numbers,
                        .n_numbers = l->n_numbers,
                        .grid = l->grid,
                        .count = l->count,
                        .bytes = l->bytes,
                        .flops = l->flops};
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
