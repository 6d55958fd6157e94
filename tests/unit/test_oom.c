// Memory that runs out, at every single allocation of a small training program: no crash, no leak,
// an error each time, and the context works again afterwards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/record.h"

// Returns whether all went well. No assertion in here may jump out: the sweep goes on.
static bool program(void) {
    ct_ctx *ctx = ct_ctx_new();
    if (!ctx) return false;
    ct_ctx *mine = ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    bool ok = ct_set_device("ref");
    ct_params *set = ct_params_new();
    float values[] = {1, 2};
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2));
    ct_assign(w, ct_from(values, CT_F32, CT_DIMS(2)));
    for (int step = 0; step < 2; step++) {
        CT_SCOPE;
        ct_tensor x = ct_from(values, CT_F32, CT_DIMS(2)), g;
        ct_tensor h = ct_exp(ct_mul(w, x));
        ct_tensor loss = ct_sum(ct_mul(h, ct_softmax(h)));
        ct_grad(loss, &w, 1, &g);
        ct_assign(w, ct_sub(w, ct_mul(ct_f(0.1), g)));
        ct_metric("loss", loss);
        ct_tensor kept = ct_keep(ct_max(h));
        {
            CT_SCOPE;
            ct_topk_out top = ct_topk(h, 1);
            ok = ct_data(top.indices) && ok;
        }
        ct_drop(kept);
    }
    ok = ct_data(w) && ok;
    ok = ct_metric_value("loss") > 0 && ok;
    if (!ok || ct_failed()) {
        ok = false;
        const char *text = ct_error_text();
        if (!strstr(text, "memory") &&
            set) { // a set that could not be made is NULL, and says no more
            print_message("failed without a word of memory: \"%s\"\n", text);
            ct_params_free(set);
            ct_ctx_free(ctx);
            ct_ctx_use(mine);
            fail();
        }
    }
    // What failed is told, and the same context works when there is memory again.
    ct__fail_alloc_after(-1);
    ct_error_clear();
    {
        CT_SCOPE;
        bool again =
            ct_set_device("ref") && ct_item(ct_sum(ct_from(values, CT_F32, CT_DIMS(2)))) == 3;
        if (!again) fail_msg("afterwards: %s", ct_error_text());
    }
    ct_params_free(set);
    ct_ctx_free(ctx);
    ct_ctx_use(mine);
    return ok;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    assert_true(program()); // with memory it works
    // Some failures are borne (a list that cannot grow keeps a slot out of use), so the sweep is
    // over when none has mattered for long.
    int failed = 0, borne = 0, n = 0;
    for (int calm = 0; calm < 300; n++) {
        ct__fail_alloc_after(n);
        bool ok = program();
        ct__fail_alloc_after(-1);
        failed += !ok;
        if (!ok) borne += calm, calm = 0;
        calm += ok;
    }
    print_message("%d allocations failed, one at a time; %d were borne\n", failed, borne);
    assert_true(failed > 200);
}

static int checked(void **state) { return (void)state, setenv("COTAN_CHECK", "ref,nan", 1); }
static int unchecked(void **state) { return (void)state, unsetenv("COTAN_CHECK"); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, checked, unchecked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
