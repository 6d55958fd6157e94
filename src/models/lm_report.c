// What a training run reports: the events of ct_lm_train_options.on_event, and warnings.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/os.h"
#include "io/utf8.h"
#include "models/lm_run.h"

void ct__lm_report(const ct_lm_run *r, ct_lm_event event) {
    if (r->o.on_event) r->o.on_event(&event, r->o.user);
}

// Reports the text, "" if memory ran out, and frees it.
static void lm_report_text(const ct_lm_run *r, ct_lm_event_kind kind, ct_text *text) {
    ct__lm_report(r, (ct_lm_event){.kind = kind, .text = text->failed ? "" : text->s});
    ct__text_free(text);
}

static void lm_report_add_grouped(ct_text *text, int64_t n) { // 12,345,678
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < length; i++)
        ct__textf(text, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void lm_report_add_duration(ct_text *text, double seconds) {
    if (seconds < 90)
        ct__textf(text, "%.0f s", seconds < 1 ? 1 : seconds);
    else if (seconds < 5400)
        ct__textf(text, "%.0f min", seconds / 60);
    else
        ct__textf(text, "%.1f h", seconds / 3600);
}

static const char *lm_report_token_unit(const ct_lm_run *r) {
    return r->bundle.tokenizer ? "tokens" : r->o.chars ? "characters" : "bytes";
}

void ct__lm_report_model(ct_lm_run *r, const ct_lm_size *size) {
    const ct_lm_train_options *o = &r->o;
    ct_text text = {0};
    if (r->bundle.tokenizer) ct__textf(&text, "%zu bytes of text, ", r->corpus.bytes);
    ct__textf(&text,
              r->bundle.tokenizer ? "%zu %s, %zu to train on; "
                                  : "%zu %s of text, %zu to train on; ",
              r->corpus.n, lm_report_token_unit(r), r->n_train);
    if (r->bundle.tokenizer && !o->from)
        ct__textf(&text, "a vocabulary of %" PRId32 "; ", r->corpus.vocab.n);
    if (o->from)
        ct__textf(&text, "on from %s, ", o->from);
    else if (o->arch)
        ct__textf(&text, "%s, ", o->arch);
    if (size->is_chosen && !o->from) ct__text_add(&text, "chosen for this machine: ");
    ct__textf(&text,
              "%" PRId64 " layer%s, %" PRId64 " head%s, width %" PRId64 ", context %" PRId64 ", ",
              o->layers, o->layers == 1 ? "" : "s", o->heads, o->heads == 1 ? "" : "s", o->width,
              o->context);
    if (o->precision != CT_F32) ct__textf(&text, "products in %s, ", ct_dtype_name(o->precision));
    if (o->accumulate > 1)
        ct__textf(&text, "%" PRId64 " batches of %" PRId64 " a step: ", o->accumulate, o->batch);
    else
        ct__textf(&text, "batch %" PRId64 ": ", o->batch);
    lm_report_add_grouped(&text, ct__lm_config_count_parameters(o, r));
    ct__textf(&text, " parameters, about %.0f MB of memory", ceil((double)size->cost.total / 1e6));
    if (size->cost.recomputed_blocks)
        ct__textf(&text, " with %zu of %zu blocks computed again in gradients",
                  size->cost.recomputed_blocks, size->cost.blocks);
    if (size->seconds > 0) {
        ct__textf(&text, ", about ");
        lm_report_add_duration(&text, size->seconds);
        ct__textf(&text, " for %" PRId64 " steps (%.3g GFLOP/s measured)", o->steps, size->gflops);
    }
    if (size->memory_is_short)
        ct__text_add(&text, "; this machine has memory for a larger one, but others use it now");
    lm_report_text(r, CT_LM_MODEL, &text);
}

void ct__lm_report_memory(const ct_lm_run *r, const ct_lm_cost *planned, uint64_t peak_before) {
    ct_text text = {0};
    uint64_t peak = ct_get_stats().peak_memory;
    if (peak <= peak_before) return;
    ct__textf(&text, "memory: tensors %s (%s planned), the process %s (%s planned)",
              ct__bytes_text(peak).s, ct__bytes_text(planned->devices).s,
              ct__bytes_text(ct__resident_peak_bytes()).s, ct__bytes_text(planned->total).s);
    lm_report_text(r, CT_LM_MEMORY, &text);
}

void ct__lm_report_early_stop(const ct_lm_run *r) {
    ct_text text = {0}, best_dir = {0};
    if (!r->keeps_best || !r->best.evaluations) return;
    ct__textf(&text, "stopped early, after step %" PRId64 " of %" PRId64 ": the validation loss ",
              r->done, r->o.steps);
    if (r->best.val_loss > r->best.reference_loss) // the weights of the lowest loss were lost
        ct__textf(&text, "did not fall below %.4f in %" PRId64 " evaluations",
                  r->best.reference_loss, r->best.stale_evaluations);
    else if (r->best.val_loss < r->best.reference_loss)
        ct__textf(&text, "fell by no more than %g below %.4f in %" PRId64 " evaluations, to %.4f",
                  r->o.min_delta.value, r->best.reference_loss, r->best.stale_evaluations,
                  r->best.val_loss);
    else
        ct__textf(&text,
                  "did not improve on the %.4f of step %" PRId64 " in %" PRId64 " evaluations",
                  r->best.val_loss, r->best.steps, r->best.stale_evaluations);
    if (r->end == CT_FIT_PATIENCE)
        ct__lm_report(r,
                      (ct_lm_event){.kind = CT_LM_EARLY_STOP, .text = text.failed ? "" : text.s});
    ct__textf(&best_dir, "%s/%s", r->o.out, CT_RUN_BEST);
    if (!best_dir.failed && ct__lm_run_has_best(r))
        ct__lm_report(r, (ct_lm_event){.kind = CT_LM_BEST, .text = best_dir.s});
    ct__text_free(&text);
    ct__text_free(&best_dir);
}

// Computes the number of bytes of the held-out text.
static bool lm_report_held_out_bytes(const ct_lm_run *r, double *bytes) {
    const int32_t *tokens = r->corpus.tokens + r->n_train;
    const size_t n = r->corpus.n - r->n_train;
    char one[4];
    if (r->bundle.tokenizer) return ct__bundle_count_bytes(&r->bundle, tokens, n, bytes, r->err);
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        *bytes += r->o.chars ? (double)ct__utf8_put(r->corpus.vocab.chars[tokens[i]], one) : 1;
    return true;
}

bool ct__lm_report_done(const ct_lm_run *r) {
    bool best = ct__lm_run_has_best(r);
    double loss = best ? r->best.val_loss : r->val_loss;
    ct_text text = {0};
    double bytes, n = (double)(r->corpus.n - r->n_train);
    if (!lm_report_held_out_bytes(r, &bytes)) return false;
    ct__textf(&text, "held-out loss: %.4f nats a byte", loss * n / (bytes > 0 ? bytes : 1));
    if (r->o.chars) ct__textf(&text, ", %.4f nats a character", loss);
    if (r->bundle.tokenizer) ct__textf(&text, ", %.4f nats a token", loss);
    if (best) ct__textf(&text, ", after step %" PRId64, r->best.steps);
    lm_report_text(r, CT_LM_DONE, &text);
    return true;
}

static bool lm_report_collect_sample(const char *text, size_t n, void *user) {
    ct_lm_run *r = user;
    ct__text_bytes(&r->sample, text, n);
    return !r->sample.failed;
}

bool ct__lm_report_should_stop(void *user) { return ct__lm_run_should_stop(user); }

bool ct__lm_report_sample(ct_lm_run *r) {
    char prompt[4];
    if (!r->o.on_event) return true;
    ct_lm_draw draw = {.prompt = prompt,
                       .prompt_n = ct__lm_first(&r->corpus.vocab, prompt),
                       .max_tokens = CT_LM_SAMPLE_TOKENS,
                       .top_k = 40,
                       .temperature = 0.8,
                       .seed = r->o.seed,
                       .write = lm_report_collect_sample,
                       .stop = ct__lm_report_should_stop,
                       .user = r};
    ct__text_free(&r->sample);
    if (!ct__lm_write(r->lm, r->cache, &r->corpus.vocab, &r->bundle, &draw, r->err)) return false;
    // Untrained weights generate a sample too, so that all plans are made with the first step; it is not
    // reported.
    if (!r->trained) return true;
    ct__lm_report(r, (ct_lm_event){.kind = CT_LM_SAMPLE,
                                   .text = r->sample.s ? r->sample.s : "",
                                   .text_n = r->sample.n,
                                   .state.done = r->done});
    return true;
}
