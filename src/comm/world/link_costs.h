/* The costs of links, as `redpoll bench link` prints them and the choice of algorithms reads
 * them. */
#ifndef RPI_COMM_LINK_COSTS_H
#define RPI_COMM_LINK_COSTS_H

#include "net/bytes/look.h"
#include "plan/cost.h"
#include "redpoll/comm.h"
#include "redpoll/store.h"

enum { RPI_LINK_COSTS_TEXT = 64 };
#define RPI_LINK_COSTS_VARIABLE "REDPOLL_LINKS"

/* "BETWEEN/INSIDE", each "RATE,LATENCY" as --link has them: "117MB,31us/4.1GB,2us". Between
 * hosts, and inside one. NULL or "": nominal links (plan/choose.h), of which a model also has
 * all that the text does not say. RP_INVALID with advice; *out_model is then untouched. */
rp_status rpi_link_costs_parse(const char *text, rpi_cost_model *out_model);
/* Returns text. */
const char *rpi_link_costs_text(const rpi_cost_model *model, char text[RPI_LINK_COSTS_TEXT]);
/* Those of rank 0 for all: `text` is what this rank was given (REDPOLL_LINKS), but only rank
 * 0's counts, so that ranks make the same choice whatever their environments have. The same
 * holds for the cores of its host, and for *memory, where elements are declared to be: this
 * rank's, then rank 0's. Collective; look: a check while waiting for rank 0; NULL: none.
 * RP_CORRUPT: the store has something else. */
rp_status rpi_link_costs_agree(const rp_store *store, const char *key, int rank,
                               double timeout_s, rpi_look *look, const char *text,
                               rp_memory *memory, rpi_cost_model *out_model);

#endif
