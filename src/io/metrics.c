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
#include "base/fp_env.h"
#include "base/text.h"
#include "io/json.h"

// Truncates the file after its last '\n'.
static bool metrics_drop_partial_line(const ct_metrics *metrics, ct_err *err) {
    char part[4096];
    off_t end = lseek(metrics->fd, 0, SEEK_END);
    if (end < 0) return ct__err_system(err, metrics->path, "seek");
    while (end > 0) {
        off_t begin = end > (off_t)sizeof part ? end - (off_t)sizeof part : 0;
        ssize_t r = pread(metrics->fd, part, (size_t)(end - begin), begin);
        if (r < 0 && errno == EINTR) continue;
        if (r != end - begin) return ct__err_system(err, metrics->path, "read");
        const char *newline = memrchr(part, '\n', (size_t)r);
        if (newline) {
            end = begin + (newline - part) + 1;
            break;
        }
        end = begin;
    }
    return ftruncate(metrics->fd, end) == 0 || ct__err_system(err, metrics->path, "cut");
}

bool ct__metrics_open(const char *path, bool append, ct_metrics *metrics, ct_err *err) {
    *metrics = (ct_metrics){.path = ct__strdup(path), .fd = -1};
    if (!metrics->path) return ct__err_memory(err, CT_NOWHERE, path, strlen(path) + 1);
    metrics->fd =
        open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
    bool ok = metrics->fd >= 0 || ct__err_system(err, metrics->path, "open");
    ok = ok && (!append || metrics_drop_partial_line(metrics, err));
    if (!ok) ct__metrics_close(metrics);
    return ok;
}

static void metrics_put_field(ct_text *line, const ct_metric_field *field) {
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
        metrics_put_field(&line, &fields[i]);
    }
    ct__text_add(&line, "}\n");
    bool ok = !line.failed || ct__err_memory(err, CT_NOWHERE, metrics->path, line.cap * 2);
    for (size_t done = 0; ok && done < line.n;) {
        ssize_t w = write(metrics->fd, line.s + done, line.n - done);
        if (w >= 0)
            done += (size_t)w;
        else if (errno != EINTR)
            ok = ct__err_system(err, metrics->path, "write");
    }
    ct_err ignored = {0}; // the next line would be appended to a partial one, so that is removed
    if (!ok) (void)!metrics_drop_partial_line(metrics, &ignored);
    ct__text_free(&line);
    return ok;
}

// Replaces the file by its first `keep` bytes followed by the text.
static bool metrics_replace_end(ct_metrics *metrics, off_t keep, const ct_text *text, ct_err *err) {
    char part[4096];
    ct_atomic_file file;
    bool ok = ct__atomic_file_begin(&file, metrics->path, 0, err);
    for (off_t at = 0; ok && at < keep;) {
        size_t wanted = keep - at < (off_t)sizeof part ? (size_t)(keep - at) : sizeof part;
        ssize_t r = pread(metrics->fd, part, wanted, at);
        if (r < 0 && errno == EINTR) continue;
        ok = r > 0 ? ct__atomic_file_write(&file, part, (size_t)r, err)
                   : ct__err_system(err, metrics->path, "read");
        at += r;
    }
    ok = ok && ct__atomic_file_write(&file, text->s, text->n, err) &&
         ct__atomic_file_commit(&file, err);
    if (!ok) {
        ct__atomic_file_abandon(&file);
        return false;
    }
    int fd = open(metrics->path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0) return ct__err_system(err, metrics->path, "open");
    close(metrics->fd);
    metrics->fd = fd;
    return true;
}

// Returns the start of the field, with the comma before it, if it is the last one before the brace.
static const char *metrics_find_last_field(const char *text, const char *brace, const char *name) {
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
    CT_TEXT text = {0};
    off_t end = lseek(metrics->fd, 0, SEEK_END);
    if (end < 0) return ct__err_system(err, metrics->path, "seek");
    off_t begin = end > (off_t)sizeof part ? end - (off_t)sizeof part : 0;
    ssize_t r;
    do r = pread(metrics->fd, part, (size_t)(end - begin), begin);
    while (r < 0 && errno == EINTR);
    if (r != end - begin) return ct__err_system(err, metrics->path, "read");
    const char *brace = memrchr(part, '}', (size_t)r);
    const char *gone = brace && without ? metrics_find_last_field(part, brace, without) : NULL;
    if (!brace || (!gone && !with)) return true;
    if (with) {
        ct__text_add(&text, ", ");
        metrics_put_field(&text, with);
    }
    ct__text_add(&text, "}\n");
    return text.failed
               ? ct__err_memory(err, CT_NOWHERE, metrics->path, text.cap * 2)
               : metrics_replace_end(metrics, begin + ((gone ? gone : brace) - part), &text, err);
}

