// Calls of tools, by the kind that a family's form is of. Each state goes on with p->in from p->at.
#include <jansson.h>
#include <string.h>

#include "io/json.h"
#include "text/chat_parser.h"

static ct_flow json_begins(ct_chat_parser *p);
static ct_flow json_key(ct_chat_parser *p);
static ct_flow json_after(ct_chat_parser *p);
static ct_flow parameter(ct_chat_parser *p);
static ct_flow python_begins(ct_chat_parser *p);
static ct_flow python_arguments(ct_chat_parser *p);
static ct_flow python_after(ct_chat_parser *p);

static ct_flow go(ct_chat_parser *p, ct_chat_state *state) {
    p->state = state;
    return CT_FLOW_ON;
}

static ct_flow token(ct_chat_parser *p, ct_chat_state *state) { // which reads from here on
    p->from = p->at;
    return go(p, state);
}

static ct_flow one_byte(ct_chat_parser *p, ct_chat_state *state) {
    p->at++;
    return go(p, state);
}

// ------------------------------------------------------------------------------------ what is told

ct_flow ct__chat_flush(ct_chat_parser *p, bool all) {
    size_t n = p->out.n;
    if (!all) { // the beginning of a character waits for its end
        size_t back = 0;
        while (back < 3 && back < n && ((unsigned char)p->out.s[n - 1 - back] & 0xc0) == 0x80)
            back++;
        if (back < n) {
            const unsigned char lead = (unsigned char)p->out.s[n - 1 - back];
            const size_t needs = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
            if (needs > back + 1) n -= back + 1;
        }
    }
    if (!n) return CT_FLOW_ON;
    const ct_flow flow = ct__chat_tell(p, CT_CHAT_ARGUMENTS, p->out.s, n);
    memmove(p->out.s, p->out.s + n, p->out.n - n);
    p->out.n -= n;
    return flow;
}

static const json_t *described(const ct_chat_parser *p) { // the tool of this name
    json_t *tool;
    size_t i;
    json_array_foreach(p->descriptions, i, tool) {
        json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const json_t *name = json_object_get(function, "name");
        if (json_is_string(name) && json_string_length(name) == p->name.n &&
            memcmp(json_string_value(name), p->name.s, p->name.n) == 0)
            return function;
    }
    return NULL;
}

// It is a call from here on. Where no mark says so, its name must be that of a tool.
static ct_flow commit(ct_chat_parser *p) {
    if (p->bare && p->descriptions && !described(p)) return CT_FLOW_FAIL;
    p->calls++;
    p->told = true;
    p->tail = p->at;
    return ct__chat_tell(p, CT_CHAT_CALL, p->name.s, p->name.n);
}

static ct_flow call_ends(ct_chat_parser *p, ct_chat_state *then) {
    const ct_flow flow = ct__chat_flush(p, true);
    p->told = false;
    p->tail = p->at;
    p->state = then;
    return flow;
}

static void call_begins(ct_chat_parser *p) {
    p->told = p->complete = p->closed = p->given = false;
    p->name.n = p->token.n = p->out.n = p->parameters = 0;
}

static void set(ct_text *text, const char *s, size_t n) {
    text->n = 0;
    ct__text_bytes(text, s, n);
}

// A name as it is, or as functions.NAME:0.
static bool take_name(ct_chat_parser *p, const char *s, size_t n) {
    static const char prefix[] = "functions.";
    while (n && (unsigned char)s[n - 1] <= ' ') n--;
    while (n && (unsigned char)*s <= ' ') s++, n--;
    if (p->form->ids) {
        size_t digits = 0;
        while (digits < n && s[n - 1 - digits] >= '0' && s[n - 1 - digits] <= '9') digits++;
        if (digits && digits < n && s[n - 1 - digits] == ':') n -= digits + 1;
        if (n > strlen(prefix) && memcmp(s, prefix, strlen(prefix)) == 0) {
            s += strlen(prefix);
            n -= strlen(prefix);
        }
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || strchr("<>{}()[]\"'`,;", s[i])) return false;
    set(&p->name, s, n);
    return n > 0 && n <= CT_MOST_NAME && !p->name.failed;
}

// ----------------------------------------------------------------------------------- values of JSON

// Reads on into `to`; ON: the value has ended.
static ct_flow read_value(ct_chat_parser *p, ct_text *to) {
    p->at += ct__value_read(&p->value, p->in + p->at, p->n - p->at, to);
    if (p->value.state == CT_VALUE_FAILED) return CT_FLOW_FAIL;
    return p->value.state == CT_VALUE_DONE ? CT_FLOW_ON : CT_FLOW_MORE;
}

