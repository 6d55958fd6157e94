// A language model as its parts: the weights of its layers by what they do, and what a pass makes of them.
#ifndef COTAN_MODELS_STACK_H
#define COTAN_MODELS_STACK_H

#include "base/text.h"
#include "cotan/lm.h"
#include "graph/graph.h"
#include "io/config.h"
#include "models/rope.h"
#include "models/spec.h"

typedef struct ct_weight_pair {
    ct_tensor weight, bias; // CT_NONE: there is none
    // Of a weight of codes, of which the layout says more, its scales, and what is put to as many numbers as share one;
    // CT_NONE: of numbers, nothing.
    ct_tensor scales, offsets;
    ct_layout layout;
    ct_tensor which; // of codes that are several matrices, this one: () i32, or CT_NONE
    bool blocks; // ggml's, of the layout, where the file has them: u8 (..., out, bytes of a row)
} ct_weight_pair;

// A weight of codes: its first variable, those behind it that belong to it, and the sizes of what it stands for.
typedef struct ct_codes {
    ct_weight_pair w;
    size_t first, variables;
    int64_t rank, dim[3]; // (out, in), or (experts, out, in)
} ct_codes;

// What a weight is for: its numbers are read; codes may stand for them; those may lie in groups, for products.
typedef enum ct_lm_use { CT_LM_NUMBERS, CT_LM_CODES, CT_LM_PRODUCTS } ct_lm_use;

struct ct_lm {
    ct_spec spec;
    ct_arena arena; // what the spec points to
    ct_params *params;
    ct_weight_pair whole[CT_NAME_WHOLE];
    ct_weight_pair (*layer)[CT_NAMES_ALL]; // (layers); by name, those of the model whole unused
    ct_config config;                      // as it was read
    struct ct_weights *files;              // mapped
    bool *used;                            // of each of their weights: it has a place in the model
    ct_storage **lent; // (n_lent) of each variable: what it is lent of them, or NULL
    size_t n_lent;
    ct_codes *codes; // (n_codes) in the order of their variables
    size_t n_codes, codes_cap;
    struct ct_lm *
        reader; // the model of the encoder, among whose variables are this one's embeddings; NULL: none
    bool trainable;
    bool in_place;  // blocks are read where they lie
    bool headless;  // the file has no output layer, and says so
    int64_t labels; // of a model that tells classes of texts apart; 0: it writes, or makes vectors
    bool fresh;     // a new model: variables get first values, and there are no files
    uint64_t seed;
    ct_nn_init init; // of the variable that is made next
    ct_text
        problems; // with weights while they are looked for, in words: the first n_listed of them
    size_t n_problems, n_listed;
};

// Keys and values of what came before, in pages of so many tokens that lie anywhere in a pool: variables, of each
// layer (slots, heads of keys, head). Of latent attention keys hold the values, too.
enum { CT_LM_PAGE = 16 };
typedef struct ct_lm_cache {
    ct_params *params;
    ct_weight_pair *layer; // (layers): keys as weight, values as bias
    ct_weight_pair
        *scale; // (layers) where those are codes of 8 bits: of each slot's heads (slots, heads, 1)
    int64_t layers, pages;
} ct_lm_cache;

// Texts of one length within a pass: rows of all that is computed, text after text.
typedef struct ct_lm_segment {
    int64_t batch, time; // as sizes: dynamic ones marked
    ct_tensor rows;      // (B * T, ...): anything of that many rows
    ct_tensor position;  // (B, 1) i32: where each text's first token stands, or CT_NONE: at 0
    ct_tensor table;     // (B, P) i32: pages of each text; with a cache
    ct_tensor lengths;   // (B, 1) i32: tokens of each text that count, or CT_NONE: all
    ct_tensor state;     // (B) i32: where in the pool of states each text's is; with a cache
} ct_lm_segment;

// Room for so many pages of keys and values, kept as f32, f16 or bf16, or as codes of 8 bits (CT_I8) and a scale for each
// head; or of a model with states for those of so many texts. NULL: the error stands in the context.
ct_lm_cache *ct__lm_cache_new(const ct_lm *lm, int64_t pages, int64_t texts, ct_dtype dtype,
                              ct_loc here);
void ct__lm_cache_free(ct_lm_cache *cache);
uint64_t ct__lm_cache_page_bytes(const ct_lm *lm, ct_dtype dtype); // of keys and values
// A page's keys and values become those of another one, or, where that is -1, NaN.
void ct__lm_cache_copy(ct_lm_cache *cache, int32_t from, int32_t to, ct_loc here);
// Of a model with states, those of n texts at once: each becomes what the text `from` had.
void ct__lm_cache_pick(ct_lm_cache *cache, const int32_t *from, int64_t n, ct_loc here);

// Texts that go on by T tokens each: tokens (B, T) i32, where the first of them stands (B, 1) i32, and the pages of
// each text (B, P) i32, its first token in the first of them; or, of a model with states, the place of each text's
// (B) i32; of one that looks at other texts, what the encoder made of those (B, S, width), in the first part.
typedef struct ct_lm_part {
    ct_tensor tokens, position, table, state, memory;
    bool every; // what follows each of its tokens is asked for
} ct_lm_part;
// Their keys and values go into the cache -> logits behind the last token of each text, or every one, part after part. `longest`:
// tokens that a text of them may come to have.
ct_tensor ct__lm_step(const ct_lm *lm, ct_lm_cache *cache, const ct_lm_part *parts, int n,
                      int64_t longest, ct_loc here);