void ct__metrics_close(ct_metrics *metrics) {
    if (metrics->fd >= 0) close(metrics->fd);
    ct__free(metrics->path);
    *metrics = (ct_metrics){.fd = -1};
}

// ----------------------------------------------------------------------------------------- reading

static void series_merge_pairs(ct_series *s) {
    for (size_t i = 0; i < s->n / 2; i++) {
        s->x[i] = s->x[2 * i];
        s->y[i] = s->y[2 * i] / 2 + s->y[2 * i + 1] / 2;
    }
    s->n /= 2;
    s->per_point = s->per_point ? 2 * s->per_point : 2;
}

bool ct__series_add(ct_series *series, double x, double y) {
    CT_DEFAULT_ENV;
    series->last_step = x;
    if (series->last_count < series->per_point) {
        double *mean = &series->y[series->n - 1];
        *mean += (y - *mean) / (double)++series->last_count;
        return true;
    }
    if (series->n == CT_SERIES_MAX && !series->keep_all) series_merge_pairs(series);
    size_t cap = series->cap; // both arrays have the same capacity
    if (!CT_GROW(series->x, cap, series->n + 1)) return false;
    cap = series->cap;
    if (!CT_GROW(series->y, cap, series->n + 1)) return false;
    series->cap = cap;
    series->x[series->n] = x;
    series->y[series->n++] = y;
    series->last_count = 1;
    return true;
}

uint64_t ct__series_bytes(int64_t values) {
    uint64_t cap = 16; // as in CT_GROW
    while (cap < CT_SERIES_MAX && cap < (uint64_t)values) cap *= 2;
    return cap * (sizeof *((ct_series *)0)->x + sizeof *((ct_series *)0)->y);
}

void ct__series_free(ct_series *series) {
    ct__free(series->x);
    ct__free(series->y);
    *series = (ct_series){0};
}

// Parses a number, or "nan", "inf" or "-inf".
static bool metrics_parse_real(const json_t *value, double *out) {
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

static bool metrics_read_line(const char *path, size_t number, const json_t *line,
                              const char *const *names, size_t n, ct_series *series, ct_err *err) {
    double value;
    const json_t *at = json_object_get(line, "step"); // NULL if the line is not an object
    if (!json_is_number(at))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu has no number \"step\"",
                       number);
    for (size_t i = 0; i < n; i++) {
        const json_t *found = json_object_get(line, names[i]);
        if (!found) continue;
        if (!metrics_parse_real(found, &value))
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu: \"%s\" is no number",
                           number, names[i]);
        if (!ct__series_add(&series[i], json_number_value(at), value))
            return ct__err_memory(err, CT_NOWHERE, path, series[i].cap * 2 * sizeof value);
    }
    return true;
}

// Reads a file line by line: all lines of a long run take more memory than its training.
typedef struct line_reader {
    const char *path;
    int fd;
    size_t bytes; // of the file, when it was opened
    char *buffer; // (cap) its bytes from `begin` to `end` are read and not returned yet
    size_t cap, begin, end;
    size_t number, line_end; // of the last line, from 1; offset of that line's end in the file
} line_reader;
enum { READ_BYTES = 1 << 16 };

static bool metrics_open_lines(const char *path, line_reader *l, ct_err *err) {
    *l = (line_reader){.path = path};
    l->fd = ct__file_open(path, &l->bytes, err);
    return l->fd >= 0;
}
static void metrics_close_lines(line_reader *l) {
    close(l->fd);
    ct__free(l->buffer);
}

// Moves the remaining bytes to the front and reads more after them. `got` is 0 at the end of the
// file.
static bool metrics_fill_buffer(line_reader *l, size_t *got, ct_err *err) {
    if (l->begin) memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    if (!CT_GROW(l->buffer, l->cap, l->end + READ_BYTES))
        return ct__err_memory(err, CT_NOWHERE, l->path, l->end + READ_BYTES);
    ssize_t r;
    do r = read(l->fd, l->buffer + l->end, l->cap - l->end);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, l->path, "cannot read: %s", strerror(errno));
    *got = (size_t)r;
    l->end += *got;
    return true;
}

