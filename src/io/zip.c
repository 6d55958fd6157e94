#include "io/zip.h"

#include <inttypes.h>
#include <string.h>

#include "io/utf8.h"

enum {
    LOCAL_HEADER = 30, // bytes of each record's fixed part
    DIRECTORY_ENTRY = 46,
    END_RECORD = 22,
    ZIP64_END = 56,
    ZIP64_LOCATOR = 20,
    SIGNATURE = 4, // bytes of the signature that each begins with
    MAX_COMMENT = 65535,
    ZIP64_FIELD = 1,  // id of the extra field with 64-bit sizes and offsets
    MAX_VERSION = 63, // of the format, in tenths
    VERSION_DEFLATE = 20,
    VERSION_ZIP64 = 45,
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1 << 0, // flags of an entry
    SIZES_FOLLOW = 1 << 3,
    UTF8_NAME = 1 << 11,
    KNOWN_FLAGS = 1 << 1 | 1 << 2 | SIZES_FOLLOW | UTF8_NAME, // the first two: deflate level
    MAX_INFLATE_RATIO = 1032,                                 // a copy of 258 bytes takes two bits
    BUFFER_BYTES = 1 << 15,                                   // for packed bytes
    MAX_CHUNK = 1 << 30,                                      // zlib counts in unsigned int
    CACHED_BYTES = 1 << 18,        // written right after their checksum was computed
    DOS_EPOCH = 1 << 21 | 1 << 16, // 1980-01-01, as in NumPy: equal arrays give equal bytes
};

static const char local_signature[] = "PK\3\4", central_signature[] = "PK\1\2",
                  end_signature[] = "PK\5\6", zip64_end_signature[] = "PK\6\6",
                  locator_signature[] = "PK\6\7";

static bool zip_has_signature(const unsigned char *record, const char *mark) {
    return memcmp(record, mark, SIGNATURE) == 0;
}
static unsigned zip_u16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }
static uint32_t zip_u32(const unsigned char *p) {
    return zip_u16(p) | (uint32_t)zip_u16(p + 2) << 16;
}
static uint64_t zip_u64(const unsigned char *p) {
    return zip_u32(p) | (uint64_t)zip_u32(p + 4) << 32;
}

// Makes zlib allocate by the library's functions.
static voidpf zip_alloc(voidpf opaque, uInt count, uInt size) {
    size_t bytes;
    (void)opaque;
    return __builtin_mul_overflow((size_t)count, (size_t)size, &bytes) ? NULL : ct__malloc(bytes);
}
static void zip_free(voidpf opaque, voidpf memory) {
    (void)opaque;
    ct__free(memory);
}

// ------------------------------------------------------------------------------------- end record

#define zip_refuse(zip, err, ...) ct__err_part((err), (zip)->file.path, (zip)->part, __VA_ARGS__)

static bool zip_check_start(const ct_zip *zip, ct_err *err) {
    unsigned char b[SIGNATURE];
    char shown[CT_PRINTABLE];
    size_t n = zip->file.n < SIGNATURE ? (size_t)zip->file.n : SIGNATURE;
    if (!ct__file_read_at(&zip->file, 0, b, n, err)) return false;
    return (n == SIGNATURE &&
            (zip_has_signature(b, local_signature) || zip_has_signature(b, end_signature))) ||
           zip_refuse(zip, err, "it is no zip archive: it begins with \"%s\", not with \"PK\"",
                      ct__printable_bytes(b, n, shown, sizeof shown));
}

// Finds the end record. It is the last record of the file, followed only by a comment whose length
// it contains.
static bool zip_find_end(const ct_zip *zip, unsigned char record[END_RECORD], uint64_t *offset,
                         ct_err *err) {
    uint64_t max_n = END_RECORD + MAX_COMMENT;
    size_t n = (size_t)(zip->file.n < max_n ? zip->file.n : max_n), at = n;
    unsigned char *tail = ct__malloc(n);
    if (!tail) return ct__err_memory(err, CT_NOWHERE, zip->file.path, n);
    bool ok = ct__file_read_at(&zip->file, zip->file.n - n, tail, n, err);
    for (size_t i = n - SIGNATURE + 1; i-- > 0 && ok && at == n;)
        if (zip_has_signature(tail + i, end_signature)) at = i;
    if (ok && (n - at < END_RECORD || n - at != END_RECORD + zip_u16(tail + at + 20)))
        ok = zip_refuse(zip, err, "the end of the archive is missing: it is cut short");
    if (ok) memcpy(record, tail + at, END_RECORD);
    *offset = zip->file.n - n + at;
    ct__free(tail);
    return ok;
}

