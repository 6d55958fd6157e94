// TensorBoard's event files: scalars by step, in a file that grows by one record at a time.
#ifndef COTAN_IO_EVENTS_H
#define COTAN_IO_EVENTS_H

#include "base/error.h"

typedef struct ct_events {
    char *path;
    int fd;
} ct_events;

typedef struct ct_scalar_event {
    const char *tag;
    double value; // stored as f32, as everyone does
} ct_scalar_event;

// A new file in `folder`, named by time, host and process: a run that is resumed gets another one
// beside the old, which TensorBoard reads as one run. Where it is resumed at a step behind the
// first, TensorBoard is told to forget what older files say of that step and those behind it.
bool ct__events_open(const char *folder, int64_t step, ct_events *events, ct_err *err);
// One record, handed to the system at once, so that readers see whole records.
bool ct__events_add(ct_events *events, int64_t step, const ct_scalar_event *scalars, size_t n,
                    ct_err *err);
void ct__events_close(ct_events *events); // also after a failure

#endif
