// The internals of a language model: its weights by layer and role, its caches, and the functions that
// record a forward pass.
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
    // Scales and offsets of a quantised weight, whose layout says how many values share one; CT_NONE: the
    // weight is not quantised, or has no offsets.
    ct_tensor scales, offsets;
    ct_layout layout;
    // of a stack of several quantised matrices, the index of this one: () i32, or CT_NONE
    ct_tensor matrix_index;
    // Products and lookups take exactly the values that the quantised weight represents: scales and offsets
    // are wide enough for that, and quantised values with offsets are unsigned.
    bool exact;
    // ggml's blocks of the layout, read from the file: u8 (..., out, bytes of a row)
    bool is_blocks;
} ct_weight_pair;

// A quantised weight: its first variable, the number of variables that belong to it, and the sizes of the
// matrix that it represents.
typedef struct ct_codes {
    ct_weight_pair w;
    size_t first_variable, n_variables;
    int64_t rank, dims[3]; // (out, in), or (experts, out, in)
} ct_codes;

// What a weight is used for: as f32 values; possibly quantised; or quantised in the interleaved layout of
// products.
typedef enum ct_lm_use { CT_LM_NUMBERS, CT_LM_CODES, CT_LM_PRODUCTS } ct_lm_use;

struct ct_lm {
    ct_spec spec;
    ct_arena arena; // owns what the spec points to
    ct_params *params;
    ct_weight_pair model_weights[CT_NAME_WHOLE];
    ct_weight_pair (*layer)[CT_NAMES_ALL]; // (layers); those below CT_NAME_WHOLE are unused
    ct_config config;                      // as it was read
    struct ct_weights *files;              // mapped
    bool *weight_is_used; // (n weights of files) true: the weight has a place in the model
    // (n_borrowed) of each variable: the file memory that it borrows, or NULL
    ct_storage **borrowed;
    size_t n_borrowed;
    ct_codes *quant; // (n_quant) in the order of their variables
    size_t n_quant, quant_cap;
    // the encoder, whose variables include this model's embeddings; NULL: none
    struct ct_lm *reader;
    bool trainable;
    bool in_place;      // blocks are read in place from the file
    bool exact;         // products of quantised weights take f32 activations
    bool has_no_output; // the file says that it has no output layer
    int64_t labels;     // classes of a sequence classifier; 0: the model is not one
    bool is_new;        // a new model: variables get first values, and there are no files
    uint64_t seed;
    ct_nn_init next_init; // of the next variable to be made
    ct_text
        // problems with weights found during loading, as text: the first n_listed of n_problems
        problems;
    size_t n_problems, n_listed;
};

// Keys and values in pages of CT_LM_PAGE tokens that may be anywhere in a pool. The pools are variables of
// each layer (slots, heads of keys, head). With latent attention the keys hold the values, too.
enum { CT_LM_PAGE = 16 };
typedef struct ct_lm_cache {
    ct_params *params;
    ct_weight_pair *layer; // (layers): keys as weight, values as bias
    // (layers) with a CT_I8 cache: the scales of each slot's heads (slots, heads, 1)
    ct_weight_pair *scales;
    int64_t layers, pages;
} ct_lm_cache;

// Sequences of the same length within a pass. The rows of all tensors are ordered by sequence.
typedef struct ct_lm_segment {
    int64_t batch, time;    // as sizes: dynamic ones are marked
    ct_tensor row_template; // (B * T, ...): any tensor with that many rows
    ct_tensor position;     // (B, 1) i32: position of each sequence's first token, or CT_NONE: 0
    ct_tensor table;        // (B, P) i32: pages of each sequence; with a cache
    ct_tensor lengths;      // (B, 1) i32: valid tokens of each sequence, or CT_NONE: all
    ct_tensor state;        // (B) i32: each sequence's slot in the pool of states; with a cache
} ct_lm_segment;

// Makes the pools: `pages` pages of keys and values as f32, f16, bf16, or as CT_I8 with a scale per head;
// or, of a recurrent model, the states of `sequences` sequences. Returns NULL with the context's error set.
ct_lm_cache *ct__lm_cache_new(const ct_lm *lm, int64_t pages, int64_t sequences, ct_dtype dtype,
                              ct_loc here);
