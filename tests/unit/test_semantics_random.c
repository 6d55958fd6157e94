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

// READ: a version of a variable; `a` is what it was assigned, while the scope of that stands, or
// NOTHING. SAME: a value that is kept in place of a variable. LEAF: what was kept, after its scope.
typedef enum { READ, SAME, ADD, MUL, LEAF } kind;
enum { NOTHING = -1 };
typedef struct value {
    kind kind;
    double v;
    int a, b;                // operands; NOTHING
    int var, version, depth; // of READ
    bool kept, there;        // there: computed, and stored
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

static void all_ran(void) {
    for (int i = 0; i < n_values; i++) values[i].there |= values[i].kept;
    for (int i = 0; i < VARS; i++) vars[i].ran = vars[i].version;
}

// Could computing it need a version that is gone? `behind`: of what is stored, too.
static bool stale(int i, bool behind) {
    if (i == NOTHING) return false;
    const value *v = &values[i];
    if (v->kind == READ && v->version < vars[v->var].ran) return true;
    if ((v->kind == READ || v->there) && !behind) return false;
    return stale(v->a, behind) || stale(v->b, behind);
}

// How many versions of a variable a loss reads, and the newest of them; versions are leaves here.
static int find_versions(int i, int var, int *newest) {
    bool reads[MOST_VALUES] = {0};
    int n = 0;
    reads[i] = true;
    for (; i >= 0; i--) { // operands come first
        const value *v = &values[i];
        if (!reads[i]) continue;
        if (v->kind == READ && v->var == var && !n++) *newest = i;
        if (v->kind == READ) continue;
        if (v->a != NOTHING) reads[v->a] = true;
        if (v->b != NOTHING) reads[v->b] = true;
    }
    return n;
}

static bool depends(int i, int on) {
    return i == on || (i != NOTHING && (depends(values[i].a, on) || depends(values[i].b, on)));
}
static double slope(int i, int wrt) {
    if (i == wrt || i == NOTHING) return i == wrt;
    const value *v = &values[i];
    const double a = slope(v->a, wrt), b = slope(v->b, wrt);
    return v->kind == MUL ? a * values[v->b].v + b * values[v->a].v : a + b;
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

static void add_handle(ct_tensor t, int of, int depth) {
    if (n_handles == HANDLES) memmove(handles, handles + 1, sizeof *handles * (size_t)--n_handles);
    handles[n_handles].t = t;
    handles[n_handles].of = of;
    handles[n_handles++].depth = depth;
}

static bool read_one(void) {
    say("read ");
    const any x = draw_any();
    const bool spent = stale(x.of, false);
    double got;
    if (draw(2)) {
        got = ct_item(x.t);
    } else {
        const double *d = ct_data(x.t);
        got = d ? *d : NAN;
    }
    say(": %g\n", got);
    if (spent && ct_error_code() == CT_E_OVERWRITTEN) return false;
    check_that(!ct_failed() && got == values[x.of].v, "a wrong value");
    all_ran();
    values[x.of].there |= x.place >= 0;
    return true;
}

static bool differentiate(int *n_slopes) {
    say("gradient of ");
    const any loss = draw_any();
    const int var = (int)draw(VARS);
    ct_tensor g;
    if (loss.place < 0) {
        say(": no\n");
        return true;
    }
    int wrt = vars[var].now;
    const int n = find_versions(loss.of, var, &wrt);
    ct_grad(loss.t, &vars[var].t, 1, &g);
    double got = ct_item(g);
    say(" with respect to %c: %g\n", 'a' + var, got);
    const bool some = n < 2 && depends(loss.of, wrt);
    if (some && ct_error_code() == CT_E_OVERWRITTEN && stale(loss.of, true)) return false;
    check_that(ct_failed() == !some, "an error without a reason, or none with one");
    if (!some) return false;
    check_that(got == slope(loss.of, wrt), "a wrong gradient");
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
    add_handle(t, of, depth);
}

static void assign(int depth) {
    const int k = (int)draw(VARS);
    say("%c := ", 'a' + k);
    const any x = draw_any();
    say("\n");
    if (stale(x.of, false)) return;
    ct_assign(vars[k].t, x.t);
    vars[k].now = add_value((value){.kind = READ,
                                    .v = values[x.of].v,
                                    .a = x.place < 0 ? NOTHING : x.of, // a copy
                                    .b = NOTHING,
                                    .var = k,
                                    .version = ++vars[k].version,
                                    .depth = depth});
}

static void keep(int depth) {
    say("keep ");
    const any x = draw_any();
    say("\n");
    if (stale(x.of, false)) return;
    const bool variable = x.place < 0;
    const int of =
        variable ? add_value((value){.kind = SAME, .v = values[x.of].v, .a = x.of, .b = NOTHING})
                 : x.of;
    add_handle(ct_keep(x.t), of, variable ? depth : handles[x.place].depth);
    values[of].kept = true;
}

static void leave(ct_scope scope, int depth) {
    int n = 0;
    say("end\n");
    ct_scope_end(scope, CT_HERE);
    for (int i = 0; i < n_handles; i++) {
        const int of = handles[i].of;
        if (handles[i].depth == depth && !values[of].kept) continue;
        if (handles[i].depth == depth) {
            handles[i].depth--;
            handles[i].of =
                add_value((value){.kind = LEAF, .v = values[of].v, .a = NOTHING, .b = NOTHING});
        }
        handles[n++] = handles[i];
    }
    n_handles = n;
    for (int i = 0; i < n_values; i++)
        if (values[i].kind == READ && values[i].depth == depth) values[i].a = NOTHING;
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
        vars[i].now =
            add_value((value){.kind = READ, .v = v, .a = NOTHING, .b = NOTHING, .var = i});
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
            assign(depth);
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
