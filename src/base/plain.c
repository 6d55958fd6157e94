#define _GNU_SOURCE
#include "base/plain.h"

#include <pthread.h>

static locale_t c_locale; // the C library's own, never freed; 0: it is out of memory
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

ct_plain ct__plain_begin(void) {
    ct_plain hosts;
    pthread_once(&once, make_locale);
    fegetenv(&hosts.modes);
    fesetenv(FE_DFL_ENV);
    hosts.locale = uselocale(c_locale);
    return hosts;
}

void ct__plain_end(const ct_plain *hosts) {
    uselocale(hosts->locale);
    fesetenv(&hosts->modes);
}