struct ct_lm_pass;
// A pass over whole texts, tokens (B, T) -> (B * T, width) behind the last norm. lengths (B, 1) i32: tokens of each
// text that count, or CT_NONE: all; of models that look back alone what stands behind a text needs none. kinds (B, T)
// i32, or CT_NONE: all are of the first.
ct_tensor ct__lm_rows(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths, ct_tensor kinds,
                      struct ct_lm_pass *pass, ct_loc here);

// One pass over N tokens: texts that are read, and beside them others of which one token each is added, so that
// every weight is read once for both.
typedef struct ct_lm_pass {
    const ct_lm *lm;
    ct_lm_segment segment[2];
    int segments;
    ct_tensor positions; // (N) i32
    ct_tensor kinds; // (N) i32 of tokens, where the model has some; CT_NONE: all are of the first
    ct_lm_cache *cache; // NULL: all that is seen is in the pass
    ct_tensor slots;    // (N) i32: where in the pool each token's keys and values go; with a cache
    ct_tensor
        memory; // (B, S, width): what the encoder made of other texts, which the first segment looks at
    int64_t longest;     // text of the pass, for what hangs on that
    ct_turned turned[2]; // of full and of sliding layers
    ct_nn_mode *mode;
    ct_loc here;
} ct_lm_pass;

// The weight of the model's files that has this name, or one that means the same; NULL: there is none.
const struct ct_weight *ct__lm_weight(const ct_lm *lm, const char *name);
// The variables, without values.
bool ct__stack_make(ct_lm *lm, ct_loc here);
// Makes the variable of that name, in the dtype of the file's weight or, of blocks for which there is a product of
// codes, as codes and scales. False: there is a problem with it, which the model lists. A # in the name is an expert's
// number, and the variable has an axis of experts in front.
bool ct__lm_variable(ct_lm *lm, const char *name, ct_ints dims, ct_lm_use use, ct_weight_pair *w,
                     ct_loc here);
// tokens (N) -> (N, width), behind the last norm
ct_tensor ct__stack_hidden(ct_lm_pass *pass, ct_tensor tokens);
// (M, width) -> (M, vocab)
ct_tensor ct__stack_logits(const ct_lm_pass *pass, ct_tensor hidden);

// (M, width) of texts -> (M, labels)
ct_tensor ct__stack_scores(const ct_lm_pass *pass, ct_tensor x);

// For the files of the layers. x (..., in) -> (..., out); a weight that is not there gives x.
ct_tensor ct__stack_linear(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x);
ct_tensor ct__stack_norm(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x);
ct_tensor ct__stack_activate(const ct_lm_pass *pass, ct_tensor x);
// A weight's numbers: f32, whatever it is stored as.
// x (..., in) times a weight (out, in), or where in_out is (in, out).
ct_tensor ct__stack_product(ct_tensor x, const ct_weight_pair *w, bool in_out, ct_loc here);
// A weight's numbers as f32, of codes what they stand for.
ct_tensor ct__stack_matrix(const ct_weight_pair *w, ct_loc here);
ct_tensor ct__stack_numbers(ct_tensor weight, ct_loc here);
// Rows of a table (rows, width) by their numbers: (..., width)
ct_tensor ct__stack_lookup(const ct_weight_pair *w, ct_tensor indices, ct_loc here);
ct_tensor ct__stack_cut(ct_tensor x, int64_t from, int64_t to, ct_loc here); // of the last axis
// x (..., n * m) -> (..., n, m)
ct_tensor ct__stack_split(ct_tensor x, int64_t n, int64_t m, ct_loc here);

// Rows of one segment, of all rows x (N, ...).
ct_tensor ct__stack_rows(const ct_lm_pass *pass, int segment, ct_tensor x);

// x (N, width) -> (N, width)
ct_tensor ct__stack_attention(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_cross(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_mlp(const ct_lm_pass *pass, int64_t layer, ct_tensor x);
// Of models that keep states; of RWKV the layer whole.
ct_tensor ct__stack_mamba(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_rwkv(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_experts(const ct_lm_pass *pass, int64_t layer, ct_tensor x);

// A new model of an architecture.
typedef struct ct_lm_sizes {
    const char *arch;
    int64_t vocab, context, layers, heads, width;
    int64_t kv_heads, hidden; // 0: what the architecture usually has
    int64_t begin, end;       // tokens in front of a text and behind it; -1: none
} ct_lm_sizes;
// Its spec, whose arena is the caller's; `root` gets the config. False: the error is told.
bool ct__lm_spec_of(const ct_lm_sizes *sizes, ct_arena *arena, ct_spec *spec, struct json_t **root,
                    ct_err *err);
// With first values as published models begin. NULL: the error stands in the context.
ct_lm *ct__lm_new(const ct_lm_sizes *sizes, uint64_t seed, ct_loc here);
// For the variables of a new model: how a weight begins, and what does not begin by chance.
ct_nn_init ct__lm_begins(const ct_spec *s, int name);
void ct__lm_begin(const ct_lm *lm, int64_t layer, int name, const ct_weight_pair *w, ct_loc here);
int64_t ct__stack_size(const ct_spec *s); // elements of all variables; INT64_MAX where more

typedef bool (*ct__lm_config_more)(struct ct_config *config, void *user, ct_err *err);
// ct_lm_save with more in config.json, and checksums; more NULL: without either.
bool ct__lm_save(const ct_lm *lm, const char *dir, ct__lm_config_more more, void *user,
                 ct_loc here);

#endif
