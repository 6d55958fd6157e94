// Brings one file of a model into the cache: blobs/ETAG, which snapshots/COMMIT/NAME links to. What
// the other side says of names, sizes and places is checked before it is used.
#define _GNU_SOURCE // strchrnul
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "pull.h"
#include "sha256.h"

enum { MOST_REDIRECTS = 10, TRIES = 4, MOST_TEXT = 64 << 20, MOST_UNKNOWN = 256 << 20 };

// --------------------------------------------------------------------------------- saying, stopping

bool pull_failed(const char *format, ...) {
    va_list args;
    fputs("cotan: pull: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

static volatile sig_atomic_t interrupted;
static void on_signal(int number) { interrupted = number; }

void pull_watch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool pull_interrupted(void) { return interrupted; }
static bool stop(void *user) { return (void)user, interrupted; }

static void wait_seconds(double seconds) {
    for (; seconds > 0 && !interrupted; seconds -= 0.1)
        nanosleep(&(struct timespec){0, 100000000}, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// --------------------------------------------------------------------------------------- requests

// Follows redirects; the token goes to the endpoint alone. A head stops where the file's own tag is
// told, which is before the redirect to where it lies.
static http_result send_to(const pull *p, http_request request, http_reply *reply, char why[256]) {
    static char url[MOST_URL], next[MOST_URL];
    snprintf(url, sizeof url, "%s", request.url);
    for (int hop = 0; hop < MOST_REDIRECTS; hop++) {
        request.url = url;
        request.token = http_same_place(url, p->endpoint) ? p->token : NULL;
        http_result result = http_send(&request, reply, why);
        bool elsewhere = reply->status >= 301 && reply->status <= 308 && reply->status != 304;
        if (result != HTTP_DONE || !elsewhere || (request.head && *reply->linked_etag))
            return result;
        if (!http_follow(url, reply->location, next)) {
            snprintf(why, 256, "it sends elsewhere, to \"%s\", where may not be gone to",
                     plain(reply->location));
            return HTTP_NEVER;
        }
        memcpy(url, next, sizeof url);
    }
    snprintf(why, 256, "it sends elsewhere more than %d times", MOST_REDIRECTS);
    return HTTP_NEVER;
}

static bool may_pass(long status) { // another time it may be well
    return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// Until it succeeds, or cannot. Before each try `begin` may look how far the last one came.
static http_result try_often(const pull *p, http_request request, http_reply *reply, char why[256],
                             int64_t (*begin)(void *user)) {
    http_result result = HTTP_NEVER;
    double pause = 0.3;
    for (int turn = 0, left = TRIES; left > 0; turn++, left--) {
        int64_t from = begin ? begin(request.user) : 0;
        if (turn > 0 && from > request.from) left = TRIES; // it went on: that was no failure
        request.from = from;
        if (turn > 0) wait_seconds(pause);
        if (interrupted) return HTTP_STOPPED;
        result = send_to(p, request, reply, why);
        bool again = result == HTTP_DROPPED || (result == HTTP_DONE && may_pass(reply->status));
        if (!again) break;
        pause = reply->retry_after >= 0
                    ? (double)(reply->retry_after < 60 ? reply->retry_after : 60)
                    : pause * 2.5;
    }
    return result;
}

// Says why a request brought nothing. `what`: of the model.
static bool refused(const pull *p, http_result result, long status, const char *what,
                    const char *why) {
    if (interrupted) return false;
    const char *name = p->name;
    if (result == HTTP_DROPPED || result == HTTP_NEVER)
        return pull_failed("%s: %s: %s", name, what, why);
    if (status == 401 && p->token)
        return pull_failed("%s: %s: HF_TOKEN is not accepted (401)", name, what);
    if (status == 401)
        return pull_failed(
            "%s: %s: there is no such model, or it wants a token (401): set HF_TOKEN", name, what);
    if (status == 403)
        return pull_failed("%s: %s: it may not be read with this token, or its terms are not "
                           "accepted yet (403): see %s/%s",
                           name, what, p->endpoint, name);
    if (status == 404)
        return pull_failed("%s: %s: it is not there, in revision %s (404)", name, what,
                           plain(p->revision));
    if (status == 429)
        return pull_failed("%s: %s: too many requests (429); try again later", name, what);
    return pull_failed("%s: %s: the answer is HTTP's status %ld", name, what, status);
}

typedef struct text {
    char *s;
    size_t n;
    bool too_long;
} text;

static int64_t begin_text(void *user) {
    ((text *)user)->n = 0;
    return 0;
}

static bool add_text(const http_reply *reply, const void *bytes, size_t n, void *user) {
    text *t = user;
    (void)reply;
    t->too_long = n > MOST_TEXT - t->n;
    char *bigger = t->too_long ? NULL : realloc(t->s, t->n + n + 1);
    if (!bigger) return false;
    memcpy(bigger + t->n, bytes, n);
    t->s = bigger;
    t->n += n;
    return true;
}

bool pull_text(const pull *p, const char *path, char **out, size_t *n) {
    char url[MOST_URL], why[256] = "";
    text t = {0};
    http_reply reply;
    snprintf(url, sizeof url, "%s%s", p->endpoint, path);
    http_request request = {.url = url, .body = add_text, .stop = stop, .user = &t};
    http_result result = try_often(p, request, &reply, why, begin_text);
    if (result == HTTP_STOPPED && t.too_long) snprintf(why, sizeof why, "it is longer than 64 MB");
    if (result == HTTP_STOPPED && !interrupted) result = HTTP_NEVER;
    if (result == HTTP_DONE && reply.status == 200) {
        if (!t.s) t.s = calloc(1, 1);
        *out = t.s;
        *n = t.n;
        return t.s != NULL;
    }
    free(t.s);
    return refused(p, result, reply.status, "the list of its files", why);
}

// ------------------------------------------------------------------------------------------ files

bool pull_is_plain(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > 1000 || *name == '/') return false;
    for (const char *part = name; *part;) {
        size_t length = strcspn(part, "/");
        bool dots = (length == 1 && *part == '.') || (length == 2 && !strncmp(part, "..", 2));
        if (length == 0 || length > 200 || dots) return false;
        part += length;
        if (*part == '/' && !*++part) return false;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 32 || name[i] == 127 || name[i] == '\\') return false;
    return true;
}

bool pull_make_folders(const char *path, bool last) {
    char part[MOST_PATH];
    size_t n = strlen(path);
    if (n >= sizeof part) return pull_failed("%s: the path is too long", plain(path));
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && !(i == n && last)) continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return pull_failed("%s: cannot make the folder: %s", plain(part), strerror(errno));
    }
    return true;
}

typedef struct download {
    const pull *p;
    const char *name;
    char etag[160], path[MOST_PATH]; // of the part
    int fd;
    int64_t size, done; // size -1: not known
    sha256 sum;
    double began, shown;
    char wrong[512]; // why it was stopped
} download;

static bool stopped(download *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool stopped(download *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(d->wrong, sizeof d->wrong, format, args);
    va_end(args);
    return false;
}

static const char *bytes_text(char out[24], int64_t n) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = (double)n;
    int i = 0;
    while (value >= 1000 && i < 4) value /= 1000, i++;
    snprintf(out, 24, i ? "%.3g %s" : "%.0f %s", value, units[i]);
    return out;
}

static void show(download *d, bool end) {
    char done[24], all[24], rate[24];
    bool terminal = isatty(STDERR_FILENO);
    double t = now(), passed = t - d->began > 0.05 ? t - d->began : 0.05;
    if (d->p->quiet || (!end && t - d->shown < (terminal ? 0.2 : 15))) return;
    d->shown = t;
    bytes_text(done, d->done);
    bytes_text(all, d->size);
    bytes_text(rate, (int64_t)((double)d->done / passed));
    fprintf(stderr, "%s%s: %s", terminal ? "\r" : "", plain(d->name), done);
    if (!end && d->size > 0)
        fprintf(stderr, " of %s, %d %%", all, (int)(100 * (double)d->done / (double)d->size));
    if (!end) fprintf(stderr, ", %s/s", rate);
    fputs(terminal ? "\033[K" : "", stderr);
    if (end || !terminal) fputc('\n', stderr);
    fflush(stderr);
}

static bool empty(download *d) {
    sha256_begin(&d->sum);
    d->done = 0;
    return ftruncate(d->fd, 0) == 0 || stopped(d, "cannot shorten it: %s", strerror(errno));
}

static bool add_part(const http_reply *reply, const void *bytes, size_t n, void *user) {
    download *d = user;
    if (reply->status == 200 && d->done > 0 && reply->range_from < 0) {
        // Parts are not known there: all comes again. It is told from what went on by its size.
        if (lseek(d->fd, 0, SEEK_CUR) == 0 && !empty(d)) return false;
    }
    if (reply->status == 206 && lseek(d->fd, 0, SEEK_CUR) == 0) {
        if (reply->range_from != d->done || (d->size >= 0 && reply->range_total != d->size))
            return stopped(d, "another part came than was asked for");
        if (lseek(d->fd, d->done, SEEK_SET) < 0) return stopped(d, "%s", strerror(errno));
    }
    if (d->size >= 0 ? (int64_t)n > d->size - d->done : d->done + (int64_t)n > MOST_UNKNOWN)
        return stopped(d, "more bytes came than the %" PRId64 " that were announced",
                       d->size >= 0 ? d->size : (int64_t)MOST_UNKNOWN);
    for (size_t put = 0; put < n;) {
        ssize_t w = write(d->fd, (const char *)bytes + put, n - put);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return stopped(d, "cannot write %s: %s", d->path, strerror(errno));
        put += (size_t)w;
        d->done += w;
    }
    sha256_add(&d->sum, bytes, n);
    show(d, false);
    return true;
}

// What the part holds already, when it is opened; from the file's start each request begins anew.
static int64_t begin_part(void *user) {
    download *d = user;
    (void)!lseek(d->fd, 0, SEEK_SET);
    return d->done;
}

static bool hash_part(download *d) {
    static char room[1 << 16];
    struct stat st;
    sha256_begin(&d->sum);
    if (fstat(d->fd, &st) != 0 || !S_ISREG(st.st_mode)) return stopped(d, "%s is no file", d->path);
    if (d->size < 0 || st.st_size > d->size) return empty(d);
    for (ssize_t n; (n = read(d->fd, room, sizeof room)) != 0;) {
        if (n < 0 && errno != EINTR)
            return stopped(d, "cannot read %s: %s", d->path, strerror(errno));
        if (n < 0) continue;
        if (interrupted) return false;
        sha256_add(&d->sum, room, (size_t)n);
        d->done += n;
    }
    return true;
}

static bool has_room(download *d) {
    struct statvfs fs;
    char needed[24], left[24];
    if (d->size < 0 || fstatvfs(d->fd, &fs) != 0) return true;
    double there = (double)fs.f_bavail * (double)fs.f_frsize, wanted = (double)(d->size - d->done);
    if (wanted <= there) return true;
    return stopped(d, "the disk is full: %s are needed, and %s are left",
                   bytes_text(needed, (int64_t)wanted), bytes_text(left, (int64_t)there));
}

static bool check(download *d) {
    char hex[65];
    bool is_sum = strlen(d->etag) == 64 && strspn(d->etag, "0123456789abcdef") == 64;
    if (d->size >= 0 && d->done != d->size)
        return stopped(d, "%" PRId64 " bytes came, and %" PRId64 " were announced", d->done,
                       d->size);
    sha256_hex(&d->sum, hex);
    if (!is_sum || strcmp(hex, d->etag) == 0) return true;
    unlink(d->path);
    return stopped(d,
                   "its SHA-256 is %s, and %s was announced: the bytes are wrong, and were removed",
                   hex, d->etag);
}

static bool fill(download *d, const char *url) {
    char why[256] = "";
    http_reply reply;
    if (d->size >= 0 && d->done == d->size && d->done > 0) return true;
    if (!has_room(d)) return false;
    http_request request = {.url = url, .body = add_part, .stop = stop, .user = d};
    http_result result = try_often(d->p, request, &reply, why, begin_part);
    if (result == HTTP_DONE && reply.status == 416 && empty(d))
        result = try_often(d->p, request, &reply, why, begin_part);
    if (result == HTTP_STOPPED) return false;
    if (result == HTTP_DONE && (reply.status == 200 || reply.status == 206)) return true;
    return refused(d->p, result, reply.status, plain(d->name), why);
}

// One process at a time brings a file; the lock is huggingface_hub's.
static int lock(const pull *p, const char *etag) {
    char path[MOST_PATH];
    const char *last = strrchr(p->folder, '/');
    int n = snprintf(path, sizeof path, "%.*s/.locks%s/%s.lock", (int)(last - p->folder), p->folder,
                     last, etag);
    if (n < 0 || (size_t)n >= sizeof path || !pull_make_folders(path, false)) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) pull_failed("%s: cannot open: %s", plain(path), strerror(errno));
    bool told = p->quiet;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (!told) fprintf(stderr, "waiting for another process that brings the same file\n");
        told = true;
        wait_seconds(0.2);
        if (interrupted) {
            close(fd);
            return -1;
        }
    }
    return fd;
}

