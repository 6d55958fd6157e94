// The parser of models' output: splits it into text and reasoning, up to the marks of the model's
// family.
#include "text/chat_parser.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

static ct_flow chat_reasoning(ct_chat_parser *p);

static bool chat_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool chat_is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!chat_is_space(s[i])) return false;
    return true;
}

bool ct__chat_skip_space(ct_chat_parser *p) {
    while (p->at < p->n && chat_is_space(p->input[p->at])) p->at++;
    return p->at < p->n;
}

ct_flow ct__chat_report(ct_chat_parser *p, ct_chat_part_kind kind, const char *s, size_t n) {
    const bool call = kind == CT_CHAT_CALL || kind == CT_CHAT_ARGUMENTS;
    const ct_chat_part part = {.kind = kind, .call = call ? p->calls - 1 : 0, .text = s, .n = n};
    if (!n) return CT_FLOW_NEXT;
    p->stopped = !p->part(&part, p->user);
    return p->stopped ? CT_FLOW_STOP : CT_FLOW_NEXT;
}

// ------------------------------------------------------------------------------------------- marks

static int chat_match_mark(const ct_chat_parser *p, const char *mark) {
    const size_t n = strlen(mark), left = p->n - p->at;
    if (memcmp(p->input + p->at, mark, n < left ? n : left) != 0) return 0;
    return n <= left ? 1 : -1;
}

int ct__chat_match_marks(ct_chat_parser *p, const char *const *marks) {
    int found = 0;
    for (int i = 0; i < CT_FORM_MARKS && marks[i] && found != 1; i++) {
        const int one = chat_match_mark(p, marks[i]);
        if (!one) continue;
        found = one;
        p->mark = marks[i];
    }
    return found;
}

ct_flow ct__chat_scan_to_mark(ct_chat_parser *p, const char *const *marks) {
    for (; p->at < p->n && p->at - p->from <= CT_MAX_NAME; p->at++) {
        const int found = ct__chat_match_marks(p, marks);
        if (found) return found > 0 ? CT_FLOW_NEXT : CT_FLOW_MORE;
    }
    return p->at < p->n ? CT_FLOW_FAIL : CT_FLOW_MORE;
}

static void chat_add_mark(ct_chat_marks *marks, const char *text, ct_chat_state *then) {
    marks->of[marks->n++] = (ct_chat_mark){text, then};
    marks->first[(unsigned char)*text] = true;
}

// The length of a character in bytes, by its first byte.
static size_t chat_char_length(char c) {
    const unsigned char u = (unsigned char)c;
    return u < 0xc0 ? 1 : u < 0xe0 ? 2 : u < 0xf0 ? 3 : 4;
}

// Reports the input up to the next mark. Whitespace is held back, since it may belong to a mark.
static ct_flow chat_scan_text(ct_chat_parser *p, const ct_chat_marks *marks,
                              ct_chat_part_kind kind) {
    size_t sure = p->tail;
    const ct_chat_mark *mark = NULL;
    int found = 0;
    while (p->at < p->n && !found) {
        const char c = p->input[p->at];
        if (chat_is_space(c)) {
            p->at++;
            continue;
        }
        for (size_t i = 0; marks->first[(unsigned char)c] && i < marks->n && found != 1; i++) {
            const int one = chat_match_mark(p, marks->of[i].text);
            if (!one) continue;
            found = one;
            mark = &marks->of[i];
        }
        if (!found && chat_char_length(c) > p->n - p->at) found = -1;
        if (!found) {
            p->at += chat_char_length(c);
            p->start = false;
            sure = p->at;
        }
    }
    const ct_flow flow = ct__chat_report(p, kind, p->input + p->tail, sure - p->tail);
    p->tail = sure;
    if (flow != CT_FLOW_NEXT) return flow;
    if (found != 1) return CT_FLOW_MORE;
    p->from = p->at;
    p->at += strlen(mark->text);
    p->state = mark->then;
    return CT_FLOW_NEXT;
}

// --------------------------------------------------------------------------------- text, reasoning

ct_flow ct__chat_text(ct_chat_parser *p) {
    const char c = p->form->bare;
    if (c && p->start && p->tools) {
        if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
        if (p->input[p->at] == c) return ct__chat_bare_begin(p);
    }
    return chat_scan_text(p, &p->in_text, CT_CHAT_TEXT);
}

