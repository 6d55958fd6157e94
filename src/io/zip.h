// zip archives, the container of npz files: read and written one entry at a time, with 64-bit
// fields where 32 bits are too few, stored or deflated (by zlib).
//
// The reader does not trust the file: each offset, length and count is compared with the file
// before it is used. It is stricter than the format: an archive begins with an entry, and there is
// nothing between its directory and its end. The file is read when its bytes are asked for and
// never mapped, so that a file that another process truncates causes an error and not a fault.
#ifndef COTAN_IO_ZIP_H
#define COTAN_IO_ZIP_H

#define ZLIB_CONST // zlib's input pointers become const
#include <zlib.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"

enum { CT_ZIP_MAX_NAME = 65535 };

typedef struct ct_zip_entry {
    const char *name; // name_n bytes of any value, and a '\0'
    size_t name_n;
    uint64_t bytes, packed; // unpacked; packed, as in the archive
    uint64_t local, begin;  // offsets of its local header, and of its bytes after that
    uint64_t end;           // offset of the next entry's local header, or of the directory
    uint32_t crc;           // CRC-32 of its unpacked bytes
    unsigned version, flags, method;
} ct_zip_entry;

typedef struct ct_zip {
    ct_file file;
    const char *part; // prefix of messages after the path: "npz"
    uint64_t n;       // number of entries
    // Private:
    uint64_t directory, directory_end, at; // its offset and end; the offset of its next entry
    uint64_t n_read;
} ct_zip;

// Opens the file and finds its directory. The caller keeps `path` and `part`. Nothing is kept after
// a failure.
bool ct__zip_open(const char *path, const char *part, ct_zip *zip, ct_err *err);
void ct__zip_close(ct_zip *zip);
// Reads the next of the n directory entries, its name into `arena`; `begin` is not set yet, `end`
// is the directory's offset. The entry can be trusted after the three checks below, of which only
// the last reads from the file; then no byte of the file belongs to two entries. Messages begin
// with `part`.
bool ct__zip_next(ct_zip *zip, ct_arena *arena, ct_zip_entry *entry, ct_err *err);
// Checks after the last entry that the directory ends there.
bool ct__zip_check_end(const ct_zip *zip, ct_err *err);
// Checks that the entry fits the file's size and that its features are supported.
bool ct__zip_check(const ct_zip *zip, const ct_zip_entry *entry, const char *part, ct_err *err);
// Sets the end of an entry to the start of the next one by `local`. Returns false if the entry does
// not fit before that.
bool ct__zip_set_end(ct_zip_entry *entry, const ct_zip_entry *next);
// Compares the entry with its local header, and sets `begin`.
bool ct__zip_locate(const ct_zip *zip, ct_zip_entry *entry, const char *part, ct_err *err);

typedef struct ct_zip_stream { // reads an entry's bytes in order
    const ct_zip *zip;
    const ct_zip_entry *entry;
    const char *part;
    uint64_t at, left; // offset and number of the packed bytes that were not read yet
    uLong crc;         // of the bytes that were returned
    z_stream z;
    unsigned char *packed; // input buffer of inflate; NULL if the entry is stored
    bool ended;            // true after the end of the deflate stream
} ct_zip_stream;

// Opens a stream over an entry that ct__zip_locate has set. After a success, call
// ct__zip_stream_close.
bool ct__zip_stream_open(const ct_zip *zip, const ct_zip_entry *entry, const char *part,
                         ct_zip_stream *stream, ct_err *err);
// Reads the next n bytes; the entry has at least n left.
bool ct__zip_stream_read(ct_zip_stream *stream, void *to, uint64_t n, ct_err *err);
// Checks after the last byte that the checksum is right and that no bytes follow.
bool ct__zip_stream_check(ct_zip_stream *stream, ct_err *err);
void ct__zip_stream_close(ct_zip_stream *stream);

typedef struct ct_zip_chunk {
    const void *bytes;
    uint64_t n;
} ct_zip_chunk;

typedef struct ct_zip_out {
    ct_atomic_file *file; // owned by the caller, empty at first
    ct_text directory;
    uint64_t at, n; // numbers of bytes and entries so far
} ct_zip_out;

// Appends an entry of the chunks' bytes; its name is UTF-8 of at most CT_ZIP_MAX_NAME bytes. Equal
// entries give equal bytes.
bool ct__zip_add(ct_zip_out *out, const char *name, const ct_zip_chunk *chunks, size_t n,
                 bool deflate, ct_err *err);
bool ct__zip_finish(ct_zip_out *out, ct_err *err); // appends the directory and the end record
void ct__zip_out_free(ct_zip_out *out);            // does not close the file

#endif
