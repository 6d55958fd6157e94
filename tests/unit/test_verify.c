// The verifiers of the compiler's passes see each kind of mistake, and none in what is whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compile/schedule/sched.h"
#include "compile/check/verify.h"
#include "transform/transform.h"

static void says(const ct_err *err, const char *text) {
    if (!strstr(err->text, text)) fail_msg("\"%s\" instead of \"%s\"", err->text, text);
}

// ------------------------------------------------------------------------------------------------
// groups

static const ct_group *group_of(const ct_sched *s, const ct_node *node) {
    return s->groups[s->vals[node->index][0].group];
}

// x (4, 8), its sum over rows, and the sum's exp, which is the root
static void groups(void **state) {
    (void)state;
    CT_SCOPE;
    static const float numbers[32];
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(4, 8));
    ct_tensor y = ct_exp(ct_sum(ct_matmul(x, ct_permute(x, CT_DIMS(1, 0))), .axes = CT_AXES(1)));
    ct_ctx *ctx = ct__ctx();
    ct_err err = {0};
    ct_val root;
    ct_nodes list = {0};
    assert_true(ct__resolve(ctx, y, &root, "test", 0, CT_NOWHERE));
    assert_true(ct__reach(&list, &root, 1, &err));
    ct_arena arena = {0};
    struct ct_graph_root roots[1] = {{.kind = CT_ROOT_READ, .val = root, .leaf = -1}};
    ct_graph graph = {
        .arena = &arena, .nodes = list.v, .n = list.n, .n_leaves = 1, .roots = roots, .n_roots = 1};
    for (size_t i = 0; i < list.n; i++)
        if (ct__is_leaf(list.v[i])) list.v[i]->number = 0;
    ct_program program = {.arena = &arena, .target = {.cores = 1}};
    ct_sched *s = ct__sched_new(&graph, &program, &err);
    assert_non_null(s);
    assert_true(ct__fuse(s));
    assert_true(ct__verify_groups(s, &err));
    ct_node *sum = root.node->in[0].node, *product = sum->in[0].node;
    ct_group *rows = (ct_group *)(uintptr_t)group_of(s, sum);
    assert_ptr_equal(group_of(s, root.node), rows);

    s->vals[product->index][0].stored = false;
    assert_false(ct__verify_groups(s, &err));
    says(&err, "matmul: group 1 reads its value, which no group stores");
    s->vals[product->index][0].stored = true;

    err.code = CT_OK;
    ct_unit kept = rows->units[0];
    assert_ptr_equal(kept.v.node, sum);
    rows->units[0] = rows->units[1];
    assert_false(ct__verify_groups(s, &err));
    says(&err, "sum: group 1 reduces by it without a unit for it");
    rows->units[0] = kept;

    err.code = CT_OK;
    rows->dead = true;
    assert_false(ct__verify_groups(s, &err));
    says(&err, "exp: root 0 is stored by no group");
    rows->dead = false;

    err.code = CT_OK;
    assert_true(ct__schedule(s));
    assert_true(ct__verify_program(&program, false, &err));
    ct__sched_free(s);
    for (size_t i = 0; i < program.n_kernels; i++) {
        ct__kir_free(program.kernels[i].ir);
        ct__free(program.kernels[i].ir);
    }
    ct__free(program.bufs);
    ct__free(program.launches);
    ct__free(program.kernels);
    ct__nodes_free(&list);
    ct__arena_free(&arena);
}

// ------------------------------------------------------------------------------------------------
// programs: leaf 0 is copied to temporary 1, and from there in a loop to root 2; 3 is a constant

typedef struct {
    ct_program p;
    ct_buf bufs[4];
    ct_arg args[2][2];
    ct_launch launches[4];
} fixture;

