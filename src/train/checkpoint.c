// Everything hangs on one rename: a folder that is filled under a temporary name and forced to disk
// gets its own. Whatever a process was doing when it died, the folders named step-N are whole.
#define _GNU_SOURCE
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "graph/graph.h"

// In the order in which they get their names in the run's folder: where a process dies between two,
// the state there is newer than the model, never older.
static const char *const names[] = {"state.safetensors", "model.safetensors", "config.json"};
enum { NAMES = sizeof names / sizeof *names };

__attribute__((format(printf, 3, 4))) static bool make_path(char path[CT_RUN_PATH], ct_err *err,
                                                            const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(path, CT_RUN_PATH, format, args);
    va_end(args);
    return (n > 0 && n < CT_RUN_PATH) ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, "train", "the path of the folder is too long");
}

// ------------------------------------------------------------------------------------ the folder

bool ct__run_make_free(char dir[CT_RUN_PATH], ct_err *err) {
    enum { MOST = 10000 };
    strcpy(dir, "run");
    for (int i = 2; mkdir(dir, 0777) != 0; i++) {
        if (errno != EEXIST || i > MOST) return ct__err_system(err, dir, "create the folder");
        snprintf(dir, CT_RUN_PATH, "run-%d", i);
    }
    return ct__sync_folder(".", err);
}

bool ct__run_is_folder(const char *dir, ct_err *err) {
    struct stat st;
    const char *slash = strrchr(dir, '/');
    int n = slash && slash != dir ? (int)(slash - dir) : 1;
    if (stat(dir, &st) != 0 || S_ISDIR(st.st_mode)) return true;
    ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "a file, not the folder of a model or a run");
    for (int i = 0; i < NAMES; i++)
        if (strcmp(slash ? slash + 1 : dir, names[i]) == 0)
            ct__err_hint(err, "give the folder that it is in, %.*s", n, slash ? dir : ".");
    return false;
}

// True also where the file system has no locks.
static bool is_locked(int lock) {
    return flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// A process that was killed holds its locks until its memory is freed, which takes a while.
static bool wait_for_lock(int lock, const char *dir) {
    enum { SECONDS = 5, LOOK_AGAIN_MS = 50 };
    const double end = ct__now() + SECONDS;
    ct_text text = {0};
    ct__textf(&text,
              "another process is training in %s; this one waits up to %d seconds for it to end",
              dir, SECONDS);
    if (!text.failed) ct__log(ct__ctx(), CT_LOG_WARNING, text.s);
    ct__text_free(&text);
    while (ct__now() < end) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000L}, NULL);
        if (is_locked(lock)) return true;
    }
    return false;
}

bool ct__run_lock(const char *dir, int *lock, ct_err *err) {
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return ct__err_system(err, dir, "open");
    if (is_locked(*lock) || wait_for_lock(*lock, dir)) return true;
    ct__run_unlock(*lock);
    *lock = -1;
    return ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "another process is training in this folder");
}

void ct__run_unlock(int lock) {
    if (lock >= 0) close(lock);
}

// The files of a checkpoint.
static const char *const save_files[] = {"state.safetensors", "model.safetensors", "config.json",
                                         CT_SAVED_BEST_MODEL, CT_SAVED_BEST_CONFIG};
enum { SAVE_FILES = sizeof save_files / sizeof *save_files };
static const char *const beside_model[CT_RUN_BESIDE_N] = {CT_RUN_BESIDE};

// "state.safetensors.1234-5.tmp": what a write that did not end leaves, and a further name that did
// not get into its place.
static bool is_leftover(const char *name) {
    for (int i = 0; i < SAVE_FILES; i++)
        if (ct__atomic_is_leftover(name, save_files[i])) return true;
    for (int i = 0; i < CT_RUN_BESIDE_N; i++)
        if (ct__atomic_is_leftover(name, beside_model[i])) return true;
    return ct__atomic_is_leftover(name, "loss.svg") || ct__atomic_is_leftover(name, CT_RUN_TOKENS);
}

