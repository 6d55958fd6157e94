// Writes a run's options and state so that it can be resumed, and chooses and verifies the checkpoint to
// resume from.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/crc32c.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "models/lm.h"
#include "train/checkpoint.h"

// ------------------------------------------------------------------------------------------ settings

// Every option that changes bits or the metrics: the single list of what is written, read and compared.
typedef enum {
    KIND_INT,
    KIND_REAL,
    KIND_NUM,
    KIND_SEED,
    KIND_DROPOUT,
    KIND_CHARS,
    KIND_NO_BIAS,
    KIND_PRECISION,
    KIND_TEXT, // written if it is set
    KIND_MAYBE // a number that is written if it is not 0
} kind;
// How a resumed run may change an option.
typedef enum { STAYS, GROWS, CHANGES } change;
static const struct setting {
    const char *key, *option;
    kind kind;
    size_t at;
    change change;
} resume_settings[] = {
#define SETTING(key, option, kind, field) OTHER(key, option, kind, field, STAYS)
#define OTHER(key, option, kind, field, change)                                                    \
    { key, option, kind, offsetof(ct_lm_train_options, field), change }
    SETTING("chars", "tokenizer", KIND_CHARS, chars),
    SETTING("tokenizer", "tokenizer", KIND_TEXT, tokenizer),
    SETTING("arch", "arch", KIND_TEXT, arch),
    SETTING("from", "from", KIND_TEXT, from),
    SETTING("kv_heads", "kv_heads", KIND_MAYBE, kv_heads),
    SETTING("intermediate_size", "intermediate_size", KIND_MAYBE, intermediate_size),
    SETTING("layers", "layers", KIND_INT, layers),
    SETTING("heads", "heads", KIND_INT, heads),
    SETTING("width", "width", KIND_INT, width),
    SETTING("context", "context", KIND_INT, context),
    SETTING("batch", "batch", KIND_INT, batch),
    SETTING("accumulate", "accumulate", KIND_INT, accumulate),
    OTHER("steps", "steps", KIND_INT, steps, GROWS),
    SETTING("lr", "lr", KIND_REAL, lr),
    SETTING("min_lr", "min_lr", KIND_NUM, min_lr),
    SETTING("warmup", "warmup", KIND_NUM, warmup),
    SETTING("beta1", "beta1", KIND_NUM, beta1),
    SETTING("beta2", "beta2", KIND_NUM, beta2),
    SETTING("weight_decay", "weight_decay", KIND_NUM, weight_decay),
    SETTING("clip", "clip", KIND_NUM, clip),
    SETTING("dropout", "dropout", KIND_DROPOUT, dropout),
    SETTING("no_bias", "no_bias", KIND_NO_BIAS, no_bias),
    SETTING("precision", "precision", KIND_PRECISION, precision),
    SETTING("eval_every", "eval_every", KIND_INT, eval_every),
    SETTING("eval_batches", "eval_batches", KIND_NUM, eval_batches),
    OTHER("patience", "patience", KIND_NUM, patience, CHANGES),
    OTHER("min_delta", "min_delta", KIND_NUM, min_delta, CHANGES),
    SETTING("save_every", "save_every", KIND_INT, save_every),
    SETTING("seed", "seed", KIND_SEED, seed),
#undef SETTING
#undef OTHER
};
enum { N_SETTINGS = sizeof resume_settings / sizeof *resume_settings };

static const char *const precision_names[] = {"fp32", "bf16", "fp16", NULL};
static const ct_dtype precision_dtypes[] = {CT_F32, CT_BF16, CT_F16};

static const char *resume_precision_name(ct_dtype dtype) {
    for (int i = 0; i < 3; i++)
        if (precision_dtypes[i] == dtype) return precision_names[i];
    return "";
}

static void resume_store_precision(ct_config *to, const char *key, ct_dtype dtype) {
    const char *name = resume_precision_name(dtype);
    ct__config_set_string(to, key, name, strlen(name));
}

bool ct__lm_is_precision(ct_dtype dtype) { return *resume_precision_name(dtype) != '\0'; }

// Runs from before this option existed do not have the key.
static bool resume_restore_precision(const ct_config *from, const char *key, ct_dtype *dtype,
                                     ct_err *err) {
    int i = 0;
    bool ok = !ct__config_has(from, key) || ct__config_choice(from, key, precision_names, &i, err);
    *dtype = precision_dtypes[i];
    return ok;
}

