// Language models from text to text: train one on files, let one write, look into what was saved.
// What the program `cotan` does, for programs.
#ifndef COTAN_LM_H
#define COTAN_LM_H

#include "cotan/nn.h"
#include "cotan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

// Takes text as it comes; false: it cannot, and the work ends with an error.
typedef bool (*ct_write_fn)(const char *text, size_t n, void *user);

// ---------------------------------------------------------------------------------------- training

typedef enum {
    CT_LM_MODEL,  // text: the model, in a sentence; before the first step
    CT_LM_STEP,   // point
    CT_LM_SAMPLE, // text: what the model writes now, and of the point `done`, its steps; before the
                  // STEP of an evaluation, but for one of weights that no step has trained
    CT_LM_DONE,   // text: the held-out loss, in a sentence; all is saved
    CT_LM_MEMORY, // text: the memory that was used and planned, in a sentence; before DONE
    CT_LM_RESUME, // text: "resuming at step S"; S steps are done, or that all are, in a sentence
    CT_LM_ENDED,  // text: that the patience ended the run, in a sentence; before MEMORY
    CT_LM_BEST,   // text: the folder of the weights with the lowest held-out loss; before DONE
    CT_LM_FOLDER, // text: the folder of a new run, which is made; before the first step, or at the
                  // first save, where it replaces what is there
    CT_LM_TEXT,   // text: how far the text has become tokens, some times a second; before MODEL
} ct_lm_event_kind;
typedef struct ct_lm_event {
    ct_lm_event_kind kind;
    const char *text;
    size_t text_n; // its bytes: a sample may hold zero bytes
    ct_fit_point point;
} ct_lm_event;

// With `resume`, options of which 0 means something that were given all the same.
enum { CT_LM_GIVEN_CHARS = 1, CT_LM_GIVEN_DROPOUT = 2, CT_LM_GIVEN_SEED = 4 };

// 0 and NULL mean the default.
typedef struct ct_lm_train_options {
    const char *const *data; // files, folders and globs
    size_t n_data;
    const char *out; // the folder to write; made where it is missing; default "run", or the first
                     // of run-2, run-3 ... where that is there
    bool overwrite;  // files in `out` that a run writes, or one wrote, are replaced at the first
                     // save; without it, they are an error
    bool chars;      // a token a character instead of a byte
    // What a token is: "bytes", "chars"; "bpe:N", a byte-level BPE of N tokens that is learnt from the text and
    // written beside the model; or a tokenizer, a folder or tokenizer.json. Default: bytes, or as `chars` says; with
    // `from` the model's own.
    const char *tokens;
    // A new model of this architecture, by its model_type ("llama"); default: GPT-2.
    const char *arch;
    // Goes on from the weights of a model's folder, as ct_lm_load takes it, with its tokenizer.
    const char *from;
    // Of `arch`: heads of keys and values, and numbers within the MLP; default: as many as heads, and what the
    // architecture usually has.
    int64_t kv_heads, hidden;
    int64_t layers, heads, width; // default: what this machine trains in some minutes
    int64_t context, batch;       // likewise
    int64_t accumulate;           // batches a step, with the memory of one; default 1
    int64_t steps;                // default 2000
    double lr;                    // default 1e-3; 6e-4 from width 512 on; 5e-5 with `from`
    ct_num min_lr, warmup;        // default lr / 10; a tenth of the steps, at most 100
    ct_num beta1, beta2, weight_decay, clip; // default 0.9, 0.99, 0.1, 1; clip 0: none
    double dropout;
    bool no_bias;        // linear layers and norms without a bias
    ct_dtype precision;  // CT_F32, the default; CT_BF16 or CT_F16: the model computes by autocast
                         // (CT_AUTOCAST), and weights and the optimizer's state stay f32; with
                         // CT_F16 the loss is scaled (ct_loss_scale)
    int64_t eval_every;  // default a tenth of the steps
    ct_num eval_batches; // of the held-out text, each as large as a step's `accumulate` batches; 0:
                         // all of it; default 50
    ct_num patience;     // evaluations in a row without a better loss that end the run, well; the
                         // weights with the lowest loss are kept in best/; 0, the default: never
    ct_num min_delta;    // a loss that begins the count anew is lower by more; default 0
    int64_t save_every;  // default eval_every
    uint64_t seed;
    const char *resume; // a folder to go on in, instead of data and out; all other options are its
                        // run's, and one that says otherwise is an error, but for more steps, and
                        // for patience and min_delta
    ct_num resume_step; // from the checkpoint of this step instead of the newest; later ones are
                        // removed
    unsigned given;     // CT_LM_GIVEN_...
    void (*event)(const ct_lm_event *event, void *user);
    ct_stop_fn stop; // true: the batch is ended, the folder written, the error CT_E_INTERRUPTED
    void *user;
} ct_lm_train_options;

