// Random programs of variables against a model that holds every value from the moment at which it
// is recorded: assignments, reads, kept values and gradients, in scopes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

enum { VARS = 4, MOST_VALUES = 400, HANDLES = 12, ACTIONS = 60, DEPTH = 3, PROGRAMS = 4000 };

static uint64_t state_of_draw;
static unsigned draw(unsigned below) {
    state_of_draw = state_of_draw * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state_of_draw >> 33) % below);
}

// --------------------------------------------------------------------------------------- the model

// What a tensor is. Of a variable: READ after its assignment ran; before, COPY where it was assigned
// another variable, else VERSION, of what it was assigned. SAME: a tensor that is one of these, as
// it was assigned to another one. PAST: what outlived its scope.
typedef enum { READ, COPY, VERSION, SAME, ADD, MUL, PAST } kind;
typedef struct value {
    kind kind;
    double v;
    int a, b;         // operands
    int var, version; // of the first three
    bool kept, there; // there: and it ran
} value;

static value values[MOST_VALUES];
static int n_values;

static struct {
    ct_tensor t;
    int now;          // its value
    int version, ran; // of the newest assignment; of the newest that ran
} vars[VARS];

static struct {
    ct_tensor t;
    int of, depth; // its value, and its scope
    bool there;    // it was read, or is kept and ran
    bool kept;
} handles[HANDLES];
static int n_handles;

static char program[1 << 14]; // what was done, to be printed where it went wrong
static size_t n_program;
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(program + n_program, sizeof program - n_program, format, list);
    va_end(list);
    n_program += (size_t)n;
    assert_true(n_program < sizeof program);
}
static void check_that(bool holds, const char *what) {
    if (!holds) fail_msg("%s, in:\n%s\n%s", what, program, ct_error_text());
}

static int add_value(value v) {
    assert_true(n_values < MOST_VALUES);
    values[n_values] = v;
    return n_values++;
}

static bool of_variable(const value *v) { return v->kind <= VERSION; }

static void all_ran(void) {
    for (int i = 0; i < n_values; i++) values[i].there |= values[i].kept;
    for (int i = 0; i < n_handles; i++) handles[i].there |= handles[i].kept;
    for (int i = 0; i < VARS; i++) {
        const value *v = &values[vars[i].now];
        vars[i].ran = vars[i].version;
        if (v->kind != READ)
            vars[i].now =
                add_value((value){.kind = READ, .v = v->v, .var = i, .version = vars[i].version});
    }
}

// Could it need a version that is gone? (Not where something on the way was kept or read.)
static bool stale(int i) {
    const value *v = &values[i];
    if (v->kind == READ) return v->version < vars[v->var].ran;
    return v->kind != PAST && (stale(v->a) || (v->kind >= ADD && stale(v->b)));
}

// What a gradient with respect to a variable meets: its versions, by when they were read.
typedef struct met {
    bool before[MOST_VALUES], after[MOST_VALUES];
    bool kept; // a way there leads through a kept value
} met;
static void look(int i, int var, met *m, bool kept, bool past) {
    const value *v = &values[i];
    kept = kept || v->there || v->kind == PAST;
    past = past || v->kind == PAST;
    if (of_variable(v) && v->var == var) {
        m->kept = m->kept || kept;
        if (past && v->version != vars[var].version) return; // nobody remembers that one
        (v->kind == READ ? m->after : m->before)[v->version] = true;
        return;
    }
    if (v->kind >= VERSION) look(v->a, var, m, kept, past);
    if (v->kind == ADD || v->kind == MUL) look(v->b, var, m, kept, past);
}

// `through`: behind what outlived its scope, too.
static double slope(int i, int var, int version, bool through) {
    const value *v = &values[i];
    if (of_variable(v) && v->var == var && v->version == version) return 1;
    if (v->kind < VERSION || (v->kind == PAST && !through)) return 0;
    double a = slope(v->a, var, version, through);
    if (v->kind != ADD && v->kind != MUL) return a;
    double b = slope(v->b, var, version, through);
    return v->kind == ADD ? a + b : a * values[v->b].v + b * values[v->a].v;
}

