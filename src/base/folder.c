#include "base/folder.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

rp_status rpi_folder_make(const char *path) {
    if (!*path) return RP_FAIL(IO, "a folder's path is empty");
    char *copy = NULL;
    RP_TRY(rpi_strdup(path, &copy));
    rp_status status = RP_OK;
    for (char *slash = strchr(copy + 1, '/'); status == RP_OK; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = RP_FAIL_ERRNO(IO, "cannot make the folder %s", copy);
        if (!slash) break;
        *slash = '/';
    }
    struct stat facts;
    if (status == RP_OK && (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode)))
        status = RP_FAIL(IO, "%s is not a folder", path);
    rpi_free(copy);
    return status;
}
