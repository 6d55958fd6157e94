// Saves and replaces runs. Everything depends on one rename: a folder is filled under a temporary name and
// forced to disk before it gets its own name. Whenever a process dies, the folders named step-N are
// complete.
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

// In the order in which they are linked in the run's folder: if a process dies between two, the state there
// is newer than the model, never older.
static const char *const published_files[] = {"state.safetensors", "model.safetensors",
                                              "config.json"};
enum { N_PUBLISHED_FILES = sizeof published_files / sizeof *published_files };

__attribute__((format(printf, 3, 4))) static bool
checkpoint_make_path(char path[CT_RUN_PATH], ct_err *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(path, CT_RUN_PATH, format, args);
    va_end(args);
    return (n > 0 && n < CT_RUN_PATH) ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, "train", "the path of the folder is too long");
}

// ---------------------------------------------------------------------------------------- the folder

bool ct__run_make_folder(char dir[CT_RUN_PATH], ct_err *err) {
    enum { MAX_FOLDERS = 10000 };
    strcpy(dir, "run");
    for (int i = 2; mkdir(dir, 0777) != 0; i++) {
        if (errno != EEXIST || i > MAX_FOLDERS)
            return ct__err_system(err, dir, "create the folder");
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
    for (int i = 0; i < N_PUBLISHED_FILES; i++)
        if (strcmp(slash ? slash + 1 : dir, published_files[i]) == 0)
            ct__err_hint(err, "give the folder that it is in, %.*s", n, slash ? dir : ".");
    return false;
}

// Also returns true if the file system has no locks.
static bool run_is_locked(int lock) {
    return flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// A killed process keeps its locks until its memory is freed, which takes a while.
static bool run_wait_for_lock(int lock, const char *dir) {
    enum { SECONDS = 5, RETRY_MS = 50 };
    const double end = ct__now() + SECONDS;
    ct__warn(ct__ctx(), "another process is training in %s; this one will try for up to %d seconds",
             dir, SECONDS);
    while (ct__now() < end) {
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
        if (run_is_locked(lock)) return true;
    }
    return false;
}

bool ct__run_lock(const char *dir, int *lock, ct_err *err) {
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return ct__err_system(err, dir, "open");
    if (run_is_locked(*lock) || run_wait_for_lock(*lock, dir)) return true;
    ct__run_unlock(*lock);
    *lock = -1;
    return ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "another process is training in this folder");
}

void ct__run_unlock(int lock) {
    if (lock >= 0) close(lock);
}

// The files of a checkpoint.
static const char *const checkpoint_files[] = {"state.safetensors", "model.safetensors",
                                               "config.json", CT_SAVED_BEST_MODEL,
                                               CT_SAVED_BEST_CONFIG};
enum { N_CHECKPOINT_FILES = sizeof checkpoint_files / sizeof *checkpoint_files };
static const char *const tokenizer_files[CT_N_RUN_SIDE_FILES] = {CT_RUN_SIDE_FILES};

// True for "state.safetensors.1234-5.tmp": what an interrupted write leaves, or a link that was not
// renamed.
static bool checkpoint_is_leftover(const char *name) {
    for (int i = 0; i < N_CHECKPOINT_FILES; i++)
        if (ct__atomic_file_is_leftover(name, checkpoint_files[i])) return true;
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++)
        if (ct__atomic_file_is_leftover(name, tokenizer_files[i])) return true;
    return ct__atomic_file_is_leftover(name, "loss.svg") ||
           ct__atomic_file_is_leftover(name, CT_RUN_TOKENS);
}

static bool checkpoint_is_file(const char *name) {
    for (int i = 0; i < N_CHECKPOINT_FILES; i++)
        if (strcmp(name, checkpoint_files[i]) == 0) return true;
    return checkpoint_is_leftover(name);
}

// Calls `visit` for each entry of a folder; a folder that does not exist has none.
static bool checkpoint_each_entry(const char *folder, bool (*visit)(const char *name, void *user),
                                  void *user, ct_err *err) {
    DIR *dir = opendir(folder);
    bool ok = true;
    if (!dir) return errno == ENOENT || ct__err_system(err, folder, "read the folder");
    for (struct dirent *e; ok && (e = readdir(dir));) ok = visit(e->d_name, user);
    closedir(dir);
    return ok;
}