void ct__lm_cache_free(ct_lm_cache *cache);
uint64_t ct__lm_cache_page_bytes(const ct_lm *lm, ct_dtype dtype); // of keys and values
// Copies the keys and values of page `from` to page `to`; from -1: fills it with NaN.
void ct__lm_cache_copy(ct_lm_cache *cache, int32_t from, int32_t to, ct_loc here);
// Reorders the n sequences of the cache of a recurrent model: each gets the state of the sequence `from`.
void ct__lm_cache_pick(ct_lm_cache *cache, const int32_t *from, int64_t n, ct_loc here);

// The inputs of sequences that advance by T tokens each: tokens (B, T) i32, the position of the first of
// them (B, 1) i32, and the pages of each sequence (B, P) i32, in the order of its tokens; of a recurrent
// model the state slot of each (B) i32; of a decoder with an encoder, in the first part, the encoder's
// output (B, S, width).
typedef struct ct_lm_part {
    ct_tensor tokens, position, table, state, memory;
    bool every; // true: logits after each token; false: after the last token of each sequence
} ct_lm_part;
// Records a pass that writes keys and values to the cache, and returns the logits after the last token of
// each sequence, or after every token, part after part. `max_length` is the maximum length of a sequence.
ct_tensor ct__lm_step(const ct_lm *lm, ct_lm_cache *cache, const ct_lm_part *parts, int n,
                      int64_t max_length, ct_loc here);

// Makes a cache for ct__lm_decode: of `batch` sequences of at most `capacity` tokens, which are zero at first.
ct_lm_cache *ct__lm_decode_cache(const ct_lm *lm, int64_t batch, int64_t capacity, ct_loc here);
// Does the same as ct__lm_step for sequences of equal lengths: tokens (B, T), the first of which have index
// `position` (an integer scalar) -> (B, vocab), the logits after the last token. One call for all tokens and one call per token give the same bits.
ct_tensor ct__lm_decode(const ct_lm *lm, ct_lm_cache *cache, ct_tensor tokens, ct_tensor position,
                        int64_t max_length, ct_loc here);

struct ct_lm_pass;
// Records a pass over whole sequences, tokens (B, T) -> (B * T, width) after the last norm. lengths (B, 1)
// i32 are the valid tokens of each sequence, or CT_NONE: all; a causal model needs no lengths for padding
// at the end. token_types (B, T) i32 may be CT_NONE: all 0.
ct_tensor ct__lm_rows(const ct_lm *lm, ct_tensor tokens, ct_tensor lengths, ct_tensor token_types,
                      struct ct_lm_pass *pass, ct_loc here);

// One pass over N tokens: prefill chunks, and beside them sequences that decode one token each, so that
// every weight is read once for both.
typedef struct ct_lm_pass {
    const ct_lm *lm;
    ct_lm_segment segment[2];
    int segments;
    ct_tensor positions;   // (N) i32
    ct_tensor token_types; // (N) i32 token types, where the model has them; CT_NONE: all 0
    ct_lm_cache *cache;    // NULL: all keys and values are in the pass
    // (N) i32: the slot of the pool that each token's keys and values are written to; with a cache
    ct_tensor slots;
    ct_tensor memory;   // (B, S, width): the encoder's output, which the first segment attends to
    int64_t max_length; // the maximum length of a sequence, for what depends on it
    ct_rope_tables cos_sin[2]; // of full and of sliding layers
    ct_nn_mode *mode;
    ct_loc here;
} ct_lm_pass;

// Returns the weight of the model's files with this name or an equivalent one; NULL: there is none.
const struct ct_weight *ct__lm_weight(const ct_lm *lm, const char *name);
// Makes the variables, without values.
bool ct__stack_make(ct_lm *lm, ct_loc here);
// Makes the variable `name` in the dtype of the file's weight; blocks that have a quantised product become
// quantised values and scales. Returns false if there is a problem with the weight, which is added to
// lm->problems. A # in the name is replaced by an expert's number, and the variable gets a leading axis of
// experts.
bool ct__lm_variable(ct_lm *lm, const char *name, ct_ints dims, ct_lm_use use, ct_weight_pair *w,
                     ct_loc here);
