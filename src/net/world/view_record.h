/* What a world keeps in its store: one record of its newest view, and what each process says of
 * itself. Both are lines of text; docs/wire.md has them. */
#ifndef RPI_NET_VIEW_RECORD_H
#define RPI_NET_VIEW_RECORD_H

#include "base/status.h"
#include "redpoll/view.h"

#include <stdbool.h>

enum {
    RPI_VIEW_RECORD_BYTES = 64 * 1024, /* a record of RP_WORLD_MOST members, and as many gone */
    RPI_STATEMENT_BYTES = 128,
};

/* A view as the store has it. */
typedef struct rpi_view_record {
    uint32_t number; /* 0: there was none yet */
    uint32_t first;  /* processes with smaller ids are candidates as members only */
    int count, left_count;
    rp_member members[RP_WORLD_MOST]; /* by rank */
    rp_member left[RP_WORLD_MOST];    /* of the view before, by their rank in that */
} rpi_view_record;

/* What a process says of itself. */
typedef struct rpi_statement {
    uint64_t beats;  /* how often it has said something */
    uint32_t making; /* the view that it has come to make; 0: none */
    int lost; /* the rank, in the view before that, that its communicators have lost; -1 */
    bool leaving;
    char name[RP_MEMBER_NAME];
} rpi_statement;

/* RP_INVALID: no name for a member. */
rp_status rpi_member_name_check(const char *name);
/* The text, of RPI_VIEW_RECORD_BYTES at most with its NUL; its length is returned. */
size_t rpi_view_record_write(const rpi_view_record *record, char *text);
/* text: NUL-terminated, empty for number 0. RP_CORRUPT says what is wrong with it: what is read
 * has counts, ranks and names within their limits, and no id twice. */
rp_status rpi_view_record_read(const char *text, rpi_view_record *out_record);
void rpi_statement_write(const rpi_statement *statement, char text[RPI_STATEMENT_BYTES]);
/* RP_CORRUPT: it is none. */
rp_status rpi_statement_read(const char *text, rpi_statement *out_statement);
/* The rank of a member; -1: it is none. */
int rpi_view_record_find(const rpi_view_record *record, uint32_t id);
/* The smallest id from this one on whose process may be in the view after this. */
uint32_t rpi_view_record_candidate(const rpi_view_record *record, uint32_t from);

#endif
