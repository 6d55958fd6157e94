#include "io/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/utf8.h"

enum {
    LOCAL = 30, // bytes of each record without what varies
    CENTRAL = 46,
    END = 22,
    END_64 = 56,
    LOCATOR_64 = 20,
    MARK = 4, // each begins with a mark of so many bytes
    LONGEST_COMMENT = 65535,
    WIDE = 1,    // the extra field that holds 64-bit sizes and places
    NEWEST = 63, // version of the format, in tenths
    WITH_DEFLATE = 20,
    WITH_64_BITS = 45,
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1 << 0, // flags of an entry
    SIZES_BEHIND = 1 << 3,
    UTF8_NAME = 1 << 11,
    KNOWN_FLAGS = 1 << 1 | 1 << 2 | SIZES_BEHIND | UTF8_NAME, // the first two: the level of deflate
    DEFLATE_AT_MOST = 1032,      // times: 258 bytes from a copy of two bits
    BUFFER = 1 << 15,            // packed bytes
    PIECE = 1 << 30,             // zlib counts in unsigned int
    CACHED = 1 << 18,            // bytes that are written right after their checksum was taken
    DAY_ONE = 1 << 21 | 1 << 16, // 1980-01-01, as NumPy writes it: equal arrays, equal bytes
};

static const char local_mark[] = "PK\3\4", central_mark[] = "PK\1\2", end_mark[] = "PK\5\6",
                  end_64_mark[] = "PK\6\6", locator_mark[] = "PK\6\7";

static bool marked(const unsigned char *record, const char *mark) {
    return memcmp(record, mark, MARK) == 0;
}
static unsigned u16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }
static uint32_t u32(const unsigned char *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }
static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }

// zlib's memory is the library's.
static voidpf take_memory(voidpf nobody, uInt count, uInt size) {
    size_t bytes;
    (void)nobody;
    return __builtin_mul_overflow((size_t)count, (size_t)size, &bytes) ? NULL : ct__malloc(bytes);
}
static void give_memory(voidpf nobody, voidpf memory) {
    (void)nobody;
    ct__free(memory);
}

// ---------------------------------------------------------------------------------------- the end

#define refuse(zip, err, ...) ct__err_part((err), (zip)->file.path, (zip)->part, __VA_ARGS__)

static bool check_start(const ct_zip *zip, ct_err *err) {
    unsigned char b[MARK];
    char shown[CT_PRINTABLE];
    size_t n = zip->file.n < MARK ? (size_t)zip->file.n : MARK;
    if (!ct__file_read_at(&zip->file, 0, b, n, err)) return false;
    return (n == MARK && (marked(b, local_mark) || marked(b, end_mark))) ||
           refuse(zip, err, "it is no zip archive: it begins with \"%s\", not with \"PK\"",
                  ct__printable_bytes(b, n, shown, sizeof shown));
}

// The end record is the last thing of the file, but for a comment, whose length it tells.
static bool find_end(const ct_zip *zip, unsigned char record[END], uint64_t *place, ct_err *err) {
    uint64_t most = END + LONGEST_COMMENT;
    size_t n = (size_t)(zip->file.n < most ? zip->file.n : most), at = n;
    unsigned char *tail = ct__malloc(n);
    if (!tail) return ct__err_memory(err, CT_NOWHERE, zip->file.path, n);
    bool ok = ct__file_read_at(&zip->file, zip->file.n - n, tail, n, err);
    for (size_t i = n - MARK + 1; i-- > 0 && ok && at == n;)
        if (marked(tail + i, end_mark)) at = i;
    if (ok && (n - at < END || n - at != END + u16(tail + at + 20)))
        ok = refuse(zip, err, "the end of the archive is missing: it is cut short");
    if (ok) memcpy(record, tail + at, END);
    *place = zip->file.n - n + at;
    ct__free(tail);
    return ok;
}

typedef struct end_fields {
    uint64_t disk, directory_disk, here, count, bytes, begin;
} end_fields;

