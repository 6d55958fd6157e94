// Templates when memory runs out, or the limits are small, and by several threads at once. What they
// mean is compared with jinja2 in test_chat.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "text/jinja.h"

static const ct_jinja_limits wide = {.steps = 1000000, .memory = 64 << 20, .output = 1 << 20};

static const char everything[] =
    "{% macro m(a, b='x' 'y') %}{{ a }}{{ b ~ a }}{% endmacro %}"
    "{% for x in list if x > 1 %}{{ m(x) }}{{ loop.index }}{% set y %}{{ x|tojson(indent=2) }}"
    "{% endset %}{{ y|upper }}{% else %}none{% endfor %}"
    "{{ list|sort|map('string')|join(', ') }}{{ {'a': [1, 2.5], 'b': 'é'}|tojson }}"
    "{{ '%s-%05.1f'|format('a', 2.25) }}{{ 'a b'.split() }}{{ list[::-1] }}";
static const char made[] =
    "3xy3132xy2221, 2, 3{\"a\": [1, 2.5], \"b\": \"é\"}a-002.2['a', 'b'][2, 1, 3]";

static json_t *some_variables(void) {
    json_t *v = json_pack("{s:[i,i,i]}", "list", 3, 1, 2);
    assert_non_null(v);
    return v;
}

static bool render(const char *template, const ct_jinja_limits *limits, ct_text *out, ct_err *err) {
    json_t *variables = some_variables();
    ct_jinja *jinja = ct__jinja_parse("t", template, strlen(template), err);
    bool ok = jinja && ct__jinja_render(jinja, variables, limits, out, err);
    ct__jinja_free(jinja);
    json_decref(variables);
    return ok;
}

static void allocations_may_fail(void **state) {
    (void)state;
    for (int failures = 0, done = 0; !done; failures++) {
        ct_err err = {0};
        ct_text out = {0};
        ct__fail_alloc_after(failures);
        done = render(everything, &wide, &out, &err);
        ct__fail_alloc_after(-1);
        assert_int_equal(err.code, done ? CT_OK : CT_E_MEMORY);
        if (done) assert_string_equal(out.s, made);
        ct__text_free(&out);
        assert_true(done || failures < 1000);
    }
}

static void limits_hold(void **state) {
    (void)state;
    static const struct {
        ct_jinja_limits limits;
        const char *template, *text;
    } cases[] = {
        {{1000, 64 << 20, 1000, 0},
         "{% for x in range(9999) %}{% endfor %}",
         "t: line 1: the template takes more than 1000 steps"},
        {{1000000, 3000000, 1000, 0},
         "\n{{ 'ab' * 5000000 }}",
         "t: line 2: the template takes more than 3 MB of memory"},
        {{1000000, 64 << 20, 2000000, 0},
         "{{ 'ab' * 1000001 }}",
         "t: line 1: the template writes more than 2 MB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_err err = {0};
        ct_text out = {0};
        assert_false(render(cases[i].template, &cases[i].limits, &out, &err));
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(err.code, CT_E_LIMIT);
        ct__text_free(&out);
    }
}

static void what_is_no_utf8_is_refused(void **state) {
    (void)state;
    ct_err err = {0};
    assert_null(ct__jinja_parse("t", "ab\xff", 3, &err));
    assert_string_equal(err.text, "t: the template is not UTF-8 at byte 2");
}

static void *render_often(void *user) {
    json_t *variables = some_variables();
    for (int i = 0; i < 200; i++) {
        ct_err err = {0};
        ct_text out = {0};
        if (!ct__jinja_render(user, variables, &wide, &out, &err) || strcmp(out.s, made) != 0)
            user = NULL;
        ct__text_free(&out);
        if (!user) break;
    }
    json_decref(variables);
    return user;
}

static void threads_share_a_template(void **state) {
    (void)state;
    ct_err err = {0};
    ct_jinja *jinja = ct__jinja_parse("t", everything, strlen(everything), &err);
    assert_non_null(jinja);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, jinja), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, jinja);
    }
    ct__jinja_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(what_is_no_utf8_is_refused),
        cmocka_unit_test(threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
