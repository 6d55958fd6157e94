// Language models of any architecture from their files, and back into such files.
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "base/plain.h"
#include "base/text.h"
#include "cotan/lm.h"
#include "io/config.h"
#include "io/json.h"
#include "io/ggml_blocks.h"
#include "io/weights.h"
#include "models/lm_codes.h"
#include "models/lm_gguf.h"
#include "models/lm_packed.h"
#include "models/stack.h"
#include "nn/store.h"
#include "ops/rules.h"

// ----------------------------------------------------------------------------------------- weights

// Files name weights with or without what stands in front of all of a model's, and those of a model of text
// and more have a name in front of that.
const ct_weight *ct__lm_weight(const ct_lm *lm, const char *name) {
    char other[CT_NN_PATH + 32];
    const ct_weight *found = ct__weights_find(lm->files, name);
    const char *dot = strchr(name, '.'), *embed = lm->spec.name[CT_NAME_embed];
    const size_t n = embed ? strcspn(embed, ".") + 1 : 0;
    if (!found && dot && n && strncmp(name, embed, n) == 0) {
        found = ct__weights_find(lm->files, name + n);
        snprintf(other, sizeof other, "%.*slanguage_model.%s", (int)n, name, name + n);
        if (!found) found = ct__weights_find(lm->files, other);
    }
    snprintf(other, sizeof other, "language_model.%s", name);
    return found ? found : ct__weights_find(lm->files, other);
}

// The name of one expert's weight; of others the name as it is.
static const char *of_expert(const char *name, int64_t expert, char out[CT_NN_PATH + 24]) {
    const char *mark = strchr(name, '#');
    if (!mark) return name;
    snprintf(out, CT_NN_PATH + 24, "%.*s%" PRId64 "%s", (int)(mark - name), name, expert, mark + 1);
    return out;
}

// Sizes that do not fit make every weight of the model a problem: the first few tell what is wrong. False: this one is
// counted alone.
static bool is_listed(ct_lm *lm) {
    enum { MOST = 10, MOST_BYTES = 600 }; // an error's text is no longer than CT_ERROR_TEXT
    lm->n_problems++;
    if (lm->n_listed == MOST || lm->problems.n >= MOST_BYTES) return false;
    if (lm->n_listed++) ct__text_add(&lm->problems, "; ");
    return true;
}

static void complain(ct_lm *lm, const char *name, const ct_weight *found, ct_ints want) {
    if (!is_listed(lm)) return;
    char have[256];
    ct_type type = {.dtype = CT_F32, .rank = (uint8_t)want.n, .dim = (int64_t *)(uintptr_t)want.v};
    if (!found) {
        ct__textf(&lm->problems, "\"%s\" is missing", name);
        return;
    }
    size_t n = 0;
    for (size_t a = 0; a < found->rank && n < sizeof have; a++)
        n +=
            (size_t)snprintf(have + n, sizeof have - n, "%s%" PRId64, a ? ", " : "", found->dim[a]);
    ct__textf(&lm->problems, "\"%s\" is (%s) %s, %s is wanted", name, have, found->kind,
              ct__type_text(&type).s);
}

static bool fits(const ct_weight *found, ct_ints want) {
    if (found && want.n == 2 && want.v[0] == 1 && found->rank == 1) // a row alone, in GGUF files
        want = (ct_ints){1, want.v + 1};
    bool same = found && found->rank == (size_t)want.n &&
                (found->block >= 0 || ct__has_slope(found->dtype));
    for (int64_t a = 0; same && a < want.n; a++) same = found->dim[a] == want.v[a];
    return same;
}

static void use(ct_lm *lm, const ct_weight *w) {
    if (w) lm->used[w - lm->files->entries] = true;
}

// What files have under a name: one tensor, or several.
typedef struct found {
    const ct_weight *weight;
    ct_packed packed;
} found_weight;

// False: it is missing, does not fit, or is of another kind than `first`.
static bool find(ct_lm *lm, const char *name, ct_ints dims, const found_weight *first,
                 found_weight *f) {
    *f = (found_weight){.weight = ct__lm_weight(lm, name)};
    if (ct__lm_packed(lm, name, dims, &f->packed)) {
        use(lm, f->packed.codes);
        use(lm, f->packed.scales);
        use(lm, f->packed.biases);
        return ct__lm_packed_check(&f->packed, &ct__ctx()->err) &&
               (!first || first->packed.kind == f->packed.kind);
    }
    use(lm, f->weight);
    return fits(f->weight, dims) &&
           (!first || (!first->packed.kind && f->weight->dtype == first->weight->dtype &&
                       f->weight->block == first->weight->block));
}

