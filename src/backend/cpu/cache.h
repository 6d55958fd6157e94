// The on-disk cache of compiled kernels: a folder of shared objects that only its owner can write.
// Each file ends with a trailer that distinguishes an intact file from a damaged one. All functions
// may be called by several threads at once, each with its own ct_cache; only ct__cache_open and
// ct__cache_check read the environment.
#ifndef COTAN_BACKEND_CPU_CACHE_H
#define COTAN_BACKEND_CPU_CACHE_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cache {
    char folder[3072];         // "": there is no cache
    char why[400];             // if there is none: the reason
    bool forbidden;            // disabled on purpose: no environment variable would enable it
    char temporary[3072];      // $TMPDIR if it is an absolute path, else ""
    struct ct_lockfile *locks; // the open lock file; NULL: not opened yet
} ct_cache;

// Opens $COTAN_CACHE_DIR, else $XDG_CACHE_HOME/cotan, else ~/.cache/cotan. The folder is created if
// absent (mode 0700; but HOME itself is not created, and without HOME there is no cache). It is
// used only if it belongs to this user and nobody else may write there; if this user may not write
// there either, its entries are only read. A setuid program has no cache. A relative
// COTAN_CACHE_DIR is an error; other relative paths are ignored, as their standards require.
bool ct__cache_open(ct_cache *cache, ct_err *err);
bool ct__cache_check(ct_err *err); // that error alone, before anything is built

// Disables the cache: nothing is found in it and nothing is stored.
void ct__cache_disable(ct_cache *cache);

// Creates a private folder to compile in, with space for so many bytes: in the cache, else in
// $TMPDIR or /tmp. Returns NULL, or the reason why there is none.
const char *ct__cache_make_work_folder(const ct_cache *cache, uint64_t room, char folder[4096]);
void ct__cache_remove_work_folder(const char *folder); // with its contents

// True if these are the bytes of a sealed file, complete and unchanged.
bool ct__cache_is_intact(const void *bytes, size_t n);
// Appends the trailer to a finished shared object.
bool ct__cache_seal(const char *path, ct_err *err);
// Stores a sealed file under a key, replacing what is there; a failure only means that it will be
// compiled again.
void ct__cache_add(const ct_cache *cache, const char *path, ct_hash key);

// Store and fetch bytes that are no library. What ct__cache_fetch returns is freed with ct__free;
// NULL if the entry is absent, damaged or cannot be read now.
void ct__cache_store(const ct_cache *cache, ct_hash key, const void *bytes, size_t n);
char *ct__cache_fetch(const ct_cache *cache, ct_hash key, size_t *n);

// Removes the entry of a key, so that another can be added.
void ct__cache_drop(const ct_cache *cache, ct_hash key);

// Locks a key among processes: a process that misses an entry locks its key, reads the disk again,
// and makes the entry. Returns false at once if another process has the lock. A lock ends with
// ct__cache_unlock or with the process, however that ends. Where locks are impossible (no cache, or
// a read-only one) it returns true. Threads of one process do not exclude each other this way;
// code.h does that.
bool ct__cache_lock(ct_cache *cache, ct_hash key);
void ct__cache_unlock(const ct_cache *cache, ct_hash key);
void ct__cache_close(ct_cache *cache); // when no lock is held through it

// Removes work folders that killed processes left more than a day ago. If the entries take more
// than `limit` bytes, removes those unused for longest until the rest takes three quarters of it.
// Other files in the folder are neither counted nor removed.
enum { CT_CACHE_LIMIT = 1 << 30 };
void ct__cache_trim(const ct_cache *cache, uint64_t limit);

// Opens the entry of a key, or the sealed file at `path`, and returns its dlopen handle. Returns
// NULL if the file is absent, damaged (only then it is removed), cannot be read or loaded now, or
// may not run anywhere; the reason is in `why` if that is not NULL. A library in a folder that
// forbids execution (mounted noexec) is opened from memory, else from a private folder in $TMPDIR
// or /tmp. Handles stay open until ct__cache_unload.
enum { CT_CACHE_WHY = 200 };
void *ct__cache_load(const ct_cache *cache, ct_hash key);
void *ct__cache_load_file(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]);
void ct__cache_unload(void); // closes them all

#endif
