// What a training run keeps: its folder, the checkpoints in it, and the state from which it is resumed.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "models/lm_run.h"

bool ct__lm_state_path(const ct_lm_run *r, const char *dir, const char *name,
                       char path[CT_RUN_PATH]) {
    int n = snprintf(path, CT_RUN_PATH, "%s/%s", dir, name);
    if (n > 0 && n < CT_RUN_PATH) return true;
    return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of .out is too long");
}

// Sets the folder of the run's files; open files moved with it.
static bool lm_state_set_dir(ct_lm_run *r, const char *dir) {
    int n = snprintf(r->dir, sizeof r->dir, "%s", dir);
    if (n >= CT_RUN_PATH)
        return ct__err(r->err, CT_E_FILE, CT_NOWHERE, "train", "the path of .out is too long");
    return ct__lm_state_path(r, dir, "metrics.jsonl", r->metrics_path) &&
           ct__lm_state_path(r, dir, "loss.svg", r->plot_path);
}

void ct__lm_state_hint(ct_lm_run *r) {
    if (r->saved >= 0)
        ct__err_hint(r->err,
                     "the checkpoint of step %" PRId64
                     " is complete: .resume continues from it after this is fixed",
                     r->saved);
}

// ------------------------------------------------------------------------------------- checkpoints

static bool lm_state_add_settings(ct_config *config, void *user, ct_err *err) {
    const ct_lm_run *r = user;
    // From these keys folders of a GPT-2 without a tokenizer.json have their tokens.
    const char *kind = r->o.chars ? "chars" : "bytes";
    if (!r->o.arch && !r->o.from && !r->bundle.tokenizer) {
        ct__config_set_string(config, "tokenizer", kind, strlen(kind));
        if (r->characters.s)
            ct__config_set_string(config, "vocabulary", r->characters.s, r->characters.n);
    }
    return ct__lm_settings_store(config, &r->o, &r->corpus, r->done, &r->best, err);
}

// The best weights are saved first: the files that are saved later force their names to disk.
static bool lm_state_save_model(ct_lm_run *r, const char *folder) {
    return (!ct__lm_run_has_best(r) || ct__checkpoint_link_best(r->dir, folder, r->err)) &&
           ct__lm_save(r->lm, folder, lm_state_add_settings, r, CT_NOWHERE);
}

static bool lm_state_write_checkpoint(ct_lm_run *r, int64_t steps_done) {
    char folder[CT_RUN_PATH], state[CT_RUN_PATH + 32];
    if (!ct__checkpoint_begin(r->dir, steps_done, folder, r->err)) return false;
    snprintf(state, sizeof state, "%s/state.safetensors", folder);
    return lm_state_save_model(r, folder) &&
           ct_params_save_at(ct_optim_state(r->optim), state, CT_NOWHERE) &&
           ct__checkpoint_commit(r->dir, steps_done, r->err);
}

// Updates the checkpoint of this step after a late evaluation, file by file, each one complete. The weights
// are the same; config.json, with the state of early stopping, is written last, so that until then a
// resumed run evaluates again.
static bool lm_state_update_checkpoint(ct_lm_run *r) {
    char folder[CT_RUN_PATH];
    return ct__checkpoint_path(r->dir, r->saved, NULL, folder, r->err) &&
           lm_state_save_model(r, folder);
}

// Puts the run, which has a save now, in the place of the other run.
static bool lm_state_replace_run(ct_lm_run *r) {
    if (!ct__run_replace(r->o.out, r->err) || !lm_state_set_dir(r, r->o.out)) return false;
    r->replaces_run = false;
    ct__lm_report(r, (ct_lm_event){.kind = CT_LM_OUTPUT_DIR, .text = r->o.out});
    return true;
}

bool ct__lm_state_save(int64_t steps_done, void *user) {
    ct_lm_run *r = user;
    // there is nothing yet that could replace the other run; a failure is reported
    if (r->replaces_run && !steps_done)
        return !ct__lm_run_should_stop(r) ||
               ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped before the first step: what is in %s stays", r->o.out);
    bool exists = steps_done == r->saved;
    bool is_current = exists && memcmp(&r->best, &r->saved_best, sizeof r->best) == 0;
    if (!is_current &&
        !(exists ? lm_state_update_checkpoint(r) : lm_state_write_checkpoint(r, steps_done))) {
        ct__checkpoint_abandon(r->dir, steps_done);
        if (r->err->code == CT_E_FILE) ct__lm_state_hint(r);
        return false;
    }
    r->saved = steps_done;
    r->saved_best = r->best;
    if (!r->tokenizer_saved && !ct__bundle_save(&r->bundle, r->dir, r->err)) {
        ct__lm_state_hint(r);
        return false;
    }
    r->tokenizer_saved = true;
    return (!r->replaces_run || lm_state_replace_run(r)) &&
           ct__checkpoint_publish(r->o.out, steps_done, r->err);
}

