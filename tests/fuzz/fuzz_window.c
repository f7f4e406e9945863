/* Frames of windows: messages in pieces, answers, words of mutexes, in any order. The first
 * byte says of which codec the window is, and what it has sent and asked for itself. A frame:
 * five bytes (word, flags, sequence, chunk, bytes of payload), then the payload. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "comm/protocol/window_table.h"

#include <string.h>

enum { COUNT = 40, PIECE = 16, WORLD = 3, FRAME = 5 };
enum { OTHER_WINDOW = 1, MUTEX = 2, FROM_RANK_0 = 4, FROM_RANK_2 = 8 };

static rpi_context context = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
static rp_comm comm = {.context = &context, .rank = 0, .world = WORLD};

typedef struct window_of {
    rp_window window;
    rpi_window_in ins[2];
    rpi_window_out outs[1];
    rpi_window_cell cells[WORLD];
    rpi_window_claim claims[WORLD];
    float data[COUNT];
} window_of;

/* What is under way as the frames come. False: there is no memory. */
static bool begin(window_of *w, uint8_t choice) {
    static const char *const codecs[] = {"fp32", "q4:bucket=16", "topk:k=2,bucket=16",
                                         "sign:bucket=16"};
    rp_window *window = &w->window;
    window->ins = w->ins;
    window->outs = w->outs;
    window->cells = w->cells;
    window->claims = w->claims;
    window->data = (unsigned char *)w->data;
    (void)rp_codec_parse(codecs[choice & 3], &window->codec);
    for (int i = 0; i < window->in_count; i++) {
        w->ins[i] = (rpi_window_in){.rank = 1 + i, .p = 1, .asked_weight = .5};
        w->ins[i].wanted = w->ins[i].asked = choice & 4 ? 3 : 0;
        if (rpi_alloc_array(COUNT, sizeof(float), "a slot", (float **)&w->ins[i].slot) != RP_OK)
            return false;
    }
    w->outs[0] = (rpi_window_out){.rank = 1, .is_busy = choice & 8, .messages = 2};
    w->outs[0].next_slice = choice & 16 ? window->slices : 0;
    w->cells[1].holder = choice & 32 ? RPI_CELL_OWNER : RPI_CELL_FREE;
    w->cells[1].owner_waits = choice & 64;
    w->claims[1].state = choice & 128 ? RPI_CLAIM_ASKED : RPI_CLAIM_NONE;
    return true;
}

static void end(window_of *w) {
    for (int i = 0; i < w->window.in_count; i++) {
        rpi_free(w->ins[i].slot);
        rpi_free(w->ins[i].staging);
    }
}

static bool hear(rp_window *window, const uint8_t *frame, size_t bytes) {
    unsigned char payload[255]; /* at its end, which a sanitizer watches */
    uint8_t flags = frame[1];
    rpi_frame_header header = {.kind = RPI_FRAME_WINDOW,
                               .operation = frame[0] % 9,
                               .round = flags & MUTEX ? RPI_WINDOW_MUTEX : 0,
                               .sequence = frame[2],
                               .chunk = frame[3],
                               .part = (int32_t)window->number,
                               .signature = window->signature + (flags & OTHER_WINDOW),
                               .count = COUNT,
                               .bytes = (uint32_t)bytes};
    int rank = flags & FROM_RANK_0 ? 0 : flags & FROM_RANK_2 ? 2 : 1;
    unsigned char *at = payload + sizeof payload - bytes;
    memcpy(at, frame + FRAME, bytes);
    return rpi_window_receive(window, rank, &header, at) == RP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    window_of w = {.window = {.comm = &comm,
                              .name = "fuzz",
                              .number = 1,
                              .signature = 8,
                              .count = COUNT,
                              .element_bytes = sizeof(float),
                              .dtype = RP_F32,
                              .slice = PIECE,
                              .slices = (COUNT + PIECE - 1) / PIECE,
                              .p = 1,
                              .in_count = 2,
                              .out_count = 1}};
    if (bytes < 1) return 0;
    pthread_mutex_init(&w.window.lock, NULL);
    bool sound = begin(&w, *data++);
    bytes--;
    while (sound && bytes >= FRAME) {
        size_t payload = data[4];
        if (payload > bytes - FRAME) break;
        if (!hear(&w.window, data, payload)) break;
        data += FRAME + payload;
        bytes -= FRAME + payload;
    }
    end(&w);
    pthread_mutex_destroy(&w.window.lock);
    return 0;
}