typedef struct end_fields {
    uint64_t disk, directory_disk, disk_count, count, bytes, begin;
} end_fields;

// Reads the 64-bit end record. It is where its locator, at offset `locator`, says, and directly
// before that. The 32-bit record has the same values, or all ones.
static bool zip_read_zip64_end(const ct_zip *zip, const unsigned char *found, uint64_t locator,
                               end_fields *end, uint64_t *offset, ct_err *err) {
    unsigned char r[ZIP64_END];
    *offset = zip_u64(found + 8);
    if (locator < ZIP64_END || *offset > locator - ZIP64_END)
        return zip_refuse(zip, err, "its 64-bit end record cannot be found");
    if (!ct__file_read_at(&zip->file, *offset, r, ZIP64_END, err)) return false;
    if (!zip_has_signature(r, zip64_end_signature) || zip_u64(r + 4) != locator - *offset - 12)
        return zip_refuse(zip, err, "its 64-bit end record cannot be found");
    end_fields wide = {zip_u32(r + 16), zip_u32(r + 20), zip_u64(r + 24),
                       zip_u64(r + 32), zip_u64(r + 40), zip_u64(r + 48)};
#define AGREE(field, ones) (end->field == (ones) || end->field == wide.field)
    bool same = AGREE(disk, UINT16_MAX) && AGREE(directory_disk, UINT16_MAX) &&
                AGREE(disk_count, UINT16_MAX) && AGREE(count, UINT16_MAX) &&
                AGREE(bytes, UINT32_MAX) && AGREE(begin, UINT32_MAX);
#undef AGREE
    if (!same) return zip_refuse(zip, err, "its two end records differ");
    if (zip_u32(found + 4) || zip_u32(found + 16) > 1)
        return zip_refuse(zip, err, "it is one part of several");
    *end = wide;
    return true;
}

static bool zip_find_directory(ct_zip *zip, ct_err *err) {
    unsigned char r[END_RECORD] = {0}, locator[ZIP64_LOCATOR];
    uint64_t offset = 0;
    if (!zip_check_start(zip, err) || !zip_find_end(zip, r, &offset, err)) return false;
    end_fields end = {zip_u16(r + 4),  zip_u16(r + 6),  zip_u16(r + 8),
                      zip_u16(r + 10), zip_u32(r + 12), zip_u32(r + 16)};
    if (offset >= ZIP64_LOCATOR) {
        uint64_t at = offset - ZIP64_LOCATOR;
        if (!ct__file_read_at(&zip->file, at, locator, ZIP64_LOCATOR, err)) return false;
        if (zip_has_signature(locator, locator_signature) &&
            !zip_read_zip64_end(zip, locator, at, &end, &offset, err))
            return false;
    }
    if (end.disk || end.directory_disk || end.disk_count != end.count)
        return zip_refuse(zip, err, "it is one part of several");
    if (end.begin > offset || end.bytes != offset - end.begin)
        return zip_refuse(zip, err, "its directory cannot be found");
    if (end.count > zip->file.n / DIRECTORY_ENTRY)
        return zip_refuse(zip, err,
                          "the directory has %" PRIu64
                          " entries by its count, but the file only %" PRIu64 " bytes",
                          end.count, zip->file.n);
    zip->n = end.count;
    zip->directory = zip->at = end.begin;
    zip->directory_end = offset;
    return true;
}

bool ct__zip_open(const char *path, const char *part, ct_zip *zip, ct_err *err) {
    *zip = (ct_zip){.part = part};
    if (!ct__file_handle_open(path, &zip->file, err)) return false;
    if (zip_find_directory(zip, err)) return true;
    ct__zip_close(zip);
    return false;
}

