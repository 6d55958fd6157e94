// Is this the thread sanitizer's build? There the process has a thread more, and its memory holds shadows.
#ifndef COTAN_TESTS_SANITIZED_H
#define COTAN_TESTS_SANITIZED_H

#if defined(__has_feature) // clang
#if __has_feature(thread_sanitizer)
#define CT_THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__) // gcc
#define CT_THREAD_SANITIZER 1
#endif
#ifndef CT_THREAD_SANITIZER
#define CT_THREAD_SANITIZER 0
#endif

#endif
