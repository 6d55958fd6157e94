#define _GNU_SOURCE
#include "io/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "base/text.h"
#include "io/config.h"
#include "io/ggml_blocks.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/torch.h"
#include "io/utf8.h"

// Of a folder, in this order; the first two may be in shards.
static const char *const whole[] = {"model.safetensors", "pytorch_model.bin", "weights.npz"};
static const char sought[] =
    "model.safetensors, pytorch_model.bin, their .index.json, weights.npz, *.gguf";

static const char *show(const char *name, char shown[CT_PRINTABLE]) {
    return ct__printable(name, strlen(name), shown, CT_PRINTABLE);
}

static bool no_memory(const char *path, size_t bytes, ct_err *err) {
    return ct__err_memory(err, CT_NOWHERE, path, bytes);
}

// -------------------------------------------------------------------------------------- the entries

// Room for n more entries.
static bool more(ct_weights *w, const char *path, size_t n, ct_err *err) {
    return CT_GROW(w->entries, w->cap, w->n + n) ||
           no_memory(path, (w->n + n) * sizeof *w->entries, err);
}

static bool add_st_entry(ct_weights *w, const ct_weights_file *file, const ct_st_entry *e,
                         ct_err *err) {
    char shown[CT_PRINTABLE], what[200];
    ct_weight *to = &w->entries[w->n];
    ct__printable(e->name, e->name_n, shown, sizeof shown);
    if (strlen(e->name) < e->name_n)
        return ct__err_part(err, file->path, "safetensors",
                            "tensor \"%s\": a zero byte in its name", shown);
    if (e->rank > CT_MAX_RANK)
        return ct__err_part(err, file->path, "safetensors",
                            "tensor \"%s\": it has %zu axes, at most %d are allowed", shown,
                            e->rank, CT_MAX_RANK);
    *to = (ct_weight){
        .name = ct__arena_str(&w->arena, e->name),
        .dtype = e->dtype,
        .block = -1,
        .rank = e->rank,
        .data = e->data,
        .bytes = e->bytes,
        .path = file->path,
        .at = (uint64_t)((const char *)e->data - (const char *)file->map),
        .kind = e->kind,
    };
    for (size_t i = 0; i < e->rank; i++) {
        if (e->shape[i] > INT64_MAX)
            return ct__err_part(err, file->path, "safetensors",
                                "tensor \"%s\": %s has an axis longer than %" PRId64, shown,
                                ct__st_describe(e, what, sizeof what), INT64_MAX);
        to->dim[i] = (int64_t)e->shape[i];
    }
    w->n++;
    return to->name || no_memory(file->path, e->name_n, err);
}

static bool add_safetensors(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    ct_st st;
    if (!ct__st_parse(file->path, file->map ? file->map : "", file->n, &st, err)) return false;
    bool ok = more(w, file->path, st.n, err);
    for (size_t i = 0; i < st.n && ok; i++) ok = add_st_entry(w, file, &st.entries[i], err);
    ct__st_close(&st);
    return ok;
}

static bool add_gguf_tensor(ct_weights *w, const ct_weights_file *file, const ct_gguf_tensor *t,
                            ct_err *err) {
    ct_weight *to = &w->entries[w->n++];
    *to = (ct_weight){
        .name = ct__arena_str(&w->arena, t->name),
        .dtype = t->type->dtype,
        .block = t->type->dtype ? -1 : (int)ct__ggml_number(t->type),
        .rank = (size_t)t->rank,
        .data = (const char *)file->map + t->at,
        .bytes = t->bytes,
        .path = file->path,
        .at = t->at,
        .kind = t->type->name,
    };
    memcpy(to->dim, t->dim, sizeof t->dim);
    return to->name || no_memory(file->path, strlen(t->name) + 1, err);
}

// The i-th of n files that are one model says so itself: (0-based) number, and count.
static bool is_part(const ct_gguf *g, uint64_t i, uint64_t n, ct_err *err) {
    int64_t number = 0, count = 1;
    if (ct__gguf_find(g, "split.count") &&
        !(ct__gguf_int(g, "split.count", 0, UINT16_MAX, &count, err) &&
          ct__gguf_int(g, "split.no", 0, UINT16_MAX, &number, err)))
        return false;
    if (count == 0) count = 1;
    if ((uint64_t)number == i && (uint64_t)count == n) return true;
    return ct__err_part(err, g->label, "gguf",
                        "it is part %" PRId64 " of %" PRId64 ", not part %" PRIu64 " of %" PRIu64,
                        number + 1, count, i + 1, n);
}

