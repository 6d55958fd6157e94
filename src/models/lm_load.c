// Loads language models of any architecture from their files, and saves them to such files.
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "base/fp_env.h"
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

// ------------------------------------------------------------------------------------------- weights

// Files name weights with or without the prefix of all of a model's names, and multimodal models have a
// further prefix before that.
const ct_weight *ct__lm_weight(const ct_lm *lm, const char *name) {
    char other[CT_NN_MAX_PATH + 32];
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

// Returns the name of one expert's weight; other names unchanged.
static const char *load_expert_name(const char *name, int64_t expert,
                                    char out[CT_NN_MAX_PATH + 24]) {
    const char *mark = strchr(name, '#');
    if (!mark) return name;
    snprintf(out, CT_NN_MAX_PATH + 24, "%.*s%" PRId64 "%s", (int)(mark - name), name, expert,
             mark + 1);
    return out;
}

// Sizes that do not fit make every weight of the model a problem, and the first few show the cause. Returns
// false if this problem is only counted.
static bool load_is_listed(ct_lm *lm) {
    enum { MAX_LISTED = 10, MAX_TEXT = 600 }; // an error's text is at most CT_ERROR_TEXT long
    lm->n_problems++;
    if (lm->n_listed == MAX_LISTED || lm->problems.n >= MAX_TEXT) return false;
    if (lm->n_listed++) ct__text_add(&lm->problems, "; ");
    return true;
}

static void load_report_weight(ct_lm *lm, const char *name, const ct_weight *found, ct_ints dims) {
    if (!load_is_listed(lm)) return;
    char shape[256];
    ct_type type = {.dtype = CT_F32, .rank = (uint8_t)dims.n, .dim = (int64_t *)(uintptr_t)dims.v};
    if (!found) {
        ct__textf(&lm->problems, "\"%s\" is missing", name);
        return;
    }
    size_t n = 0;
    for (size_t a = 0; a < found->rank && n < sizeof shape; a++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64, a ? ", " : "",
                              found->dim[a]);
    ct__textf(&lm->problems, "\"%s\" is (%s) %s, %s is expected", name, shape, found->kind,
              ct__type_text(&type).s);
}

static bool load_weight_fits(const ct_weight *found, ct_ints dims) {
    if (found && dims.n == 2 && dims.v[0] == 1 && found->rank == 1) // a single row, in GGUF files
        dims = (ct_ints){1, dims.v + 1};
    bool same = found && found->rank == (size_t)dims.n &&
                (found->block >= 0 || ct__is_differentiable(found->dtype));
    for (int64_t a = 0; same && a < dims.n; a++) same = found->dim[a] == dims.v[a];
    return same;
}

static void load_mark_used(ct_lm *lm, const ct_weight *w) {
    if (w) lm->weight_is_used[w - lm->files->entries] = true;
}

// What the files store under a name: one tensor, or several.
typedef struct found_tensors {
    const ct_weight *weight;
    ct_packed packed;
} found_weight;

// Finds a weight and marks it as used. Returns false if it is missing, does not fit, or is of another kind
// than `first`.
static bool load_find_weight(ct_lm *lm, const char *name, ct_ints dims, const found_weight *first,
                             found_weight *result) {
    *result = (found_weight){.weight = ct__lm_weight(lm, name)};
    if (ct__lm_packed(lm, name, dims, &result->packed)) {
        load_mark_used(lm, result->packed.quants);
        load_mark_used(lm, result->packed.scales);
        load_mark_used(lm, result->packed.biases);
        return ct__lm_packed_check(&result->packed, &ct__ctx()->err) &&
               (!first || first->packed.kind == result->packed.kind);
    }
    load_mark_used(lm, result->weight);
    return load_weight_fits(result->weight, dims) &&
           (!first || (!first->packed.kind && result->weight->dtype == first->weight->dtype &&
                       result->weight->block == first->weight->block));
}

bool ct__lm_variable(ct_lm *lm, const char *name, ct_ints dims, ct_lm_use use_as, ct_weight_pair *w,
                     ct_loc here) {
    char buffer[CT_NN_MAX_PATH + 24];
    // an encoder made it already, which has the same embeddings
    w->weight = ct_params_find(lm->params, name);
    if (w->weight.bits) return true;
    if (lm->is_new) {
        const ct_nn_builder builder = ct_nn_builder_for(lm->params, lm->seed);
        w->weight = ct_nn_param_at(builder, name, dims, lm->next_init, here);
        return true;
    }
    const bool stacked = strchr(name, '#') != NULL;
    const ct_ints one_dims = stacked ? (ct_ints){dims.n - 1, dims.v + 1} : dims;
    found_weight first = {0}, next;
    bool ok = true;
    for (int64_t i = 0; i < (stacked ? dims.v[0] : 1); i++) {
        const char *one_name = load_expert_name(name, i, buffer);
        if (!load_find_weight(lm, one_name, one_dims, i && ok ? &first : NULL, &next)) {
            load_report_weight(lm, one_name, next.weight, one_dims);
            ok = false;
        }
        if (!i) first = next;
    }
    if (!ok) return false;
    const bool quantise = use_as != CT_LM_NUMBERS && !lm->trainable;
    const ct_packed *p = &first.packed;
    const int64_t width = dims.v[dims.n - 1];
    ct_codes_form form = {.interleaved = use_as == CT_LM_PRODUCTS, .scales = CT_F32};
    if (quantise && !stacked && p->kind && p->kind != CT_PACKED_FP8) {
        w->layout = ct__lm_packed_layout(p);
        form.n_blocks = ct__lm_packed_groups(p);
        form.offsets = p->kind == CT_PACKED_MLX;
        if (form.offsets) form.scales = p->scales->dtype; // the dtype in which MLX computes
        return ct__lm_codes_make(lm, name, dims, form, w, here);
    } else if (p->kind) {
        w->weight = ct_param_at(lm->params, name, lm->trainable ? CT_F32 : CT_BF16, dims, here);
    } else if (lm->in_place && !stacked && first.weight->block >= 0 && dims.n > 1) {
        return ct__lm_blocks_make(lm, name, dims, first.weight, w, here);
    } else if (quantise && ct__lm_codes_of(first.weight, width, &w->layout)) {
        const ct_ggml_type *type = ct__ggml_type((uint32_t)first.weight->block);
        form.n_blocks = width / type->group;
        form.offsets = type->zero_point;
        return ct__lm_codes_make(lm, name, dims, form, w, here);
    } else {
        const bool same_dtype = !lm->trainable && first.weight->block < 0;
        w->weight =
            ct_param_at(lm->params, name, same_dtype ? first.weight->dtype : CT_F32, dims, here);
    }
    return true;
}

// True for names of tensors that are not weights of a language model: computed tables, masks, and vision
// and audio parts.
static bool load_is_ignored(const char *name) {
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

// True for a weight of one of the model's layers, or for any weight in a GGUF file.
static bool load_is_layer_weight(const ct_lm *lm, const char *name) {
    if (lm->files->gguf.version) return true;
    const char *layer = lm->spec.name[CT_NAME_layer], *mark = strchr(layer, '%');
    const char *dot = memchr(layer, '.', (size_t)(mark - layer));
    if (dot && dot + 1 < mark) layer = dot + 1; // without the prefix of all names
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

static bool load_is_zero(const ct_weight *w) {
    const char *bytes = w->data;
    bool zero = true;
    for (uint64_t i = 0; zero && i < w->bytes; i++) zero = !bytes[i];
    return zero;
}

// Reports weights that the architecture does not know, since they would not take part in the computation.
static void load_report_unused(ct_lm *lm) {
    for (size_t i = 0; i < lm->files->n; i++) {
        const char *name = lm->files->entries[i].name;
        if (lm->weight_is_used[i] || load_is_ignored(name)) continue;
        const bool no_bias = !lm->spec.bias && ct__ends_with(name, ".bias");
        if (no_bias ? load_is_zero(&lm->files->entries[i]) : !load_is_layer_weight(lm, name))
            continue;
        if (load_is_listed(lm))
            ct__textf(&lm->problems,
                      no_bias ? "\"%.150s\" is not zero, but the model has no biases"
                              : "\"%.150s\" has no place in it",
                      name);
    }
}

// Streams the elements of a weight, or of all experts' one after the other, in chunks and in the variable's
// dtype.
enum { LOAD_CHUNK = 4096, LOAD_MAX_BLOCK = 256 };
typedef struct load_stream {
    const ct_lm *lm;
    const char *name;
    const ct_weight *weight; // being read
    // its own bytes are the last chunk, which the caller copies before the next call
    const ct_weight *borrowed;
    uint64_t offset;                // offset in elements, or blocks
    int64_t next_expert, n_experts; // experts
    ct_dtype to_dtype;
    ct_ints dims; // of a single weight
    ct_packed packed;
    int64_t packed_row; // next row of `packed`
    char *buffer;       // buffer for some rows; NULL: not allocated yet
    _Alignas(8) char in[LOAD_CHUNK * 8], out[LOAD_CHUNK * 8];
} load_stream;

static void load_f32_to_bf16(const float *from, size_t n, uint16_t *to) {
    for (size_t i = 0; i < n; i++) { // rounds to nearest, ties to even
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        to[i] = (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static size_t load_convert_blocks(load_stream *s, const char *from, size_t count) {
    const ct_ggml_type *type = ct__ggml_type((uint32_t)s->weight->block);
    ct__ggml_dequantize(type, from, count, (float *)(void *)s->out);
    return count * (size_t)type->elements * 4;
}

static size_t load_convert_elements(load_stream *s, const char *from, size_t count) {
    const ct_dtype dtype = s->weight->dtype;
    memcpy(s->in, from, count * ct_dtype_size(dtype)); // the file's data is not aligned
    for (size_t i = 0; i < count; i++)
        ct__store_f64(s->to_dtype, s->out, (int64_t)i, ct__load_f64(dtype, s->in, (int64_t)i));
    return count * ct_dtype_size(s->to_dtype);
}

// Unpacks the next rows of a weight that is several tensors.
static bool load_next_packed(load_stream *s, const void **bytes, size_t *n, ct_err *err) {
    const ct_packed *p = &s->packed;
    const int64_t max_rows = ct__lm_packed_rows(p), left = p->n - s->packed_row,
                  rows = left < max_rows ? left : max_rows;
    const size_t n_elements = (size_t)rows * (size_t)p->n_columns;
    if (!s->buffer) s->buffer = ct__malloc((size_t)max_rows * (size_t)p->n_columns * 8);
    if (!s->buffer) return ct__err_memory(err, CT_NOWHERE, s->name, n_elements * 8);
    *bytes = s->buffer;
    float *values = (float *)(void *)s->buffer;
    if (!ct__lm_unpack(p, s->packed_row, rows, values, err)) return false;
    *n = n_elements * ct_dtype_size(s->to_dtype);
    if (s->to_dtype == CT_BF16) {
        *bytes = values + n_elements;
        load_f32_to_bf16(values, n_elements, (uint16_t *)(void *)(values + n_elements));
    }
    s->packed_row += rows;
    if (rows == left) {
        ct__weights_release_pages(s->lm->files, p->quants);
        s->packed.kind = CT_PACKED_NOT;
    }
    return true;
}

// Drops the pages of a weight whose bytes were the last chunk.
static void load_drop_pages(load_stream *s) {
    if (s->borrowed) ct__weights_release_pages(s->lm->files, s->borrowed);
    s->borrowed = NULL;
}

static bool load_next_chunk(void *user, const void **bytes, size_t *n, ct_err *err) {
    load_stream *s = user;
    char buffer[CT_NN_MAX_PATH + 24];
    *n = 0;
    load_drop_pages(s);
    if (!s->weight && !s->packed.kind) {
        if (s->next_expert == s->n_experts) return true;
        const char *one_name = load_expert_name(s->name, s->next_expert++, buffer);
        s->weight = ct__lm_packed(s->lm, one_name, s->dims, &s->packed)
                        ? NULL
                        : ct__lm_weight(s->lm, one_name);
        s->offset = 0;
        s->packed_row = 0;
    }
    if (s->packed.kind) return load_next_packed(s, bytes, n, err);
    const ct_weight *w = s->weight;
    const bool is_blocks = w->block >= 0;
    const ct_ggml_type *type = is_blocks ? ct__ggml_type((uint32_t)w->block) : NULL;
    const size_t size = is_blocks ? (size_t)type->bytes : ct_dtype_size(w->dtype);
    const size_t max_count = is_blocks ? LOAD_CHUNK / LOAD_MAX_BLOCK : LOAD_CHUNK;
    const char *from = (const char *)w->data + s->offset * size;
    const uint64_t left = w->bytes / size - s->offset;
    size_t count = left < max_count ? (size_t)left : max_count;
    *bytes = s->out;
    if (!is_blocks && w->dtype == s->to_dtype) {
        count = (size_t)left;
        *bytes = from;
        *n = count * size;
    } else {
        *n =
            is_blocks ? load_convert_blocks(s, from, count) : load_convert_elements(s, from, count);
    }
    s->offset += count;
    if (count == left) {
        if (*bytes == s->out)
            ct__weights_release_pages(s->lm->files, w);
        else
            s->borrowed = w;
        s->weight = NULL;
    }
    return *n || load_next_chunk(user, bytes, n, err);
}

// Fills a quantised weight from its tensors in the files.
static bool load_fill_quant(ct_lm *lm, const ct_codes *quant, ct_loc here) {
    const char *name = ct_params_name(lm->params, quant->first_variable);
    const bool stacked = strchr(name, '#') != NULL;
    const int64_t n = stacked ? quant->dims[0] : 1;
    const ct_ints one_dims = {quant->rank - stacked, quant->dims + stacked};
    ct_codes_source *from = ct__calloc((size_t)n, sizeof *from);
    char buffer[CT_NN_MAX_PATH + 24];
    bool ok = from || ct__err_memory(&ct__ctx()->err, here, "lm", (size_t)n * sizeof *from);
    for (int64_t i = 0; ok && i < n; i++) {
        const char *one_name = load_expert_name(name, i, buffer);
        if (!ct__lm_packed(lm, one_name, one_dims, &from[i].packed))
            from[i].weight = ct__lm_weight(lm, one_name);
    }
    ok = ok && ct__lm_codes_fill(lm, &quant->w, from, n, here);
    ct__free(from);
    return ok;
}

static bool load_fill_variable(ct_lm *lm, size_t i, ct_loc here) {
    CT_DEFAULT_ENV; // converts floats
    ct_ctx *ctx = ct__ctx();
    int64_t dims[CT_MAX_RANK];
    ct_tensor var = ct_params_get(lm->params, i);
    const char *name = ct_params_name(lm->params, i);
    const bool stacked = strchr(name, '#') != NULL;
    const ct_weight *w = stacked ? NULL : ct__lm_weight(lm, name);
    if (w) {
        const ct_dtype dtype = w->block < 0 ? w->dtype : CT_U8;
        const bool same_dtype = dtype == ct_dtype_of(var) && !lm->trainable &&
                                (uintptr_t)w->data % ct_dtype_size(dtype) == 0;
        if (same_dtype) lm->borrowed[i] = ct__var_borrow(ctx, var, w->data, w->bytes, here);
        if (lm->borrowed[i]) return true;
        if (ctx->err.code) return false;
    }
    for (int a = 0; a < ct_rank(var); a++) dims[a] = ct_dim(var, a);
    load_stream *s = ct__malloc(sizeof *s);
    if (!s) return ct__err_memory(&ctx->err, here, "lm", sizeof *s);
    *s = (load_stream){.lm = lm,
                       .name = name,
                       .n_experts = stacked ? ct_dim(var, 0) : 1,
                       .to_dtype = ct_dtype_of(var),
                       .dims = {ct_rank(var) - stacked, dims + stacked}};
    const bool ok = ct__var_fill(ctx, var, load_next_chunk, s, here);
    load_drop_pages(s);
    ct__free(s->buffer);
    ct__free(s);
    return ok;
}

static bool load_fill_all(ct_lm *lm, ct_loc here) {
    const size_t n = ct_params_count(lm->params);
    size_t n_quant = 0;
    lm->borrowed = ct__calloc(n + 1, sizeof *lm->borrowed);
    if (!lm->borrowed) return ct__err_memory(&ct__ctx()->err, here, "lm", n * sizeof *lm->borrowed);
    lm->n_borrowed = n;
    for (size_t i = 0; i < n;) {
        const ct_codes *quant = n_quant < lm->n_quant && lm->quant[n_quant].first_variable == i
                                    ? &lm->quant[n_quant++]
                                    : NULL;
        if (!(quant ? load_fill_quant(lm, quant, here) : load_fill_variable(lm, i, here)))
            return false;
        i += quant ? quant->n_variables : 1;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- loading

static bool load_report_problems(const ct_lm *lm, const char *path, ct_err *err) {
    char more[48] = "";
    if (lm->n_problems > lm->n_listed)
        snprintf(more, sizeof more, "; and %zu more", lm->n_problems - lm->n_listed);
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "%zu of the weights that %s has do not fit: %s%s",
            lm->n_problems, lm->spec.type, lm->problems.s ? lm->problems.s : "", more);
    return false;
}

// True for a class without an output layer, which makes embeddings: BertModel, Qwen3Model. Tied layers need
// none.
static bool load_has_no_output(const ct_lm *lm) {
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

// Makes a weight of the classification head, whose sizes are the file's but for `width`, and its bias if
// the file has one.
static void load_make_score_weight(ct_lm *lm, int name, ct_ints dims, ct_loc here) {
    char full[CT_NN_MAX_PATH];
    ct_weight_pair bias = {0}, *w = &lm->model_weights[name];
    if (!lm->spec.name[name]) return;
    snprintf(full, sizeof full, "%s.weight", lm->spec.name[name]);
    if (!ct__lm_variable(lm, full, dims, dims.n == 2, w, here)) return;
    snprintf(full, sizeof full, "%s.bias", lm->spec.name[name]);
    if (ct__lm_weight(lm, full))
        ct__lm_variable(lm, full, (ct_ints){1, dims.v}, false, &bias, here);
    w->bias = bias.weight;
}

// Makes the classification head of a class ...ForSequenceClassification, which has no other head.
static bool load_make_classifier(ct_lm *lm, const char *file, ct_loc here) {
    const json_t *names = json_object_get(lm->config.root, "architectures");
    const char *name = json_string_value(json_array_get(names, 0)), *output;
    char full[CT_NN_MAX_PATH];
    if (!name || !ct__ends_with(name, "ForSequenceClassification")) return true;
    if (!(output = lm->spec.name[CT_NAME_score_output]))
        return ct__err(&ct__ctx()->err, CT_E_UNSUPPORTED, CT_NOWHERE, file,
                       "\"architectures\" is \"%.80s\", whose head is not known", name);
    snprintf(full, sizeof full, "%s.weight", output);
    const ct_weight *w = ct__lm_weight(lm, full);
    lm->labels = w && w->rank == 2 && w->dim[0] ? w->dim[0] : 1;
    lm->has_no_output = true;
    const int64_t width = lm->spec.width;
    load_make_score_weight(lm, CT_NAME_score_dense, CT_DIMS(width, width), here);
    load_make_score_weight(lm, CT_NAME_score_norm, CT_DIMS(width), here);
    load_make_score_weight(lm, CT_NAME_score_output, CT_DIMS(lm->labels, width), here);
    return !ct__ctx()->err.code;
}

// Makes the encoder that this model attends to: another row over the same config and weights.
static bool load_make_encoder(ct_lm *lm, const char *file, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!lm->spec.name[CT_NAME_encoder]) return true;
    ct_lm *encoder = lm->reader = ct__calloc(1, sizeof *lm->reader);
    if (!encoder) return ct__err_memory(&ctx->err, here, "lm_load", sizeof *encoder);
    if (!ct__spec_read_as(lm->spec.name[CT_NAME_encoder], file, lm->config.root, &lm->arena,
                          &encoder->spec, &ctx->err))
        return false;
    encoder->params = lm->params;
    encoder->files = lm->files;
    encoder->weight_is_used = lm->weight_is_used;
    encoder->trainable = lm->trainable;
    encoder->in_place = lm->in_place;
    encoder->exact = lm->exact;
    const bool ok = ct__stack_make(encoder, here);
    lm->problems = encoder->problems;
    lm->n_problems = encoder->n_problems;
    lm->n_listed = encoder->n_listed;
    lm->quant = encoder->quant;
    lm->n_quant = encoder->n_quant;
    lm->quant_cap = encoder->quant_cap;
    return ok;
}

// Names the weights as the files do, which may lack the prefix.
static void load_adapt_prefix(ct_lm *lm) {
    const char *embed = lm->spec.name[CT_NAME_embed], *dot = embed ? strchr(embed, '.') : NULL;
    char name[CT_NN_MAX_PATH];
    if (!dot || lm->spec.name[CT_NAME_encoder]) return;
    snprintf(name, sizeof name, "%s.weight", embed);
    if (!ct__weights_find(lm->files, name) && ct__weights_find(lm->files, name + (dot + 1 - embed)))
        ct__spec_drop_prefix(&lm->spec);
}

// Reads the spec from a GGUF file's metadata, or else from the folder's config.json.
static bool load_read_spec(ct_lm *lm, const char *path, const char *file, ct_err *err) {
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
    if (!gguf) load_adapt_prefix(lm);
    return gguf ? ct__lm_gguf_adapt(lm->files, &lm->spec, lm->weight_is_used, err)
                : ct__lm_packed_known(lm->config.root, file, err);
}

static bool load_open(ct_lm *lm, const char *path, const char *file, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    lm->files = ct__calloc(1, sizeof *lm->files);
    lm->params = ct_params_new();
    if (!lm->files || !lm->params)
        return ct__err_memory(&ctx->err, here, "lm_load", sizeof *lm->files);
    if (!ct__weights_open(path, lm->files, &ctx->err)) return false;
    lm->weight_is_used = ct__calloc(lm->files->n + 1, sizeof *lm->weight_is_used);
    if (!lm->weight_is_used) return ct__err_memory(&ctx->err, here, "lm_load", lm->files->n);
    if (!load_read_spec(lm, path, file, &ctx->err)) return false;
    lm->has_no_output = load_has_no_output(lm);
    lm->in_place = !lm->trainable && (lm->in_place || ct__lm_is_too_large(lm));
    if (!load_make_encoder(lm, file, here) || !load_make_classifier(lm, file, here) ||
        !ct__stack_make(lm, here))
        return false;
    load_report_unused(lm);
    if (lm->n_problems) return load_report_problems(lm, path, &ctx->err);
    return load_fill_all(lm, here);
}

static bool load_model(ct_lm *lm, const char *path, ct_loc here) {
    CT_TEXT file = {0};
    ct__textf(&file, "%s/config.json", path);
    return file.failed ? ct__err_memory(&ct__ctx()->err, here, "lm_load", strlen(path))
                       : load_open(lm, path, file.s, here);
}

ct_lm *ct_lm_load_with(const char *path, ct_lm_load_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, options.here, "lm_load", "the path") || ctx->err.code)
        return NULL;
    if (options.activations != CT_DEFAULT && options.activations != CT_I8 &&
        options.activations != CT_F32) {
        ct__fail(ctx, CT_E_ARGUMENT, options.here, "lm_load",
                 "activations of %s: they are i8 or f32", ct_dtype_name(options.activations));
        return NULL;
    }
    ct_lm *lm = ct__calloc(1, sizeof *lm);
    if (!lm) return ct__null_memory(&ctx->err, options.here, "lm_load", sizeof *lm);
    lm->trainable = options.trainable;
    lm->in_place = options.no_repack;
    lm->exact = options.activations == CT_F32;
    if (load_model(lm, path, options.here)) return lm;
    ct__err_locate(&ctx->err, options.here, "lm_load");
    ct_lm_free(lm);
    return NULL;
}

void ct_lm_free(ct_lm *lm) {
    if (!lm) return;
    ct_params_free(lm->params);
    for (size_t i = 0; i < lm->n_borrowed; i++)
        ct__storage_unref(lm->borrowed[i]); // the variables that borrowed them are gone
    if (lm->files) ct__weights_close(lm->files);
    ct__free(lm->files);
    ct__free(lm->borrowed);
    ct__free(lm->weight_is_used);
    ct__free(lm->quant);
    ct__free(lm->layer);
    if (lm->reader) ct__free(lm->reader->layer); // everything else of it belongs to lm
    ct__free(lm->reader);
    ct__config_close(&lm->config);
    ct__text_free(&lm->problems);
    ct__arena_free(&lm->arena);
    ct__free(lm);
}

ct_params *ct_lm_params(ct_lm *lm) { return lm ? lm->params : NULL; }

// Returns the context that an engine takes by default. All sequences of an engine use the rotary
// frequencies of its context: beyond original_context those of long sequences, which must be requested.
static int64_t lm_default_context(const ct_spec *s) {
    const int64_t max_context = s->context && s->context < 8192 ? s->context : 8192,
                  original = s->ropes[0].original_context;
    return original && original < max_context ? original : max_context;
}

static int64_t lm_count_parameters(const ct_weights *files) {
    int64_t total = 0;
    for (size_t i = 0; i < files->n; i++) {
        int64_t n = 1;
        for (size_t k = 0; k < files->entries[i].rank; k++) n *= files->entries[i].dim[k];
        total += n;
    }
    return total;
}

// Returns the weight type that takes the most bytes of the files.
static const char *lm_main_weight_type(const ct_weights *files) {
    struct {
        const char *kind;
        uint64_t bytes;
    } types[64] = {{"", 0}};
    size_t n = 1, best = 0;
    for (size_t i = 0; files && i < files->n; i++) {
        const char *kind = files->entries[i].kind ? files->entries[i].kind : "";
        size_t at = 0;
        while (at < n && strcmp(types[at].kind, kind) != 0) at++;
        if (at == sizeof types / sizeof *types) continue;
        if (at == n) types[n++].kind = kind;
        types[at].bytes += files->entries[i].bytes;
        if (types[at].bytes > types[best].bytes) best = at;
    }
    return types[best].kind;
}

ct_lm_properties ct_lm_info(const ct_lm *lm) {
    if (!lm) return (ct_lm_properties){0};
    const ct_spec *s = &lm->spec;
    return (ct_lm_properties){
        .type = s->type,
        .context = s->context,
        .default_context = lm_default_context(s),
        .vocab = s->vocab,
        .width = s->width,
        .layers = s->layers,
        .is_generative = !s->bidirectional && !lm->reader && !lm->has_no_output,
        .is_encoder_decoder = lm->reader,
        .has_lm_head = !lm->has_no_output,
        .labels = lm->labels,
        .parameters = lm->files ? lm_count_parameters(lm->files) : ct__stack_size(s),
        .weight_format = lm_main_weight_type(lm->files),
        .activations = lm->n_quant && !lm->exact ? CT_I8 : CT_F32};
}

// ------------------------------------------------------------------------------------ forward passes

static bool lm_tokens_check(const ct_lm *lm, ct_tensor tokens, ct_ctx *ctx, const char *op,
                            ct_loc here) {
    if (!ct__given(ctx, lm, here, op, "the model")) return false;
    if (lm->reader && strcmp(op, "lm_seq2seq_logits")) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "%s is an encoder-decoder model", lm->spec.type);
        return ct__err_hint(&ctx->err, "ct_lm_seq2seq_logits takes both");
    }
    if (!ct_ok(tokens)) return true; // the ops report it
    const int64_t max_time = lm->spec.context ? lm->spec.context : INT32_MAX;
    const int64_t time = ct_rank(tokens) == 2 ? ct_dim(tokens, 1) : 0;
    if (time >= 1 && time <= max_time) return true;
    return ct__refuse(
        ctx, CT_E_SHAPE, here, op,
        "the tokens have %d axes, the last of size %lld; they must be (batch, time) with a time of "
        "1 to %lld",
        ct_rank(tokens), (long long)ct_dim(tokens, -1), (long long)max_time);
}

// Does what ct__lm_rows does; `memory` is the encoder's output, or CT_NONE.
static ct_tensor lm_hidden_rows(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths,
                                ct_lm_pass *pass, ct_tensor kinds, ct_nn_mode *mode,
                                ct_tensor memory, ct_loc here) {
    ct_tensor rows = ct_reshape_at(tokens, CT_DIMS(-1), here); // (N)
    const int64_t batch = ct__size_like(tokens, 0), time = ct__size_like(tokens, 1);
    ct_tensor at = ct_iota_at(CT_I32, CT_DIMS(batch, time), 1, here);
    *pass = (ct_lm_pass){
        .lm = lm,
        .segment = {{.batch = batch, .time = time, .row_template = rows, .lengths = lengths}},
        .segments = 1,
        .positions = ct_reshape_at(at, CT_DIMS(-1), here),
        .token_types = kinds.bits ? ct_reshape_at(kinds, CT_DIMS(-1), here) : CT_NONE,
        .memory = memory,
        .max_length = ct_dim(tokens, 1),
        .mode = mode,
        .here = here};
    return ct__stack_hidden(pass, rows);
}

ct_tensor ct__lm_rows(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths, ct_tensor kinds,
                      ct_lm_pass *pass, ct_loc here) {
    return lm_hidden_rows(lm, tokens, lengths, pass, kinds, NULL, CT_NONE, here);
}

static ct_tensor lm_unflatten(ct_tensor rows, ct_tensor tokens, ct_loc here) {
    if (!ct_ok(rows)) return rows;
    ct_ints dims = CT_DIMS(ct__size_like(tokens, 0), ct__size_like(tokens, 1), ct_dim(rows, 1));
    return ct_reshape_at(rows, dims, here);
}

ct_tensor ct_lm_hidden_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!lm_tokens_check(lm, tokens, ctx, "lm_hidden", here)) return ct__poison(ctx, here);
    ct_lm_pass pass;
    return lm_unflatten(lm_hidden_rows(lm, tokens, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here),
                        tokens, here);
}

ct_tensor ct_lm_logits_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!lm_tokens_check(lm, tokens, ctx, "lm_logits", here)) return ct__poison(ctx, here);
    if (lm->has_no_output)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "lm_logits",
                        lm->labels ? "the model is a classifier: it has no logits of tokens"
                                   : "the model's file has no output layer, of which logits come");
    ct_lm_pass pass;
    ct_tensor rows = lm_hidden_rows(lm, tokens, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here);
    return lm_unflatten(ct__stack_logits(&pass, rows), tokens, here);
}

