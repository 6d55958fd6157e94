// The tests of templates (`x is defined`), and the global functions of every template.
#include <string.h>
#include <time.h>

#include "text/jinja_value.h"

#define TEST(name)                                                                                 \
    static ct_jv name(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, const ct_jv_args *all)
#define UNUSED (void)m, (void)self, (void)arg, (void)all
#define RETURN_BOOL(truth) return UNUSED, ct__jv_bool(truth)

static bool jinja_is_callable(ct_jv v) { return v.kind >= JV_MACRO || v.kind == JV_UNDEFINED; }

static bool jinja_is_divisible(ct_jinja_machine *m, ct_jv v, ct_jv by) {
    ct_jv rest = ct__jv_binary(m, '%', v, by);
    return rest.kind != JV_STRING && !ct__jv_truth(m, rest);
}

static bool jinja_is_sequence(ct_jv v) {
    return (v.kind >= JV_STRING && v.kind <= JV_RANGE) || v.kind == JV_DICT ||
           v.kind == JV_UNDEFINED;
}

// Values up to strings compare by value, others by identity.
static bool jinja_is_same(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    return a.kind == b.kind && (a.kind <= JV_STRING ? ct__jv_equal(m, a, b) : a.list == b.list);
}

static bool jinja_has_case(ct_jinja_machine *m, ct_jv v, const char *method) {
    const ct_jv_function *f =
        ct__jv_find_function(ct__jv_string_methods, ct__jv_cstring(m, method));
    return ct__jv_invoke(m, f, ct__jv_to_string(m, v), &(ct_jv_args){0}).b;
}

TEST(test_boolean) { RETURN_BOOL(self.kind == JV_BOOL); }
TEST(test_callable) { RETURN_BOOL(jinja_is_callable(self)); }
TEST(test_defined) { RETURN_BOOL(self.kind != JV_UNDEFINED); }
TEST(test_undefined) { RETURN_BOOL(self.kind == JV_UNDEFINED); }
TEST(test_divisible) { RETURN_BOOL(jinja_is_divisible(m, self, arg[0])); }
TEST(test_even) { RETURN_BOOL(jinja_is_divisible(m, self, ct__jv_int(2))); }
TEST(test_odd) {
    ct_jv rest = ct__jv_binary(m, '%', self, ct__jv_int(2));
    RETURN_BOOL(ct__jv_equal(m, rest, ct__jv_int(1)));
}
TEST(test_escaped) { RETURN_BOOL(self.kind == JV_STRING && self.s->markup); }
TEST(test_true) { RETURN_BOOL(self.kind == JV_BOOL && self.b); }
TEST(test_false) { RETURN_BOOL(self.kind == JV_BOOL && !self.b); }
TEST(test_filter) { RETURN_BOOL(ct__jv_find_filter(self) != NULL); }
TEST(test_test) { RETURN_BOOL(ct__jv_find_test(self) != NULL); }
TEST(test_float) { RETURN_BOOL(self.kind == JV_FLOAT); }
TEST(test_integer) { RETURN_BOOL(self.kind == JV_INT); }
TEST(test_number) { RETURN_BOOL(self.kind >= JV_BOOL && self.kind <= JV_FLOAT); }
TEST(test_in) { RETURN_BOOL(ct__jv_contains(m, arg[0], self)); }
TEST(test_iterable) { RETURN_BOOL(ct__jv_iterable(self)); }
TEST(test_lower) { RETURN_BOOL(jinja_has_case(m, self, "islower")); }
TEST(test_upper) { RETURN_BOOL(jinja_has_case(m, self, "isupper")); }
TEST(test_mapping) { RETURN_BOOL(self.kind == JV_DICT); }
TEST(test_none) { RETURN_BOOL(self.kind == JV_NONE); }
TEST(test_same) { RETURN_BOOL(jinja_is_same(m, self, arg[0])); }
TEST(test_sequence) { RETURN_BOOL(jinja_is_sequence(self)); }
TEST(test_string) { RETURN_BOOL(self.kind == JV_STRING); }
TEST(test_equal) { RETURN_BOOL(ct__jv_equal(m, self, arg[0])); }
TEST(test_unequal) { RETURN_BOOL(!ct__jv_equal(m, self, arg[0])); }
TEST(test_less) { RETURN_BOOL(ct__jv_compare(m, self, arg[0], "<") < 0); }
TEST(test_at_most) { RETURN_BOOL(ct__jv_compare(m, self, arg[0], "<=") <= 0); }

