// The tests of templates (`x is defined`), and the functions that every template sees.
#include <string.h>
#include <time.h>

#include "text/jinja_value.h"

#define TEST(name)                                                                                 \
    static ct_jv name(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, const ct_jv_args *all)
#define UNUSED (void)m, (void)self, (void)arg, (void)all
#define SAYS(truth) return UNUSED, ct__jv_bool(truth)

static bool callable(ct_jv v) { return v.kind >= JV_MACRO || v.kind == JV_UNDEFINED; }

static bool divides(ct_jinja_machine *m, ct_jv v, ct_jv by) {
    ct_jv rest = ct__jv_binary(m, '%', v, by);
    return rest.kind != JV_STRING && !ct__jv_truth(m, rest);
}

static bool sequence(ct_jv v) {
    return (v.kind >= JV_STRING && v.kind <= JV_RANGE) || v.kind == JV_DICT ||
           v.kind == JV_UNDEFINED;
}

// Of what is one value for everybody.
static bool same(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    return a.kind == b.kind && (a.kind <= JV_STRING ? ct__jv_equal(m, a, b) : a.list == b.list);
}

static bool has_case(ct_jinja_machine *m, ct_jv v, const char *method) {
    const ct_jv_function *f = ct__jv_find_in(ct__jv_string_methods, ct__jv_word(m, method));
    return ct__jv_invoke(m, f, ct__jv_text(m, v), &(ct_jv_args){0}).b;
}

TEST(is_boolean) { SAYS(self.kind == JV_BOOL); }
TEST(is_callable) { SAYS(callable(self)); }
TEST(is_defined) { SAYS(self.kind != JV_UNDEFINED); }
TEST(is_undefined) { SAYS(self.kind == JV_UNDEFINED); }
TEST(is_divisible) { SAYS(divides(m, self, arg[0])); }
TEST(is_even) { SAYS(divides(m, self, ct__jv_int(2))); }
TEST(is_odd) {
    ct_jv rest = ct__jv_binary(m, '%', self, ct__jv_int(2));
    SAYS(ct__jv_equal(m, rest, ct__jv_int(1)));
}
TEST(is_escaped) { SAYS(self.kind == JV_STRING && self.s->markup); }
TEST(is_true) { SAYS(self.kind == JV_BOOL && self.b); }
TEST(is_false) { SAYS(self.kind == JV_BOOL && !self.b); }
TEST(is_filter) { SAYS(ct__jv_filter(self) != NULL); }
TEST(is_test) { SAYS(ct__jv_test(self) != NULL); }
TEST(is_float) { SAYS(self.kind == JV_FLOAT); }
TEST(is_integer) { SAYS(self.kind == JV_INT); }
TEST(is_number) { SAYS(self.kind >= JV_BOOL && self.kind <= JV_FLOAT); }
TEST(is_in) { SAYS(ct__jv_contains(m, arg[0], self)); }
TEST(is_iterable) { SAYS(ct__jv_iterable(self)); }
TEST(is_lower) { SAYS(has_case(m, self, "islower")); }
TEST(is_upper) { SAYS(has_case(m, self, "isupper")); }
TEST(is_mapping) { SAYS(self.kind == JV_DICT); }
TEST(is_none) { SAYS(self.kind == JV_NONE); }
TEST(is_same) { SAYS(same(m, self, arg[0])); }
TEST(is_sequence) { SAYS(sequence(self)); }
TEST(is_string) { SAYS(self.kind == JV_STRING); }
TEST(is_equal) { SAYS(ct__jv_equal(m, self, arg[0])); }
TEST(is_unequal) { SAYS(!ct__jv_equal(m, self, arg[0])); }
TEST(is_less) { SAYS(ct__jv_compare(m, self, arg[0], "<") < 0); }
TEST(is_at_most) { SAYS(ct__jv_compare(m, self, arg[0], "<=") <= 0); }

static bool greater(int order, int least) { return order != 2 && order >= least; }

TEST(is_greater) {
    int order = ct__jv_compare(m, self, arg[0], ">");
    SAYS(greater(order > 0 && order != 2 ? 1 : order, 1));
}
TEST(is_at_least) { SAYS(greater(ct__jv_compare(m, self, arg[0], ">="), 0)); }

static const ct_jv_function tests[] = {
    {"!=", "other", 1, is_unequal},
    {"<", "other", 1, is_less},
    {"<=", "other", 1, is_at_most},
    {"==", "other", 1, is_equal},
    {">", "other", 1, is_greater},
    {">=", "other", 1, is_at_least},
    {"boolean", "", 0, is_boolean},
    {"callable", "", 0, is_callable},
    {"defined", "", 0, is_defined},
    {"divisibleby", "num", 1, is_divisible},
    {"eq", "other", 1, is_equal},
    {"equalto", "other", 1, is_equal},
    {"escaped", "", 0, is_escaped},
    {"even", "", 0, is_even},
    {"false", "", 0, is_false},
    {"filter", "", 0, is_filter},
    {"float", "", 0, is_float},
    {"ge", "other", 1, is_at_least},
    {"greaterthan", "other", 1, is_greater},
    {"gt", "other", 1, is_greater},
    {"in", "seq", 1, is_in},
    {"integer", "", 0, is_integer},
    {"iterable", "", 0, is_iterable},
    {"le", "other", 1, is_at_most},
    {"lessthan", "other", 1, is_less},
    {"lower", "", 0, is_lower},
    {"lt", "other", 1, is_less},
    {"mapping", "", 0, is_mapping},
    {"ne", "other", 1, is_unequal},
    {"none", "", 0, is_none},
    {"number", "", 0, is_number},
    {"odd", "", 0, is_odd},
    {"sameas", "other", 1, is_same},
    {"sequence", "", 0, is_sequence},
    {"string", "", 0, is_string},
    {"test", "", 0, is_test},
    {"true", "", 0, is_true},
    {"undefined", "", 0, is_undefined},
    {"upper", "", 0, is_upper},
    {0},
};

