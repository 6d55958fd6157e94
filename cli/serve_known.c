// The names that clients of OpenAI, vLLM, llama-server and Ollama document, in one table. Each is read, or changes no
// answer, or is refused in a sentence. Names outside the table are not looked at, since clients send many of their own.
#include <string.h>

#include "serve.h"

enum {
    OPENAI = NAMES_CHAT | NAMES_TEXT | NAMES_RESPONSES,
    WRITING = NAMES_CHAT | NAMES_TEXT | NAMES_NATIVE,
    EVERY = OPENAI | NAMES_NATIVE,
    OPTIONS = NAMES_OPTIONS,
    SAMPLING = EVERY | NAMES_OPTIONS,
    OLLAMA = NAMES_OLLAMA,
};

typedef struct known_name {
    unsigned families;
    const char *name;
    // Values that ask for nothing, a JSON list, besides null, false, "", [] and {}; where true is one, false is not.
    const char *neutral;
    const char *why; // why it is refused; NULL: it is not
} known_name;

static const char no_grammar[] = "what is written is not held to a grammar",
                  no_sampler[] = "there is no such sampler; temperature, top_k, top_p, min_p and "
                                 "typical_p are followed",
                  texts_alone[] = "the model reads texts alone",
                  own_template[] = "the model's own chat template is used",
                  no_middle[] = "what is written stands at the end of a text, not between two",
                  no_beams[] = "the server draws tokens one at a time, without beam search",
                  no_stored[] = "responses are not stored; send the items again";

#define TAKEN(families, name)                                                                      \
    { families, name, NULL, NULL }