static void resume_store_setting(ct_config *to, const struct setting *s,
                                 const ct_lm_train_options *o) {
    const char *at = (const char *)o + s->at;
    switch (s->kind) {
    case KIND_INT:
    case KIND_SEED: ct__config_set_int(to, s->key, *(const int64_t *)at); break;
    case KIND_REAL:
    case KIND_DROPOUT: ct__config_set_real(to, s->key, *(const double *)at); break;
    case KIND_NUM: ct__config_set_real(to, s->key, ((const ct_num *)at)->value); break;
    case KIND_CHARS:
    case KIND_NO_BIAS: ct__config_set_bool(to, s->key, *(const bool *)at); break;
    case KIND_PRECISION: resume_store_precision(to, s->key, *(const ct_dtype *)at); break;
    case KIND_TEXT: {
        const char *text = *(const char *const *)at;
        if (text) ct__config_set_string(to, s->key, text, strlen(text));
        break;
    }
    case KIND_MAYBE:
        if (*(const int64_t *)at) ct__config_set_int(to, s->key, *(const int64_t *)at);
        break;
    }
}

static bool resume_restore_setting(const ct_config *from, const struct setting *s,
                                   ct_lm_train_options *o, ct_err *err) {
    char *at = (char *)o + s->at;
    switch (s->kind) {
    case KIND_INT: return ct__config_int(from, s->key, 1, INT64_MAX, (int64_t *)at, err);
    case KIND_SEED: return ct__config_int(from, s->key, INT64_MIN, INT64_MAX, (int64_t *)at, err);
    case KIND_REAL: return ct__config_real(from, s->key, 0, 1e300, (double *)at, err);
    case KIND_DROPOUT: return ct__config_real(from, s->key, 0, 1, (double *)at, err);
    case KIND_NUM:
        ((ct_num *)at)->given = true;
        return ct__config_real(from, s->key, 0, 1e300, &((ct_num *)at)->value, err);
    case KIND_CHARS:
    case KIND_NO_BIAS: return ct__config_bool(from, s->key, (bool *)at, err);
    case KIND_PRECISION: return resume_restore_precision(from, s->key, (ct_dtype *)at, err);
    case KIND_TEXT: {
        size_t n;
        *(const char **)at = NULL;
        return !ct__config_has(from, s->key) ||
               ct__config_string(from, s->key, (const char **)at, &n, err);
    }
    case KIND_MAYBE:
        *(int64_t *)at = 0;
        return !ct__config_has(from, s->key) ||
               ct__config_int(from, s->key, 1, INT64_MAX, (int64_t *)at, err);
    }
    return false;
}

static bool resume_strings_differ(const char *requested_value, const char *run_value,
                                  char requested[32], char current[32]) {
    if (!requested_value || (run_value && strcmp(requested_value, run_value) == 0)) return false;
    snprintf(requested, 32, " %.28s", requested_value);
    snprintf(current, 32, "%.28s", run_value ? run_value : "none");
    return true;
}