// Trains a language model on the first 90 % of the text; the rest validates, in windows that do not overlap.
// Writes model.safetensors, state.safetensors, config.json, metrics.jsonl, loss.svg and a file of
// events for TensorBoard, and keeps the newest two saves in checkpoints/step-N. Equal options give
// equal weights, bit for bit, however many threads work, and however often the run was killed and
// resumed. Errors of code CT_E_USAGE come before anything is written. What it will take is known
// before it begins: more than ct_set_memory_limit allows, the whole process counted, or than is
// left, is the error CT_E_LIMIT, and no step is done then; before that, gradients compute again as many of
// the model's blocks as it takes to fit, which gives equal weights too. A run that is given more steps when it
// is resumed has the learning rate, from there on, that a run of so many steps has at the same
// step.
CT_API CT_MUST_USE bool ct_lm_train(const ct_lm_train_options *options);

// What a run will take at the most, in bytes, known before anything runs.
typedef struct ct_lm_cost {
    uint64_t memory;  // of the process: process + code + copies + batches + curves + what the
                      // devices take besides
    uint64_t process; // what it has before the run: the program and the text
    uint64_t code;    // compiled kernels
    uint64_t copies;  // on the host while weights or the optimizer's state are saved
    uint64_t batches; // on the host: tokens of a batch and their targets
    uint64_t curves;  // on the host: the losses of all steps, up to 16,384 points, and their plot
    uint64_t devices; // values, arenas, constants and workspaces, most at one time
    uint64_t weights, state, arenas, constants, workspaces; // of the devices
    uint64_t sums; // of gradients, over the batches of a step; 0: a step is one
    uint64_t room; // of a plan: what ct_lm_train would have now, the limit or else what it has and
                   // what is left; less than memory: it refuses; UINT64_MAX: not known
    bool limited;  // room is the limit of ct_set_memory_limit
    size_t blocks, again; // of the model; of them, those that a step's gradients compute again,
                          // since the run would not fit with what they would keep
} ct_lm_cost;
// Hears of the plans of a run in their order: "first weights", "first state", "evaluation",
// "sample", "step"; where a step has several batches, "first sums" before the evaluation, and
// before "step", which is the last batch and the update, "batch".
typedef void (*ct_lm_part_fn)(const char *name, const ct_plan_cost *cost, void *user);

// Makes the plans of ct_lm_train and runs none: nothing is compiled, taken or written. The event
// MODEL is told; part may be NULL. Sizes that are open are chosen by processor, threads, memory and
// length of the text; a product is timed for the duration that is told, not for the choice.
CT_API CT_MUST_USE bool ct_lm_plan(const ct_lm_train_options *options, ct_lm_part_fn part,
                                   void *user, ct_lm_cost *cost);

// ---------------------------------------------------------------------------------------- sampling

// 0 and NULL mean the default.
typedef struct ct_lm_sample_options {
    const char *dir;    // a folder that ct_lm_train wrote
    const char *prompt; // UTF-8; default: a line's end, which is not written
    int64_t length;     // tokens to write, default 500
    ct_num temperature; // default 0.8; 0: always the likeliest token
    int64_t top_k;      // draws among the likeliest k, default 40
    uint64_t seed;      // of the draws
    ct_write_fn write;  // gets the prompt, then whole characters as they are drawn
    ct_stop_fn stop;
    void *user;
} ct_lm_sample_options;

// Writes text with a key-value cache. Where the context is full, the newest half of it is kept.
CT_API CT_MUST_USE bool ct_lm_sample(const ct_lm_sample_options *options);

// ------------------------------------------------------------------------------------------ models

// A language model of any architecture that the library knows, as its published
// files have it: a folder with config.json and safetensors files.
typedef struct ct_lm ct_lm;

