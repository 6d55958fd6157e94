#define _GNU_SOURCE
#include "data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "data/loader.h"
#include "io/crc32c.h"
#include "io/run_names.h"
#include "io/utf8.h"

enum { CODE_POINTS = 0x110000, SNIFF_BYTES = 1 << 16, MAX_PATH = 4096 };

typedef struct reader {
    ct_corpus *corpus;
    size_t cap, paths_cap; // capacity of the tokens; of the paths
    int32_t *ids;          // chars: 1 for each code point that occurs, later its token;
                           // CODE_POINTS of them
    bool has_run_folder;   // the run's folder exists
    struct stat run_folder_stat;
    ct_err *err;
} reader;

static bool corpus_fail_memory(reader *r, const char *path, size_t bytes) {
    return ct__err_memory(r->err, CT_NOWHERE, path, bytes);
}

// --------------------------------------------------------------------------------------- one file

// Text has no NUL and, in its beginning, few control characters and few bytes that are not UTF-8.
static bool corpus_is_binary(const char *text, size_t n) {
    if (n && memchr(text, '\0', n)) return true;
    size_t look = n < SNIFF_BYTES ? n : SNIFF_BYTES, odd = 0;
    for (size_t i = 0; i < look;) {
        uint32_t cp;
        size_t used;
        ct_utf8 state = ct__utf8_next(text + i, look - i, &cp, &used);
        if (state == CT_UTF8_BAD)
            odd += used;
        else if (state == CT_UTF8_OK && (cp < 7 || (cp > 13 && cp < 32 && cp != 27) || cp == 127))
            odd++;
        i += used;
    }
    return odd * 10 > look * 3;
}

static bool corpus_fail_binary(reader *r, const char *path, const char *text, size_t n) {
    const char *nul = memchr(text, '\0', n);
    if (nul)
        ct__err(r->err, CT_E_DATA, CT_NOWHERE, path, "the file is not text: byte %zu of %zu is 0",
                (size_t)(nul - text), n);
    else
        ct__err(r->err, CT_E_DATA, CT_NOWHERE, path,
                "the file is not text: most of its %zu bytes are no characters", n);
    return ct__err_hint(r->err, ".tokenizer \"bytes\" accepts any file");
}

static bool corpus_add_chars(reader *r, const char *path, const char *text, size_t n) {
    int32_t *out = r->corpus->tokens + r->corpus->n;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used;
        if (ct__utf8_next(text + i, n - i, &cp, &used) != CT_UTF8_OK) {
            ct__err(r->err, CT_E_DATA, CT_NOWHERE, path,
                    "the file is not UTF-8: byte %zu of %zu is 0x%02x", i, n,
                    (unsigned)(unsigned char)text[i]);
            return ct__err_hint(r->err, "convert it with iconv, or use .tokenizer \"bytes\"");
        }
        r->ids[cp] = 1;
        *out++ = (int32_t)cp;
        i += used;
    }
    r->corpus->n = (size_t)(out - r->corpus->tokens);
    return true;
}

// Lists a file for a tokenizer; its length and bytes are added to the checksum.
static bool corpus_list_file(reader *r, const char *path, const char *text, size_t n) {
    ct_corpus *corpus = r->corpus;
    const uint64_t bytes = n;
    char *copy = CT_GROW(corpus->paths, r->paths_cap, corpus->files + 1) ? ct__strdup(path) : NULL;
    if (!copy) return corpus_fail_memory(r, path, (corpus->files + 1) * sizeof *corpus->paths);
    corpus->paths[corpus->files] = copy;
    corpus->text_sum = ct__crc32c_extend(corpus->text_sum, &bytes, sizeof bytes);
    corpus->text_sum = ct__crc32c_extend(corpus->text_sum, text, n);
    return true;
}

static bool corpus_add_file(reader *r, const char *path, bool named) {
    ct_corpus *corpus = r->corpus;
    const bool later = corpus->vocab.kind == CT_TOKENS_DEFERRED;
    bool chars = later || corpus->vocab.kind == CT_TOKENS_CHARS, ok = true;
    char *text;
    size_t n;
    if (!ct__file_read(path, &text, &n, r->err)) return false;
    bool binary = (chars || !named) && corpus_is_binary(text, n);
    if (binary && named) ok = corpus_fail_binary(r, path, text, n);
    if (binary && !named) corpus->skipped++;
    if (!binary && later)
        ok = corpus_list_file(r, path, text, n);
    else if (!binary && !CT_GROW(corpus->tokens, r->cap, corpus->n + n))
        ok = corpus_fail_memory(r, path, (corpus->n + n) * sizeof *corpus->tokens);
    if (!binary && ok && chars && !later) ok = corpus_add_chars(r, path, text, n);
    if (!binary && ok && !chars)
        for (size_t i = 0; i < n; i++) corpus->tokens[corpus->n++] = (unsigned char)text[i];
    if (!binary && ok) {
        corpus->files++;
        corpus->bytes += n;
    }
    ct__free(text);
    return ok;
}