bool ct__lm_variable(ct_lm *lm, const char *name, ct_ints dims, ct_lm_use use_as, ct_weight_pair *w,
                     ct_loc here) {
    char one[CT_NN_PATH + 24];
    w->weight = ct_params_find(lm->params, name); // an encoder's, which has the same embeddings
    if (w->weight.bits) return true;
    if (lm->fresh) {
        const ct_nn_place place = ct_nn_place_in(lm->params, lm->seed);
        w->weight = ct_nn_param_at(place, name, dims, lm->init, here);
        return true;
    }
    const bool stacked = strchr(name, '#') != NULL;
    const ct_ints each = stacked ? (ct_ints){dims.n - 1, dims.v + 1} : dims;
    found_weight first = {0}, next;
    bool ok = true;
    for (int64_t i = 0; i < (stacked ? dims.v[0] : 1); i++) {
        const char *own = of_expert(name, i, one);
        if (!find(lm, own, each, i && ok ? &first : NULL, &next)) {
            complain(lm, own, next.weight, each);
            ok = false;
        }
        if (!i) first = next;
    }
    if (!ok) return false;
    const bool codes = use_as != CT_LM_NUMBERS && !lm->trainable,
               grouped = use_as == CT_LM_PRODUCTS;
    const ct_packed *p = &first.packed;
    const int64_t width = dims.v[dims.n - 1];
    if (codes && !stacked && p->kind && p->kind != CT_PACKED_FP8) {
        w->layout = ct__lm_packed_layout(p);
        return ct__lm_codes_make(lm, name, dims, ct__lm_packed_groups(p), p->kind == CT_PACKED_MLX,
                                 grouped, w, here);
    } else if (p->kind) {
        w->weight = ct_param_at(lm->params, name, lm->trainable ? CT_F32 : CT_BF16, dims, here);
    } else if (lm->in_place && !stacked && first.weight->block >= 0 && dims.n > 1) {
        return ct__lm_blocks_make(lm, name, dims, first.weight, w, here);
    } else if (codes && ct__lm_codes_of(first.weight, width, &w->layout)) {
        const ct_ggml_type *type = ct__ggml_type((uint32_t)first.weight->block);
        return ct__lm_codes_make(lm, name, dims, width / type->group, type->offsets, grouped, w,
                                 here);
    } else {
        const bool as_it_is = !lm->trainable && first.weight->block < 0;
        w->weight =
            ct_param_at(lm->params, name, as_it_is ? first.weight->dtype : CT_F32, dims, here);
    }
    return true;
}

// Names of what files hold beside a model's weights: tables that are computed, masks, and what sees or hears.
static bool is_known_extra(const char *name) {
    static const char *const parts[] = {"rotary_emb.inv_freq",
                                        ".attn.bias",
                                        ".attn.masked_bias",
                                        ".attention.bias",
                                        ".attention.masked_bias",
                                        ".input_scale", // of rows, which are not rounded here
                                        ".k_scale",
                                        ".v_scale",
                                        "vision",
                                        "visual",
                                        "audio",
                                        "EncDecAttention.relative_attention_bias"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

// Is it a weight of one of the model's layers, or of anything in a GGUF file?
static bool belongs_to(const ct_lm *lm, const char *name) {
    if (lm->files->gguf.version) return true;
    const char *layer = lm->spec.name[CT_NAME_layer], *mark = strchr(layer, '%');
    const char *dot = memchr(layer, '.', (size_t)(mark - layer));
    if (dot && dot + 1 < mark) layer = dot + 1; // without what stands in front of all
    const size_t n = (size_t)(mark - layer);
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)n, layer);
    for (const char *at = strstr(name, text); at; at = strstr(at + 1, text)) {
        const char *number = at + n;
        if ((at == name || at[-1] == '.') && *number >= '0' && *number <= '9')
            return strtoll(number, NULL, 10) < lm->spec.layers;
    }
    return false;
}