static bool bring_blob(download *d, const char *blob, const char *url) {
    d->fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (d->fd < 0) return stopped(d, "cannot open %s: %s", d->path, strerror(errno));
    d->began = d->shown = now();
    bool ok = hash_part(d) && fill(d, url) && check(d);
    if (ok && fsync(d->fd) != 0) ok = stopped(d, "cannot write %s: %s", d->path, strerror(errno));
    close(d->fd);
    if (ok && rename(d->path, blob) != 0)
        ok = stopped(d, "cannot rename %s: %s", d->path, strerror(errno));
    if (ok) show(d, true);
    return ok;
}

// snapshots/COMMIT/a/b -> ../../../blobs/ETAG
static bool link_to(const pull *p, const char *name, const char *etag) {
    char path[MOST_PATH], to[MOST_PATH] = "../../", temporary[MOST_PATH + 16];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) strcat(to, "../");
    strcat(to, "blobs/");
    strcat(to, etag);
    int n = snprintf(path, sizeof path, "%s/snapshots/%s/%s", p->folder, p->commit, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return pull_failed("%s: the path is too long", plain(name));
    if (!pull_make_folders(path, false)) return false;
    snprintf(temporary, sizeof temporary, "%s.%d.link", path, (int)getpid());
    unlink(temporary);
    if (symlink(to, temporary) == 0 && rename(temporary, path) == 0) return true;
    pull_failed("%s: cannot make the link: %s", plain(path), strerror(errno));
    unlink(temporary);
    return false;
}

