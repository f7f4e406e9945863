/* Numbers with units, as users write them. K, M, G, T are binary (1024), kB, MB, GB, TB
 * decimal (1000), so that `--count 16M` is 2^24 elements and `--size 100MB` is 10^8 bytes. */
#ifndef RPI_BASE_UNITS_H
#define RPI_BASE_UNITS_H

#include "redpoll/status.h"

/* "25557032", "16M", "64K". RP_INVALID says what is allowed. */
rp_status rpi_parse_count(const char *text, int64_t *out_count);
/* Bytes: "4096", "64K", "64KiB", "100MB", "1.5GB", "2TiB". */
rp_status rpi_parse_bytes(const char *text, int64_t *out_bytes);
/* Seconds, whose unit may be left out: "30", "30s", "10min", "1h", "250ms", "50us", "10ns",
 * "30d". */
rp_status rpi_parse_seconds(const char *text, double *out_seconds);
/* The same where a bare number would hardly be seconds, as in the latency of a link: only 0 may
 * stand without a unit. */
rp_status rpi_parse_duration(const char *text, double *out_seconds);
/* A time of which nobody could guess the unit, in hours as well as in seconds: only 0 may stand
 * without one. "30s", "10min", "1h", "30d". */
rp_status rpi_parse_span(const char *text, double *out_seconds);
rp_status rpi_parse_real(const char *text, double *out_value);

#endif
