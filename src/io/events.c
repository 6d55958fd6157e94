// A record is a length, its checksum, one protocol buffers message and its checksum. Only four
// messages of nine fields are written, and none is read, so they are encoded here
// (docs/design/files.md explains why no library is used).
#define _GNU_SOURCE
#include "io/events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "io/crc32c.h"

// Masks a checksum as the format requires, by rotation and an offset: a CRC over bytes that contain
// their own CRC would be weak.
static uint32_t events_mask_crc(const void *bytes, size_t n) {
    uint32_t crc = ct__crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// ---------------------------------------------------------------------------------------- messages

// Field numbers of Event, of Summary and Summary.Value, of SessionLog, and the wire types of
// protocol buffers.
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { VALUE = 1, TAG = 1, SIMPLE_VALUE = 2, STATUS = 1, START = 1 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void events_put_fixed(ct_text *out, uint64_t value, int bytes) {
    char little[8];
    for (int i = 0; i < bytes; i++) little[i] = (char)(value >> 8 * i);
    ct__text_bytes(out, little, (size_t)bytes);
}

static void events_put_varint(ct_text *out, uint64_t value) {
    for (; value > 127; value >>= 7) events_put_fixed(out, (value & 127) | 128, 1);
    events_put_fixed(out, value, 1);
}

static void events_put_key(ct_text *out, int field, int wire) {
    events_put_varint(out, (uint64_t)(field << 3 | wire));
}

static void events_put_bytes(ct_text *out, int field, const void *bytes, size_t n) {
    events_put_key(out, field, BYTES);
    events_put_varint(out, n);
    ct__text_bytes(out, bytes, n);
}

static void events_put_double(ct_text *out, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    events_put_key(out, field, FIXED64);
    events_put_fixed(out, bits, 8);
}

static void events_put_float(ct_text *out, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    events_put_key(out, field, FIXED32);
    events_put_fixed(out, bits, 4);
}

static void events_put_scalar(ct_text *summary, const ct_scalar_event *s) {
    CT_TEXT value = {0};
    events_put_bytes(&value, TAG, s->tag, strlen(s->tag));
    events_put_float(&value, SIMPLE_VALUE, (float)s->value);
    events_put_bytes(summary, VALUE, value.s, value.n);
    summary->failed = summary->failed || value.failed;
}

// ----------------------------------------------------------------------------------------- records

static bool events_put_record(ct_events *events, const ct_text *message, ct_err *err) {
    ct_text record = {0};
    events_put_fixed(&record, message->n, 8);
    if (!record.failed) events_put_fixed(&record, events_mask_crc(record.s, 8), 4);
    ct__text_bytes(&record, message->s, message->n);
    events_put_fixed(&record, events_mask_crc(message->s, message->n), 4);
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

static double events_wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Returns the host's name with characters that a file's name may contain.
static void events_host_name(char *out, size_t cap) {
    if (gethostname(out, cap) != 0) strcpy(out, "host");
    out[cap - 1] = '\0';
    for (char *p = out; *p; p++)
        if (*p == '/' || *p < ' ') *p = '_';
}

// Creates the file with the first unused number: two runs may start in the same second.
static bool events_create_file(const char *folder, ct_events *events, ct_err *err) {
    char host[256];
    events_host_name(host, sizeof host);
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

static void events_put_event_header(ct_text *message, int64_t step) {
    events_put_double(message, WALL_TIME, events_wall_time());
    if (step) events_put_key(message, STEP, VARINT);
    if (step) events_put_varint(message, (uint64_t)step);
}

bool ct__events_open(const char *folder, int64_t step, ct_events *events, ct_err *err) {
    static const char version[] = "brain.Event:2";
    ct_text first = {0}, session = {0}, start = {0};
    *events = (ct_events){.fd = -1};
    events_put_event_header(&first, 0);
    events_put_bytes(&first, FILE_VERSION, version, strlen(version));
    events_put_key(&start, STATUS, VARINT);
    events_put_varint(&start, START);
    events_put_event_header(&session, step);
    events_put_bytes(&session, SESSION_LOG, start.s, start.n);
    session.failed = session.failed || start.failed;
    bool ok = ct__make_dirs(folder, 0777, err) && events_create_file(folder, events, err) &&
              events_put_record(events, &first, err) &&
              (step == 0 || events_put_record(events, &session, err));
    ct__text_free(&first);
    ct__text_free(&session);
    ct__text_free(&start);
    if (!ok) ct__events_close(events);
    return ok;
}

bool ct__events_add(ct_events *events, int64_t step, const ct_scalar_event *scalars, size_t n,
                    ct_err *err) {
    CT_TEXT message = {0}, summary = {0};
    for (size_t i = 0; i < n; i++) events_put_scalar(&summary, &scalars[i]);
    events_put_event_header(&message, step);
    events_put_bytes(&message, SUMMARY, summary.s, summary.n);
    message.failed = message.failed || summary.failed;
    return events_put_record(events, &message, err);
}

void ct__events_close(ct_events *events) {
    if (events->fd >= 0) close(events->fd);
    ct__free(events->path);
    *events = (ct_events){.fd = -1};
}
