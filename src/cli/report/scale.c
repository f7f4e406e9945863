#include "cli/report/scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 1, 2 or 5 times a power of ten, whichever is nearest to `rough` as a ratio. */
static double nice(double rough) {
    double power = pow(10, floor(log10(rough)));
    double share = rough / power;
    return power * (share < sqrt(2) ? 1 : share < sqrt(10) ? 2 : share < sqrt(50) ? 5 : 10);
}

static void add_tick(rpi_scale *scale, double value, const char *text) {
    if (scale->tick_count == RPI_TICKS) return;
    rpi_tick *tick = &scale->ticks[scale->tick_count++];
    tick->value = value;
    snprintf(tick->text, sizeof tick->text, "%s", text);
}

/* As many digits as distinguish ticks, whatever their size. */
static void linear_text(double value, double step, const char *suffix,
                        char text[RPI_QUANTITY_TEXT]) {
    int decimals = (int)ceil(-log10(step) - 1e-9);
    int digits = 1;
    if (value != 0)
        digits = (int)(floor(log10(fabs(value)) + 1e-9) - floor(log10(step) + 1e-9));
    if (fabs(value) >= 1e6 || step < 1e-5)
        snprintf(text, RPI_QUANTITY_TEXT, "%.*g%s", digits < 15 ? digits + 1 : 15, value,
                 suffix);
    else
        snprintf(text, RPI_QUANTITY_TEXT, "%.*f%s", decimals > 0 ? decimals : 0, value, suffix);
}

static void linear_ticks(rpi_scale *scale, const rpi_range *range) {
    if (range->quantity == RPI_WHOLE && scale->high - scale->low < 1) {
        scale->low = floor(scale->low);
        scale->high = fmax(ceil(scale->high), scale->low + 1);
    }
    double size = fmax(fabs(scale->low), fabs(scale->high));
    const rpi_quantity_unit *unit = rpi_unit_for(range->quantity, size);
    double step = nice((scale->high - scale->low) / unit->size / range->wanted);
    if (range->quantity == RPI_WHOLE && step * unit->size < 1) step = 1 / unit->size;
    double first = scale->low / unit->size / step, last = scale->high / unit->size / step;
    if (range->rounds) {
        first = floor(first + 1e-9);
        last = ceil(last - 1e-9);
        scale->low = first * step * unit->size;
        scale->high = last * step * unit->size;
    }
    bool suffixed = range->quantity == RPI_WHOLE;
    scale->unit = suffixed ? "" : unit->name;
    double start = ceil(first - 1e-9);
    for (int i = 0; start + i <= last + 1e-9 && i < RPI_TICKS; i++) {
        char text[RPI_QUANTITY_TEXT];
        double value = start + i == 0 ? 0 : (start + i) * step; /* no minus zero */
        if (suffixed && value == 0)
            snprintf(text, sizeof text, "0");
        else
            linear_text(value, step, suffixed ? unit->name : "", text);
        add_tick(scale, value * unit->size, text);
    }
}

/* Each tick of a logarithmic scale has its own unit: 10 kB, 1 MB. */
static void log_text(rpi_quantity quantity, double value, char text[RPI_QUANTITY_TEXT]) {
    if (quantity == RPI_NUMBER) {
        if (value >= 0.00009 && value < 1e5)
            snprintf(text, RPI_QUANTITY_TEXT, "%g", value);
        else
            rpi_number_text(value, 1, text);
        return;
    }
    const rpi_quantity_unit *unit = rpi_unit_for(quantity, value);
    bool spaced = quantity != RPI_WHOLE;
    snprintf(text, RPI_QUANTITY_TEXT, "%.3g%s%s", value / unit->size, spaced ? " " : "",
             unit->name);
}

/* The i-th number of the sequence 1 2 5 10 20 50 ..., 0 being 1. */
static double round_at(int i) {
    static const double mantissas[] = {1, 2, 5};
    int decade = (int)floor(i / 3.0);
    return mantissas[i - 3 * decade] * pow(10, decade);
}

static void log_ticks(rpi_scale *scale, const rpi_range *range) {
    int first = 3 * (int)floor(log10(scale->low)), last = 3 * (int)ceil(log10(scale->high));
    while (round_at(first + 1) <= scale->low * (1 + 1e-9)) first++;
    while (round_at(last - 1) >= scale->high * (1 - 1e-9)) last--;
    if (range->rounds) {
        scale->low = round_at(first);
        scale->high = round_at(last);
    }
    /* Full decades only, or every n-th of them, if the sequence would be too dense. */
    int stride = 1;
    while ((last - first) / stride > range->wanted + 1) stride = stride == 1 ? 3 : stride + 3;
    scale->unit = "";
    for (int i = first; i <= last; i++) {
        double value = round_at(i);
        bool inside = value >= scale->low * (1 - 1e-9) && value <= scale->high * (1 + 1e-9);
        if (!inside || i % stride != 0) continue;
        char text[RPI_QUANTITY_TEXT];
        log_text(range->quantity, value, text);
        add_tick(scale, value, text);
    }
}

static void open_ends(rpi_scale *scale) {
    double low = scale->low, high = scale->high;
    if (!isfinite(low) || !isfinite(high) || low > high) {
        scale->low = 0;
        scale->high = 1;
        scale->logarithmic = false;
    } else if (scale->logarithmic && low > 0) {
        if (low == high) {
            scale->low = low / 2;
            scale->high = high * 2;
        }
    } else {
        scale->logarithmic = false;
        if (high - low > 1e-12 * fmax(fabs(low), fabs(high))) return;
        double room = high == 0 ? 1 : fabs(high) * 0.1;
        if (low != 0) scale->low = low - room;
        scale->high = high + room;
    }
}

rpi_scale rpi_scale_make(const rpi_range *range, double from, double to) {
    rpi_scale scale = {.low = range->low,
                       .high = range->high,
                       .logarithmic = range->logarithmic,
                       .from = from,
                       .to = to};
    open_ends(&scale);
    if (scale.logarithmic)
        log_ticks(&scale, range);
    else
        linear_ticks(&scale, range);
    return scale;
}

double rpi_scale_at(const rpi_scale *scale, double value) {
    double share = (value - scale->low) / (scale->high - scale->low);
    if (scale->logarithmic)
        share = value > 0 ? log(value / scale->low) / log(scale->high / scale->low) : NAN;
    return scale->from + share * (scale->to - scale->from);
}
