// Requests by libcurl, which is opened when the first is made.
#ifndef COTAN_CLI_HTTP_H
#define COTAN_CLI_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_URL = 8192 };

typedef struct http_reply {
    long status;
    char etag[160], linked_etag[160], commit[64], location[MOST_URL];
    int64_t size, linked_size;       // -1: not said
    int64_t range_from, range_total; // of what was sent in part; -1: it was not
    int64_t retry_after;             // seconds; -1: not said
} http_reply;

typedef struct http_request {
    const char *url;
    const char *token; // NULL: none is sent
    bool head;         // without the body
    int64_t from;      // the first byte that is wanted
    // Takes the body of a reply that brings one (200, 206). False: the request ends.
    bool (*body)(const http_reply *reply, const void *bytes, size_t n, void *user);
    bool (*stop)(void *user); // asked now and then; true: the request ends
    void *user;
} http_request;

typedef enum {
    HTTP_DONE,    // status says how
    HTTP_DROPPED, // the connection failed; it may be there the next time
    HTTP_STOPPED, // by body or stop
    HTTP_NEVER,   // another try ends as this one
} http_result;

// A sentence why no request can be made; NULL: they can.
const char *http_missing(void);
// `why`: of what is not DONE.
http_result http_send(const http_request *request, http_reply *reply, char why[256]);
// Does the URL lead to the machine, port and protocol of the other one?
bool http_same_place(const char *url, const char *other);
// Where a reply sends from `url`; false: nowhere that may be gone to.
bool http_follow(const char *url, const char *location, char next[MOST_URL]);

#endif