ct_tensor ct_lm_loss_at(const ct_lm *lm, ct_tensor tokens, ct_tensor targets, ct_nn_mode *mode,
                        ct_loc here) {
    ct_tensor logits = ct_lm_logits_at(lm, tokens, mode, here); // (B, T, vocab)
    return ct_cross_entropy_with(
        (ct_cross_entropy_args){.logits = logits, .targets = targets, .here = here});
}

ct_tensor ct_lm_seq2seq_logits_at(const ct_lm *lm, ct_tensor encoder_ids, ct_tensor decoder_ids,
                                  ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!lm_tokens_check(lm, encoder_ids, ctx, "lm_seq2seq_logits", here) ||
        !lm_tokens_check(lm, decoder_ids, ctx, "lm_seq2seq_logits", here))
        return ct__poison(ctx, here);
    if (!lm->reader)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "lm_seq2seq_logits",
                        "%s is no encoder-decoder model", lm->spec.type);
    ct_lm_pass pass;
    ct_tensor memory =
        lm_hidden_rows(lm->reader, encoder_ids, CT_NONE, &pass, CT_NONE, mode, CT_NONE, here);
    ct_tensor rows = lm_hidden_rows(lm, decoder_ids, CT_NONE, &pass, CT_NONE, mode,
                                    lm_unflatten(memory, encoder_ids, here), here);
    return lm_unflatten(ct__stack_logits(&pass, rows), decoder_ids, here);
}