void ct__zip_close(ct_zip *zip) { ct__file_handle_close(&zip->file); }

// -------------------------------------------------------------------------------------- directory

// Reads the values that are all ones in 32 bits from the extra field with 64-bit values, if there
// is one; they come in the format's order. Returns false if the n bytes of extra fields are
// damaged.
static bool zip_read_zip64_field(const unsigned char *extra, size_t n, uint64_t *const *values,
                                 size_t count) {
    bool seen = false;
    while (n >= 4) { // fewer bytes are padding
        size_t id = zip_u16(extra), bytes = zip_u16(extra + 2), used = 0;
        if (bytes > n - 4 || (id == ZIP64_FIELD && seen)) return false;
        for (size_t i = 0; i < count && id == ZIP64_FIELD; i++) {
            if (*values[i] != UINT32_MAX) continue;
            if (bytes - used < 8) return false;
            *values[i] = zip_u64(extra + 4 + used);
            used += 8;
        }
        seen = seen || id == ZIP64_FIELD;
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return true;
}

static bool zip_refuse_directory_entry(const ct_zip *zip, ct_err *err) {
    return zip_refuse(zip, err, "entry %" PRIu64 " of %" PRIu64 " of the directory is damaged",
                      zip->n_read + 1, zip->n);
}

bool ct__zip_next(ct_zip *zip, ct_arena *arena, ct_zip_entry *e, ct_err *err) {
    unsigned char r[DIRECTORY_ENTRY];
    uint64_t left = zip->directory_end - zip->at;
    if (left < DIRECTORY_ENTRY) return zip_refuse_directory_entry(zip, err);
    if (!ct__file_read_at(&zip->file, zip->at, r, DIRECTORY_ENTRY, err)) return false;
    size_t name_n = zip_u16(r + 28), extra_n = zip_u16(r + 30), comment_n = zip_u16(r + 32);
    size_t record_n = DIRECTORY_ENTRY + name_n + extra_n + comment_n;
    if (!zip_has_signature(r, central_signature) || left < record_n)
        return zip_refuse_directory_entry(zip, err);
    unsigned char *name = ct__arena(arena, name_n + extra_n + 1); // the extra fields come after it
    if (!name) return ct__err_memory(err, CT_NOWHERE, zip->file.path, name_n + extra_n + 1);
    if (!ct__file_read_at(&zip->file, zip->at + DIRECTORY_ENTRY, name, name_n + extra_n, err))
        return false;
    *e = (ct_zip_entry){.name = (char *)name,
                        .name_n = name_n,
                        .bytes = zip_u32(r + 24),
                        .packed = zip_u32(r + 20),
                        .local = zip_u32(r + 42),
                        .end = zip->directory,
                        .crc = zip_u32(r + 16),
                        .version = zip_u16(r + 6),
                        .flags = zip_u16(r + 8),
                        .method = zip_u16(r + 10)};
    if (!zip_read_zip64_field(name + name_n, extra_n,
                              (uint64_t *[]){&e->bytes, &e->packed, &e->local}, 3))
        return zip_refuse_directory_entry(zip, err);
    name[name_n] = '\0';
    zip->at += record_n;
    zip->n_read++;
    return true;
}

bool ct__zip_check_end(const ct_zip *zip, ct_err *err) {
    return zip->at == zip->directory_end ||
           zip_refuse(zip, err, "the directory has %" PRIu64 " bytes after its last entry",
                      zip->directory_end - zip->at);
}

// --------------------------------------------------------------------------------------- entries

static bool zip_check_features(const ct_zip *zip, const ct_zip_entry *e, const char *part,
                               ct_err *err) {
    const char *path = zip->file.path;
    if (e->flags & ENCRYPTED)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path, "%s: it is encrypted", part);
    if (e->version > MAX_VERSION)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                       "%s: it needs version %u.%u of the zip format", part, e->version / 10,
                       e->version % 10);
    if (e->flags & ~(unsigned)KNOWN_FLAGS)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                       "%s: its flags %#x are not all known", part, e->flags);
    if (e->method != STORED && e->method != DEFLATED)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                       "%s: it is packed by method %u; stored (0) and deflated (8) are supported",
                       part, e->method);
    return true;
}

