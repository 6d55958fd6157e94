// Language models: training on text files, generation, and inspection of saved files. It is what
// the program `cotan` does, as a library.
#ifndef COTAN_LM_H
#define COTAN_LM_H

#include "cotan/nn.h"
#include "cotan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

// Receives text as it is produced; returns false if it failed, which ends the work with an error.
typedef bool (*ct_write_fn)(const char *text, size_t n, void *user);

// ---------------------------------------------------------------------------------------- training

typedef enum {
    CT_LM_MODEL, // text: a sentence about the model; before the first step
    CT_LM_STEP,  // state: after a step
    // text: a sample of the model's output; state.done: the number of steps that its weights had.
    // Before the STEP of an evaluation, except for weights that no step has trained.
    CT_LM_SAMPLE,
    CT_LM_DONE,   // text: a sentence with the held-out loss; all is saved
    CT_LM_MEMORY, // text: a sentence with the memory that was used and planned; before DONE
    // text: "resuming at step S", where S steps are done, or a sentence that all are done.
    CT_LM_RESUME,
    CT_LM_EARLY_STOP, // text: a sentence that patience ended the run; before MEMORY
    CT_LM_BEST, // text: the directory of the weights with the lowest held-out loss; before DONE
    // text: the directory of a new run, which was created; before the first step or, if it replaces
    // existing files, at the first save.
    CT_LM_OUTPUT_DIR,
    CT_LM_TOKENIZING, // text: the progress of tokenization, several times a second; before MODEL
} ct_lm_event_kind;
typedef struct ct_lm_event {
    ct_lm_event_kind kind;
    const char *text;
    size_t text_n; // its bytes: a sample may contain zero bytes
    ct_fit_state state;
} ct_lm_event;

// With `resume`: options that were given although 0 is a value of their own.
enum { CT_LM_GIVEN_CHARS = 1, CT_LM_GIVEN_DROPOUT = 2, CT_LM_GIVEN_SEED = 4 };

// 0 and NULL mean the default.
typedef struct ct_lm_train_options {
    const char *const *data; // files, directories and globs
    size_t n_data;
    // Output directory, created if it does not exist; default "run", or the first of run-2, run-3
    // ... that does not exist.
    const char *out;
    // Files in `out` that a run writes, or wrote, are replaced at the first save; otherwise they
    // are an error.
    bool overwrite;
    bool chars; // a token is a character instead of a byte
    // Tokenizer: "bytes"; "chars"; "bpe:N", a byte-level BPE with N tokens that is trained on the
    // text and saved with the model; or a directory or tokenizer.json. Default: bytes, or chars if
    // `chars` is set; with `from` the model's own tokenizer.
    const char *tokenizer;
    // Architecture of a new model, as its model_type ("llama"); default: GPT-2.
    const char *arch;
    // Fine-tunes the model in a directory, as ct_lm_load takes it, with its tokenizer.
    const char *from;
    // For `arch`: number of key-value heads, and hidden size of the MLP; default: `heads`, and the
    // usual size of the architecture.
    int64_t kv_heads, intermediate_size;
    int64_t layers, heads, width; // default: what this machine trains in a few minutes
    int64_t context, batch;       // likewise
    int64_t accumulate;           // micro-batches per step, with the memory of one; default 1
    int64_t steps;                // default 2000
    double lr;                    // default 1e-3; 6e-4 for width 512 and above; 5e-5 with `from`
    ct_num min_lr, warmup;        // default lr / 10; a tenth of the steps, at most 100
    ct_num beta1, beta2, weight_decay, clip; // default 0.9, 0.99, 0.1, 1; clip 0: none
    double dropout;
    bool no_bias; // no biases in linear layers and norms
    // CT_F32 (default); CT_BF16 or CT_F16: the model computes with autocast (CT_AUTOCAST), and
    // weights and optimizer state stay f32. CT_F16 also uses loss scaling (ct_loss_scale).
    ct_dtype precision;
    int64_t eval_every; // default: a tenth of the steps
    // Number of batches of held-out text, each as large as a step's `accumulate` micro-batches; 0:
    // all of it; default 50.
    ct_num eval_batches;
    // Number of evaluations in a row without a better loss that end the run successfully; the
    // weights with the lowest loss are saved in best/. 0 (default): never.
    ct_num patience;
    ct_num min_delta;   // minimum improvement of the loss that resets patience; default 0
    int64_t save_every; // default eval_every
    uint64_t seed;
    // Directory of a run to resume, instead of data and out. All other options are those of the
    // run, and a different value is an error, except for more steps, patience and min_delta.
    const char *resume;
    // Resumes at the checkpoint of this step instead of the latest; later checkpoints are removed.
    ct_num resume_step;
    unsigned given; // CT_LM_GIVEN_...
    void (*on_event)(const ct_lm_event *event, void *user);
    // Returning true ends the current batch, saves, and gives the error CT_E_INTERRUPTED.
    ct_stop_fn should_stop;
    void *user;
} ct_lm_train_options;