// --------------------------------------------------------------------------------------- runs

// A run that trains on a folder may write into it, and must find the same text when it is resumed: files that
// runs write are not text.

// True if the file begins with this text. A pipe, which could block, is not a file.
static bool corpus_file_begins_with(const char *folder, const char *name, const char *begin) {
    char path[MAX_PATH], bytes[16];
    ct_err ignored = {0};
    ct_file file;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n >= MAX_PATH || !ct__file_handle_open(path, &file, &ignored)) return false;
    size_t want = strlen(begin);
    bool same = file.n >= want && ct__file_read_at(&file, 0, bytes, want, &ignored) &&
                memcmp(bytes, begin, want) == 0;
    ct__file_handle_close(&file);
    return same;
}

static bool corpus_same_folder(const char *path, const struct stat *other) {
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == other->st_dev && st.st_ino == other->st_ino;
}

// Recognises a run's folder by its metrics, which exist from its first step on, or by a saved model. The
// folder of the current run is one from the start, so that it is read alike when the run is resumed.
static bool corpus_is_run(const reader *r, const char *folder) {
    return corpus_file_begins_with(folder, "metrics.jsonl", "{\"step\": ") ||
           (corpus_file_begins_with(folder, "config.json", "") &&
            corpus_file_begins_with(folder, "model.safetensors", "")) ||
           (r->has_run_folder && corpus_same_folder(folder, &r->run_folder_stat));
}

typedef enum { RUN_FOLDER_NONE, RUN_FOLDER_RUN, RUN_FOLDER_BEST, RUN_FOLDER_SAVES } run_folder;

static bool corpus_is_run_subfolder(const reader *r, const char *folder, const char *name) {
    char parent[MAX_PATH], inner[MAX_PATH];
    struct stat st;
    return snprintf(parent, sizeof parent, "%s/..", folder) < MAX_PATH &&
           snprintf(inner, sizeof inner, "%s/%s", parent, name) < MAX_PATH &&
           stat(folder, &st) == 0 && corpus_same_folder(inner, &st) && corpus_is_run(r, parent);
}

static run_folder corpus_run_folder(const reader *r, const char *folder) {
    return corpus_is_run(r, folder)                           ? RUN_FOLDER_RUN
           : corpus_is_run_subfolder(r, folder, CT_RUN_BEST)  ? RUN_FOLDER_BEST
           : corpus_is_run_subfolder(r, folder, CT_RUN_SAVES) ? RUN_FOLDER_SAVES
                                                              : RUN_FOLDER_NONE;
}

// True for a file that a run writes there and that could be taken for text, also under its temporary name:
// "loss.svg.1234-5.tmp".
static bool corpus_is_run_file(run_folder where, const char *name) {
    static const char *const names[] = {"config.json", CT_RUN_SIDE_FILES, CT_RUN_TOKENS, "loss.svg",
                                        "metrics.jsonl"};
    enum { NAMES = sizeof names / sizeof *names, BEST_NAMES = NAMES - 3 };
    int64_t step;
    if (where == RUN_FOLDER_SAVES)
        return ct__is_save_name(name, &step) || ct__is_unfinished_save_name(name);
    for (size_t i = 0; i < (where == RUN_FOLDER_RUN    ? NAMES
                            : where == RUN_FOLDER_BEST ? BEST_NAMES
                                                       : 0);
         i++)
        if (strcmp(name, names[i]) == 0 || ct__atomic_file_is_leftover(name, names[i])) return true;
    return false;
}

// ------------------------------------------------------------------------ files, folders and globs

static int corpus_compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct name_list {
    char **list;
    size_t n, cap;
} name_list;

static void corpus_free_names(name_list *names) {
    for (size_t i = 0; i < names->n; i++) ct__free(names->list[i]);
    ct__free(names->list);
}