// tokens (N) -> (N, width), after the last norm
ct_tensor ct__stack_hidden(ct_lm_pass *pass, ct_tensor tokens);
// (M, width) -> (M, vocab)
ct_tensor ct__stack_logits(const ct_lm_pass *pass, ct_tensor hidden);

// (M, width), a row per sequence -> (M, labels)
ct_tensor ct__stack_scores(const ct_lm_pass *pass, ct_tensor x);

// For the files of the layers. x (..., in) -> (..., out); a missing weight returns x.
ct_tensor ct__stack_linear(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x);
ct_tensor ct__stack_norm(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x);
ct_tensor ct__stack_activate(const ct_lm_pass *pass, ct_tensor x);
// Returns x (..., in) times a weight (out, in), or (in, out) if in_out.
ct_tensor ct__stack_product(ct_tensor x, const ct_weight_pair *w, bool in_out, ct_loc here);
// Returns a weight's values as f32, dequantised if need be.
ct_tensor ct__stack_matrix(const ct_weight_pair *w, ct_loc here);
ct_tensor ct__stack_numbers(ct_tensor weight, ct_loc here);
// Returns rows of a table (rows, width) by index: (..., width)
ct_tensor ct__stack_lookup(const ct_weight_pair *w, ct_tensor indices, ct_loc here);
ct_tensor ct__stack_cut(ct_tensor x, int64_t from, int64_t to, ct_loc here); // slices the last axis
// x (..., n * m) -> (..., n, m)
ct_tensor ct__stack_split(ct_tensor x, int64_t n, int64_t m, ct_loc here);

// Returns one segment's rows of x (N, ...).
ct_tensor ct__stack_rows(const ct_lm_pass *pass, int segment, ct_tensor x);

// x (N, width) -> (N, width)
ct_tensor ct__stack_attention(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_cross(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_mlp(const ct_lm_pass *pass, int64_t layer, ct_tensor x);
// Layers of recurrent models; of RWKV the whole layer.
ct_tensor ct__stack_mamba(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_rwkv(ct_lm_pass *pass, int64_t layer, ct_tensor x);
ct_tensor ct__stack_experts(const ct_lm_pass *pass, int64_t layer, ct_tensor x);

// The sizes of a new model of an architecture.
typedef struct ct_lm_sizes {
    const char *op; // for errors
    const char *arch;
    int64_t vocab, context, layers, heads, width;
    int64_t kv_heads, hidden; // 0: the architecture's default
    int64_t begin, end;       // tokens before and after a document; -1: none
    bool no_bias;             // of an architecture whose config has a key for it
    double dropout;           // stored in the config of an architecture that has keys for it
} ct_lm_sizes;
// Makes its spec in the caller's arena, and its config in `root`. Returns false with the error set.
bool ct__lm_spec_of(const ct_lm_sizes *sizes, ct_arena *arena, ct_spec *spec, struct json_t **root,
                    ct_err *err);
// Makes the model, initialised as published models are. Returns NULL with the context's error set.
ct_lm *ct__lm_new(const ct_lm_sizes *sizes, uint64_t seed, ct_loc here);
// The initialisation of a new model's variables: the distribution of a weight, and the values of weights
// that are not random.
ct_nn_init ct__lm_begins(const ct_spec *s, int name);
void ct__lm_begin(const ct_lm *lm, int64_t layer, int name, const ct_weight_pair *w, ct_loc here);
// number of elements of all variables; INT64_MAX if larger
int64_t ct__stack_size(const ct_spec *s);
// Calls `put` with the name and the size of each bias that files of a model without biases have, as zeros.
bool ct__stack_zero_biases(const ct_lm *lm, bool (*put)(const char *name, int64_t n, void *user),
                           void *user);

typedef bool (*ct__lm_config_more)(struct ct_config *config, void *user, ct_err *err);
// ct_lm_save with further keys in config.json, and checksums; more NULL: without either.
bool ct__lm_save(const ct_lm *lm, const char *dir, ct__lm_config_more add_keys, void *user,
                 ct_loc here);

#endif