// -------------------------------------------------------------------------------------------- saving

static bool lm_save_variable(ct_store *store, const char *name, ct_tensor var, ct_err *err,
                             ct_loc here) {
    char buffer[CT_NN_MAX_PATH + 24];
    int64_t shape[CT_MAX_RANK];
    const int rank = ct_rank(var);
    const char *data = ct_data_at(var, here); // kept until the scope ends
    if (!data) return false;
    for (int a = 0; a < rank; a++) shape[a] = ct_dim(var, a);
    const bool stacked = strchr(name, '#') != NULL;
    const int64_t n = stacked ? shape[0] : 1;
    const ct_ints dims = stacked ? (ct_ints){rank - 1, shape + 1} : (ct_ints){rank, shape};
    const size_t bytes = (size_t)(ct_size(var) / (n ? n : 1)) * ct_dtype_size(ct_dtype_of(var));
    for (int64_t i = 0; i < n; i++)
        if (!ct__store_put(store, "", load_expert_name(name, i, buffer), ct_dtype_of(var), dims,
                           data + (size_t)i * bytes, err))
            return false;
    return true;
}

typedef struct save_zeros {
    ct_store *store;
    const void *zeros;
    ct_err *err;
} save_zeros;

// The largest number of elements of a bias.
static size_t lm_max_bias(const ct_spec *s) {
    const int64_t qkv = (s->heads + s->kv_heads) * s->head + s->kv_heads * s->value_head,
                  hidden = 2 * s->hidden;
    return (size_t)(qkv > hidden ? qkv : hidden) + (size_t)s->width;
}