// Lists the names in a folder in byte order, which does not depend on the locale.
static bool corpus_list_folder(reader *r, const char *path, name_list *names) {
    DIR *dir = opendir(path);
    if (!dir) return ct__err_system(r->err, path, "open the folder");
    bool ok = true;
    struct dirent *entry;
    while (ok && (errno = 0, entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *copy =
            CT_GROW(names->list, names->cap, names->n + 1) ? ct__strdup(entry->d_name) : NULL;
        if (copy)
            names->list[names->n++] = copy;
        else
            ok = corpus_fail_memory(r, path, names->cap * 2 * sizeof copy);
    }
    if (ok && errno) ok = ct__err_system(r->err, path, "read the folder");
    closedir(dir);
    if (names->n) qsort(names->list, names->n, sizeof *names->list, corpus_compare_names);
    return ok;
}

static bool corpus_add_folder(reader *r, const char *path);

// Recursion is bounded by the system's maximum path length.
static bool corpus_add_entry(reader *r, const char *folder, run_folder where, const char *name) {
    CT_TEXT path = {0};
    struct stat st;
    ct__textf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
    if (path.failed) {
        return corpus_fail_memory(r, folder, strlen(folder));
    }
    bool ok = true;
    if (name[0] == '.' || corpus_is_run_file(where, name))
        r->corpus->skipped++;
    else if (lstat(path.s, &st) != 0)
        ok = ct__err_system(r->err, path.s, "stat");
    else if (S_ISDIR(st.st_mode))
        ok = corpus_add_folder(r, path.s);
    else if (S_ISREG(st.st_mode))
        ok = corpus_add_file(r, path.s, false);
    else
        r->corpus->skipped++;
    return ok;
}

static bool corpus_add_folder(reader *r, const char *path) {
    name_list names = {0};
    bool ok = corpus_list_folder(r, path, &names);
    run_folder where = corpus_run_folder(r, path);
    for (size_t i = 0; i < names.n && ok; i++) ok = corpus_add_entry(r, path, where, names.list[i]);
    corpus_free_names(&names);
    return ok;
}

static bool corpus_add_existing(reader *r, const char *path, const struct stat *st, bool named) {
    if (S_ISDIR(st->st_mode)) return corpus_add_folder(r, path);
    if (S_ISREG(st->st_mode)) return corpus_add_file(r, path, named);
    if (named)
        return ct__err(r->err, CT_E_FILE, CT_NOWHERE, path, "neither a regular file nor a folder");
    r->corpus->skipped++;
    return true;
}

// Adds a path that matched a pattern, without a '/' at its end.
static bool corpus_add_match(reader *r, const char *path) {
    struct stat st;
    char folder[MAX_PATH] = ".";
    const char *slash = strrchr(path, '/');
    if (stat(path, &st) != 0) return ct__err_system(r->err, path, "stat");
    if (slash && slash - path < MAX_PATH)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (!corpus_is_run_file(corpus_run_folder(r, folder), slash ? slash + 1 : path))
        return corpus_add_existing(r, path, &st, false);
    r->corpus->skipped++;
    return true;
}

static bool corpus_add_glob(reader *r, const char *pattern) {
    glob_t found = {0};
    // GLOB_NOSORT: glob's own order depends on the locale.
    int rc = glob(pattern, GLOB_NOSORT, NULL, &found);
    bool ok = rc == 0;
    if (rc == GLOB_NOMATCH)
        ct__err(r->err, CT_E_FILE, CT_NOWHERE, pattern, "no file matches this pattern");
    else if (rc != 0)
        corpus_fail_memory(r, pattern, strlen(pattern));
    if (ok) qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, corpus_compare_names);
    for (size_t i = 0; i < found.gl_pathc && ok; i++) ok = corpus_add_match(r, found.gl_pathv[i]);
    globfree(&found);
    return ok;
}

static bool corpus_is_glob(const char *path, int stat_errno) {
    return stat_errno == ENOENT && strpbrk(path, "*?[");
}

bool ct__corpus_is_pattern(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 && corpus_is_glob(path, errno);
}

static bool corpus_add_path(reader *r, const char *path) {
    struct stat st;
    size_t bytes = r->corpus->bytes, skipped = r->corpus->skipped;
    bool regular = false;
    if (stat(path, &st) == 0) {
        regular = S_ISREG(st.st_mode);
        if (!corpus_add_existing(r, path, &st, true)) return false;
    } else if (corpus_is_glob(path, errno)) {
        if (!corpus_add_glob(r, path)) return false;
    } else {
        return ct__err_system(r->err, path, "open");
    }
    if (r->corpus->bytes > bytes) return true;
    if (regular) return ct__err(r->err, CT_E_DATA, CT_NOWHERE, path, "the file is empty");
    return ct__err(r->err, CT_E_DATA, CT_NOWHERE, path,
                   "there is no text here (%zu hidden, binary or irregular files, or a run's own, "
                   "were skipped)",
                   r->corpus->skipped - skipped);
}