// ----------------------------------------------------------------------------------------- actions

// A variable or, of a place from 0 on, a handle.
typedef struct any {
    ct_tensor t;
    int of, place;
} any;
static any draw_any(void) {
    int k = (int)draw((unsigned)(VARS + n_handles)), place = k - VARS;
    if (place < 0) {
        say("%c", 'a' + k);
        return (any){vars[k].t, vars[k].now, -1};
    }
    say("t%d", handles[place].of);
    return (any){handles[place].t, handles[place].of, place};
}
static bool may_be_spent(const any *x) {
    return x->place >= 0 && !handles[x->place].there && stale(x->of);
}

static void add_handle(ct_tensor t, int of, int depth, bool kept, bool there) {
    if (n_handles == HANDLES) memmove(handles, handles + 1, sizeof *handles * (size_t)--n_handles);
    handles[n_handles].t = t;
    handles[n_handles].of = of;
    handles[n_handles].depth = depth;
    handles[n_handles].kept = kept;
    handles[n_handles++].there = there;
}

static bool read_one(void) {
    say("read ");
    const any x = draw_any();
    const bool spent = may_be_spent(&x);
    double got;
    if (draw(2)) {
        got = ct_item(x.t);
    } else {
        const double *d = ct_data(x.t);
        got = d ? *d : NAN;
    }
    say(": %g\n", got);
    if (spent && ct_error_code() == CT_E_SPENT) return false;
    check_that(!ct_failed() && got == values[x.of].v, "a wrong value");
    all_ran();
    if (x.place >= 0) handles[x.place].there = true;
    return true;
}

static bool is_a_slope(double got, int of, int var, const met *m) {
    int n = 0, version = 0;
    for (int i = 0; i <= vars[var].version; i++) {
        n += m->before[i] + m->after[i];
        if (m->before[i] || m->after[i]) version = i;
    }
    if (n == 1 && got == slope(of, var, version, false)) return true;
    for (int i = 0; i <= vars[var].version && m->kept; i++)
        if (got == slope(of, var, i, false) || got == slope(of, var, i, true)) return true;
    return false;
}

static bool differentiate(int *n_slopes) {
    say("gradient of ");
    const any loss = draw_any();
    const int var = (int)draw(VARS);
    met m = {0};
    ct_tensor g;
    if (loss.place < 0) {
        say(": no\n");
        return true;
    }
    look(loss.of, var, &m, false, false);
    ct_grad(loss.t, &vars[var].t, 1, &g);
    double got = ct_item(g);
    say(" with respect to %c: %g\n", 'a' + var, got);
    if (ct_failed()) {
        int n = 0;
        for (int i = 0; i <= vars[var].version; i++) n += m.before[i] + m.after[i];
        check_that(n != 1 || m.kept || stale(loss.of), "an error without a reason");
        return false;
    }
    check_that(is_a_slope(got, loss.of, var, &m), "a wrong gradient");
    all_ran();
    ++*n_slopes;
    return true;
}

static void combine(int depth) {
    const bool mul = draw(2);
    say("t%d = ", n_values);
    const any x = draw_any();
    say(mul ? " * " : " + ");
    const any y = draw_any();
    const double v = mul ? values[x.of].v * values[y.of].v : values[x.of].v + values[y.of].v;
    say("\n");
    if (v > 1000) return; // exact in every order of a gradient's sums
    const ct_tensor t = mul ? ct_mul(x.t, y.t) : ct_add(x.t, y.t);
    const int of = add_value((value){.kind = mul ? MUL : ADD, .v = v, .a = x.of, .b = y.of});
    add_handle(t, of, depth, false, false);
}

static void assign(void) {
    const int k = (int)draw(VARS);
    say("%c := ", 'a' + k);
    const any x = draw_any();
    const value *to = &values[x.of];
    say("\n");
    if (may_be_spent(&x)) return;
    ct_assign(vars[k].t, x.t);
    value v = {.kind = VERSION, .v = to->v, .a = x.of, .var = k, .version = ++vars[k].version};
    if (x.place >= 0 && (to->kind == VERSION || to->kind == COPY))
        v.a = add_value((value){.kind = SAME, .v = to->v, .a = x.of});
    while (values[v.a].kind == VERSION || values[v.a].kind == COPY) v.a = values[v.a].a;
    if (values[v.a].kind == READ) v.kind = COPY;
    vars[k].now = add_value(v);
}

