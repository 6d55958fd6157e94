#include "backend/cpu/toolchain.h"

#include <pthread.h>
#include <string.h>

#include "backend/cpu/prelude.h"
#include "base/mem.h"

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ct_toolchain *interned;

bool ct__toolchain_find(ct_toolchain *t, ct_err *err) {
    if (!ct__cc_find(&t->cc, err) || !ct__cache_open(&t->cache, err)) return false;
    if (!t->cc.identified) ct__cache_disable(&t->cache); // its keys might be another machine's
    t->key = ct__hash_bytes(ct__cpu_prelude, strlen(ct__cpu_prelude), t->cc.id);
    return true;
}

static bool toolchain_same_environment(char *const *a, char *const *b) {
    while (*a && *b && strcmp(*a, *b) == 0) a++, b++;
    return !*a && !*b;
}

static bool toolchain_is_same(const ct_toolchain *a, const ct_toolchain *b) {
    return ct__hash_equal(a->key, b->key) && strcmp(a->cache.folder, b->cache.folder) == 0 &&
           strcmp(a->cache.temporary, b->cache.temporary) == 0 &&
           toolchain_same_environment(a->cc.environment, b->cc.environment);
}

// Copies the array and its strings into one block.
static char **toolchain_copy_environment(char *const *from) {
    size_t n = 0, bytes = 0;
    for (; from[n]; n++) bytes += strlen(from[n]) + 1;
    char **copy = ct__malloc((n + 1) * sizeof(char *) + bytes);
    if (!copy) return NULL;
    char *text = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(from[i]) + 1;
        copy[i] = memcpy(text, from[i], length);
        text += length;
    }
    copy[n] = NULL;
    return copy;
}

static ct_toolchain *toolchain_add(const ct_toolchain *t) {
    ct_toolchain *copy = ct__malloc(sizeof *copy);
    char **environment = copy ? toolchain_copy_environment(t->cc.environment) : NULL;
    if (!environment) {
        ct__free(copy);
        return NULL;
    }
    *copy = *t;
    copy->cc.environment = environment;
    copy->next = interned;
    return interned = copy;
}

const ct_toolchain *ct__toolchain_intern(const ct_toolchain *t, ct_err *err) {
    pthread_mutex_lock(&lock);
    ct_toolchain *found = interned;
    while (found && !toolchain_is_same(found, t)) found = found->next;
    if (!found) found = toolchain_add(t);
    pthread_mutex_unlock(&lock);
    if (!found) ct__err_memory(err, CT_NOWHERE, "cpu", sizeof *found);
    return found;
}

void ct__toolchains_end(void) {
    while (interned) {
        ct_toolchain *t = interned;
        interned = t->next;
        ct__free((void *)t->cc.environment);
        ct__free(t);
    }
}
