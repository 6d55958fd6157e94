// The model that a run trains, a ct_gpt2 or a ct_lm, behind one interface.
#include "models/learner.h"

#include <stdio.h>
#include <string.h>

#include "io/config.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "ops/rules.h"

// The context of a model whose architecture has no limit.
enum { UNLIMITED_CONTEXT = 4096 };

// True if the folder has a GPT-2, or no readable config.json, whose error ct_gpt2_load reports.
static bool trained_is_gpt2(const char *dir) {
    ct_text path = {0};
    ct_config config;
    ct_err ignored = {0};
    const char *type = "";
    size_t n = 0;
    ct__textf(&path, "%s/config.json", dir);
    bool is = true;
    if (!path.failed && ct__config_read(path.s, &config, &ignored)) {
        is = !ct__config_string(&config, "model_type", &type, &n, &ignored) ||
             (n == 4 && memcmp(type, "gpt2", 4) == 0);
        ct__config_close(&config);
    }
    ct__text_free(&path);
    return is;
}

// Verifies the checksums of a run's folder.
static bool trained_verify(const char *dir, ct_err *err) {
    ct_text path = {0};
    ct_config config;
    ct_st file;
    ct__textf(&path, "%s/config.json", dir);
    bool ok = !path.failed && ct__config_read(path.s, &config, err);
    if (!ok) return false;
    const bool is_run = ct__config_has(&config, "training");
    ok = !is_run || ct__config_verify(&config, false, err);
    ct__config_close(&config);
    ct__text_free(&path);
    if (!ok || !is_run) return ok;
    ct__textf(&path, "%s/model.safetensors", dir);
    ok = !path.failed && ct__st_open(path.s, &file, err);
    if (ok) {
        ok = ct__st_verify(&file, path.s, false, err);
        ct__st_close(&file);
    }
    ct__text_free(&path);
    return ok;
}

bool ct__learner_load(const char *dir, bool trainable, ct_learner *model) {
    *model = (ct_learner){0};
    if (ct__weights_are_foreign(dir, &ct__ctx()->err)) return false;
    if (trained_is_gpt2(dir))
        model->gpt2 = ct_gpt2_load_at(dir, CT_NOWHERE);
    else if (trained_verify(dir, &ct__ctx()->err))
        model->lm =
            ct_lm_load_with(dir, (ct_lm_load_options){.trainable = trainable, .here = CT_NOWHERE});
    if (!model->lm || (!model->lm->reader && !model->lm->spec.bidirectional))
        return model->gpt2 || model->lm;
    ct__err(&ct__ctx()->err, CT_E_ARGUMENT, CT_NOWHERE, dir, "%s does not generate text",
            model->lm->spec.type);
    ct__learner_free(model);
    return false;
}

void ct__learner_free(ct_learner *model) {
    ct_gpt2_free(model->gpt2);
    ct_lm_free(model->lm);
    *model = (ct_learner){0};
}

ct_params *ct__learner_params(const ct_learner *model) {
    return model->gpt2 ? ct_gpt2_params(model->gpt2) : ct_lm_params(model->lm);
}

int64_t ct__learner_vocab(const ct_learner *model) {
    return model->gpt2 ? model->gpt2->config.vocab : model->lm->spec.vocab;
}

int64_t ct__learner_context(const ct_learner *model) {
    const int64_t context = model->gpt2 ? model->gpt2->config.context : model->lm->spec.context;
    return context ? context : UNLIMITED_CONTEXT;
}

ct_tensor ct__learner_logits(const ct_learner *model, ct_tensor tokens, ct_nn_mode *mode,
                             ct_loc here) {
    return model->gpt2 ? ct_gpt2_logits_at(model->gpt2, tokens, mode, here)
                       : ct_lm_logits_at(model->lm, tokens, mode, here);
}

ct_tensor ct__learner_loss(const ct_learner *model, ct_tensor tokens, ct_tensor targets,
                           ct_nn_mode *mode, ct_loc here) {
    if (model->gpt2) return ct_gpt2_loss_at(model->gpt2, tokens, targets, mode, here);
    ct_tensor logits = ct_lm_logits_at(model->lm, tokens, mode, here); // (B, T, vocab)
    return ct_cross_entropy_with(
        (ct_cross_entropy_args){.logits = logits, .targets = targets, .here = here});
}

bool ct__learner_save(const ct_learner *model, const char *dir, ct__config_more add_keys,
                      void *user) {
    return model->gpt2 ? ct__gpt2_save(model->gpt2, dir, add_keys, user, CT_NOWHERE)
                       : ct__lm_save(model->lm, dir, add_keys, user, CT_NOWHERE);
}

// ------------------------------------------------------------------------------------------ decoding

bool ct__learner_cache_new(const ct_learner *model, int64_t max_length, ct_learner_cache *cache) {
    *cache = (ct_learner_cache){.capacity = ct__learner_context(model)};
    if (model->gpt2) return (cache->gpt2 = ct_gpt2_cache_new(model->gpt2, 1, 0)) != NULL;
    if (max_length < cache->capacity) cache->capacity = max_length;
    cache->n_pages = (cache->capacity + CT_LM_PAGE - 1) / CT_LM_PAGE;
    cache->pages = ct__malloc((size_t)cache->n_pages * sizeof *cache->pages);
    if (!cache->pages)
        return ct__err_memory(&ct__ctx()->err, CT_NOWHERE, "lm", (size_t)cache->n_pages * 4);
    for (int64_t i = 0; i < cache->n_pages; i++) cache->pages[i] = (int32_t)i;
    cache->lm = ct__lm_cache_new(model->lm, cache->n_pages, 1, CT_F32, CT_NOWHERE);
    return cache->lm != NULL;
}

void ct__learner_cache_free(ct_learner_cache *cache) {
    ct_gpt2_cache_free(cache->gpt2);
    ct__lm_cache_free(cache->lm);
    ct__free(cache->pages);
    *cache = (ct_learner_cache){0};
}

ct_tensor ct__learner_read(const ct_learner *model, ct_learner_cache *cache, const int32_t *tokens,
                           int64_t n, int64_t position, int64_t max_length) {
    ct_tensor x = ct_from(tokens, CT_I32, CT_DIMS(1, n > 1 ? CT_DYN(n) : 1)); // (1, n)
    if (model->gpt2) return ct_gpt2_decode(model->gpt2, cache->gpt2, x, ct_i(position));
    const int32_t at = (int32_t)position, state = 0;
    const ct_lm_part part = {.tokens = x,
                             .position = ct_from(&at, CT_I32, CT_DIMS(1, 1)),
                             .table = ct_from(cache->pages, CT_I32, CT_DIMS(1, cache->n_pages)),
                             .state = ct_from(&state, CT_I32, CT_DIMS(1))};
    return ct__lm_step(model->lm, cache->lm, &part, 1, max_length, CT_NOWHERE);
}
