/* Frames that go wrong on the way, over every transport: damage is found, never delivered. */
#include "harness/faulty.h"

#include "harness/check.h"
#include "link_pair.h"

enum { FRAME_BYTES = 8192, STRUCK = 3 };

typedef struct outcome {
    faulty_kind kind;
    rp_status sent;     /* by the sender, for the struck frame */
    rp_status received; /* RP_OK: frame STRUCK comes as it was */
} outcome;

static const outcome outcomes[] = {
    {FAULTY_NOT, RP_OK, RP_OK},
    {FAULTY_DROP, RP_OK, RP_CORRUPT}, /* the next one comes instead */
    {FAULTY_TWICE, RP_OK, RP_OK},
    {FAULTY_CORRUPT_HEADER, RP_OK, RP_CORRUPT},
    {FAULTY_CORRUPT_PAYLOAD, RP_OK, RP_CORRUPT},
    {FAULTY_CUT, RP_OK, RP_CORRUPT},
    {FAULTY_STALL, RP_PENDING, RP_PENDING},
    {FAULTY_CLOSE, RP_PEER, RP_PENDING},
};

static void strike(link_pair *pair, const outcome *wanted) {
    faulty_plan plan = {wanted->kind, STRUCK};
    rpi_link *faulty = NULL;
    REQUIRE_OK(faulty_wrap(pair->links[0], &plan, &faulty));
    for (uint64_t i = 0; i < STRUCK; i++) {
        CHECK_OK(link_send_wait(faulty, i, 500));
        CHECK_OK(link_receive_wait(pair->links[1], i, 500));
    }
    CHECK_EQ(link_send(faulty, STRUCK, 500), wanted->sent);
    if (wanted->sent == RP_OK) {
        CHECK_OK(link_send_wait(faulty, STRUCK + 1, 500));
        CHECK_EQ(link_receive_wait(pair->links[1], STRUCK, 500), wanted->received);
    }
    faulty_free(faulty);
}

static void damage_is_found_on_every_transport(void) {
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++)
        for (size_t k = 0; k < sizeof outcomes / sizeof outcomes[0]; k++) {
            /* Memory of one kernel does not flip bits: payloads are not checked there. */
            if (outcomes[k].kind == FAULTY_CORRUPT_PAYLOAD && !transport->checksum) continue;
            link_pair pair;
            int failures = check_failures();
            CHECK_OK(link_pair_open(&pair, transport, FRAME_BYTES));
            if (pair.links[0] && pair.links[1]) strike(&pair, &outcomes[k]);
            link_pair_close(&pair);
            CHECK_MSG(check_failures() == failures, "with %s, fault %d", transport->name,
                      outcomes[k].kind);
        }
}

CASES({"damage_is_found_on_every_transport", damage_is_found_on_every_transport})