// The metadata of the first file stays.
static bool add_gguf(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    bool first = w->n_files == 1;
    ct_gguf later, *g = first ? &w->gguf : &later;
    if (!ct__gguf_parse(file->path, file->map ? file->map : "", file->n, g, err)) return false;
    bool ok =
        more(w, file->path, g->n, err) && (first || is_part(g, w->n_files - 1, w->parts, err));
    for (size_t i = 0; i < g->n && ok; i++) ok = add_gguf_tensor(w, file, &g->tensors[i], err);
    if (!first) ct__gguf_close(g);
    return ok;
}

// In the mapping where the array is there as Cotan has it, else unpacked.
static bool add_array(ct_weights *w, const ct_weights_file *file, struct ct_npz *npz,
                      const ct_npz_entry *e, ct_err *err) {
    ct_weight *to = &w->entries[w->n];
    ct_npy npy;
    if (!ct__npz_head(npz, e, &npy, err)) return false;
    *to = (ct_weight){
        .name = ct__arena_str(&w->arena, e->name),
        .dtype = npy.dtype,
        .block = -1,
        .rank = (size_t)npy.rank,
        .bytes = npy.bytes,
        .path = file->path,
        .at = e->zip.begin + npy.begin,
        .kind = ct__arena_str(&w->arena, npy.descr),
    };
    if (!to->name || !to->kind) return no_memory(file->path, strlen(e->name) + 1, err);
    memcpy(to->dim, npy.shape, (size_t)npy.rank * sizeof *npy.shape);
    to->data = (const char *)file->map + to->at;
    w->n++;
    bool stored = e->zip.packed == e->zip.bytes && e->zip.method == 0;
    if (stored && ct__npy_plain(&npy, to->data)) return true;
    void *data, *copy = ct__arena(&w->arena, npy.bytes);
    if (!copy) return no_memory(file->path, npy.bytes, err);
    if (!ct__npz_read(npz, e, &npy, &data, err)) return false;
    ct__npy_convert(&npy, data, copy);
    ct__free(data);
    to->data = copy;
    return true;
}

static bool add_npz(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    struct ct_npz npz;
    if (!ct__npz_open(file->path, &npz, err)) return false;
    bool ok = more(w, file->path, npz.n, err) &&
              (npz.zip.file.n == file->n ||
               ct__err_part(err, file->path, "npz", "the file changes while it is read"));
    for (size_t i = 0; i < npz.n && ok; i++) ok = add_array(w, file, &npz, &npz.entries[i], err);
    ct__npz_close(&npz);
    return ok;
}

static bool add_torch(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    ct_weight *entries;
    size_t n;
    if (!ct__torch_read(file, &w->arena, &entries, &n, err) || !more(w, file->path, n, err))
        return false;
    if (n) memcpy(w->entries + w->n, entries, n * sizeof *entries);
    w->n += n;
    return true;
}

// By its content, else by its name: what is neither is refused by the reader that the name calls for.
static bool add_content(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    static const struct {
        const char *end, *begins, *name;
        bool (*add)(ct_weights *w, const ct_weights_file *file, ct_err *err);
    } formats[] = {
        {".npz", NULL, "npz", add_npz},           {".gguf", "GGUF", "GGUF", add_gguf},
        {".bin", "PK\3\4", "PyTorch", add_torch}, {".pt", NULL, "PyTorch", add_torch},
        {".pth", NULL, "PyTorch", add_torch},     {"", NULL, "safetensors", add_safetensors},
    };
    size_t i = 0;
    for (;; i++) {
        const char *begins = formats[i].begins;
        if (ct__ends_with(file->path, formats[i].end)) break;
        if (begins && file->n >= 4 && memcmp(file->map, begins, 4) == 0) break;
    }
    w->format = formats[i].name;
    return formats[i].add(w, file, err);
}