// Formats the requested value and the run's value. Returns false if the option was not given, or is the
// same.
static bool resume_setting_differs(const struct setting *s, const ct_lm_train_options *given,
                                   const ct_lm_train_options *run, char requested[32],
                                   char current[32]) {
    const char *a = (const char *)given + s->at, *b = (const char *)run + s->at;
    static const char *const words[2][2] = {{"bytes", "chars"}, {"", "biases"}};
    double x = 0, y = 0;
    bool was_given = false;
    switch (s->kind) {
    case KIND_TEXT:
        return resume_strings_differ(*(const char *const *)a, *(const char *const *)b, requested,
                                     current);
    case KIND_MAYBE:
    case KIND_INT: x = (double)*(const int64_t *)a, y = (double)*(const int64_t *)b; break;
    case KIND_REAL: x = *(const double *)a, y = *(const double *)b; break;
    case KIND_SEED:
        x = (double)*(const uint64_t *)a, y = (double)*(const uint64_t *)b;
        was_given = given->given & CT_LM_GIVEN_SEED;
        break;
    case KIND_DROPOUT:
        x = *(const double *)a, y = *(const double *)b;
        was_given = given->given & CT_LM_GIVEN_DROPOUT;
        break;
    case KIND_NUM:
        x = ((const ct_num *)a)->value, y = ((const ct_num *)b)->value;
        was_given = ((const ct_num *)a)->given;
        break;
    case KIND_CHARS:
    case KIND_NO_BIAS:
        x = *(const bool *)a, y = *(const bool *)b;
        was_given = s->kind == KIND_CHARS && given->given & CT_LM_GIVEN_CHARS;
        break;
    case KIND_PRECISION: x = *(const ct_dtype *)a, y = *(const ct_dtype *)b; break;
    }
    if (s->kind == KIND_CHARS && was_given && run->tokenizer)
        return resume_strings_differ(words[0][x != 0], run->tokenizer, requested, current);
    if ((!was_given && x == 0) || x == y) return false;
    if (s->kind == KIND_PRECISION) {
        snprintf(requested, 32, " %s", resume_precision_name((ct_dtype)x));
        snprintf(current, 32, "%s", resume_precision_name((ct_dtype)y));
        return true;
    }
    if (s->kind == KIND_CHARS || s->kind == KIND_NO_BIAS) {
        snprintf(requested, 32, "%s%s", s->kind == KIND_CHARS ? " " : "",
                 s->kind == KIND_CHARS ? words[0][x != 0] : "");
        snprintf(current, 32, "%s", s->kind == KIND_CHARS ? words[0][y != 0] : words[1][1]);
    } else {
        snprintf(requested, 32, " %.10g", x);
        snprintf(current, 32, "%.10g", y);
    }
    return true;
}

// Makes a path absolute; a pattern's special characters are escaped in the current folder's name, which is
// no pattern.
static const char *resume_absolute_path(ct_arena *arena, const char *cwd, const char *path) {
    char escaped[2 * CT_RUN_PATH];
    size_t n = 0;
    bool pattern = ct__corpus_is_pattern(path);
    for (; *cwd; cwd++) {
        if (pattern && strchr("*?[\\", *cwd)) escaped[n++] = '\\';
        escaped[n++] = *cwd;
    }
    escaped[n] = '\0';
    return ct__arena_printf(arena, "%s/%s", escaped, path);
}

static bool resume_store_data(ct_config *to, const ct_lm_train_options *o, ct_err *err) {
    CT_ARENA arena = {0};
    const char **paths = ct__arena(&arena, o->n_data * sizeof *paths);
    char cwd[CT_RUN_PATH] = "";
    bool ok = paths && getcwd(cwd, sizeof cwd);
    for (size_t i = 0; i < o->n_data && ok; i++) { // so that the run can be resumed from anywhere
        paths[i] =
            o->data[i][0] == '/' ? o->data[i] : resume_absolute_path(&arena, cwd, o->data[i]);
        ok = paths[i] != NULL;
    }
    if (ok)
        ct__config_set_list(to, "data", paths, o->n_data);
    else if (paths && !cwd[0])
        ct__err(err, CT_E_FILE, CT_NOWHERE, "train", "cannot get the current folder: %s",
                strerror(errno));
    else
        ct__err_memory(err, CT_NOWHERE, "train", o->n_data * sizeof *paths);
    return ok;
}

static void resume_checksum(const ct_corpus *corpus, char digits[9]) {
    snprintf(digits, 9, "%08" PRIx32,
             ct__crc32c(corpus->tokens, corpus->n * sizeof *corpus->tokens));
}

// The state of early stopping, where there is any; runs with patience keep the best weights.
static const struct {
    const char *key;
    size_t at;
} best_counts[] = {{"best_steps", offsetof(ct_fit_best, steps)},
                   {"stale_evaluations", offsetof(ct_fit_best, stale_evaluations)},
                   {"evaluations", offsetof(ct_fit_best, evaluations)},
                   {"last_evaluated_step", offsetof(ct_fit_best, last_evaluated_step)}};
enum { N_BEST_COUNTS = sizeof best_counts / sizeof *best_counts };
static const struct {
    const char *key;
    size_t at;
} best_losses[] = {{"best_val_loss", offsetof(ct_fit_best, val_loss)},
                   {"reference_val_loss", offsetof(ct_fit_best, reference_loss)}};

// The step of the saved weights themselves; the state of the best ones is saved with later weights, too.
#define STEPS_DONE "steps_done"
// Checksum of the files' bytes, where a tokenizer reads them.
#define TEXT_SUM "text_bytes_crc32c"

