#include "fuzz/harness/tokenizer.h"
#include "text/gguf.h"

// Metadata becomes a tokenizer, and chat templates; or there is an error in words.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char text[] = "Don't stop 漢字 123 <s>\n\n end \xff";
    ct_gguf g;
    ct_err err = {0};
    if (!ct__gguf_parse("f", bytes, n, &g, &err)) return 0;
    ct_tokenizer *t = ct__tokenizer_new("f", &err);
    EXPECT(t);
    if (ct__tokenizer_of_gguf(t, &g, &err)) {
        harness_tokenize(t, text, sizeof text - 1);
        for (size_t i = 0; i < t->n_eos_ids; i++)
            EXPECT(t->eos_ids[i] >= 0 && t->eos_ids[i] < t->n_ids);
    } else {
        EXPECT(err.code && strncmp(err.text, "f: ", 3) == 0);
    }
    ct__tokenizer_free(t);
    err = (ct_err){0};
    json_t *chat = ct__chat_of_gguf(&g, &err);
    EXPECT(chat ? json_is_array(json_object_get(chat, "chat_template"))
                : err.code && strncmp(err.text, "f: ", 3) == 0);
    json_decref(chat);
    ct__gguf_close(&g);
    return 0;
}
