// The request members that OpenAI, vLLM, llama-server and Ollama document, in one table. Each is parsed,
// has no effect on the result, or is rejected with a reason. Members outside the table are ignored,
// since clients send many of their own.

#include "serve.h"

enum {
    FIELDS_OPENAI = FIELDS_CHAT | FIELDS_COMPLETION | FIELDS_RESPONSES,
    FIELDS_GENERATION = FIELDS_CHAT | FIELDS_COMPLETION | FIELDS_NATIVE,
    FIELDS_ALL = FIELDS_OPENAI | FIELDS_NATIVE,
    FIELDS_OPTIONS = FIELDS_OLLAMA_OPTIONS,
    FIELDS_SAMPLING = FIELDS_ALL | FIELDS_OLLAMA_OPTIONS,
    FIELDS_OLLAMA_ALL = FIELDS_OLLAMA,
};

typedef struct known_field {
    unsigned families;
    const char *name; // of accepted ones: names
    // A JSON list of values that have no effect, besides null, false, "", [] and {}; if true is in the
    // list, false is not neutral.
    const char *neutral;
    const char *reason; // why it is rejected; NULL: it is accepted
} known_field;

static const char
    no_grammar[] = "constrained output (grammars) is not supported",
    no_sampler[] =
        "this sampler is not supported; temperature, top_k, top_p, min_p and typical_p are",
    texts_alone[] = "the model accepts text only",
    own_template[] = "the model's own chat template is used",
    no_middle[] = "fill-in-the-middle is not supported",
    no_beams[] = "the server draws tokens one at a time, without beam search",
    no_stored[] = "responses are not stored; send the items again";

#define ACCEPTED(families, names)                                                                  \
    { families, names, NULL, NULL }

