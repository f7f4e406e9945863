#include "cli/report/output_file.h"

#include "base/status.h"

#include <sys/stat.h>

rp_status rpi_output_open(const char *path, rpi_output_file *out_file) {
    rpi_output_file file = {0};
    struct stat facts;
    bool exists = stat(path, &facts) == 0;
    if (exists && S_ISDIR(facts.st_mode))
        return RP_FAIL(IO, "cannot write %s: it is a folder", path);
    if (exists && !S_ISREG(facts.st_mode)) {
        file.direct = true;
        file.stream = fopen(path, "we");
        if (!file.stream) return RP_FAIL_ERRNO(IO, "cannot write %s", path);
        snprintf(file.replacement.path, sizeof file.replacement.path, "%s", path);
    } else {
        RP_TRY(rpi_replacement_open(path, &file.replacement));
        file.stream = file.replacement.stream;
    }
    *out_file = file;
    return RP_OK;
}

rp_status rpi_output_finish(rpi_output_file *file) {
    bool failed = ferror(file->stream) != 0; /* errno is then that of another call */
    if (fflush(file->stream) != 0)
        return RP_FAIL_ERRNO(IO, "cannot write %s", file->replacement.path);
    if (!failed) return RP_OK;
    return RP_FAIL(IO, "cannot write %s; is the disk full?", file->replacement.path);
}

rp_status rpi_output_commit(rpi_output_file *file) {
    rp_status status = rpi_output_finish(file);
    FILE *stream = file->stream;
    file->stream = NULL;
    if (!file->direct) return rpi_replacement_close(&file->replacement, status);
    if (fclose(stream) != 0 && status == RP_OK)
        status = RP_FAIL_ERRNO(IO, "cannot write %s", file->replacement.path);
    return status;
}

void rpi_output_discard(rpi_output_file *file) {
    FILE *stream = file->stream;
    file->stream = NULL;
    if (!stream) return;
    if (file->direct)
        fclose(stream);
    else
        (void)rpi_replacement_close(&file->replacement, RP_INTERNAL);
}