static bool jinja_order_at_least(int order, int min_order) {
    return order != 2 && order >= min_order;
}

TEST(test_greater) {
    int order = ct__jv_compare(m, self, arg[0], ">");
    RETURN_BOOL(jinja_order_at_least(order > 0 && order != 2 ? 1 : order, 1));
}
TEST(test_at_least) { RETURN_BOOL(jinja_order_at_least(ct__jv_compare(m, self, arg[0], ">="), 0)); }

static const ct_jv_function jinja_tests[] = {
    {"!=", "other", 1, test_unequal},
    {"<", "other", 1, test_less},
    {"<=", "other", 1, test_at_most},
    {"==", "other", 1, test_equal},
    {">", "other", 1, test_greater},
    {">=", "other", 1, test_at_least},
    {"boolean", "", 0, test_boolean},
    {"callable", "", 0, test_callable},
    {"defined", "", 0, test_defined},
    {"divisibleby", "num", 1, test_divisible},
    {"eq", "other", 1, test_equal},
    {"equalto", "other", 1, test_equal},
    {"escaped", "", 0, test_escaped},
    {"even", "", 0, test_even},
    {"false", "", 0, test_false},
    {"filter", "", 0, test_filter},
    {"float", "", 0, test_float},
    {"ge", "other", 1, test_at_least},
    {"greaterthan", "other", 1, test_greater},
    {"gt", "other", 1, test_greater},
    {"in", "seq", 1, test_in},
    {"integer", "", 0, test_integer},
    {"iterable", "", 0, test_iterable},
    {"le", "other", 1, test_at_most},
    {"lessthan", "other", 1, test_less},
    {"lower", "", 0, test_lower},
    {"lt", "other", 1, test_less},
    {"mapping", "", 0, test_mapping},
    {"ne", "other", 1, test_unequal},
    {"none", "", 0, test_none},
    {"number", "", 0, test_number},
    {"odd", "", 0, test_odd},
    {"sameas", "other", 1, test_same},
    {"sequence", "", 0, test_sequence},
    {"string", "", 0, test_string},
    {"test", "", 0, test_test},
    {"true", "", 0, test_true},
    {"undefined", "", 0, test_undefined},
    {"upper", "", 0, test_upper},
    {0},
};

const ct_jv_function *ct__jv_find_test(ct_jv name) {
    return ct__jv_find_function(jinja_tests, name);
}

bool ct__jv_call_test(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args) {
    const ct_jv_function *test = ct__jv_find_test(name);
    if (!test) ct__jinja_fail(m, "there is no test %s", ct__jinja_printable(m, name));
    return ct__jv_invoke(m, test, self, args).b;
}

// --------------------------------------------------------------------------------------- functions

