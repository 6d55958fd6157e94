#include "io/npz.h"

#include <inttypes.h>
#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "io/utf8.h"

enum {
    END_RECORD = 22, // bytes without a comment
    LONGEST_COMMENT = 65535,
    NEWEST = 63,          // version of the zip format, in tenths
    DIRECTORY_ENTRY = 46, // bytes that an entry of the directory takes at least
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1,                                    // flags of an entry
    KNOWN_FLAGS = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11, // level, sizes behind the bytes, UTF-8
    UTF8_NAME = 1 << 11,                              //
    DEFLATE_AT_MOST = 1032,                           // times: 258 bytes from a copy of two bits
    LONGEST_NAME = 65535 - 4,
    PIECE = 1 << 30,             // minizip counts in int
    DAY_ONE = 1 << 21 | 1 << 16, // 1980-01-01, as NumPy writes it: equal arrays, equal bytes
};

__attribute__((format(printf, 3, 4))) static bool refuse(const struct ct_npz *npz, ct_err *err,
                                                         const char *format, ...) {
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label, "npz: %s", text);
}

// ------------------------------------------------------------------------------ the file in memory

static voidpf memory_open(voidpf memory, const void *name, int mode) {
    (void)name, (void)mode;
    return memory;
}
static uLong memory_read(voidpf memory, voidpf stream, void *to, uLong n) {
    ct_zip_memory *m = stream;
    (void)memory;
    if (m->at >= m->n) return 0;
    if (n > m->n - m->at) n = (uLong)(m->n - m->at);
    memcpy(to, m->bytes + m->at, n);
    m->at += n;
    return n;
}
static uLong memory_write(voidpf memory, voidpf stream, const void *from, uLong n) {
    (void)memory, (void)stream, (void)from, (void)n;
    return 0;
}
static ZPOS64_T memory_tell(voidpf memory, voidpf stream) {
    (void)memory;
    return ((const ct_zip_memory *)stream)->at;
}
static long memory_seek(voidpf memory, voidpf stream, ZPOS64_T offset, int origin) {
    ct_zip_memory *m = stream;
    (void)memory;
    uint64_t base = origin == ZLIB_FILEFUNC_SEEK_CUR   ? m->at
                    : origin == ZLIB_FILEFUNC_SEEK_END ? m->n
                                                       : 0;
    if (offset > m->n - base) return -1; // never beyond the end; base is within
    m->at = base + offset;
    return 0;
}
static int memory_close(voidpf memory, voidpf stream) {
    (void)memory, (void)stream;
    return 0;
}

// ----------------------------------------------------------------------------------- the directory

static bool leads_out(const char *name) {
    if (*name == '/' || *name == '\\') return true;
    for (const char *p = name; *p; p += strcspn(p, "/\\"), p += *p != 0)
        if (strcspn(p, "/\\") == 2 && memcmp(p, "..", 2) == 0) return true;
    return false;
}

static bool set_name(struct ct_npz *npz, ct_npz_entry *e, char *name, size_t n, ct_err *err) {
    char shown[CT_PRINTABLE], bare[CT_PRINTABLE];
    ct__printable(name, n, shown, sizeof shown);
    if (memchr(name, '\0', n) || ct__utf8_bad(name, n) < n)
        return refuse(npz, err, "the name \"%s\" is not UTF-8, or has a zero byte", shown);
    if (leads_out(name)) return refuse(npz, err, "the name \"%s\" leads out of its folder", shown);
    if (n < 4 || memcmp(name + n - 4, ".npy", 4) != 0)
        return refuse(npz, err, "\"%s\" is no array: its name does not end in \".npy\"", shown);
    name[n - 4] = '\0';
    e->name = name;
    e->part = ct__arena_printf(&npz->arena, "npz: array \"%s\"",
                               ct__printable(name, n - 4, bare, sizeof bare));
    return e->part || ct__err_memory(err, CT_NOWHERE, npz->label, n);
}