// A checkpoint that was saved again may have leftovers, too.
static void checkpoint_tidy(int folder, const char *name, void *user) {
    int64_t step;
    (void)user;
    if (ct__is_unfinished_save_name(name))
        ct__remove_folder(folder, name, checkpoint_is_file);
    else if (ct__is_save_name(name, &step))
        ct__remove_files(folder, name, checkpoint_is_leftover);
}

// ------------------------------------------------------------------------------ contents of a folder

typedef struct checkpoint_steps {
    int64_t *steps;
    size_t n, cap;
    ct_err *err;
} checkpoint_steps;

static bool checkpoint_list_entry(const char *name, void *user) {
    checkpoint_steps *l = user;
    int64_t step;
    if (!ct__is_save_name(name, &step)) return true;
    if (!CT_GROW(l->steps, l->cap, l->n + 1))
        return ct__err_memory(l->err, CT_NOWHERE, "train", l->cap * 2 * sizeof step);
    l->steps[l->n++] = step;
    return true;
}

static int checkpoint_compare_steps(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

// Makes the path of a folder that a run has, or would make, under this name.
static bool run_folder_path(const char *dir, const char *name, char path[CT_RUN_PATH],
                            ct_err *err) {
    if (!checkpoint_make_path(path, err, "%s/%s", dir, name)) return false;
    if (ct__could_be_folder(path, err)) return true;
    return ct__err_hint(err, "move it away: a run has a folder of this name");
}

typedef struct run_best_check {
    const char *best, *saves;
    ct_err *err;
} run_best_check;

static bool run_is_other_folder(const char *best, const char *other, ct_err *err) {
    if (!ct__is_same_file(best, other)) return true;
    ct__err(err, CT_E_FILE, CT_NOWHERE, best,
            "the same folder as %s, where the run keeps other weights", other);
    return ct__err_hint(err, "remove the link: a run has a folder of this name");
}

static bool run_is_other_save(const char *name, void *user) {
    const run_best_check *a = user;
    char path[CT_RUN_PATH];
    int64_t step;
    return (!ct__is_save_name(name, &step) && !ct__is_unfinished_save_name(name)) ||
           (checkpoint_make_path(path, a->err, "%s/%s", a->saves, name) &&
            run_is_other_folder(a->best, path, a->err));
}

// A link may lead to a folder that the run itself fills: weights of two steps would have one name.
bool ct__run_check_best(const char *dir, ct_err *err) {
    char best[CT_RUN_PATH], saves[CT_RUN_PATH];
    return run_folder_path(dir, CT_RUN_BEST, best, err) && run_is_other_folder(best, dir, err) &&
           checkpoint_make_path(saves, err, "%s/" CT_RUN_SAVES, dir) &&
           checkpoint_each_entry(saves, run_is_other_save, &(run_best_check){best, saves, err},
                                 err);
}

bool ct__checkpoint_list(const char *dir, int64_t **steps, size_t *n, ct_err *err) {
    char folder[CT_RUN_PATH];
    *steps = NULL;
    *n = 0;
    return run_folder_path(dir, CT_RUN_SAVES, folder, err) &&
           ct__checkpoint_list_in(folder, steps, n, err);
}

bool ct__checkpoint_list_in(const char *folder, int64_t **steps, size_t *n, ct_err *err) {
    checkpoint_steps l = {.err = err};
    bool ok = checkpoint_each_entry(folder, checkpoint_list_entry, &l, err);
    if (!ok) {
        ct__free(l.steps);
        l = (checkpoint_steps){0};
    }
    if (l.n) qsort(l.steps, l.n, sizeof *l.steps, checkpoint_compare_steps);
    *steps = l.steps;
    *n = l.n;
    return ok;
}

bool ct__checkpoint_path(const char *dir, int64_t step, const char *name, char path[CT_RUN_PATH],
                         ct_err *err) {
    return checkpoint_make_path(path, err, "%s/" CT_RUN_SAVES "/step-%" PRId64 "%s%s", dir, step,
                                name ? "/" : "", name ? name : "");
}

// ----------------------------------------------------------------------------- replacing another run

// The model first: if a process dies between the two, the configuration beside it is an older one, of the
// same sizes.
static const struct {
    const char *saved, *run;
} run_best_files[] = {{CT_SAVED_BEST_MODEL, CT_RUN_BEST "/model.safetensors"},
                      {CT_SAVED_BEST_CONFIG, CT_RUN_BEST "/config.json"}};

static bool run_remove_best(const char *dir, ct_err *err) {
    char path[CT_RUN_PATH];
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++) {
        if (!checkpoint_make_path(path, err, "%s/" CT_RUN_BEST "/%s", dir, tokenizer_files[i]))
            return false;
        (void)unlink(path); // belongs to the removed model
    }
    for (int i = 0; i < 2; i++) {
        if (!checkpoint_make_path(path, err, "%s/%s", dir, run_best_files[i].run)) return false;
        if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
            return ct__err_system(err, path, "remove");
    }
    if (!checkpoint_make_path(path, err, "%s/" CT_RUN_BEST, dir)) return false;
    (void)rmdir(path); // fails if there are other files, which stay
    return true;
}

