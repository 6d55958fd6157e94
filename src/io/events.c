// A record is a length, a checksum of it, one message of protocol buffers and a checksum of that.
// Four messages of nine fields are written and none is read, so they are put together here
// (docs/design/files.md says why no library does it).
#define _GNU_SOURCE
#include "io/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "io/crc32c.h"

// The checksum as it is stored: turned and shifted, so that checksums of checksums stay good.
static uint32_t masked(const void *bytes, size_t n) {
    uint32_t crc = ct__crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// ---------------------------------------------------------------------------------------- messages

// Field numbers of Event, of Summary and Summary.Value, of SessionLog, and the wire types of
// protocol buffers.
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { VALUE = 1, TAG = 1, SIMPLE_VALUE = 2, STATUS = 1, START = 1 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_fixed(ct_text *out, uint64_t value, int bytes) {
    char little[8];
    for (int i = 0; i < bytes; i++) little[i] = (char)(value >> 8 * i);
    ct__text_bytes(out, little, (size_t)bytes);
}

static void put_varint(ct_text *out, uint64_t value) {
    for (; value > 127; value >>= 7) put_fixed(out, (value & 127) | 128, 1);
    put_fixed(out, value, 1);
}

static void put_key(ct_text *out, int field, int wire) {
    put_varint(out, (uint64_t)(field << 3 | wire));
}

static void put_bytes(ct_text *out, int field, const void *bytes, size_t n) {
    put_key(out, field, BYTES);
    put_varint(out, n);
    ct__text_bytes(out, bytes, n);
}

static void put_double(ct_text *out, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, FIXED64);
    put_fixed(out, bits, 8);
}

static void put_float(ct_text *out, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, FIXED32);
    put_fixed(out, bits, 4);
}

static void put_scalar(ct_text *summary, const ct_scalar_event *s) {
    ct_text value = {0};
    put_bytes(&value, TAG, s->tag, strlen(s->tag));
    put_float(&value, SIMPLE_VALUE, (float)s->value);
    put_bytes(summary, VALUE, value.s, value.n);
    summary->failed = summary->failed || value.failed;
    ct__text_free(&value);
}

// ----------------------------------------------------------------------------------------- records

static bool put_record(ct_events *events, const ct_text *message, ct_err *err) {
    ct_text record = {0};
    put_fixed(&record, message->n, 8);
    if (!record.failed) put_fixed(&record, masked(record.s, 8), 4);
    ct__text_bytes(&record, message->s, message->n);
    put_fixed(&record, masked(message->s, message->n), 4);
    bool ok = (!record.failed && !message->failed) ||
              ct__err_memory(err, CT_NOWHERE, events->path, record.cap * 2);
    for (size_t done = 0; ok && done < record.n;) {
        ssize_t w = write(events->fd, record.s + done, record.n - done);
        if (w >= 0)
            done += (size_t)w;
        else if (errno != EINTR)
            ok = ct__err_system(err, events->path, "write");
    }
    ct__text_free(&record);
    return ok;
}

static double wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Of the name of the host, what a file's name can hold.
static void host_name(char *out, size_t cap) {
    if (gethostname(out, cap) != 0) strcpy(out, "host");
    out[cap - 1] = '\0';
    for (char *p = out; *p; p++)
        if (*p == '/' || *p < ' ') *p = '_';
}

// The first number that no file bears: two runs may start in one second.
static bool create(const char *folder, ct_events *events, ct_err *err) {
    char host[256];
    host_name(host, sizeof host);
    for (int number = 0;; number++) {
        ct_text path = {0};
        ct__textf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)time(NULL),
                  host, (long)getpid(), number);
        if (path.failed) {
            ct__text_free(&path);
            return ct__err_memory(err, CT_NOWHERE, folder, path.cap * 2);
        }
        events->path = path.s;
        events->fd = open(path.s, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (events->fd >= 0) return true;
        if (errno != EEXIST) return ct__err_system(err, events->path, "create");
        ct__free(events->path);
        events->path = NULL;
    }
}

static void put_beginning(ct_text *message, int64_t step) {
    put_double(message, WALL_TIME, wall_time());
    if (step) put_key(message, STEP, VARINT);
    if (step) put_varint(message, (uint64_t)step);
}

bool ct__events_open(const char *folder, int64_t step, ct_events *events, ct_err *err) {
    static const char version[] = "brain.Event:2";
    ct_text first = {0}, session = {0}, start = {0};
    *events = (ct_events){.fd = -1};
    put_beginning(&first, 0);
    put_bytes(&first, FILE_VERSION, version, strlen(version));
    put_key(&start, STATUS, VARINT);
    put_varint(&start, START);
    put_beginning(&session, step);
    put_bytes(&session, SESSION_LOG, start.s, start.n);
    session.failed = session.failed || start.failed;
    bool ok = ct__make_dirs(folder, 0777, err) && create(folder, events, err) &&
              put_record(events, &first, err) && (step == 0 || put_record(events, &session, err));
    ct__text_free(&first);
    ct__text_free(&session);
    ct__text_free(&start);
    if (!ok) ct__events_close(events);
    return ok;
}

bool ct__events_add(ct_events *events, int64_t step, const ct_scalar_event *scalars, size_t n,
                    ct_err *err) {
    ct_text message = {0}, summary = {0};
    for (size_t i = 0; i < n; i++) put_scalar(&summary, &scalars[i]);
    put_beginning(&message, step);
    put_bytes(&message, SUMMARY, summary.s, summary.n);
    message.failed = message.failed || summary.failed;
    bool ok = put_record(events, &message, err);
    ct__text_free(&message);
    ct__text_free(&summary);
    return ok;
}

void ct__events_close(ct_events *events) {
    if (events->fd >= 0) close(events->fd);
    ct__free(events->path);
    *events = (ct_events){.fd = -1};
}
