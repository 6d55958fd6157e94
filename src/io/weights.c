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

// Files searched in a folder, in this order; the first two may be in shards.
static const char *const file_names[] = {"model.safetensors", "pytorch_model.bin", "weights.npz"};
static const char searched_names[] =
    "model.safetensors, pytorch_model.bin, their .index.json, weights.npz, *.gguf";

static const char *weights_show(const char *name, char shown[CT_PRINTABLE]) {
    return ct__printable(name, strlen(name), shown, CT_PRINTABLE);
}

static bool weights_refuse_memory(const char *path, size_t bytes, ct_err *err) {
    return ct__err_memory(err, CT_NOWHERE, path, bytes);
}

// ------------------------------------------------------------------------------------------ entries

// Reserves capacity for n more entries.
static bool weights_reserve(ct_weights *w, const char *path, size_t n, ct_err *err) {
    return CT_GROW(w->entries, w->cap, w->n + n) ||
           weights_refuse_memory(path, (w->n + n) * sizeof *w->entries, err);
}

static bool weights_add_st_entry(ct_weights *w, const ct_weights_file *file, const ct_st_entry *e,
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
    return to->name || weights_refuse_memory(file->path, e->name_n, err);
}

static bool weights_add_safetensors(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    ct_st st;
    if (!ct__st_parse(file->path, file->map ? file->map : "", file->n, &st, err)) return false;
    bool ok = weights_reserve(w, file->path, st.n, err);
    for (size_t i = 0; i < st.n && ok; i++) ok = weights_add_st_entry(w, file, &st.entries[i], err);
    ct__st_close(&st);
    return ok;
}

static bool weights_add_gguf_tensor(ct_weights *w, const ct_weights_file *file,
                                    const ct_gguf_tensor *t, ct_err *err) {
    ct_weight *to = &w->entries[w->n++];
    *to = (ct_weight){
        .name = ct__arena_str(&w->arena, t->name),
        .dtype = t->type->dtype,
        .block = t->type->dtype ? -1 : (int)ct__ggml_type_id(t->type),
        .rank = (size_t)t->rank,
        .data = (const char *)file->map + t->at,
        .bytes = t->bytes,
        .path = file->path,
        .at = t->at,
        .kind = t->type->name,
    };
    memcpy(to->dim, t->dim, sizeof t->dim);
    return to->name || weights_refuse_memory(file->path, strlen(t->name) + 1, err);
}

