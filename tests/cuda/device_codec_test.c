/* The kernels themselves, on a GPU: the bytes of the CPU. Skipped where there is none. */
#include "cuda/device_runner.h"
#include "harness/check.h"

static void same_bytes(void) {
    const rpi_cuda_library *cuda = NULL;
    if (rpi_cuda_open(&cuda) != RP_OK) {
        check_skip("%s", rp_last_error()->message);
        return;
    }
    device_cases_run(device_runner_by(cuda), check_long() ? 1000 : 100);
    device_runner_end();
}

CASES({"same_bytes", same_bytes})