// Trains a language model on the first 90 % of the text; the rest is for validation, in windows
// that do not overlap. Writes model.safetensors, state.safetensors, config.json, metrics.jsonl,
// loss.svg and an event file for TensorBoard, and keeps the latest two saves in checkpoints/step-N.
// Equal options give equal weights, bit for bit, with any number of threads, and however often the
// run was killed and resumed. Errors with code CT_E_USAGE are reported before anything is written.
// The memory of the run is computed before it begins. If it exceeds ct_set_memory_limit, which
// counts the whole process, or the memory that is available, gradients first rematerialise as many
// of the model's blocks as needed, which gives equal weights, too; if that is not enough, the error
// is CT_E_LIMIT, before the first step. A resumed run with more steps has, from there on, the
// learning rate that a run with that number of steps has at the same step.
CT_API CT_MUST_USE bool ct_lm_train(const ct_lm_train_options *options);

// Peak memory of a run in bytes, computed before anything runs.
typedef struct ct_lm_cost {
    // Memory of the process: process + code + save_buffers + batches + loss_history + further
    // memory of the devices.
    uint64_t total;
    uint64_t process;      // used before the run: the program and the text
    uint64_t code;         // compiled kernels
    uint64_t save_buffers; // on the host while weights or optimizer state are saved
    uint64_t batches;      // on the host: tokens of a batch and their targets
    uint64_t loss_history; // on the host: losses of all steps, up to 16,384 points, and their plot
    uint64_t devices;      // peak of values, arenas, constants and workspaces
    uint64_t weights, optimizer_state, arenas, constants, workspaces; // parts of devices
    // Accumulated gradients of the micro-batches of a step; 0: one micro-batch per step.
    uint64_t grad_accumulators;
    // For ct_lm_plan: the memory that ct_lm_train would have now, which is the limit, or else the
    // current memory plus the available memory. If it is less than `total`, ct_lm_train refuses.
    // UINT64_MAX: unknown.
    uint64_t capacity;
    bool capacity_is_limit; // `capacity` is the limit of ct_set_memory_limit
    // Blocks of the model; those that the gradients of a step rematerialise, because the run would
    // not fit otherwise.
    size_t blocks, recomputed_blocks;
} ct_lm_cost;
// Receives the plans of a run in order: "initial weights", "initial optimizer state",
// "evaluation", "sample", "step". If a step has several micro-batches, there are also "initial
// accumulators" before the evaluation and "micro-batch" before "step", which is the last
// micro-batch and the update.
typedef void (*ct_lm_plan_fn)(const char *name, const ct_plan_cost *cost, void *user);

// A dry run of ct_lm_train: makes its plans and runs none; nothing is compiled, allocated or
// written. It reports the event MODEL; on_plan may be NULL. Sizes that are not given are chosen
// from processor, threads, memory and length of the text. A matrix product is timed to estimate the
// duration that is reported, not to choose sizes.
CT_API CT_MUST_USE bool ct_lm_plan(const ct_lm_train_options *options, ct_lm_plan_fn on_plan,
                                   void *user, ct_lm_cost *cost);

// ---------------------------------------------------------------------------------------- sampling

// 0 and NULL mean the default.
typedef struct ct_lm_sample_options {
    const char *dir;     // a directory that ct_lm_train wrote
    const char *prompt;  // UTF-8; default: a newline, which is not output
    int64_t max_tokens;  // number of tokens to generate, default 500
    ct_num temperature;  // default 0.8; 0: greedy
    int64_t top_k;       // samples from the k most likely tokens, default 40
    uint64_t seed;       // of the random numbers
    ct_write_fn on_text; // receives the prompt, then whole characters as they are generated
    ct_stop_fn should_stop;
    void *user;
} ct_lm_sample_options;

// Generates text with a KV cache. When the context is full, its latest half is kept.
CT_API CT_MUST_USE bool ct_lm_sample(const ct_lm_sample_options *options);