// The 64-bit end record stands where its locator, at `locator`, says, and right before it. What the
// other one gives in fewer bits is the same, or all ones.
static bool read_end_64(const ct_zip *zip, const unsigned char *found, uint64_t locator,
                        end_fields *end, uint64_t *place, ct_err *err) {
    unsigned char r[END_64];
    *place = u64(found + 8);
    if (locator < END_64 || *place > locator - END_64)
        return refuse(zip, err, "its 64-bit end record cannot be found");
    if (!ct__file_read_at(&zip->file, *place, r, END_64, err)) return false;
    if (!marked(r, end_64_mark) || u64(r + 4) != locator - *place - 12)
        return refuse(zip, err, "its 64-bit end record cannot be found");
    end_fields wide = {u32(r + 16), u32(r + 20), u64(r + 24),
                       u64(r + 32), u64(r + 40), u64(r + 48)};
#define AGREE(field, ones) (end->field == (ones) || end->field == wide.field)
    bool same = AGREE(disk, UINT16_MAX) && AGREE(directory_disk, UINT16_MAX) &&
                AGREE(here, UINT16_MAX) && AGREE(count, UINT16_MAX) && AGREE(bytes, UINT32_MAX) &&
                AGREE(begin, UINT32_MAX);
#undef AGREE
    if (!same) return refuse(zip, err, "its two end records differ");
    if (u32(found + 4) || u32(found + 16) > 1) return refuse(zip, err, "it is one part of several");
    *end = wide;
    return true;
}

static bool find_directory(ct_zip *zip, ct_err *err) {
    unsigned char r[END] = {0}, locator[LOCATOR_64];
    uint64_t place = 0;
    if (!check_start(zip, err) || !find_end(zip, r, &place, err)) return false;
    end_fields end = {u16(r + 4), u16(r + 6), u16(r + 8), u16(r + 10), u32(r + 12), u32(r + 16)};
    if (place >= LOCATOR_64) {
        uint64_t at = place - LOCATOR_64;
        if (!ct__file_read_at(&zip->file, at, locator, LOCATOR_64, err)) return false;
        if (marked(locator, locator_mark) && !read_end_64(zip, locator, at, &end, &place, err))
            return false;
    }
    if (end.disk || end.directory_disk || end.here != end.count)
        return refuse(zip, err, "it is one part of several");
    if (end.begin > place || end.bytes != place - end.begin)
        return refuse(zip, err, "its directory cannot be found");
    if (end.count > zip->file.n / CENTRAL)
        return refuse(zip, err,
                      "the directory has %" PRIu64
                      " entries by its count, but the file only %" PRIu64 " bytes",
                      end.count, zip->file.n);
    zip->n = end.count;
    zip->directory = zip->at = end.begin;
    zip->directory_end = place;
    return true;
}

bool ct__zip_open(const char *path, const char *part, ct_zip *zip, ct_err *err) {
    *zip = (ct_zip){.part = part};
    if (!ct__file_handle_open(path, &zip->file, err)) return false;
    if (find_directory(zip, err)) return true;
    ct__zip_close(zip);
    return false;
}

void ct__zip_close(ct_zip *zip) { ct__file_handle_close(&zip->file); }

// ---------------------------------------------------------------------------------- the directory