static void resume_store_best(ct_config *to, const ct_fit_best *best) {
    if (!best->evaluations) return;
    for (int i = 0; i < 2; i++) {
        double loss = *(const double *)((const char *)best + best_losses[i].at);
        if (loss < INFINITY) ct__config_set_real(to, best_losses[i].key, loss);
    }
    for (int i = 0; i < N_BEST_COUNTS; i++)
        ct__config_set_int(to, best_counts[i].key,
                           *(const int64_t *)((const char *)best + best_counts[i].at));
}

static bool resume_read_best(const ct_config *from, ct_fit_best *best, ct_err *err) {
    bool ok = true;
    if (!ct__config_has(from, best_counts[0].key)) return true;
    // the default where the weights were lost, and none have been kept since
    best->val_loss = INFINITY;
    for (int i = 0; i < 2 && ok; i++)
        ok = !ct__config_has(from, best_losses[i].key) ||
             ct__config_real(from, best_losses[i].key, -1e300, 1e300,
                             (double *)((char *)best + best_losses[i].at), err);
    for (int i = 0; i < N_BEST_COUNTS && ok; i++)
        ok = ct__config_int(from, best_counts[i].key, 0, INT64_MAX,
                            (int64_t *)((char *)best + best_counts[i].at), err);
    return ok;
}

bool ct__lm_settings_store(ct_config *config, const ct_lm_train_options *options,
                           const ct_corpus *corpus, int64_t done, const ct_fit_best *best,
                           ct_err *err) {
    ct_config training;
    char digits[9];
    if (!ct__config_new(config->path, &training, err)) return false;
    for (int i = 0; i < N_SETTINGS; i++)
        resume_store_setting(&training, &resume_settings[i], options);
    resume_checksum(corpus, digits);
    ct__config_set_int(&training, "text_tokens", (int64_t)corpus->n);
    ct__config_set_string(&training, "text_crc32c", digits, 8);
    if (corpus->paths) ct__config_set_int(&training, TEXT_SUM, (int64_t)corpus->text_sum);
    ct__config_set_int(&training, STEPS_DONE, done);
    resume_store_best(&training, best);
    bool ok = resume_store_data(&training, options, err);
    if (ok) {
        ct__config_set_child(config, "training", &training);
        ct__config_seal(config);
    }
    ct__config_close(&training);
    return ok;
}

void ct__lm_hint_text(ct_err *err) { ct__err_hint(err, "give the new path of the text as .data"); }

bool ct__lm_same_text(const ct_lm_resumed *resumed, const ct_corpus *corpus, bool chars,
                      ct_err *err) {
    char digits[9];
    resume_checksum(corpus, digits);
    if ((int64_t)corpus->n == resumed->n_tokens && strcmp(digits, resumed->checksum) == 0)
        return true;
    ct__err(err, CT_E_DATA, CT_NOWHERE, "train",
            "the text is not the one that the run was trained on: %zu %s with CRC-32C %s, not "
            "%" PRId64 " with %s",
            corpus->n,
            corpus->paths ? "tokens"
            : chars       ? "characters"
                          : "bytes",
            digits, resumed->n_tokens, resumed->checksum);
    ct__lm_hint_text(err);
    return false;
}

static bool resume_restore_settings(const ct_config *from, ct_lm_train_options *o, ct_err *err) {
    for (int i = 0; i < N_SETTINGS; i++)
        if (!resume_restore_setting(from, &resume_settings[i], o, err)) return false;
    return true;
}

bool ct__lm_settings_read(const char *dir, ct_lm_train_options *options, ct_err *err) {
    ct_config config, training = {0};
    CT_TEXT path = {0};
    ct__textf(&path, "%s/config.json", dir);
    if (path.failed) return ct__err_memory(err, CT_NOWHERE, "config", strlen(dir));
    bool ok = ct__config_read(path.s, &config, err);
    if (ok) {
        ok = ct__config_child(&config, "training", &training, err) &&
             resume_restore_settings(&training, options, err);
        // their strings are freed with the config
        options->tokenizer = options->arch = options->from = NULL;
        ct__config_close(&training);
        ct__config_close(&config);
    }
    return ok;
}