// Returns the next complete line, without its '\n'; *text is NULL after the last one.
static bool metrics_next_line(line_reader *l, const char **text, size_t *n, ct_err *err) {
    for (size_t seen = 0, got = 1; got;) {
        const char *from = l->buffer + l->begin;
        const char *newline =
            l->buffer ? memchr(from + seen, '\n', l->end - l->begin - seen) : NULL;
        if (newline) {
            *text = from;
            *n = (size_t)(newline - from);
            l->begin += *n + 1;
            l->line_end += *n + 1;
            l->number++;
            return true;
        }
        seen = l->end - l->begin;
        if (!metrics_fill_buffer(l, &got, err)) return false;
    }
    *text = NULL;
    return true;
}

// Reads the lines that end within the first `limit` bytes.
static bool metrics_read_lines(const char *path, size_t limit, const char *const *names, size_t n,
                               ct_series *series, ct_err *err) {
    line_reader l;
    const char *text = NULL;
    size_t length;
    if (!metrics_open_lines(path, &l, err)) return false;
    bool ok = true;
    while (ok && (ok = metrics_next_line(&l, &text, &length, err)) && text && l.line_end <= limit) {
        json_error_t fault;
        json_t *line = ct__json_read(text, length, 0, &fault);
        ok = line ? metrics_read_line(path, l.number, line, names, n, series, err)
                  : ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "line %zu is not a JSON object",
                            l.number);
        json_decref(line);
    }
    metrics_close_lines(&l);
    for (size_t i = 0; i < n && !ok; i++) ct__series_free(&series[i]);
    return ok;
}

bool ct__metrics_read(const char *path, const char *const *names, size_t n, ct_series *series,
                      ct_err *err) {
    return metrics_read_lines(path, SIZE_MAX, names, n, series, err);
}

// ---------------------------------------------------------------------------------------- resuming

// True if the last line read is of a step before `first`. False with an error if it has no step.
static bool metrics_is_before(const line_reader *l, const char *text, size_t n, int64_t first,
                              ct_err *err) {
    json_error_t fault;
    json_t *line = ct__json_read(text, n, 0, &fault);
    const json_t *step = json_object_get(line, "step");
    bool known = json_is_integer(step), earlier = known && json_integer_value(step) < first;
    json_decref(line);
    if (known) return earlier;
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, l->path, "line %zu has no whole number \"step\"",
            l->number);
    return ct__err_hint(err, "move the file away to continue without it");
}

// Computes the size in bytes of the lines before step `first`.
static bool metrics_measure_before(const char *path, int64_t first, size_t *keep, size_t *bytes,
                                   ct_err *err) {
    line_reader l;
    const char *text;
    size_t n;
    *keep = 0;
    if (!metrics_open_lines(path, &l, err)) return false;
    while (metrics_next_line(&l, &text, &n, err) && text &&
           metrics_is_before(&l, text, n, first, err))
        *keep = l.line_end;
    *bytes = l.bytes;
    metrics_close_lines(&l);
    return !err->code;
}

static bool metrics_is_missing(const char *path) {
    return access(path, F_OK) != 0 && errno == ENOENT;
}

bool ct__metrics_read_before(const char *path, int64_t first, const char *const *names, size_t n,
                             ct_series *series, ct_err *err) {
    size_t keep, bytes;
    return metrics_is_missing(path) || (metrics_measure_before(path, first, &keep, &bytes, err) &&
                                        metrics_read_lines(path, keep, names, n, series, err));
}

bool ct__metrics_truncate(const char *path, int64_t first, ct_err *err) {
    size_t keep, bytes;
    if (metrics_is_missing(path)) return true;
    if (!metrics_measure_before(path, first, &keep, &bytes, err)) return false;
    if (keep == bytes) return true;
    ct_metrics metrics = {.path = (char *)(uintptr_t)path, .fd = open(path, O_WRONLY | O_CLOEXEC)};
    if (metrics.fd < 0) return ct__err_system(err, metrics.path, "open");
    bool ok = ftruncate(metrics.fd, (off_t)keep) == 0 || ct__err_system(err, metrics.path, "cut");
    ok = ok && ct__metrics_sync(&metrics, err);
    close(metrics.fd);
    return ok;
}

bool ct__metrics_sync(const ct_metrics *metrics, ct_err *err) {
    return fsync(metrics->fd) == 0 || errno == EINVAL || ct__err_system(err, metrics->path, "sync");
}
