#include "cuda/capability.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS "; "

/* One of the list. */
typedef struct architecture {
    int number; /* 0: it is not understood */
    char only;  /* 'a': this GPU alone; 'f': its family; 0: what comes later, too */
    bool code;  /* the driver can compile it for what comes later */
} architecture;

static bool ends_with(const char *text, size_t length, const char *end) {
    size_t bytes = strlen(end);
    return length >= bytes && strncmp(text + length - bytes, end, bytes) == 0;
}

/* The next of the list; NULL: there is none. */
static const char *next(const char *list, architecture *out) {
    list += strspn(list, SEPARATORS);
    if (!*list) return NULL;
    size_t length = strcspn(list, SEPARATORS);
    char *end = (char *)list;
    long number = isdigit((unsigned char)*list) ? strtol(list, &end, 10) : 0;
    *out = (architecture){.number = number > 0 && number < 10000 ? (int)number : 0};
    if (out->number) out->only = (char)(*end == 'a' || *end == 'f' ? *end : 0);
    out->code = !ends_with(list, length, "-real");
    return list + length;
}

static bool fits(const architecture *a, int capability) {
    bool is_family = capability / 10 == a->number / 10 && capability >= a->number;
    if (!a->number) return true;
    if (a->only == 'a') return capability == a->number;
    return is_family || (a->code && !a->only && capability >= a->number);
}

bool rpi_capability_fits(const char *architectures, int capability) {
    architecture a;
    bool any = false;
    for (const char *at = architectures; (at = next(at, &a));) {
        any = true;
        if (fits(&a, capability)) return true;
    }
    return !any;
}

const char *rpi_capability_text(const char *architectures, char *text, size_t bytes) {
    architecture a;
    size_t used = 0;
    if (bytes) text[0] = '\0';
    for (const char *from = architectures, *to; (to = next(from, &a)); from = to) {
        from += strspn(from, SEPARATORS);
        if (used) used += (size_t)snprintf(text + used, bytes - used, ", ");
        if (used >= bytes) break;
        if (!a.number)
            used += (size_t)snprintf(text + used, bytes - used, "%.*s", (int)(to - from), from);
        else
            used += (size_t)snprintf(text + used, bytes - used, "%d.%d%s", a.number / 10,
                                     a.number % 10, a.code && !a.only ? " and later" : "");
        if (used >= bytes) break;
    }
    return text;
}
