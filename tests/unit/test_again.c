// Groups of a plan that are as earlier ones take their launches from them; others have kernels of their own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compile/schedule/sched.h"
#include "transform/transform.h"

enum { LAYERS = 5, WIDE = 8 };

// x (8, 8): each layer is a product, and its rows by what they sum up to; with `other` the fourth adds twice as much.
static ct_tensor layers(bool other) {
    static const float numbers[WIDE * WIDE];
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(WIDE, WIDE));
    for (int i = 0; i < LAYERS; i++) {
        ct_tensor y = ct_matmul(x, x);
        ct_tensor sum = ct_sum(ct_exp(y), .axes = CT_AXES(1), .keepdims = true); // (8, 1)
        x = ct_mul(ct_div(y, sum), sum);
        if (other && i == 3) x = ct_add(x, x);
    }
    return x;
}

static ct_program planned(ct_tensor y) {
    ct_err err = {0};
    ct_val root;
    ct_nodes list = {0};
    ct_arena arena = {0};
    assert_true(ct__resolve(ct__ctx(), y, &root, "test", 0, CT_NOWHERE));
    assert_true(ct__reach(&list, &root, 1, &err));
    struct ct_graph_root roots[1] = {{.kind = CT_ROOT_READ, .val = root, .leaf = -1}};
    ct_graph graph = {
        .arena = &arena, .nodes = list.v, .n = list.n, .n_leaves = 1, .roots = roots, .n_roots = 1};
    for (size_t i = 0; i < list.n; i++)
        if (ct__is_leaf(list.v[i])) list.v[i]->number = 0;
    ct_program program = {.arena = &arena, .target = {.cores = 1}};
    assert_true(ct__lower_kernels(&graph, &program, &err));
    for (size_t i = 0; i < program.n_kernels; i++) {
        ct__kir_free(program.kernels[i].ir);
        ct__free(program.kernels[i].ir);
    }
    ct__free(program.bufs);
    ct__free(program.launches);
    ct__free(program.kernels);
    ct__nodes_free(&list);
    ct__arena_free(&arena);
    return program; // its numbers alone
}

static void layers_that_are_alike(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_program p = planned(layers(false));
    assert_true(p.n_launches >= LAYERS);
    // The first layer reads a leaf, and the last one stores a result: all others are as the second one.
    assert_true(p.n_again >= (LAYERS - 3) * (p.n_launches / LAYERS));
}

static void a_layer_that_is_not(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_program p = planned(layers(false)), q = planned(layers(true));
    assert_true(q.n_kernels > p.n_kernels);
    assert_true(q.n_again < p.n_again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_are_alike),
        cmocka_unit_test(a_layer_that_is_not),
    };
    return cmocka_run_group_tests_name("again", tests, NULL, NULL);
}
