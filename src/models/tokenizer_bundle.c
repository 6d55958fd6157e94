// Makes a run's tokenizer bundle: trained, loaded from a folder, or equivalent to bytes or characters.
#include "models/tokenizer_bundle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "io/crc32c.h"
#include "io/npy.h"
#include "text/alphabet.h"
#include "text/tokenizer.h"

enum {
    BUNDLE_CHUNK = 4 << 20,
    BUNDLE_MAX_PATH = 4096
}; // PART: bytes of a file that are tokenized at once
enum { FILE_TOKENIZER, FILE_TOKENIZER_CONFIG, FILE_GENERATION_CONFIG, FILE_SENTENCEPIECE = 4 };
static const char *const bundle_file_names[CT_N_RUN_SIDE_FILES] = {CT_RUN_SIDE_FILES};

void ct__bundle_free(ct_tokenizer_bundle *bundle) {
    ct_tokenizer_free(bundle->tokenizer);
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++) ct__text_free(&bundle->beside[i]);
    *bundle = (ct_tokenizer_bundle){.begin = -1, .end = -1};
}

static bool bundle_no_memory(const char *what, size_t n, ct_err *err) {
    return ct__err_memory(err, CT_NOWHERE, what, n);
}

// ----------------------------------------------------------------------------------- tokenizer files

// Writes generation_config.json, from which other programs take the eos token.
static void bundle_make_generation_config(ct_tokenizer_bundle *bundle) {
    ct_text *out = &bundle->beside[FILE_GENERATION_CONFIG];
    if (out->n || bundle->end < 0) return;
    ct__text_add(out, "{\n");
    if (bundle->begin >= 0) ct__textf(out, "  \"bos_token_id\": %" PRId64 ",\n", bundle->begin);
    ct__textf(out, "  \"eos_token_id\": %" PRId64 "\n}\n", bundle->end);
}

static bool bundle_parse_tokenizer(ct_tokenizer_bundle *bundle, ct_err *err) {
    const ct_text *file = &bundle->beside[FILE_TOKENIZER];
    char *copy = ct__malloc(file->n + 1); // which the parser may change
    if (!copy) return bundle_no_memory("tokenizer", file->n, err);
    memcpy(copy, file->s, file->n);
    copy[file->n] = '\0';
    bundle->tokenizer = ct__tokenizer_new("tokenizer.json", err);
    bool ok = bundle->tokenizer && ct__tokenizer_read_json(bundle->tokenizer, copy, file->n, err) &&
              ct__tokenizer_finish(bundle->tokenizer, err);
    ct__free(copy);
    return ok;
}

typedef struct bundle_training {
    const ct_bundle_progress *heard;
    bool stopped;
} bundle_training;

static void bundle_on_training(const ct_bpe_progress *at, void *user) {
    bundle_training *l = user;
    char text[128];
    if (strcmp(at->stage, "read") == 0)
        snprintf(text, sizeof text, "learning tokens: %.0f of %.0f MB read", (double)at->done / 1e6,
                 (double)at->all / 1e6);
    else
        snprintf(text, sizeof text, "learning tokens: %" PRId64 " of %" PRId64, at->done, at->all);
    l->stopped |= !l->heard->on_progress(text, l->heard->user);
}

static bool bundle_training_stopped(void *user) { return ((const bundle_training *)user)->stopped; }

bool ct__bundle_train(ct_tokenizer_bundle *bundle, const ct_corpus *corpus, int64_t size,
                      const ct_bundle_progress *progress, ct_err *err) {
    static const char end[] = "<|endoftext|>";
    bundle_training l = {.heard = progress};
    const ct_bpe_options options = {.vocab_size = size,
                                    .progress = bundle_on_training,
                                    .should_stop = bundle_training_stopped,
                                    .user = &l,
                                    .here = CT_NOWHERE};
    *bundle = (ct_tokenizer_bundle){.begin = -1, .end = -1};
    if (!ct__train_bpe((const char *const *)corpus->paths, corpus->files, &options,
                       &bundle->beside[FILE_TOKENIZER], &bundle->beside[FILE_TOKENIZER_CONFIG],
                       err) ||
        !bundle_parse_tokenizer(bundle, err))
        return false;
    bundle->end = ct_tokenizer_id(bundle->tokenizer, end, sizeof end - 1);
    bundle_make_generation_config(bundle);
    return true;
}