// Maps the file `real`, which messages call `path`, and adds what it holds.
static bool add_file(ct_weights *w, const char *path, const char *real, ct_err *err) {
    if (!CT_GROW(w->files, w->files_cap, w->n_files + 1))
        return no_memory(path, w->files_cap * 2 * sizeof *w->files, err);
    ct_weights_file *file = &w->files[w->n_files];
    *file = (ct_weights_file){.path = ct__arena_str(&w->arena, path)};
    if (!file->path) return no_memory(path, strlen(path) + 1, err);
    if (!ct__file_map(real, &file->map, &file->n, err)) return false;
    w->n_files++;
    return add_content(w, file, err);
}

// The other files of a model whose first is there: NAME-00001-of-00003.gguf says how they are called.
static bool add_parts(ct_weights *w, const char *path, ct_err *err) {
    int64_t parts = 1, tensors = 0;
    if (!ct__gguf_find(&w->gguf, "split.count")) return true;
    if (!ct__gguf_int(&w->gguf, "split.count", 0, UINT16_MAX, &parts, err)) return false;
    w->parts = parts ? (uint64_t)parts : 1;
    if (!is_part(&w->gguf, 0, w->parts, err)) return false;
    size_t n = strlen(path), end = strlen("-00001-of-00003.gguf");
    char expected[40];
    snprintf(expected, sizeof expected, "-00001-of-%05" PRId64 ".gguf", parts);
    if (w->parts > 1 && (n < end || strcmp(path + n - end, expected) != 0))
        return ct__err_part(err, path, "gguf",
                            "it is part 1 of %" PRId64
                            ", but its name does not end in \"%s\", by which "
                            "the other ones would be found",
                            parts, expected);
    for (uint64_t i = 2; i <= w->parts; i++) {
        char *part = ct__arena_printf(&w->arena, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf",
                                      (int)(n - end), path, i, w->parts);
        if (!part) return no_memory(path, n + 1, err);
        if (!add_file(w, part, part, err)) return false;
    }
    if (!ct__gguf_find(&w->gguf, "split.tensors.count")) return true;
    return ct__gguf_int(&w->gguf, "split.tensors.count", 0, INT32_MAX, &tensors, err) &&
           ((uint64_t)tensors == w->n ||
            ct__err_part(err, path, "gguf", "its parts have %zu tensors, but should have %" PRId64,
                         w->n, tensors));
}

// ---------------------------------------------------------------------------------------- a folder

// The folder that a shard may not leave: that of the weights or, of a snapshot in the hub's cache
// (models--x--y/snapshots/COMMIT), the repository's, whose blobs the snapshot's links name.
static bool find_root(const char *folder, char root[PATH_MAX], ct_err *err) {
    if (!realpath(folder, root)) return ct__err_system(err, folder, "find");
    char *commit = strrchr(root, '/'), *snapshots = memrchr(root, '/', (size_t)(commit - root));
    if (!snapshots || strncmp(snapshots, "/snapshots/", strlen("/snapshots/")) != 0) return true;
    const char *repository = memrchr(root, '/', (size_t)(snapshots - root));
    if (repository && strncmp(repository, "/models--", strlen("/models--")) == 0) *snapshots = '\0';
    return true;
}

// Names a file of the folder itself: nothing absolute, nothing that climbs, nothing that a terminal would
// take for a command. (Zero bytes the JSON library refuses.)
static bool is_plain(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '/' || *c == '\\') return false;
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool add_shard(ct_weights *w, const char *index, const char *folder, const char *root,
                      const char *name, ct_err *err) {
    char shown[CT_PRINTABLE], real[PATH_MAX];
    char *path = ct__arena_printf(&w->arena, "%s/%s", folder, name);
    size_t n = strlen(root);
    if (!path) return no_memory(index, strlen(folder) + strlen(name) + 2, err);
    if (!realpath(path, real))
        return ct__err_part(err, index, "weight_map", "shard \"%s\" cannot be found: %s",
                            show(name, shown), strerror(errno));
    if (strncmp(real, root, n) != 0 || real[n] != '/')
        return ct__err_part(err, index, "weight_map", "shard \"%s\" is a link that leads out of %s",
                            show(name, shown), root);
    return add_file(w, path, real, err);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The shards' names, each once and sorted.
static bool list_shards(const ct_config *index, const char ***names, size_t *n, ct_err *err) {
    json_t *map = json_object_get(index->root, "weight_map"), *value;
    const char *tensor;
    char shown[CT_PRINTABLE], file[CT_PRINTABLE];
    if (!json_is_object(map) || !json_object_size(map))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, index->path,
                       "weight_map is no object of the tensors' files, by name");
    size_t all = 0, most = json_object_size(map);
    *names = ct__malloc(most * sizeof **names);
    if (!*names) return no_memory(index->path, most * sizeof **names, err);
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name)
            return ct__err_part(err, index->path, "weight_map",
                                "what tensor \"%s\" has is no file's name", show(tensor, shown));
        if (!is_plain(name))
            return ct__err_part(
                err, index->path, "weight_map",
                "tensor \"%s\" is in \"%s\", which names no file of the folder itself",
                show(tensor, shown), show(name, file));
        (*names)[all++] = name;
    }
    qsort(*names, all, sizeof **names, by_text);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (*n == 0 || strcmp((*names)[*n - 1], (*names)[i]) != 0) (*names)[(*n)++] = (*names)[i];
    return true;
}