// The same of a call's arguments, which are told as they come.
static ct_flow read_arguments(ct_chat_parser *p) {
    const ct_flow flow = read_value(p, &p->out);
    if (!p->told) return flow;
    p->tail = p->at - ct__value_pending(&p->value);
    const ct_flow told = ct__chat_flush(p, false);
    return told == CT_FLOW_STOP ? told : flow;
}

static ct_flow object_arguments(ct_chat_parser *p) {
    const ct_flow flow = read_arguments(p);
    return flow == CT_FLOW_ON ? call_ends(p, ct__chat_between) : flow;
}

static ct_flow object_begins(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] != '{') return CT_FLOW_FAIL;
    ct__value_begin(&p->value, p->form->style);
    p->state = object_arguments;
    return commit(p);
}

// The text of a string of JSON, as written, with its quotes.
static json_t *decode(const ct_text *text) {
    json_error_t fault;
    return text->n ? ct__json_read(text->s, text->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &fault)
                   : NULL;
}

static bool is(const ct_text *key, const char *a, const char *b) {
    return key->n && key->s && (strcmp(key->s, a) == 0 || strcmp(key->s, b) == 0);
}

// -------------------------------------------------------------------- {"name": f, "arguments": {}}

static ct_flow json_next(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    const char c = p->in[p->at];
    if (p->list && c == ',') return one_byte(p, json_begins);
    if (p->list && c == ']') {
        p->at++;
        p->tail = p->at;
    }
    return go(p, ct__chat_between);
}

static ct_flow tell_given(ct_chat_parser *p) { // arguments that stood before the name, or nowhere
    const ct_flow flow = commit(p);
    return flow == CT_FLOW_ON ? ct__chat_flush(p, true) : flow;
}

static ct_flow json_ends(ct_chat_parser *p) {
    ct_flow flow = CT_FLOW_ON;
    if (!p->name.n || (p->bare && !p->given)) return CT_FLOW_FAIL;
    p->at++;
    if (!p->told) {
        if (!p->given) set(&p->out, "{}", 2);
        flow = tell_given(p);
    }
    return flow == CT_FLOW_ON ? call_ends(p, json_next) : flow;
}

static ct_flow json_after(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] == ',') return one_byte(p, json_key);
    return p->in[p->at] == '}' ? json_ends(p) : CT_FLOW_FAIL;
}

// The value of a key is whole.
static ct_flow json_taken(ct_chat_parser *p) {
    json_t *value = NULL, *inner = NULL;
    bool ok = true;
    p->state = json_after;
    if (p->field == CT_FIELD_NAME) {
        value = decode(&p->token);
        ok = value && take_name(p, json_string_value(value), json_string_length(value));
    } else if (p->field == CT_FIELD_TEXT) { // arguments as a string of JSON
        json_error_t fault;
        value = decode(&p->token);
        if (value) set(&p->out, json_string_value(value), json_string_length(value));
        inner =
            value && p->out.n ? ct__json_read(p->out.s, p->out.n, JSON_ALLOW_NUL, &fault) : NULL;
        ok = json_is_object(inner);
    }
    json_decref(value);
    json_decref(inner);
    if (!ok) return CT_FLOW_FAIL;
    p->given |= p->field == CT_FIELD_TEXT || p->field == CT_FIELD_ARGUMENTS;
    p->complete |= p->given;
    return p->given && p->name.n && !p->told ? tell_given(p) : CT_FLOW_ON;
}

static ct_flow json_value(ct_chat_parser *p) {
    ct_flow flow;
    if (p->field == CT_FIELD_ARGUMENTS) {
        flow = read_arguments(p);
    } else {
        flow = read_value(p, &p->token);
        if (p->field == CT_FIELD_OTHER) p->token.n = 0;
    }
    return flow == CT_FLOW_ON ? json_taken(p) : flow;
}

static ct_flow json_value_begins(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    const char c = p->in[p->at];
    const bool named = is(&p->token, "\"name\"", "\"tool_name\"");
    const bool arguments = is(&p->token, "\"arguments\"", "\"parameters\"") && !p->given;
    p->field = CT_FIELD_OTHER;
    if (p->form->keyed && !p->name.n) {
        json_t *key = decode(&p->token);
        const bool ok =
            key && c == '{' && take_name(p, json_string_value(key), json_string_length(key));
        json_decref(key);
        if (!ok) return CT_FLOW_FAIL;
        p->field = CT_FIELD_ARGUMENTS;
    } else if (named && c == '"' && !p->name.n) {
        p->field = CT_FIELD_NAME;
    } else if (arguments && c == '"') {
        p->field = CT_FIELD_TEXT;
    } else if (arguments && c == '{') {
        p->field = CT_FIELD_ARGUMENTS;
    }
    p->token.n = 0;
    ct__value_begin(&p->value, CT_VALUE_JSON);
    p->state = json_value;
    return p->field == CT_FIELD_ARGUMENTS && p->name.n ? commit(p) : CT_FLOW_ON;
}

