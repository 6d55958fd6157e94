// Downloads one file of a model into the cache: blobs/ETAG, to which snapshots/COMMIT/NAME links. Names,
// sizes and offsets from the server are checked before they are used.
#define _GNU_SOURCE // strchrnul
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "pull.h"
#include "sha256.h"

enum { MAX_REDIRECTS = 10, MAX_TRIES = 4, MAX_TEXT = 64 << 20, MAX_UNKNOWN_SIZE = 256 << 20 };

// --------------------------------------------------------------------------------- saying, stopping

bool pull_error(const char *format, ...) {
    va_list args;
    fputs("cotan: pull: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

static volatile sig_atomic_t interrupted;
static void pull_on_signal(int number) { interrupted = number; }

void pull_install_signal_handlers(void) {
    struct sigaction action = {.sa_handler = pull_on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool pull_interrupted(void) { return interrupted; }
static bool pull_should_stop(void *user) { return (void)user, interrupted; }

static void pull_sleep(double seconds) {
    for (; seconds > 0 && !interrupted; seconds -= 0.1)
        nanosleep(&(struct timespec){0, 100000000}, NULL);
}

// --------------------------------------------------------------------------------------- requests

// Sends a request and follows redirects; the token is sent only to the endpoint. A HEAD request stops at
// the reply with the file's own ETag, which comes before the redirect to its storage.
static http_result pull_send_following_redirects(const pull *p, http_request request,
                                                 http_reply *reply, char why[256]) {
    static char url[MAX_URL], next[MAX_URL];
    snprintf(url, sizeof url, "%s", request.url);
    for (int hop = 0; hop < MAX_REDIRECTS; hop++) {
        request.url = url;
        request.token = http_same_origin(url, p->endpoint) ? p->token : NULL;
        http_result result = http_send(&request, reply, why);
        bool elsewhere = reply->status >= 301 && reply->status <= 308 && reply->status != 304;
        if (result != HTTP_DONE || !elsewhere || (request.head && *reply->linked_etag))
            return result;
        if (!http_resolve_redirect(url, reply->location, next)) {
            snprintf(why, 256, "it sends elsewhere, to \"%s\", where may not be gone to",
                     printable(reply->location));
            return HTTP_FAILED;
        }
        memcpy(url, next, sizeof url);
    }
    snprintf(why, 256, "it sends elsewhere more than %d times", MAX_REDIRECTS);
    return HTTP_FAILED;
}

static bool pull_is_transient_status(long status) { // a later try may succeed
    return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// Sends a request until it succeeds or cannot succeed. Before each try `begin` may return the offset
// that the last one reached.
static http_result pull_send_with_retries(const pull *p, http_request request, http_reply *reply,
                                          char why[256], int64_t (*begin)(void *user)) {
    http_result result = HTTP_FAILED;
    double pause = 0.3;
    for (int turn = 0, left = MAX_TRIES; left > 0; turn++, left--) {
        int64_t from = begin ? begin(request.user) : 0;
        // It made progress: that was not a failure.
        if (turn > 0 && from > request.from) left = MAX_TRIES;
        request.from = from;
        if (turn > 0) pull_sleep(pause);
        if (interrupted) return HTTP_CANCELLED;
        result = pull_send_following_redirects(p, request, reply, why);
        bool again = result == HTTP_CONNECTION_LOST ||
                     (result == HTTP_DONE && pull_is_transient_status(reply->status));
        if (!again) break;
        pause = reply->retry_after >= 0
                    ? (double)(reply->retry_after < 60 ? reply->retry_after : 60)
                    : pause * 2.5;
    }
    return result;
}

// Reports why a request failed. `what`: the file of the model.
static bool pull_report_failure(const pull *p, http_result result, long status, const char *what,
                                const char *why) {
    if (interrupted) return false;
    const char *name = p->name;
    if (result == HTTP_CONNECTION_LOST || result == HTTP_FAILED)
        return pull_error("%s: %s: %s", name, what, why);
    if (status == 401 && p->token)
        return pull_error("%s: %s: HF_TOKEN is not accepted (401)", name, what);
    if (status == 401)
        return pull_error("%s: %s: there is no such model, or it wants a token (401): set HF_TOKEN",
                          name, what);
    if (status == 403)
        return pull_error("%s: %s: it may not be read with this token, or its terms are not "
                          "accepted yet (403): see %s/%s",
                          name, what, p->endpoint, name);
    if (status == 404)
        return pull_error("%s: %s: it is not there, in revision %s (404)", name, what,
                          printable(p->revision));
    if (status == 429)
        return pull_error("%s: %s: too many requests (429); try again later", name, what);
    return pull_error("%s: %s: the answer is HTTP's status %ld", name, what, status);
}

typedef struct text {
    char *s;
    size_t n;
    bool too_long;
} text;

static int64_t pull_text_reset(void *user) {
    ((text *)user)->n = 0;
    return 0;
}

static bool pull_text_on_body(const http_reply *reply, const void *bytes, size_t n, void *user) {
    text *t = user;
    (void)reply;
    t->too_long = n > MAX_TEXT - t->n;
    char *bigger = t->too_long ? NULL : realloc(t->s, t->n + n + 1);
    if (!bigger) return false;
    memcpy(bigger + t->n, bytes, n);
    t->s = bigger;
    t->n += n;
    return true;
}

bool pull_fetch_text(const pull *p, const char *path, char **out, size_t *n) {
    char url[MAX_URL], why[256] = "";
    text t = {0};
    http_reply reply;
    snprintf(url, sizeof url, "%s%s", p->endpoint, path);
    http_request request = {
        .url = url, .body = pull_text_on_body, .stop = pull_should_stop, .user = &t};
    http_result result = pull_send_with_retries(p, request, &reply, why, pull_text_reset);
    if (result == HTTP_CANCELLED && t.too_long)
        snprintf(why, sizeof why, "it is longer than 64 MB");
    if (result == HTTP_CANCELLED && !interrupted) result = HTTP_FAILED;
    if (result == HTTP_DONE && reply.status == 200) {
        if (!t.s) t.s = calloc(1, 1);
        *out = t.s;
        *n = t.n;
        return t.s != NULL;
    }
    free(t.s);
    return pull_report_failure(p, result, reply.status, "the list of its files", why);
}

// ------------------------------------------------------------------------------------------ files

bool pull_is_safe_path(const char *name) {
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

bool pull_make_directories(const char *path) {
    char part[MAX_PATH];
    size_t n = strlen(path);
    if (n >= sizeof part) return pull_error("%s: the path is too long", printable(path));
    for (size_t i = 1; i < n; i++) {
        if (path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return pull_error("%s: cannot make the folder: %s", printable(part), strerror(errno));
    }
    return true;
}

typedef struct download {
    const pull *p;
    const char *name;
    char etag[160], path[MAX_PATH]; // of the partial file
    int fd;
    int64_t size, done; // size -1: unknown
    sha256 sha;
    double start_time, last_shown;
    char error[512]; // why it was stopped
} download;

__attribute__((format(printf, 2, 3))) static bool download_set_error(download *d,
                                                                     const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(d->error, sizeof d->error, format, args);
    va_end(args);
    return false;
}

static const char *download_format_bytes(char out[24], int64_t n) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = (double)n;
    int i = 0;
    while (value >= 1000 && i < 4) value /= 1000, i++;
    snprintf(out, 24, i ? "%.3g %s" : "%.0f %s", value, units[i]);
    return out;
}

static void download_print_progress(download *d, bool end) {
    char done[24], all[24], rate[24];
    bool terminal = isatty(STDERR_FILENO);
    double t = seconds_now(), passed = t - d->start_time > 0.05 ? t - d->start_time : 0.05;
    if (d->p->quiet || (!end && t - d->last_shown < (terminal ? 0.2 : 15))) return;
    d->last_shown = t;
    download_format_bytes(done, d->done);
    download_format_bytes(all, d->size);
    download_format_bytes(rate, (int64_t)((double)d->done / passed));
    fprintf(stderr, "%s%s: %s", terminal ? "\r" : "", printable(d->name), done);
    if (!end && d->size > 0)
        fprintf(stderr, " of %s, %d %%", all, (int)(100 * (double)d->done / (double)d->size));
    if (!end) fprintf(stderr, ", %s/s", rate);
    fputs(terminal ? "\033[K" : "", stderr);
    if (end || !terminal) fputc('\n', stderr);
    fflush(stderr);
}

static bool download_truncate(download *d) {
    sha256_init(&d->sha);
    d->done = 0;
    return ftruncate(d->fd, 0) == 0 ||
           download_set_error(d, "cannot shorten it: %s", strerror(errno));
}

static bool download_on_body(const http_reply *reply, const void *bytes, size_t n, void *user) {
    download *d = user;
    if (reply->status == 200 && d->done > 0 && reply->range_from < 0) {
        // The server does not support ranges: the whole file is sent again. It is distinguished from a
        // continued body by the file offset, which is 0 before the first write.
        if (lseek(d->fd, 0, SEEK_CUR) == 0 && !download_truncate(d)) return false;
    }
    if (reply->status == 206 && lseek(d->fd, 0, SEEK_CUR) == 0) {
        if (reply->range_from != d->done || (d->size >= 0 && reply->range_total != d->size))
            return download_set_error(d, "another part came than was asked for");
        if (lseek(d->fd, d->done, SEEK_SET) < 0)
            return download_set_error(d, "%s", strerror(errno));
    }
    if (d->size >= 0 ? (int64_t)n > d->size - d->done : d->done + (int64_t)n > MAX_UNKNOWN_SIZE)
        return download_set_error(d, "more bytes came than the %" PRId64 " that were announced",
                                  d->size >= 0 ? d->size : (int64_t)MAX_UNKNOWN_SIZE);
    for (size_t put = 0; put < n;) {
        ssize_t w = write(d->fd, (const char *)bytes + put, n - put);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return download_set_error(d, "cannot write %s: %s", d->path, strerror(errno));
        put += (size_t)w;
        d->done += w;
    }
    sha256_update(&d->sha, bytes, n);
    download_print_progress(d, false);
    return true;
}

// Returns the bytes that the partial file has when it is opened, and rewinds it, so that the first write
// of each request is recognised.
static int64_t download_rewind(void *user) {
    download *d = user;
    (void)!lseek(d->fd, 0, SEEK_SET);
    return d->done;
}

static bool download_hash_existing(download *d) {
    static char room[1 << 16];
    struct stat st;
    sha256_init(&d->sha);
    if (fstat(d->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return download_set_error(d, "%s is no file", d->path);
    if (d->size < 0 || st.st_size > d->size) return download_truncate(d);
    for (ssize_t n; (n = read(d->fd, room, sizeof room)) != 0;) {
        if (n < 0 && errno != EINTR)
            return download_set_error(d, "cannot read %s: %s", d->path, strerror(errno));
        if (n < 0) continue;
        if (interrupted) return false;
        sha256_update(&d->sha, room, (size_t)n);
        d->done += n;
    }
    return true;
}

static bool download_has_disk_space(download *d) {
    struct statvfs fs;
    char needed[24], left[24];
    if (d->size < 0 || fstatvfs(d->fd, &fs) != 0) return true;
    double there = (double)fs.f_bavail * (double)fs.f_frsize, wanted = (double)(d->size - d->done);
    if (wanted <= there) return true;
    return download_set_error(d, "the disk is full: %s are needed, and %s are left",
                              download_format_bytes(needed, (int64_t)wanted),
                              download_format_bytes(left, (int64_t)there));
}

static bool download_verify(download *d) {
    char hex[65];
    bool is_sum = strlen(d->etag) == 64 && strspn(d->etag, "0123456789abcdef") == 64;
    if (d->size >= 0 && d->done != d->size)
        return download_set_error(d, "%" PRId64 " bytes came, and %" PRId64 " were announced",
                                  d->done, d->size);
    sha256_finish_hex(&d->sha, hex);
    if (!is_sum || strcmp(hex, d->etag) == 0) return true;
    unlink(d->path);
    return download_set_error(
        d, "its SHA-256 is %s, and %s was announced: the bytes are wrong, and were removed", hex,
        d->etag);
}

static bool download_fetch(download *d, const char *url) {
    char why[256] = "";
    http_reply reply;
    if (d->size >= 0 && d->done == d->size && d->done > 0) return true;
    if (!download_has_disk_space(d)) return false;
    http_request request = {
        .url = url, .body = download_on_body, .stop = pull_should_stop, .user = d};
    http_result result = pull_send_with_retries(d->p, request, &reply, why, download_rewind);
    if (result == HTTP_DONE && reply.status == 416 && download_truncate(d))
        result = pull_send_with_retries(d->p, request, &reply, why, download_rewind);
    if (result == HTTP_CANCELLED) return false;
    if (result == HTTP_DONE && (reply.status == 200 || reply.status == 206)) return true;
    return pull_report_failure(d->p, result, reply.status, printable(d->name), why);
}

// Locks the file: one process at a time downloads it. The lock is that of huggingface_hub.
static int pull_file_lock(const pull *p, const char *etag) {
    char path[MAX_PATH];
    const char *last = strrchr(p->dir, '/');
    int n = snprintf(path, sizeof path, "%.*s/.locks%s/%s.lock", (int)(last - p->dir), p->dir, last,
                     etag);
    if (n < 0 || (size_t)n >= sizeof path || !pull_make_directories(path)) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) pull_error("%s: cannot open: %s", printable(path), strerror(errno));
    bool told = p->quiet;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (!told)
            fprintf(stderr, "waiting for another process that is downloading the same file\n");
        told = true;
        pull_sleep(0.2);
        if (interrupted) {
            close(fd);
            return -1;
        }
    }
    return fd;
}

static bool download_fetch_blob(download *d, const char *blob, const char *url) {
    d->fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (d->fd < 0) return download_set_error(d, "cannot open %s: %s", d->path, strerror(errno));
    d->start_time = d->last_shown = seconds_now();
    bool ok = download_hash_existing(d) && download_fetch(d, url) && download_verify(d);
    if (ok && fsync(d->fd) != 0)
        ok = download_set_error(d, "cannot write %s: %s", d->path, strerror(errno));
    close(d->fd);
    if (ok && rename(d->path, blob) != 0)
        ok = download_set_error(d, "cannot rename %s: %s", d->path, strerror(errno));
    if (ok) download_print_progress(d, true);
    return ok;
}

// snapshots/COMMIT/a/b -> ../../../blobs/ETAG
static bool pull_file_link_snapshot(const pull *p, const char *name, const char *etag) {
    char path[MAX_PATH], to[MAX_PATH] = "../../", temporary[MAX_PATH + 16];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) strcat(to, "../");
    strcat(to, "blobs/");
    strcat(to, etag);
    int n = snprintf(path, sizeof path, "%s/snapshots/%s/%s", p->dir, p->commit, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return pull_error("%s: the path is too long", printable(name));
    if (!pull_make_directories(path)) return false;
    snprintf(temporary, sizeof temporary, "%s.%d.link", path, (int)getpid());
    unlink(temporary);
    if (symlink(to, temporary) == 0 && rename(temporary, path) == 0) return true;
    pull_error("%s: cannot make the link: %s", printable(path), strerror(errno));
    unlink(temporary);
    return false;
}

// Parses the ETag that names a blob: without quotes, and only of characters that are allowed in a file
// name.
static bool pull_file_parse_etag(const http_reply *reply, char out[160]) {
    const char *tag = *reply->linked_etag ? reply->linked_etag : reply->etag;
    if (strncmp(tag, "W/", 2) == 0) tag += 2;
    if (*tag == '"') tag++;
    size_t n = strcspn(tag, "\"");
    memcpy(out, tag, n);
    out[n] = '\0';
    return n > 0 && out[0] != '.' &&
           strspn(out, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") == n;
}

// Makes the URL of a file; reserved characters are written as %XX.
static bool pull_file_url(const pull *p, const char *name, char url[MAX_URL]) {
    static const char unreserved[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_./~";
    int n = snprintf(url, MAX_URL, "%s/%s/resolve/%s/", p->endpoint, p->name, p->commit);
    if (n < 0 || n > MAX_URL - 3100) return pull_error("%s: the address is too long", p->name);
    for (; *name; name++)
        n += snprintf(url + n, MAX_URL - (size_t)n, strchr(unreserved, *name) ? "%c" : "%%%02X",
                      (unsigned char)*name);
    return true;
}

static bool download_query_metadata(const pull *p, const pull_file *file, const char *url,
                                    download *d) {
    char why[256] = "", what[160];
    http_reply reply;
    snprintf(what, sizeof what, "%s", printable(file->name));
    http_request request = {.url = url, .head = true, .stop = pull_should_stop};
    http_result result = pull_send_with_retries(p, request, &reply, why, NULL);
    bool elsewhere = reply.status >= 301 && reply.status <= 308;
    if (result != HTTP_DONE || (reply.status != 200 && !elsewhere))
        return pull_report_failure(p, result, reply.status, what, why);
    if (*reply.commit && strcmp(reply.commit, p->commit) != 0)
        return pull_error("%s: %s: commit %s was asked for, and %s answers", p->name, what,
                          p->commit, printable(reply.commit));
    if (!pull_file_parse_etag(&reply, d->etag))
        return pull_error("%s: %s: it comes without an ETag that could name it", p->name, what);
    d->size = *reply.linked_etag ? reply.linked_size : reply.size;
    if (file->size >= 0 && d->size >= 0 && file->size != d->size)
        return pull_error("%s: %s: its size is %" PRId64 " in the list, and %" PRId64
                          " where it is stored",
                          p->name, what, file->size, d->size);
    if (d->size < 0) d->size = file->size;
    return true;
}

bool pull_fetch_file(const pull *p, const pull_file *file) {
    static char url[MAX_URL];
    download *d = calloc(1, sizeof *d);
    char blob[MAX_PATH];
    struct stat st;
    if (!d) return pull_error("out of memory");
    d->p = p;
    d->name = file->name;
    bool ok = pull_file_url(p, file->name, url) && download_query_metadata(p, file, url, d);
    if (ok) {
        int n = snprintf(blob, sizeof blob, "%s/blobs/%s", p->dir, d->etag);
        ok = n > 0 && (size_t)n < sizeof blob - 16 && pull_make_directories(blob);
        snprintf(d->path, sizeof d->path, "%.*s.incomplete", (int)sizeof d->path - 16, blob);
    }
    int held = ok ? pull_file_lock(p, d->etag) : -1;
    ok = ok && held >= 0;
    bool there =
        ok && stat(blob, &st) == 0 && S_ISREG(st.st_mode) && (d->size < 0 || st.st_size == d->size);
    if (ok && !there) ok = download_fetch_blob(d, blob, url);
    if (*d->error) pull_error("%s: %s: %s", p->name, printable(file->name), d->error);
    if (held >= 0) close(held);
    ok = ok && pull_file_link_snapshot(p, file->name, d->etag);
    free(d);
    return ok;
}
