/* What repeats took becomes items of an account. */
#include "cli/bench_machine.h"

#include "base/median.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORTEST 1e-9

rp_status rpi_machine_item_open(rpi_machine_bench *b, rpi_machine_work work, int pass,
                                const char *name, const double *at, double amount,
                                int *out_index) {
    if (b->count == RPI_MACHINE_TIMINGS)
        return RP_FAIL(INTERNAL, "%d items of a machine are the most", RPI_MACHINE_TIMINGS);
    rpi_machine_timing *t = &b->items[b->count];
    *t = (rpi_machine_timing){
        .item = {.work = work, .pass = pass}, .amount = amount, .whole = b->whole};
    snprintf(t->item.name, sizeof t->item.name, "%s", name);
    const rpi_machine_work_info *info = rpi_machine_work_at((int)work);
    for (int i = 0; at && i < RPI_RATE_SIDES && info->sides[i]; i++) t->item.at[i] = at[i];
    *out_index = b->count++;
    return RP_OK;
}

rp_status rpi_machine_whole_open(rpi_machine_bench *b, int *out_index) {
    b->whole = NULL;
    RP_TRY(rpi_machine_item_open(b, RPI_WORK_STEP, 0, "", NULL, 0, out_index));
    b->items[*out_index].is_whole = true;
    b->whole = &b->items[*out_index];
    return RP_OK;
}

void rpi_machine_whole_close(rpi_machine_bench *b) {
    b->whole = NULL;
}

void rpi_machine_item_time(rpi_machine_bench *b, int index, double seconds) {
    rpi_machine_timing *t = &b->items[index];
    if (t->whole) seconds = fmax(seconds, SHORTEST); /* as many as of its whole */
    if (t->count < RPI_MACHINE_TIMES && seconds > 0) t->seconds[t->count++] = seconds;
}

static double per(const rpi_machine_timing *t, double seconds) {
    return t->amount > 0 ? t->amount / seconds : seconds;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of those repeats whose whole was in the middle half. The median of each part would leave out
 * what disturbs now this one, now that one, and is in every whole. */
static double usual_part(const rpi_machine_timing *t) {
    double sorted[RPI_MACHINE_TIMES], sum = 0, used = 0;
    int count = t->whole->count < t->count ? t->whole->count : t->count;
    memcpy(sorted, t->whole->seconds, (size_t)count * sizeof sorted[0]);
    qsort(sorted, (size_t)count, sizeof sorted[0], compare);
    double least = sorted[count / 4], most = sorted[count - 1 - count / 4];
    for (int i = 0; i < count; i++) {
        if (t->whole->seconds[i] < least || t->whole->seconds[i] > most) continue;
        sum += t->seconds[i];
        used++;
    }
    return sum / used;
}

/* Where there are few repeats low and high are the shortest and the longest. */
static void sum_up(rpi_machine_timing *t) {
    int skipped = t->count / 10;
    t->item.repeats = t->count;
    double usual_s = t->whole ? usual_part(t) : 0;
    double median_s = rpi_median(t->seconds, t->count); /* sorts */
    t->item.value = per(t, t->whole ? usual_s : median_s);
    double first = per(t, t->seconds[skipped]),
           last = per(t, t->seconds[t->count - 1 - skipped]);
    t->item.low = fmin(fmin(first, last), t->item.value);
    t->item.high = fmax(fmax(first, last), t->item.value);
}

rp_status rpi_machine_bench_account(rpi_machine_bench *b, rpi_machine_account *account) {
    for (int i = 0; i < b->count; i++) {
        if (!b->items[i].count || b->items[i].is_whole) continue;
        sum_up(&b->items[i]);
        RP_TRY(rpi_machine_account_add(account, &b->items[i].item));
    }
    return RP_OK;
}
