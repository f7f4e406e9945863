#include "train/checkpoint/rank_checksums.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/checksum.h"

#include <string.h>

static rp_status write_text(const uint32_t *checksums, int world, char **out_text) {
    bool has_files = false;
    for (int r = 0; r < world; r++) has_files = has_files || checksums[r];
    *out_text = NULL;
    if (!has_files) return RP_OK;
    RP_TRY(rpi_alloc((size_t)world * RPI_CHECKSUM_DIGITS + 1, "checksums", out_text));
    for (int r = 0; r < world; r++)
        rpi_checksum_write(*out_text + (size_t)r * RPI_CHECKSUM_DIGITS, checksums[r]);
    (*out_text)[(size_t)world * RPI_CHECKSUM_DIGITS] = '\0';
    return RP_OK;
}

rp_status rpi_rank_checksums_gather(const rpi_trainer *t, uint32_t own, char **out_text) {
    uint32_t *all = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *all, "checksums", &all));
    rp_status status = rp_all_gather(t->comm, &own, all, 1, RP_U32, NULL, NULL);
    if (status == RP_OK) status = write_text(all, t->place.world, out_text);
    rpi_free(all);
    return status;
}

rp_status rpi_rank_checksums_check(const rpi_safetensors *model, const rpi_safetensors *file,
                                   int rank) {
    const char *text = model ? rpi_safetensors_metadata(model, RPI_RANK_CHECKSUMS_KEY) : NULL;
    char digits[RPI_CHECKSUM_DIGITS];
    uint32_t wanted = 0;
    if (!text) return RP_OK;
    if (strlen(text) < ((size_t)rank + 1) * RPI_CHECKSUM_DIGITS)
        return RP_FAIL(CORRUPT, "%s has no checksum of rank %d's file",
                       rpi_safetensors_path(model), rank);
    memcpy(digits, text + (size_t)rank * RPI_CHECKSUM_DIGITS, sizeof digits);
    if (!rpi_checksum_take(digits, &wanted))
        return RP_FAIL(CORRUPT, "%s: its %s are none", rpi_safetensors_path(model),
                       RPI_RANK_CHECKSUMS_KEY);
    if (!wanted || wanted == rpi_safetensors_checksum(file)) return RP_OK;
    return RP_FAIL(CORRUPT,
                   "%s is of another run, or of the same step done again: %s was saved "
                   "with another one",
                   rpi_safetensors_path(file), rpi_safetensors_path(model));
}
