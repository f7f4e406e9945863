#include "base/status.h"

#include "base/c_locale.h"
#include "base/lacking.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local rpi_kept_error record = {.error = {.message = "", .file = ""}};

const char *rp_status_text(rp_status status) {
    switch (status) {
#define RP_STATUS_TEXT(name, value, text)                                                      \
    case RP_##name: return text;
        RP_STATUS_TABLE(RP_STATUS_TEXT)
#undef RP_STATUS_TEXT
    }
    return "unknown status";
}

const char *rp_status_name(rp_status status) {
    switch (status) {
#define RP_STATUS_NAME(name, value, text)                                                      \
    case RP_##name: return #name;
        RP_STATUS_TABLE(RP_STATUS_NAME)
#undef RP_STATUS_NAME
    }
    return "UNKNOWN";
}

const rp_error *rp_last_error(void) {
    return &record.error;
}

static rp_status store(rp_status status, const char *file, int line) {
    record.error =
        (rp_error){.status = status, .message = record.message, .file = file, .line = line};
    return status;
}

rp_status rpi_fail(rp_status status, const char *file, int line, const char *format, ...) {
    /* Formatted aside: the arguments may point into the record (an error that quotes one). */
    char message[RPI_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    rpi_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    memcpy(record.message, message, sizeof message);
    return store(status, file, line);
}

rp_status rpi_fail_errno(rp_status status, const char *file, int line, const char *format,
                         ...) {
    int saved = errno;
    char message[RPI_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = rpi_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof message) {
        char text[128], advice[256];
        snprintf(message + length, sizeof message - (size_t)length, ": %s%s",
                 strerror_r(saved, text, sizeof text),
                 rpi_lacking_text(saved, advice, sizeof advice));
    }
    memcpy(record.message, message, sizeof message);
    return store(status, file, line);
}

rp_status rpi_fail_context(rp_status status, const char *format, ...) {
    char message[RPI_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = rpi_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof message)
        snprintf(message + length, sizeof message - (size_t)length, "%s", record.message);
    memcpy(record.message, message, sizeof message);
    return store(status, record.error.file, record.error.line);
}

void rpi_error_keep(rpi_kept_error *out_kept) {
    *out_kept = record;
}

void rpi_error_put_back(const rpi_kept_error *kept) {
    record = *kept;
    if (record.error.status != RP_OK) record.error.message = record.message;
}