// The sizes that the directory claims: neither beyond the file nor beyond what deflate can do, so
// that no small file makes its reader ask for much memory.
static bool check_sizes(struct ct_npz *npz, const unz_file_info64 *info, ct_npz_entry *e,
                        ct_err *err) {
    e->bytes = info->uncompressed_size;
    e->packed = info->compressed_size;
    e->deflated = info->compression_method == DEFLATED;
    if (info->flag & ENCRYPTED)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, npz->label, "%s: it is encrypted",
                       e->part);
    if (info->version_needed > NEWEST)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, npz->label,
                       "%s: it needs version %lu.%lu of the zip format", e->part,
                       info->version_needed / 10, info->version_needed % 10);
    if (info->flag & ~(uLong)KNOWN_FLAGS)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, npz->label,
                       "%s: its flags %#lx are not all known", e->part, info->flag);
    if (!e->deflated && info->compression_method != STORED)
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, npz->label,
                       "%s: it is packed by method %lu; stored (0) and deflated (8) are supported",
                       e->part, info->compression_method);
    if (!e->deflated && e->packed != e->bytes)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                       "%s: it is stored, but takes %" PRIu64 " bytes where it has %" PRIu64,
                       e->part, e->packed, e->bytes);
    if (e->packed > npz->memory.n)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                       "%s: it takes %" PRIu64 " bytes, but the file has %" PRIu64, e->part,
                       e->packed, npz->memory.n);
    if (e->deflated && e->bytes / DEFLATE_AT_MOST > e->packed)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                       "%s: it claims %" PRIu64 " bytes, but its %" PRIu64
                       " bytes in the archive cannot unpack to more than %" PRIu64,
                       e->part, e->bytes, e->packed, e->packed * DEFLATE_AT_MOST);
    return true;
}

static bool differs(struct ct_npz *npz, const ct_npz_entry *e, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                   "%s: what stands before its bytes is damaged, or differs from the directory",
                   e->part);
}

// Where the bytes lie. minizip compares what stands before them with the directory, but for the
// name, of `n` bytes.
static bool find_bytes(struct ct_npz *npz, ct_npz_entry *e, size_t n, ct_err *err) {
    int method, level;
    if (unzOpenCurrentFile2(npz->zip, &method, &level, 1) != UNZ_OK) return differs(npz, e, err);
    e->begin = unzGetCurrentFileZStreamPos64(npz->zip);
    int extra = unzGetLocalExtrafield(npz->zip, NULL, 0); // between the name and the bytes
    unzCloseCurrentFile(npz->zip);
    if (e->begin > npz->memory.n || e->packed > npz->memory.n - e->begin)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                       "%s: it takes %" PRIu64 " bytes from byte %" PRIu64
                       " on, but the file has %" PRIu64,
                       e->part, e->packed, e->begin, npz->memory.n);
    if (extra < 0 || e->begin < n + (uint64_t)extra) return differs(npz, e, err);
    const unsigned char *name = npz->memory.bytes + e->begin - (uint64_t)extra - n;
    bool same = memcmp(name, e->name, n - 4) == 0 && memcmp(name + n - 4, ".npy", 4) == 0;
    return same || differs(npz, e, err);
}

static bool read_entry(struct ct_npz *npz, size_t i, ct_err *err) {
    ct_npz_entry *e = &npz->entries[i];
    unz_file_info64 info;
    unz64_file_pos pos;
    if (unzGetCurrentFileInfo64(npz->zip, &info, NULL, 0, NULL, 0, NULL, 0) != UNZ_OK)
        return refuse(npz, err, "entry %zu of %zu of the directory is damaged", i + 1, npz->n);
    char *name = ct__arena(&npz->arena, info.size_filename + 1);
    if (!name) return ct__err_memory(err, CT_NOWHERE, npz->label, info.size_filename + 1);
    if (unzGetCurrentFileInfo64(npz->zip, &info, name, info.size_filename + 1, NULL, 0, NULL, 0) !=
            UNZ_OK ||
        unzGetFilePos64(npz->zip, &pos) != UNZ_OK)
        return refuse(npz, err, "entry %zu of %zu of the directory is damaged", i + 1, npz->n);
    name[info.size_filename] = '\0';
    e->directory = pos.pos_in_zip_directory;
    e->number = pos.num_of_file;
    return set_name(npz, e, name, info.size_filename, err) && check_sizes(npz, &info, e, err) &&
           find_bytes(npz, e, info.size_filename, err);
}