// Counts the lines of the metrics, one per step; -1: there are none.
static int64_t run_count_metrics(const char *path) {
    ct_err ignored = {0};
    size_t size;
    int fd = ct__file_open(path, &size, &ignored); // opening a pipe would block forever
    char buffer[4096];
    int64_t lines = 0;
    if (fd < 0) return -1;
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
        for (const char *at = buffer; (at = memchr(at, '\n', (size_t)(n - (at - buffer)))); at++)
            lines++;
    close(fd);
    return lines;
}

// True for "events.out.tfevents.1763683200.host.1234.0": time, host, process and number, as a run names its
// file.
static bool run_is_events(const char *name) {
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

typedef struct run_events {
    const char *folder;
    int n;
    char name[256]; // the name of one of them
    ct_err *err;
} run_events;

// Makes the file's path if it is a regular events file; else it is empty.
static bool run_events_path(const run_events *e, const char *name, char path[CT_RUN_PATH]) {
    struct stat st;
    *path = '\0';
    if (!run_is_events(name)) return true;
    if (!checkpoint_make_path(path, e->err, "%s/%s", e->folder, name)) return false;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) *path = '\0';
    return true;
}

static bool run_remove_events(const char *name, void *user) {
    const run_events *e = user;
    char path[CT_RUN_PATH];
    if (!run_events_path(e, name, path)) return false;
    return !*path || unlink(path) == 0 || ct__err_system(e->err, path, "remove");
}

static bool run_count_events(const char *name, void *user) {
    run_events *e = user;
    char path[CT_RUN_PATH];
    if (!run_events_path(e, name, path)) return false;
    if (*path && e->n++ == 0) snprintf(e->name, sizeof e->name, "%s", name);
    return true;
}

// Adds events files to the names if there are other files, since they would be removed with them, and other
// programs' have such names, too. Alone they are no loss: a run's are one more file beside them.
static bool run_add_events(const char *dir, ct_text *names, ct_err *err) {
    run_events e = {.folder = dir, .err = err};
    if (!names->n) return true;
    if (!checkpoint_each_entry(dir, run_count_events, &e, err)) return false;
    if (e.n == 1) ct__textf(names, ", %s", e.name);
    if (e.n > 1) ct__textf(names, ", %d files events.out.tfevents.*", e.n);
    return true;
}

// What a run writes under fixed names, besides the checkpoints and the events.
static const char *const run_files[] = {"model.safetensors",
                                        "state.safetensors",
                                        "config.json",
                                        "metrics.jsonl",
                                        "loss.svg",
                                        CT_RUN_BEST "/model.safetensors",
                                        CT_RUN_BEST "/config.json",
                                        CT_RUN_SIDE_FILES,
                                        CT_RUN_TOKENS};