static int by_name(const void *a, const void *b) {
    const ct_weight *x = *(const ct_weight *const *)a, *y = *(const ct_weight *const *)b;
    return strcmp(x->name, y->name);
}

// The entries by name, each of which comes once.
static bool settle(ct_weights *w, ct_err *err) {
    char shown[CT_PRINTABLE];
    w->by_name = ct__arena(&w->arena, w->n * sizeof *w->by_name);
    if (!w->by_name) return no_memory(w->files[0].path, w->n * sizeof *w->by_name, err);
    for (size_t i = 0; i < w->n; i++) w->by_name[i] = &w->entries[i];
    if (w->n) qsort(w->by_name, w->n, sizeof *w->by_name, by_name);
    for (size_t i = 1; i < w->n; i++) {
        const ct_weight *a = w->by_name[i - 1], *b = w->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, b->path,
                           "tensor \"%s\" comes twice: it is also in %s", show(b->name, shown),
                           a->path);
    }
    return true;
}

// Each tensor lies in the file that the index gives it.
static bool agrees(const ct_weights *w, const ct_config *index, ct_err *err) {
    json_t *value;
    const char *tensor;
    char shown[CT_PRINTABLE], said[CT_PRINTABLE];
    json_object_foreach(json_object_get(index->root, "weight_map"), tensor, value) {
        const char *name = json_string_value(value);
        const ct_weight *found = ct__weights_find(w, tensor);
        if (!found || strcmp(strrchr(found->path, '/') + 1, name) != 0)
            return ct__err_part(err, index->path, "weight_map",
                                "tensor \"%s\" is not in \"%s\", where it should be",
                                show(tensor, shown), show(name, said));
    }
    return true;
}

static bool add_shards(ct_weights *w, const char *folder, const char *path, ct_err *err) {
    ct_config index;
    const char **names = NULL;
    size_t n = 0;
    if (!ct__config_read(path, &index, err)) return false;
    char root[PATH_MAX];
    bool ok = find_root(folder, root, err) && list_shards(&index, &names, &n, err);
    for (size_t i = 0; i < n && ok; i++) ok = add_shard(w, path, folder, root, names[i], err);
    ok = ok && settle(w, err) && agrees(w, &index, err);
    ct__free(names);
    ct__config_close(&index);
    return ok;
}

typedef struct ggufs { // the models in GGUF of a folder
    char *last;        // that was met
    size_t n;
    bool failed;
    ct_arena *arena;
    const char *folder;
} ggufs;

// Not the parts behind the first, nor what llama.cpp calls the projector of a multimodal model.
static void find_gguf(int folder, const char *name, void *user) {
    ggufs *f = user;
    (void)folder;
    const char *part = strstr(name, "-of-");
    bool later = part && part - name > 6 && part[-6] == '-' && strncmp(part - 5, "00001", 5) != 0;
    if (!ct__ends_with(name, ".gguf") || strncmp(name, "mmproj", 6) == 0 || later) return;
    f->n++;
    f->last = ct__arena_printf(f->arena, "%s/%s", f->folder, name);
    f->failed = f->failed || !f->last;
}

// The one of the folder; NULL, without an error: there is none.
static const char *gguf_of(const char *folder, ct_arena *arena, ct_err *err) {
    ggufs f = {.arena = arena, .folder = folder};
    char real[PATH_MAX];
    if (!realpath(folder, real) || !ct__for_each_entry(AT_FDCWD, real, find_gguf, &f))
        ct__err_system(err, folder, "read");
    else if (f.failed)
        no_memory(folder, strlen(folder) + 64, err);
    else if (f.n > 1)
        ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                "the folder has %zu models in GGUF: name the file of one", f.n);
    return err->code ? NULL : f.last;
}

