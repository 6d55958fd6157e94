// Lists of commands run by their structure: loops, branches, operands that move on, and stopping.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/backend.h"

typedef struct {
    char said[400];        // "name offset, " of each command that ran
    unsigned char counter; // counted down by each command
    unsigned char *holds;  // becomes 0 when the counter does
    unsigned reads;        // of scalars
    atomic_bool *stop;     // set when the counter is 0
} record;

static bool run(void *user, const ct_command *c, const ct_command *given, ct_err *err) {
    record *r = user;
    (void)err;
    size_t n = strlen(r->said);
    snprintf(r->said + n, sizeof r->said - n, "%d", (int)given->bytes);
    for (uint32_t i = 0; i < c->n_args; i++) {
        n = strlen(r->said);
        snprintf(r->said + n, sizeof r->said - n, "%c%zu", i ? ',' : '@', c->args[i].offset);
    }
    strcat(r->said, " ");
    if (r->counter && --r->counter == 0) {
        if (r->holds) *r->holds = 0;
        if (r->stop) atomic_store(r->stop, true);
    }
    return true;
}
static bool read(void *user, ct_operand from, void *to, size_t n, ct_err *err) {
    (void)err;
    ((record *)user)->reads++;
    memcpy(to, (char *)from.buffer + from.offset, n);
    return true;
}

// The name of a command is its number of bytes.
#define ONE(name, ...)                                                                             \
    { .kind = CT_COMMAND_COPY, .bytes = name, __VA_ARGS__ }

static void loops_move_their_operands(void **state) {
    (void)state;
    const ct_operand args[2] = {{NULL, 100}, {NULL, 7}};
    const ct_step steps[] = {{0, 0, 10, false}, {0, 1, 1, false}, {1, 1, 2, true}};
    const ct_command list[] = {
        ONE(1, 0),
        {.kind = CT_COMMAND_LOOP, .count = 2, .skip = 5},
        ONE(2, .args = args, .n_args = 1, .steps = steps, .n_steps = 1),
        {.kind = CT_COMMAND_LOOP, .count = 3, .skip = 2},
        ONE(3, .args = args, .n_args = 2, .steps = steps, .n_steps = 3),
        {.kind = CT_COMMAND_END},
        {.kind = CT_COMMAND_END},
        {.kind = CT_COMMAND_LOOP, .count = 0, .skip = 2},
        ONE(4, 0),
        {.kind = CT_COMMAND_END},
        ONE(5, 0),
    };
    ct_device device = {0};
    record r = {0};
    const ct_runner runner = {.device = &device, .run = run, .user = &r};
    uint64_t before = ct_get_stats().launches;
    assert_int_equal(ct__command_span(&list[1]), 6);
    assert_int_equal(ct__command_span(&list[3]), 3);
    assert_true(ct__run_commands(&runner, list, sizeof list / sizeof *list, NULL));
    assert_string_equal(r.said,
                        "1 2@100 3@100,11 3@101,9 3@102,7 2@110 3@110,11 3@111,9 3@112,7 5 ");
    assert_int_equal(ct_get_stats().launches - before, 10);
}

static void switches_take_the_nearest_branch(void **state) {
    (void)state;
    int32_t index[] = {-7, 0, 1, 2, 9};
    const ct_operand arg = {index, 0};
    const ct_step step = {0, 0, sizeof *index, false};
    const ct_command list[] = {
        {.kind = CT_COMMAND_LOOP, .count = 5, .skip = 9},
        {.kind = CT_COMMAND_SWITCH,
         .count = 3,
         .dtype = CT_I32,
         .args = &arg,
         .n_args = 1,
         .steps = &step,
         .n_steps = 1,
         .skip = 1},
        {.kind = CT_COMMAND_BRANCH, .skip = 2},
        ONE(10, 0),
        {.kind = CT_COMMAND_BRANCH, .skip = 1},
        {.kind = CT_COMMAND_BRANCH, .skip = 2},
        ONE(12, 0),
        {.kind = CT_COMMAND_END},
        ONE(1, 0),
        {.kind = CT_COMMAND_END},
    };
    ct_device device = {0};
    for (int by_copy = 0; by_copy < 2; by_copy++) {
        record r = {0};
        const ct_runner runner = {
            .device = &device, .run = run, .read = by_copy ? read : NULL, .user = &r};
        assert_int_equal(ct__command_span(&list[1]), 7);
        assert_true(ct__run_commands(&runner, list, sizeof list / sizeof *list, NULL));
        assert_string_equal(r.said, "10 1 10 1 1 12 1 12 1 ");
        assert_int_equal(r.reads, by_copy ? 5 : 0);
    }
}

static void a_predicate_ends_a_loop(void **state) {
    (void)state;
    unsigned char holds = 1;
    const ct_operand arg = {&holds, 0};
    const ct_command list[] = {
        {.kind = CT_COMMAND_LOOP, .count = INT64_MAX, .args = &arg, .n_args = 1, .skip = 2},
        ONE(1, 0),
        {.kind = CT_COMMAND_END},
        ONE(2, 0),
    };
    ct_device device = {0};
    record r = {.counter = 3, .holds = &holds};
    const ct_runner runner = {.device = &device, .run = run, .user = &r};
    assert_true(ct__run_commands(&runner, list, 4, NULL));
    assert_string_equal(r.said, "1 1 1 2 ");
    assert_true(ct__run_commands(&runner, list, 4, NULL)); // it does not hold at first
    assert_string_equal(r.said, "1 1 1 2 2 ");
}

static void a_loop_without_end_stops(void **state) {
    (void)state;
    atomic_bool stop = false;
    const ct_command list[] = {
        {.kind = CT_COMMAND_LOOP, .count = INT64_MAX, .skip = 2},
        ONE(1, 0),
        {.kind = CT_COMMAND_END},
    };
    ct_device device = {.stop = &stop};
    record r = {.counter = 4, .stop = &stop};
    const ct_runner runner = {.device = &device, .run = run, .user = &r};
    ct_err err = {0};
    assert_false(ct__run_commands(&runner, list, 3, &err));
    assert_string_equal(r.said, "1 1 1 1 ");
    assert_int_equal(err.code, CT_E_INTERRUPTED);
    assert_string_equal(err.text, "run: cancelled: no variable has changed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_move_their_operands),
        cmocka_unit_test(switches_take_the_nearest_branch),
        cmocka_unit_test(a_predicate_ends_a_loop),
        cmocka_unit_test(a_loop_without_end_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