// Of the values, given in the format's order, those that are all ones in 32 bits stand in the extra
// field for wide values, if there is one. False: the n bytes of extra fields are damaged.
static bool widen(const unsigned char *extra, size_t n, uint64_t *const *values, size_t count) {
    bool seen = false;
    while (n >= 4) { // fewer are padding
        size_t id = u16(extra), bytes = u16(extra + 2), used = 0;
        if (bytes > n - 4 || (id == WIDE && seen)) return false;
        for (size_t i = 0; i < count && id == WIDE; i++) {
            if (*values[i] != UINT32_MAX) continue;
            if (bytes - used < 8) return false;
            *values[i] = u64(extra + 4 + used);
            used += 8;
        }
        seen = seen || id == WIDE;
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return true;
}

static bool damaged_entry(const ct_zip *zip, ct_err *err) {
    return refuse(zip, err, "entry %" PRIu64 " of %" PRIu64 " of the directory is damaged",
                  zip->seen + 1, zip->n);
}

bool ct__zip_next(ct_zip *zip, ct_arena *arena, ct_zip_entry *e, ct_err *err) {
    unsigned char r[CENTRAL];
    uint64_t left = zip->directory_end - zip->at;
    if (left < CENTRAL) return damaged_entry(zip, err);
    if (!ct__file_read_at(&zip->file, zip->at, r, CENTRAL, err)) return false;
    size_t name_n = u16(r + 28), extra_n = u16(r + 30), comment_n = u16(r + 32);
    size_t whole = CENTRAL + name_n + extra_n + comment_n;
    if (!marked(r, central_mark) || left < whole) return damaged_entry(zip, err);
    unsigned char *name = ct__arena(arena, name_n + extra_n + 1); // and the extra fields behind it
    if (!name) return ct__err_memory(err, CT_NOWHERE, zip->file.path, name_n + extra_n + 1);
    if (!ct__file_read_at(&zip->file, zip->at + CENTRAL, name, name_n + extra_n, err)) return false;
    *e = (ct_zip_entry){.name = (char *)name,
                        .name_n = name_n,
                        .bytes = u32(r + 24),
                        .packed = u32(r + 20),
                        .local = u32(r + 42),
                        .end = zip->directory,
                        .crc = u32(r + 16),
                        .version = u16(r + 6),
                        .flags = u16(r + 8),
                        .method = u16(r + 10)};
    if (!widen(name + name_n, extra_n, (uint64_t *[]){&e->bytes, &e->packed, &e->local}, 3))
        return damaged_entry(zip, err);
    name[name_n] = '\0';
    zip->at += whole;
    zip->seen++;
    return true;
}

bool ct__zip_end(const ct_zip *zip, ct_err *err) {
    return zip->at == zip->directory_end ||
           refuse(zip, err, "the directory has %" PRIu64 " bytes behind its last entry",
                  zip->directory_end - zip->at);
}

// -------------------------------------------------------------------------------------- an entry

static bool check_support(const ct_zip *zip, const ct_zip_entry *e, const char *part, ct_err *err) {
    const char *path = zip->file.path;
    if (e->flags & ENCRYPTED)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path, "%s: it is encrypted", part);
    if (e->version > NEWEST)
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

// Neither beyond the file nor beyond what deflate can do, so that no small file makes its reader
// ask for much memory.
static bool check_sizes(const ct_zip *zip, const ct_zip_entry *e, const char *part, ct_err *err) {
    const char *path = zip->file.path;
    if (e->method == STORED && e->packed != e->bytes)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it is stored, but takes %" PRIu64 " bytes where it has %" PRIu64, part,
                       e->packed, e->bytes);
    if (e->packed > zip->file.n)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it takes %" PRIu64 " bytes, but the file has %" PRIu64, part, e->packed,
                       zip->file.n);
    if (e->method == DEFLATED && e->bytes / DEFLATE_AT_MOST > e->packed)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "%s: it claims %" PRIu64 " bytes, but its %" PRIu64
                       " bytes in the archive cannot unpack to more than %" PRIu64,
                       part, e->bytes, e->packed, e->packed * DEFLATE_AT_MOST);
    return true;
}

// Is the entry's own header, with its name and `extra_n` bytes of extra fields behind it, that of
// the directory? Sizes and checksum may stand behind the bytes instead, where nobody needs them.
static bool same_header(const ct_zip_entry *e, const unsigned char *r, const unsigned char *name,
                        size_t extra_n) {
    uint64_t packed = u32(r + 18), bytes = u32(r + 22);
    if (memcmp(name, e->name, e->name_n) != 0) return false;
    if (!widen(name + e->name_n, extra_n, (uint64_t *[]){&bytes, &packed}, 2)) return false;
    return (e->flags & SIZES_BEHIND) ||
           (u32(r + 14) == e->crc && packed == e->packed && bytes == e->bytes);
}

bool ct__zip_check(const ct_zip *zip, const ct_zip_entry *e, const char *part, ct_err *err) {
    return check_support(zip, e, part, err) && check_sizes(zip, e, part, err);
}

bool ct__zip_apart(ct_zip_entry *e, const ct_zip_entry *next) {
    e->end = next->local;
    return e->end - e->local >= LOCAL + e->name_n + e->packed; // packed: at most the file's size
}