static int by_name(const void *a, const void *b) {
    const ct_npz_entry *x = *(ct_npz_entry *const *)a, *y = *(ct_npz_entry *const *)b;
    return strcmp(x->name, y->name);
}

static int by_place(const void *a, const void *b) {
    const ct_npz_entry *x = *(ct_npz_entry *const *)a, *y = *(ct_npz_entry *const *)b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

// No name twice, and no byte in two arrays: an archive of arrays that share bytes could unpack to
// any size.
static bool check_all(struct ct_npz *npz, ct_err *err) {
    const ct_npz_entry **order = npz->by_name;
    for (size_t i = 0; i < npz->n; i++) order[i] = &npz->entries[i];
    if (npz->n) qsort(order, npz->n, sizeof *order, by_place);
    for (size_t i = 1; i < npz->n; i++)
        if (order[i]->begin < order[i - 1]->begin + order[i - 1]->packed)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                           "%s: its bytes begin inside those of another array", order[i]->part);
    if (npz->n) qsort(order, npz->n, sizeof *order, by_name);
    for (size_t i = 1; i < npz->n; i++)
        if (by_name(&order[i - 1], &order[i]) == 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label, "%s: its name comes twice",
                           order[i]->part);
    return true;
}

// An archive begins with an entry and ends with its end record, whole: beyond the file's end
// minizip reads zeros. *nothing: it is a lone end record, which minizip does not look for at byte
// 0.
static bool check_ends(struct ct_npz *npz, bool *nothing, ct_err *err) {
    const unsigned char *b = npz->memory.bytes, *record = NULL;
    size_t n = npz->memory.n;
    char shown[CT_PRINTABLE];
    static const unsigned char empty[END_RECORD] = {'P', 'K', 5, 6};
    if (n < 4 || (memcmp(b, "PK\3\4", 4) != 0 && memcmp(b, "PK\5\6", 4) != 0))
        return refuse(npz, err, "it is no zip archive: it begins with \"%s\", not with \"PK\"",
                      ct__printable(b, n < 4 ? n : 4, shown, sizeof shown));
    size_t least = n > END_RECORD + LONGEST_COMMENT ? n - END_RECORD - LONGEST_COMMENT : 0;
    for (size_t i = n - 4; !record; i--) {
        if (memcmp(b + i, "PK\5\6", 4) == 0) record = b + i;
        if (i == least) break;
    }
    size_t left = record ? n - (size_t)(record - b) : 0;
    if (left < END_RECORD || left != END_RECORD + (record[20] | (size_t)record[21] << 8))
        return refuse(npz, err, "the end of the archive is missing: it is cut short");
    *nothing = n == END_RECORD && memcmp(b, empty, n) == 0;
    return true;
}