static const known_name known[] = {
    // Output that is held to a form.
    {WRITING, "grammar", NULL, no_grammar},
    {WRITING, "json_schema", NULL, no_grammar},
    {WRITING, "guided_json", NULL, no_grammar},
    {WRITING, "guided_regex", NULL, no_grammar},
    {WRITING, "guided_choice", NULL, no_grammar},
    {WRITING, "guided_grammar", NULL, no_grammar},
    {WRITING, "guided_whitespace_pattern", NULL, no_grammar},
    {WRITING, "structural_tag", NULL, no_grammar},
    {WRITING, "structured_outputs", NULL, no_grammar},
    {WRITING, "grammar_triggers", NULL, no_grammar},
    {OLLAMA, "format", NULL, no_grammar},
    // How a token is drawn.
    {SAMPLING, "mirostat", "[0]", no_sampler},
    {SAMPLING, "tfs_z", "[1]", no_sampler},
    {WRITING, "dynatemp_range", "[0]", no_sampler},
    {WRITING, "top_n_sigma", "[-1, 0]", no_sampler},
    {WRITING, "xtc_probability", "[0]", no_sampler},
    {WRITING, "dry_multiplier", "[0]", no_sampler},
    {WRITING, "adaptive_target", "[-1]", no_sampler},
    {WRITING, "samplers", NULL, "the order of the samplers is fixed"},
    {WRITING, "min_keep", "[0, 1]", "samplers may leave one token"},
    {WRITING, "use_beam_search", NULL, no_beams},
    {WRITING, "length_penalty", "[1]", no_beams},
    {WRITING, "early_stopping", NULL, no_beams},
    {WRITING, "bad_words", NULL, "words are not banned; logit_bias bans tokens"},
    {WRITING, "allowed_token_ids", NULL,
     "tokens are not allowed one by one; logit_bias bans others"},
    {WRITING, "logits_processors", NULL, "code of a request is not run"},
    {WRITING, "lora", NULL, "adapters are not applied"},
    // When a text ends, and what of it is shown.
    {WRITING, "include_stop_str_in_output", NULL, "the stop string is not a part of the text"},
    {WRITING, "thinking_token_budget", NULL, "the length of a thought is not bounded apart"},
    {WRITING, "thinking_budget_tokens", "[-1]", "the length of a thought is not bounded apart"},
    {WRITING, "t_max_predict_ms", "[-1, 0]", "texts end by tokens, not by time"},
    {WRITING, "n_indent", "[0]", "texts end by tokens, not by indentation"},
    {WRITING, "truncate_prompt_tokens", NULL, "prompts are read whole"},
    {WRITING, "n_discard", "[0]", "a text that is full ends; nothing of it is discarded"},
    {NAMES_CHAT, "include_reasoning", "[true]", "a thought is always told, as reasoning_content"},
    {NAMES_CHAT, "reasoning_format", "[\"auto\", \"deepseek\"]",
     "a thought is always told, as reasoning_content"},
    {WRITING, "post_sampling_probs", NULL, "log-probabilities are the model's, before samplers"},
    {WRITING, "logprob_token_ids", NULL, "log-probabilities are told of the likeliest tokens"},
    {WRITING, "return_tokens_as_token_ids", NULL, "tokens are told as their text"},
    {NAMES_CHAT | NAMES_TEXT, "return_token_ids", NULL, "tokens are told as their text"},
    {NAMES_NATIVE, "response_fields", NULL, "all fields are told"},
    {OPENAI, "verbosity", "[\"medium\"]", "the model has no such setting"},
    // What is read.
    {NAMES_TEXT, "suffix", NULL, no_middle},
    {OLLAMA, "suffix", NULL, no_middle},
    {NAMES_NATIVE, "input_prefix", NULL, no_middle},
    {NAMES_NATIVE, "input_suffix", NULL, no_middle},
    {OLLAMA, "template", NULL, "the model's own is used, or none, with raw"},
    {OLLAMA, "context", NULL, "send the conversation to /api/chat"},
    {NAMES_CHAT, "chat_template", NULL, own_template},
    {NAMES_CHAT, "functions", NULL, "they are called tools by now"},
    {NAMES_CHAT, "function_call", "[\"none\"]", "it is called tool_choice by now"},
    {OLLAMA, "images", NULL, texts_alone},
    {NAMES_NATIVE, "image_data", NULL, texts_alone},
    {NAMES_NATIVE, "multimodal_data", NULL, texts_alone},
    {NAMES_CHAT, "mm_processor_kwargs", NULL, texts_alone},
    {WRITING, "prompt_embeds", NULL, "prompts are texts or tokens"},
    {WRITING, "kv_transfer_params", NULL, "keys and values stay where they are"},
    {WRITING, "vllm_xargs", NULL, "code of a request is not run"},
    // What is written.
    {NAMES_CHAT, "audio", NULL, "the model writes texts alone"},
    {NAMES_CHAT, "modalities", "[[\"text\"]]", "the model writes texts alone"},
    {NAMES_CHAT, "web_search_options", NULL, "nothing is searched for"},
    // Of responses.
    {NAMES_RESPONSES, "previous_response_id", NULL, no_stored},
    {NAMES_RESPONSES, "conversation", NULL, "conversations are not stored; send the items again"},
    {NAMES_RESPONSES, "prompt", NULL, "prompts are not stored; send instructions and input"},
    {NAMES_RESPONSES, "background", NULL,
     "responses are not stored; the answer comes with the request"},
    {NAMES_RESPONSES, "top_logprobs", "[0]", "log-probabilities are told by /v1/chat/completions"},
    {NAMES_RESPONSES, "n", "[1]", "a response is one text"},
    // These are read.
    TAKEN(EVERY | OLLAMA, "model"),
    TAKEN(EVERY | OLLAMA, "stream"),
    TAKEN(NAMES_CHAT | OLLAMA, "messages"),
    TAKEN(NAMES_CHAT | NAMES_RESPONSES | OLLAMA, "tools"),
    TAKEN(NAMES_CHAT | NAMES_RESPONSES, "tool_choice"),
    TAKEN(NAMES_CHAT | NAMES_RESPONSES, "parallel_tool_calls"),
    TAKEN(NAMES_TEXT | NAMES_NATIVE | OLLAMA, "prompt"),
    TAKEN(NAMES_RESPONSES, "input"),
    TAKEN(NAMES_RESPONSES, "instructions"),
    TAKEN(NAMES_RESPONSES, "reasoning"),
    TAKEN(NAMES_RESPONSES, "text"),
    TAKEN(NAMES_RESPONSES, "max_output_tokens"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "max_tokens"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "max_completion_tokens"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "n"),
    TAKEN(NAMES_TEXT, "best_of"),
    TAKEN(NAMES_TEXT, "echo"),
    TAKEN(NAMES_CHAT | NAMES_TEXT | OLLAMA, "logprobs"),
    TAKEN(NAMES_CHAT | OLLAMA, "top_logprobs"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "prompt_logprobs"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "response_format"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "stream_options"),
    TAKEN(NAMES_CHAT, "reasoning_effort"),
    TAKEN(NAMES_CHAT | NAMES_RESPONSES, "chat_template_kwargs"),
    TAKEN(NAMES_CHAT, "add_generation_prompt"),
    TAKEN(NAMES_CHAT, "continue_final_message"),
    TAKEN(NAMES_CHAT | NAMES_TEXT, "add_special_tokens"),
    TAKEN(EVERY, "logit_bias"),
    TAKEN(SAMPLING, "temperature"),
    TAKEN(SAMPLING, "top_k"),
    TAKEN(SAMPLING, "top_p"),
    TAKEN(SAMPLING, "min_p"),
    TAKEN(SAMPLING, "typical_p"),
    TAKEN(SAMPLING, "seed"),
    TAKEN(SAMPLING, "presence_penalty"),
    TAKEN(SAMPLING, "frequency_penalty"),
    TAKEN(SAMPLING, "repeat_penalty"),
    TAKEN(EVERY, "repetition_penalty"),
    TAKEN(EVERY, "ignore_eos"),
    TAKEN(EVERY, "min_tokens"),
    TAKEN(EVERY, "stop_token_ids"),
    TAKEN(EVERY, "skip_special_tokens"),
    TAKEN(SAMPLING, "stop"),
    TAKEN(SAMPLING, "repeat_last_n"),
    TAKEN(OPTIONS, "num_predict"),
    TAKEN(OPTIONS, "num_ctx"),
    TAKEN(OLLAMA, "options"),
    TAKEN(OLLAMA, "system"),
    TAKEN(OLLAMA, "raw"),
    TAKEN(OLLAMA, "think"),
    TAKEN(NAMES_NATIVE, "n_predict"),
    TAKEN(NAMES_NATIVE, "n_probs"),
    TAKEN(NAMES_NATIVE, "return_tokens"),
    // These change no answer: labels, hints for speed, and settings of samplers that are refused where they are on.
    TAKEN(OPENAI, "user"),
    TAKEN(OPENAI, "metadata"),
    TAKEN(OPENAI, "store"),
    TAKEN(OPENAI, "service_tier"),
    TAKEN(OPENAI, "safety_identifier"),
    TAKEN(OPENAI, "prompt_cache_key"),
    TAKEN(OPENAI, "prompt_cache_retention"),
    TAKEN(NAMES_CHAT, "prediction"),
    TAKEN(NAMES_RESPONSES, "include"),
    TAKEN(NAMES_RESPONSES, "truncation"),
    TAKEN(NAMES_RESPONSES, "max_tool_calls"),
    TAKEN(EVERY, "priority"),
    TAKEN(EVERY, "request_id"),
    TAKEN(EVERY, "cache_salt"),
    TAKEN(EVERY, "cache_prompt"),
    TAKEN(EVERY, "id_slot"),
    TAKEN(EVERY, "n_keep"),
    TAKEN(EVERY, "timings_per_token"),
    TAKEN(EVERY, "return_progress"),
    TAKEN(EVERY, "guided_decoding_backend"),
    TAKEN(EVERY, "spaces_between_special_tokens"),
    TAKEN(SAMPLING, "mirostat_tau"),
    TAKEN(SAMPLING, "mirostat_eta"),
    TAKEN(EVERY, "dynatemp_exponent"),
    TAKEN(EVERY, "xtc_threshold"),
    TAKEN(EVERY, "dry_base"),
    TAKEN(EVERY, "dry_allowed_length"),
    TAKEN(EVERY, "dry_penalty_last_n"),
    TAKEN(EVERY, "dry_sequence_breakers"),
    TAKEN(EVERY, "adaptive_decay"),
    TAKEN(EVERY, "t_max_prompt_ms"),
    TAKEN(OLLAMA, "keep_alive"),
    TAKEN(OLLAMA, "truncate"),
    TAKEN(OLLAMA, "shift"),
    TAKEN(OPTIONS, "num_keep"),
    TAKEN(OPTIONS, "num_batch"),
    TAKEN(OPTIONS, "num_gpu"),
    TAKEN(OPTIONS, "main_gpu"),
    TAKEN(OPTIONS, "num_thread"),
    TAKEN(OPTIONS, "low_vram"),
    TAKEN(OPTIONS, "f16_kv"),
    TAKEN(OPTIONS, "use_mmap"),
    TAKEN(OPTIONS, "use_mlock"),
    TAKEN(OPTIONS, "numa"),
    TAKEN(OPTIONS, "vocab_only"),
    TAKEN(OPTIONS, "logits_all"),
    TAKEN(OPTIONS, "penalize_newline"),
};

static bool is_same(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static bool is_neutral(const json_t *value, const json_t *neutral) {
    bool is_true_neutral = false;
    const json_t *one;
    size_t i;
    json_array_foreach(neutral, i, one) {
        if (is_same(value, one)) return true;
        is_true_neutral |= json_is_true(one);
    }
    if (json_is_false(value)) return !is_true_neutral;
    return json_is_null(value) || (json_is_string(value) && !json_string_length(value)) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

bool refuse_known(exchange *x, unsigned family, json_t *from, const char *where) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const known_name *k = &known[i];
        const json_t *value =
            k->why && k->families & family ? json_object_get(from, k->name) : NULL;
        if (!value) continue;
        json_t *neutral = json_loads(k->neutral ? k->neutral : "[]", 0, NULL);
        const bool asks_nothing = is_neutral(value, neutral);
        json_decref(neutral);
        if (asks_nothing) continue;
        char param[96];
        snprintf(param, sizeof param, "%s%s", where, k->name);
        return refuse_request(x, 400, param, "%s: %s", param, k->why);
    }
    return true;
}