// Checks that an entry is neither larger than the file nor than deflate can produce, so that a
// small file cannot make the reader allocate much memory.
static bool zip_check_sizes(const ct_zip *zip, const ct_zip_entry *e, const char *part,
                            ct_err *err) {
    const char *path = zip->file.path;
    if (e->method == STORED && e->packed != e->bytes)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it is stored, but takes %" PRIu64 " bytes where it has %" PRIu64, part,
                       e->packed, e->bytes);
    if (e->packed > zip->file.n)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it takes %" PRIu64 " bytes, but the file has %" PRIu64, part, e->packed,
                       zip->file.n);
    if (e->method == DEFLATED && e->bytes / MAX_INFLATE_RATIO > e->packed)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it claims %" PRIu64 " bytes, but its %" PRIu64
                       " bytes in the archive cannot unpack to more than %" PRIu64,
                       part, e->bytes, e->packed, e->packed * MAX_INFLATE_RATIO);
    return true;
}

// True if the local header, with its name and `extra_n` bytes of extra fields, matches the
// directory. Sizes and checksum may instead follow the data; then they are not compared.
static bool zip_matches_local_header(const ct_zip_entry *e, const unsigned char *r,
                                     const unsigned char *name, size_t extra_n) {
    uint64_t packed = zip_u32(r + 18), bytes = zip_u32(r + 22);
    if (memcmp(name, e->name, e->name_n) != 0) return false;
    if (!zip_read_zip64_field(name + e->name_n, extra_n, (uint64_t *[]){&bytes, &packed}, 2))
        return false;
    return (e->flags & SIZES_FOLLOW) ||
           (zip_u32(r + 14) == e->crc && packed == e->packed && bytes == e->bytes);
}

bool ct__zip_check(const ct_zip *zip, const ct_zip_entry *e, const char *part, ct_err *err) {
    return zip_check_features(zip, e, part, err) && zip_check_sizes(zip, e, part, err);
}

bool ct__zip_set_end(ct_zip_entry *e, const ct_zip_entry *next) {
    e->end = next->local;
    return e->end - e->local >=
           LOCAL_HEADER + e->name_n + e->packed; // packed is at most the file's size
}

// Reads the local header with name and extra fields. They must end before the next entry: otherwise
// many entries could claim the same 64 KB, which would be read once for each.
static bool zip_read_local_header(const ct_zip *zip, ct_zip_entry *e, const char *part,
                                  ct_err *err) {
    unsigned char r[LOCAL_HEADER];
    bool same = zip->directory >= LOCAL_HEADER && e->local <= zip->directory - LOCAL_HEADER;
    if (same && !ct__file_read_at(&zip->file, e->local, r, LOCAL_HEADER, err)) return false;
    same = same && zip_has_signature(r, local_signature) && zip_u16(r + 8) == e->method &&
           zip_u16(r + 26) == e->name_n;
    if (same) {
        size_t extra_n = zip_u16(r + 28), n = e->name_n + extra_n;
        e->begin = e->local + LOCAL_HEADER + n;
        same = e->begin <= zip->directory;
        if (same && e->end < zip->directory && e->begin + e->packed > e->end)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                           "%s: its bytes end inside those of another array", part);
        unsigned char *name = ct__malloc(n + 1);
        if (!name) return ct__err_memory(err, CT_NOWHERE, zip->file.path, n + 1);
        bool read = !same || ct__file_read_at(&zip->file, e->local + LOCAL_HEADER, name, n, err);
        same = same && read && zip_matches_local_header(e, r, name, extra_n);
        ct__free(name);
        if (!read) return false;
    }
    return same || ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                           "%s: its local header is damaged, or differs from the directory", part);
}

bool ct__zip_locate(const ct_zip *zip, ct_zip_entry *e, const char *part, ct_err *err) {
    if (!zip_read_local_header(zip, e, part, err)) return false;
    if (e->packed > zip->file.n - e->begin)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                       "%s: it takes %" PRIu64 " bytes from byte %" PRIu64
                       " on, but the file has %" PRIu64,
                       part, e->packed, e->begin, zip->file.n);
    if (e->packed > zip->directory - e->begin)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                       "%s: it takes %" PRIu64 " bytes from byte %" PRIu64
                       " on, but the directory begins at byte %" PRIu64,
                       part, e->packed, e->begin, zip->directory);
    return true;
}

