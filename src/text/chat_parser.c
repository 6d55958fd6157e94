// What a model writes, taken apart: text and reasoning up to the marks of the model's family.
#include "text/chat_parser.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

static ct_flow reasoning(ct_chat_parser *p);

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!is_space(s[i])) return false;
    return true;
}

bool ct__chat_space(ct_chat_parser *p) {
    while (p->at < p->n && is_space(p->in[p->at])) p->at++;
    return p->at < p->n;
}

ct_flow ct__chat_tell(ct_chat_parser *p, ct_chat_part_kind kind, const char *s, size_t n) {
    const bool call = kind == CT_CHAT_CALL || kind == CT_CHAT_ARGUMENTS;
    const ct_chat_part part = {.kind = kind, .call = call ? p->calls - 1 : 0, .text = s, .n = n};
    if (!n) return CT_FLOW_ON;
    p->stopped = !p->part(&part, p->user);
    return p->stopped ? CT_FLOW_STOP : CT_FLOW_ON;
}

// ------------------------------------------------------------------------------------------- marks

static int compare(const ct_chat_parser *p, const char *mark) {
    const size_t n = strlen(mark), left = p->n - p->at;
    if (memcmp(p->in + p->at, mark, n < left ? n : left) != 0) return 0;
    return n <= left ? 1 : -1;
}

int ct__chat_at(ct_chat_parser *p, const char *const *marks) {
    int found = 0;
    for (int i = 0; i < CT_FORM_MARKS && marks[i] && found != 1; i++) {
        const int one = compare(p, marks[i]);
        if (!one) continue;
        found = one;
        p->mark = marks[i];
    }
    return found;
}

ct_flow ct__chat_until(ct_chat_parser *p, const char *const *marks) {
    for (; p->at < p->n && p->at - p->from <= CT_MOST_NAME; p->at++) {
        const int found = ct__chat_at(p, marks);
        if (found) return found > 0 ? CT_FLOW_ON : CT_FLOW_MORE;
    }
    return p->at < p->n ? CT_FLOW_FAIL : CT_FLOW_MORE;
}

static void add_mark(ct_chat_marks *marks, const char *text, ct_chat_state *then) {
    marks->of[marks->n++] = (ct_chat_mark){text, then};
    marks->first[(unsigned char)*text] = true;
}

static size_t character(char c) { // bytes, by the first one
    const unsigned char u = (unsigned char)c;
    return u < 0xc0 ? 1 : u < 0xe0 ? 2 : u < 0xf0 ? 3 : 4;
}

// Tells what comes up to the next mark. White space is held back: it may belong to one.
static ct_flow scan(ct_chat_parser *p, const ct_chat_marks *marks, ct_chat_part_kind kind) {
    size_t sure = p->tail;
    const ct_chat_mark *mark = NULL;
    int found = 0;
    while (p->at < p->n && !found) {
        const char c = p->in[p->at];
        if (is_space(c)) {
            p->at++;
            continue;
        }
        for (size_t i = 0; marks->first[(unsigned char)c] && i < marks->n && found != 1; i++) {
            const int one = compare(p, marks->of[i].text);
            if (!one) continue;
            found = one;
            mark = &marks->of[i];
        }
        if (!found && character(c) > p->n - p->at) found = -1;
        if (!found) {
            p->at += character(c);
            p->start = false;
            sure = p->at;
        }
    }
    const ct_flow flow = ct__chat_tell(p, kind, p->in + p->tail, sure - p->tail);
    p->tail = sure;
    if (flow != CT_FLOW_ON) return flow;
    if (found != 1) return CT_FLOW_MORE;
    p->from = p->at;
    p->at += strlen(mark->text);
    p->state = mark->then;
    return CT_FLOW_ON;
}

// ---------------------------------------------------------------------------------- text, reasoning

