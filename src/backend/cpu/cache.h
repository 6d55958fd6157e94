// Compiled kernels on disk: a folder of shared objects that only its owner can write, each closed
// by a trailer that tells a whole file from a damaged one.
#ifndef COTAN_BACKEND_CPU_CACHE_H
#define COTAN_BACKEND_CPU_CACHE_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cache {
    char folder[3072]; // "": none is usable
} ct_cache;

// $COTAN_CACHE_DIR, else $XDG_CACHE_HOME/cotan, else ~/.cache/cotan: made if absent (0700), and
// used only if it belongs to this user and nobody else may write there. A setuid program has none.
void ct__cache_open(ct_cache *cache);

// A new private folder to compile in: inside the cache, or in $TMPDIR or /tmp without one.
bool ct__cache_work(const ct_cache *cache, char folder[4096], ct_err *err);
void ct__cache_work_end(const char *folder); // removes it with what is in it

// Closes a finished shared object with its trailer.
bool ct__cache_seal(const char *path, ct_err *err);
// Enters a sealed file under a key; a failure only means that it will be compiled again.
void ct__cache_enter(const ct_cache *cache, const char *path, ct_hash key);

// Opens the entry of a key, or the sealed file at `path`, and gives its dlopen handle; NULL:
// absent, or damaged (then it is removed). Handles stay open as long as the process runs.
void *ct__cache_load(const ct_cache *cache, ct_hash key);
void *ct__cache_load_file(const char *path);

#endif
