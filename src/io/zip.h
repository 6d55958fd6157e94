// zip archives, which npz files are: read and written one entry at a time, with the 64-bit fields
// for what 32 bits cannot count, stored or deflated (by zlib).
//
// The reader believes nothing: each offset, length and count is compared with the file before it is
// used. Stricter than the format: an archive begins with an entry, and nothing stands between its
// directory and its end. The file is read when its bytes are asked for and never mapped, so that
// somebody who shortens it meanwhile causes an error and not a fault.
#ifndef COTAN_IO_ZIP_H
#define COTAN_IO_ZIP_H

#define ZLIB_CONST // what zlib only reads is const
#include <zlib.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"

enum { CT_ZIP_LONGEST_NAME = 65535 };

typedef struct ct_zip_entry {
    const char *name; // name_n bytes of any value, and a '\0'
    size_t name_n;
    uint64_t bytes, packed; // unpacked; as they lie in the archive
    uint64_t local, begin;  // where its own header stands, and behind that its bytes
    uint64_t end;           // where the next entry's header stands, or the directory
    uint32_t crc;           // CRC-32 of its bytes, unpacked
    unsigned version, flags, method;
} ct_zip_entry;

typedef struct ct_zip {
    ct_file file;
    const char *part; // what messages begin with, behind the path: "npz"
    uint64_t n;       // entries
    // Private:
    uint64_t directory, directory_end, at; // where it lies, and where its next entry does
    uint64_t seen;
} ct_zip;

// Finds the directory. `path` and `part` are the caller's to keep. Nothing is kept after a failure.
bool ct__zip_open(const char *path, const char *part, ct_zip *zip, ct_err *err);
void ct__zip_close(ct_zip *zip);
// The next of its n entries, the name in `arena`; `begin` is not known yet, `end` the directory.
// What it claims holds once the three checks below agree, of which the last alone reads from the
// file: of entries that lie apart, no byte twice. Messages begin with `part`.
bool ct__zip_next(ct_zip *zip, ct_arena *arena, ct_zip_entry *entry, ct_err *err);
// Behind the last: is that where the directory ends?
bool ct__zip_end(const ct_zip *zip, ct_err *err);
// Compares an entry with the file's size and with what is supported.
bool ct__zip_check(const ct_zip *zip, const ct_zip_entry *entry, const char *part, ct_err *err);
// Of an entry and the next one by `local`: sets the first one's end. Has it room before that?
bool ct__zip_apart(ct_zip_entry *entry, const ct_zip_entry *next);
// Compares it with its own header, and finds its bytes.
bool ct__zip_find(const ct_zip *zip, ct_zip_entry *entry, const char *part, ct_err *err);

typedef struct ct_zip_stream { // an entry's bytes, from the first to the last
    const ct_zip *zip;
    const ct_zip_entry *entry;
    const char *part;
    uint64_t at, left; // packed bytes that were not read yet
    uLong crc;         // of what was taken
    z_stream z;
    unsigned char *packed; // some of them; NULL: they are stored
    bool ended;            // the deflated bytes say so
} ct_zip_stream;

// `entry` is one that ct__zip_find has found. Behind a success, ct__zip_stream_end.
bool ct__zip_stream(const ct_zip *zip, const ct_zip_entry *entry, const char *part,
                    ct_zip_stream *stream, ct_err *err);
// The next n bytes, of which the entry has so many left.
bool ct__zip_take(ct_zip_stream *stream, void *to, uint64_t n, ct_err *err);
// When all were taken: have they the checksum, and are there no more?
bool ct__zip_whole(ct_zip_stream *stream, ct_err *err);
void ct__zip_stream_end(ct_zip_stream *stream);

typedef struct ct_zip_piece {
    const void *bytes;
    uint64_t n;
} ct_zip_piece;

typedef struct ct_zip_out {
    ct_atomic_file *file; // the caller's, empty at first
    ct_text directory;
    uint64_t at, n; // bytes and entries so far
} ct_zip_out;

// Appends an entry of the pieces' bytes; its name is UTF-8 of at most CT_ZIP_LONGEST_NAME bytes.
// Equal entries give equal bytes.
bool ct__zip_add(ct_zip_out *out, const char *name, const ct_zip_piece *pieces, size_t n,
                 bool deflate, ct_err *err);
bool ct__zip_finish(ct_zip_out *out, ct_err *err); // appends directory and end
void ct__zip_out_free(ct_zip_out *out);            // the file stays

#endif
