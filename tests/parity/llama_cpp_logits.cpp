// What llama.cpp says of texts, for test_llama_cpp.py:
//     llama_cpp_logits MODEL.gguf IDS TEXTS TIME WRITTEN OUT
// IDS has TEXTS times TIME tokens, i32. OUT gets the logits (TEXTS, TIME, vocab) f32, and WRITTEN tokens, the likeliest each
// time, behind the first text, i32. The cache is of f32.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

static llama_context *context_of(llama_model *model, int n) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = (uint32_t)n;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, p);
}

static bool read(llama_context *context, const llama_token *ids, int n, int at) {
    llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = at + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    const bool ok = llama_decode(context, batch) == 0;
    llama_batch_free(batch);
    return ok;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    const int texts = atoi(argv[3]), time = atoi(argv[4]), written = atoi(argv[5]);
    std::vector<llama_token> ids((size_t)texts * time);
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[6], "wb");
    if (!in || !out || fread(ids.data(), 4, ids.size(), in) != ids.size()) return 2;
    llama_backend_init();
    llama_log_set(
        [](ggml_log_level level, const char *text, void *) {
            if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
        },
        nullptr);
    llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = 0;
    p.use_extra_bufts = false; // weights as they are
    llama_model *model = llama_model_load_from_file(argv[1], p);
    if (!model) return 1;
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> text;
    llama_context *context = nullptr;
    for (int i = texts - 1; i >= 0; i--) { // the first one last, behind which is written
        if (context) llama_free(context);
        context = context_of(model, time + written);
        if (!context || !read(context, &ids[(size_t)i * time], time, 0)) return 1;
        fseek(out, (long)i * time * vocab * 4, SEEK_SET);
        for (int t = 0; t < time; t++)
            fwrite(llama_get_logits_ith(context, t), 4, (size_t)vocab, out);
    }
    fseek(out, (long)texts * time * vocab * 4, SEEK_SET);
    const float *last = llama_get_logits_ith(context, time - 1);
    for (int n = 0; n < written; n++) {
        const llama_token next = (llama_token)(std::max_element(last, last + vocab) - last);
        fwrite(&next, 4, 1, out);
        if (!read(context, &next, 1, time + n)) return 1;
        last = llama_get_logits_ith(context, 0);
    }
    return fclose(out) ? 1 : 0;
}
