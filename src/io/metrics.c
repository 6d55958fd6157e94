#define _GNU_SOURCE
#include "io/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "io/json.h"

static bool fail(const ct_metrics *metrics, const char *what, ct_err *err) {
    return ct__err(err, CT_E_FILE, CT_NOWHERE, metrics->path, "cannot %s: %s", what,
                   strerror(errno));
}

// Cuts the file behind its last '\n'.
static bool drop_torn_line(const ct_metrics *metrics, ct_err *err) {
    char part[4096];
    off_t end = lseek(metrics->fd, 0, SEEK_END);
    if (end < 0) return fail(metrics, "seek", err);
    while (end > 0) {
        off_t begin = end > (off_t)sizeof part ? end - (off_t)sizeof part : 0;
        ssize_t r = pread(metrics->fd, part, (size_t)(end - begin), begin);
        if (r < 0 && errno == EINTR) continue;
        if (r != end - begin) return fail(metrics, "read", err);
        const char *newline = memrchr(part, '\n', (size_t)r);
        if (newline) {
            end = begin + (newline - part) + 1;
            break;
        }
        end = begin;
    }
    return ftruncate(metrics->fd, end) == 0 || fail(metrics, "cut", err);
}

bool ct__metrics_open(const char *path, bool append, ct_metrics *metrics, ct_err *err) {
    *metrics = (ct_metrics){.path = ct__strdup(path), .fd = -1};
    if (!metrics->path) return ct__err_memory(err, CT_NOWHERE, path, strlen(path) + 1);
    metrics->fd =
        open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
    bool ok = metrics->fd >= 0 || fail(metrics, "open", err);
    ok = ok && (!append || drop_torn_line(metrics, err));
    if (!ok) ct__metrics_close(metrics);
    return ok;
}

static void put_field(ct_text *line, const ct_metric_field *field) {
    ct__json_string(line, field->name, strlen(field->name));
    ct__text_add(line, ": ");
    if (field->text)
        ct__json_string(line, field->text, strlen(field->text));
    else if (field->is_integer)
        ct__textf(line, "%" PRId64, field->integer);
    else
        ct__json_real(line, field->real);
}

bool ct__metrics_add(ct_metrics *metrics, const ct_metric_field *fields, size_t n, ct_err *err) {
    ct_text line = {0};
    ct__text_add(&line, "{");
    for (size_t i = 0; i < n; i++) {
        if (i) ct__text_add(&line, ", ");
        put_field(&line, &fields[i]);
    }
    ct__text_add(&line, "}\n");
    bool ok = !line.failed || ct__err_memory(err, CT_NOWHERE, metrics->path, line.cap * 2);
    for (size_t done = 0; ok && done < line.n;) {
        ssize_t w = write(metrics->fd, line.s + done, line.n - done);
        if (w >= 0)
            done += (size_t)w;
        else if (errno != EINTR)
            ok = fail(metrics, "write", err);
    }
    ct_err torn = {0}; // a part of a line would be one with the next; it goes, if it can
    if (!ok) (void)!drop_torn_line(metrics, &torn);
    ct__text_free(&line);
    return ok;
}

// The file anew: its first `keep` bytes, then the text.
static bool replace_end(ct_metrics *metrics, off_t keep, const ct_text *text, ct_err *err) {
    char part[4096];
    ct_atomic file;
    bool ok = ct__atomic_begin(&file, metrics->path, 0, err);
    for (off_t at = 0; ok && at < keep;) {
        size_t most = keep - at < (off_t)sizeof part ? (size_t)(keep - at) : sizeof part;
        ssize_t r = pread(metrics->fd, part, most, at);
        if (r < 0 && errno == EINTR) continue;
        ok = r > 0 ? ct__atomic_put(&file, part, (size_t)r, err) : fail(metrics, "read", err);
        at += r;
    }
    ok = ok && ct__atomic_put(&file, text->s, text->n, err) && ct__atomic_commit(&file, err);
    if (!ok) {
        ct__atomic_abandon(&file);
        return false;
    }
    int fd = open(metrics->path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0) return fail(metrics, "open", err);
    close(metrics->fd);
    metrics->fd = fd;
    return true;
}

// Where the field stands, with the comma before it, if it is the last one before the brace.
static const char *last_field(const char *text, const char *brace, const char *name) {
    const char *comma = memrchr(text, ',', (size_t)(brace - text));
    size_t n = strlen(name);
    if (!comma || (size_t)(brace - comma) < n + 5) return NULL; // `, "name": `
    return memcmp(comma, ", \"", 3) == 0 && memcmp(comma + 3, name, n) == 0 && comma[3 + n] == '"'
               ? comma
               : NULL;
}

bool ct__metrics_amend(ct_metrics *metrics, const char *without, const ct_metric_field *with,
                       ct_err *err) {
    char part[4096];
    ct_text text = {0};
    off_t end = lseek(metrics->fd, 0, SEEK_END);
    if (end < 0) return fail(metrics, "seek", err);
    off_t begin = end > (off_t)sizeof part ? end - (off_t)sizeof part : 0;
    ssize_t r = pread(metrics->fd, part, (size_t)(end - begin), begin);
    if (r != end - begin) return fail(metrics, "read", err);
    const char *brace = memrchr(part, '}', (size_t)r);
    const char *gone = brace && without ? last_field(part, brace, without) : NULL;
    if (!brace || (!gone && !with)) return true;
    if (with) {
        ct__text_add(&text, ", ");
        put_field(&text, with);
    }
    ct__text_add(&text, "}\n");
    bool ok = text.failed
                  ? ct__err_memory(err, CT_NOWHERE, metrics->path, text.cap * 2)
                  : replace_end(metrics, begin + ((gone ? gone : brace) - part), &text, err);
    ct__text_free(&text);
    return ok;
}