static bool resume_read_settings(const ct_config *config, ct_lm_train_options *o,
                                 ct_lm_resumed *resumed, ct_err *err) {
    const char *digits;
    size_t n;
    if (!ct__config_child(config, "training", &resumed->config, err)) return false;
    const ct_config *from = &resumed->config;
    if (!resume_restore_settings(from, o, err)) return false;
    resumed->has_best = o->patience.value > 0;
    if (!ct__config_int(from, "text_tokens", 1, INT64_MAX, &resumed->n_tokens, err) ||
        !ct__config_string(from, "text_crc32c", &digits, &n, err) ||
        !ct__config_list(from, "data", &resumed->n_data, err) ||
        !resume_read_best(from, &resumed->best, err))
        return false;
    resumed->text_sum = -1;
    if (ct__config_has(from, TEXT_SUM) &&
        !ct__config_int(from, TEXT_SUM, 0, UINT32_MAX, &resumed->text_sum, err))
        return false;
    resumed->steps = o->steps;
    snprintf(resumed->checksum, sizeof resumed->checksum, "%s", digits);
    resumed->data = ct__calloc(resumed->n_data + 1, sizeof *resumed->data);
    if (!resumed->data)
        return ct__err_memory(err, CT_NOWHERE, "train", resumed->n_data * sizeof *resumed->data);
    for (size_t i = 0; i < resumed->n_data; i++)
        if (!ct__config_list_text(from, "data", i, &resumed->data[i], err)) return false;
    return true;
}

// Takes a changed option as it was given. Returns false if the run's value must stay.
static bool resume_take_option(const struct setting *s, const ct_lm_train_options *given,
                               ct_lm_train_options *run) {
    const char *from = (const char *)given + s->at;
    char *to = (char *)run + s->at;
    if (s->change == STAYS) return false;
    if (s->change == GROWS && *(const int64_t *)from < *(const int64_t *)to) return false;
    memcpy(to, from, s->kind == KIND_NUM ? sizeof(ct_num) : sizeof(int64_t));
    return true;
}

// Fills `o` with the run's settings; options that were given and differ are an error, or are taken.
static bool resume_merge_settings(const ct_config *config, ct_lm_train_options *o,
                                  ct_lm_resumed *resumed, ct_err *err) {
    ct_lm_train_options given = *o;
    char requested[32], current[32];
    if (!resume_read_settings(config, o, resumed, err)) return false;
    for (int i = 0; i < N_SETTINGS; i++)
        if (resume_setting_differs(&resume_settings[i], &given, o, requested, current) &&
            !resume_take_option(&resume_settings[i], &given, o))
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, "train",
                           ".%s%s contradicts the run in %s, which has %s",
                           resume_settings[i].option, requested, o->resume, current);
    if (!o->n_data) {
        o->data = resumed->data;
        o->n_data = resumed->n_data;
    }
    return true;
}

void ct__lm_resumed_free(ct_lm_resumed *resumed) {
    ct__config_close(&resumed->config);
    ct__free(resumed->data);
    resumed->data = NULL;
}

// ------------------------------------------------------------------------------------ the checkpoint

static bool resume_verify_file(const char *path, ct_err *err) {
    ct_st file;
    bool ok = ct__st_open(path, &file, err) && ct__st_verify(&file, path, true, err);
    ct__st_close(&file);
    return ok;
}

static const char *const tensor_files[] = {"model.safetensors", "state.safetensors"};

// Verifies every byte of the checkpoint against its checksum; its config.json stays open.
static bool resume_verify_checkpoint(const char *dir, int64_t step, ct_config *config,
                                     ct_err *err) {
    char path[CT_RUN_PATH];
    *config = (ct_config){0};
    bool ok = ct__checkpoint_path(dir, step, "config.json", path, err) &&
              ct__config_read(path, config, err) && ct__config_verify(config, true, err);
    for (int i = 0; i < 2; i++)
        ok = ok && ct__checkpoint_path(dir, step, tensor_files[i], path, err) &&
             resume_verify_file(path, err);
    if (!ok) ct__config_close(config);
    return ok;
}

