#define _GNU_SOURCE
#include "base/fp_env.h"

#include <pthread.h>

static locale_t c_locale; // never freed; 0: there was no memory for it
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void env_make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

ct_saved_env ct__default_env_begin(void) {
    ct_saved_env saved;
    pthread_once(&once, env_make_c_locale);
    fegetenv(&saved.modes);
    fesetenv(FE_DFL_ENV);
    saved.locale = uselocale(c_locale);
    return saved;
}

void ct__default_env_end(const ct_saved_env *saved) {
    uselocale(saved->locale);
    fesetenv(&saved->modes);
}