// A weight that the architecture does not know would be left out of what is computed.
static void complain_of_others(ct_lm *lm) {
    for (size_t i = 0; i < lm->files->n; i++) {
        const char *name = lm->files->entries[i].name;
        if (lm->used[i] || is_known_extra(name) || !belongs_to(lm, name)) continue;
        if (is_listed(lm)) ct__textf(&lm->problems, "\"%.150s\" has no place in it", name);
    }
}

// The bytes of a weight, or of all experts' one after the other, in pieces, in the variable's dtype.
enum { PIECE = 4096, MOST_BLOCK = 256 };
typedef struct source {
    const ct_lm *lm;
    const char *name;
    const ct_weight *weight; // being read
    uint64_t at;             // of its elements, or blocks
    int64_t next, n;         // experts
    ct_dtype to;
    ct_ints dims; // of a weight
    ct_packed packed;
    int64_t row; // of it
    char *room;  // for some rows; NULL: none yet
    _Alignas(8) char in[PIECE * 8], out[PIECE * 8];
} source;

static void put_bf16(const float *from, size_t n, uint16_t *to) {
    for (size_t i = 0; i < n; i++) { // to nearest, ties to even
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        to[i] = (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static size_t convert_blocks(source *s, const char *from, size_t count) {
    const ct_ggml_type *type = ct__ggml_type((uint32_t)s->weight->block);
    ct__ggml_floats(type, from, count, (float *)(void *)s->out);
    return count * (size_t)type->elements * 4;
}

static size_t convert_numbers(source *s, const char *from, size_t count) {
    const ct_dtype dtype = s->weight->dtype;
    memcpy(s->in, from, count * ct_dtype_size(dtype)); // a file aligns nothing
    for (size_t i = 0; i < count; i++)
        ct__store_f64(s->to, s->out, (int64_t)i, ct__load_f64(dtype, s->in, (int64_t)i));
    return count * ct_dtype_size(s->to);
}

// Some rows of a weight that is several tensors.
static bool packed_piece(source *s, const void **bytes, size_t *n, ct_err *err) {
    const ct_packed *p = &s->packed;
    const int64_t most = ct__lm_packed_rows(p), left = p->n - s->row,
                  rows = left < most ? left : most;
    const size_t numbers = (size_t)rows * (size_t)p->width;
    if (!s->room) s->room = ct__malloc((size_t)most * (size_t)p->width * 8);
    if (!s->room) return ct__err_memory(err, CT_NOWHERE, s->name, numbers * 8);
    *bytes = s->room;
    float *values = (float *)(void *)s->room;
    if (!ct__lm_unpack(p, s->row, rows, values, err)) return false;
    *n = numbers * ct_dtype_size(s->to);
    if (s->to == CT_BF16) {
        *bytes = values + numbers;
        put_bf16(values, numbers, (uint16_t *)(void *)(values + numbers));
    }
    s->row += rows;
    if (rows == left) {
        ct__weights_forget(s->lm->files, p->codes);
        s->packed.kind = CT_PACKED_NOT;
    }
    return true;
}

static bool next_piece(void *user, const void **bytes, size_t *n, ct_err *err) {
    source *s = user;
    char one[CT_NN_PATH + 24];
    *n = 0;
    if (!s->weight && !s->packed.kind) {
        if (s->next == s->n) return true;
        const char *own = of_expert(s->name, s->next++, one);
        s->weight =
            ct__lm_packed(s->lm, own, s->dims, &s->packed) ? NULL : ct__lm_weight(s->lm, own);
        s->at = 0;
        s->row = 0;
    }
    if (s->packed.kind) return packed_piece(s, bytes, n, err);
    const ct_weight *w = s->weight;
    const bool blocks = w->block >= 0;
    const ct_ggml_type *type = blocks ? ct__ggml_type((uint32_t)w->block) : NULL;
    const size_t size = blocks ? (size_t)type->bytes : ct_dtype_size(w->dtype);
    const size_t most = blocks ? PIECE / MOST_BLOCK : PIECE;
    const char *from = (const char *)w->data + s->at * size;
    const uint64_t left = w->bytes / size - s->at;
    size_t count = left < most ? (size_t)left : most;
    *bytes = s->out;
    if (!blocks && w->dtype == s->to) {
        count = (size_t)left;
        *bytes = from;
        *n = count * size;
    } else {
        *n = blocks ? convert_blocks(s, from, count) : convert_numbers(s, from, count);
    }
    s->at += count;
    if (count == left) {
        if (*bytes == s->out) ct__weights_forget(s->lm->files, w);
        s->weight = NULL;
    }
    return *n || next_piece(user, bytes, n, err);
}

// Of a weight of codes, from all that the files have of it.
static bool give_codes(ct_lm *lm, const ct_codes *c, ct_loc here) {
    const char *name = ct_params_name(lm->params, c->first);
    const bool stacked = strchr(name, '#') != NULL;
    const int64_t n = stacked ? c->dim[0] : 1;
    const ct_ints each = {c->rank - stacked, c->dim + stacked};
    ct_codes_source *from = ct__calloc((size_t)n, sizeof *from);
    char one[CT_NN_PATH + 24];
    bool ok = from || ct__err_memory(&ct__ctx()->err, here, "lm", (size_t)n * sizeof *from);
    for (int64_t i = 0; ok && i < n; i++) {
        const char *own = of_expert(name, i, one);
        if (!ct__lm_packed(lm, own, each, &from[i].packed)) from[i].weight = ct__lm_weight(lm, own);
    }
    ok = ok && ct__lm_codes_fill(lm, &c->w, from, n, here);
    ct__free(from);
    return ok;
}

static bool give_numbers(ct_lm *lm, size_t i, ct_loc here) {
    CT_PLAIN; // floats are converted
    ct_ctx *ctx = ct__ctx();
    int64_t dim[CT_MAX_RANK];
    ct_tensor var = ct_params_get(lm->params, i);
    const char *name = ct_params_name(lm->params, i);
    const bool stacked = strchr(name, '#') != NULL;
    const ct_weight *w = stacked ? NULL : ct__lm_weight(lm, name);
    if (w) {
        const ct_dtype dtype = w->block < 0 ? w->dtype : CT_U8;
        const bool as_it_is = dtype == ct_dtype_of(var) && !lm->trainable &&
                              (uintptr_t)w->data % ct_dtype_size(dtype) == 0;
        if (as_it_is) lm->lent[i] = ct__var_lend(ctx, var, w->data, w->bytes, here);
        if (lm->lent[i]) return true;
        if (ctx->err.code) return false;
    }
    for (int a = 0; a < ct_rank(var); a++) dim[a] = ct_dim(var, a);
    source *s = ct__malloc(sizeof *s);
    if (!s) return ct__err_memory(&ctx->err, here, "lm", sizeof *s);
    *s = (source){.lm = lm,
                  .name = name,
                  .n = stacked ? ct_dim(var, 0) : 1,
                  .to = ct_dtype_of(var),
                  .dims = {ct_rank(var) - stacked, dim + stacked}};
    const bool ok = ct__var_fill(ctx, var, next_piece, s, here);
    ct__free(s->room);
    ct__free(s);
    return ok;
}

static bool give_values(ct_lm *lm, ct_loc here) {
    const size_t n = ct_params_count(lm->params);
    size_t coded = 0;
    lm->lent = ct__calloc(n + 1, sizeof *lm->lent);
    if (!lm->lent) return ct__err_memory(&ct__ctx()->err, here, "lm", n * sizeof *lm->lent);
    lm->n_lent = n;
    for (size_t i = 0; i < n;) {
        const ct_codes *c =
            coded < lm->n_codes && lm->codes[coded].first == i ? &lm->codes[coded++] : NULL;
        if (!(c ? give_codes(lm, c, here) : give_numbers(lm, i, here))) return false;
        i += c ? c->variables : 1;
    }
    return true;
}

// -------------------------------------------------------------------------------------------- loading

static bool no_weights(const ct_lm *lm, const char *path, ct_err *err) {
    char more[48] = "";
    if (lm->n_problems > lm->n_listed)
        snprintf(more, sizeof more, "; and %zu more", lm->n_problems - lm->n_listed);
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "%zu of the weights that %s has do not fit: %s%s",
            lm->n_problems, lm->spec.type, lm->problems.s ? lm->problems.s : "", more);
    return false;
}

// A class without an output layer, of which embeddings are made: BertModel, Qwen3Model. Tied layers need none.
static bool has_no_head(const ct_lm *lm) {
    const json_t *names = json_object_get(lm->config.root, "architectures");
    const char *name = json_string_value(json_array_get(names, 0));
    if (!name || !ct__ends_with(name, "Model") || ct__ends_with(name, "LMHeadModel")) return false;
    for (size_t i = 0; i < lm->files->n; i++)
        for (int k = CT_NAME_output_dense; k < CT_NAME_score_dense; k++) {
            const char *part = lm->spec.name[k];
            if (part && strncmp(lm->files->entries[i].name, part, strlen(part)) == 0) return false;
        }
    return !lm->spec.tied || lm->spec.name[CT_NAME_output_dense];
}

// A weight of the head, whose sizes are the file's but for `width`, and its bias, where the file has one.
static void make_score(ct_lm *lm, int name, ct_ints dims, ct_loc here) {
    char full[CT_NN_PATH];
    ct_weight_pair bias = {0}, *w = &lm->whole[name];
    if (!lm->spec.name[name]) return;
    snprintf(full, sizeof full, "%s.weight", lm->spec.name[name]);
    if (!ct__lm_variable(lm, full, dims, dims.n == 2, w, here)) return;
    snprintf(full, sizeof full, "%s.bias", lm->spec.name[name]);
    if (ct__lm_weight(lm, full))
        ct__lm_variable(lm, full, (ct_ints){1, dims.v}, false, &bias, here);
    w->bias = bias.weight;
}

// Of a class ...ForSequenceClassification the head by which it tells classes of texts apart; such have no other.
static bool make_scores(ct_lm *lm, const char *file, ct_loc here) {
    const json_t *names = json_object_get(lm->config.root, "architectures");
    const char *name = json_string_value(json_array_get(names, 0)), *output;
    char full[CT_NN_PATH];
    if (!name || !ct__ends_with(name, "ForSequenceClassification")) return true;
    if (!(output = lm->spec.name[CT_NAME_score_output]))
        return ct__err(&ct__ctx()->err, CT_E_UNSUPPORTED, CT_NOWHERE, file,
                       "\"architectures\" is \"%.80s\", whose head is not known", name);
    snprintf(full, sizeof full, "%s.weight", output);
    const ct_weight *w = ct__lm_weight(lm, full);
    lm->labels = w && w->rank == 2 && w->dim[0] ? w->dim[0] : 1;
    lm->headless = true;
    const int64_t width = lm->spec.width;
    make_score(lm, CT_NAME_score_dense, CT_DIMS(width, width), here);
    make_score(lm, CT_NAME_score_norm, CT_DIMS(width), here);
    make_score(lm, CT_NAME_score_output, CT_DIMS(lm->labels, width), here);
    return !ct__ctx()->err.code;
}

// The model whose result this one looks at: another row over the same config and weights.
static bool make_reader(ct_lm *lm, const char *file, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!lm->spec.name[CT_NAME_encoder]) return true;
    ct_lm *reader = lm->reader = ct__calloc(1, sizeof *lm->reader);
    if (!reader) return ct__err_memory(&ctx->err, here, "lm_load", sizeof *reader);
    if (!ct__spec_read_as(lm->spec.name[CT_NAME_encoder], file, lm->config.root, &lm->arena,
                          &reader->spec, &ctx->err))
        return false;
    reader->params = lm->params;
    reader->files = lm->files;
    reader->used = lm->used;
    reader->trainable = lm->trainable;
    reader->in_place = lm->in_place;
    const bool ok = ct__stack_make(reader, here);
    lm->problems = reader->problems;
    lm->n_problems = reader->n_problems;
    lm->n_listed = reader->n_listed;
    lm->codes = reader->codes;
    lm->n_codes = reader->n_codes;
    lm->codes_cap = reader->codes_cap;
    return ok;
}

// What the model is: of a file with metadata by these, else by the folder's config.json.
static bool read_spec(ct_lm *lm, const char *path, const char *file, ct_err *err) {
    const bool gguf = lm->files->gguf.version > 0;
    if (gguf) {
        lm->config.root = ct__lm_gguf_config(lm->files, err);
        if (!lm->config.root) return false;
    } else if (!ct__config_read(file, &lm->config, err)) {
        return false;
    }
    if (!ct__spec_read(gguf ? path : file, lm->config.root, &lm->arena, &lm->spec, err))
        return false;
    ct__lm_packed_adapt(lm);
    return gguf ? ct__lm_gguf_adapt(lm->files, &lm->spec, lm->used, err)
                : ct__lm_packed_known(lm->config.root, file, err);
}

static bool load_all(ct_lm *lm, const char *path, const char *file, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    lm->files = ct__calloc(1, sizeof *lm->files);
    lm->params = ct_params_new();
    if (!lm->files || !lm->params)
        return ct__err_memory(&ctx->err, here, "lm_load", sizeof *lm->files);
    if (!ct__weights_open(path, lm->files, &ctx->err)) return false;
    lm->used = ct__calloc(lm->files->n + 1, sizeof *lm->used);
    if (!lm->used) return ct__err_memory(&ctx->err, here, "lm_load", lm->files->n);
    if (!read_spec(lm, path, file, &ctx->err)) return false;
    lm->headless = has_no_head(lm);
    lm->in_place = !lm->trainable && (lm->in_place || ct__lm_is_too_large(lm));
    if (!make_reader(lm, file, here) || !make_scores(lm, file, here) || !ct__stack_make(lm, here))
        return false;
    complain_of_others(lm);
    if (lm->n_problems) return no_weights(lm, path, &ctx->err);
    return give_values(lm, here);
}

static bool load(ct_lm *lm, const char *path, ct_loc here) {
    ct_text file = {0};
    ct__textf(&file, "%s/config.json", path);
    const bool ok = file.failed ? ct__err_memory(&ct__ctx()->err, here, "lm_load", strlen(path))
                                : load_all(lm, path, file.s, here);
    ct__text_free(&file);
    return ok;
}

ct_lm *ct_lm_load_with(const char *path, ct_lm_load_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, options.here, "lm_load", "the path") || ctx->err.code)
        return NULL;
    ct_lm *lm = ct__calloc(1, sizeof *lm);
    if (!lm) {
        ct__err_memory(&ctx->err, options.here, "lm_load", sizeof *lm);
        return NULL;
    }
    lm->trainable = options.trainable;
    lm->in_place = options.in_place;
    if (load(lm, path, options.here)) return lm;
    ct__err_place(&ctx->err, options.here, "lm_load");
    ct_lm_free(lm);
    return NULL;
}