// Finds the token that the tokenizer adds before a text.
static bool bundle_find_bos(ct_tokenizer_bundle *bundle, ct_err *err) {
    ct_encoding e = {0};
    if (!ct_tokenizer_encode_with(bundle->tokenizer, "", 0, &e,
                                  (ct_encode_options){.add_special = true, .here = CT_NOWHERE}))
        return err->code ? false : bundle_no_memory("tokenizer", BUNDLE_MAX_PATH, err);
    if (e.n && e.ids[0] != bundle->end) bundle->begin = e.ids[0];
    ct_encoding_free(&e);
    return true;
}

bool ct__bundle_load(ct_tokenizer_bundle *bundle, const char *path, ct_err *err) {
    struct stat st;
    char file[BUNDLE_MAX_PATH];
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    *bundle = (ct_tokenizer_bundle){.begin = -1, .end = -1};
    bundle->tokenizer = ct_tokenizer_load_at(path, CT_NOWHERE);
    if (!bundle->tokenizer) return false;
    bundle->end = ct_tokenizer_special(bundle->tokenizer, CT_EOS);
    if (!bundle_find_bos(bundle, err)) return false;
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++) {
        char *bytes;
        size_t n;
        int length = folder ? snprintf(file, sizeof file, "%s/%s", path, bundle_file_names[i])
                            : snprintf(file, sizeof file, "%s", i == FILE_TOKENIZER ? path : "");
        if (length <= 0 || length >= BUNDLE_MAX_PATH || stat(file, &st) != 0) continue;
        if (!folder && !ct__ends_with(path, ".json")) continue;
        if (!ct__file_read(file, &bytes, &n, err)) return false;
        ct__text_bytes(&bundle->beside[i], bytes, n);
        ct__free(bytes);
        if (bundle->beside[i].failed) return bundle_no_memory(file, n, err);
    }
    if (!bundle->beside[FILE_TOKENIZER].n && !folder)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "a run needs a tokenizer.json, or the folder of a tokenizer");
    if (!bundle->beside[FILE_TOKENIZER].n && !bundle->beside[FILE_SENTENCEPIECE].n &&
        !ct__alphabet_of(path, &bundle->beside[FILE_TOKENIZER], err) && err->code)
        return false;
    bundle_make_generation_config(bundle);
    return true;
}

bool ct__bundle_of_vocab(ct_tokenizer_bundle *bundle, const ct_vocab *vocab, ct_err *err) {
    ct_text *out = &bundle->beside[FILE_TOKENIZER],
            *config = &bundle->beside[FILE_TOKENIZER_CONFIG];
    *bundle = (ct_tokenizer_bundle){.begin = -1, .end = -1};
    ct__alphabet_json(vocab, out);
    ct__text_add(config, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  "
                         "\"clean_up_tokenization_spaces\": false\n}\n");
    return (!out->failed && !config->failed) || bundle_no_memory("tokenizer", out->n, err);
}

bool ct__bundle_save(const ct_tokenizer_bundle *bundle, const char *dir, ct_err *err) {
    char path[BUNDLE_MAX_PATH];
    for (int i = 0; i < CT_N_RUN_SIDE_FILES; i++) {
        if (!bundle->beside[i].n) continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, bundle_file_names[i]) >= BUNDLE_MAX_PATH)
            return ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "the path is too long");
        if (!ct__file_write(path, bundle->beside[i].s, bundle->beside[i].n, err)) return false;
    }
    return true;
}

