#include "graph/live.h"

#include <pthread.h>
#include <string.h>

enum { ROOM = 6 }; // sizes of most tensors

typedef struct live {
    ct_storage storage; // first
    struct live *next, **at;
    atomic_bool known; // `note` is all there
    ct_alloc_info note;
    void *apart; // sizes and name, where they are many or there is one
    int64_t dim[ROOM];
} live;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the list
static live *first;

ct_storage *ct__registry_add(ct_storage what) {
    live *l = ct__malloc(sizeof *l);
    if (!l) return NULL;
    *l = (live){.storage = what};
    pthread_mutex_lock(&lock);
    l->next = first;
    l->at = &first;
    if (first) first->at = &l->next;
    first = l;
    pthread_mutex_unlock(&lock);
    return &l->storage;
}

void ct__registry_remove(ct_storage *storage) {
    live *l = (live *)storage;
    pthread_mutex_lock(&lock);
    *l->at = l->next;
    if (l->next) l->next->at = l->at;
    pthread_mutex_unlock(&lock);
    ct__free(l->apart);
    ct__free(l);
}

void ct__registry_describe(ct_storage *storage, ct_alloc_info what) {
    live *l = (live *)storage;
    const size_t sizes = what.type.rank * sizeof *l->dim;
    int64_t *dim = l->dim;
    l->note = what;
    if (what.type.rank > ROOM || what.name) {
        const size_t letters = what.name ? strlen(what.name) + 1 : 0;
        dim = l->apart = ct__malloc(sizes + letters);
        if (!dim) return;
        if (letters) l->note.name = memcpy((char *)dim + sizes, what.name, letters);
    }
    if (!what.name) l->note.name = "";
    if (sizes) memcpy(dim, what.type.dim, sizes);
    l->note.type.dim = dim;
    l->note.type.mark = NULL;
    atomic_store_explicit(&l->known, true, memory_order_release);
}

bool ct__registry_each(ct_registry_fn visit, void *user) {
    bool ok = true;
    pthread_mutex_lock(&lock);
    for (const live *l = first; l && ok; l = l->next) {
        const bool known = atomic_load_explicit(&l->known, memory_order_acquire);
        ok = visit(&l->storage, known ? &l->note : NULL, user);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}
