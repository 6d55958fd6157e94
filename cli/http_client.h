// HTTP requests with libcurl, which is opened by the first request.
#ifndef COTAN_CLI_HTTP_CLIENT_H
#define COTAN_CLI_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_URL = 8192 };

typedef struct http_reply {
    long status;
    char etag[160], linked_etag[160], commit[64], location[MAX_URL];
    int64_t size, linked_size;       // -1: unknown
    int64_t range_from, range_total; // of a partial reply; -1: it is not partial
    int64_t retry_after;             // seconds; -1: not given
} http_reply;

typedef struct http_request {
    const char *url;
    const char *token; // NULL: none is sent
    bool head;         // a HEAD request
    int64_t from;      // offset of the first byte that is requested
    // Receives the body of a reply with status 200 or 206. False: the request is cancelled.
    bool (*body)(const http_reply *reply, const void *bytes, size_t n, void *user);
    bool (*stop)(void *user); // polled; true: the request is cancelled
    void *user;
} http_request;

typedef enum {
    HTTP_DONE,            // see status
    HTTP_CONNECTION_LOST, // the connection failed; another try may succeed
    HTTP_CANCELLED,       // by body or stop
    HTTP_FAILED,          // another try would fail, too
} http_result;

// Returns a sentence why requests are impossible; NULL: they are possible.
const char *http_unavailable_reason(void);
// Sends a request. `why`: the error, unless the result is HTTP_DONE.
http_result http_send(const http_request *request, http_reply *reply, char why[256]);
// True if the URL has the same host, port and protocol as the other one.
bool http_same_origin(const char *url, const char *other);
// Resolves a redirect from `url`; false: the location is not allowed.
bool http_resolve_redirect(const char *url, const char *location, char next[MAX_URL]);

#endif