static bool read_directory(struct ct_npz *npz, ct_err *err) {
    unz_global_info64 global;
    zlib_filefunc64_def functions = {memory_open, memory_read,  memory_write, memory_tell,
                                     memory_seek, memory_close, memory_close, &npz->memory};
    bool nothing = false;
    if (!check_ends(npz, &nothing, err) || nothing) return !err->code;
    npz->zip = unzOpen2_64(npz->label, &functions);
    if (!npz->zip) return refuse(npz, err, "its directory cannot be found");
    if (unzGetGlobalInfo64(npz->zip, &global) != UNZ_OK)
        return refuse(npz, err, "the directory is damaged");
    if (global.number_entry > npz->memory.n / DIRECTORY_ENTRY)
        return refuse(npz, err,
                      "the directory has %" PRIu64
                      " entries by its count, but the file only %" PRIu64 " bytes",
                      (uint64_t)global.number_entry, npz->memory.n);
    npz->n = (size_t)global.number_entry;
    npz->entries = ct__arena_zero(&npz->arena, npz->n * sizeof *npz->entries);
    npz->by_name = ct__arena_zero(&npz->arena, npz->n * sizeof *npz->by_name);
    if (!npz->entries || !npz->by_name)
        return ct__err_memory(err, CT_NOWHERE, npz->label, npz->n * sizeof *npz->entries);
    for (size_t i = 0; i < npz->n; i++) {
        if ((i ? unzGoToNextFile(npz->zip) : unzGoToFirstFile(npz->zip)) != UNZ_OK)
            return refuse(npz, err, "entry %zu of %zu of the directory is damaged", i + 1, npz->n);
        if (!read_entry(npz, i, err)) return false;
    }
    return check_all(npz, err);
}

bool ct__npz_parse(const char *label, const void *bytes, size_t n, struct ct_npz *npz,
                   ct_err *err) {
    *npz = (struct ct_npz){.memory = {bytes, n, 0}};
    npz->label = ct__arena_str(&npz->arena, label);
    bool ok = npz->label ? read_directory(npz, err)
                         : ct__err_memory(err, CT_NOWHERE, label, strlen(label) + 1);
    if (!ok) ct__npz_close(npz);
    return ok;
}

bool ct__npz_open(const char *path, struct ct_npz *npz, ct_err *err) {
    const void *map;
    size_t n;
    if (!ct__file_map(path, &map, &n, err)) return false;
    if (!ct__npz_parse(path, map ? map : "", n, npz, err)) {
        ct__file_unmap(map, n);
        return false;
    }
    npz->map = map;
    npz->map_n = n;
    return true;
}

void ct__npz_close(struct ct_npz *npz) {
    if (npz->zip) unzClose(npz->zip);
    ct__file_unmap(npz->map, npz->map_n);
    ct__arena_free(&npz->arena);
    *npz = (struct ct_npz){0};
}

const ct_npz_entry *ct__npz_find(const struct ct_npz *npz, const char *name) {
    ct_npz_entry key = {.name = name};
    const ct_npz_entry *wanted = &key, **found = NULL;
    if (npz->n) found = bsearch(&wanted, npz->by_name, npz->n, sizeof *npz->by_name, by_name);
    return found ? *found : NULL;
}

// -------------------------------------------------------------------------------------- the arrays

// n bytes of the open entry; false where it has fewer or they are damaged.
static bool take(struct ct_npz *npz, const ct_npz_entry *e, void *to, uint64_t n, ct_err *err) {
    for (char *p = to; n;) {
        int got = unzReadCurrentFile(npz->zip, p, n < PIECE ? (unsigned)n : PIECE);
        if (got <= 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                           "%s: its bytes cannot be unpacked: they are damaged", e->part);
        p += got;
        n -= (uint64_t)got;
    }
    return true;
}

static bool open_entry(struct ct_npz *npz, const ct_npz_entry *e, ct_err *err) {
    unz64_file_pos pos = {e->directory, e->number};
    return (unzGoToFilePos64(npz->zip, &pos) == UNZ_OK && unzOpenCurrentFile(npz->zip) == UNZ_OK) ||
           ct__err(err, CT_E_MEMORY, CT_NOWHERE, npz->label, "%s: no memory to unpack it", e->part);
}