static bool is_saved(const char *name) {
    for (int i = 0; i < SAVE_FILES; i++)
        if (strcmp(name, save_files[i]) == 0) return true;
    return is_leftover(name);
}

// Calls `visit` for each entry of a folder; one that is not there has none.
static bool each_entry(const char *folder, bool (*visit)(const char *name, void *user), void *user,
                       ct_err *err) {
    DIR *dir = opendir(folder);
    bool ok = true;
    if (!dir) return errno == ENOENT || ct__err_system(err, folder, "read the folder");
    for (struct dirent *e; ok && (e = readdir(dir));) ok = visit(e->d_name, user);
    closedir(dir);
    return ok;
}

// A checkpoint that was saved again may have leftovers, too.
static void tidy_save(int folder, const char *name, void *user) {
    int64_t step;
    (void)user;
    if (ct__names_unfinished_save(name))
        ct__remove_folder(folder, name, is_saved);
    else if (ct__names_save(name, &step))
        ct__remove_files(folder, name, is_leftover);
}

static void abandon_next(int dir);

void ct__run_tidy(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    ct__remove_files(fd, ".", is_leftover);
    ct__remove_files(fd, CT_RUN_BEST, is_leftover);
    abandon_next(fd);
    (void)ct__each_inside(fd, CT_RUN_SAVES, tidy_save, NULL);
    close(fd);
}

// ----------------------------------------------------------------------------------- what is there

typedef struct list {
    int64_t *steps;
    size_t n, cap;
    ct_err *err;
} list;

