/* Lengths of sequences that ranks share: what is refused, and that what is offered in its place
 * is not. */
#include "plan/context_lengths.h"

#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Add a row: the end of what is said; NULL: it fits. */
typedef struct length_row {
    int64_t ranks, sequence, positions;
    const char *would;
} length_row;

static const length_row lengths[] = {
    {1, 7, 0, NULL},
    {2, 16, 16, NULL},
    {4, 60, 0, NULL},
    {4, 60, 63, NULL},
    {5, 16, 16, NULL},
    {5, 9, 0, "each: 10 tokens would fit, or --cp 4"},
    {5, 4, 48, "each: 10 tokens would fit, or --cp 2"},
    {5, 3, 48, "each: 10 tokens would fit"},
    {5, 4, 9,
     "each: --cp 4 with --seq-length 8, or positions=10 with --seq-length 10 would fit"},
    {5, 2, 3, "each: positions=10 with --seq-length 10 would fit"},
};

static void lengths_are_said(void) {
    for (int i = 0; i < (int)(sizeof lengths / sizeof lengths[0]); i++) {
        const length_row *row = &lengths[i];
        rp_status status = rpi_context_lengths_check(row->ranks, row->sequence, row->positions);
        CHECK_EQ(status, row->would ? RP_INVALID : RP_OK);
        if (!row->would) continue;
        const char *end = strstr(rp_last_error()->message, "each: ");
        CHECK_MSG(end && strcmp(end, row->would) == 0, "row %d: %s", i,
                  rp_last_error()->message);
    }
}

static void check_offer(int64_t ranks, int64_t length, int64_t positions) {
    CHECK_MSG(length > 0 && length <= positions &&
                  rpi_context_lengths_check(ranks, length, positions) == RP_OK,
              "%lld tokens over %lld ranks of %lld positions", (long long)length,
              (long long)ranks, (long long)positions);
}

/* Every number of tokens and of ranks. */
static void check_offers(const char *offers, int64_t ranks, int64_t sequence,
                         int64_t positions) {
    long long first = 0, second = 0;
    if (sscanf(offers, "--cp %lld with --seq-length %lld", &first, &second) == 2) {
        check_offer(first, second, positions);
        offers = strstr(offers, "positions=");
    }
    if (sscanf(offers, "positions=%lld with --seq-length %lld", &first, &second) == 2) {
        check_offer(ranks, second, first);
        return;
    }
    int count = sscanf(offers, "%lld tokens would fit, or --cp %lld", &first, &second);
    CHECK(count >= 1);
    check_offer(ranks, first, positions);
    if (count == 2) check_offer(second, sequence, positions);
}

static void offers_are_taken(void) {
    for (int64_t ranks = 2; ranks <= 9; ranks++)
        for (int64_t positions = 1; positions <= 40; positions++)
            for (int64_t sequence = 1; sequence <= 50; sequence++)
                if (rpi_context_lengths_check(ranks, sequence, positions) != RP_OK)
                    check_offers(strstr(rp_last_error()->message, "each: ") + strlen("each: "),
                                 ranks, sequence, positions);
}

CASES({"lengths are said", lengths_are_said}, {"offers are taken", offers_are_taken})