// Everything before the data.
static bool take_head(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, ct_err *err) {
    char fixed[CT_NPY_FIXED];
    ct_npy_name name = {npz->label, e->part};
    size_t n = e->bytes < sizeof fixed ? (size_t)e->bytes : sizeof fixed, prefix;
    if (!take(npz, e, fixed, n, err) || !ct__npy_prefix(name, fixed, n, &prefix, err)) return false;
    // Where a header claims more than there is, what there is goes to the parser, to be refused.
    if (prefix > e->bytes) return ct__npy_parse(name, fixed, n, e->bytes, npy, err);
    char *head = ct__malloc(prefix < n ? n : prefix);
    if (!head) return ct__err_memory(err, CT_NOWHERE, npz->label, prefix);
    memcpy(head, fixed, n);
    bool ok = (prefix <= n || take(npz, e, head + n, prefix - n, err)) &&
              ct__npy_parse(name, head, prefix, e->bytes, npy, err);
    ct__free(head);
    return ok;
}

bool ct__npz_head(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, ct_err *err) {
    if (!open_entry(npz, e, err)) return false;
    bool ok = take_head(npz, e, npy, err);
    unzCloseCurrentFile(npz->zip);
    return ok;
}

static bool take_data(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, void **data,
                      ct_err *err) {
    if (!take_head(npz, e, npy, err) ||
        !ct__npy_usable((ct_npy_name){npz->label, e->part}, npy, err))
        return false;
    *data = ct__malloc(npy->bytes ? npy->bytes : 1);
    if (!*data) return ct__err_memory(err, CT_NOWHERE, npz->label, npy->bytes);
    return take(npz, e, *data, npy->bytes, err);
}

bool ct__npz_read(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, void **data,
                  ct_err *err) {
    *data = NULL;
    if (!open_entry(npz, e, err)) return false;
    bool ok = take_data(npz, e, npy, data, err);
    if (unzCloseCurrentFile(npz->zip) == UNZ_CRCERROR && ok)
        ok = ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                     "%s: its checksum is wrong: the file is damaged", e->part);
    if (!ok) {
        ct__free(*data);
        *data = NULL;
    }
    return ok;
}

// ----------------------------------------------------------------------------------------- writing

typedef struct writer {
    ct_atomic file;
    ct_err *err;
} writer;

static voidpf file_open(voidpf w, const void *name, int mode) {
    (void)name, (void)mode;
    return w;
}
static uLong file_read(voidpf w, voidpf stream, void *to, uLong n) {
    (void)w, (void)stream, (void)to, (void)n;
    return 0;
}
static uLong file_write(voidpf w, voidpf stream, const void *from, uLong n) {
    writer *out = stream;
    (void)w;
    return ct__atomic_put(&out->file, from, n, out->err) ? n : 0;
}
static ZPOS64_T file_tell(voidpf w, voidpf stream) {
    (void)w;
    return (ZPOS64_T)lseek(((writer *)stream)->file.fd, 0, SEEK_CUR);
}
// minizip goes back to an entry's beginning when its sizes are known.
static long file_seek(voidpf w, voidpf stream, ZPOS64_T offset, int origin) {
    int whence = origin == ZLIB_FILEFUNC_SEEK_CUR   ? SEEK_CUR
                 : origin == ZLIB_FILEFUNC_SEEK_END ? SEEK_END
                                                    : SEEK_SET;
    (void)w;
    return lseek(((writer *)stream)->file.fd, (off_t)offset, whence) < 0 ? -1 : 0;
}
static int file_close(voidpf w, voidpf stream) {
    (void)w, (void)stream;
    return 0;
}

static bool put(writer *w, zipFile zip, const void *bytes, uint64_t n) {
    for (const char *p = bytes; n;) {
        unsigned piece = n < PIECE ? (unsigned)n : PIECE;
        if (zipWriteInFileInZip(zip, p, piece) != ZIP_OK) return false;
        p += piece;
        n -= piece;
    }
    return !w->err->code;
}

static bool check_out(writer *w, const ct_npz_out *e) {
    char shown[CT_PRINTABLE];
    size_t n = strlen(e->name);
    const char *what = NULL;
    if (n > LONGEST_NAME)
        what = "the name is too long";
    else if (ct__utf8_bad(e->name, n) < n)
        what = "the name is not UTF-8";
    else if (leads_out(e->name))
        what = "the name leads out of its folder";
    return !what ||
           ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->file.path, "npz: array \"%s\": %s",
                   ct__printable(e->name, n, shown, sizeof shown), what);
}