static bool list_one(const char *name, void *user) {
    list *l = user;
    int64_t step;
    if (!ct__names_save(name, &step)) return true;
    if (!CT_GROW(l->steps, l->cap, l->n + 1))
        return ct__err_memory(l->err, CT_NOWHERE, "train", l->cap * 2 * sizeof step);
    l->steps[l->n++] = step;
    return true;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

// Of the folder that a run has, or would make, under this name.
static bool folder_path(const char *dir, const char *name, char path[CT_RUN_PATH], ct_err *err) {
    if (!make_path(path, err, "%s/%s", dir, name)) return false;
    if (ct__could_be_folder(path, err)) return true;
    ct__err_hint(err, "move it away: a run has a folder of this name");
    return false;
}

typedef struct apart {
    const char *best, *saves;
    ct_err *err;
} apart;

static bool are_apart(const char *best, const char *other, ct_err *err) {
    if (!ct__is_same_file(best, other)) return true;
    ct__err(err, CT_E_FILE, CT_NOWHERE, best,
            "the same folder as %s, where the run keeps other weights", other);
    ct__err_hint(err, "remove the link: a run has a folder of this name");
    return false;
}

static bool is_apart_from_save(const char *name, void *user) {
    const apart *a = user;
    char path[CT_RUN_PATH];
    int64_t step;
    return (!ct__names_save(name, &step) && !ct__names_unfinished_save(name)) ||
           (make_path(path, a->err, "%s/%s", a->saves, name) && are_apart(a->best, path, a->err));
}

// A link may lead to a folder that the run itself fills: weights of two steps would have one name.
bool ct__run_could_keep_best(const char *dir, ct_err *err) {
    char best[CT_RUN_PATH], saves[CT_RUN_PATH];
    return folder_path(dir, CT_RUN_BEST, best, err) && are_apart(best, dir, err) &&
           make_path(saves, err, "%s/" CT_RUN_SAVES, dir) &&
           each_entry(saves, is_apart_from_save, &(apart){best, saves, err}, err);
}

bool ct__checkpoint_list(const char *dir, int64_t **steps, size_t *n, ct_err *err) {
    char folder[CT_RUN_PATH];
    *steps = NULL;
    *n = 0;
    return folder_path(dir, CT_RUN_SAVES, folder, err) &&
           ct__checkpoint_list_in(folder, steps, n, err);
}

bool ct__checkpoint_list_in(const char *folder, int64_t **steps, size_t *n, ct_err *err) {
    list l = {.err = err};
    bool ok = each_entry(folder, list_one, &l, err);
    if (!ok) {
        ct__free(l.steps);
        l = (list){0};
    }
    if (l.n) qsort(l.steps, l.n, sizeof *l.steps, newest_first);
    *steps = l.steps;
    *n = l.n;
    return ok;
}

bool ct__checkpoint_path(const char *dir, int64_t step, const char *name, char path[CT_RUN_PATH],
                         ct_err *err) {
    return make_path(path, err, "%s/" CT_RUN_SAVES "/step-%" PRId64 "%s%s", dir, step,
                     name ? "/" : "", name ? name : "");
}

// --------------------------------------------------------------------------------- another run

// The model first: where a process dies between the two, the configuration beside it is an older
// one, of the same sizes.
static const struct {
    const char *saved, *run;
} best_files[] = {{CT_SAVED_BEST_MODEL, CT_RUN_BEST "/model.safetensors"},
                  {CT_SAVED_BEST_CONFIG, CT_RUN_BEST "/config.json"}};

static bool remove_best(const char *dir, ct_err *err) {
    char path[CT_RUN_PATH];
    for (int i = 0; i < CT_RUN_BESIDE_N; i++) {
        if (!make_path(path, err, "%s/" CT_RUN_BEST "/%s", dir, beside_model[i])) return false;
        (void)unlink(path); // of the model that goes
    }
    for (int i = 0; i < 2; i++) {
        if (!make_path(path, err, "%s/%s", dir, best_files[i].run)) return false;
        if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
            return ct__err_system(err, path, "remove");
    }
    if (!make_path(path, err, "%s/" CT_RUN_BEST, dir)) return false;
    (void)rmdir(path); // where nobody put anything else there
    return true;
}

// A line of metrics a step; -1: there are none.
static int64_t steps_told(const char *path) {
    ct_err ignored = {0};
    size_t size;
    int fd = ct__file_open(path, &size, &ignored); // who waits for a pipe waits for ever
    char piece[4096];
    int64_t lines = 0;
    if (fd < 0) return -1;
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
        for (const char *at = piece; (at = memchr(at, '\n', (size_t)(n - (at - piece)))); at++)
            lines++;
    close(fd);
    return lines;
}

// "events.out.tfevents.1763683200.host.1234.0": time, host, process and number, as a run names its
// file.
static bool is_events(const char *name) {
    static const char begin[] = "events.out.tfevents.", digits[] = "0123456789";
    if (strncmp(name, begin, sizeof begin - 1) != 0) return false;
    const char *at = name + sizeof begin - 1, *end = at + strlen(at);
    if (strspn(at, digits) != 10 || at[10] != '.') return false;
    for (int numbers = 0; numbers < 2; numbers++) {
        const char *last = end;
        while (last > at && strchr(digits, last[-1])) last--;
        if (last == end || last[-1] != '.') return false;
        end = last - 1;
    }
    return end > at + 10;
}

typedef struct events {
    const char *folder;
    int n;
    char name[256]; // of one of them
    ct_err *err;
} events;

// `path`: the file's, where it is one of events; else it is empty.
static bool events_path(const events *e, const char *name, char path[CT_RUN_PATH]) {
    struct stat st;
    *path = '\0';
    if (!is_events(name)) return true;
    if (!make_path(path, e->err, "%s/%s", e->folder, name)) return false;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) *path = '\0';
    return true;
}

static bool remove_events(const char *name, void *user) {
    const events *e = user;
    char path[CT_RUN_PATH];
    if (!events_path(e, name, path)) return false;
    return !*path || unlink(path) == 0 || ct__err_system(e->err, path, "remove");
}