// -------------------------------------------------------------------------------------- tokenization

typedef struct bundle_tokenizing {
    const ct_tokenizer_bundle *bundle;
    ct_corpus *corpus;
    size_t capacity, bytes_done; // capacity in tokens; bytes read
    ct_encoding e;
    const ct_bundle_progress *heard;
    ct_err *err;
} bundle_tokenizing;

static bool bundle_append(bundle_tokenizing *r, const int32_t *ids, size_t n) {
    ct_corpus *c = r->corpus;
    if (!CT_GROW(c->tokens, r->capacity, c->n + n))
        return bundle_no_memory("corpus", (c->n + n) * sizeof *ids, r->err);
    if (n) memcpy(c->tokens + c->n, ids, n * sizeof *ids);
    c->n += n;
    return true;
}

static bool bundle_append_one(bundle_tokenizing *r, int64_t id) {
    const int32_t token = (int32_t)id;
    return id < 0 || bundle_append(r, &token, 1);
}

static bool bundle_is_white(char c) { return c == ' ' || (c >= 9 && c <= 13); }

// Returns a chunk's length: it ends after a newline that no white space follows, where hardly any tokenizer
// has a token across the boundary.
static size_t bundle_chunk_size(const char *s, size_t n) {
    if (n <= BUNDLE_CHUNK) return n;
    for (size_t i = BUNDLE_CHUNK; i > BUNDLE_CHUNK / 2; i--)
        if (s[i - 1] == '\n' && !bundle_is_white(s[i])) return i;
    size_t i = BUNDLE_CHUNK;
    while (i > BUNDLE_CHUNK - 4 && ((unsigned char)s[i] & 0xc0) == 0x80) i--;
    return i;
}

static bool bundle_tokenize_file(bundle_tokenizing *r, const char *path) {
    char *text, message[128];
    size_t n, at = 0;
    if (!ct__file_read(path, &text, &n, r->err)) return false;
    bool ok = bundle_append_one(r, r->bundle->begin);
    while (ok && at < n) {
        const size_t chunk = bundle_chunk_size(text + at, n - at);
        ok = ct_tokenizer_encode_with(r->bundle->tokenizer, text + at, chunk, &r->e,
                                      (ct_encode_options){.here = CT_NOWHERE}) &&
             bundle_append(r, r->e.ids, r->e.n);
        at += chunk;
        r->bytes_done += chunk;
        snprintf(message, sizeof message, "tokenizing the text: %.0f of %.0f MB",
                 (double)r->bytes_done / 1e6, (double)r->corpus->bytes / 1e6);
        if (ok && !r->heard->on_progress(message, r->heard->user))
            ok = ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, "train",
                         "stopped before the first step, while the text was tokenized");
    }
    ct__free(text);
    return ok && bundle_append_one(r, r->bundle->end);
}

bool ct__bundle_tokenize(const ct_tokenizer_bundle *bundle, ct_corpus *corpus,
                         const ct_bundle_progress *progress, ct_err *err) {
    bundle_tokenizing r = {.bundle = bundle, .corpus = corpus, .heard = progress, .err = err};
    bool ok = true;
    for (size_t i = 0; i < corpus->files && ok; i++)
        ok = bundle_tokenize_file(&r, corpus->paths[i]);
    ct_encoding_free(&r.e);
    return ok;
}

static bool bundle_tokens_path(const char *dir, char path[BUNDLE_MAX_PATH]) {
    return snprintf(path, BUNDLE_MAX_PATH, "%s/" CT_RUN_TOKENS, dir) < BUNDLE_MAX_PATH;
}