static ct_flow chat_drop_mark(ct_chat_parser *p) {
    p->tail = p->at;
    p->closed = true;
    p->state = ct__chat_after_mark;
    return CT_FLOW_NEXT;
}

// After "{...};".
static ct_flow chat_next_bare_call(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    return p->input[p->at] == '{' ? ct__chat_bare_begin(p) : CT_FLOW_FAIL;
}

ct_flow ct__chat_after_mark(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) {
        p->tail = p->at;
        return CT_FLOW_MORE;
    }
    p->tail = p->at;
    if (p->json && !p->closed && p->input[p->at] == '{') return ct__chat_bare_begin(p);
    if (p->json && !p->closed && p->form->bare && p->input[p->at] == ';') {
        p->at++;
        p->state = chat_next_bare_call;
        return CT_FLOW_NEXT;
    }
    const int found = p->tools ? ct__chat_match_marks(p, p->form->call_end) : 0;
    if (found < 0) return CT_FLOW_MORE;
    if (found) {
        p->at += strlen(p->mark);
        return chat_drop_mark(p);
    }
    p->state = ct__chat_text;
    return CT_FLOW_NEXT;
}

// Reports a mark as text.
static ct_flow chat_keep_mark(ct_chat_parser *p, ct_chat_state *then) {
    const size_t tail = p->tail;
    p->state = then;
    p->tail = p->at;
    return ct__chat_report(p, CT_CHAT_TEXT, p->input + tail, p->at - tail);
}

static ct_flow chat_reasoning_begin(ct_chat_parser *p) {
    p->state = chat_reasoning_begin;
    if (p->keep_reasoning) return chat_keep_mark(p, chat_reasoning);
    const bool more = ct__chat_skip_space(p);
    p->tail = p->at;
    if (!more) return CT_FLOW_MORE;
    p->state = chat_reasoning;
    return CT_FLOW_NEXT;
}

// After <think>.
static ct_flow chat_think_open(ct_chat_parser *p) {
    return p->start ? chat_reasoning_begin(p)
                    : chat_keep_mark(p, ct__chat_text); // an answer that mentions the mark
}

static ct_flow chat_reasoning(ct_chat_parser *p) {
    return chat_scan_text(p, &p->in_reasoning,
                          p->keep_reasoning ? CT_CHAT_TEXT : CT_CHAT_REASONING);
}

// After </think>.
static ct_flow chat_think_close(ct_chat_parser *p) {
    p->start = true;
    return p->keep_reasoning ? chat_keep_mark(p, ct__chat_text) : chat_drop_mark(p);
}

// ---------------------------------------------------------------------------------------- channels

static bool chat_find(const char *s, size_t n, const char *needle, size_t *after) {
    const size_t m = strlen(needle);
    for (size_t i = 0; i + m <= n; i++)
        if (memcmp(s + i, needle, m) == 0) {
            *after = i + m;
            return true;
        }
    return false;
}

// <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>
static ct_flow chat_header(ct_chat_parser *p) {
    static const char *const ends[CT_FORM_MARKS] = {"<|message|>"};
    static const char tool[] = "to=functions.", analysis[] = "analysis";
    const ct_flow flow = ct__chat_scan_to_mark(p, ends);
    if (flow != CT_FLOW_NEXT) return flow;
    const char *s = p->input + p->from;
    const size_t n = p->at - p->from;
    size_t name, channel;
    p->at += strlen(*ends);
    if (p->tools && chat_find(s, n, tool, &name)) {
        size_t end = name;
        while (end < n && s[end] != ' ' && s[end] != '<') end++;
        return ct__chat_call_named(p, s + name, end - name);
    }
    const bool is_reasoning = chat_find(s, n, "<|channel|>", &channel) &&
                              n - channel >= strlen(analysis) &&
                              memcmp(s + channel, analysis, strlen(analysis)) == 0;
    p->start = true;
    return is_reasoning ? chat_reasoning_begin(p) : chat_drop_mark(p);
}

static ct_flow chat_header_begin(ct_chat_parser *p) {
    p->state = chat_header; // `from` is the start of the mark, whose text tells what the header is
    return CT_FLOW_NEXT;
}

// ----------------------------------------------------------------------------------- lifetime, API

