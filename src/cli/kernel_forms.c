#include "cli/kernel_forms.h"

#include "base/status.h"
#include "base/suggest.h"
#include "codec/codec.h"
#include "comm/values/reductions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rpi_kernel_form *rpi_kernel_form_at(int index) {
    static rpi_kernel_form *const of_comm[] = {&rpi_add_two_form, NULL};
    rpi_kernel_form *kernel;
    int in_codec = 0;
    for (; (kernel = rpi_codec_form_at(in_codec)) != NULL; in_codec++)
        if (in_codec == index) return kernel;
    return of_comm[index - in_codec];
}

static const char *kernel_name_at(const void *context, int index) {
    (void)context;
    const rpi_kernel_form *kernel = rpi_kernel_form_at(index);
    return kernel ? kernel->kernel : NULL;
}

static const char *form_name_at(const void *kernel, int index) {
    return ((const rpi_kernel_form *)kernel)->names[index];
}

/* "KERNEL=FORM", ended by a comma or the end. */
static rp_status check_one(const char *at, size_t length) {
    char word[64];
    if (length >= sizeof word)
        return RP_FAIL(INVALID, "REDPOLL_FORMS: '%.*s' is too long", (int)length, at);
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    char *form = strchr(word, '=');
    if (!form) return RP_FAIL(INVALID, "REDPOLL_FORMS: '%s' is not KERNEL=FORM", word);
    *form++ = '\0';
    int kernel, index;
    RP_TRY(rpi_name_find("kernel", word, kernel_name_at, NULL, &kernel));
    return rpi_name_find("form", form, form_name_at, rpi_kernel_form_at(kernel), &index);
}

rp_status rpi_kernel_forms_check(void) {
    const char *at = getenv("REDPOLL_FORMS");
    for (size_t length; at && *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        RP_TRY(check_one(at, length));
    }
    return RP_OK;
}

const char *rpi_kernel_form_text(rpi_kernel_form *kernel, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "%s (of",
                                   kernel->names[rpi_form_for(kernel, RPI_FORM_LEAST)]);
    for (int i = 0; kernel->names[i] && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s %s", i ? "," : "",
                                 kernel->names[i]);
    if (used < bytes) snprintf(text + used, bytes - used, ")");
    return text;
}
