#include "train/huggingface/hf_wrappers.h"

#include <stdio.h>
#include <string.h>

/* Before a name, any of them, any number of times. */
static const char *const outside[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module.",
                                      "base_model.model.", NULL};
/* Between its parts. */
static const char *const inside[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                     "_checkpoint_wrapped_module.", NULL};

/* How many bytes of one of these begin a text. */
static size_t begins_with(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strncmp(text, *words, strlen(*words)) == 0) return strlen(*words);
    return 0;
}

static size_t wrapper_bytes(const char *name) {
    size_t bytes = 0, more;
    while ((more = begins_with(name + bytes, outside)) > 0) bytes += more;
    return bytes;
}

void rpi_hf_unwrap(const char *name, char *out) {
    const char *from = name + wrapper_bytes(name);
    while (*from) {
        from += begins_with(from, inside);
        size_t part = strcspn(from, ".");
        part += from[part] == '.';
        memmove(out, from, part);
        out += part;
        from += part;
    }
    *out = '\0';
}

void rpi_hf_wrapper_of(const char *name, char *text, size_t bytes) {
    snprintf(text, bytes, "%.*s", (int)wrapper_bytes(name), name);
}