ct_fit_action ct__lm_state_keep_best(const ct_fit_state *point, void *user) {
    ct_lm_run *r = user;
    char folder[CT_RUN_PATH];
    ct_fit_best previous = r->best;
    r->best = point->best;
    if (r->keeps_best && point->improved &&
        !(ct__lm_state_path(r, r->dir, CT_RUN_BEST, folder) &&
          ct__lm_save(r->lm, folder, lm_state_add_settings, r, CT_NOWHERE) &&
          ct__bundle_save(&r->bundle, folder, r->err)))
        r->best = previous;
    return CT_FIT_CONTINUE;
}

bool ct__lm_state_save_tokenizer(ct_lm_run *r) {
    if (!r->bundle.tokenizer && !r->o.resume) return true;
    r->tokenizer_saved = ct__bundle_save(&r->bundle, r->dir, r->err);
    return r->tokenizer_saved &&
           (!r->bundle.tokenizer || ct__bundle_store_tokens(&r->corpus, r->dir, r->err));
}

// -------------------------------------------------------------------------------------- the folder

// Locks the folder for this process.
static bool lm_state_lock_folder(ct_lm_run *r) {
    return ct__run_lock(r->o.out, &r->lock, r->err) && ct__run_complete_replace(r->o.out, r->err);
}

// Checks what is in the folder: with `overwrite` anything may be replaced, whoever wrote it. The caller
// frees contents->names.
static bool lm_state_check_folder(const ct_lm_run *r, ct_run_contents *contents) {
    if (!ct__run_list_contents(r->o.out, contents, r->err)) return false;
    if (!contents->names.n) return true;
    if (r->o.overwrite) return ct__run_could_replace(r->o.out, r->err);
    if (contents->saved) {
        ct__lm_config_refuse(r->err, r->command,
                             "in %s is a run of %" PRId64 " step%s, which would be lost", r->o.out,
                             contents->steps, contents->steps == 1 ? "" : "s");
        ct__err_hint(r->err, ".resume continues it, .overwrite replaces it");
    } else {
        ct__lm_config_refuse(r->err, r->command, "in %s is what would be lost: %s", r->o.out,
                             contents->names.s);
        ct__err_hint(r->err, ".overwrite replaces it, another .out keeps it");
    }
    return false;
}

static bool lm_state_could_keep_best(const ct_lm_run *r) {
    return (!r->keeps_best && !r->resumed.has_best) || ct__run_check_best(r->o.out, r->err);
}

bool ct__lm_state_could_begin(const ct_lm_run *r) {
    ct_run_contents contents = {0};
    bool ok = ct__could_be_folder(r->o.out, r->err) && lm_state_check_folder(r, &contents) &&
              lm_state_could_keep_best(r);
    ct__text_free(&contents.names);
    return ok;
}

// Chooses the folder to write. What would be replaced stays complete until there is a save to put in its
// place.
static bool lm_state_choose_folder(ct_lm_run *r) {
    char next[CT_RUN_PATH];
    ct_run_contents contents = {0};
    bool ok = lm_state_check_folder(r, &contents); // another process may have begun meanwhile
    r->replaces_run = ok && contents.names.n;
    if (ok) ct__run_tidy(r->o.out);
    if (r->replaces_run && contents.saved)
        ct__warn(ct__ctx(), "the run in %s, of %" PRId64 " step%s, is replaced at the first save",
                 r->o.out, contents.steps, contents.steps == 1 ? "" : "s");
    else if (r->replaces_run)
        ct__warn(ct__ctx(), "what is in %s is replaced at the first save: %s", r->o.out,
                 contents.names.s);
    ct__text_free(&contents.names);
    if (r->replaces_run)
        return ct__run_begin_replace(r->o.out, next, r->err) && lm_state_set_dir(r, next);
    if (ok) ct__lm_report(r, (ct_lm_event){.kind = CT_LM_OUTPUT_DIR, .text = r->o.out});
    return ok && lm_state_set_dir(r, r->o.out);
}

bool ct__lm_state_make_folder(ct_lm_run *r) {
    bool named = r->o.out != NULL;
    if (!named) r->o.out = r->default_dir;
    return (named ? ct__make_dirs(r->o.out, 0777, r->err)
                  : ct__run_make_folder(r->default_dir, r->err)) &&
           lm_state_lock_folder(r) && lm_state_choose_folder(r);
}

bool ct__lm_state_reopen_folder(ct_lm_run *r) {
    r->o.out = r->o.resume;
    if (!ct__run_is_folder(r->o.out, r->err) || !lm_state_lock_folder(r) ||
        !lm_state_set_dir(r, r->o.out) || !ct__lm_resume(&r->o, &r->resumed, r->err))
        return false;
    r->first = r->saved = r->done = r->resumed.step;
    r->trained = r->first > 0;
    bool exists = r->resumed.best_in_folder || ct__checkpoint_has_best(r->o.out, r->first);
    bool has_patience = r->o.patience.value > 0, lost = r->resumed.best.val_loss == INFINITY;
    r->keeps_best = has_patience || exists || lost;
    // A loss whose weights were never kept does not count for early stopping.
    if (exists || lost || !has_patience) r->best = r->resumed.best;
    r->saved_best = r->best;
    return lm_state_could_keep_best(r);
}