ct_flow ct__chat_text(ct_chat_parser *p) {
    const char c = p->form->bare;
    if (c && p->start && p->tools) {
        if (!ct__chat_space(p)) return CT_FLOW_MORE;
        if (p->in[p->at] == c) return ct__chat_bare_begin(p);
    }
    return scan(p, &p->in_text, CT_CHAT_TEXT);
}

static ct_flow dropped(ct_chat_parser *p) {
    p->tail = p->at;
    p->closed = true;
    p->state = ct__chat_between;
    return CT_FLOW_ON;
}

static ct_flow another(ct_chat_parser *p) { // behind {...};
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    return p->in[p->at] == '{' ? ct__chat_bare_begin(p) : CT_FLOW_FAIL;
}

ct_flow ct__chat_between(ct_chat_parser *p) {
    if (!ct__chat_space(p)) {
        p->tail = p->at;
        return CT_FLOW_MORE;
    }
    p->tail = p->at;
    if (p->json && !p->closed && p->in[p->at] == '{') return ct__chat_bare_begin(p);
    if (p->json && !p->closed && p->form->bare && p->in[p->at] == ';') {
        p->at++;
        p->state = another;
        return CT_FLOW_ON;
    }
    const int found = p->tools ? ct__chat_at(p, p->form->close) : 0;
    if (found < 0) return CT_FLOW_MORE;
    if (found) {
        p->at += strlen(p->mark);
        return dropped(p);
    }
    p->state = ct__chat_text;
    return CT_FLOW_ON;
}

static ct_flow kept(ct_chat_parser *p, ct_chat_state *then) { // a mark that is text
    const size_t tail = p->tail;
    p->state = then;
    p->tail = p->at;
    return ct__chat_tell(p, CT_CHAT_TEXT, p->in + tail, p->at - tail);
}

static ct_flow reasoning_begins(ct_chat_parser *p) {
    p->state = reasoning_begins;
    if (p->keep_reasoning) return kept(p, reasoning);
    const bool more = ct__chat_space(p);
    p->tail = p->at;
    if (!more) return CT_FLOW_MORE;
    p->state = reasoning;
    return CT_FLOW_ON;
}

static ct_flow think(ct_chat_parser *p) { // behind <think>
    return p->start ? reasoning_begins(p)
                    : kept(p, ct__chat_text); // or an answer that speaks of it
}

static ct_flow reasoning(ct_chat_parser *p) {
    return scan(p, &p->in_reasoning, p->keep_reasoning ? CT_CHAT_TEXT : CT_CHAT_REASONING);
}

static ct_flow thought(ct_chat_parser *p) { // behind </think>
    p->start = true;
    return p->keep_reasoning ? kept(p, ct__chat_text) : dropped(p);
}

// ---------------------------------------------------------------------------------------- channels

static bool find(const char *s, size_t n, const char *what, size_t *behind) {
    const size_t m = strlen(what);
    for (size_t i = 0; i + m <= n; i++)
        if (memcmp(s + i, what, m) == 0) {
            *behind = i + m;
            return true;
        }
    return false;
}

// <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>
static ct_flow head(ct_chat_parser *p) {
    static const char *const ends[CT_FORM_MARKS] = {"<|message|>"};
    static const char tool[] = "to=functions.", analysis[] = "analysis";
    const ct_flow flow = ct__chat_until(p, ends);
    if (flow != CT_FLOW_ON) return flow;
    const char *s = p->in + p->from;
    const size_t n = p->at - p->from;
    size_t name, channel;
    p->at += strlen(*ends);
    if (p->tools && find(s, n, tool, &name)) {
        size_t end = name;
        while (end < n && s[end] != ' ' && s[end] != '<') end++;
        return ct__chat_call_named(p, s + name, end - name);
    }
    const bool thinks = find(s, n, "<|channel|>", &channel) && n - channel >= strlen(analysis) &&
                        memcmp(s + channel, analysis, strlen(analysis)) == 0;
    p->start = true;
    return thinks ? reasoning_begins(p) : dropped(p);
}

static ct_flow head_begins(ct_chat_parser *p) {
    p->state = head; // `from` is where the mark begins, which says what the head is
    return CT_FLOW_ON;
}

