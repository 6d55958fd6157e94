#include "graph/allocation_registry.h"

#include <pthread.h>
#include <string.h>

enum { INLINE_DIMS = 6 }; // enough for most tensors

typedef struct registry_entry {
    ct_storage storage; // first
    struct registry_entry *next, **prev_next;
    atomic_bool is_described; // `info` is complete
    ct_alloc_info info;
    void *heap; // sizes and name, if there are many sizes or a name
    int64_t dim[INLINE_DIMS];
} registry_entry;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER; // protects the list
static registry_entry *registry_list;

ct_storage *ct__registry_add(ct_storage what) {
    registry_entry *entry = ct__malloc(sizeof *entry);
    if (!entry) return NULL;
    *entry = (registry_entry){.storage = what};
    pthread_mutex_lock(&registry_lock);
    entry->next = registry_list;
    entry->prev_next = &registry_list;
    if (registry_list) registry_list->prev_next = &entry->next;
    registry_list = entry;
    pthread_mutex_unlock(&registry_lock);
    return &entry->storage;
}

void ct__registry_remove(ct_storage *storage) {
    registry_entry *entry = (registry_entry *)storage;
    pthread_mutex_lock(&registry_lock);
    *entry->prev_next = entry->next;
    if (entry->next) entry->next->prev_next = entry->prev_next;
    pthread_mutex_unlock(&registry_lock);
    ct__free(entry->heap);
    ct__free(entry);
}

void ct__registry_describe(ct_storage *storage, ct_alloc_info what) {
    registry_entry *entry = (registry_entry *)storage;
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
    pthread_mutex_lock(&registry_lock);
    for (const registry_entry *entry = registry_list; entry && ok; entry = entry->next) {
        const bool is_described = atomic_load_explicit(&entry->is_described, memory_order_acquire);
        ok = visit(&entry->storage, is_described ? &entry->info : NULL, user);
    }
    pthread_mutex_unlock(&registry_lock);
    return ok;
}