// Checks that a file says that it is part i (from 0) of n.
static bool weights_check_part(const ct_gguf *g, uint64_t i, uint64_t n, ct_err *err) {
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

// Keeps the metadata of the first file.
static bool weights_add_gguf(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    bool first = w->n_files == 1;
    ct_gguf later, *g = first ? &w->gguf : &later;
    if (!ct__gguf_parse(file->path, file->map ? file->map : "", file->n, g, err)) return false;
    bool ok = weights_reserve(w, file->path, g->n, err) &&
              (first || weights_check_part(g, w->n_files - 1, w->n_parts, err));
    for (size_t i = 0; i < g->n && ok; i++)
        ok = weights_add_gguf_tensor(w, file, &g->tensors[i], err);
    if (!first) ct__gguf_close(g);
    return ok;
}

// Points into the mapping if the array is stored as Cotan uses it, else unpacks it.
static bool weights_add_array(ct_weights *w, const ct_weights_file *file, struct ct_npz *npz,
                              const ct_npz_entry *e, ct_err *err) {
    ct_weight *to = &w->entries[w->n];
    ct_npy npy;
    if (!ct__npz_read_header(npz, e, &npy, err)) return false;
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
    if (!to->name || !to->kind) return weights_refuse_memory(file->path, strlen(e->name) + 1, err);
    memcpy(to->dim, npy.shape, (size_t)npy.rank * sizeof *npy.shape);
    to->data = (const char *)file->map + to->at;
    w->n++;
    bool stored = e->zip.packed == e->zip.bytes && e->zip.method == 0;
    if (stored && ct__npy_is_native(&npy, to->data)) return true;
    void *data, *copy = ct__arena(&w->arena, npy.bytes);
    if (!copy) return weights_refuse_memory(file->path, npy.bytes, err);
    if (!ct__npz_read(npz, e, &npy, &data, err)) return false;
    ct__npy_convert(&npy, data, copy);
    ct__free(data);
    to->data = copy;
    return true;
}

static bool weights_add_npz(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    struct ct_npz npz;
    if (!ct__npz_open(file->path, &npz, err)) return false;
    bool ok = weights_reserve(w, file->path, npz.n, err) &&
              (npz.zip.file.n == file->n ||
               ct__err_part(err, file->path, "npz", "the file changes while it is read"));
    for (size_t i = 0; i < npz.n && ok; i++)
        ok = weights_add_array(w, file, &npz, &npz.entries[i], err);
    ct__npz_close(&npz);
    return ok;
}

static bool weights_add_torch(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    ct_weight *entries;
    size_t n;
    if (!ct__torch_read(file, &w->arena, &entries, &n, err) ||
        !weights_reserve(w, file->path, n, err))
        return false;
    if (n) memcpy(w->entries + w->n, entries, n * sizeof *entries);
    w->n += n;
    return true;
}

// Chooses the format by the content, else by the name: the reader that the name selects reports a
// file that is neither.
static bool weights_add_mapped(ct_weights *w, const ct_weights_file *file, ct_err *err) {
    static const struct {
        const char *end, *begins, *name;
        bool (*add)(ct_weights *w, const ct_weights_file *file, ct_err *err);
    } formats[] = {
        {".npz", NULL, "npz", weights_add_npz},
        {".gguf", "GGUF", "GGUF", weights_add_gguf},
        {".bin", "PK\3\4", "PyTorch", weights_add_torch},
        {".pt", NULL, "PyTorch", weights_add_torch},
        {".pth", NULL, "PyTorch", weights_add_torch},
        {"", NULL, "safetensors", weights_add_safetensors},
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

// Maps the file `real`, which messages call `path`, and adds its tensors.
static bool weights_add_file(ct_weights *w, const char *path, const char *real, ct_err *err) {
    if (!CT_GROW(w->files, w->files_cap, w->n_files + 1))
        return weights_refuse_memory(path, w->files_cap * 2 * sizeof *w->files, err);
    ct_weights_file *file = &w->files[w->n_files];
    *file = (ct_weights_file){.path = ct__arena_str(&w->arena, path)};
    if (!file->path) return weights_refuse_memory(path, strlen(path) + 1, err);
    if (!ct__file_map(real, &file->map, &file->n, err)) return false;
    w->n_files++;
    return weights_add_mapped(w, file, err);
}

// Adds the other files of a model whose first file was added; their names follow from its name,
// NAME-00001-of-00003.gguf.
static bool weights_add_parts(ct_weights *w, const char *path, ct_err *err) {
    int64_t parts = 1, tensors = 0;
    if (!ct__gguf_find(&w->gguf, "split.count")) return true;
    if (!ct__gguf_int(&w->gguf, "split.count", 0, UINT16_MAX, &parts, err)) return false;
    w->n_parts = parts ? (uint64_t)parts : 1;
    if (!weights_check_part(&w->gguf, 0, w->n_parts, err)) return false;
    size_t n = strlen(path), end = strlen("-00001-of-00003.gguf");
    char expected[40];
    snprintf(expected, sizeof expected, "-00001-of-%05" PRId64 ".gguf", parts);
    if (w->n_parts > 1 && (n < end || strcmp(path + n - end, expected) != 0))
        return ct__err_part(err, path, "gguf",
                            "it is part 1 of %" PRId64
                            ", but its name does not end in \"%s\", by which "
                            "the other ones would be found",
                            parts, expected);
    for (uint64_t i = 2; i <= w->n_parts; i++) {
        char *part = ct__arena_printf(&w->arena, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf",
                                      (int)(n - end), path, i, w->n_parts);
        if (!part) return weights_refuse_memory(path, n + 1, err);
        if (!weights_add_file(w, part, part, err)) return false;
    }
    if (!ct__gguf_find(&w->gguf, "split.tensors.count")) return true;
    return ct__gguf_int(&w->gguf, "split.tensors.count", 0, INT32_MAX, &tensors, err) &&
           ((uint64_t)tensors == w->n ||
            ct__err_part(err, path, "gguf", "its parts have %zu tensors, but should have %" PRId64,
                         w->n, tensors));
}

// ----------------------------------------------------------------------------------------- folders

// Finds the folder that a shard may not leave: the folder of the weights or, of a snapshot in the
// hub's cache (models--x--y/snapshots/COMMIT), the repository's folder, since the snapshot has
// links to its blobs.
static bool weights_find_root(const char *folder, char root[PATH_MAX], ct_err *err) {
    if (!realpath(folder, root)) return ct__err_system(err, folder, "find");
    char *commit = strrchr(root, '/'), *snapshots = memrchr(root, '/', (size_t)(commit - root));
    if (!snapshots || strncmp(snapshots, "/snapshots/", strlen("/snapshots/")) != 0) return true;
    const char *repository = memrchr(root, '/', (size_t)(snapshots - root));
    if (repository && strncmp(repository, "/models--", strlen("/models--")) == 0) *snapshots = '\0';
    return true;
}

// True if the name is of a file directly in the folder: no path, and no control characters, which a
// terminal would interpret. (The JSON library rejects zero bytes.)
static bool weights_is_file_name(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '/' || *c == '\\') return false;
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool weights_add_shard(ct_weights *w, const char *index, const char *folder,
                              const char *root, const char *name, ct_err *err) {
    char shown[CT_PRINTABLE], real[PATH_MAX];
    char *path = ct__arena_printf(&w->arena, "%s/%s", folder, name);
    size_t n = strlen(root);
    if (!path) return weights_refuse_memory(index, strlen(folder) + strlen(name) + 2, err);
    if (!realpath(path, real))
        return ct__err_part(err, index, "weight_map", "shard \"%s\" cannot be found: %s",
                            weights_show(name, shown), strerror(errno));
    if (strncmp(real, root, n) != 0 || real[n] != '/')
        return ct__err_part(err, index, "weight_map", "shard \"%s\" is a link that leads out of %s",
                            weights_show(name, shown), root);
    return weights_add_file(w, path, real, err);
}

static int weights_compare_strings(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Lists the shards' names, sorted, without duplicates.
static bool weights_list_shards(const ct_config *index, const char ***names, size_t *n,
                                ct_err *err) {
    json_t *map = json_object_get(index->root, "weight_map"), *value;
    const char *tensor;
    char shown[CT_PRINTABLE], file[CT_PRINTABLE];
    if (!json_is_object(map) || !json_object_size(map))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, index->path,
                       "weight_map is no object of the tensors' files, by name");
    size_t all = 0, n_tensors = json_object_size(map);
    *names = ct__malloc(n_tensors * sizeof **names);
    if (!*names) return weights_refuse_memory(index->path, n_tensors * sizeof **names, err);
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name)
            return ct__err_part(err, index->path, "weight_map",
                                "what tensor \"%s\" has is no file's name",
                                weights_show(tensor, shown));
        if (!weights_is_file_name(name))
            return ct__err_part(
                err, index->path, "weight_map",
                "tensor \"%s\" is in \"%s\", which names no file of the folder itself",
                weights_show(tensor, shown), weights_show(name, file));
        (*names)[all++] = name;
    }
    qsort(*names, all, sizeof **names, weights_compare_strings);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (*n == 0 || strcmp((*names)[*n - 1], (*names)[i]) != 0) (*names)[(*n)++] = (*names)[i];
    return true;
}

static int weights_compare_names(const void *a, const void *b) {
    const ct_weight *x = *(const ct_weight *const *)a, *y = *(const ct_weight *const *)b;
    return strcmp(x->name, y->name);
}

// Sorts the entries by name, and checks that names differ.
static bool weights_sort_entries(ct_weights *w, ct_err *err) {
    char shown[CT_PRINTABLE];
    w->by_name = ct__arena(&w->arena, w->n * sizeof *w->by_name);
    if (!w->by_name) return weights_refuse_memory(w->files[0].path, w->n * sizeof *w->by_name, err);
    for (size_t i = 0; i < w->n; i++) w->by_name[i] = &w->entries[i];
    if (w->n) qsort(w->by_name, w->n, sizeof *w->by_name, weights_compare_names);
    for (size_t i = 1; i < w->n; i++) {
        const ct_weight *a = w->by_name[i - 1], *b = w->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, b->path,
                           "tensor \"%s\" comes twice: it is also in %s",
                           weights_show(b->name, shown), a->path);
    }
    return true;
}