// Loads it; nothing else need be said. The weights stay as the file stores them (f16, bf16) and where it has
// them: they are mapped, not copied, and computed with in f32. With `trainable` they are f32 variables of their
// own, which ct_lm_params lists. Blocks of GGUF files are brought into groups of rows that products read quickly, and
// their pages go back to the system; where those would take more than three quarters of the memory that there is, or
// with `in_place`, they are read where they lie, some ten times slower than memory, so that a model may be larger than
// that. Errors (NULL): no such architecture, the nearest one named; weights that are missing or have another shape, all
// of them listed; blocks that cannot be read where they lie (others than Q4_0, Q8_0, Q4_K, Q5_K and Q6_K) of a model
// that is too large.
typedef struct ct_lm_load_options {
    bool trainable;
    bool in_place;
    ct_loc here;
} ct_lm_load_options;
CT_API ct_lm *ct_lm_load_with(const char *path, ct_lm_load_options options);
#define ct_lm_load(...) CT__LM_LOAD(__VA_ARGS__, .here = CT_HERE)
#define CT__LM_LOAD(path, ...) ct_lm_load_with((path), (ct_lm_load_options){__VA_ARGS__})
// Adds an architecture for the rest of the process: a row as src/models/architectures.c has them, "my_llama:
// like=llama norm=layer norm_bias=1", spaces or line ends between settings. A model whose config.json has this
// model_type loads by it, and ct_lm_train takes it as `arch`; a row of a known name goes before the library's. False:
// see ct_error_text, which names an unknown setting and the nearest one.
//     if (!ct_lm_architecture("my_llama: like=llama act=relu2 mlp=plain")) return 1;
CT_API CT_MUST_USE bool ct_lm_architecture_at(const char *row, ct_loc here);
#define ct_lm_architecture(row) ct_lm_architecture_at((row), CT_HERE)
CT_API void ct_lm_free(ct_lm *lm);         // NULL: nothing
CT_API ct_params *ct_lm_params(ct_lm *lm); // NULL of NULL
// What it is, as its config has it.
typedef struct ct_lm_about {
    const char *type; // model_type: "llama"
    int64_t context;  // tokens that a text may have; 0: no limit
    // What an engine takes of them by itself: 8192 at most and, where the model stretches long texts alone
    // (longrope, dynamic), no more than those have that are not stretched.
    int64_t usual_context;
    int64_t vocab, width, layers; // tokens that it knows; numbers of a position
    bool writes; // goes on with texts; false: an encoder, or one that reads and writes
    bool pairs;  // reads one text and writes another (t5, bart)
    bool scores; // has logits; false: its file holds no output layer (BertModel)
    // Classes of texts that it tells apart, by ct_lm_classify (cotan/embed.h); 0: it does not.
    int64_t labels;
    int64_t parameters;  // numbers that its files hold
    const char *storage; // how most of them are stored: "F32", "BF16", "Q4_K" ...; "": in no file
} ct_lm_about;
CT_API ct_lm_about ct_lm_look(const ct_lm *lm); // all zero of NULL
// Writes config.json and model.safetensors into the folder, with the names that the model came with. Its tokenizer, chat
// template and generation_config.json are no part of a ct_lm: with copies of them in the folder it is a whole model, for
// ct_pretrained_load, cotan run and Hugging Face's library. (cotan train, and Python's save, put them there.)
CT_API CT_MUST_USE bool ct_lm_save_at(const ct_lm *lm, const char *dir, ct_loc here);
#define ct_lm_save(lm, dir) ct_lm_save_at((lm), (dir), CT_HERE)

// tokens (B, T) i32 -> (B, T, vocab) f32: what follows each token; of an encoder, what stands in its place.
// mode NULL: evaluation.
CT_API ct_tensor ct_lm_logits_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here);
#define ct_lm_logits(lm, tokens, mode) ct_lm_logits_at((lm), (tokens), (mode), CT_HERE)
// The same of models that read one text and write another (t5, bart): read (B, S) i32, written (B, T) i32, begun by the
// token that the model begins with -> (B, T, vocab).
CT_API ct_tensor ct_lm_pair_logits_at(const ct_lm *lm, ct_tensor read, ct_tensor written,
                                      ct_nn_mode *mode, ct_loc here);
#define ct_lm_pair_logits(lm, read, written, mode)                                                 \
    ct_lm_pair_logits_at((lm), (read), (written), (mode), CT_HERE)
// How the next token is chosen. 0 means the default: what the model says, undisturbed. Options act in this order, which
// is that of Hugging Face's processors.
typedef struct ct_lm_bias {
    int32_t token;
    float add; // to its score
} ct_lm_bias;
typedef struct ct_lm_tokens {
    const int32_t *v;
    size_t n;
} ct_lm_tokens;
typedef struct ct_lm_sampling {
    // Above 1: scores of tokens that the text has are divided by it, or multiplied where they are
    // below 0 (Keskar et al. 2019).
    ct_num repetition_penalty;
    // Taken from the score of a token that was written, for each time that it was, and once.
    double frequency_penalty, presence_penalty;
    const ct_lm_bias *bias; // (n_bias)
    size_t n_bias;
    const ct_lm_tokens *banned; // (n_banned) sequences that must not be written
    size_t n_banned;
    // No sequence of so many tokens stands in the text twice; 0: any may.
    int64_t no_repeat_ngram_size;
    // No token of `ends` comes before so many are written, and before prompt and answer have so many; of
    // ct_lm_generate and ct_engine_add, who know the ends.
    int64_t min_new_tokens, min_length;
    ct_num temperature; // default 1; CT_F(0): always the likeliest token
    int64_t top_k;      // only the likeliest k
    ct_num top_p;       // only the likeliest that together have this probability
    double min_p;       // only those at least this part as likely as the likeliest
    ct_num typical_p;   // only the most typical that together have this probability
    uint64_t seed;      // of the draws
} ct_lm_sampling;
// Bends scores (vocab) of what follows the n tokens of a text, of which the first `prompt` were given; what is left
// out becomes -infinity. False: no memory, or an argument that is NULL. It belongs to no context.
CT_API bool ct_lm_process(float *scores, int64_t vocab, const int32_t *text, size_t n,
                          size_t prompt, const ct_lm_sampling *sampling);