enum { N_RUN_FILES = sizeof run_files / sizeof *run_files };

// A process that failed in its first step leaves metrics without a line: an empty file is no loss.
static bool run_file_is_loss(const char *path, bool *is_loss, ct_err *err) {
    struct stat st;
    *is_loss = lstat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > 0);
    return !*is_loss || !S_ISDIR(st.st_mode) ||
           ct__err(err, CT_E_FILE, CT_NOWHERE, path, "a folder, where a run writes a file");
}

bool ct__run_list_contents(const char *dir, ct_run_contents *contents, ct_err *err) {
    char path[CT_RUN_PATH];
    int64_t *saves;
    size_t n;
    *contents = (ct_run_contents){0};
    for (int i = 0; i < N_RUN_FILES; i++) {
        bool is_loss;
        if (!checkpoint_make_path(path, err, "%s/%s", dir, run_files[i]) ||
            !run_file_is_loss(path, &is_loss, err))
            return false;
        if (is_loss)
            ct__textf(&contents->names, "%s%s", contents->names.n ? ", " : "", run_files[i]);
    }
    if (!checkpoint_make_path(path, err, "%s/metrics.jsonl", dir) ||
        !ct__checkpoint_list(dir, &saves, &n, err))
        return false;
    if (n) ct__textf(&contents->names, "%s" CT_RUN_SAVES, contents->names.n ? ", " : "");
    if (!run_add_events(dir, &contents->names, err)) {
        ct__free(saves);
        return false;
    }
    contents->saved = n > 0;
    contents->steps = run_count_metrics(path);
    if (contents->steps < 0) contents->steps = n ? saves[0] : 0;
    ct__free(saves);
    return !contents->names.failed || ct__err_memory(err, CT_NOWHERE, "train", CT_RUN_PATH);
}

// A folder on another disk or mount, such as one that a link leads to, cannot be replaced by renaming.
static bool run_is_on_same_mount(const char *dir, const char *name, ct_err *err) {
    char path[CT_RUN_PATH];
    if (!checkpoint_make_path(path, err, "%s/%s", dir, name)) return false;
    if (ct__could_rename_between(dir, path)) return true;
    ct__err(err, CT_E_USAGE, CT_NOWHERE, "train",
            "what is in %s cannot be replaced: %s is on another disk or mount", dir, path);
    return ct__err_hint(err, "another .out keeps it; where all is on one, it can be replaced");
}

bool ct__run_could_replace(const char *dir, ct_err *err) {
    return run_is_on_same_mount(dir, CT_RUN_SAVES, err) &&
           run_is_on_same_mount(dir, CT_RUN_BEST, err);
}

static bool run_remove(const char *dir, ct_err *err) {
    char path[CT_RUN_PATH];
    if (!ct__checkpoint_remove_after(dir, -1, err) ||
        !checkpoint_each_entry(dir, run_remove_events, &(run_events){.folder = dir, .err = err},
                               err))
        return false;
    for (int i = 0; i < N_RUN_FILES; i++) {
        if (!checkpoint_make_path(path, err, "%s/%s", dir, run_files[i])) return false;
        if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
            return ct__err_system(err, path, "remove");
    }
    return run_remove_best(dir, err) && ct__sync_folder(dir, err);
}

// The new run until its first save is complete, and after that.
#define NEXT_UNFINISHED ".cotan-next.tmp"
#define NEXT_COMPLETE ".cotan-next"

static bool run_is_tokenizer_file(const char *name) {
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++)
        if (strcmp(name, tokenizer_files[i]) == 0) return true;
    return false;
}

// True for the files of a run's folder of best weights.
static bool run_is_best_file(const char *name) {
    return checkpoint_is_file(name) || run_is_tokenizer_file(name);
}

static bool run_is_file(const char *name) {
    return run_is_tokenizer_file(name) || strcmp(name, CT_RUN_TOKENS) == 0 ||
           strcmp(name, "metrics.jsonl") == 0 || strcmp(name, "loss.svg") == 0 ||
           checkpoint_is_leftover(name) || run_is_events(name);
}

