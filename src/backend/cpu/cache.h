// Compiled kernels on disk: a folder of shared objects that only its owner can write, each closed
// by a trailer that tells a whole file from a damaged one. Everything here may be called by several
// threads at once, each with its own ct_cache; only ct__cache_open and ct__cache_check read the
// environment.
#ifndef COTAN_BACKEND_CPU_CACHE_H
#define COTAN_BACKEND_CPU_CACHE_H

#include "base/error.h"
#include "base/text.h"

typedef struct ct_cache {
    char folder[3072];         // "": none is usable
    char why[400];             // none is, in words
    bool forbidden;            // by design: nothing of the environment's would give one
    char temporary[3072];      // $TMPDIR where it is an absolute path; "": it is not
    struct ct_lockfile *locks; // the open file that carries the locks; NULL: none yet
} ct_cache;

// $COTAN_CACHE_DIR, else $XDG_CACHE_HOME/cotan, else ~/.cache/cotan: made if absent (0700; but no
// HOME is made, and without one there is no cache), and used only if it belongs to this user and
// nobody else may write there; where this user may not write either, what lies there is read. A
// setuid program has none. A relative COTAN_CACHE_DIR is an error; the others are ignored then, as
// their standards ask for.
bool ct__cache_open(ct_cache *cache, ct_err *err);
bool ct__cache_check(ct_err *err); // that error alone, before there is anything to build

// No cache at all: nothing is found in it, and nothing kept.
void ct__cache_disable(ct_cache *cache);

// A new private folder to compile in, with room for this many bytes: inside the cache, else in
// $TMPDIR or /tmp. NULL, or why there is none.
const char *ct__cache_make_work_folder(const ct_cache *cache, uint64_t room, char folder[4096]);
void ct__cache_remove_work_folder(const char *folder); // removes it with what is in it

// Are these the bytes of a sealed file, none missing and none changed?
bool ct__cache_is_intact(const void *bytes, size_t n);
// Closes a finished shared object with its trailer.
bool ct__cache_seal(const char *path, ct_err *err);
// Enters a sealed file under a key, in the place of what is there; a failure only means that it
// will be compiled again.
void ct__cache_add(const ct_cache *cache, const char *path, ct_hash key);

// Enters bytes under a key that are no library; and gives those of an entry, to be freed with ct__free. NULL:
// absent, damaged or not to be read now.
void ct__cache_store(const ct_cache *cache, ct_hash key, const void *bytes, size_t n);
char *ct__cache_fetch(const ct_cache *cache, ct_hash key, size_t *n);

// Removes the entry of a key, so that another can be entered.
void ct__cache_drop(const ct_cache *cache, ct_hash key);

// Locks on keys, among processes: whoever misses an entry locks its key, looks again, and makes it.
// false: another process has the lock; nothing waits. A lock ends with ct__cache_unlock, or with
// the process, however that ends. Where there can be none (no cache, or a read-only one) a lock is
// always had. Threads of one process do not exclude each other this way: code.h does.
bool ct__cache_lock(ct_cache *cache, ct_hash key);
void ct__cache_unlock(const ct_cache *cache, ct_hash key);
void ct__cache_close(ct_cache *cache); // when no lock is held through it

// Removes the folders that processes killed while they compiled left more than a day ago, and the
// entries that were not used for longest until the others take three quarters of `limit` bytes;
// none where all take less than it. Of what else lies in the folder it neither counts nor removes
// anything.
enum { CT_CACHE_LIMIT = 1 << 30 };
void ct__cache_trim(const ct_cache *cache, uint64_t limit);

// Opens the entry of a key, or the sealed file at `path`, and gives its dlopen handle; NULL:
// absent, or damaged (then, and only then, it is removed), or not to be read or loaded now, or
// nowhere allowed to run, with the reason in `why` if it is not NULL. A library that its folder
// does not let run (mounted noexec) is opened from memory, else from a private folder in $TMPDIR or
// /tmp. Handles stay open as long as the process runs.
enum { CT_CACHE_WHY = 200 };
void *ct__cache_load(const ct_cache *cache, ct_hash key);
void *ct__cache_load_file(const ct_cache *cache, const char *path, char why[CT_CACHE_WHY]);
void ct__cache_unload(void); // closes them all

#endif