static ct_flow json_colon(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    return p->in[p->at] == ':' ? one_byte(p, json_value_begins) : CT_FLOW_FAIL;
}

static ct_flow json_key_text(ct_chat_parser *p) {
    const ct_flow flow = read_value(p, &p->token);
    return flow == CT_FLOW_ON ? go(p, json_colon) : flow;
}

static ct_flow json_key(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] == '}') return json_ends(p);
    if (p->in[p->at] != '"') return CT_FLOW_FAIL;
    ct__value_begin(&p->value, CT_VALUE_JSON);
    p->token.n = 0;
    return go(p, json_key_text);
}

static ct_flow json_begins(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    p->json = true;
    if (p->in[p->at] == '[' && !p->list) {
        p->list = true;
        return one_byte(p, json_begins);
    }
    if (p->in[p->at] != '{') return CT_FLOW_FAIL;
    call_begins(p);
    return one_byte(p, json_key);
}

// ---------------------------------------------------------------------------- f, a mark, arguments

static ct_chat_state *arguments_of(const ct_chat_form *f) {
    return f->kind == CT_CALL_PARAMETERS ? parameter : object_begins;
}

static ct_flow to_arguments(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->args};
    const ct_flow flow = ct__chat_until(p, marks);
    if (flow != CT_FLOW_ON) return flow;
    p->at += strlen(p->mark);
    return go(p, arguments_of(p->form));
}

static bool means_more(const ct_chat_form *f, const char *mark) {
    if (strcmp(mark, "{") == 0) return true;
    for (int i = 0; i < CT_FORM_MARKS; i++)
        if ((f->key[i] && strcmp(f->key[i], mark) == 0) ||
            (f->close[i] && strcmp(f->close[i], mark) == 0))
            return true;
    return false;
}

static ct_flow name(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    const ct_flow flow = ct__chat_until(p, f->named);
    if (flow != CT_FLOW_ON) return flow;
    const bool more = means_more(f, p->mark), ok = take_name(p, p->in + p->from, p->at - p->from);
    if (!more) p->at += strlen(p->mark);
    if (!ok) return CT_FLOW_FAIL;
    if (f->text && strcmp(p->name.s, f->text) == 0) {
        p->tail = p->at;
        p->start = false;
        return go(p, ct__chat_text);
    }
    const bool there = more || !f->args || strcmp(p->mark, f->args) == 0;
    return there ? go(p, arguments_of(f)) : token(p, to_arguments);
}

static ct_flow before_name(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->before};
    const ct_flow flow = ct__chat_until(p, marks);
    if (flow != CT_FLOW_ON) return flow;
    p->at += strlen(p->mark);
    return token(p, name);
}

ct_flow ct__chat_call_named(ct_chat_parser *p, const char *s, size_t n) {
    call_begins(p);
    return take_name(p, s, n) ? go(p, object_begins) : CT_FLOW_FAIL;
}

// ------------------------------------------------------------------------------ parameters as text

// Does a schema ask for a string? 1, 0, or -1: it does not say, or allows both. null beside others
// says nothing.
static int asks_string(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *any = json_object_get(schema, "anyOf");
    const json_t *list = json_is_array(type) ? type : any, *item;
    size_t i;
    int all = 2;
    if (json_is_string(type)) return strcmp(json_string_value(type), "string") == 0;
    json_array_foreach(list, i, item) {
        const json_t *name = json_is_string(item) ? item : json_object_get(item, "type");
        if (!json_is_string(name)) return -1;
        const int one = strcmp(json_string_value(name), "string") == 0;
        if (strcmp(json_string_value(name), "null") == 0) continue;
        if (all != 2 && all != one) return -1;
        all = one;
    }
    if (all != 2) return all;
    return json_is_string(json_array_get(json_object_get(schema, "enum"), 0)) ? 1 : -1;
}

static int is_string(const ct_chat_parser *p, const char *key) { // this parameter
    const json_t *parameters = json_object_get(described(p), "parameters");
    return asks_string(json_object_get(json_object_get(parameters, "properties"), key));
}