// Returns the array in the file, if it is one of i32.
static const int32_t *bundle_find_array(const char *path, const void *bytes, size_t n,
                                        size_t *count) {
    const ct_npy_name name = {.label = path};
    ct_err ignored = {0};
    ct_npy npy;
    size_t prefix;
    if (!ct__npy_prefix(name, bytes, n < CT_NPY_FIXED ? n : CT_NPY_FIXED, &prefix, &ignored) ||
        prefix > n || !ct__npy_parse(name, bytes, prefix, n, &npy, &ignored))
        return NULL;
    const char *data = (const char *)bytes + npy.begin;
    if (npy.dtype != CT_I32 || npy.rank != 1 || !ct__npy_is_native(&npy, data)) return NULL;
    *count = (size_t)npy.count;
    return (const int32_t *)(const void *)data;
}

static void bundle_take_mapped(ct_corpus *corpus, const void *bytes, size_t n,
                               const int32_t *tokens, size_t count) {
    if (!corpus->mapped) ct__free(corpus->tokens);
    corpus->tokens = (int32_t *)(uintptr_t)tokens; // they are never written to
    corpus->n = count;
    corpus->mapped = bytes;
    corpus->mapped_n = n;
}

bool ct__bundle_store_tokens(ct_corpus *corpus, const char *dir, ct_err *err) {
    char path[BUNDLE_MAX_PATH];
    ct_text header = {0};
    const int64_t shape[] = {(int64_t)corpus->n};
    ct_atomic_file file;
    if (corpus->mapped) return true;
    if (!bundle_tokens_path(dir, path))
        return ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "the path is too long");
    bool ok = ct__npy_header((ct_npy_name){.label = path}, CT_I32, 1, shape, &header, err) &&
              ct__atomic_file_begin(&file, path, 0, err);
    if (ok && ct__atomic_file_write(&file, header.s, header.n, err) &&
        ct__atomic_file_write(&file, corpus->tokens, corpus->n * sizeof *corpus->tokens, err)) {
        ok = ct__atomic_file_commit(&file, err);
    } else if (ok) {
        ct__atomic_file_abandon(&file);
        ok = false;
    }
    ct__text_free(&header);
    const void *bytes;
    size_t n, count;
    if (!ok || !ct__file_map(path, &bytes, &n, err)) return false;
    const int32_t *tokens = bundle_find_array(path, bytes, n, &count);
    if (tokens && count == corpus->n)
        bundle_take_mapped(corpus, bytes, n, tokens, count);
    else
        ct__file_unmap(bytes, n); // another process wrote there: the tokens in memory are used
    return true;
}

bool ct__bundle_map_tokens(ct_corpus *corpus, const char *dir, int64_t tokens, uint32_t sum) {
    char path[BUNDLE_MAX_PATH];
    ct_err ignored = {0};
    const void *bytes;
    size_t n, count;
    if (!bundle_tokens_path(dir, path) || !ct__file_map(path, &bytes, &n, &ignored)) return false;
    const int32_t *found = bytes ? bundle_find_array(path, bytes, n, &count) : NULL;
    bool same =
        found && (int64_t)count == tokens && ct__crc32c(found, count * sizeof *found) == sum;
    for (size_t i = 0; same && i < count; i++) same = found[i] >= 0 && found[i] < corpus->vocab.n;
    if (same)
        bundle_take_mapped(corpus, bytes, n, found, count);
    else
        ct__file_unmap(bytes, n);
    return same;
}

bool ct__bundle_count_bytes(const ct_tokenizer_bundle *bundle, const int32_t *tokens, size_t n,
                            double *bytes, ct_err *err) {
    ct_decoder *decoder = ct_decoder_new_at(bundle->tokenizer, true, CT_NOWHERE);
    size_t total = 0, n_bytes = 0;
    bool ok = decoder != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = ct_decoder_next(decoder, tokens[i], &n_bytes) != NULL;
        total += n_bytes;
    }
    if (ok && ct_decoder_end(decoder, &n_bytes)) total += n_bytes;
    ct_decoder_free(decoder);
    *bytes = (double)total;
    return ok || err->code != CT_OK ? ok : bundle_no_memory("tokenizer", n, err);
}
