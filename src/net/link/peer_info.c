#include "net/bytes/random_bytes.h"
#include "net/link/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t process_number; /* with the pid it names this process */

static void draw_process_number(void) {
    if (rpi_random_bytes("a number", &process_number, sizeof process_number) != RP_OK)
        process_number = (uint64_t)getpid();
}

static rp_status read_boot_id(char *text, size_t bytes) {
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    FILE *file = fopen(path, "re");
    if (!file) return RP_FAIL_ERRNO(IO, "cannot open %s", path);
    bool got = fgets(text, (int)bytes, file);
    fclose(file);
    if (!got) return RP_FAIL(IO, "cannot read %s", path);
    text[strcspn(text, "\n")] = 0;
    return RP_OK;
}

rp_status rpi_peer_info_self(rpi_peer_info *out_info) {
    rpi_peer_info info = {.pid = getpid()};
    RP_TRY(read_boot_id(info.machine, sizeof info.machine));
    char net[24]; /* "net:[4026531840]" */
    ssize_t length = readlink("/proc/self/ns/net", net, sizeof net - 1);
    if (length < 0) return RP_FAIL_ERRNO(IO, "cannot read /proc/self/ns/net");
    net[length] = 0;
    snprintf(info.host, sizeof info.host, "%.36s %s", info.machine, net);
    pthread_once(&once, draw_process_number);
    info.process = process_number;
    *out_info = info;
    return RP_OK;
}