// Writes behind a prompt: `token` hears of each token and its log-probability by the model; false from it, a token
// of `ends`, or `most` (default 256) tokens end it, and so does the context. Equal arguments give equal tokens.
// A model that reads one text and writes another (t5, bart) reads the prompt, and all that is told is written.
// With `beams` from 2 on, as many texts are gone on with, the likeliest of all that they may become, and the best is
// told when it has ended: by the sum of its log-probabilities over its length to the power of `length_penalty`
// (transformers' beam search without sampling; of .sampling, penalties, biases and bans act).
// False: see ct_error_text.
//     if (!ct_lm_generate(.lm = lm, .prompt = ids, .n_prompt = n, .token = print)) return 1;
typedef struct ct_lm_generate_args {
    const ct_lm *lm;
    const int32_t *prompt; // (n_prompt)
    size_t n_prompt;
    int64_t most;
    const int32_t *ends; // (n_ends) such as the end of a text; they are not told
    size_t n_ends;
    ct_lm_sampling sampling;
    int64_t beams;         // 1 to 64; default 1
    ct_num length_penalty; // default 1
    bool (*token)(int32_t token, double log_probability, void *user);
    ct_stop_fn stop; // true: it ends, well
    void *user;
    ct_loc here;
} ct_lm_generate_args;
CT_API CT_MUST_USE bool ct_lm_generate_with(ct_lm_generate_args args);
#define ct_lm_generate(...) ct_lm_generate_with((ct_lm_generate_args){__VA_ARGS__, .here = CT_HERE})

// -> (B, T, width), behind the last norm
CT_API ct_tensor ct_lm_hidden_at(const ct_lm *lm, ct_tensor tokens, ct_nn_mode *mode, ct_loc here);
#define ct_lm_hidden(lm, tokens, mode) ct_lm_hidden_at((lm), (tokens), (mode), CT_HERE)

// ----------------------------------------------------------------------------------- ahead of time

typedef enum ct_lm_function {
    CT_LM_C_TOKEN, // tokens (batch, 1) and their position -> logits (batch, vocab); keys and values
                   // of the tokens before are variables, zeros at first, which a call goes on with
    CT_LM_C_WINDOW, // tokens (batch, context) -> logits (batch, context, vocab)
    CT_LM_C_STEP,   // tokens and targets (batch, context), learning_rate, and with dropout a random
                    // key (2,) -> loss, grad_norm; weights and the optimizer's state are updated
} ct_lm_function;
typedef struct ct_lm_compile_options {
    const char *dir;  // a folder that ct_lm_train wrote
    const char *path; // of the files, as ct_compile has it
    ct_lm_function function;
    int64_t batch, context; // 0: 1 and the model's; of a step those of its run
    bool embed;             // weights stand in the file instead of pointers; not of a step
} ct_lm_compile_options;

// Writes a function of a saved model as one C file and its header, as ct_compile does: needs libm
// alone, with the library's bits. Nothing is run or compiled for it. A step is one of the run that
// trained the model: its betas, decay and clipping are the scalars' first values. Of a run whose
// steps have several batches it needs `batch`: a function takes one. Errors of code CT_E_USAGE: an
// option out of its range, a path that ends in no name of C.
CT_API CT_MUST_USE bool ct_lm_compile(const ct_lm_compile_options *options);

// ----------------------------------------------------------------------------------------- looking

// Says what `path` holds, in lines: a safetensors, npy or npz file, GGUF, what PyTorch saved (.bin, .pt, .pth),
// the folder of a published model, a config.json, a folder that ct_lm_train wrote, the saves in its folder
// checkpoints, or text. Names out of files are shown without control characters.
CT_API CT_MUST_USE bool ct_describe(const char *path, ct_write_fn write, void *user);

#ifdef __cplusplus
}
#endif

#endif