static bool count_events(const char *name, void *user) {
    events *e = user;
    char path[CT_RUN_PATH];
    if (!events_path(e, name, path)) return false;
    if (*path && e->n++ == 0) snprintf(e->name, sizeof e->name, "%s", name);
    return true;
}

// Another program's have such names, too: they are named where something else is, since they would
// go with it. Alone they are no loss: a run's are a further file beside them.
static bool add_events(const char *dir, ct_text *there, ct_err *err) {
    events e = {.folder = dir, .err = err};
    if (!there->n) return true;
    if (!each_entry(dir, count_events, &e, err)) return false;
    if (e.n == 1) ct__textf(there, ", %s", e.name);
    if (e.n > 1) ct__textf(there, ", %d files events.out.tfevents.*", e.n);
    return true;
}

// What a run writes under names of its own, besides the checkpoints and the events.
static const char *const written[] = {"model.safetensors",
                                      "state.safetensors",
                                      "config.json",
                                      "metrics.jsonl",
                                      "loss.svg",
                                      CT_RUN_BEST "/model.safetensors",
                                      CT_RUN_BEST "/config.json",
                                      CT_RUN_BESIDE,
                                      CT_RUN_TOKENS};
enum { WRITTEN = sizeof written / sizeof *written };

// A process that failed in its first step leaves metrics of no line: an empty file is no loss.
static bool would_be_lost(const char *path, bool *lost, ct_err *err) {
    struct stat st;
    *lost = lstat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > 0);
    return !*lost || !S_ISDIR(st.st_mode) ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, path, "a folder, where a run writes a file");
}

bool ct__run_there(const char *dir, ct_run_there *there, ct_err *err) {
    char path[CT_RUN_PATH];
    int64_t *saves;
    size_t n;
    *there = (ct_run_there){0};
    for (int i = 0; i < WRITTEN; i++) {
        bool lost;
        if (!make_path(path, err, "%s/%s", dir, written[i]) || !would_be_lost(path, &lost, err))
            return false;
        if (lost) ct__textf(&there->names, "%s%s", there->names.n ? ", " : "", written[i]);
    }
    if (!make_path(path, err, "%s/metrics.jsonl", dir) ||
        !ct__checkpoint_list(dir, &saves, &n, err))
        return false;
    if (n) ct__textf(&there->names, "%s" CT_RUN_SAVES, there->names.n ? ", " : "");
    if (!add_events(dir, &there->names, err)) {
        ct__free(saves);
        return false;
    }
    there->saved = n > 0;
    there->steps = steps_told(path);
    if (there->steps < 0) there->steps = n ? saves[0] : 0;
    ct__free(saves);
    return !there->names.failed || ct__err_memory(err, CT_NOWHERE, "train", CT_RUN_PATH);
}

// What lies on another disk or mount, such as a folder behind a link, cannot be reached by renaming.
static bool is_beside(const char *dir, const char *name, ct_err *err) {
    char path[CT_RUN_PATH];
    if (!make_path(path, err, "%s/%s", dir, name)) return false;
    if (ct__could_rename_between(dir, path)) return true;
    ct__err(err, CT_E_USAGE, CT_NOWHERE, "train",
            "what is in %s cannot be replaced: %s is on another disk or mount", dir, path);
    ct__err_hint(err, "another --out leaves it; where all is on one, it can be replaced");
    return false;
}

bool ct__run_could_replace(const char *dir, ct_err *err) {
    return is_beside(dir, CT_RUN_SAVES, err) && is_beside(dir, CT_RUN_BEST, err);
}

static bool remove_run(const char *dir, ct_err *err) {
    char path[CT_RUN_PATH];
    if (!ct__checkpoint_forget_after(dir, -1, err) ||
        !each_entry(dir, remove_events, &(events){.folder = dir, .err = err}, err))
        return false;
    for (int i = 0; i < WRITTEN; i++) {
        if (!make_path(path, err, "%s/%s", dir, written[i])) return false;
        if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
            return ct__err_system(err, path, "remove");
    }
    return remove_best(dir, err) && ct__sync_folder(dir, err);
}

