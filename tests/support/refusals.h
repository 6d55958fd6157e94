// Memory that runs out on demand: a host's allocator that refuses the n-th request, and what tests do
// with it for every n.
#ifndef COTAN_TESTS_REFUSALS_H
#define COTAN_TESTS_REFUSALS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cotan/cotan.h"

// Setup and teardown of a group: the library gets its memory here, kernels are interpreted (their bits
// are a compiled one's, and making them needs memory too), and at its end no block is left.
int refusals_begin(void **state);
int refusals_end(void **state);

void refuse_at(int n);          // the n-th allocation from now fails; < 0: none
int refuse_next(void);          // n of the last refuse_at, less what was allocated since
bool refuse_none(void);         // no more; true: one was refused
void refused_already(bool hit); // what refuse_none returns next
long long blocks_live(void);

extern int refusals, refusals_borne; // runs that failed, and those that got through in spite of it
extern const char *refusal_subject;  // what is being swept, and at which n, for messages
extern int refusal_at;

#define expect(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("%s, allocation %d: ", refusal_subject, refusal_at);                       \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

// A context of its own, or NULL: no memory for that.
ct_ctx *refusals_enter(const char *device, bool *ok);
void refusals_leave(ct_ctx *ctx);
// Either all went well, or the error says that there is no memory, in a sentence.
void expect_told(bool ok);
// Runs it with allocation n refused, for n of `from` in steps, as long as there is one. It gives
// back all it takes.
void sweep_some(const char *name, void (*program)(void *), void *user, int from, int step);
void sweep(const char *name, void (*program)(void *), void *user);
int one_in(int n); // n; 1 where COTAN_TEST_ALL is set

#endif