// As JSON if it is a value of it or a literal of Python's, else as a string.
static void write_text(ct_chat_parser *p, const char *s, size_t n, bool quoted) {
    const char *at = s, *end = s + n;
    while (at < end && (unsigned char)*at <= ' ') at++;
    while (at < end && (unsigned char)end[-1] <= ' ') end--;
    const size_t out = p->out.n, length = (size_t)(end - at);
    const bool literal = length && (quoted || (*at != '"' && *at != '\''));
    for (int style = CT_VALUE_JSON; style <= CT_VALUE_PYTHON && literal; style++) {
        ct__value_begin(&p->value, (ct_value_style)style);
        const size_t used = ct__value_read(&p->value, at, length, &p->out);
        if (used == length) ct__value_read(&p->value, " ", 1, &p->out); // ends a number
        if (used == length && p->value.state == CT_VALUE_DONE) return;
        p->out.n = out;
    }
    ct__json_string(&p->out, s, n);
}

static void write_escaped(ct_chat_parser *p, const char *s, size_t n) { // a part of a string
    p->token.n = 0;
    ct__json_string(&p->token, s, n);
    if (p->token.n > 2) ct__text_bytes(&p->out, p->token.s + 1, p->token.n - 2);
}

static void write_key(ct_chat_parser *p) {
    ct__text_add(&p->out, p->parameters++ ? ", " : "{");
    ct__text_bytes(&p->out, p->token.s, p->token.n);
    ct__text_add(&p->out, ": ");
}

// What is surely of the value lies before `at`.
static ct_flow more_of_string(ct_chat_parser *p) {
    write_escaped(p, p->in + p->tail, p->at - p->tail);
    p->tail = p->at;
    return ct__chat_flush(p, false);
}

static ct_flow parameter_value(ct_chat_parser *p) {
    int found = 0;
    for (; p->at < p->n && !(found = ct__chat_at(p, p->form->end)); p->at++) continue;
    if (p->string) {
        const ct_flow flow = more_of_string(p);
        if (flow != CT_FLOW_ON) return flow;
    }
    if (found != 1) return CT_FLOW_MORE;
    if (p->string) {
        ct__text_add(&p->out, "\"");
    } else {
        write_key(p);
        write_text(p, p->in + p->from, p->at - p->from, p->form->middle[1] || p->given);
    }
    p->at += strlen(p->mark);
    p->tail = p->at;
    const ct_flow flow = ct__chat_flush(p, false);
    return flow == CT_FLOW_ON ? go(p, parameter) : flow;
}

static ct_flow parameter_value_begins(ct_chat_parser *p) {
    if (p->form->lines) {
        if (p->at == p->n) return CT_FLOW_MORE;
        if (p->in[p->at] == '\n') p->at++;
    }
    if (p->string) {
        write_key(p);
        ct__text_add(&p->out, "\"");
        p->tail = p->at;
    }
    return token(p, parameter_value);
}

static ct_flow parameter_value_mark(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->value};
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    const int found = ct__chat_at(p, marks);
    if (found != 1) return found ? CT_FLOW_MORE : CT_FLOW_FAIL;
    p->at += strlen(p->mark);
    return go(p, parameter_value_begins);
}

static ct_flow parameter_key(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    const ct_flow flow = ct__chat_until(p, f->middle);
    if (flow != CT_FLOW_ON) return flow;
    char key[CT_MOST_NAME + 2];
    const char *s = p->in + p->from;
    size_t n = p->at - p->from;
    while (n && (unsigned char)s[n - 1] <= ' ') n--;
    while (n && (unsigned char)*s <= ' ') s++, n--;
    if (!n || memchr(s, '\0', n)) return CT_FLOW_FAIL;
    memcpy(key, s, n);
    key[n] = '\0';
    const int string = f->middle[1] ? strcmp(p->mark, f->middle[1]) == 0 : is_string(p, key);
    p->string = string > 0;
    p->given = string == 0; // it is known not to be a string
    p->token.n = 0;
    ct__json_string(&p->token, s, n);
    p->at += strlen(p->mark);
    return go(p, f->value ? parameter_value_mark : parameter_value_begins);
}