// ------------------------------------------------------------------------------------------ models

// A language model of any architecture that the library supports, loaded from its published files:
// a directory with config.json and safetensors files.
typedef struct ct_lm ct_lm;

// Loads a model. No option is required. The weights stay as they are in the file (f16, bf16): they
// are mapped, not copied, and computed with in f32. With `trainable` they are f32 variables of
// their own, which ct_lm_params lists. Blocks of GGUF files are repacked into groups of rows for
// fast matrix products, and the pages of the file are released. If the groups would take more than
// three quarters of the memory, or with `no_repack`, the blocks are read from the mapped file,
// about ten times slower than memory, so that a model may be larger than that. Errors (NULL): an
// unknown architecture, with the nearest known one; all weights that are missing or have another
// shape; a model that is too large and has blocks that cannot be read from the mapped file (other
// than Q4_0, Q8_0, Q4_K, Q5_K and Q6_K).
typedef struct ct_lm_load_options {
    bool trainable;
    bool no_repack;
    // Dtype of activations in products with quantised weights. CT_I8 (default): quantised to 8 bits
    // with one scale per 32 elements, so that products are of integers. CT_F32: not quantised; a
    // product has the bits of one with the dequantised f32 weights, as with `trainable`. It affects
    // nothing else.
    ct_dtype activations;
    ct_loc here;
} ct_lm_load_options;
CT_API ct_lm *ct_lm_load_with(const char *path, ct_lm_load_options options);
#define ct_lm_load(...) CT__LM_LOAD(__VA_ARGS__, .here = CT_HERE)
#define CT__LM_LOAD(path, ...) ct_lm_load_with((path), (ct_lm_load_options){__VA_ARGS__})
// The sizes of a new model. 0 and NULL mean the default, where there is one.
typedef struct ct_lm_config {
    const char *arch; // model_type: "llama"; default "gpt2"
    int64_t vocab, context, layers, heads, width;
    int64_t kv_heads, intermediate_size; // default: `heads`, and the usual size of the architecture
    bool no_bias;   // GPT-2 without biases in linear layers and norms; its files have zeros there
    double dropout; // of GPT-2: what its config.json says; ct_nn_mode has what is used
} ct_lm_config;
// Makes a model with new weights, as ct_lm_train does. Of GPT-2 they are normal with standard
// deviation 0.02, and 0.02 / sqrt(2 * layers) for projections into the residual stream; biases are
// 0 and norms 1. They depend on the seed and their names. NULL: see ct_error_text.
//     ct_lm_config small = {.vocab = 256, .context = 64, .layers = 2, .heads = 2, .width = 32};
//     ct_lm *model = ct_lm_new(&small, 1);
CT_API ct_lm *ct_lm_new_at(const ct_lm_config *config, uint64_t seed, ct_loc here);
#define ct_lm_new(config, seed) ct_lm_new_at((config), (seed), CT_HERE)
// Registers an architecture for the rest of the process: a row as in src/models/architectures.c,
// "my_llama: like=llama norm=layer norm_bias=1", with spaces or newlines between settings. Models
// whose config.json has this model_type are loaded with it, and ct_lm_train accepts it as `arch`. A
// row overrides one of the library with the same name. False: see ct_error_text, which names an
// unknown setting and the nearest one, or one that the others need or exclude.
//     if (!ct_lm_add_architecture("my_llama: like=llama act=relu2 mlp=ungated")) return 1;
CT_API CT_MUST_USE bool ct_lm_add_architecture_at(const char *row, ct_loc here);
#define ct_lm_add_architecture(row) ct_lm_add_architecture_at((row), CT_HERE)
CT_API void ct_lm_free(ct_lm *lm);         // NULL is ignored
CT_API ct_params *ct_lm_params(ct_lm *lm); // NULL for NULL
// Properties of a model, from its config.
typedef struct ct_lm_properties {
    const char *type; // model_type: "llama"
    int64_t context;  // maximum number of tokens of a sequence; 0: no limit
    // Default context of an engine: at most 8192 and, if the model scales its rotary embedding only
    // for long sequences (longrope, dynamic), at most the length up to which it does not.
    int64_t default_context;
    int64_t vocab, width, layers; // size of the vocabulary; size of a hidden state
    bool is_generative;           // generates text; false: an encoder, or an encoder-decoder
    bool is_encoder_decoder;      // is an encoder-decoder (t5, bart)
    bool has_lm_head;             // has logits; false: its files have no output layer (BertModel)
    // Number of classes for ct_lm_classify (cotan/embed.h); 0: it is not a classifier.
    int64_t labels;
    int64_t parameters; // number of parameters in its files
    // Dtype in which most of them are stored: "F32", "BF16", "Q4_K" ...; "": not from a file.
    const char *weight_format;
    // Dtype of activations in products with its weights: CT_I8 if some are quantised and ct_lm_load
    // did not get CT_F32.
    ct_dtype activations;
} ct_lm_properties;
CT_API ct_lm_properties ct_lm_info(const ct_lm *lm); // all zero for NULL
// Writes config.json and model.safetensors into the directory, with the original names of the
// weights. Tokenizer, chat template and generation_config.json are not part of a ct_lm: with copies
// of them in the directory it is a complete model for ct_pretrained_load, cotan run and Hugging
// Face's library. (cotan train, and Python's save, add them.)
CT_API CT_MUST_USE bool ct_lm_save_at(const ct_lm *lm, const char *dir, ct_loc here);
#define ct_lm_save(lm, dir) ct_lm_save_at((lm), (dir), CT_HERE)

