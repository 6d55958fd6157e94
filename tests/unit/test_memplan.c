// The memory plan: buffers that live at the same time never overlap, others share.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "compile/memory/memplan.h"
#include "compile/schedule/program.h"

enum { MOST = 64 };
typedef struct {
    ct_program p;
    ct_buf bufs[MOST];
    ct_launch launches[MOST];
    ct_arg args[MOST][4];
} fixture;

static void buffer(fixture *f, ct_buf_kind kind, size_t bytes) {
    f->bufs[f->p.n_bufs++] = (ct_buf){.kind = kind, .bytes = bytes};
    f->p.bufs = f->bufs;
}
static void launch(fixture *f, ct_launch_kind kind, int n, const uint32_t *bufs) {
    ct_launch *l = &f->launches[f->p.n_launches];
    *l = (ct_launch){.kind = kind, .args = f->args[f->p.n_launches], .n_args = (uint32_t)n};
    for (int i = 0; i < n; i++) l->args[i] = (ct_arg){.buf = bufs[i], .write = i == n - 1};
    f->p.n_launches++;
    f->p.launches = f->launches;
}
#define LAUNCH(f, ...)                                                                             \
    launch(f, CT_LAUNCH_KERNEL, (int)(sizeof((uint32_t[]){__VA_ARGS__}) / 4),                      \
           (uint32_t[]){__VA_ARGS__})

static bool apart(const fixture *f, uint32_t a, uint32_t b) {
    const ct_buf *x = &f->bufs[a], *y = &f->bufs[b];
    return x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset;
}

static void test_chain_shares(void **state) {
    (void)state;
    fixture f = {0};
    ct_err err = {0};
    for (int i = 0; i < 6; i++) buffer(&f, CT_BUF_TEMP, 1000);
    for (uint32_t i = 0; i < 5; i++) LAUNCH(&f, i, i + 1);
    assert_true(ct__plan_memory(&f.p, &err));
    assert_int_equal(f.p.arena_bytes, 2048); // two alive at a time, each rounded up to 1024
    for (uint32_t i = 0; i < 5; i++) assert_true(apart(&f, i, i + 1));
}

static void test_only_temporaries(void **state) {
    (void)state;
    fixture f = {0};
    ct_err err = {0};
    buffer(&f, CT_BUF_LEAF, 1 << 20);
    buffer(&f, CT_BUF_ROOT, 1 << 20);
    buffer(&f, CT_BUF_TEMP, 10);
    buffer(&f, CT_BUF_TEMP, 1 << 20); // never touched
    LAUNCH(&f, 0, 2);
    LAUNCH(&f, 2, 1);
    assert_true(ct__plan_memory(&f.p, &err));
    assert_int_equal(f.p.arena_bytes, 64);
}

// What a loop touches lives through it: the value of one iteration must not lie where another
// one's is.
static void test_loops(void **state) {
    (void)state;
    fixture f = {0};
    ct_err err = {0};
    for (int i = 0; i < 4; i++) buffer(&f, CT_BUF_TEMP, 640);
    LAUNCH(&f, 0);
    launch(&f, CT_LAUNCH_LOOP, 0, NULL);
    LAUNCH(&f, 0, 1);
    LAUNCH(&f, 1, 2);
    launch(&f, CT_LAUNCH_END, 0, NULL);
    LAUNCH(&f, 2, 3);
    assert_true(ct__plan_memory(&f.p, &err));
    assert_true(apart(&f, 0, 1) && apart(&f, 0, 2) && apart(&f, 1, 2));
    assert_true(apart(&f, 2, 3));
    assert_int_equal(f.p.arena_bytes, 3 * 640); // the last one takes the first one's place
}

// What an iteration writes before it reads it is its own: its place serves others of the iteration.
static void test_iterations(void **state) {
    (void)state;
    fixture f = {0};
    ct_err err = {0};
    for (int i = 0; i < 5; i++) buffer(&f, CT_BUF_TEMP, 640);
    LAUNCH(&f, 0); // carried
    launch(&f, CT_LAUNCH_LOOP, 0, NULL);
    LAUNCH(&f, 0, 1);
    LAUNCH(&f, 1, 2);
    LAUNCH(&f, 2, 3);
    LAUNCH(&f, 3, 0);
    launch(&f, CT_LAUNCH_END, 0, NULL);
    LAUNCH(&f, 0, 4);
    assert_true(ct__plan_memory(&f.p, &err));
    for (uint32_t i = 1; i < 4; i++) assert_true(apart(&f, 0, i));
    assert_true(apart(&f, 1, 2) && apart(&f, 2, 3));
    assert_int_equal(f.p.arena_bytes, 3 * 640);
}