// ---------------------------------------------------------------------------------- the vocabulary

// Numbers the code points that occur in ascending order, and converts the tokens from code points to these
// numbers.
static bool corpus_number_chars(reader *r) {
    ct_corpus *corpus = r->corpus;
    int32_t count = 0;
    for (size_t cp = 0; cp < CODE_POINTS; cp++) count += r->ids[cp];
    corpus->vocab.chars = ct__malloc((size_t)count * sizeof *corpus->vocab.chars);
    if (!corpus->vocab.chars)
        return corpus_fail_memory(r, "corpus", (size_t)count * sizeof *corpus->vocab.chars);
    for (uint32_t cp = 0; cp < CODE_POINTS; cp++)
        if (r->ids[cp]) {
            corpus->vocab.chars[corpus->vocab.n] = cp;
            r->ids[cp] = corpus->vocab.n++;
        }
    for (size_t i = 0; i < corpus->n; i++) corpus->tokens[i] = r->ids[corpus->tokens[i]];
    return true;
}

bool ct__corpus_read(const char *const *paths, size_t n, ct_tokens kind, const char *run,
                     ct_corpus *corpus, ct_err *err) {
    *corpus = (ct_corpus){.vocab.kind = kind};
    reader r = {.corpus = corpus, .err = err};
    r.has_run_folder = run && stat(run, &r.run_folder_stat) == 0;
    bool ok = n > 0 || ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "corpus", "no path is given");
    if (ok && kind == CT_TOKENS_CHARS) {
        r.ids = ct__calloc(CODE_POINTS, sizeof *r.ids);
        if (!r.ids) ok = corpus_fail_memory(&r, "corpus", CODE_POINTS * sizeof *r.ids);
    }
    for (size_t i = 0; i < n && ok; i++) ok = corpus_add_path(&r, paths[i]);
    if (kind == CT_TOKENS_BYTES) corpus->vocab.n = 256;
    if (kind == CT_TOKENS_CHARS) ok = ok && corpus_number_chars(&r);
    ct__free(r.ids);
    if (!ok) ct__corpus_free(corpus);
    return ok;
}

bool ct__corpus_check(const ct_corpus *corpus, size_t context, ct_err *err) {
    size_t train = ct__split(corpus->n), rest = corpus->n - train;
    if (train > context && rest > context) return true;
    ct__err(err, CT_E_DATA, CT_NOWHERE, "corpus",
            "%zu tokens are too few for context %zu: %zu to train on and %zu to validate on, each "
            "must be at least %zu",
            corpus->n, context, train, rest, context + 1);
    return ct__err_hint(err, "use more text or a smaller .context");
}

void ct__corpus_free(ct_corpus *corpus) {
    ct__vocab_free(&corpus->vocab);
    if (corpus->mapped)
        ct__file_unmap(corpus->mapped, corpus->mapped_n);
    else
        ct__free(corpus->tokens);
    for (size_t i = 0; corpus->paths && i < corpus->files; i++) ct__free(corpus->paths[i]);
    ct__free(corpus->paths);
    *corpus = (ct_corpus){0};
}

void ct__vocab_text(const ct_vocab *vocab, ct_text *text) {
    char one[4];
    ct__text_add(text, "");
    for (int32_t i = 0; vocab->kind == CT_TOKENS_CHARS && i < vocab->n; i++)
        ct__text_bytes(text, one, ct__utf8_put(vocab->chars[i], one));
}

