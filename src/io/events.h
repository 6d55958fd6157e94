// TensorBoard's event files: scalars by step. A file grows by one record at a time.
#ifndef COTAN_IO_EVENTS_H
#define COTAN_IO_EVENTS_H

#include "base/error.h"

typedef struct ct_events {
    char *path;
    int fd;
} ct_events;

typedef struct ct_scalar_event {
    const char *tag;
    double value; // stored as f32, as in other writers
} ct_scalar_event;

// Creates a file in `folder`, named by time, host and process. A resumed run gets another file
// beside the old one; TensorBoard reads both as one run. If it is resumed at a step after the
// first, a record makes TensorBoard drop what older files have for that step and later ones.
bool ct__events_open(const char *folder, int64_t step, ct_events *events, ct_err *err);
// Appends one record by a single write, so that readers see whole records.
bool ct__events_add(ct_events *events, int64_t step, const ct_scalar_event *scalars, size_t n,
                    ct_err *err);
void ct__events_close(ct_events *events); // also after a failure

#endif