static ct_flow parameter(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    const int key = ct__chat_at(p, f->key), close = key == 1 ? 0 : ct__chat_at(p, f->close);
    if (key != 1 && close != 1) return key || close ? CT_FLOW_MORE : CT_FLOW_FAIL;
    const ct_flow flow = p->told ? CT_FLOW_ON : commit(p);
    if (flow != CT_FLOW_ON) return flow;
    if (key == 1) {
        ct__chat_at(p, f->key);
        p->at += strlen(p->mark);
        return token(p, parameter_key);
    }
    ct__text_add(&p->out, p->parameters ? "}" : "{}");
    return call_ends(p, ct__chat_between);
}

// --------------------------------------------------------------------------------------- [f(a=1)]

static bool identifies(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

// An identifier and what must follow it, behind which `at` is then.
static ct_flow identifier(ct_chat_parser *p, char then, size_t *n) {
    while (p->at < p->n && identifies(p->in[p->at])) p->at++;
    *n = p->at - p->from;
    if (*n > CT_MOST_NAME) return CT_FLOW_FAIL;
    if (p->at == p->n) return CT_FLOW_MORE;
    if (!*n || p->in[p->at] != then) return CT_FLOW_FAIL;
    p->at++;
    return CT_FLOW_ON;
}

static ct_flow python_next(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    const char c = p->in[p->at];
    if (c == ',' && p->list) return one_byte(p, python_begins);
    if (c == ']' && p->list) {
        p->at++;
        p->tail = p->at;
    }
    return go(p, ct__chat_between);
}

static ct_flow python_ends(ct_chat_parser *p) {
    const ct_flow flow = p->told ? CT_FLOW_ON : commit(p);
    if (flow != CT_FLOW_ON) return flow;
    p->at++;
    ct__text_add(&p->out, p->parameters ? "}" : "{}");
    return call_ends(p, python_next);
}

static ct_flow python_after(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] == ',') return one_byte(p, python_arguments);
    return p->in[p->at] == ')' ? python_ends(p) : CT_FLOW_FAIL;
}

static ct_flow python_value(ct_chat_parser *p) {
    const ct_flow flow = read_arguments(p);
    return flow == CT_FLOW_ON ? go(p, python_after) : flow;
}

static ct_flow python_key(ct_chat_parser *p) {
    size_t n;
    ct_flow flow = identifier(p, '=', &n);
    if (flow != CT_FLOW_ON) return flow;
    p->token.n = 0;
    ct__json_string(&p->token, p->in + p->from, n);
    flow = p->told ? CT_FLOW_ON : commit(p);
    if (flow != CT_FLOW_ON) return flow;
    write_key(p);
    ct__value_begin(&p->value, CT_VALUE_PYTHON);
    return go(p, python_value);
}

static ct_flow python_arguments(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    return p->in[p->at] == ')' ? python_ends(p) : token(p, python_key);
}

static ct_flow python_name(ct_chat_parser *p) {
    size_t n;
    const ct_flow flow = identifier(p, '(', &n);
    if (flow != CT_FLOW_ON) return flow;
    return take_name(p, p->in + p->from, n) ? go(p, python_arguments) : CT_FLOW_FAIL;
}

static ct_flow python_begins(ct_chat_parser *p) {
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] == '[' && !p->list) {
        p->list = true;
        return one_byte(p, python_begins);
    }
    call_begins(p);
    return token(p, python_name);
}

// --------------------------------------------------------------------------------- where they begin

static ct_flow body(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (f->kind == CT_CALL_JSON) return go(p, json_begins);
    if (f->kind == CT_CALL_PYTHON) return go(p, python_begins);
    const char c = p->in[p->at];
    if (!f->each && (c == '[' || c == '{')) return go(p, json_begins);
    return token(p, f->before ? before_name : name);
}

ct_flow ct__chat_call_begin(ct_chat_parser *p) {
    call_begins(p);
    p->json = p->list = p->bare = false;
    p->start = false;
    return go(p, body);
}

static ct_flow each(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->each};
    if (!ct__chat_space(p)) return CT_FLOW_MORE;
    if (p->in[p->at] == '{') return go(p, json_begins);
    const int found = ct__chat_at(p, marks);
    if (found != 1) return found ? CT_FLOW_MORE : CT_FLOW_FAIL;
    p->at += strlen(p->mark);
    return go(p, body);
}

ct_flow ct__chat_calls_begin(ct_chat_parser *p) {
    const ct_flow flow = ct__chat_call_begin(p);
    if (p->form->each) p->state = each;
    return flow;
}

ct_flow ct__chat_bare_begin(ct_chat_parser *p) {
    const bool bare = p->form->bare != 0 && (p->start || p->bare);
    ct__chat_call_begin(p);
    p->bare = bare;
    return go(p, p->form->kind == CT_CALL_PYTHON ? python_begins : json_begins);
}