static void run_remove_save(int folder, const char *name, void *user) {
    int64_t step;
    (void)user;
    if (ct__is_unfinished_save_name(name) || ct__is_save_name(name, &step))
        ct__remove_folder(folder, name, checkpoint_is_file);
}

static void run_remove_next(int dir) {
    int fd = openat(dir, NEXT_UNFINISHED, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    (void)ct__for_each_entry(fd, CT_RUN_SAVES, run_remove_save, NULL);
    ct__remove_folder(fd, CT_RUN_SAVES, checkpoint_is_file);
    ct__remove_folder(fd, CT_RUN_BEST, run_is_best_file);
    close(fd);
    ct__remove_folder(dir, NEXT_UNFINISHED, run_is_file);
}

void ct__run_tidy(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    ct__remove_files(fd, ".", checkpoint_is_leftover);
    ct__remove_files(fd, CT_RUN_BEST, checkpoint_is_leftover);
    run_remove_next(fd);
    (void)ct__for_each_entry(fd, CT_RUN_SAVES, checkpoint_tidy, NULL);
    close(fd);
}

void ct__run_abandon_replace(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    run_remove_next(fd);
    close(fd);
}

bool ct__run_begin_replace(const char *dir, char next[CT_RUN_PATH], ct_err *err) {
    ct__run_abandon_replace(dir);
    return checkpoint_make_path(next, err, "%s/" NEXT_UNFINISHED, dir) &&
           ct__make_dirs(next, 0777, err);
}

typedef struct run_move {
    const char *from, *to;
    ct_err *err;
} run_move;

static bool run_move_file(const char *name, void *user) {
    const run_move *m = user;
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    struct stat st;
    if (!checkpoint_make_path(from, m->err, "%s/%s", m->from, name) ||
        !checkpoint_make_path(to, m->err, "%s/%s", m->to, name))
        return false;
    if (lstat(from, &st) != 0 || !S_ISREG(st.st_mode)) return true;
    return rename(from, to) == 0 || ct__err_system(m->err, from, "rename into place");
}

// Moves the folder's files, and removes the folder, if it exists.
static bool run_move_folder(const char *from, const char *to, ct_err *err) {
    if (access(from, F_OK) != 0) return true;
    if (!ct__make_dirs(to, 0777, err) ||
        !checkpoint_each_entry(from, run_move_file, &(run_move){from, to, err}, err) ||
        !ct__sync_folder(to, err))
        return false;
    (void)rmdir(from);
    return true;
}

// Moves the checkpoint of `next` first. Until then what is in `dir` belongs to the other run, and is
// removed; after that it belongs to this run.
static bool run_move_checkpoint(const char *dir, const char *next, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    int64_t *steps;
    size_t n;
    if (!ct__checkpoint_list(next, &steps, &n, err)) return false;
    int64_t step = n ? steps[0] : 0;
    ct__free(steps);
    if (n && !(ct__run_could_replace(dir, err) && run_remove(dir, err) &&
               checkpoint_make_path(to, err, "%s/" CT_RUN_SAVES, dir) &&
               ct__make_dirs(to, 0777, err) && ct__checkpoint_path(next, step, NULL, from, err) &&
               ct__checkpoint_path(dir, step, NULL, to, err) &&
               (rename(from, to) == 0 || ct__err_system(err, from, "rename into place"))))
        return false;
    if (!checkpoint_make_path(to, err, "%s/" CT_RUN_SAVES, dir) ||
        !checkpoint_make_path(from, err, "%s/" CT_RUN_SAVES, next) ||
        (n && !ct__sync_folder(to, err)))
        return false;
    (void)rmdir(from);
    return true;
}

bool ct__run_complete_replace(const char *dir, ct_err *err) {
    char next[CT_RUN_PATH], from[CT_RUN_PATH], to[CT_RUN_PATH];
    if (!checkpoint_make_path(next, err, "%s/" NEXT_COMPLETE, dir)) return false;
    if (access(next, F_OK) != 0) return true;
    return run_move_checkpoint(dir, next, err) &&
           checkpoint_make_path(from, err, "%s/" CT_RUN_BEST, next) &&
           checkpoint_make_path(to, err, "%s/" CT_RUN_BEST, dir) &&
           run_move_folder(from, to, err) && run_move_folder(next, dir, err);
}

bool ct__run_replace(const char *dir, ct_err *err) {
    char unfinished[CT_RUN_PATH], complete[CT_RUN_PATH];
    if (!checkpoint_make_path(unfinished, err, "%s/" NEXT_UNFINISHED, dir) ||
        !checkpoint_make_path(complete, err, "%s/" NEXT_COMPLETE, dir) ||
        !ct__sync_folder(unfinished, err))
        return false;
    return (rename(unfinished, complete) == 0 ||
            ct__err_system(err, unfinished, "rename into place")) &&
           ct__sync_folder(dir, err) && ct__run_complete_replace(dir, err);
}

// --------------------------------------------------------------------------------------------- saves

static bool checkpoint_unfinished_path(const char *dir, int64_t step, char path[CT_RUN_PATH],
                                       ct_err *err) {
    return checkpoint_make_path(path, err, "%s/" CT_RUN_SAVES "/step-%" PRId64 CT_SAVE_UNFINISHED,
                                dir, step);
}

bool ct__checkpoint_begin(const char *dir, int64_t step, char folder[CT_RUN_PATH], ct_err *err) {
    char parent[CT_RUN_PATH];
    struct stat st;
    if (!checkpoint_make_path(parent, err, "%s/" CT_RUN_SAVES, dir) ||
        !checkpoint_unfinished_path(dir, step, folder, err))
        return false;
    if (!ct__make_dirs(parent, 0777, err)) return false;
    // A save would write through the link, to where it leads.
    if (lstat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                "it is in the way of a save, which makes a folder");
        return ct__err_hint(err, "move it away");
    }
    // Leftovers of a process that died are removed by the next one, but not through a link `checkpoints`.
    ct__remove_files(AT_FDCWD, folder, checkpoint_is_file);
    return ct__make_dirs(folder, 0777, err);
}