void ct_lm_free(ct_lm *lm) {
    if (!lm) return;
    ct_params_free(lm->params);
    for (size_t i = 0; i < lm->n_lent; i++)
        ct__storage_unref(lm->lent[i]); // the variables are gone
    if (lm->files) ct__weights_close(lm->files);
    ct__free(lm->files);
    ct__free(lm->lent);
    ct__free(lm->used);
    ct__free(lm->codes);
    ct__free(lm->layer);
    if (lm->reader) ct__free(lm->reader->layer); // all else of it is lent
    ct__free(lm->reader);
    ct__config_close(&lm->config);
    ct__text_free(&lm->problems);
    ct__arena_free(&lm->arena);
    ct__free(lm);
}

ct_params *ct_lm_params(ct_lm *lm) { return lm ? lm->params : NULL; }

// All texts of an engine turn by its context: beyond long_from as long texts do, which must be asked for.
static int64_t usual_context(const ct_spec *s) {
    const int64_t most = s->context && s->context < 8192 ? s->context : 8192,
                  before = s->turn[0].long_from;
    return before && before < most ? before : most;
}

static int64_t count_parameters(const ct_weights *files) {
    int64_t all = 0;
    for (size_t i = 0; files && i < files->n; i++) {
        int64_t n = 1;
        for (size_t k = 0; k < files->entries[i].rank; k++) n *= files->entries[i].dim[k];
        all += n;
    }
    return all;
}