static bool put_entry(writer *w, zipFile zip, const ct_npz_out *e, bool deflate) {
    ct_text head = {0}, name = {0};
    char part[CT_PRINTABLE + 16], shown[CT_PRINTABLE];
    zip_fileinfo info = {.dosDate = DAY_ONE};
    uint64_t bytes = ct_dtype_size(e->dtype); // of a tensor: the product fits
    for (int i = 0; i < e->rank; i++) bytes *= (uint64_t)e->shape[i];
    snprintf(part, sizeof part, "npz: array \"%s\"",
             ct__printable(e->name, strlen(e->name), shown, sizeof shown));
    ct__textf(&name, "%s.npy", e->name);
    bool ok = ct__npy_header((ct_npy_name){w->file.path, part}, e->dtype, e->rank, e->shape, &head,
                             w->err) &&
              (!name.failed || ct__err_memory(w->err, CT_NOWHERE, w->file.path, name.cap * 2));
    // Deflating may lengthen a little: 64-bit sizes well before they are needed.
    ok = ok && zipOpenNewFileInZip4_64(
                   zip, name.s, &info, NULL, 0, NULL, 0, NULL, deflate ? DEFLATED : STORED,
                   deflate ? Z_DEFAULT_COMPRESSION : 0, 0, -MAX_WBITS, DEF_MEM_LEVEL,
                   Z_DEFAULT_STRATEGY, NULL, 0, 0, UTF8_NAME, bytes > INT32_MAX) == ZIP_OK;
    ok = ok && put(w, zip, head.s, head.n) && put(w, zip, e->data, bytes);
    ok = ok && zipCloseFileInZip(zip) == ZIP_OK;
    ct__text_free(&head);
    ct__text_free(&name);
    return ok;
}

static bool check_names(writer *w, const ct_npz_out *entries, size_t n) {
    const ct_npz_out **order = ct__malloc((n + 1) * sizeof *order);
    char shown[CT_PRINTABLE];
    bool ok = order || ct__err_memory(w->err, CT_NOWHERE, w->file.path, n * sizeof *order);
    for (size_t i = 0; i < n && ok; i++) {
        order[i] = &entries[i];
        ok = check_out(w, order[i]);
    }
    // The name is the first member of both records, which is all that by_name looks at.
    _Static_assert(offsetof(ct_npz_out, name) == 0 && offsetof(ct_npz_entry, name) == 0, "by_name");
    if (ok && n) qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n && ok; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            ok =
                ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->file.path,
                        "npz: array \"%s\": the name is given twice",
                        ct__printable(order[i]->name, strlen(order[i]->name), shown, sizeof shown));
    ct__free(order);
    return ok;
}

bool ct__npz_write(const char *path, const ct_npz_out *entries, size_t n, bool deflate,
                   ct_err *err) {
    writer w = {.err = err};
    zlib_filefunc64_def functions = {file_open, file_read,  file_write, file_tell,
                                     file_seek, file_close, file_close, &w};
    if (!ct__atomic_begin(&w.file, path, 0, err)) return false;
    bool ok = check_names(&w, entries, n);
    zipFile zip = ok ? zipOpen2_64(path, APPEND_STATUS_CREATE, NULL, &functions) : NULL;
    for (size_t i = 0; i < n && zip && ok; i++) ok = put_entry(&w, zip, &entries[i], deflate);
    if (zip && zipClose(zip, NULL) != ZIP_OK) ok = false;
    // What failed without a sentence failed in minizip, which only ever lacks memory.
    if (!zip || !ok) ok = err->code ? false : ct__err_memory(err, CT_NOWHERE, path, 1 << 18);
    ok = ok && ct__atomic_commit(&w.file, err);
    if (!ok) ct__atomic_abandon(&w.file);
    return ok;
}