// --------------------------------------------------------------------------------------- life, API

static void begin(ct_chat_parser *p) {
    ct_text *const texts[] = {&p->name, &p->token, &p->out};
    for (int i = 0; i < 3; i++) {
        if (texts[i]->failed) ct__text_free(texts[i]);
        texts[i]->n = 0;
    }
    p->n = p->tail = p->at = p->from = p->calls = 0;
    p->start = true;
    p->told = p->complete = p->closed = p->json = p->stopped = false;
    p->state = p->first;
}

static void gather_marks(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    ct_chat_marks *text = &p->in_text, *thinking = &p->in_reasoning;
    for (int i = 0; p->tools && i < CT_FORM_MARKS && f->open[i]; i++)
        add_mark(text, f->open[i], ct__chat_calls_begin);
    if (p->tools && f->each && f->kind != CT_CALL_JSON)
        add_mark(text, f->each, ct__chat_call_begin);
    for (int i = 0; i < CT_FORM_MARKS && f->drop[i]; i++) add_mark(text, f->drop[i], dropped);
    if (f->channels) {
        ct_chat_marks *const both[] = {text, thinking};
        for (int i = 0; i < 2; i++) {
            add_mark(both[i], "<|start|>", head_begins);
            add_mark(both[i], "<|channel|>", head_begins);
        }
        for (int i = 0; f->drop[i]; i++) add_mark(thinking, f->drop[i], thought);
    } else if (p->thinking) {
        add_mark(text, p->thinking->open, think);
        add_mark(thinking, p->thinking->close, thought);
    }
}

static bool ends_with(const char *prompt, size_t n, const char *mark) {
    const size_t m = mark ? strlen(mark) : 0;
    return m && m <= n && memcmp(prompt + n - m, mark, m) == 0;
}

// The prompt may have begun what the model goes on with.
static ct_chat_state *first_state(const ct_chat_parser *p, const char *prompt) {
    size_t n = prompt ? strlen(prompt) : 0;
    while (n && is_space(prompt[n - 1])) n--;
    if (p->form->channels)
        return ends_with(prompt, n, "<|start|>assistant") ? head_begins : ct__chat_text;
    if (p->thinking && ends_with(prompt, n, p->thinking->open)) return reasoning_begins;
    for (int i = 0; p->tools && i < CT_FORM_MARKS && p->form->open[i]; i++)
        if (ends_with(prompt, n, p->form->open[i])) return ct__chat_calls_begin;
    return p->tools && ends_with(prompt, n, p->form->each) ? ct__chat_call_begin : ct__chat_text;
}

void ct_chat_parser_free(ct_chat_parser *p) {
    if (!p) return;
    json_decref(p->descriptions);
    ct__text_free(&p->name);
    ct__text_free(&p->token);
    ct__text_free(&p->out);
    ct__free(p->in);
    ct__free(p);
}

ct_chat_parser *ct_chat_parser_new_with(const ct_chat_template *chat,
                                        ct_chat_parser_options options) {
    static const char op[] = "chat_parser_new";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, chat, options.here, op, "the template") || ctx->err.code)
        return NULL;
    ct_chat_parser *p = ct__calloc(1, sizeof *p);
    if (!p || !CT_GROW(p->in, p->cap, 256)) {
        ct_chat_parser_free(p);
        ct__err_memory(&ctx->err, options.here, op, sizeof *p);
        return NULL;
    }
    p->form = ct__chat_form(chat);
    p->thinking = ct__chat_thinking(chat);
    p->tools = options.tools;
    p->keep_reasoning = options.keep_reasoning;
    if (options.descriptions) {
        p->descriptions = ct__chat_json(options.descriptions, "descriptions", true, &ctx->err);
        if (!p->descriptions) {
            ct__err_place(&ctx->err, options.here, op);
            ct_chat_parser_free(p);
            return NULL;
        }
    }
    gather_marks(p);
    p->first = first_state(p, options.prompt);
    begin(p);
    return p;
}