// The element type that has the most bytes of the files.
static const char *main_storage(const ct_weights *files) {
    struct {
        const char *kind;
        uint64_t bytes;
    } all[64] = {{"", 0}};
    size_t n = 1, best = 0;
    for (size_t i = 0; files && i < files->n; i++) {
        const char *kind = files->entries[i].kind ? files->entries[i].kind : "";
        size_t at = 0;
        while (at < n && strcmp(all[at].kind, kind) != 0) at++;
        if (at == sizeof all / sizeof *all) continue;
        if (at == n) all[n++].kind = kind;
        all[at].bytes += files->entries[i].bytes;
        if (all[at].bytes > all[best].bytes) best = at;
    }
    return all[best].kind;
}

ct_lm_about ct_lm_look(const ct_lm *lm) {
    if (!lm) return (ct_lm_about){0};
    const ct_spec *s = &lm->spec;
    return (ct_lm_about){.type = s->type,
                         .context = s->context,
                         .usual_context = usual_context(s),
                         .vocab = s->vocab,
                         .width = s->width,
                         .layers = s->layers,
                         .writes = !s->bidirectional && !lm->reader && !lm->headless,
                         .pairs = lm->reader,
                         .scores = !lm->headless,
                         .labels = lm->labels,
                         .parameters = count_parameters(lm->files),
                         .storage = main_storage(lm->files)};
}