// ------------------------------------------------------------------------------- an entry's bytes

static bool zip_refuse_memory(const ct_zip_stream *s, ct_err *err) {
    return ct__err(err, CT_E_MEMORY, CT_NOWHERE, s->zip->file.path, "%s: no memory to unpack it",
                   s->part);
}

static bool zip_refuse_damaged(const ct_zip_stream *s, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, s->zip->file.path,
                   "%s: its bytes cannot be unpacked: they are damaged", s->part);
}

bool ct__zip_stream_open(const ct_zip *zip, const ct_zip_entry *e, const char *part,
                         ct_zip_stream *s, ct_err *err) {
    *s = (ct_zip_stream){zip, e, part, e->begin, e->packed, .crc = crc32_z(0, NULL, 0)};
    if (e->method == STORED) return true;
    s->z.zalloc = zip_alloc;
    s->z.zfree = zip_free;
    s->packed = ct__malloc(BUFFER_BYTES);
    if (s->packed && inflateInit2(&s->z, -MAX_WBITS) == Z_OK) return true;
    ct__free(s->packed);
    return zip_refuse_memory(s, err);
}

void ct__zip_stream_close(ct_zip_stream *s) {
    if (s->packed) inflateEnd(&s->z);
    ct__free(s->packed);
    s->packed = NULL;
}

// Inflates until next_out is full or the stream ends.
static bool zip_inflate(ct_zip_stream *s, ct_err *err) {
    while (s->z.avail_out && !s->ended) {
        if (!s->z.avail_in && s->left) {
            size_t n = s->left < BUFFER_BYTES ? (size_t)s->left : BUFFER_BYTES;
            if (!ct__file_read_at(&s->zip->file, s->at, s->packed, n, err)) return false;
            s->z.next_in = s->packed;
            s->z.avail_in = (uInt)n;
            s->at += n;
            s->left -= n;
        }
        int result = inflate(&s->z, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) return zip_refuse_memory(s, err);
        if (result != Z_OK && result != Z_STREAM_END)
            return zip_refuse_damaged(s, err); // or needs more
        s->ended = result == Z_STREAM_END;
    }
    return true;
}

bool ct__zip_stream_read(ct_zip_stream *s, void *to, uint64_t n, ct_err *err) {
    for (unsigned char *p = to; n;) {
        size_t chunk = n < MAX_CHUNK ? (size_t)n : MAX_CHUNK;
        if (s->packed) {
            s->z.next_out = p;
            s->z.avail_out = (uInt)chunk;
            if (!zip_inflate(s, err)) return false;
            if (s->z.avail_out) return zip_refuse_damaged(s, err);
        } else {
            if (chunk > s->left) return zip_refuse_damaged(s, err);
            if (!ct__file_read_at(&s->zip->file, s->at, p, chunk, err)) return false;
            s->at += chunk;
            s->left -= chunk;
        }
        s->crc = crc32_z(s->crc, p, chunk);
        p += chunk;
        n -= chunk;
    }
    return true;
}

bool ct__zip_stream_check(ct_zip_stream *s, ct_err *err) {
    unsigned char more;
    s->z.next_out = &more;
    s->z.avail_out = 1;
    if (s->packed && !zip_inflate(s, err)) return false;
    if (s->left || (s->packed && (!s->z.avail_out || s->z.avail_in)))
        return zip_refuse_damaged(s, err);
    return s->crc == s->entry->crc ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, s->zip->file.path,
                   "%s: its checksum is wrong: the file is damaged", s->part);
}

// ---------------------------------------------------------------------------------------- writing

static void zip_put_int(ct_text *text, int bytes, uint64_t value) {
    unsigned char b[8];
    for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(value >> 8 * i);
    ct__text_bytes(text, b, (size_t)bytes);
}

static uint64_t zip_clamp(uint64_t value, uint64_t ones) { return value < ones ? value : ones; }

