#include "http_client.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <cotan/cotan.h>

// The part of libcurl's ABI that is used, which has not changed since 2006 (version 4).
typedef struct curl_list curl_list;
static struct {
    int (*global_init)(long);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *, int, ...);
    int (*easy_perform)(void *);
    int (*easy_getinfo)(void *, int, ...);
    void (*easy_cleanup)(void *);
    const char *(*easy_strerror)(int);
    curl_list *(*slist_append)(curl_list *, const char *);
    void (*slist_free_all)(curl_list *);
} curl;

enum { // options
    WRITE_DATA = 10001,
    URL = 10002,
    RANGE = 10007,
    ERROR_TEXT = 10010,
    LOW_SPEED_LIMIT = 19,
    LOW_SPEED_TIME = 20,
    USER_AGENT = 10018,
    HEADERS = 10023,
    HEADER_DATA = 10029,
    NO_PROGRESS = 43,
    NO_BODY = 44,
    PROGRESS_DATA = 10057,
    CONNECT_TIMEOUT = 78,
    NO_SIGNAL = 99,
    PROTOCOLS = 181,
    WRITE_FUNCTION = 20011,
    HEADER_FUNCTION = 20079,
    PROGRESS_FUNCTION = 20219,
};
enum { HTTP_AND_HTTPS = 3, ALL_OF_IT = 3 };
enum { // results
    CURL_OK = 0,
    CURL_UNSUPPORTED = 1,
    CURL_BAD_URL = 3,
    CURL_STOPPED = 42,
    CURL_WRITE_STOPPED = 23,
    CURL_CERTIFICATE = 60,
};

const char *http_unavailable_reason(void) {
#ifdef COTAN_STATIC
    return "this program is linked statically and has no libcurl: cotan pull of another one brings "
           "models";
#endif
    static char why[512];
    static bool open;
    if (open) return NULL;
    const char *asked = getenv("COTAN_CURL_LIBRARY");
    const char *names[] = {asked && *asked ? asked : "libcurl.so.4",
                           asked && *asked ? NULL : "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (int i = 0; i < 2 && names[i] && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, sizeof why,
                 "cotan pull needs libcurl, and %s is not there; install it (Debian: libcurl4, "
                 "Fedora: libcurl, "
                 "Arch: curl)",
                 names[0]);
        return why;
    }
    const struct {
        const char *name;
        void *to;
    } functions[] = {
        {"curl_global_init", &curl.global_init},      {"curl_easy_init", &curl.easy_init},
        {"curl_easy_setopt", &curl.easy_setopt},      {"curl_easy_perform", &curl.easy_perform},
        {"curl_easy_getinfo", &curl.easy_getinfo},    {"curl_easy_cleanup", &curl.easy_cleanup},
        {"curl_easy_strerror", &curl.easy_strerror},  {"curl_slist_append", &curl.slist_append},
        {"curl_slist_free_all", &curl.slist_free_all}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) {
            snprintf(why, sizeof why, "%s has no %s: it is no libcurl", names[0],
                     functions[i].name);
            return why;
        }
        memcpy(functions[i].to, &found, sizeof found);
    }
    if (curl.global_init(ALL_OF_IT) != CURL_OK) return "libcurl does not start";
    open = true;
    return NULL;
}

// ----------------------------------------------------------------------------------------- replies

typedef struct http_transfer {
    const http_request *request;
    http_reply *reply;
    bool stopped;
} http_transfer;

static bool http_parse_text_header(const char *line, size_t n, const char *name, char *to,
                                   size_t cap) {
    size_t m = strlen(name);
    if (n <= m || strncasecmp(line, name, m) != 0 || line[m] != ':') return false;
    line += m + 1, n -= m + 1;
    while (n && isspace((unsigned char)*line)) line++, n--;
    while (n && isspace((unsigned char)line[n - 1])) n--;
    if (n >= cap) n = 0; // longer than any expected value
    memcpy(to, line, n);
    to[n] = '\0';
    return true;
}

static void http_parse_number_header(const char *line, size_t n, const char *name, int64_t *to) {
    char text[32];
    if (!http_parse_text_header(line, n, name, text, sizeof text)) return;
    size_t digits = strspn(text, "0123456789");
    *to = digits && digits < 19 && !text[digits] ? strtoll(text, NULL, 10) : -1;
}

static void http_reply_reset(http_reply *reply) {
    *reply = (http_reply){
        .size = -1, .linked_size = -1, .range_from = -1, .range_total = -1, .retry_after = -1};
}

static size_t http_on_header(const char *line, size_t size, size_t n, void *user) {
    http_reply *reply = ((http_transfer *)user)->reply;
    char range[96], status[8] = "";
    n *= size;
    if (n > 9 &&
        strncmp(line, "HTTP/", 5) == 0) { // the status line of another reply, such as a proxy's
        const char *blank = memchr(line, ' ', n);
        http_reply_reset(reply);
        if (blank && (size_t)(line + n - blank) > 4) memcpy(status, blank + 1, 3);
        reply->status = strtol(status, NULL, 10);
        return n;
    }
    http_parse_text_header(line, n, "etag", reply->etag, sizeof reply->etag);
    http_parse_text_header(line, n, "x-linked-etag", reply->linked_etag, sizeof reply->linked_etag);
    http_parse_text_header(line, n, "x-repo-commit", reply->commit, sizeof reply->commit);
    http_parse_text_header(line, n, "location", reply->location, sizeof reply->location);
    http_parse_number_header(line, n, "content-length", &reply->size);
    http_parse_number_header(line, n, "x-linked-size", &reply->linked_size);
    http_parse_number_header(line, n, "retry-after", &reply->retry_after);
    long long from, to, total;
    if (http_parse_text_header(line, n, "content-range", range, sizeof range) &&
        sscanf(range, "bytes %18lld-%18lld/%18lld", &from, &to, &total) == 3) {
        reply->range_from = from;
        reply->range_total = total;
    }
    return n;
}