// Verifies the best weights; `best` gets the state of early stopping when these weights, of `done` steps,
// were the best.
static bool resume_verify_best(const char *model, const char *config, ct_fit_best *best,
                               int64_t *done, ct_err *err) {
    ct_config file = {0}, training = {0};
    bool ok = ct__config_read(config, &file, err) && ct__config_verify(&file, true, err) &&
              ct__config_child(&file, "training", &training, err) &&
              (!ct__config_has(&training, STEPS_DONE) ||
               ct__config_int(&training, STEPS_DONE, 0, INT64_MAX, done, err)) &&
              resume_read_best(&training, best, err) && resume_verify_file(model, err);
    ct__config_close(&training);
    ct__config_close(&file);
    return ok;
}

// True if the best weights in the run's folder are intact and are those of this loss. A later save that was
// copied there has the same loss in its state, but other weights.
static bool resume_folder_has_best(const char *dir, const ct_fit_best *best) {
    char model[CT_RUN_PATH], config[CT_RUN_PATH];
    ct_fit_best found = {0};
    ct_err ignored = {0};
    int64_t done = -1;
    int n = snprintf(model, sizeof model, "%s/" CT_RUN_BEST "/model.safetensors", dir);
    int m = snprintf(config, sizeof config, "%s/" CT_RUN_BEST "/config.json", dir);
    return n < CT_RUN_PATH && m < CT_RUN_PATH &&
           resume_verify_best(model, config, &found, &done, &ignored) &&
           found.val_loss == best->val_loss && found.steps == best->steps && done == best->steps;
}

// Verifies the checkpoint's best weights. A run continues without them, since their damage affects all
// checkpoints that share them. Patience needs only their loss, so the run ends where it would have ended.
static bool resume_check_best(const char *dir, ct_lm_resumed *resumed, ct_err *err) {
    char model[CT_RUN_PATH], config[CT_RUN_PATH];
    ct_fit_best found = {0};
    int64_t done = -1;
    if (!ct__checkpoint_has_best(dir, resumed->step)) { // it had none, or they were removed
        resumed->best_in_folder = resumed->has_best && resume_folder_has_best(dir, &resumed->best);
        return true;
    }
    if (!ct__checkpoint_path(dir, resumed->step, CT_SAVED_BEST_MODEL, model, err) ||
        !ct__checkpoint_path(dir, resumed->step, CT_SAVED_BEST_CONFIG, config, err))
        return false;
    if (resume_verify_best(model, config, &found, &done, &resumed->damage)) return true;
    bool is_missing = access(model, F_OK) != 0 && errno == ENOENT;
    if (resumed->damage.code != CT_E_FORMAT && !is_missing) {
        *err = resumed->damage;
        return false;
    }
    resumed->best_in_folder = resume_folder_has_best(dir, &resumed->best);
    if (!resumed->best_in_folder) resumed->best.val_loss = INFINITY;
    return true;
}

// Verifies the files in the run's folder, if they are not hard links to the checkpoint's: resuming from the
// newest checkpoint uses them too.
static bool resume_verify_folder(const char *dir, int64_t step, ct_err *err) {
    for (int i = 0; i < 2; i++) {
        char path[CT_RUN_PATH], inner[CT_RUN_PATH];
        struct stat a, b;
        int n = snprintf(path, sizeof path, "%s/%s", dir, tensor_files[i]);
        if (n >= (int)sizeof path || !ct__checkpoint_path(dir, step, tensor_files[i], inner, err))
            return false;
        if (stat(path, &a) != 0 || stat(inner, &b) != 0) continue; // it is linked again
        if (a.st_dev == b.st_dev && a.st_ino == b.st_ino) continue;
        if (!resume_verify_file(path, err)) return false;
    }
    return true;
}

// Quotes a word for a shell.
static void resume_add_shell_word(ct_text *text, const char *word) {
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (word[strspn(word, safe)] == '\0') {
        ct__text_add(text, word);
        return;
    }
    ct__text_add(text, "'");
    for (; *word; word++) ct__textf(text, *word == '\'' ? "'\\''" : "%c", *word);
    ct__text_add(text, "'");
}

void ct__lm_offer_save(const char *dir, ct_err *err) {
    ct_err ignored = {0};
    int64_t *steps;
    size_t n;
    if ((err->code != CT_E_FORMAT && err->code != CT_E_FILE) ||
        !ct__checkpoint_list(dir, &steps, &n, &ignored))
        return;
    for (size_t i = 0; i < n; i++) {
        ct_config config;
        ct_text word = {0};
        char path[CT_RUN_PATH];
        ignored = (ct_err){0};
        if (!resume_verify_checkpoint(dir, steps[i], &config, &ignored)) continue;
        ct__config_close(&config);
        if (!ct__checkpoint_path(dir, steps[i], NULL, path, &ignored)) break;
        resume_add_shell_word(&word, path);
        if (!word.failed)
            ct__err_hint(err, "the checkpoint of step %" PRId64 " is complete: cotan sample %s",
                         steps[i], word.s);
        ct__text_free(&word);
        break;
    }
    ct__free(steps);
}

