#include "cli/file_limit.h"

#include <signal.h>
#include <stdbool.h>

static struct sigaction before;
static bool is_heeded;

void rpi_file_limit_heed(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (!is_heeded) is_heeded = sigaction(SIGXFSZ, &ignore, &before) == 0;
}

void rpi_file_limit_restore(void) {
    if (is_heeded) (void)sigaction(SIGXFSZ, &before, NULL);
}