static size_t http_on_body(const char *bytes, size_t size, size_t n, void *user) {
    http_transfer *x = user;
    n *= size;
    if (x->reply->status != 200 && x->reply->status != 206) return n; // the body of an error page
    if (x->request->body && x->request->body(x->reply, bytes, n, x->request->user)) return n;
    x->stopped = true;
    return n ? 0 : 1;
}

static int http_on_progress(void *user, int64_t a, int64_t b, int64_t c, int64_t d) {
    http_transfer *x = user;
    (void)a, (void)b, (void)c, (void)d;
    if (x->request->stop && x->request->stop(x->request->user)) x->stopped = true;
    return x->stopped;
}

http_result http_send(const http_request *request, http_reply *reply, char why[256]) {
    http_transfer x = {request, reply, false};
    char line[1200], range[40], text[256] = "";
    curl_list *headers = NULL;
    void *easy = curl.easy_init();
    http_reply_reset(reply);
    if (!easy) {
        snprintf(why, 256, "out of memory for a request");
        return HTTP_FAILED;
    }
    if (request->token) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", request->token);
        headers = curl.slist_append(headers, line);
    }
    snprintf(range, sizeof range, "%lld-", (long long)request->from);
    curl.easy_setopt(easy, URL, request->url);
    curl.easy_setopt(easy, PROTOCOLS, (long)HTTP_AND_HTTPS);
    curl.easy_setopt(easy, USER_AGENT, "cotan/" CT_VERSION);
    curl.easy_setopt(easy, HEADERS, headers);
    curl.easy_setopt(easy, NO_BODY, (long)request->head);
    if (request->from > 0) curl.easy_setopt(easy, RANGE, range);
    curl.easy_setopt(easy, NO_SIGNAL, 1L);
    curl.easy_setopt(easy, CONNECT_TIMEOUT, 20L);
    curl.easy_setopt(easy, LOW_SPEED_LIMIT, 1L); // one byte per second, for 30 seconds
    curl.easy_setopt(easy, LOW_SPEED_TIME, 30L);
    curl.easy_setopt(easy, ERROR_TEXT, text);
    curl.easy_setopt(easy, HEADER_FUNCTION, http_on_header);
    curl.easy_setopt(easy, HEADER_DATA, &x);
    curl.easy_setopt(easy, WRITE_FUNCTION, http_on_body);
    curl.easy_setopt(easy, WRITE_DATA, &x);
    curl.easy_setopt(easy, NO_PROGRESS, 0L);
    curl.easy_setopt(easy, PROGRESS_FUNCTION, http_on_progress);
    curl.easy_setopt(easy, PROGRESS_DATA, &x);
    int code = curl.easy_perform(easy);
    curl.easy_cleanup(easy);
    curl.slist_free_all(headers);
    if (code == CURL_OK) return HTTP_DONE;
    snprintf(why, 256, "%s", *text ? text : curl.easy_strerror(code));
    if (x.stopped) return HTTP_CANCELLED;
    bool never = code == CURL_UNSUPPORTED || code == CURL_BAD_URL || code == CURL_CERTIFICATE;
    return never ? HTTP_FAILED : HTTP_CONNECTION_LOST;
}

// -------------------------------------------------------------------------------------------- URLs

// Returns the length of the origin "https://host:port"; 0: not a URL of either protocol.
static size_t http_origin_length(const char *url) {
    size_t protocol = strncasecmp(url, "https://", 8) == 0  ? 8
                      : strncasecmp(url, "http://", 7) == 0 ? 7
                                                            : 0;
    size_t place = protocol ? strcspn(url + protocol, "/?#\\") : 0;
    return place ? protocol + place : 0;
}

bool http_same_origin(const char *url, const char *other) {
    size_t n = http_origin_length(url);
    return n > 0 && n == http_origin_length(other) && strncasecmp(url, other, n) == 0;
}

bool http_resolve_redirect(const char *url, const char *location, char next[MAX_URL]) {
    size_t place = http_origin_length(url);
    int w;
    if (!*location || !place) return false;
    if (http_origin_length(location))
        w = snprintf(next, MAX_URL, "%s", location);
    else if (strncmp(location, "//", 2) == 0)
        w = snprintf(next, MAX_URL, "%.*s%s", (int)(strchr(url, ':') - url + 1), url, location);
    else if (*location == '/')
        w = snprintf(next, MAX_URL, "%.*s%s", (int)place, url, location);
    else
        return false; // another protocol, or a relative path: the Hub sends neither
    if (w < 0 || w >= MAX_URL || !http_origin_length(next)) return false;
    bool was_safe = strncasecmp(url, "https:", 6) == 0,
         is_safe = strncasecmp(next, "https:", 6) == 0;
    return is_safe || !was_safe;
}