static void test_random(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < 200; round++) {
        fixture f = {0};
        ct_err err = {0};
        size_t first[MOST], last[MOST], total = 0;
        int n = 2 + rand() % 40, launches = 2 + rand() % 50;
        for (int i = 0; i < n; i++) {
            buffer(&f, CT_BUF_TEMP, (size_t)(rand() % 5000));
            total += (f.bufs[i].bytes + 63) & ~(size_t)63;
            first[i] = SIZE_MAX;
            last[i] = 0;
        }
        for (int l = 0; l < launches; l++) {
            uint32_t used[3];
            for (int k = 0; k < 3; k++) {
                used[k] = (uint32_t)(rand() % n);
                if (first[used[k]] == SIZE_MAX) first[used[k]] = (size_t)l;
                last[used[k]] = (size_t)l;
            }
            launch(&f, CT_LAUNCH_KERNEL, 3, used);
        }
        assert_true(ct__plan_memory(&f.p, &err));
        assert_true(f.p.arena_bytes <= total);
        for (int a = 0; a < n; a++) {
            assert_int_equal(f.bufs[a].offset % 64, 0);
            for (int b = 0; b < a; b++)
                if (first[a] != SIZE_MAX && first[b] != SIZE_MAX && first[a] <= last[b] &&
                    first[b] <= last[a])
                    assert_true(apart(&f, (uint32_t)a, (uint32_t)b));
        }
    }
}

// Of thousands of buffers, too, the places are close together, though hardly two have one size: little is
// lost to gaps (percent).
static void pack_many(size_t n, size_t allowed) {
    enum { LIFE = 40 };
    ct_program p = {.n_bufs = n, .n_launches = n + LIFE};
    p.bufs = calloc(n, sizeof *p.bufs);
    p.launches = calloc(p.n_launches, sizeof *p.launches);
    ct_arg *args = calloc(2 * n, sizeof *args);
    size_t *alive = calloc(p.n_launches, sizeof *alive), most = 0, n_args = 0;
    size_t *last = calloc(n, sizeof *last);
    ct_err err = {0};
    assert_true(p.bufs && p.launches && args && alive && last);
    srand(11);
    for (size_t b = 0; b < n; b++) {
        p.bufs[b] = (ct_buf){.kind = CT_BUF_TEMP, .bytes = (size_t)(64 + rand() % 100000)};
        last[b] = b + 1 + (size_t)rand() % (LIFE - 1);
        for (size_t i = b; i <= last[b]; i++) alive[i] += (p.bufs[b].bytes + 63) & ~(size_t)63;
    }
    for (size_t i = 0; i < p.n_launches; i++) { // each writes a buffer, and reads those that end
        ct_launch *l = &p.launches[i];
        *l = (ct_launch){.kind = CT_LAUNCH_KERNEL, .args = &args[n_args]};
        if (i < n) args[n_args++] = (ct_arg){.buf = (uint32_t)i, .write = true};
        for (size_t b = i < LIFE ? 0 : i - LIFE; b < i && b < n; b++)
            if (last[b] == i) args[n_args++] = (ct_arg){.buf = (uint32_t)b};
        l->n_args = (uint32_t)(&args[n_args] - l->args);
        if (alive[i] > most) most = alive[i];
    }
    assert_true(ct__plan_memory(&p, &err));
    assert_true(p.arena_bytes >= most);
    assert_true(p.arena_bytes <= most + most * allowed / 100);
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n && b <= last[a]; b++)
            assert_true(p.bufs[a].offset + p.bufs[a].bytes <= p.bufs[b].offset ||
                        p.bufs[b].offset + p.bufs[b].bytes <= p.bufs[a].offset);
    free(p.bufs);
    free(p.launches);
    free(args);
    free(alive);
    free(last);
}

static void test_many(void **state) {
    (void)state;
    pack_many(6000, 10);
    pack_many(40000, 25); // in order of time
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_shares), cmocka_unit_test(test_only_temporaries),
        cmocka_unit_test(test_loops),        cmocka_unit_test(test_iterations),
        cmocka_unit_test(test_random),       cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