// Its own header with name and extra fields, which end where the next entry begins at the latest:
// many entries could claim the same 64 KB, to be read once for each.
static bool find_bytes(const ct_zip *zip, ct_zip_entry *e, const char *part, ct_err *err) {
    unsigned char r[LOCAL];
    bool same = zip->directory >= LOCAL && e->local <= zip->directory - LOCAL;
    if (same && !ct__file_read_at(&zip->file, e->local, r, LOCAL, err)) return false;
    same = same && marked(r, local_mark) && u16(r + 8) == e->method && u16(r + 26) == e->name_n;
    if (same) {
        size_t extra_n = u16(r + 28), n = e->name_n + extra_n;
        e->begin = e->local + LOCAL + n;
        same = e->begin <= zip->directory;
        if (same && e->end < zip->directory && e->begin + e->packed > e->end)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                           "%s: its bytes end inside those of another array", part);
        unsigned char *name = ct__malloc(n + 1);
        if (!name) return ct__err_memory(err, CT_NOWHERE, zip->file.path, n + 1);
        bool read = !same || ct__file_read_at(&zip->file, e->local + LOCAL, name, n, err);
        same = same && read && same_header(e, r, name, extra_n);
        ct__free(name);
        if (!read) return false;
    }
    return same || ct__err(err, CT_E_FORMAT, CT_NOWHERE, zip->file.path,
                           "%s: what stands before its bytes is damaged, or differs from the "
                           "directory",
                           part);
}

bool ct__zip_find(const ct_zip *zip, ct_zip_entry *e, const char *part, ct_err *err) {
    if (!find_bytes(zip, e, part, err)) return false;
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

// -------------------------------------------------------------------------------------- its bytes

static bool no_memory(const ct_zip_stream *s, ct_err *err) {
    return ct__err(err, CT_E_MEMORY, CT_NOWHERE, s->zip->file.path, "%s: no memory to unpack it",
                   s->part);
}

static bool damaged(const ct_zip_stream *s, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, s->zip->file.path,
                   "%s: its bytes cannot be unpacked: they are damaged", s->part);
}

bool ct__zip_stream(const ct_zip *zip, const ct_zip_entry *e, const char *part, ct_zip_stream *s,
                    ct_err *err) {
    *s = (ct_zip_stream){zip, e, part, e->begin, e->packed, .crc = crc32_z(0, NULL, 0)};
    if (e->method == STORED) return true;
    s->z.zalloc = take_memory;
    s->z.zfree = give_memory;
    s->packed = ct__malloc(BUFFER);
    if (s->packed && inflateInit2(&s->z, -MAX_WBITS) == Z_OK) return true;
    ct__free(s->packed);
    return no_memory(s, err);
}

void ct__zip_stream_end(ct_zip_stream *s) {
    if (s->packed) inflateEnd(&s->z);
    ct__free(s->packed);
    s->packed = NULL;
}

// Unpacks until next_out is full, or the bytes end.
static bool unpack(ct_zip_stream *s, ct_err *err) {
    while (s->z.avail_out && !s->ended) {
        if (!s->z.avail_in && s->left) {
            size_t n = s->left < BUFFER ? (size_t)s->left : BUFFER;
            if (!ct__file_read_at(&s->zip->file, s->at, s->packed, n, err)) return false;
            s->z.next_in = s->packed;
            s->z.avail_in = (uInt)n;
            s->at += n;
            s->left -= n;
        }
        int result = inflate(&s->z, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) return no_memory(s, err);
        if (result != Z_OK && result != Z_STREAM_END) return damaged(s, err); // or needs more
        s->ended = result == Z_STREAM_END;
    }
    return true;
}

bool ct__zip_take(ct_zip_stream *s, void *to, uint64_t n, ct_err *err) {
    for (unsigned char *p = to; n;) {
        size_t piece = n < PIECE ? (size_t)n : PIECE;
        if (s->packed) {
            s->z.next_out = p;
            s->z.avail_out = (uInt)piece;
            if (!unpack(s, err)) return false;
            if (s->z.avail_out) return damaged(s, err);
        } else {
            if (piece > s->left) return damaged(s, err);
            if (!ct__file_read_at(&s->zip->file, s->at, p, piece, err)) return false;
            s->at += piece;
            s->left -= piece;
        }
        s->crc = crc32_z(s->crc, p, piece);
        p += piece;
        n -= piece;
    }
    return true;
}