// tokens (B, T) i32 -> logits (B, T, vocab) f32: of the next token at each position; for an
// encoder, of the token at the position itself. mode NULL: evaluation.
CT_API ct_tensor ct_lm_logits_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here);
#define ct_lm_logits(lm, tokens, mode) ct_lm_logits_at((lm), (tokens), (mode), CT_HERE)
// targets (B, T) i32 -> the mean cross-entropy of the logits, a scalar in nats per token. If a
// gradient does not fit into the available memory (ct_set_memory_limit), it recomputes as few of
// the model's layers as needed, as if each were under ct_remat with CT_REMAT_AUTO.
CT_API ct_tensor ct_lm_loss_at(const ct_lm *lm, ct_tensor tokens, ct_tensor targets,
                               ct_nn_mode *mode, ct_loc here);
#define ct_lm_loss(lm, tokens, targets, mode)                                                      \
    ct_lm_loss_at((lm), (tokens), (targets), (mode), CT_HERE)
// The same for encoder-decoders (t5, bart): encoder_ids (B, S) i32, and decoder_ids (B, T) i32,
// which begin with the model's start token -> (B, T, vocab).
CT_API ct_tensor ct_lm_seq2seq_logits_at(const ct_lm *lm, ct_tensor encoder_ids,
                                         ct_tensor decoder_ids, ct_nn_mode *mode, ct_loc here);
#define ct_lm_seq2seq_logits(lm, encoder_ids, decoder_ids, mode)                                   \
    ct_lm_seq2seq_logits_at((lm), (encoder_ids), (decoder_ids), (mode), CT_HERE)
// Sampling options. 0 means the default: the unmodified distribution of the model. The options are
// applied in this order, which is that of Hugging Face's logits processors.
typedef struct ct_lm_logit_bias {
    int32_t token;
    float bias; // added to its logit
} ct_lm_logit_bias;
typedef struct ct_lm_tokens {
    const int32_t *v;
    size_t n;
} ct_lm_tokens;
typedef struct ct_lm_sampling {
    // Above 1: logits of tokens in the sequence are divided by it or, if negative, multiplied
    // (Keskar et al. 2019).
    ct_num repetition_penalty;
    // Subtracted from the logit of a generated token: for each occurrence, and once.
    double frequency_penalty, presence_penalty;
    const ct_lm_logit_bias *logit_bias; // (n_logit_bias)
    size_t n_logit_bias;
    const ct_lm_tokens *banned; // (n_banned) sequences that must not be generated
    size_t n_banned;
    // No n-gram of this size occurs twice in the sequence; 0: no limit.
    int64_t no_repeat_ngram_size;
    // EOS tokens in `eos_ids` are suppressed until the output has min_new_tokens tokens, and until
    // prompt and output together have min_length. For ct_lm_generate and ct_engine_add, which have
    // the list of EOS tokens.
    int64_t min_new_tokens, min_length;
    ct_num temperature; // default 1; CT_F(0): greedy
    int64_t top_k;      // keeps only the k most likely tokens
    ct_num top_p;       // keeps only the most likely tokens whose probabilities add up to this
    double min_p;       // keeps only tokens with at least this fraction of the highest probability
    ct_num typical_p;   // keeps only the most typical tokens whose probabilities add up to this
    uint64_t seed;      // of the random numbers
} ct_lm_sampling;
// Logits processors: modifies the logits (vocab) of the token after a sequence of n tokens, of
// which the first n_prompt are the prompt. Tokens that are excluded get -infinity. False: out of
// memory, or an argument is NULL. It uses no context.
CT_API bool ct_lm_process_logits(float *logits, int64_t vocab, const int32_t *ids, size_t n,
                                 size_t n_prompt, const ct_lm_sampling *sampling);

