// metrics.jsonl: one JSON object a line, written as training goes and read for the plot.
#ifndef COTAN_IO_METRICS_H
#define COTAN_IO_METRICS_H

#include "base/error.h"

typedef struct ct_metric_field {
    const char *name;
    bool is_integer;
    int64_t integer;
    double real;      // nan and the infinities are written as the strings "nan", "inf", "-inf"
    const char *text; // instead of a number, where not NULL
} ct_metric_field;
#define CT_FIELD_INT(name, value) ((ct_metric_field){(name), true, (value), 0, NULL})
#define CT_FIELD_REAL(name, value) ((ct_metric_field){(name), false, 0, (value), NULL})
#define CT_FIELD_TEXT(name, text) ((ct_metric_field){(name), false, 0, 0, (text)})

typedef struct ct_metrics {
    char *path;
    int fd;
} ct_metrics;

// A new file, or, to append, the old one without a last line that a crash left incomplete.
bool ct__metrics_open(const char *path, bool append, ct_metrics *metrics, ct_err *err);
// Drops the lines of step `first` and later ones, and a line that a crash left incomplete. No file
// is no error.
bool ct__metrics_cut(const char *path, int64_t first, ct_err *err);
bool ct__metrics_sync(const ct_metrics *metrics, ct_err *err); // forced to disk
// One line, handed to the system at once, so that readers see whole lines.
bool ct__metrics_add(ct_metrics *metrics, const ct_metric_field *fields, size_t n, ct_err *err);
// The end of the last line anew: without the field of that name, if it stands there, and with this
// one; each may be NULL. A process that dies leaves the old line or the new one.
bool ct__metrics_amend(ct_metrics *metrics, const char *without, const ct_metric_field *with,
                       ct_err *err);
void ct__metrics_close(ct_metrics *metrics); // also after a failure

// For a curve, which has few columns of pixels: where there are more values than CT_SERIES_MOST,
// a point is the mean of as many neighbours as it takes, at the first one's step.
typedef struct ct_series {
    double *x, *y; // steps and values
    size_t n;
    double newest;          // step
    bool whole;             // every value is a point, however many there are
    size_t cap, each, last; // private: values of a point (0: 1), and of the last one so far
} ct_series;
enum { CT_SERIES_MOST = 1 << 14 };

// Of each line that has it, the value of names[i] and the line's "step" into series[i], which is
// empty ({0}, or whole). An incomplete last line is left out.
bool ct__metrics_read(const char *path, const char *const *names, size_t n, ct_series *series,
                      ct_err *err);
// Of the lines before step `first` alone. No file is no error.
bool ct__metrics_read_before(const char *path, int64_t first, const char *const *names, size_t n,
                             ct_series *series, ct_err *err);
bool ct__series_add(ct_series *series, double x, double y); // false: no memory
uint64_t ct__series_bytes(int64_t values);                  // of memory, of so many, at the most
void ct__series_free(ct_series *series);

#endif