// The new run until its first save is whole, and from then on.
#define FILLED ".cotan-next.tmp"
#define WHOLE ".cotan-next"

static bool is_beside_model(const char *name) {
    for (int i = 0; i < CT_RUN_BESIDE_N; i++)
        if (strcmp(name, beside_model[i]) == 0) return true;
    return false;
}

// What a run's folder of best weights has.
static bool is_best(const char *name) { return is_saved(name) || is_beside_model(name); }

static bool is_told(const char *name) {
    return is_beside_model(name) || strcmp(name, CT_RUN_TOKENS) == 0 ||
           strcmp(name, "metrics.jsonl") == 0 || strcmp(name, "loss.svg") == 0 ||
           is_leftover(name) || is_events(name);
}

static void remove_save(int folder, const char *name, void *user) {
    int64_t step;
    (void)user;
    if (ct__names_unfinished_save(name) || ct__names_save(name, &step))
        ct__remove_folder(folder, name, is_saved);
}

static void abandon_next(int dir) {
    int fd = openat(dir, FILLED, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    (void)ct__each_inside(fd, CT_RUN_SAVES, remove_save, NULL);
    ct__remove_folder(fd, CT_RUN_SAVES, is_saved);
    ct__remove_folder(fd, CT_RUN_BEST, is_best);
    close(fd);
    ct__remove_folder(dir, FILLED, is_told);
}

void ct__run_abandon_next(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    abandon_next(fd);
    close(fd);
}

bool ct__run_next(const char *dir, char next[CT_RUN_PATH], ct_err *err) {
    ct__run_abandon_next(dir);
    return make_path(next, err, "%s/" FILLED, dir) && ct__make_dirs(next, 0777, err);
}

typedef struct moving {
    const char *from, *to;
    ct_err *err;
} moving;

static bool move_up(const char *name, void *user) {
    const moving *m = user;
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    struct stat st;
    if (!make_path(from, m->err, "%s/%s", m->from, name) ||
        !make_path(to, m->err, "%s/%s", m->to, name))
        return false;
    if (lstat(from, &st) != 0 || !S_ISREG(st.st_mode)) return true;
    return rename(from, to) == 0 || ct__err_system(m->err, from, "rename into place");
}

// The folder's files, and the folder, if it is there.
static bool move_all(const char *from, const char *to, ct_err *err) {
    if (access(from, F_OK) != 0) return true;
    if (!ct__make_dirs(to, 0777, err) ||
        !each_entry(from, move_up, &(moving){from, to, err}, err) || !ct__sync_folder(to, err))
        return false;
    (void)rmdir(from);
    return true;
}

// Its checkpoint moves first. While it has not, what is in `dir` is the other run's, and goes; from
// then on it is its own.
static bool move_checkpoint(const char *dir, const char *next, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    int64_t *steps;
    size_t n;
    if (!ct__checkpoint_list(next, &steps, &n, err)) return false;
    int64_t step = n ? steps[0] : 0;
    ct__free(steps);
    if (n && !(ct__run_could_replace(dir, err) && remove_run(dir, err) &&
               make_path(to, err, "%s/" CT_RUN_SAVES, dir) && ct__make_dirs(to, 0777, err) &&
               ct__checkpoint_path(next, step, NULL, from, err) &&
               ct__checkpoint_path(dir, step, NULL, to, err) &&
               (rename(from, to) == 0 || ct__err_system(err, from, "rename into place"))))
        return false;
    if (!make_path(to, err, "%s/" CT_RUN_SAVES, dir) ||
        !make_path(from, err, "%s/" CT_RUN_SAVES, next) || (n && !ct__sync_folder(to, err)))
        return false;
    (void)rmdir(from);
    return true;
}

bool ct__run_settle(const char *dir, ct_err *err) {
    char next[CT_RUN_PATH], from[CT_RUN_PATH], to[CT_RUN_PATH];
    if (!make_path(next, err, "%s/" WHOLE, dir)) return false;
    if (access(next, F_OK) != 0) return true;
    return move_checkpoint(dir, next, err) && make_path(from, err, "%s/" CT_RUN_BEST, next) &&
           make_path(to, err, "%s/" CT_RUN_BEST, dir) && move_all(from, to, err) &&
           move_all(next, dir, err);
}

bool ct__run_replace(const char *dir, ct_err *err) {
    char filled[CT_RUN_PATH], whole[CT_RUN_PATH];
    if (!make_path(filled, err, "%s/" FILLED, dir) || !make_path(whole, err, "%s/" WHOLE, dir) ||
        !ct__sync_folder(filled, err))
        return false;
    return (rename(filled, whole) == 0 || ct__err_system(err, filled, "rename into place")) &&
           ct__sync_folder(dir, err) && ct__run_settle(dir, err);
}

// ---------------------------------------------------------------------------------------- a save

static bool unfinished_path(const char *dir, int64_t step, char path[CT_RUN_PATH], ct_err *err) {
    return make_path(path, err, "%s/" CT_RUN_SAVES "/step-%" PRId64 CT_SAVE_UNFINISHED, dir, step);
}

bool ct__checkpoint_begin(const char *dir, int64_t step, char folder[CT_RUN_PATH], ct_err *err) {
    char above[CT_RUN_PATH];
    struct stat st;
    if (!make_path(above, err, "%s/" CT_RUN_SAVES, dir) || !unfinished_path(dir, step, folder, err))
        return false;
    if (!ct__make_dirs(above, 0777, err)) return false;
    // A save would go through a link, to where it leads.
    if (lstat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                "it is in the way of a save, which makes a folder");
        ct__err_hint(err, "move it away");
        return false;
    }
    // What a process left that died is tidied by the next one, but not behind a link `checkpoints`.
    ct__remove_files(AT_FDCWD, folder, is_saved);
    return ct__make_dirs(folder, 0777, err);
}