const char *ct_chat_parser_form(const ct_chat_parser *p) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, p, CT_NOWHERE, "chat_parser_form", "the parser")) return NULL;
    return p->form->name;
}

// What looked like a call is text, as it was written.
static ct_flow failed(ct_chat_parser *p) {
    ct_flow flow = p->told ? ct__chat_flush(p, true) : CT_FLOW_ON;
    while (p->at > p->tail && p->at < p->n && ((unsigned char)p->in[p->at] & 0xc0) == 0x80) p->at--;
    const size_t n = p->at - p->tail; // of whole characters
    const bool whole = p->told && p->complete && is_blank(p->in + p->tail, n); // but for a bracket
    p->state = whole ? ct__chat_between : ct__chat_text;
    p->start = p->told = false;
    if (flow == CT_FLOW_ON && !whole) flow = ct__chat_tell(p, CT_CHAT_TEXT, p->in + p->tail, n);
    p->tail = p->at;
    return flow;
}

static bool has_memory(const ct_chat_parser *p, const char *op) {
    if (!p->name.failed && !p->token.failed && !p->out.failed) return true;
    return ct__err_memory(&ct__ctx()->err, CT_NOWHERE, op, p->n);
}

static bool take(ct_chat_parser *p, const char *text, size_t n) {
    if (p->tail > p->n / 2) { // what is told goes when it is the larger part: linear in all
        memmove(p->in, p->in + p->tail, p->n - p->tail);
        p->n -= p->tail;
        p->at -= p->tail;
        p->from -= p->from < p->tail ? p->from : p->tail;
        p->tail = 0;
    }
    if (n > SIZE_MAX - p->n || !CT_GROW(p->in, p->cap, p->n + n)) return false;
    memcpy(p->in + p->n, text, n);
    p->n += n;
    return true;
}

static bool ready(ct_chat_parser *p, ct_chat_part_fn part, void *user, const char *op) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, p, CT_NOWHERE, op, "the parser")) return false;
    if (!part) return ct__given(ctx, NULL, CT_NOWHERE, op, "the function that hears of parts");
    p->part = part;
    p->user = user;
    return !ctx->err.code;
}

bool ct_chat_parser_feed(ct_chat_parser *p, const char *text, size_t n, ct_chat_part_fn part,
                         void *user) {
    static const char op[] = "chat_parser_feed";
    if (!ready(p, part, user, op)) return false;
    if (n && !ct__given(ct__ctx(), text, CT_NOWHERE, op, "the text")) return false;
    if (p->stopped) return false;
    if (n && !take(p, text, n)) return ct__err_memory(&ct__ctx()->err, CT_NOWHERE, op, n);
    ct_flow flow = n ? CT_FLOW_ON : CT_FLOW_MORE;
    while (flow == CT_FLOW_ON || flow == CT_FLOW_FAIL)
        flow = flow == CT_FLOW_ON ? p->state(p) : failed(p);
    return has_memory(p, op) && flow != CT_FLOW_STOP;
}

bool ct_chat_parser_end(ct_chat_parser *p, ct_chat_part_fn part, void *user) {
    static const char op[] = "chat_parser_end";
    if (!ready(p, part, user, op)) return false;
    const bool thinks = p->state == reasoning && !p->keep_reasoning;
    ct_flow flow = p->stopped ? CT_FLOW_STOP : CT_FLOW_ON;
    if (flow == CT_FLOW_ON && p->told) flow = ct__chat_flush(p, true);
    const bool over = p->told && p->complete && is_blank(p->in + p->tail, p->n - p->tail);
    if (flow == CT_FLOW_ON && !over)
        flow = ct__chat_tell(p, thinks ? CT_CHAT_REASONING : CT_CHAT_TEXT, p->in + p->tail,
                             p->n - p->tail);
    const bool ok = has_memory(p, op);
    begin(p);
    return ok && flow != CT_FLOW_STOP;
}