static bool lm_save_zero_bias(const char *name, int64_t n, void *user) {
    const save_zeros *z = user;
    return ct__store_put(z->store, "", name, CT_F32, CT_DIMS(n), z->zeros, z->err);
}

// Trained weights are f32, whatever they were before.
static void lm_save_set_dtype(const ct_lm *lm, json_t *config) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 2 && lm->trainable; i++)
        if (json_object_get(config, keys[i]))
            json_object_set_new(config, keys[i], json_string("float32"));
}

static bool lm_save_config(const ct_lm *lm, const char *path, ct__lm_config_more add_keys,
                           void *user, ct_err *err) {
    ct_config out;
    ct_text text = {0};
    ct__json_tree(&text, lm->config.root);
    json_error_t fault;
    bool ok = !text.failed && ct__config_new(path, &out, err);
    if (ok) {
        json_decref(out.root);
        out.root = ct__json_read(text.s, text.n, 0, &fault);
        if (out.root) { // these keys belong to the run that trained the weights
            json_object_del(out.root, "training");
            json_object_del(out.root, "crc32c");
            lm_save_set_dtype(lm, out.root);
        }
        ok = (out.root || ct__err_memory(err, CT_NOWHERE, path, text.n)) &&
             (!add_keys || add_keys(&out, user, err)) && ct__config_write(&out, err);
        ct__config_close(&out);
    } else if (text.failed) {
        ct__err_memory(err, CT_NOWHERE, path, text.n);
    }
    ct__text_free(&text);
    return ok;
}