TEST(global_range) {
    UNUSED;
    enum { MAX_RANGE = 100000 };
    bool one = arg[1].kind == JV_MISSING;
    int64_t start = one ? 0 : ct__jv_require_int(m, arg[0], "start");
    int64_t stop = ct__jv_require_int(m, one ? arg[0] : arg[1], "stop");
    int64_t step = arg[2].kind == JV_MISSING ? 1 : ct__jv_require_int(m, arg[2], "step");
    if (step == 0) ct__jinja_fail(m, "range: the step is 0");
    ct_jv list = ct__jv_new_list(m, JV_RANGE, 0);
    list.list->range[0] = start;
    list.list->range[1] = stop;
    list.list->range[2] = step;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (list.list->n == MAX_RANGE)
            ct__jinja_fail(m, "range: it has more than %d numbers", MAX_RANGE);
        ct__jv_push(m, list.list, ct__jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
}

// From a dict or pairs, then from keyword arguments.
static ct_jv jinja_make_dict(ct_jinja_machine *m, const ct_jv_args *all) {
    ct_jv out = ct__jv_new_dict(m);
    if (all->n > 1) ct__jinja_fail(m, "a dict is made of one value, not of %zu", all->n);
    if (all->n && all->v[0].kind == JV_DICT) {
        const ct_jv_dict *from = all->v[0].dict;
        for (size_t i = 0; i < from->n; i++)
            ct__jv_dict_set(m, out.dict, from->keys[i], from->values[i]);
    } else if (all->n) {
        const ct_jv_list *pairs = ct__jv_items(m, all->v[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const ct_jv_list *pair = ct__jv_items(m, pairs->v[i]);
            if (pair->n != 2)
                ct__jinja_fail(m, "a dict is made of pairs, not of %zu values", pair->n);
            ct__jv_dict_set(m, out.dict, pair->v[0], pair->v[1]);
        }
    }
    for (size_t i = 0; i < all->named_n; i++)
        ct__jv_dict_set(m, out.dict, all->names[i], all->named[i]);
    return out;
}

TEST(global_dict) { return UNUSED, jinja_make_dict(m, all); }

TEST(global_namespace) {
    UNUSED;
    ct_jv result = jinja_make_dict(m, all);
    for (size_t i = 0; i < result.dict->n; i++) {
        ct_jv name = result.dict->keys[i];
        if (name.kind == JV_STRING && name.s->n && *name.s->s == '_')
            ct__jinja_fail(m, "a namespace has no members that begin with an underscore");
    }
    result.kind = JV_NAMESPACE;
    return result;
}

static ct_jv jinja_new_cycler(ct_jinja_machine *m, ct_jv_kind kind) {
    ct_jv result = {.kind = kind, .cycler = ct__jinja_alloc(m, 1, sizeof(ct_jv_cycler))};
    result.cycler->items = ct__jv_new_list(m, JV_LIST, 0).list;
    return result;
}

TEST(global_cycler) {
    UNUSED;
    if (!all->n || all->named_n) ct__jinja_fail(m, "cycler: it needs values without names");
    ct_jv result = jinja_new_cycler(m, JV_CYCLER);
    for (size_t i = 0; i < all->n; i++) ct__jv_push(m, result.cycler->items, all->v[i]);
    return result;
}

TEST(global_joiner) {
    UNUSED;
    ct_jv result = jinja_new_cycler(m, JV_JOINER);
    ct__jv_push(m, result.cycler->items,
                arg[0].kind == JV_MISSING ? ct__jv_cstring(m, ", ") : arg[0]);
    return result;
}

TEST(global_raise_exception) {
    UNUSED;
    const ct_jv_string *text = ct__jv_to_string(m, arg[0]).s;
    ct__jinja_fail_as(m, CT_E_DATA, "%.*s", text->n < 800 ? (int)text->n : 800, text->s);
}

TEST(global_strftime_now) {
    UNUSED;
    char text[1024], *format = ct__jinja_alloc(m, 256, 1);
    ct_jv given = ct__jv_require_string(m, arg[0], "the format");
    if (given.s->n > 255) ct__jinja_fail(m, "strftime_now: the format is too long");
    memcpy(format, given.s->s, given.s->n);
    time_t now = (time_t)m->limits.now;
    struct tm parts;
    if (!localtime_r(&now, &parts)) ct__jinja_fail(m, "strftime_now: the clock is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // strftime reads nothing but the date by it
    size_t n = strftime(text, sizeof text, format, &parts);
#pragma GCC diagnostic pop
    return ct__jv_copy_string(m, text, n);
}

const ct_jv_function ct__jv_globals[] = {
    {"cycler", NULL, 0, global_cycler},
    {"dict", NULL, 0, global_dict},
    {"joiner", "sep", 0, global_joiner},
    {"namespace", NULL, 0, global_namespace},
    {"raise_exception", "message", 1, global_raise_exception},
    {"range", "start stop step", 1, global_range},
    {"strftime_now", "format", 1, global_strftime_now},
    {0},
};
