#include "redpoll/version.h"

const char *rp_version(void) {
    return REDPOLL_VERSION;
}