bool ct__lm_save(const ct_lm *lm, const char *dir, ct__lm_config_more add_keys, void *user,
                 ct_loc here) {
    CT_SCOPE; // the values that are read live as long as it
    CT_TEXT weights = {0}, config = {0};
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
        ok = lm_save_variable(&store, ct_params_name(lm->params, i), ct_params_get(lm->params, i),
                              err, here);
    void *zeros = lm->spec.bias ? NULL : ct__calloc(lm_max_bias(&lm->spec), sizeof(float));
    if (ok && !lm->spec.bias)
        ok = zeros ? ct__stack_zero_biases(lm, lm_save_zero_bias, &(save_zeros){&store, zeros, err})
                   : ct__err_memory(err, here, "lm_save", lm_max_bias(&lm->spec) * sizeof(float));
    ok = ok && lm_save_config(lm, config.s, add_keys, user, err) &&
         (add_keys ? ct__st_write_checked(weights.s, store.out, store.n, about, 2, err)
                   : ct__st_write(weights.s, store.out, store.n, about, 1, err));
    ct__store_free(&store);
    ct__free(zeros);
    return ok;
}

bool ct_lm_save_at(const ct_lm *lm, const char *dir, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, lm, here, "lm_save", "the model") ||
        !ct__given(ctx, dir, here, "lm_save", "the folder") || ctx->err.code)
        return false;
    if (lm->files && lm->files->gguf.version)
        return ct__refuse(ctx, CT_E_ARGUMENT, here, "lm_save",
                          "the model came from a GGUF file, of which no folder is made");
    return ct__lm_save(lm, dir, NULL, NULL, here) || ct__err_locate(&ctx->err, here, "lm_save");
}