// Adds a hint with the newest intact checkpoint of step `from` or older.
static void resume_hint_checkpoint(const char *dir, const int64_t *steps, size_t n, int64_t from,
                                   ct_err *err) {
    for (size_t i = 0; i < n; i++) {
        ct_config config;
        ct_err ignored = {0};
        if (steps[i] > from || !resume_verify_checkpoint(dir, steps[i], &config, &ignored))
            continue;
        ct__config_close(&config);
        ct_text word = {0};
        resume_add_shell_word(&word, dir);
        ct__err_hint(err,
                     "the checkpoint of step %" PRId64
                     " is complete: train with .resume %s and .resume_step %" PRId64,
                     steps[i], word.failed ? "DIR" : word.s, steps[i]);
        ct__text_free(&word);
        return;
    }
    ct__err_hint(err, "no checkpoint of this run is complete");
}

// Reports that `dir` is a checkpoint of a run, or the folder of its checkpoints. Returns false if it is
// neither.
static bool resume_refuse_checkpoint_dir(const char *dir, ct_err *err) {
    char real[PATH_MAX];
    int64_t step = -1, *steps;
    size_t n = 0;
    ct_err ignored = {0};
    if (!realpath(dir, real)) return false;
    char *slash = strrchr(real, '/');
    if (ct__is_save_name(slash + 1, &step)) {
        *slash = '\0';
        slash = strrchr(real, '/');
    }
    if (!slash || slash == real || strcmp(slash + 1, CT_RUN_SAVES) != 0) return false;
    *slash = '\0';
    if (!ct__checkpoint_list(real, &steps, &n, &ignored)) return false;
    ct__free(steps);
    if (!n) return false;
    CT_TEXT word = {0};
    resume_add_shell_word(&word, real);
    const char *run = word.failed ? "DIR" : word.s;
    if (step >= 0) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "this is a checkpoint of a run, not its folder");
        ct__err_hint(err, "train with .resume %s and .resume_step %" PRId64, run, step);
    } else {
        ct__err(err, CT_E_FILE, CT_NOWHERE, dir,
                "this is the folder of a run's checkpoints, not the run's");
        ct__err_hint(err, "train with .resume %s", run);
    }
    return true;
}

static void resume_count_entry(int folder, const char *name, void *user) {
    (void)folder;
    (void)name;
    ++*(size_t *)user;
}

// Reports what a folder without a checkpoint contains, and what to do about it.
static bool resume_refuse_empty(const char *dir, ct_err *err) {
    static const char problem[] = "there is no checkpoint to resume from";
    char metrics[CT_RUN_PATH], real[PATH_MAX];
    size_t n = 0;
    if (resume_refuse_checkpoint_dir(dir, err)) return false;
    const int length = snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    if (length < CT_RUN_PATH && access(metrics, F_OK) == 0) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "%s: the run in it ended before its first",
                problem);
        ct__err_hint(err, "a run makes its first after .save_every steps: start it again, with "
                          ".data, .out and .overwrite");
    } else if (ct__weights_are_in(dir)) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "%s: it holds a model, not a run", problem);
        ct__err_hint(err, ".from fine-tunes a model, in another folder: .out");
    } else {
        const bool read =
            realpath(dir, real) && ct__for_each_entry(AT_FDCWD, real, resume_count_entry, &n);
        ct__err(err, CT_E_FILE, CT_NOWHERE, dir, "%s: %s", problem,
                read && !n ? "the folder is empty" : "it holds no run");
        ct__err_hint(
            err, "a run makes its first after .save_every steps: start one, with .data and .out");
    }
    return false;
}