static void chat_parser_reset(ct_chat_parser *p) {
    ct_text *const texts[] = {&p->name, &p->token, &p->out};
    for (int i = 0; i < 3; i++) {
        if (texts[i]->failed) ct__text_free(texts[i]);
        texts[i]->n = 0;
    }
    p->n = p->tail = p->at = p->from = p->calls = 0;
    p->start = true;
    p->reported = p->complete = p->closed = p->json = p->stopped = false;
    p->state = p->first;
}

static void chat_collect_marks(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    ct_chat_marks *text = &p->in_text, *thinking = &p->in_reasoning;
    for (int i = 0; p->tools && i < CT_FORM_MARKS && f->calls_begin[i]; i++)
        chat_add_mark(text, f->calls_begin[i], ct__chat_calls_begin);
    if (p->tools && f->call_begin && f->kind != CT_CALL_JSON)
        chat_add_mark(text, f->call_begin, ct__chat_call_begin);
    for (int i = 0; i < CT_FORM_MARKS && f->ignored[i]; i++)
        chat_add_mark(text, f->ignored[i], chat_drop_mark);
    if (f->channels) {
        ct_chat_marks *const both[] = {text, thinking};
        for (int i = 0; i < 2; i++) {
            chat_add_mark(both[i], "<|start|>", chat_header_begin);
            chat_add_mark(both[i], "<|channel|>", chat_header_begin);
        }
        for (int i = 0; f->ignored[i]; i++)
            chat_add_mark(thinking, f->ignored[i], chat_think_close);
    } else if (p->thinking) {
        chat_add_mark(text, p->thinking->open, chat_think_open);
        chat_add_mark(thinking, p->thinking->close, chat_think_close);
    }
}

static bool chat_prompt_ends_with(const char *prompt, size_t n, const char *mark) {
    const size_t m = mark ? strlen(mark) : 0;
    return m && m <= n && memcmp(prompt + n - m, mark, m) == 0;
}

// The state for the start of the answer: the prompt may end in an open mark.
static ct_chat_state *chat_first_state(const ct_chat_parser *p, const char *prompt) {
    size_t n = prompt ? strlen(prompt) : 0;
    while (n && chat_is_space(prompt[n - 1])) n--;
    if (p->form->channels)
        return chat_prompt_ends_with(prompt, n, "<|start|>assistant") ? chat_header_begin
                                                                      : ct__chat_text;
    if (p->thinking && chat_prompt_ends_with(prompt, n, p->thinking->open))
        return chat_reasoning_begin;
    for (int i = 0; p->tools && i < CT_FORM_MARKS && p->form->calls_begin[i]; i++)
        if (chat_prompt_ends_with(prompt, n, p->form->calls_begin[i])) return ct__chat_calls_begin;
    return p->tools && chat_prompt_ends_with(prompt, n, p->form->call_begin) ? ct__chat_call_begin
                                                                             : ct__chat_text;
}

void ct_chat_parser_free(ct_chat_parser *p) {
    if (!p) return;
    json_decref(p->descriptions);
    ct__text_free(&p->name);
    ct__text_free(&p->token);
    ct__text_free(&p->out);
    ct__free(p->input);
    ct__free(p);
}

ct_chat_parser *ct_chat_parser_new_with(const ct_chat_template *chat,
                                        ct_chat_parser_options options) {
    static const char op[] = "chat_parser_new";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, chat, options.here, op, "the template") || ctx->err.code)
        return NULL;
    ct_chat_parser *p = ct__calloc(1, sizeof *p);
    if (!p || !CT_GROW(p->input, p->cap, 256)) {
        ct_chat_parser_free(p);
        return ct__null_memory(&ctx->err, options.here, op, sizeof *p);
    }
    p->form = ct__chat_form(chat);
    p->thinking = ct__chat_thinking(chat);
    p->tools = options.parse_tool_calls;
    p->keep_reasoning = options.keep_reasoning;
    if (options.tool_definitions) {
        p->descriptions =
            ct__chat_parse_json(options.tool_definitions, "descriptions", true, &ctx->err);
        if (!p->descriptions) {
            ct__err_locate(&ctx->err, options.here, op);
            ct_chat_parser_free(p);
            return NULL;
        }
    }
    chat_collect_marks(p);
    p->first = chat_first_state(p, options.prompt);
    chat_parser_reset(p);
    return p;
}

