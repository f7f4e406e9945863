/* What a world keeps in its store: one record of its newest view, and one statement of each
 * process. Both are lines of text; docs/wire.md defines them. */
#ifndef RPI_NET_VIEW_RECORD_H
#define RPI_NET_VIEW_RECORD_H

#include "base/status.h"
#include "redpoll/view.h"

#include <stdbool.h>

enum {
    RPI_VIEW_RECORD_BYTES = 64 * 1024, /* a record of RP_WORLD_MOST members, and as many that
                                        * left */
    RPI_STATEMENT_BYTES = 128,
};

/* A view as the store has it. */
typedef struct rpi_view_record {
    uint32_t number; /* 0: there was none yet */
    uint32_t first;  /* processes with smaller ids are candidates as members only */
    int count, left_count;
    rp_member members[RP_WORLD_MOST]; /* by rank */
    rp_member left[RP_WORLD_MOST];    /* of the previous view, by their rank in that */
} rpi_view_record;

/* What a process says of itself. */
typedef struct rpi_statement {
    uint64_t beats;  /* the number of its beats */
    uint32_t making; /* the view that it is ready to make; 0: none */
    int lost;        /* the rank, in the previous view, that its communicators have lost; -1 */
    bool leaving;
    char name[RP_MEMBER_NAME];
} rpi_statement;

/* RP_INVALID: not a valid name for a member. */
rp_status rpi_member_name_check(const char *name);
/* The text, of RPI_VIEW_RECORD_BYTES at most with its NUL; its length is returned. */
size_t rpi_view_record_write(const rpi_view_record *record, char *text);
/* text: NUL-terminated, empty for number 0. RP_CORRUPT says what is wrong with it: counts,
 * ranks and names must be within their limits, and no id may occur twice. */
rp_status rpi_view_record_read(const char *text, rpi_view_record *out_record);
void rpi_statement_write(const rpi_statement *statement, char text[RPI_STATEMENT_BYTES]);
/* RP_CORRUPT: it is none. */
rp_status rpi_statement_read(const char *text, rpi_statement *out_statement);
/* The rank of a member; -1: not a member. */
int rpi_view_record_find(const rpi_view_record *record, uint32_t id);
/* The smallest id from this one on whose process may be in the next view. */
uint32_t rpi_view_record_candidate(const rpi_view_record *record, uint32_t from);

#endif
