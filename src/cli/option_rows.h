/* Rows of the option tables of several commands, each written once. `field` is the offset of
 * the command's own field; defaults and help texts that differ are arguments. */
#ifndef RPI_CLI_OPTION_ROWS_H
#define RPI_CLI_OPTION_ROWS_H

#include "base/option.h"

/* Checks that report a mistake before anything is started. */
rp_status rpi_check_codec(const char *text);
rp_status rpi_check_adaptive_codec(const char *text); /* a codec, or auto and its options */
rp_status rpi_check_all_reduce(const char *text);     /* the name of an all-reduce algorithm */
rp_status rpi_check_link(const char *text);

/* clang-format off */
#define RPI_ROWS_RANKS(field, yaml, fallback, least, most, help)                               \
    {"ranks", "n", yaml, RPI_OPTION_COUNT, field, fallback, least, most, "N", help, NULL},     \
    {"np", NULL, NULL, RPI_OPTION_COUNT, field, NULL, least, most, "N", "the same as -n", NULL}
#define RPI_ROW_LINK(field, yaml, fallback, help)                                              \
    {"link", NULL, yaml, RPI_OPTION_TEXT, field, fallback, 0, 0, "RATE,LATENCY", help,         \
     rpi_check_link}
#define RPI_ROW_LOCAL(field, fallback, help)                                                   \
    {"local", NULL, NULL, RPI_OPTION_TEXT, field, fallback, 0, 0, "RATE,LATENCY", help,        \
     rpi_check_link}
#define RPI_ROW_BUCKET(field, yaml, help)                                                      \
    {"bucket-mb", NULL, yaml, RPI_OPTION_REAL, field, "4", 1e-3, 1e6, "MIB", help, NULL}
/* Options of a rank's device: a measured machine, and tables of devices. */
#define RPI_ROW_MACHINE(field, yaml, help)                                                     \
    {"machine", NULL, yaml, RPI_OPTION_TEXT, field, NULL, 0, 0, "FILE", help, NULL}
#define RPI_ROW_DEVICES(field)                                                                 \
    {"devices", NULL, NULL, RPI_OPTION_LIST, field, NULL, 0, 0, "FILE",                        \
     "of more devices (docs/planning.md); each time one more", NULL}
#define RPI_ROW_CODEC(field, yaml, fallback, help)                                             \
    {"codec", NULL, yaml, RPI_OPTION_TEXT, field, fallback, 0, 0, "CODEC", help,               \
     rpi_check_codec}
#define RPI_ROW_ALGORITHM(field, yaml, help, check)                                            \
    {"algorithm", NULL, yaml, RPI_OPTION_TEXT, field, NULL, 0, 0, "NAME", help, check}
#define RPI_ROW_CHUNK(field, yaml, help)                                                       \
    {"chunk", NULL, yaml, RPI_OPTION_BYTES, field, NULL, 1, 1e9, "BYTES", help, NULL}
#define RPI_ROW_ITERS(field, fallback)                                                         \
    {"iters", NULL, NULL, RPI_OPTION_COUNT, field, fallback, 1, 100000, "N",                   \
     "timed repeats; the median counts", NULL}
#define RPI_ROW_WARMUP(field, fallback)                                                        \
    {"warmup", "w", NULL, RPI_OPTION_COUNT, field, fallback, 0, 100000, "N",                  \
     "repeats before", NULL}
#define RPI_ROW_SEED(field, help)                                                              \
    {"seed", NULL, NULL, RPI_OPTION_COUNT, field, "1", 0, 0, "N", help, NULL}
#define RPI_ROW_SPAN(name, field, fallback, help)                                              \
    { name, NULL, NULL, RPI_OPTION_TEXT, field, fallback, 0, 0, "TIME", help, rpi_check_span }
#define RPI_ROW_JSON(field, help)                                                              \
    {"json", NULL, NULL, RPI_OPTION_FLAG, field, NULL, 0, 0, NULL, help, NULL}
#define RPI_ROW_TLS(field, yaml, help)                                                         \
    {"tls", NULL, yaml, RPI_OPTION_FLAG, field, NULL, 0, 0, NULL, help, NULL}
/* Hosts that are reached by ssh. */
#define RPI_ROWS_SSH(hostfile, ssh, remote_redpoll)                                            \
    {"hostfile", NULL, NULL, RPI_OPTION_TEXT, hostfile, NULL, 0, 0, "FILE",                    \
     "the same from a file, of lines HOST, HOST:N or HOST slots=N", NULL},                     \
    {"ssh", NULL, NULL, RPI_OPTION_TEXT, ssh, "ssh", 0, 0, "COMMAND",                          \
     "how hosts are reached: \"ssh -p 2222\"", NULL},                                          \
    {"remote-redpoll", NULL, NULL, RPI_OPTION_TEXT, remote_redpoll, NULL, 0, 0, "PATH",        \
     "this program on the hosts; when absent the path it has here, or what PATH has there",    \
     NULL}
/* clang-format on */

#endif
