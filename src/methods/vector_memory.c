#include "methods/vector_memory.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/run/in_place.h"
#include "net/memory/buffers.h"

#include <stdatomic.h>
#include <string.h>

/* In whole pages, which begin as zeros. */
static rp_status take_buffer(size_t bytes, void **out_buffer) {
    void *buffer = NULL;
    RP_TRY(rp_buffer_allocate(bytes, &buffer));
    rp_status status = rpi_buffers_reserve(buffer);
    if (status == RP_OK)
        *out_buffer = buffer;
    else
        rpi_vector_free(buffer);
    return status;
}

static void say_once(const char *what, size_t bytes) {
    static atomic_bool said;
    if (atomic_exchange(&said, true)) return;
    rpi_log(RP_LOG_WARNING,
            "other ranks of this host get copies of %s (%zu bytes), which they cannot read in "
            "place: %s",
            what, bytes, rp_last_error()->message);
}

rp_status rpi_vector_alloc(const rp_comm *comm, size_t bytes, const char *what,
                           void *out_vector) {
    void *buffer = NULL;
    /* In parentheses: the analyser's model is a macro, and knows the type of what it assigns.
     */
    if (!bytes || !rpi_comm_reads_in_place(comm)) return (rpi_alloc)(bytes, what, out_vector);
    if (take_buffer(bytes, &buffer) != RP_OK) {
        say_once(what, bytes);
        return (rpi_alloc)(bytes, what, out_vector);
    }
    memcpy(out_vector, &buffer, sizeof buffer); /* which is of another type of pointer */
    return RP_OK;
}

void rpi_vector_free(void *vector) {
    if (!vector) return;
    if (!rpi_buffers_is_one(vector)) {
        rpi_free(vector);
        return;
    }
    rpi_kept_error why;
    rpi_error_keep(&why);
    if (rp_buffer_free(vector) != RP_OK)
        rpi_log(RP_LOG_WARNING, "a vector is left: %s", rp_last_error()->message);
    rpi_error_put_back(&why);
}