static bool add_gguf_folder(ct_weights *w, const char *folder, ct_err *err) {
    const char *file = gguf_of(folder, &w->arena, err);
    if (err->code) return false;
    if (!file && ct__weights_are_foreign(folder, err)) return false;
    if (!file)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                       "the folder has no weights: there is none of %s", sought);
    return add_file(w, file, file, err) && add_parts(w, file, err) && settle(w, err);
}

static bool add_folder(ct_weights *w, const char *folder, ct_err *err) {
    struct stat st;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        char *path = ct__arena_printf(&w->arena, "%s/%s", folder, whole[i]);
        char *index = ct__arena_printf(&w->arena, "%s/%s.index.json", folder, whole[i]);
        if (!path || !index) return no_memory(folder, strlen(folder) + 64, err);
        if (stat(path, &st) == 0) return add_file(w, path, path, err) && settle(w, err);
        if (stat(index, &st) == 0) return add_shards(w, folder, index, err);
    }
    return add_gguf_folder(w, folder, err);
}

// Weights that are no GGUF.
static bool has_others(const char *folder) {
    char path[PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        for (int index = 0; index < 2; index++) {
            int n = snprintf(path, sizeof path, "%s/%s%s", folder, whole[i],
                             index ? ".index.json" : "");
            if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0) return true;
        }
    return false;
}

bool ct__weights_are_in(const char *folder) {
    char path[PATH_MAX];
    ct_arena arena = {0};
    ggufs f = {.arena = &arena, .folder = folder};
    if (has_others(folder)) return true;
    bool any = realpath(folder, path) && ct__for_each_entry(AT_FDCWD, path, find_gguf, &f) && f.n;
    ct__arena_free(&arena);
    return any;
}

bool ct__weights_gguf(const char *path, char *found, size_t cap, ct_err *err) {
    struct stat st;
    char begin[4] = "";
    ct_arena arena = {0};
    const char *file = NULL;
    *found = '\0';
    if (stat(path, &st)) return ct__err_system(err, path, "open");
    if (S_ISDIR(st.st_mode)) {
        if (!has_others(path)) file = gguf_of(path, &arena, err);
    } else if (ct__ends_with(path, ".gguf")) {
        file = path;
    } else if (S_ISREG(st.st_mode)) {
        FILE *f = fopen(path, "rb");
        if (f && fread(begin, 1, 4, f) == 4 && memcmp(begin, "GGUF", 4) == 0) file = path;
        if (f) fclose(f);
    }
    if (file && snprintf(found, cap, "%s", file) >= (int)cap)
        ct__err(err, CT_E_FILE, CT_NOWHERE, path, "the path is too long");
    ct__arena_free(&arena);
    return !err->code;
}

// -------------------------------------------------------------------------------------------- whole

bool ct__weights_open(const char *path, ct_weights *w, ct_err *err) {
    struct stat st;
    *w = (ct_weights){.parts = 1};
    bool ok = stat(path, &st) == 0 && S_ISDIR(st.st_mode)
                  ? add_folder(w, path, err)
                  : add_file(w, path, path, err) && add_parts(w, path, err) && settle(w, err);
    if (!ok) ct__weights_close(w);
    return ok;
}

const ct_weight *ct__weights_find(const ct_weights *w, const char *name) {
    ct_weight key = {.name = name};
    const ct_weight *wanted = &key, **found = NULL;
    if (w->n) found = bsearch(&wanted, w->by_name, w->n, sizeof *w->by_name, by_name);
    return found ? *found : NULL;
}

void ct__weights_forget(const ct_weights *w, const ct_weight *weight) {
    for (size_t i = 0; i < w->n_files; i++) // what is a copy lies in none
        if (weight->data == (const char *)w->files[i].map + weight->at)
            ct__file_drop_pages(weight->data, weight->bytes);
}

void ct__weights_close(ct_weights *w) {
    for (size_t i = 0; i < w->n_files; i++) ct__file_unmap(w->files[i].map, w->files[i].n);
    ct__gguf_close(&w->gguf);
    ct__free(w->entries);
    ct__free(w->files);
    ct__arena_free(&w->arena);
    *w = (ct_weights){0};
}