static fixture *whole(fixture *f) {
    *f = (fixture){
        .bufs = {{.kind = CT_BUF_LEAF, .bytes = 64},
                 {.kind = CT_BUF_TEMP, .bytes = 64},
                 {.kind = CT_BUF_ROOT, .bytes = 64},
                 {.kind = CT_BUF_CONST, .bytes = 64}},
        .args = {{{.buf = 0}, {.buf = 1, .write = true}}, {{.buf = 1}, {.buf = 2, .write = true}}},
    };
    f->launches[0] =
        (ct_launch){.kind = CT_LAUNCH_COPY, .args = f->args[0], .n_args = 2, .bytes = 64};
    f->launches[1] = (ct_launch){.kind = CT_LAUNCH_LOOP, .count = 2};
    f->launches[2] =
        (ct_launch){.kind = CT_LAUNCH_COPY, .args = f->args[1], .n_args = 2, .bytes = 64};
    f->launches[3] = (ct_launch){.kind = CT_LAUNCH_END};
    f->p = (ct_program){
        .bufs = f->bufs, .n_bufs = 4, .launches = f->launches, .n_launches = 4, .arena_bytes = 64};
    return f;
}
static void refused(const fixture *f, const char *text) {
    ct_err err = {0};
    assert_false(ct__verify_program(&f->p, true, &err));
    says(&err, text);
}

static void programs(void **state) {
    (void)state;
    fixture f;
    ct_err err = {0};
    assert_true(ct__verify_program(&whole(&f)->p, true, &err));

    whole(&f)->args[0][0].buf = 4;
    refused(&f, "plan: launch 0: there is no such buffer: 4");
    whole(&f)->args[0][1].buf = 3;
    refused(&f, "plan: launch 0: it writes a buffer that may only be read: 3");
    whole(&f)->args[0][0].buf = 1;
    refused(&f, "plan: launch 0: it reads a buffer that nothing has written: 1");
    whole(&f)->args[1][1].buf = 1;
    refused(&f, "plan: root 0 is never written");
    whole(&f)->launches[0].n_args = 1;
    refused(&f, "plan: launch 0: it has another count of buffers: 1");
    whole(&f)->launches[2].kind = CT_LAUNCH_KERNEL;
    refused(&f, "plan: launch 2: there is no such kernel: 0");
    whole(&f)->p.n_launches = 3;
    refused(&f, "plan: 1 loops are not closed");
    whole(&f)->launches[1].kind = CT_LAUNCH_END;
    refused(&f, "plan: launch 1: it ends a loop that is not open: 1");
    whole(&f)->launches[1].kind = CT_LAUNCH_BRANCH;
    refused(&f, "plan: launch 1: it is a branch of nothing: 1");
    whole(&f)->launches[1] = (ct_launch){.kind = CT_LAUNCH_SWITCH, .args = f.args[0], .n_args = 1};
    refused(&f, "plan: launch 2: it follows a switch and is no branch: 2");
    whole(&f)->launches[2].steps = (ct_step[]){{2, 0, 64, false}};
    f.launches[2].n_steps = 1;
    refused(&f, "plan: launch 2: there is no such argument to move on: 2");
    whole(&f)->bufs[1].offset = 64;
    refused(&f, "plan: buffer 1 is outside of the arena");
    assert_true(ct__verify_program(&f.p, false, &err));

    ct_kir kir;
    ct__kir_init(&kir);
    ct__kir_buffer(&kir, CT_F32, CT_KIR_READ);
    ct__kir_buffer(&kir, CT_F32, CT_KIR_WRITE);
    struct ct_program_kernel kernel = {.ir = &kir};
    whole(&f)->p.kernels = &kernel;
    f.p.n_kernels = 1;
    f.launches[2].kind = CT_LAUNCH_KERNEL;
    assert_true(ct__verify_program(&f.p, true, &err));
    ct__kir_arg(&kir);
    refused(&f, "plan: launch 2: its numbers are not those of the kernel: 0");
    ct__kir_free(&kir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups), cmocka_unit_test(programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