static void keep(int depth) {
    say("keep ");
    const any x = draw_any();
    say("\n");
    if (may_be_spent(&x)) return;
    const bool there = x.place >= 0 && handles[x.place].there;
    const ct_tensor t = ct_keep(x.t);
    values[x.of].kept = true;
    add_handle(t, x.of, x.place < 0 ? depth : handles[x.place].depth, true, there);
}

static void leave(ct_scope scope, int depth) {
    int n = 0;
    say("end\n");
    ct_scope_end(scope, CT_HERE);
    for (int i = 0; i < n_handles; i++) {
        if (handles[i].depth == depth && !handles[i].kept) continue;
        if (handles[i].depth == depth) {
            const int of = handles[i].of;
            handles[i].depth--;
            handles[i].kept = false;
            handles[i].there = true;
            handles[i].of = add_value((value){.kind = PAST, .v = values[of].v, .a = of});
        }
        handles[n++] = handles[i];
    }
    n_handles = n;
    all_ran();
}

static void begin(ct_params *set, uint64_t seed) {
    state_of_draw = seed * 0x9e3779b97f4a7c15u;
    n_values = n_handles = 0;
    n_program = 0;
    say("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < VARS; i++) {
        const char name[2] = {(char)('a' + i)};
        const double v = i + 2;
        vars[i].t = ct_param(set, name, CT_F64, CT_SCALAR);
        ct_assign(vars[i].t, ct_from(&v, CT_F64, CT_SCALAR));
        vars[i].version = vars[i].ran = 0;
        vars[i].now = add_value((value){.kind = READ, .v = v, .var = i});
    }
    assert_true(ct_eval(NULL, 0));
}

// Until an error that the model expects.
static void play(uint64_t seed, int *n_slopes) {
    ct_params *set = ct_params_new();
    ct_scope scopes[DEPTH] = {ct_scope_begin(CT_HERE)};
    int depth = 0;
    bool on = true;
    begin(set, seed);
    for (int i = 0; i < ACTIONS && on && n_values < MOST_VALUES / 2; i++) {
        const unsigned action = draw(12);
        if (action < 3) {
            combine(depth);
        } else if (action < 6) {
            assign();
        } else if (action < 8) {
            on = read_one();
        } else if (action == 8) {
            keep(depth);
        } else if (action == 9) {
            on = differentiate(n_slopes);
        } else if (action == 10) {
            say("eval\n");
            check_that(ct_eval(NULL, 0), "an error");
            all_ran();
        } else if (depth && draw(2)) {
            leave(scopes[depth], depth);
            depth--;
        } else if (depth + 1 < DEPTH) {
            say("begin\n");
            scopes[++depth] = ct_scope_begin(CT_HERE);
        }
        check_that(!on || !ct_failed(), "an error");
    }
    ct_error_clear();
    ct_scope_end(scopes[0], CT_HERE);
    ct_error_clear(); // of assignments that needed what is gone
    ct_params_free(set);
}

// Seeds from `first` on: these have met errors that others do not.
static void play_all(const char *device, uint64_t first) {
    int n_slopes = 0;
    assert_true(ct_set_device(device));
    for (int i = 0; i < PROGRAMS; i++) play(first + (uint64_t)i, &n_slopes);
    assert_true(n_slopes > PROGRAMS / 10);
}

static void programs_have_the_values_of_the_model(void **state) {
    (void)state;
    play_all("ref", 2000000);
}

static void plans_that_update_in_place_have_them_too(void **state) {
    (void)state;
    setenv("COTAN_CC", "none", 1); // kernels are interpreted, there are too many
    play_all("cpu", 200000);
    unsetenv("COTAN_CC");
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(programs_have_the_values_of_the_model),
                                       TEST(plans_that_update_in_place_have_them_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