bool ct__vocab_parse(const char *label, ct_tokens kind, const char *text, size_t n, ct_vocab *vocab,
                     ct_err *err) {
    *vocab = (ct_vocab){.kind = kind, .n = kind == CT_TOKENS_BYTES ? 256 : 0};
    if (kind == CT_TOKENS_BYTES)
        return n == 0 || ct__err(err, CT_E_FORMAT, CT_NOWHERE, label,
                                 "vocabulary: bytes as tokens have none, but it has %zu bytes", n);
    if (n == 0) return ct__err(err, CT_E_FORMAT, CT_NOWHERE, label, "vocabulary: it is empty");
    vocab->chars = ct__malloc(n * sizeof *vocab->chars);
    if (!vocab->chars) return ct__err_memory(err, CT_NOWHERE, label, n * sizeof *vocab->chars);
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t cp;
        bool ok = ct__utf8_next(text + i, n - i, &cp, &used) == CT_UTF8_OK;
        if (!ok)
            ct__err(err, CT_E_FORMAT, CT_NOWHERE, label, "vocabulary: byte %zu is not UTF-8", i);
        else if (vocab->n && vocab->chars[vocab->n - 1] >= cp)
            ok = ct__err(err, CT_E_FORMAT, CT_NOWHERE, label,
                         "vocabulary: U+%04" PRIX32 " follows U+%04" PRIX32
                         ", but characters must ascend",
                         cp, vocab->chars[vocab->n - 1]);
        if (!ok) {
            ct__vocab_free(vocab);
            return false;
        }
        vocab->chars[vocab->n++] = cp;
    }
    return true;
}

void ct__vocab_free(ct_vocab *vocab) {
    ct__free(vocab->chars);
    *vocab = (ct_vocab){0};
}

// ------------------------------------------------------------------------------ prompts and output

static int32_t vocab_find_char(const ct_vocab *vocab, uint32_t cp) {
    int32_t low = 0, high = vocab->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (vocab->chars[middle] < cp)
            low = middle + 1;
        else
            high = middle;
    }
    return low < vocab->n && vocab->chars[low] == cp ? low : -1;
}

static bool vocab_encode_chars(const ct_vocab *vocab, const char *label, const char *text, size_t n,
                               int32_t *tokens, size_t *count, ct_err *err) {
    char shown[CT_PRINTABLE];
    for (size_t i = 0, used; i < n; i += used) {
        uint32_t cp;
        if (ct__utf8_next(text + i, n - i, &cp, &used) != CT_UTF8_OK)
            return ct__err(err, CT_E_DATA, CT_NOWHERE, label,
                           "byte %zu is 0x%02x, which is not UTF-8", i,
                           (unsigned)(unsigned char)text[i]);
        int32_t token = vocab_find_char(vocab, cp);
        if (token < 0)
            return ct__err(err, CT_E_DATA, CT_NOWHERE, label,
                           "character \"%s\" (U+%04" PRIX32
                           ") at byte %zu is not among the %" PRId32 " characters of the model",
                           ct__printable(text + i, used, shown, sizeof shown), cp, i, vocab->n);
        tokens[(*count)++] = token;
    }
    return true;
}

bool ct__encode(const ct_vocab *vocab, const char *label, const char *text, size_t n,
                int32_t **tokens, size_t *count, ct_err *err) {
    *count = 0;
    *tokens = n <= SIZE_MAX / sizeof **tokens ? ct__malloc(n * sizeof **tokens) : NULL;
    if (!*tokens) return ct__err_memory(err, CT_NOWHERE, label, n * sizeof **tokens);
    if (vocab->kind == CT_TOKENS_BYTES) {
        for (size_t i = 0; i < n; i++) (*tokens)[i] = (unsigned char)text[i];
        *count = n;
        return true;
    }
    if (vocab_encode_chars(vocab, label, text, n, *tokens, count, err)) return true;
    ct__free(*tokens);
    *tokens = NULL;
    *count = 0;
    return false;
}

static const uint32_t REPLACEMENT = 0xfffd;

size_t ct__decode(const ct_vocab *vocab, ct_byte_decoder *decoder, int32_t token,
                  char out[CT_DECODE_ROOM]) {
    size_t n = 0;
    if (token < 0 || token >= vocab->n) {
        n = ct__decode_end(decoder, out);
        return n + ct__utf8_put(REPLACEMENT, out + n);
    }
    if (vocab->kind == CT_TOKENS_CHARS) return ct__utf8_put(vocab->chars[token], out);
    decoder->held[decoder->n++] = (unsigned char)token;
    while (decoder->n) {
        uint32_t cp;
        size_t used;
        ct_utf8 state = ct__utf8_next(decoder->held, decoder->n, &cp, &used);
        if (state == CT_UTF8_CUT) break;
        n += ct__utf8_put(state == CT_UTF8_OK ? cp : REPLACEMENT, out + n);
        decoder->n -= used;
        memmove(decoder->held, decoder->held + used, decoder->n);
    }
    return n;
}

size_t ct__decode_end(ct_byte_decoder *decoder, char out[CT_DECODE_ROOM]) {
    bool held = decoder->n > 0;
    decoder->n = 0;
    return held ? ct__utf8_put(REPLACEMENT, out) : 0;
}