void ct__checkpoint_abandon(const char *dir, int64_t step) {
    char folder[CT_RUN_PATH];
    ct_err ignored = {0};
    if (unfinished_path(dir, step, folder, &ignored)) ct__remove_folder(AT_FDCWD, folder, is_saved);
}

bool ct__checkpoint_commit(const char *dir, int64_t step, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH], above[CT_RUN_PATH];
    if (!unfinished_path(dir, step, from, err) || !ct__checkpoint_path(dir, step, NULL, to, err) ||
        !make_path(above, err, "%s/" CT_RUN_SAVES, dir))
        return false;
    // The files in it were forced to disk one by one, and their names with each of them.
    return (rename(from, to) == 0 || ct__err_system(err, from, "rename into place")) &&
           ct__sync_folder(above, err);
}

static bool copy_file(const char *from, const char *to, ct_err *err) {
    const void *bytes;
    size_t n;
    if (!ct__file_map(from, &bytes, &n, err)) return false;
    bool ok = ct__file_write(to, bytes, n, err);
    ct__file_unmap(bytes, n);
    return ok;
}

// `to`: a further name of the file, in place of what has that name now; a copy where there are no
// links.
static bool name_too(const char *from, const char *to, ct_err *err) {
    char beside[CT_BESIDE];
    ct__atomic_beside(to, beside);
    if (access(from, F_OK) != 0) return ct__err_system(err, from, "open");
    if (ct__is_same_file(from, to)) return true;
    unlink(beside); // of a process that had this one's number
    if (link(from, beside) != 0) return copy_file(from, to, err);
    if (rename(beside, to) == 0) return true;
    ct__err_system(err, to, "rename into place");
    unlink(beside);
    return false;
}

