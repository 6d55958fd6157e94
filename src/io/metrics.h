// metrics.jsonl: one JSON object a line, written during training and read for the plot.
#ifndef COTAN_IO_METRICS_H
#define COTAN_IO_METRICS_H

#include "base/error.h"

typedef struct ct_metric_field {
    const char *name;
    bool is_integer;
    int64_t integer;
    double real;      // nan and the infinities are written as the strings "nan", "inf", "-inf"
    const char *text; // if not NULL, this string is the value
} ct_metric_field;
#define CT_FIELD_INT(name, value) ((ct_metric_field){(name), true, (value), 0, NULL})
#define CT_FIELD_REAL(name, value) ((ct_metric_field){(name), false, 0, (value), NULL})
#define CT_FIELD_TEXT(name, text) ((ct_metric_field){(name), false, 0, 0, (text)})

typedef struct ct_metrics {
    char *path;
    int fd;
} ct_metrics;

// Creates a file or, to append, opens the old one and removes an incomplete last line, which a
// crash leaves.
bool ct__metrics_open(const char *path, bool append, ct_metrics *metrics, ct_err *err);
// Removes the lines of step `first` and later ones, and an incomplete last line. A missing file is
// no error.
bool ct__metrics_truncate(const char *path, int64_t first, ct_err *err);
bool ct__metrics_sync(const ct_metrics *metrics, ct_err *err); // flushes to disk
// Appends one line by a single write, so that readers see whole lines.
bool ct__metrics_add(ct_metrics *metrics, const ct_metric_field *fields, size_t n, ct_err *err);
// Rewrites the end of the last line: without its last field, if that has the name `without`, and
// with the field `with`; each may be NULL. A crash leaves the old line or the new one.
bool ct__metrics_amend(ct_metrics *metrics, const char *without, const ct_metric_field *with,
                       ct_err *err);
void ct__metrics_close(ct_metrics *metrics); // also after a failure

// Values of a curve by step. A plot has few columns of pixels: of more than CT_SERIES_MAX values,
// each point is the mean of consecutive values, at the first one's step.
typedef struct ct_series {
    double *x, *y; // steps and values
    size_t n;
    double last_step; // of the last value
    bool keep_all;    // makes every value a point, however many there are
    // Private: number of values in a point (0: 1), and in the last one so far.
    size_t cap, per_point, last_count;
} ct_series;
enum { CT_SERIES_MAX = 1 << 14 };

// Reads the value of names[i] and "step" from each line that has it into series[i], which is empty
// ({0}, or keep_all). An incomplete last line is ignored.
bool ct__metrics_read(const char *path, const char *const *names, size_t n, ct_series *series,
                      ct_err *err);
// Does the same for the lines before step `first`. A missing file is no error.
bool ct__metrics_read_before(const char *path, int64_t first, const char *const *names, size_t n,
                             ct_series *series, ct_err *err);
bool ct__series_add(ct_series *series, double x, double y); // false without memory
uint64_t ct__series_bytes(int64_t values); // the most memory that so many values take
void ct__series_free(ct_series *series);

#endif