static bool zip_append(ct_zip_out *out, const void *bytes, size_t n, ct_err *err) {
    out->at += n;
    return ct__atomic_file_write(out->file, bytes, n, err);
}

static bool zip_append_text(ct_zip_out *out, ct_text *text, ct_err *err) {
    if (text->failed) return ct__err_memory(err, CT_NOWHERE, out->file->path, text->cap * 2);
    return zip_append(out, text->s, text->n, err);
}

// Writes the fields that a local header and a directory entry share, from the version on. With
// `ones`, the sizes are all ones, because the extra field has them.
static void zip_put_common(ct_text *text, const ct_zip_entry *e, bool ones, size_t extra_n) {
    zip_put_int(text, 2, e->version);
    zip_put_int(text, 2, e->flags);
    zip_put_int(text, 2, e->method);
    zip_put_int(text, 4, DOS_EPOCH);
    zip_put_int(text, 4, e->crc);
    zip_put_int(text, 4, ones ? UINT32_MAX : zip_clamp(e->packed, UINT32_MAX));
    zip_put_int(text, 4, ones ? UINT32_MAX : zip_clamp(e->bytes, UINT32_MAX));
    zip_put_int(text, 2, e->name_n);
    zip_put_int(text, 2, extra_n);
}

// Writes the local header. The caller decides whether sizes have 64 bits before they are known.
static void zip_put_local_header(ct_text *text, const ct_zip_entry *e, bool wide) {
    ct__text_add(text, local_signature);
    zip_put_common(text, e, wide, wide ? 20 : 0);
    ct__text_bytes(text, e->name, e->name_n);
    if (!wide) return;
    zip_put_int(text, 2, ZIP64_FIELD);
    zip_put_int(text, 2, 16);
    zip_put_int(text, 8, e->bytes);
    zip_put_int(text, 8, e->packed);
}

static void zip_put_directory_entry(ct_text *text, const ct_zip_entry *e) {
    const uint64_t values[] = {e->bytes, e->packed, e->local};
    size_t wide = 0;
    for (int i = 0; i < 3; i++) wide += values[i] >= UINT32_MAX;
    ct__text_add(text, central_signature);
    zip_put_int(text, 2, 0); // made by: no system, so no permissions
    zip_put_common(text, e, false, wide ? 4 + 8 * wide : 0);
    zip_put_int(text, 2, 0); // comment
    zip_put_int(text, 2, 0); // disk
    zip_put_int(text, 2, 0); // internal and external attributes
    zip_put_int(text, 4, 0);
    zip_put_int(text, 4, zip_clamp(e->local, UINT32_MAX));
    ct__text_bytes(text, e->name, e->name_n);
    if (!wide) return;
    zip_put_int(text, 2, ZIP64_FIELD);
    zip_put_int(text, 2, 8 * wide);
    for (int i = 0; i < 3; i++)
        if (values[i] >= UINT32_MAX) zip_put_int(text, 8, values[i]);
}

// Deflates what next_in has, and the rest of the stream after the last chunk; counts the bytes.
static bool zip_deflate(ct_zip_out *out, z_stream *z, unsigned char *buffer, bool last,
                        ct_zip_entry *e, ct_err *err) {
    int result;
    do {
        z->next_out = buffer;
        z->avail_out = BUFFER_BYTES;
        result = deflate(z, last ? Z_FINISH : Z_NO_FLUSH);
        size_t n = BUFFER_BYTES - z->avail_out;
        e->packed += n;
        if (!zip_append(out, buffer, n, err)) return false;
    } while (last ? result != Z_STREAM_END : z->avail_out == 0);
    return true;
}

static bool zip_write_chunks(ct_zip_out *out, const ct_zip_chunk *chunks, size_t n, z_stream *z,
                             unsigned char *buffer, ct_zip_entry *e, ct_err *err) {
    uLong crc = crc32_z(0, NULL, 0);
    for (size_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < chunks[i].n;) {
            const unsigned char *p = (const unsigned char *)chunks[i].bytes + at;
            size_t chunk =
                chunks[i].n - at < CACHED_BYTES ? (size_t)(chunks[i].n - at) : CACHED_BYTES;
            crc = crc32_z(crc, p, chunk);
            if (buffer) {
                z->next_in = p;
                z->avail_in = (uInt)chunk;
                if (!zip_deflate(out, z, buffer, false, e, err)) return false;
            } else {
                e->packed += chunk;
                if (!zip_append(out, p, chunk, err)) return false;
            }
            at += chunk;
        }
    e->crc = (uint32_t)crc;
    return !buffer || zip_deflate(out, z, buffer, true, e, err);
}