static bool publish_one(const char *dir, int64_t step, const char *name, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    return ct__checkpoint_path(dir, step, name, from, err) &&
           make_path(to, err, "%s/%s", dir, name) && name_too(from, to, err);
}

// Under a temporary name first: a folder that is removed by halves must not look like a checkpoint.
// Where somebody moved it and left a link, the link is all that goes; where somebody put other files
// into it, they stay, under that name, and the next one takes another.
static bool forget(const char *dir, int64_t step, ct_err *err) {
    enum { MOST = 10000 };
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    struct stat st;
    if (!ct__checkpoint_path(dir, step, NULL, from, err) || !unfinished_path(dir, step, to, err))
        return false;
    if (lstat(from, &st) == 0 && S_ISLNK(st.st_mode))
        return unlink(from) == 0 || ct__err_system(err, from, "remove");
    for (int i = 2; rename(from, to) != 0; i++) {
        bool taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
        if (!taken || i > MOST) return ct__err_system(err, from, "remove");
        if (!make_path(to, err, "%s.%d" CT_SAVE_UNFINISHED, from, i)) return false;
    }
    ct__remove_folder(AT_FDCWD, to, is_saved);
    return true;
}

bool ct__checkpoint_publish(const char *dir, int64_t step, ct_err *err) {
    int64_t *steps;
    size_t n;
    for (int i = 0; i < NAMES; i++)
        if (!publish_one(dir, step, names[i], err)) return false;
    if (!ct__sync_folder(dir, err) || !ct__checkpoint_list(dir, &steps, &n, err)) return false;
    bool ok = true;
    for (size_t i = CT_CHECKPOINTS_KEPT; i < n && ok; i++) ok = forget(dir, steps[i], err);
    ct__free(steps);
    return ok;
}

bool ct__checkpoint_take_best(const char *dir, const char *folder, ct_err *err) {
    char from[2][CT_RUN_PATH], to[CT_RUN_PATH];
    for (int i = 0; i < 2; i++) {
        if (!make_path(from[i], err, "%s/%s", dir, best_files[i].run)) return false;
        if (access(from[i], F_OK) != 0) return true; // who removed them wants them no more
    }
    for (int i = 0; i < 2; i++)
        if (!make_path(to, err, "%s/%s", folder, best_files[i].saved) ||
            !name_too(from[i], to, err))
            return false;
    return true;
}

// The configuration comes last: where it is, the model was.
bool ct__checkpoint_has_best(const char *dir, int64_t step) {
    char path[CT_RUN_PATH];
    ct_err ignored = {0};
    return ct__checkpoint_path(dir, step, CT_SAVED_BEST_CONFIG, path, &ignored) &&
           access(path, F_OK) == 0;
}

bool ct__checkpoint_give_best(const char *dir, int64_t step, bool lost, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    if (lost || !ct__checkpoint_has_best(dir, step)) return remove_best(dir, err);
    if (!make_path(to, err, "%s/" CT_RUN_BEST, dir) || !ct__make_dirs(to, 0777, err)) return false;
    for (int i = 0; i < 2; i++)
        if (!ct__checkpoint_path(dir, step, best_files[i].saved, from, err) ||
            !make_path(to, err, "%s/%s", dir, best_files[i].run) || !name_too(from, to, err))
            return false;
    return make_path(to, err, "%s/" CT_RUN_BEST, dir) && ct__sync_folder(to, err);
}

bool ct__checkpoint_forget_after(const char *dir, int64_t step, ct_err *err) {
    int64_t *steps;
    size_t n;
    if (!ct__checkpoint_list(dir, &steps, &n, err)) return false;
    bool ok = true;
    for (size_t i = 0; i < n && steps[i] > step && ok; i++) ok = forget(dir, steps[i], err);
    ct__free(steps);
    return ok;
}
