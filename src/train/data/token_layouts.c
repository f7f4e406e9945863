/* The catalogue of layouts of tokens on disk. */
#include "base/memory.h"
#include "base/status.h"
#include "train/data/token_file.h"

extern const rpi_token_layout rpi_token_layout_raw;
extern const rpi_token_layout rpi_token_layout_nanoset;
extern const rpi_token_layout rpi_token_layout_megatron;
extern const rpi_token_layout rpi_token_layout_llmc;

static const rpi_token_layout *const layouts[] = {
    &rpi_token_layout_raw, /* first: a path may hold anything behind its mark */
    &rpi_token_layout_nanoset,
    &rpi_token_layout_megatron,
    &rpi_token_layout_llmc,
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

const rpi_token_layout *rpi_token_layout_at(int index) {
    return index >= 0 && index < LAYOUTS ? layouts[index] : NULL;
}

static rp_status open_layout(const char *path, rpi_token_file *file) {
    for (int i = 0; i < LAYOUTS; i++) {
        if (!layouts[i]->recognises(path)) continue;
        file->layout = layouts[i];
        RP_TRY(layouts[i]->open(path, file));
        return file->count > 0 ? RP_OK : RP_FAIL(CORRUPT, "%s holds no tokens", path);
    }
    return RP_FAIL(
        NOT_FOUND,
        "no tokens at %s: neither %s.ds (of redpoll data tokenize, or a nanoset) nor "
        "%s.idx with %s.bin (Megatron) nor a .bin of llm.c; ids without a header are "
        "uint16:PATH",
        path, path, path, path);
}

rp_status rpi_token_file_open(const char *path, rpi_token_file **out_file) {
    rpi_token_file *file = NULL;
    RP_TRY(rpi_alloc(sizeof *file, "a file of tokens", &file));
    rp_status status = open_layout(path, file);
    if (status == RP_OK)
        *out_file = file;
    else
        rpi_token_file_close(file);
    return status;
}