static bool resume_choose_step(const ct_lm_train_options *o, const int64_t *steps, size_t n,
                               int64_t *step, ct_err *err) {
    if (!n) return resume_refuse_empty(o->resume, err);
    *step = ct__num_given(o->resume_step) ? (int64_t)o->resume_step.value : steps[0];
    CT_TEXT list = {0};
    for (size_t i = n; i-- > 0;) {
        if (steps[i] == *step) {
            return true;
        }
        ct__textf(&list, "%s%" PRId64, list.n ? ", " : "", steps[i]);
    }
    ct__err(err, CT_E_FILE, CT_NOWHERE, o->resume,
            "there is no checkpoint of step %" PRId64 ", only of: %s", *step,
            list.failed ? "..." : list.s);
    return false;
}

// Also without patience, since the run may have had some before.
static bool resume_had_best(const char *dir, const int64_t *steps, size_t n,
                            const ct_lm_resumed *resumed) {
    bool any = resumed->has_best || resumed->best.val_loss == INFINITY;
    for (size_t i = 0; i < n; i++) any = any || ct__checkpoint_has_best(dir, steps[i]);
    return any;
}

bool ct__lm_resume(ct_lm_train_options *options, ct_lm_resumed *resumed, ct_err *err) {
    int64_t *steps;
    size_t n;
    const char *dir = options->resume;
    *resumed = (ct_lm_resumed){0};
    if (!ct__checkpoint_list(dir, &steps, &n, err)) return false;
    bool ok = resume_choose_step(options, steps, n, &resumed->step, err);
    if (ok) {
        ct_config config;
        int64_t step = resumed->step;
        bool newest = !ct__num_given(options->resume_step);
        ok = resume_verify_checkpoint(dir, step, &config, err);
        if (!ok) {
            resume_hint_checkpoint(dir, steps, n, step - 1, err);
        } else if (newest && !resume_verify_folder(dir, step, err)) {
            resume_hint_checkpoint(dir, steps, n, step, err);
            ok = false;
        }
        ok = ok && resume_merge_settings(&config, options, resumed, err);
        resumed->has_best = ok && resume_had_best(dir, steps, n, resumed);
        ok = ok && resume_check_best(dir, resumed, err);
        ct__config_close(&config);
    }
    ct__free(steps);
    return ok;
}

// ----------------------------------------------------------------------------------- models of runs

// Reads config.json; an existing folder without one may belong to a run that was never saved.
static bool resume_open_config(const char *dir, const char *path, ct_config *config, ct_err *err) {
    if (ct__config_read(path, config, err)) return true;
    if (ct__is_absent(path))
        ct__err_hint(err,
                     ct__is_absent(dir)
                         ? "there is no such folder"
                         : "a model's folder has it; that of a run gets it with the first save");
    return false;
}

// Verifies the checksums in a model's folder, except in a config.json that transformers wrote: that library
// keeps keys that it does not know, the checksum among them, beside values that it adds, drops and changes.
// It stores its version in each file.
static bool resume_verify_model(const char *dir, ct_err *err) {
    ct_text path = {0}, weights = {0};
    ct_config config;
    ct_st file;
    ct__textf(&path, "%s/config.json", dir);
    ct__textf(&weights, "%s/model.safetensors", dir);
    bool ok =
        (!path.failed && !weights.failed) || ct__err_memory(err, CT_NOWHERE, dir, strlen(dir));
    if (ok && (ok = resume_open_config(dir, path.s, &config, err))) {
        ok = ct__config_has(&config, "transformers_version") ||
             ct__config_verify(&config, false, err);
        ct__config_close(&config);
    }
    if (ok && !ct__is_absent(weights.s) && (ok = ct__st_open(weights.s, &file, err))) {
        ok = ct__st_verify(&file, weights.s, false, err);
        ct__st_close(&file);
    }
    ct__text_free(&path);
    ct__text_free(&weights);
    return ok;
}

ct_lm *ct__lm_load_run(const char *dir, bool trainable) {
    ct_err *err = &ct__ctx()->err;
    if (ct__weights_are_foreign(dir, err) || !ct__run_is_folder(dir, err) ||
        !resume_verify_model(dir, err))
        return NULL;
    ct_lm *lm =
        ct_lm_load_with(dir, (ct_lm_load_options){.trainable = trainable, .here = CT_NOWHERE});
    if (!lm || (!lm->reader && !lm->spec.bidirectional)) return lm;
    ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, dir, "%s does not continue a text", lm->spec.type);
    ct_lm_free(lm);
    return NULL;
}
