/* What a client says to a store, in a job without a secret: all of it is read. */
#include "fuzz_input.h"

#include "base/clock.h"
#include "net/socket/stream.h"
#include "net/store/store_tcp.h"
#include "net/trust/channel.h"
#include "redpoll/log.h"

enum { INPUTS_OF_A_SERVER = 500 }; /* each keeps what was set */

static void ignore(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level, (void)line;
}

static int serve(void) {
    static rp_store_server *server;
    static int port, inputs;
    rpi_secret none = {0};
    if (server && ++inputs % INPUTS_OF_A_SERVER) return port;
    rp_log_set_sink(ignore, NULL);
    rp_store_server_stop(server);
    server = NULL;
    return rpi_store_serve(NULL, 0, &none, &server, &port) == RP_OK ? port : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char heard[512];
    int fd = -1, port = serve();
    int64_t deadline_ns = rpi_deadline_ns(0.05); /* a get may wait */
    if (rpi_stream_dial(NULL, port, rpi_deadline_ns(1), &fd) != RP_OK) return 0;
    (void)rpi_stream_write(fd, data, bytes, deadline_ns);
    shutdown(fd, SHUT_WR);
    while (rpi_stream_read(fd, heard, 1, deadline_ns) == RP_OK) {
    }
    close(fd);
    return 0;
}
