// What tests of recording and running share: the reference device, counters, the log, small
// tensors.
#ifndef COTAN_TESTS_RECORD_H
#define COTAN_TESTS_RECORD_H

#include "cotan/cotan.h"

// cmocka set-up: a fresh context for this thread on device "ref", its log captured; and its end.
int record_begin(void **state);
int record_end(void **state);

extern char record_log[1 << 16]; // what was logged since record_begin, a line each
void record_forget(void);        // empties it

uint64_t plans_made(void);
uint64_t plans_run(void);

ct_tensor vec(int n, const double *values);                        // (n,) f32
ct_tensor line_of(int n);                                          // 1, 2 ... n as (n,) f32
ct_tensor set_var(ct_params *set, const char *name, double value); // a (2,) f32 variable, assigned
double at(ct_tensor t, int i);                                     // element i, which must be there
bool ends_with(const char *text, const char *end);

#define assert_ok() assert_string_equal(ct_error_text(), "")
// The whole error, and that the context goes on without it.
#define assert_error(code, text)                                                                   \
    do {                                                                                           \
        assert_string_equal(ct_error_text(), text);                                                \
        assert_int_equal(ct_error_code(), code);                                                   \
        ct_error_clear();                                                                          \
    } while (0)

#endif