bool ct__zip_whole(ct_zip_stream *s, ct_err *err) {
    unsigned char more;
    s->z.next_out = &more;
    s->z.avail_out = 1;
    if (s->packed && !unpack(s, err)) return false;
    if (s->left || (s->packed && (!s->z.avail_out || s->z.avail_in))) return damaged(s, err);
    return s->crc == s->entry->crc ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, s->zip->file.path,
                   "%s: its checksum is wrong: the file is damaged", s->part);
}

// ---------------------------------------------------------------------------------------- writing

static void put(ct_text *text, int bytes, uint64_t value) {
    unsigned char b[8];
    for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(value >> 8 * i);
    ct__text_bytes(text, b, (size_t)bytes);
}

static uint64_t or_ones(uint64_t value, uint64_t ones) { return value < ones ? value : ones; }

static bool append(ct_zip_out *out, const void *bytes, size_t n, ct_err *err) {
    out->at += n;
    return ct__atomic_file_write(out->file, bytes, n, err);
}

static bool append_text(ct_zip_out *out, ct_text *text, ct_err *err) {
    if (text->failed) return ct__err_memory(err, CT_NOWHERE, out->file->path, text->cap * 2);
    return append(out, text->s, text->n, err);
}

// What an entry's own header and the directory have in common, from the version on. `ones`: in
// place of sizes that stand among the extra fields.
static void put_common(ct_text *text, const ct_zip_entry *e, bool ones, size_t extra_n) {
    put(text, 2, e->version);
    put(text, 2, e->flags);
    put(text, 2, e->method);
    put(text, 4, DAY_ONE);
    put(text, 4, e->crc);
    put(text, 4, ones ? UINT32_MAX : or_ones(e->packed, UINT32_MAX));
    put(text, 4, ones ? UINT32_MAX : or_ones(e->bytes, UINT32_MAX));
    put(text, 2, e->name_n);
    put(text, 2, extra_n);
}

// Its own header. Whether its sizes are wide is decided before they are known.
static void put_local(ct_text *text, const ct_zip_entry *e, bool wide) {
    ct__text_add(text, local_mark);
    put_common(text, e, wide, wide ? 20 : 0);
    ct__text_bytes(text, e->name, e->name_n);
    if (!wide) return;
    put(text, 2, WIDE);
    put(text, 2, 16);
    put(text, 8, e->bytes);
    put(text, 8, e->packed);
}

static void put_central(ct_text *text, const ct_zip_entry *e) {
    const uint64_t values[] = {e->bytes, e->packed, e->local};
    size_t wide = 0;
    for (int i = 0; i < 3; i++) wide += values[i] >= UINT32_MAX;
    ct__text_add(text, central_mark);
    put(text, 2, 0); // written by nobody in particular: no permissions
    put_common(text, e, false, wide ? 4 + 8 * wide : 0);
    put(text, 2, 0); // comment
    put(text, 2, 0); // disk
    put(text, 2, 0); // attributes, of two kinds
    put(text, 4, 0);
    put(text, 4, or_ones(e->local, UINT32_MAX));
    ct__text_bytes(text, e->name, e->name_n);
    if (!wide) return;
    put(text, 2, WIDE);
    put(text, 2, 8 * wide);
    for (int i = 0; i < 3; i++)
        if (values[i] >= UINT32_MAX) put(text, 8, values[i]);
}

// Packs what next_in has, all that is left behind the last piece, and counts it.
static bool pack(ct_zip_out *out, z_stream *z, unsigned char *room, bool last, ct_zip_entry *e,
                 ct_err *err) {
    int result;
    do {
        z->next_out = room;
        z->avail_out = BUFFER;
        result = deflate(z, last ? Z_FINISH : Z_NO_FLUSH);
        size_t n = BUFFER - z->avail_out;
        e->packed += n;
        if (!append(out, room, n, err)) return false;
    } while (last ? result != Z_STREAM_END : z->avail_out == 0);
    return true;
}