const ct_jv_function *ct__jv_test(ct_jv name) { return ct__jv_find_in(tests, name); }

bool ct__jv_call_test(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args) {
    const ct_jv_function *test = ct__jv_test(name);
    if (!test) ct__jinja_fail(m, "there is no test %s", ct__jinja_shown(m, name));
    return ct__jv_invoke(m, test, self, args).b;
}

// -------------------------------------------------------------------------------------- functions

TEST(range) {
    UNUSED;
    enum { MOST = 100000 };
    bool one = arg[1].kind == JV_MISSING;
    int64_t start = one ? 0 : ct__jv_whole(m, arg[0], "start");
    int64_t stop = ct__jv_whole(m, one ? arg[0] : arg[1], "stop");
    int64_t step = arg[2].kind == JV_MISSING ? 1 : ct__jv_whole(m, arg[2], "step");
    if (step == 0) ct__jinja_fail(m, "range: the step is 0");
    ct_jv list = ct__jv_new_list(m, JV_RANGE, 0);
    list.list->range[0] = start;
    list.list->range[1] = stop;
    list.list->range[2] = step;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (list.list->n == MOST) ct__jinja_fail(m, "range: it has more than %d numbers", MOST);
        ct__jv_push(m, list.list, ct__jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
}

// From a dict or pairs, then from arguments with names.
static ct_jv collect(ct_jinja_machine *m, const ct_jv_args *all) {
    ct_jv out = ct__jv_new_dict(m);
    if (all->n > 1) ct__jinja_fail(m, "a dict is made of one value, not of %zu", all->n);
    if (all->n && all->v[0].kind == JV_DICT) {
        const ct_jv_dict *from = all->v[0].dict;
        for (size_t i = 0; i < from->n; i++)
            ct__jv_set(m, out.dict, from->keys[i], from->values[i]);
    } else if (all->n) {
        const ct_jv_list *pairs = ct__jv_items(m, all->v[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const ct_jv_list *pair = ct__jv_items(m, pairs->v[i]);
            if (pair->n != 2)
                ct__jinja_fail(m, "a dict is made of pairs, not of %zu values", pair->n);
            ct__jv_set(m, out.dict, pair->v[0], pair->v[1]);
        }
    }
    for (size_t i = 0; i < all->named_n; i++) ct__jv_set(m, out.dict, all->names[i], all->named[i]);
    return out;
}

TEST(dict) { return UNUSED, collect(m, all); }

TEST(namespace) {
    UNUSED;
    ct_jv made = collect(m, all);
    for (size_t i = 0; i < made.dict->n; i++) {
        ct_jv name = made.dict->keys[i];
        if (name.kind == JV_STRING && name.s->n && *name.s->s == '_')
            ct__jinja_fail(m, "a namespace has no members that begin with an underscore");
    }
    made.kind = JV_NAMESPACE;
    return made;
}

static ct_jv turn(ct_jinja_machine *m, ct_jv_kind kind) {
    ct_jv made = {.kind = kind, .turn = ct__jinja_room(m, 1, sizeof(ct_jv_turn))};
    made.turn->items = ct__jv_new_list(m, JV_LIST, 0).list;
    return made;
}

TEST(cycler) {
    UNUSED;
    if (!all->n || all->named_n) ct__jinja_fail(m, "cycler: it needs values without names");
    ct_jv made = turn(m, JV_CYCLER);
    for (size_t i = 0; i < all->n; i++) ct__jv_push(m, made.turn->items, all->v[i]);
    return made;
}

TEST(joiner) {
    UNUSED;
    ct_jv made = turn(m, JV_JOINER);
    ct__jv_push(m, made.turn->items, arg[0].kind == JV_MISSING ? ct__jv_word(m, ", ") : arg[0]);
    return made;
}

TEST(raise_exception) {
    UNUSED;
    const ct_jv_string *text = ct__jv_text(m, arg[0]).s;
    ct__jinja_fail_as(m, CT_E_DATA, "%.*s", text->n < 800 ? (int)text->n : 800, text->s);
}

TEST(strftime_now) {
    UNUSED;
    char text[1024], *format = ct__jinja_room(m, 256, 1);
    ct_jv given = ct__jv_string(m, arg[0], "the format");
    if (given.s->n > 255) ct__jinja_fail(m, "strftime_now: the format is too long");
    memcpy(format, given.s->s, given.s->n);
    time_t now = (time_t)m->limits.now;
    struct tm parts;
    if (!localtime_r(&now, &parts)) ct__jinja_fail(m, "strftime_now: the clock is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // that of strftime reads nothing but the date
    size_t n = strftime(text, sizeof text, format, &parts);
#pragma GCC diagnostic pop
    return ct__jv_copy(m, text, n);
}

const ct_jv_function ct__jv_globals[] = {
    {"cycler", NULL, 0, cycler},
    {"dict", NULL, 0, dict},
    {"joiner", "sep", 0, joiner},
    {"namespace", NULL, 0, namespace},
    {"raise_exception", "message", 1, raise_exception},
    {"range", "start stop step", 1, range},
    {"strftime_now", "format", 1, strftime_now},
    {0},
};