static const known_field known_fields[] = {
    // Constrained output.
    {FIELDS_GENERATION, "grammar", NULL, no_grammar},
    {FIELDS_GENERATION, "json_schema", NULL, no_grammar},
    {FIELDS_GENERATION, "guided_json", NULL, no_grammar},
    {FIELDS_GENERATION, "guided_regex", NULL, no_grammar},
    {FIELDS_GENERATION, "guided_choice", NULL, no_grammar},
    {FIELDS_GENERATION, "guided_grammar", NULL, no_grammar},
    {FIELDS_GENERATION, "guided_whitespace_pattern", NULL, no_grammar},
    {FIELDS_GENERATION, "structural_tag", NULL, no_grammar},
    {FIELDS_GENERATION, "structured_outputs", NULL, no_grammar},
    {FIELDS_GENERATION, "grammar_triggers", NULL, no_grammar},
    {FIELDS_OLLAMA_ALL, "format", NULL, no_grammar},
    // Sampling.
    {FIELDS_SAMPLING, "mirostat", "[0]", no_sampler},
    {FIELDS_SAMPLING, "tfs_z", "[1]", no_sampler},
    {FIELDS_GENERATION, "dynatemp_range", "[0]", no_sampler},
    {FIELDS_GENERATION, "top_n_sigma", "[-1, 0]", no_sampler},
    {FIELDS_GENERATION, "xtc_probability", "[0]", no_sampler},
    {FIELDS_GENERATION, "dry_multiplier", "[0]", no_sampler},
    {FIELDS_GENERATION, "adaptive_target", "[-1]", no_sampler},
    {FIELDS_GENERATION, "samplers", NULL, "the order of the samplers is fixed"},
    {FIELDS_GENERATION, "min_keep", "[0, 1]", "samplers may leave one token"},
    {FIELDS_GENERATION, "use_beam_search", NULL, no_beams},
    {FIELDS_GENERATION, "length_penalty", "[1]", no_beams},
    {FIELDS_GENERATION, "early_stopping", NULL, no_beams},
    {FIELDS_GENERATION, "bad_words", NULL, "words are not banned; logit_bias bans tokens"},
    {FIELDS_GENERATION, "allowed_token_ids", NULL,
     "tokens are not allowed one by one; logit_bias bans others"},
    {FIELDS_GENERATION, "logits_processors", NULL, "code of a request is not run"},
    {FIELDS_GENERATION, "lora", NULL, "adapters are not applied"},
    // The end of a generation, and what is reported of it.
    {FIELDS_GENERATION, "include_stop_str_in_output", NULL,
     "the stop string is not a part of the text"},
    {FIELDS_GENERATION, "thinking_token_budget", NULL,
     "the length of a thought is not bounded apart"},
    {FIELDS_GENERATION, "thinking_budget_tokens", "[-1]",
     "the length of a thought is not bounded apart"},
    {FIELDS_GENERATION, "t_max_predict_ms", "[-1, 0]",
     "generation is limited by tokens, not by time"},
    {FIELDS_GENERATION, "n_indent", "[0]", "generation is limited by tokens, not by indentation"},
    {FIELDS_GENERATION, "truncate_prompt_tokens", NULL, "prompts are read whole"},
    {FIELDS_GENERATION, "n_discard", "[0]", "a text that is full ends; nothing of it is discarded"},
    {FIELDS_CHAT, "include_reasoning", "[true]",
     "reasoning is always returned, as reasoning_content"},
    {FIELDS_CHAT, "reasoning_format", "[\"auto\", \"deepseek\"]",
     "reasoning is always returned, as reasoning_content"},
    {FIELDS_GENERATION, "post_sampling_probs", NULL,
     "log-probabilities are the model's, before samplers"},
    {FIELDS_GENERATION, "logprob_token_ids", NULL,
     "log-probabilities are reported for the most likely tokens only"},
    {FIELDS_GENERATION, "return_tokens_as_token_ids", NULL, "tokens are reported as text"},
    {FIELDS_CHAT | FIELDS_COMPLETION, "return_token_ids", NULL, "tokens are reported as text"},
    {FIELDS_NATIVE, "response_fields", NULL, "all fields are returned"},
    {FIELDS_OPENAI, "verbosity", "[\"medium\"]", "the model has no such setting"},
    // Input.
    {FIELDS_COMPLETION, "suffix", NULL, no_middle},
    {FIELDS_OLLAMA_ALL, "suffix", NULL, no_middle},
    {FIELDS_NATIVE, "input_prefix", NULL, no_middle},
    {FIELDS_NATIVE, "input_suffix", NULL, no_middle},
    {FIELDS_OLLAMA_ALL, "template", NULL, "the model's own is used, or none, with raw"},
    {FIELDS_OLLAMA_ALL, "context", NULL, "send the conversation to /api/chat"},
    {FIELDS_CHAT, "chat_template", NULL, own_template},
    {FIELDS_CHAT, "functions", NULL, "they are called tools by now"},
    {FIELDS_CHAT, "function_call", "[\"none\"]", "it is called tool_choice by now"},
    {FIELDS_OLLAMA_ALL, "images", NULL, texts_alone},
    {FIELDS_NATIVE, "image_data", NULL, texts_alone},
    {FIELDS_NATIVE, "multimodal_data", NULL, texts_alone},
    {FIELDS_CHAT, "mm_processor_kwargs", NULL, texts_alone},
    {FIELDS_GENERATION, "prompt_embeds", NULL, "prompts are text or tokens"},
    {FIELDS_GENERATION, "kv_transfer_params", NULL, "keys and values stay where they are"},
    {FIELDS_GENERATION, "vllm_xargs", NULL, "code of a request is not run"},
    // Output.
    {FIELDS_CHAT, "audio", NULL, "the model generates text only"},
    {FIELDS_CHAT, "modalities", "[[\"text\"]]", "the model generates text only"},
    {FIELDS_CHAT, "web_search_options", NULL, "nothing is searched for"},
    // Responses.
    {FIELDS_RESPONSES, "previous_response_id", NULL, no_stored},
    {FIELDS_RESPONSES, "conversation", NULL, "conversations are not stored; send the items again"},
    {FIELDS_RESPONSES, "prompt", NULL, "prompts are not stored; send instructions and input"},
    {FIELDS_RESPONSES, "background", NULL,
     "responses are not stored; the answer comes with the request"},
    {FIELDS_RESPONSES, "top_logprobs", "[0]",
     "log-probabilities are reported by /v1/chat/completions"},
    {FIELDS_RESPONSES, "n", "[1]", "a response is one text"},
    // Supported members.
    ACCEPTED(FIELDS_ALL | FIELDS_OLLAMA_ALL, "model stream"),
    ACCEPTED(FIELDS_CHAT | FIELDS_OLLAMA_ALL, "messages top_logprobs"),
    ACCEPTED(FIELDS_CHAT | FIELDS_RESPONSES | FIELDS_OLLAMA_ALL, "tools"),
    ACCEPTED(FIELDS_CHAT | FIELDS_RESPONSES,
             "tool_choice parallel_tool_calls chat_template_kwargs"),
    ACCEPTED(FIELDS_COMPLETION | FIELDS_NATIVE | FIELDS_OLLAMA_ALL, "prompt"),
    ACCEPTED(FIELDS_RESPONSES, "input instructions reasoning text max_output_tokens"),
    ACCEPTED(FIELDS_CHAT | FIELDS_COMPLETION,
             "max_tokens max_completion_tokens n prompt_logprobs response_format stream_options "
             "add_special_tokens"),
    ACCEPTED(FIELDS_COMPLETION, "best_of echo"),
    ACCEPTED(FIELDS_CHAT | FIELDS_COMPLETION | FIELDS_OLLAMA_ALL, "logprobs"),
    ACCEPTED(FIELDS_CHAT, "reasoning_effort add_generation_prompt continue_final_message"),
    ACCEPTED(FIELDS_ALL, "logit_bias repetition_penalty ignore_eos min_tokens stop_token_ids "
                         "skip_special_tokens"),
    ACCEPTED(FIELDS_SAMPLING,
             "temperature top_k top_p min_p typical_p seed presence_penalty frequency_penalty "
             "repeat_penalty stop repeat_last_n"),
    ACCEPTED(FIELDS_OPTIONS, "num_predict num_ctx"),
    ACCEPTED(FIELDS_OLLAMA_ALL, "options system raw think"),
    ACCEPTED(FIELDS_NATIVE, "n_predict n_probs return_tokens"),
    // Members without effect on the result: labels, performance hints, and parameters of samplers that
    // are rejected when enabled.
    ACCEPTED(FIELDS_OPENAI, "user metadata store service_tier safety_identifier prompt_cache_key "
                            "prompt_cache_retention"),
    ACCEPTED(FIELDS_CHAT, "prediction"),
    ACCEPTED(FIELDS_RESPONSES, "include truncation max_tool_calls"),
    ACCEPTED(FIELDS_ALL,
             "priority request_id cache_salt cache_prompt id_slot n_keep timings_per_token "
             "return_progress guided_decoding_backend spaces_between_special_tokens "
             "dynatemp_exponent xtc_threshold dry_base dry_allowed_length dry_penalty_last_n "
             "dry_sequence_breakers adaptive_decay t_max_prompt_ms"),
    ACCEPTED(FIELDS_SAMPLING, "mirostat_tau mirostat_eta"),
    ACCEPTED(FIELDS_OLLAMA_ALL, "keep_alive truncate shift"),
    ACCEPTED(FIELDS_OPTIONS,
             "num_keep num_batch num_gpu main_gpu num_thread low_vram f16_kv use_mmap use_mlock "
             "numa vocab_only logits_all penalize_newline"),
};

static bool known_values_equal(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static bool known_value_is_neutral(const json_t *value, const json_t *neutral) {
    bool is_true_neutral = false;
    const json_t *one;
    size_t i;
    json_array_foreach(neutral, i, one) {
        if (known_values_equal(value, one)) return true;
        is_true_neutral |= json_is_true(one);
    }
    if (json_is_false(value)) return !is_true_neutral;
    return json_is_null(value) || (json_is_string(value) && !json_string_length(value)) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

bool reject_unsupported_fields(exchange *x, unsigned family, json_t *from, const char *where) {
    for (size_t i = 0; i < sizeof known_fields / sizeof *known_fields; i++) {
        const known_field *k = &known_fields[i];
        const json_t *value =
            k->reason && k->families & family ? json_object_get(from, k->name) : NULL;
        if (!value) continue;
        json_t *neutral = json_loads(k->neutral ? k->neutral : "[]", 0, NULL);
        const bool asks_nothing = known_value_is_neutral(value, neutral);
        json_decref(neutral);
        if (asks_nothing) continue;
        char param[96];
        snprintf(param, sizeof param, "%s%s", where, k->name);
        return fail_request(x, 400, param, "%s: %s", param, k->reason);
    }
    return true;
}