// Checks that each tensor is in the file that the index names.
static bool weights_check_index(const ct_weights *w, const ct_config *index, ct_err *err) {
    json_t *value;
    const char *tensor;
    char shown[CT_PRINTABLE], stated[CT_PRINTABLE];
    json_object_foreach(json_object_get(index->root, "weight_map"), tensor, value) {
        const char *name = json_string_value(value);
        const ct_weight *found = ct__weights_find(w, tensor);
        if (!found || strcmp(strrchr(found->path, '/') + 1, name) != 0)
            return ct__err_part(err, index->path, "weight_map",
                                "tensor \"%s\" is not in \"%s\", where it should be",
                                weights_show(tensor, shown), weights_show(name, stated));
    }
    return true;
}

static bool weights_add_shards(ct_weights *w, const char *folder, const char *path, ct_err *err) {
    ct_config index;
    const char **names = NULL;
    size_t n = 0;
    if (!ct__config_read(path, &index, err)) return false;
    char root[PATH_MAX];
    bool ok = weights_find_root(folder, root, err) && weights_list_shards(&index, &names, &n, err);
    for (size_t i = 0; i < n && ok; i++)
        ok = weights_add_shard(w, path, folder, root, names[i], err);
    ok = ok && weights_sort_entries(w, err) && weights_check_index(w, &index, err);
    ct__free(names);
    ct__config_close(&index);
    return ok;
}