// ---------------------------------------------------------------------------------------- resuming

bool ct__lm_state_make(ct_lm_run *r) {
    uint32_t key[2] = {(uint32_t)r->o.seed, (uint32_t)(r->o.seed >> 32)};
    ct_params *state = ct_optim_state(r->optim);
    r->position = ct_param(state, "loader.position", CT_I64, CT_SCALAR);
    r->random = ct_param(state, "random.key", CT_U32, CT_DIMS(2));
    {
        CT_SCOPE;
        ct_assign(r->position, ct_scalar(0, CT_I64));
        ct_assign(r->random, ct_from(key, CT_U32, CT_DIMS(2)));
    }
    return !r->err->code;
}

// Warns if this device computes with other rules than the run did, which gives other bits; the run
// continues.
static bool lm_state_compare_numerics(ct_lm_run *r) {
    char path[CT_RUN_PATH];
    ct_st file;
    if (!ct__checkpoint_path(r->o.out, r->first, "state.safetensors", path, r->err) ||
        !ct__st_open(path, &file, r->err))
        return false;
    const char *saved = ct__st_metadata(&file, "cotan.numerics"), *current = ct_numerics();
    if (saved && strcmp(saved, current) != 0) {
        char shown[CT_PRINTABLE];
        ct__warn(ct__ctx(),
                 "the run was computed with \"%s\", this device computes with \"%s\": other bits "
                 "than without the stop",
                 ct__printable(saved, strlen(saved), shown, sizeof shown), current);
    }
    ct__st_close(&file);
    return true;
}

bool ct__lm_state_load(ct_lm_run *r) {
    char state[CT_RUN_PATH];
    if (!ct__checkpoint_path(r->o.out, r->first, "state.safetensors", state, r->err) ||
        !ct_params_load_at(ct_optim_state(r->optim), state, CT_NOWHERE) ||
        !ct_optim_resume_at(r->optim, CT_NOWHERE))
        return false;
    CT_SCOPE;
    double position = ct_item(r->position);
    const uint32_t *key = ct_data(r->random);
    if (!key) return false;
    if (position != (double)r->first || ct_optim_step_count(r->optim) != r->first)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "it holds %" PRId64 " steps and loader position %.0f, not step %" PRId64,
                       ct_optim_step_count(r->optim), position, r->first);
    if (key[0] != (uint32_t)r->o.seed || key[1] != (uint32_t)(r->o.seed >> 32))
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, state,
                       "its random key is not that of the run's seed");
    return lm_state_compare_numerics(r);
}

static bool lm_state_restore_best(ct_lm_run *r) {
    const char *dir = r->o.out;
    if (!r->resumed.has_best) return true;
    const ct_err *damage = &r->resumed.damage;
    bool lost = damage->code && !r->resumed.best_in_folder;
    char folder[CT_RUN_PATH];
    if (damage->code) {
        ct__warn(ct__ctx(),
                 lost ? "%s; the run continues without the best weights so far, " CT_RUN_BEST
                        "/ will keep those of the evaluations to come"
                      : "%s; the same weights in " CT_RUN_BEST "/ are complete",
                 damage->text);
    }
    if (r->resumed.best_in_folder)
        return ct__checkpoint_path(dir, r->first, NULL, folder, r->err) &&
               ct__checkpoint_link_best(dir, folder, r->err);
    if (!ct__checkpoint_restore_best(dir, r->first, lost, r->err)) return false;
    return lost || !ct__checkpoint_has_best(dir, r->first) ||
           (ct__lm_state_path(r, dir, CT_RUN_BEST, folder) &&
            ct__bundle_save(&r->bundle, folder, r->err));
}

ct_fit_action ct__lm_state_on_resume(const ct_fit_state *point, void *user) {
    ct_lm_run *r = user;
    char text[128];
    (void)point;
    ct__run_tidy(r->o.out);
    if (!ct__checkpoint_remove_after(r->o.out, r->first, r->err) || !lm_state_restore_best(r) ||
        !ct__checkpoint_publish(r->o.out, r->first, r->err))
        return CT_FIT_CONTINUE; // the error ends the fit
    int n = snprintf(text, sizeof text, "resuming at step %" PRId64, r->first);
    if (r->first == r->o.steps)
        snprintf(text, sizeof text, "all %" PRId64 " steps are done; more .steps continue it",
                 r->first);
    else if (r->o.steps != r->resumed.steps)
        snprintf(text + n, sizeof text - (size_t)n, ", for %" PRId64 " steps instead of %" PRId64,
                 r->o.steps, r->resumed.steps);
    ct__lm_report(r, (ct_lm_event){.kind = CT_LM_RESUME, .text = text});
    return CT_FIT_CONTINUE;
}