const char *ct_chat_parser_format(const ct_chat_parser *p) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, p, CT_NOWHERE, "chat_parser_format", "the parser")) return NULL;
    return p->form->name;
}

// Reports what looked like a call as text, unchanged.
static ct_flow chat_report_failed_call(ct_chat_parser *p) {
    ct_flow flow = p->reported ? ct__chat_flush_arguments(p, true) : CT_FLOW_NEXT;
    while (p->at > p->tail && p->at < p->n && ((unsigned char)p->input[p->at] & 0xc0) == 0x80)
        p->at--;
    const size_t n = p->at - p->tail; // whole characters only
    // True if only the closing bracket was missing.
    const bool is_complete = p->reported && p->complete && chat_is_blank(p->input + p->tail, n);
    p->state = is_complete ? ct__chat_after_mark : ct__chat_text;
    p->start = p->reported = false;
    if (flow == CT_FLOW_NEXT && !is_complete)
        flow = ct__chat_report(p, CT_CHAT_TEXT, p->input + p->tail, n);
    p->tail = p->at;
    return flow;
}

static bool chat_check_memory(const ct_chat_parser *p, const char *op) {
    if (!p->name.failed && !p->token.failed && !p->out.failed) return true;
    return ct__err_memory(&ct__ctx()->err, CT_NOWHERE, op, p->n);
}

static bool chat_append_input(ct_chat_parser *p, const char *text, size_t n) {
    // Drops reported input once it is the larger part, so that the copies are linear in the whole
    // input.
    if (p->tail > p->n / 2) {
        memmove(p->input, p->input + p->tail, p->n - p->tail);
        p->n -= p->tail;
        p->at -= p->tail;
        p->from -= p->from < p->tail ? p->from : p->tail;
        p->tail = 0;
    }
    if (n > SIZE_MAX - p->n || !CT_GROW(p->input, p->cap, p->n + n)) return false;
    memcpy(p->input + p->n, text, n);
    p->n += n;
    return true;
}

static bool chat_set_callback(ct_chat_parser *p, ct_chat_part_fn part, void *user, const char *op) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, p, CT_NOWHERE, op, "the parser")) return false;
    if (!part) return ct__given(ctx, NULL, CT_NOWHERE, op, "the callback for parts");
    p->part = part;
    p->user = user;
    return !ctx->err.code;
}

bool ct_chat_parser_feed(ct_chat_parser *p, const char *text, size_t n, ct_chat_part_fn part,
                         void *user) {
    static const char op[] = "chat_parser_feed";
    if (!chat_set_callback(p, part, user, op)) return false;
    if (n && !ct__given(ct__ctx(), text, CT_NOWHERE, op, "the text")) return false;
    if (p->stopped) return false;
    if (n && !chat_append_input(p, text, n))
        return ct__err_memory(&ct__ctx()->err, CT_NOWHERE, op, n);
    ct_flow flow = n ? CT_FLOW_NEXT : CT_FLOW_MORE;
    while (flow == CT_FLOW_NEXT || flow == CT_FLOW_FAIL)
        flow = flow == CT_FLOW_NEXT ? p->state(p) : chat_report_failed_call(p);
    return chat_check_memory(p, op) && flow != CT_FLOW_STOP;
}

bool ct_chat_parser_end(ct_chat_parser *p, ct_chat_part_fn part, void *user) {
    static const char op[] = "chat_parser_end";
    if (!chat_set_callback(p, part, user, op)) return false;
    const bool is_reasoning = p->state == chat_reasoning && !p->keep_reasoning;
    ct_flow flow = p->stopped ? CT_FLOW_STOP : CT_FLOW_NEXT;
    if (flow == CT_FLOW_NEXT && p->reported) flow = ct__chat_flush_arguments(p, true);
    const bool over =
        p->reported && p->complete && chat_is_blank(p->input + p->tail, p->n - p->tail);
    if (flow == CT_FLOW_NEXT && !over)
        flow = ct__chat_report(p, is_reasoning ? CT_CHAT_REASONING : CT_CHAT_TEXT,
                               p->input + p->tail, p->n - p->tail);
    const bool ok = chat_check_memory(p, op);
    chat_parser_reset(p);
    return ok && flow != CT_FLOW_STOP;
}