static bool put_bytes(ct_zip_out *out, const ct_zip_piece *pieces, size_t n, z_stream *z,
                      unsigned char *room, ct_zip_entry *e, ct_err *err) {
    uLong crc = crc32_z(0, NULL, 0);
    for (size_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < pieces[i].n;) {
            const unsigned char *p = (const unsigned char *)pieces[i].bytes + at;
            size_t some = pieces[i].n - at < CACHED ? (size_t)(pieces[i].n - at) : CACHED;
            crc = crc32_z(crc, p, some);
            if (room) {
                z->next_in = p;
                z->avail_in = (uInt)some;
                if (!pack(out, z, room, false, e, err)) return false;
            } else {
                e->packed += some;
                if (!append(out, p, some, err)) return false;
            }
            at += some;
        }
    e->crc = (uint32_t)crc;
    return !room || pack(out, z, room, true, e, err);
}

static bool put_packed(ct_zip_out *out, const ct_zip_piece *pieces, size_t n, ct_zip_entry *e,
                       ct_err *err) {
    z_stream z = {.zalloc = take_memory, .zfree = give_memory};
    if (e->method == STORED) return put_bytes(out, pieces, n, &z, NULL, e, err);
    unsigned char *room = ct__malloc(BUFFER);
    bool begun = room && deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                                      Z_DEFAULT_STRATEGY) == Z_OK;
    // deflate asks for 268 KB at once
    bool ok = begun ? put_bytes(out, pieces, n, &z, room, e, err)
                    : ct__err_memory(err, CT_NOWHERE, out->file->path, 1 << 18);
    if (begun) deflateEnd(&z);
    ct__free(room);
    return ok;
}

bool ct__zip_add(ct_zip_out *out, const char *name, const ct_zip_piece *pieces, size_t n,
                 bool deflate, ct_err *err) {
    ct_zip_entry e = {.name = name,
                      .name_n = strlen(name),
                      .local = out->at,
                      .flags = UTF8_NAME,
                      .method = deflate ? DEFLATED : STORED};
    ct_text head = {0};
    for (size_t i = 0; i < n; i++) e.bytes += pieces[i].n;
    bool wide = compressBound(e.bytes) >= UINT32_MAX; // deflating may lengthen a little
    e.version = wide || e.local >= UINT32_MAX ? WITH_64_BITS : WITH_DEFLATE;
    put_local(&head, &e, wide);
    bool ok = append_text(out, &head, err) && put_packed(out, pieces, n, &e, err);
    head.n = 0;
    put_local(&head, &e, wide); // as long as before, with what is known now
    ok = ok && (!head.failed || ct__err_memory(err, CT_NOWHERE, out->file->path, head.cap)) &&
         ct__atomic_file_patch(out->file, e.local, head.s, head.n, err);
    put_central(&out->directory, &e);
    out->n++;
    ct__text_free(&head);
    return ok;
}

bool ct__zip_finish(ct_zip_out *out, ct_err *err) {
    uint64_t begin = out->at, bytes = out->directory.n, end = begin + bytes;
    ct_text *text = &out->directory;
    if (out->n >= UINT16_MAX || begin >= UINT32_MAX || bytes >= UINT32_MAX) {
        ct__text_add(text, end_64_mark);
        put(text, 8, END_64 - 12);
        put(text, 2, WITH_64_BITS); // written by, and needed
        put(text, 2, WITH_64_BITS);
        put(text, 8, 0); // disks
        put(text, 8, out->n);
        put(text, 8, out->n);
        put(text, 8, bytes);
        put(text, 8, begin);
        ct__text_add(text, locator_mark);
        put(text, 4, 0);
        put(text, 8, end);
        put(text, 4, 1);
    }
    ct__text_add(text, end_mark);
    put(text, 4, 0); // disks
    put(text, 2, or_ones(out->n, UINT16_MAX));
    put(text, 2, or_ones(out->n, UINT16_MAX));
    put(text, 4, or_ones(bytes, UINT32_MAX));
    put(text, 4, or_ones(begin, UINT32_MAX));
    put(text, 2, 0); // comment
    return append_text(out, text, err);
}

void ct__zip_out_free(ct_zip_out *out) { ct__text_free(&out->directory); }