// -------------------------------------------------------------------------------------------- running

static bool tokens_fit(const ct_lm *lm, ct_tensor tokens, ct_ctx *ctx, const char *op,
                       ct_loc here) {
    if (!ct__given(ctx, lm, here, op, "the model")) return false;
    if (lm->reader && strcmp(op, "lm_pair_logits")) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "%s reads one text and writes another",
                 lm->spec.type);
        ct__err_hint(&ctx->err, "ct_lm_pair_logits takes both");
        return false;
    }
    if (!ct_ok(tokens)) return true; // the ops say so
    const int64_t most = lm->spec.context ? lm->spec.context : INT32_MAX;
    const int64_t time = ct_rank(tokens) == 2 ? ct_dim(tokens, 1) : 0;
    if (time >= 1 && time <= most) return true;
    ct__fail(
        ctx, CT_E_SHAPE, here, op,
        "the tokens have %d axes, the last of size %lld; they must be (batch, time) with a time of "
        "1 to %lld",
        ct_rank(tokens), (long long)ct_dim(tokens, -1), (long long)most);
    return false;
}

// ct__lm_rows, and of texts that look at what an encoder made, or CT_NONE.
static ct_tensor rows_of(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths, ct_lm_pass *pass,
                         ct_tensor kinds, ct_nn_mode *mode, ct_tensor memory, ct_loc here) {
    ct_tensor rows = ct_reshape_at(tokens, CT_DIMS(-1), here); // (N)
    const int64_t batch = ct__size_like(tokens, 0), time = ct__size_like(tokens, 1);
    ct_tensor at = ct_iota_at(CT_I32, CT_DIMS(batch, time), 1, here);
    *pass =
        (ct_lm_pass){.lm = lm,
                     .segment = {{.batch = batch, .time = time, .rows = rows, .lengths = lengths}},
                     .segments = 1,
                     .positions = ct_reshape_at(at, CT_DIMS(-1), here),
                     .kinds = kinds.bits ? ct_reshape_at(kinds, CT_DIMS(-1), here) : CT_NONE,
                     .memory = memory,
                     .longest = ct_dim(tokens, 1),
                     .mode = mode,
                     .here = here};
    return ct__stack_hidden(pass, rows);
}