typedef struct gguf_search { // the GGUF models of a folder
    char *last;              // path of the last one that was found
    size_t n;
    bool failed;
    ct_arena *arena;
    const char *folder;
} gguf_search;

// Skips the parts after the first, and the projectors of multimodal models (mmproj in llama.cpp).
static void weights_note_gguf(int folder, const char *name, void *user) {
    gguf_search *f = user;
    (void)folder;
    const char *part = strstr(name, "-of-");
    bool later = part && part - name > 6 && part[-6] == '-' && strncmp(part - 5, "00001", 5) != 0;
    if (!ct__ends_with(name, ".gguf") || strncmp(name, "mmproj", 6) == 0 || later) return;
    f->n++;
    f->last = ct__arena_printf(f->arena, "%s/%s", f->folder, name);
    f->failed = f->failed || !f->last;
}

// Returns the folder's only model; NULL if there is none, without an error, or if there are
// several.
static const char *weights_find_only_gguf(const char *folder, ct_arena *arena, ct_err *err) {
    gguf_search f = {.arena = arena, .folder = folder};
    char real[PATH_MAX];
    if (!realpath(folder, real) || !ct__for_each_entry(AT_FDCWD, real, weights_note_gguf, &f))
        ct__err_system(err, folder, "read");
    else if (f.failed)
        weights_refuse_memory(folder, strlen(folder) + 64, err);
    else if (f.n > 1)
        ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                "the folder has %zu models in GGUF: name the file of one", f.n);
    return err->code ? NULL : f.last;
}

