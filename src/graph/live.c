#include "graph/live.h"

#include <pthread.h>
#include <string.h>

enum { INLINE_DIMS = 6 }; // enough for most tensors

typedef struct live_entry {
    ct_storage storage; // first
    struct live_entry *next, **prev_next;
    atomic_bool is_described; // `info` is complete
    ct_alloc_info info;
    void *heap; // sizes and name, if there are many sizes or a name
    int64_t dim[INLINE_DIMS];
} live_entry;

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER; // protects the list
static live_entry *live_list;

ct_storage *ct__registry_add(ct_storage what) {
    live_entry *entry = ct__malloc(sizeof *entry);
    if (!entry) return NULL;
    *entry = (live_entry){.storage = what};
    pthread_mutex_lock(&live_lock);
    entry->next = live_list;
    entry->prev_next = &live_list;
    if (live_list) live_list->prev_next = &entry->next;
    live_list = entry;
    pthread_mutex_unlock(&live_lock);
    return &entry->storage;
}

void ct__registry_remove(ct_storage *storage) {
    live_entry *entry = (live_entry *)storage;
    pthread_mutex_lock(&live_lock);
    *entry->prev_next = entry->next;
    if (entry->next) entry->next->prev_next = entry->prev_next;
    pthread_mutex_unlock(&live_lock);
    ct__free(entry->heap);
    ct__free(entry);
}

void ct__registry_describe(ct_storage *storage, ct_alloc_info what) {
    live_entry *entry = (live_entry *)storage;
    const size_t sizes = what.type.rank * sizeof *entry->dim;
    int64_t *dim = entry->dim;
    entry->info = what;
    if (what.type.rank > INLINE_DIMS || what.name) {
        const size_t letters = what.name ? strlen(what.name) + 1 : 0;
        dim = entry->heap = ct__malloc(sizes + letters);
        if (!dim) return;
        if (letters) entry->info.name = memcpy((char *)dim + sizes, what.name, letters);
    }
    if (!what.name) entry->info.name = "";
    if (sizes) memcpy(dim, what.type.dim, sizes);
    entry->info.type.dim = dim;
    entry->info.type.mark = NULL;
    atomic_store_explicit(&entry->is_described, true, memory_order_release);
}

bool ct__registry_each(ct_registry_fn visit, void *user) {
    bool ok = true;
    pthread_mutex_lock(&live_lock);
    for (const live_entry *entry = live_list; entry && ok; entry = entry->next) {
        const bool is_described = atomic_load_explicit(&entry->is_described, memory_order_acquire);
        ok = visit(&entry->storage, is_described ? &entry->info : NULL, user);
    }
    pthread_mutex_unlock(&live_lock);
    return ok;
}