void ct__checkpoint_abandon(const char *dir, int64_t step) {
    char folder[CT_RUN_PATH];
    ct_err ignored = {0};
    if (checkpoint_unfinished_path(dir, step, folder, &ignored))
        ct__remove_folder(AT_FDCWD, folder, checkpoint_is_file);
}

bool ct__checkpoint_commit(const char *dir, int64_t step, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH], parent[CT_RUN_PATH];
    if (!checkpoint_unfinished_path(dir, step, from, err) ||
        !ct__checkpoint_path(dir, step, NULL, to, err) ||
        !checkpoint_make_path(parent, err, "%s/" CT_RUN_SAVES, dir))
        return false;
    // The files in it, and their names, were forced to disk one by one.
    return (rename(from, to) == 0 || ct__err_system(err, from, "rename into place")) &&
           ct__sync_folder(parent, err);
}

static bool checkpoint_copy_file(const char *from, const char *to, ct_err *err) {
    const void *bytes;
    size_t n;
    if (!ct__file_map(from, &bytes, &n, err)) return false;
    bool ok = ct__file_write(to, bytes, n, err);
    ct__file_unmap(bytes, n);
    return ok;
}

// Makes `to` a hard link of the file, in place of what has that name now; a copy where links are not
// supported.
static bool checkpoint_link(const char *from, const char *to, ct_err *err) {
    char temporary[CT_TEMPORARY_NAME];
    ct__atomic_file_temporary_name(to, temporary);
    if (access(from, F_OK) != 0) return ct__err_system(err, from, "open");
    if (ct__is_same_file(from, to)) return true;
    unlink(temporary); // of an earlier process with the same process id
    if (link(from, temporary) != 0) return checkpoint_copy_file(from, to, err);
    if (rename(temporary, to) == 0) return true;
    ct__err_system(err, to, "rename into place");
    unlink(temporary);
    return false;
}

static bool checkpoint_publish_file(const char *dir, int64_t step, const char *name, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    return ct__checkpoint_path(dir, step, name, from, err) &&
           checkpoint_make_path(to, err, "%s/%s", dir, name) && checkpoint_link(from, to, err);
}

