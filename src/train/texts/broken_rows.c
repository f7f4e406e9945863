#include "train/texts/broken_rows.h"

#include "base/log.h"
#include "train/texts/text_parts.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_BYTES = 400, LATER_BYTES = 120 };

static void append(rpi_broken_rows *rows, const char *where, const char *why) {
    size_t used = strlen(rows->text);
    bool is_same = rows->count > 0 && strcmp(why, rows->first) == 0;
    snprintf(rows->text + used, sizeof rows->text - used, "%s%s: %.*s", used ? "; " : "", where,
             used ? LATER_BYTES : FIRST_BYTES, is_same ? "the same" : why);
}

static void name(rpi_broken_rows *rows, int64_t line, int64_t row, const char *where) {
    char place[400], mark[RPI_ROW_MARK];
    const char *why = rp_last_error()->message;
    bool is_first = rows->count == 0;
    rpi_text_row_mark(row, mark);
    if (where)
        snprintf(place, sizeof place, "%.200s%s%.180s", is_first ? rows->path : "",
                 is_first ? ": " : "", where);
    else if (is_first)
        snprintf(place, sizeof place, "%.300s:%lld%s", rows->path, (long long)line, mark);
    else
        snprintf(place, sizeof place, "line %lld%s", (long long)line, mark);
    append(rows, place, why);
    if (is_first) snprintf(rows->first, sizeof rows->first, "%s", why);
}

rp_status rpi_broken_rows_add(rpi_broken_rows *rows, rp_status status, int64_t line,
                              int64_t row, const char *where) {
    if (status != RP_CORRUPT && status != RP_INVALID) return status;
    if (rows->count < RPI_BROKEN_NAMED) name(rows, line, row, where);
    if (rows->count++ == 0) rows->status = status;
    return RP_OK;
}

bool rpi_broken_rows_are_enough(const rpi_broken_rows *rows) {
    return !rows->skips && rows->count >= RPI_BROKEN_NAMED;
}

/* "31 of 87 rows", "1 row" */
static void count_text(const rpi_broken_rows *rows, int64_t all, char text[80]) {
    char of[40] = "";
    if (all) snprintf(of, sizeof of, " of %lld", (long long)all);
    snprintf(text, 80, "%lld%s %s%s", (long long)rows->count, of, rows->unit,
             (all ? all : rows->count) == 1 ? "" : "s");
}

void rpi_broken_rows_tell(const rpi_broken_rows *rows, int64_t all) {
    char count[80];
    if (rows->count == 0) return;
    count_text(rows, all, count);
    rpi_log(RP_LOG_WARNING, "%s %s broken and left out: %s%s", count,
            rows->count == 1 ? "is" : "are", rows->text,
            rows->count > RPI_BROKEN_NAMED ? "; ..." : "");
}

static rp_status refuse(const rpi_broken_rows *rows, int64_t all) {
    char count[80], how[200] = "--skip-broken leaves it out";
    count_text(rows, all, count);
    if (rows->skips)
        snprintf(how, sizeof how, "--skip-broken leaves none of %lld %ss", (long long)all,
                 rows->unit);
    else if (rows->count > 1)
        snprintf(how, sizeof how, "%s%s are broken; --skip-broken leaves them out", count,
                 !all && rpi_broken_rows_are_enough(rows) ? " and perhaps more" : "");
    rpi_fail(rows->status, __FILE__, __LINE__, "%s; %s", rows->text, how);
    return rows->status;
}

rp_status rpi_broken_rows_end(const rpi_broken_rows *rows, int64_t all) {
    if (rows->count == 0) return RP_OK;
    bool leaves_some = all == 0 || rows->count < all;
    return rows->skips && leaves_some ? RP_OK : refuse(rows, all);
}