static bool zip_write_entry(ct_zip_out *out, const ct_zip_chunk *chunks, size_t n, ct_zip_entry *e,
                            ct_err *err) {
    z_stream z = {.zalloc = zip_alloc, .zfree = zip_free};
    if (e->method == STORED) return zip_write_chunks(out, chunks, n, &z, NULL, e, err);
    unsigned char *buffer = ct__malloc(BUFFER_BYTES);
    bool begun = buffer && deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                                        Z_DEFAULT_STRATEGY) == Z_OK;
    // deflate allocates 268 KB
    bool ok = begun ? zip_write_chunks(out, chunks, n, &z, buffer, e, err)
                    : ct__err_memory(err, CT_NOWHERE, out->file->path, 1 << 18);
    if (begun) deflateEnd(&z);
    ct__free(buffer);
    return ok;
}

bool ct__zip_add(ct_zip_out *out, const char *name, const ct_zip_chunk *chunks, size_t n,
                 bool deflate, ct_err *err) {
    ct_zip_entry e = {.name = name,
                      .name_n = strlen(name),
                      .local = out->at,
                      .flags = UTF8_NAME,
                      .method = deflate ? DEFLATED : STORED};
    CT_TEXT head = {0};
    for (size_t i = 0; i < n; i++) e.bytes += chunks[i].n;
    bool wide = compressBound(e.bytes) >= UINT32_MAX; // deflating may lengthen a little
    e.version = wide || e.local >= UINT32_MAX ? VERSION_ZIP64 : VERSION_DEFLATE;
    zip_put_local_header(&head, &e, wide);
    bool ok = zip_append_text(out, &head, err) && zip_write_entry(out, chunks, n, &e, err);
    head.n = 0;
    zip_put_local_header(&head, &e, wide); // of the same length, with sizes and checksum
    ok = ok && (!head.failed || ct__err_memory(err, CT_NOWHERE, out->file->path, head.cap)) &&
         ct__atomic_file_patch(out->file, e.local, head.s, head.n, err);
    zip_put_directory_entry(&out->directory, &e);
    out->n++;
    return ok;
}

bool ct__zip_finish(ct_zip_out *out, ct_err *err) {
    uint64_t begin = out->at, bytes = out->directory.n, end = begin + bytes;
    ct_text *text = &out->directory;
    if (out->n >= UINT16_MAX || begin >= UINT32_MAX || bytes >= UINT32_MAX) {
        ct__text_add(text, zip64_end_signature);
        zip_put_int(text, 8, ZIP64_END - 12);
        zip_put_int(text, 2, VERSION_ZIP64); // made by, and needed
        zip_put_int(text, 2, VERSION_ZIP64);
        zip_put_int(text, 8, 0); // disks
        zip_put_int(text, 8, out->n);
        zip_put_int(text, 8, out->n);
        zip_put_int(text, 8, bytes);
        zip_put_int(text, 8, begin);
        ct__text_add(text, locator_signature);
        zip_put_int(text, 4, 0);
        zip_put_int(text, 8, end);
        zip_put_int(text, 4, 1);
    }
    ct__text_add(text, end_signature);
    zip_put_int(text, 4, 0); // disks
    zip_put_int(text, 2, zip_clamp(out->n, UINT16_MAX));
    zip_put_int(text, 2, zip_clamp(out->n, UINT16_MAX));
    zip_put_int(text, 4, zip_clamp(bytes, UINT32_MAX));
    zip_put_int(text, 4, zip_clamp(begin, UINT32_MAX));
    zip_put_int(text, 2, 0); // comment
    return zip_append_text(out, text, err);
}

void ct__zip_out_free(ct_zip_out *out) { ct__text_free(&out->directory); }