// The tag that names a blob: without quotes, and nothing but what a file's name may hold.
static bool tag_of(const http_reply *reply, char out[160]) {
    const char *tag = *reply->linked_etag ? reply->linked_etag : reply->etag;
    if (strncmp(tag, "W/", 2) == 0) tag += 2;
    if (*tag == '"') tag++;
    size_t n = strcspn(tag, "\"");
    memcpy(out, tag, n);
    out[n] = '\0';
    return n > 0 && out[0] != '.' &&
           strspn(out, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") == n;
}

// NAME in a URL: what has a meaning there is written as %XX.
static bool put_url(const pull *p, const char *name, char url[MOST_URL]) {
    static const char plain_signs[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_./~";
    int n = snprintf(url, MOST_URL, "%s/%s/resolve/%s/", p->endpoint, p->name, p->commit);
    if (n < 0 || n > MOST_URL - 3100) return pull_failed("%s: the address is too long", p->name);
    for (; *name; name++)
        n += snprintf(url + n, MOST_URL - (size_t)n, strchr(plain_signs, *name) ? "%c" : "%%%02X",
                      (unsigned char)*name);
    return true;
}

static bool ask(const pull *p, const pull_file *file, const char *url, download *d) {
    char why[256] = "", what[160];
    http_reply reply;
    snprintf(what, sizeof what, "%s", plain(file->name));
    http_request request = {.url = url, .head = true, .stop = stop};
    http_result result = try_often(p, request, &reply, why, NULL);
    bool elsewhere = reply.status >= 301 && reply.status <= 308;
    if (result != HTTP_DONE || (reply.status != 200 && !elsewhere))
        return refused(p, result, reply.status, what, why);
    if (*reply.commit && strcmp(reply.commit, p->commit) != 0)
        return pull_failed("%s: %s: commit %s was asked for, and %s answers", p->name, what,
                           p->commit, plain(reply.commit));
    if (!tag_of(&reply, d->etag))
        return pull_failed("%s: %s: it comes without an ETag that could name it", p->name, what);
    d->size = *reply.linked_etag ? reply.linked_size : reply.size;
    if (file->size >= 0 && d->size >= 0 && file->size != d->size)
        return pull_failed("%s: %s: its size is %" PRId64 " in the list, and %" PRId64
                           " where it lies",
                           p->name, what, file->size, d->size);
    if (d->size < 0) d->size = file->size;
    return true;
}

bool pull_bring(const pull *p, const pull_file *file) {
    static char url[MOST_URL];
    download *d = calloc(1, sizeof *d);
    char blob[MOST_PATH];
    struct stat st;
    if (!d) return pull_failed("out of memory");
    d->p = p;
    d->name = file->name;
    bool ok = put_url(p, file->name, url) && ask(p, file, url, d);
    if (ok) {
        int n = snprintf(blob, sizeof blob, "%s/blobs/%s", p->folder, d->etag);
        ok = n > 0 && (size_t)n < sizeof blob - 16 && pull_make_folders(blob, false);
        snprintf(d->path, sizeof d->path, "%.*s.incomplete", (int)sizeof d->path - 16, blob);
    }
    int held = ok ? lock(p, d->etag) : -1;
    ok = ok && held >= 0;
    bool there =
        ok && stat(blob, &st) == 0 && S_ISREG(st.st_mode) && (d->size < 0 || st.st_size == d->size);
    if (ok && !there) ok = bring_blob(d, blob, url);
    if (*d->wrong) pull_failed("%s: %s: %s", p->name, plain(file->name), d->wrong);
    if (held >= 0) close(held);
    ok = ok && link_to(p, file->name, d->etag);
    free(d);
    return ok;
}