// Renames the folder to a temporary name first: a partly removed folder must not look like a checkpoint. If
// it is a link, only the link is removed; if it has other files, they stay under that name, and the next
// one takes another.
static bool checkpoint_remove(const char *dir, int64_t step, ct_err *err) {
    enum { MAX_FOLDERS = 10000 };
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    struct stat st;
    if (!ct__checkpoint_path(dir, step, NULL, from, err) ||
        !checkpoint_unfinished_path(dir, step, to, err))
        return false;
    if (lstat(from, &st) == 0 && S_ISLNK(st.st_mode))
        return unlink(from) == 0 || ct__err_system(err, from, "remove");
    for (int i = 2; rename(from, to) != 0; i++) {
        bool taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
        if (!taken || i > MAX_FOLDERS) return ct__err_system(err, from, "remove");
        if (!checkpoint_make_path(to, err, "%s.%d" CT_SAVE_UNFINISHED, from, i)) return false;
    }
    ct__remove_folder(AT_FDCWD, to, checkpoint_is_file);
    return true;
}

bool ct__checkpoint_publish(const char *dir, int64_t step, ct_err *err) {
    int64_t *steps;
    size_t n;
    for (int i = 0; i < N_PUBLISHED_FILES; i++)
        if (!checkpoint_publish_file(dir, step, published_files[i], err)) return false;
    if (!ct__sync_folder(dir, err) || !ct__checkpoint_list(dir, &steps, &n, err)) return false;
    bool ok = true;
    for (size_t i = CT_CHECKPOINTS_KEPT; i < n && ok; i++)
        ok = checkpoint_remove(dir, steps[i], err);
    ct__free(steps);
    return ok;
}

bool ct__checkpoint_link_best(const char *dir, const char *folder, ct_err *err) {
    char from[2][CT_RUN_PATH], to[CT_RUN_PATH];
    for (int i = 0; i < 2; i++) {
        if (!checkpoint_make_path(from[i], err, "%s/%s", dir, run_best_files[i].run)) return false;
        if (access(from[i], F_OK) != 0) return true; // somebody removed them on purpose
    }
    for (int i = 0; i < 2; i++)
        if (!checkpoint_make_path(to, err, "%s/%s", folder, run_best_files[i].saved) ||
            !checkpoint_link(from[i], to, err))
            return false;
    return true;
}

// The configuration is linked last: if it is there, the model was.
bool ct__checkpoint_has_best(const char *dir, int64_t step) {
    char path[CT_RUN_PATH];
    ct_err ignored = {0};
    return ct__checkpoint_path(dir, step, CT_SAVED_BEST_CONFIG, path, &ignored) &&
           access(path, F_OK) == 0;
}

bool ct__checkpoint_restore_best(const char *dir, int64_t step, bool lost, ct_err *err) {
    char from[CT_RUN_PATH], to[CT_RUN_PATH];
    if (lost || !ct__checkpoint_has_best(dir, step)) return run_remove_best(dir, err);
    if (!checkpoint_make_path(to, err, "%s/" CT_RUN_BEST, dir) || !ct__make_dirs(to, 0777, err))
        return false;
    for (int i = 0; i < 2; i++)
        if (!ct__checkpoint_path(dir, step, run_best_files[i].saved, from, err) ||
            !checkpoint_make_path(to, err, "%s/%s", dir, run_best_files[i].run) ||
            !checkpoint_link(from, to, err))
            return false;
    return checkpoint_make_path(to, err, "%s/" CT_RUN_BEST, dir) && ct__sync_folder(to, err);
}

bool ct__checkpoint_remove_after(const char *dir, int64_t step, ct_err *err) {
    int64_t *steps;
    size_t n;
    if (!ct__checkpoint_list(dir, &steps, &n, err)) return false;
    bool ok = true;
    for (size_t i = 0; i < n && steps[i] > step && ok; i++)
        ok = checkpoint_remove(dir, steps[i], err);
    ct__free(steps);
    return ok;
}