// Generates tokens after a prompt. It calls `on_token` with each token and its log-probability by
// the model. It ends when `on_token` returns false, at an EOS token in `eos_ids`, after
// `max_tokens` tokens (default 256), or when the context is full. Equal arguments give equal
// tokens. For an encoder-decoder (t5, bart) the prompt is the input of the encoder, and all tokens
// that are reported are output.
// `beams` of 2 or more is beam search with that many beams, and the best sequence is reported when
// it has ended: the one with the highest sum of log-probabilities divided by its length to the
// power of `length_penalty` (transformers' beam search without sampling; of .sampling, penalties,
// biases and bans apply).
// False: see ct_error_text.
//     if (!ct_lm_generate(.lm = lm, .prompt = ids, .n_prompt = n, .on_token = print)) return 1;
typedef struct ct_lm_generate_args {
    const ct_lm *lm;
    const int32_t *prompt; // (n_prompt)
    size_t n_prompt;
    int64_t max_tokens;
    const int32_t *eos_ids; // (n_eos_ids) EOS tokens; they are not reported
    size_t n_eos_ids;
    ct_lm_sampling sampling;
    int64_t beams;         // 1 to 64; default 1
    ct_num length_penalty; // default 1
    bool (*on_token)(int32_t token, double logprob, void *user);
    ct_stop_fn should_stop; // returning true ends it without an error
    void *user;
    ct_loc here;
} ct_lm_generate_args;
CT_API CT_MUST_USE bool ct_lm_generate_with(ct_lm_generate_args args);
#define ct_lm_generate(...) ct_lm_generate_with((ct_lm_generate_args){__VA_ARGS__, .here = CT_HERE})

// -> (B, T, width), after the final norm
CT_API ct_tensor ct_lm_hidden_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here);
#define ct_lm_hidden(lm, tokens, mode) ct_lm_hidden_at((lm), (tokens), (mode), CT_HERE)

// ----------------------------------------------------------------------------------- ahead of time

typedef enum ct_lm_function {
    // Tokens (batch, 1) and their position -> logits (batch, vocab). The KV cache of earlier tokens
    // consists of variables, zero at first, which each call updates.
    CT_LM_C_TOKEN,
    CT_LM_C_WINDOW, // tokens (batch, context) -> logits (batch, context, vocab)
    // Tokens and targets (batch, context), learning_rate, and with dropout a random key (2,) ->
    // loss, grad_norm; updates weights and optimizer state.
    CT_LM_C_STEP,
} ct_lm_function;
typedef struct ct_lm_compile_options {
    const char *dir;  // a directory that ct_lm_train wrote
    const char *path; // path of the files, as in ct_compile
    ct_lm_function function;
    int64_t batch, context; // 0: 1 and the model's context; for a step those of the run
    bool embed; // embeds the weights in the file instead of taking pointers; not for a step
} ct_lm_compile_options;

// Writes a function of a saved model as one C file and its header, as ct_compile does: it needs
// libm alone, with the library's bits. Nothing is run or compiled. A step is that of the run that
// trained the model: its betas, weight decay and clipping are the initial values of the scalars. If
// the steps of the run have several micro-batches, `batch` is required, since the function takes
// one batch. Errors with code CT_E_USAGE: an option that is out of range, a path that does not end
// in a C identifier.
CT_API CT_MUST_USE bool ct_lm_compile(const ct_lm_compile_options *options);

// -------------------------------------------------------------------------------------- inspection

// Describes the contents of `path` in lines: a safetensors, npy or npz file, GGUF, a PyTorch file
// (.bin, .pt, .pth), the directory of a published model, a config.json, a directory that
// ct_lm_train wrote, the saves in its subdirectory checkpoints, or text. Names from files are shown
// without control characters.
CT_API CT_MUST_USE bool ct_describe(const char *path, ct_write_fn write, void *user);

#ifdef __cplusplus
}
#endif

#endif