void ct__metrics_close(ct_metrics *metrics) {
    if (metrics->fd >= 0) close(metrics->fd);
    ct__free(metrics->path);
    *metrics = (ct_metrics){.fd = -1};
}

// ------------------------------------------------------------------------------------------
// reading

bool ct__series_add(ct_series *series, double x, double y) {
    size_t cap = series->cap; // both arrays grow alike
    if (!CT_GROW(series->x, cap, series->n + 1)) return false;
    cap = series->cap;
    if (!CT_GROW(series->y, cap, series->n + 1)) return false;
    series->cap = cap;
    series->x[series->n] = x;
    series->y[series->n++] = y;
    return true;
}

void ct__series_free(ct_series *series) {
    ct__free(series->x);
    ct__free(series->y);
    *series = (ct_series){0};
}

// A number, or one of the three words.
static bool real_of(const json_t *value, double *out) {
    const char *word = json_string_value(value);
    if (json_is_number(value))
        *out = json_number_value(value);
    else if (word && strcmp(word, "nan") == 0)
        *out = NAN;
    else if (word && strcmp(word, "inf") == 0)
        *out = INFINITY;
    else if (word && strcmp(word, "-inf") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

static bool read_line(const char *path, size_t number, const json_t *line, const char *const *names,
                      size_t n, ct_series *series, ct_err *err) {
    double value;
    const json_t *at = json_object_get(line, "step"); // NULL where the line is no object
    if (!json_is_number(at))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu has no number \"step\"",
                       number);
    for (size_t i = 0; i < n; i++) {
        const json_t *found = json_object_get(line, names[i]);
        if (!found) continue;
        if (!real_of(found, &value))
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu: \"%s\" is no number",
                           number, names[i]);
        if (!ct__series_add(&series[i], json_number_value(at), value))
            return ct__err_memory(err, CT_NOWHERE, path, series[i].cap * 2 * sizeof value);
    }
    return true;
}

static bool read_lines(const char *path, char *text, size_t size, const char *const *names,
                       size_t n, ct_series *series, ct_err *err) {
    size_t number = 1;
    bool ok = true;
    for (char *at = text, *end; ok && (end = memchr(at, '\n', size - (size_t)(at - text)));
         at = end + 1, number++) {
        json_error_t fault;
        json_t *line = ct__json_read(at, (size_t)(end - at), 0, &fault);
        ok = line ? read_line(path, number, line, names, n, series, err)
                  : ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu is not a JSON object",
                            number);
        json_decref(line);
    }
    for (size_t i = 0; i < n && !ok; i++) ct__series_free(&series[i]);
    return ok;
}

bool ct__metrics_read(const char *path, const char *const *names, size_t n, ct_series *series,
                      ct_err *err) {
    char *text;
    size_t size;
    for (size_t i = 0; i < n; i++) series[i] = (ct_series){0};
    if (!ct__file_read(path, &text, &size, err)) return false;
    bool ok = read_lines(path, text, size, names, n, series, err);
    ct__free(text);
    return ok;
}

// ------------------------------------------------------------------------------------------
// resuming

// How many bytes the lines before step `first` take.
static bool lines_before(const char *path, const char *text, size_t n, int64_t first, size_t *keep,
                         ct_err *err) {
    size_t number = 1;
    const char *at = text, *end;
    for (*keep = 0; (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1, number++) {
        json_error_t fault;
        json_t *line = ct__json_read(at, (size_t)(end - at), 0, &fault);
        const json_t *step = json_object_get(line, "step");
        bool known = json_is_integer(step), earlier = known && json_integer_value(step) < first;
        json_decref(line);
        if (!known) {
            ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu has no whole number \"step\"",
                    number);
            ct__err_hint(err, "move the file away to go on without it");
            return false;
        }
        if (!earlier) break;
        *keep = (size_t)(end + 1 - text);
    }
    return true;
}

bool ct__metrics_read_before(const char *path, int64_t first, const char *const *names, size_t n,
                             ct_series *series, ct_err *err) {
    char *text;
    size_t size, keep = 0;
    for (size_t i = 0; i < n; i++) series[i] = (ct_series){0};
    if (access(path, F_OK) != 0 && errno == ENOENT) return true;
    if (!ct__file_read(path, &text, &size, err)) return false;
    bool ok = lines_before(path, text, size, first, &keep, err) &&
              read_lines(path, text, keep, names, n, series, err);
    ct__free(text);
    return ok;
}

bool ct__metrics_cut(const char *path, int64_t first, ct_err *err) {
    char *text;
    size_t n, keep = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return true;
    if (!ct__file_read(path, &text, &n, err)) return false;
    bool ok = lines_before(path, text, n, first, &keep, err);
    ct__free(text);
    if (!ok || keep == n) return ok;
    ct_metrics metrics = {.path = (char *)(uintptr_t)path, .fd = open(path, O_WRONLY | O_CLOEXEC)};
    if (metrics.fd < 0) return fail(&metrics, "open", err);
    ok = ftruncate(metrics.fd, (off_t)keep) == 0 || fail(&metrics, "cut", err);
    ok = ok && ct__metrics_sync(&metrics, err);
    close(metrics.fd);
    return ok;
}

bool ct__metrics_sync(const ct_metrics *metrics, ct_err *err) {
    return fsync(metrics->fd) == 0 || errno == EINVAL || fail(metrics, "sync", err);
}