ct_tensor ct__lm_rows(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths, ct_tensor kinds,
                      ct_lm_pass *pass, ct_loc here) {
    return rows_of(lm, tokens, lengths, pass, kinds, NULL, CT_NONE, here);
}

static ct_tensor whole(ct_tensor rows, ct_tensor tokens, ct_loc here) {
    if (!ct_ok(rows)) return rows;
    ct_ints dims = CT_DIMS(ct__size_like(tokens, 0), ct__size_like(tokens, 1), ct_dim(rows, 1));
    return ct_reshape_at(rows, dims, here);
}

ct_tensor ct_lm_hidden_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!tokens_fit(lm, tokens, ctx, "lm_hidden", here)) return ct__poison(ctx, here);
    ct_lm_pass pass;
    return whole(rows_of(lm, tokens, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here), tokens, here);
}

ct_tensor ct_lm_logits_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!tokens_fit(lm, tokens, ctx, "lm_logits", here)) return ct__poison(ctx, here);
    if (lm->headless)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "lm_logits",
                        lm->labels
                            ? "the model tells classes of texts apart: it has no logits of tokens"
                            : "the model's file has no output layer, of which logits come");
    ct_lm_pass pass;
    ct_tensor rows = rows_of(lm, tokens, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here);
    return whole(ct__stack_logits(&pass, rows), tokens, here);
}

ct_tensor ct_lm_pair_logits_at(const ct_lm *lm, ct_tensor read, ct_tensor written, ct_nn_mode *mode,
                               ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!tokens_fit(lm, read, ctx, "lm_pair_logits", here) ||
        !tokens_fit(lm, written, ctx, "lm_pair_logits", here))
        return ct__poison(ctx, here);
    if (!lm->reader)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "lm_pair_logits", "%s reads and writes one text",
                        lm->spec.type);
    ct_lm_pass pass;
    ct_tensor memory = rows_of(lm->reader, read, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here);
    ct_tensor rows =
        rows_of(lm, written, CT_NONE, &pass, CT_NONE, mode, whole(memory, read, here), here);
    return whole(ct__stack_logits(&pass, rows), written, here);
}

