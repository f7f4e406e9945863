#include "cli/numbers.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

/* Four digits, but no more than three behind the point. */
static int digits_behind(double value) {
    return value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
}

const char *rpi_time_text(double seconds, char text[RPI_TIME_BYTES]) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    int unit = 0;
    if (seconds >= 120 && isfinite(seconds)) {
        long long s = llround(fmin(seconds, 1e15));
        if (s >= 3600)
            snprintf(text, RPI_TIME_BYTES, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
        else
            snprintf(text, RPI_TIME_BYTES, "%lld:%02lld", s / 60, s % 60);
        return text;
    }
    while (unit < 3 && seconds > 0 && seconds < units[unit].seconds) unit++;
    double value = seconds / units[unit].seconds;
    snprintf(text, RPI_TIME_BYTES, "%.*f %s", seconds == 0 ? 0 : digits_behind(value), value,
             units[unit].name);
    return text;
}

const char *rpi_loss_text(double value, char text[RPI_NUMBER_BYTES]) {
    double size = fabs(value);
    bool plain = size == 0 || (size >= 1e-4 && size < 1e6) || !isfinite(value);
    if (!plain)
        snprintf(text, RPI_NUMBER_BYTES, "%.1e", value);
    else
        snprintf(text, RPI_NUMBER_BYTES, "%.*f", size < 10 ? 4 : size < 1000 ? 2 : 0, value);
    return text;
}