static bool weights_add_gguf_folder(ct_weights *w, const char *folder, ct_err *err) {
    const char *file = weights_find_only_gguf(folder, &w->arena, err);
    if (err->code) return false;
    if (!file && ct__weights_are_foreign(folder, err)) return false;
    if (!file)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, folder,
                       "the folder has no weights: there is none of %s", searched_names);
    return weights_add_file(w, file, file, err) && weights_add_parts(w, file, err) &&
           weights_sort_entries(w, err);
}

static bool weights_add_folder(ct_weights *w, const char *folder, ct_err *err) {
    struct stat st;
    for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++) {
        char *path = ct__arena_printf(&w->arena, "%s/%s", folder, file_names[i]);
        char *index = ct__arena_printf(&w->arena, "%s/%s.index.json", folder, file_names[i]);
        if (!path || !index) return weights_refuse_memory(folder, strlen(folder) + 64, err);
        if (stat(path, &st) == 0)
            return weights_add_file(w, path, path, err) && weights_sort_entries(w, err);
        if (stat(index, &st) == 0) return weights_add_shards(w, folder, index, err);
    }
    return weights_add_gguf_folder(w, folder, err);
}

// True if the folder has weights in a format other than GGUF.
static bool weights_has_other_formats(const char *folder) {
    char path[PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++)
        for (int index = 0; index < 2; index++) {
            int n = snprintf(path, sizeof path, "%s/%s%s", folder, file_names[i],
                             index ? ".index.json" : "");
            if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0) return true;
        }
    return false;
}

bool ct__weights_are_in(const char *folder) {
    char path[PATH_MAX];
    CT_ARENA arena = {0};
    gguf_search f = {.arena = &arena, .folder = folder};
    if (weights_has_other_formats(folder)) return true;
    bool any =
        realpath(folder, path) && ct__for_each_entry(AT_FDCWD, path, weights_note_gguf, &f) && f.n;
    return any;
}

bool ct__weights_find_gguf(const char *path, char *found, size_t cap, ct_err *err) {
    struct stat st;
    char begin[4] = "";
    CT_ARENA arena = {0};
    const char *file = NULL;
    *found = '\0';
    if (stat(path, &st)) return ct__err_system(err, path, "open");
    if (S_ISDIR(st.st_mode)) {
        if (!weights_has_other_formats(path)) file = weights_find_only_gguf(path, &arena, err);
    } else if (ct__ends_with(path, ".gguf")) {
        file = path;
    } else if (S_ISREG(st.st_mode)) {
        FILE *f = fopen(path, "rb");
        if (f && fread(begin, 1, 4, f) == 4 && memcmp(begin, "GGUF", 4) == 0) file = path;
        if (f) fclose(f);
    }
    if (file && snprintf(found, cap, "%s", file) >= (int)cap)
        ct__err(err, CT_E_FILE, CT_NOWHERE, path, "the path is too long");
    return !err->code;
}

// ------------------------------------------------------------------------------------------- public

bool ct__weights_open(const char *path, ct_weights *w, ct_err *err) {
    struct stat st;
    *w = (ct_weights){.n_parts = 1};
    bool ok = stat(path, &st) == 0 && S_ISDIR(st.st_mode)
                  ? weights_add_folder(w, path, err)
                  : weights_add_file(w, path, path, err) && weights_add_parts(w, path, err) &&
                        weights_sort_entries(w, err);
    if (!ok) ct__weights_close(w);
    return ok;
}

const ct_weight *ct__weights_find(const ct_weights *w, const char *name) {
    ct_weight key = {.name = name};
    const ct_weight *wanted = &key, **found = NULL;
    if (w->n) found = bsearch(&wanted, w->by_name, w->n, sizeof *w->by_name, weights_compare_names);
    return found ? *found : NULL;
}

void ct__weights_release_pages(const ct_weights *w, const ct_weight *weight) {
    for (size_t i = 0; i < w->n_files; i++) // copies are in no file
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