// -------------------------------------------------------------------------------------------- saving

static bool put_variable(ct_store *store, const char *name, ct_tensor var, ct_err *err,
                         ct_loc here) {
    char one[CT_NN_PATH + 24];
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(var);
    const char *data = ct_data_at(var, here); // kept until the scope ends
    if (!data) return false;
    for (int a = 0; a < rank; a++) dim[a] = ct_dim(var, a);
    const bool stacked = strchr(name, '#') != NULL;
    const int64_t n = stacked ? dim[0] : 1;
    const ct_ints dims = stacked ? (ct_ints){rank - 1, dim + 1} : (ct_ints){rank, dim};
    const size_t bytes = (size_t)(ct_size(var) / (n ? n : 1)) * ct_dtype_size(ct_dtype_of(var));
    for (int64_t i = 0; i < n; i++)
        if (!ct__store_put(store, "", of_expert(name, i, one), ct_dtype_of(var), dims,
                           data + (size_t)i * bytes, err))
            return false;
    return true;
}

// Weights that were trained are f32, whatever they were before.
static void set_dtype(const ct_lm *lm, json_t *config) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 2 && lm->trainable; i++)
        if (json_object_get(config, keys[i]))
            json_object_set_new(config, keys[i], json_string("float32"));
}

static bool save_config(const ct_lm *lm, const char *path, ct__lm_config_more more, void *user,
                        ct_err *err) {
    ct_config out;
    ct_text text = {0};
    ct__json_tree(&text, lm->config.root);
    json_error_t fault;
    bool ok = !text.failed && ct__config_new(path, &out, err);
    if (ok) {
        json_decref(out.root);
        out.root = ct__json_read(text.s, text.n, 0, &fault);
        if (out.root) { // of the run that these weights come from
            json_object_del(out.root, "training");
            json_object_del(out.root, "crc32c");
            set_dtype(lm, out.root);
        }
        ok = (out.root || ct__err_memory(err, CT_NOWHERE, path, text.n)) &&
             (!more || more(&out, user, err)) && ct__config_write(&out, err);
        ct__config_close(&out);
    } else if (text.failed) {
        ct__err_memory(err, CT_NOWHERE, path, text.n);
    }
    ct__text_free(&text);
    return ok;
}

bool ct__lm_save(const ct_lm *lm, const char *dir, ct__lm_config_more more, void *user,
                 ct_loc here) {
    CT_SCOPE; // values that are read live as long as it
    ct_text weights = {0}, config = {0};
    ct_store store = {0};
    ct_err *err = &ct__ctx()->err;
    const char *numerics = ct_numerics();
    const ct_st_pair about[] = {{"format", "pt", 6, 2},
                                {"cotan.numerics", numerics, 14, strlen(numerics)}};
    ct__textf(&weights, "%s/model.safetensors", dir);
    ct__textf(&config, "%s/config.json", dir);
    bool ok = !weights.failed && !config.failed;
    if (!ok) ct__err_memory(err, here, "lm_save", strlen(dir));
    ok = ok && ct__make_dirs(dir, 0777, err);
    for (size_t i = 0; ok && i < ct_params_count(lm->params); i++)
        ok = put_variable(&store, ct_params_name(lm->params, i), ct_params_get(lm->params, i), err,
                          here);
    ok = ok && save_config(lm, config.s, more, user, err) &&
         (more ? ct__st_write_checked(weights.s, store.out, store.n, about, 2, err)
               : ct__st_write(weights.s, store.out, store.n, about, 1, err));
    ct__store_free(&store);
    ct__text_free(&weights);
    ct__text_free(&config);
    return ok;
}

bool ct_lm_save_at(const ct_lm *lm, const char *dir, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, lm, here, "lm_save", "the model") ||
        !ct__given(ctx, dir, here, "lm_save", "the folder") || ctx->err.code)
        return false;
    if (lm->files && lm->files->gguf.version) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "lm_save",
                 "the model came from a GGUF file, of which no folder is made");
        return false;
    }
    return ct__lm_save(lm, dir, NULL, NULL, here) || ct__err_place(&ctx->err, here, "lm_save");
}
