#include "cuda/cuda.h"

#include "base/status.h"
#include "cuda/capability.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static struct {
    pthread_once_t once;
    const rpi_cuda_library *table; /* NULL: for this reason */
    char reason[512];
} found = {.once = PTHREAD_ONCE_INIT};

__attribute__((format(printf, 1, 2))) static void refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found.reason, sizeof found.reason, format, arguments);
    va_end(arguments);
}

/* ---- finding the file ---- */

/* The folder of the file that this code is in, with a "/" behind it; empty: it cannot be told.
 * The loader knows a program by its first argument alone, which may be any word. */
static void own_folder(char path[PATH_BYTES]) {
    Dl_info self;
    path[0] = '\0';
    if (dladdr((void *)&found, &self) && self.dli_fname && strchr(self.dli_fname, '/')) {
        snprintf(path, PATH_BYTES, "%s", self.dli_fname);
    } else {
        ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - 1);
        path[length > 0 ? length : 0] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (slash)
        slash[1] = '\0';
    else
        path[0] = '\0';
}

/* Beside that file, and where the build tree and an installation have it: never where the
 * process happens to work. */
static void *open_beside(void) {
    static const char *const places[] = {"", "../cuda/", "src/cuda/", RPI_CUDA_FROM_PROGRAM};
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    own_folder(folder);
    for (size_t i = 0; folder[0] && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%slibredpoll_cuda.so", folder, places[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

static void *open_library(void) {
    const char *path = getenv("REDPOLL_CUDA_LIBRARY");
    if (!path || !*path) {
        void *beside = open_beside();
        if (!beside)
            refuse("libredpoll_cuda.so is not beside redpoll: built without nvcc, or with "
                   "-DREDPOLL_CUDA=OFF; REDPOLL_CUDA_LIBRARY says where it is");
        return beside;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) refuse("REDPOLL_CUDA_LIBRARY: %s", dlerror());
    return library;
}

/* ---- can it be used? ---- */

static bool is_ours(const rpi_cuda_library *table) {
    if (table->interface == RPI_CUDA_INTERFACE && table->call_bytes == sizeof(rpi_device_call))
        return true;
    refuse(
        "libredpoll_cuda.so is of another version of redpoll (interface %d, not %d); install "
        "both from one build",
        table->interface, RPI_CUDA_INTERFACE);
    return false;
}

/* A driver takes kernels of its own major version and of older ones. */
static bool has_driver(const rpi_cuda_library *table) {
    int version = 0, error = table->driver(&version);
    if (error || version == 0)
        refuse("no NVIDIA driver on this machine");
    else if (version / 1000 < table->runtime / 1000)
        refuse("the NVIDIA driver is for CUDA %d.%d, libredpoll_cuda.so for %d.%d; update the "
               "driver",
               version / 1000, version % 1000 / 10, table->runtime / 1000,
               table->runtime % 1000 / 10);
    else
        return true;
    return false;
}

static const char *visible(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    return list ? list : "not set";
}

/* Why the GPU has no kernels. */
static const char *no_kernels(const rpi_cuda_library *table, int device, int capability,
                              char *text, size_t bytes) {
    char known[256];
    rpi_capability_text(table->architectures, known, sizeof known);
    snprintf(text, bytes,
             "GPU %d has compute capability %d.%d, and libredpoll_cuda.so has kernels for %s",
             device, capability / 10, capability % 10, known);
    return text;
}

static bool fits(const rpi_cuda_library *table, int device, int *capability) {
    return table->capability(device, capability) == 0 &&
           rpi_capability_fits(table->architectures, *capability);
}

/* Some of them can be used; which one is in use is told by memory, later. */
static bool has_devices(const rpi_cuda_library *table) {
    int count = 0, error = table->devices(&count), capability = 0;
    char text[512];
    if (error || count == 0) {
        refuse("no GPU can be used (%s; CUDA_VISIBLE_DEVICES is %s)",
               error ? table->error_text(error) : "none is visible", visible());
        return false;
    }
    for (int device = count - 1; device >= 0; device--)
        if (fits(table, device, &capability)) return true;
    refuse("%s", no_kernels(table, 0, capability, text, sizeof text));
    return false;
}

static void find(void) {
    const char *wanted = getenv("REDPOLL_CUDA");
    if (wanted && (strcasecmp(wanted, "off") == 0 || strcmp(wanted, "0") == 0)) {
        refuse("turned off by REDPOLL_CUDA=%s", wanted);
        return;
    }
    void *library = open_library();
    if (!library) return;
    rpi_cuda_entry entry;
    void *symbol = dlsym(library, RPI_CUDA_ENTRY);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast between the two */
    const rpi_cuda_library *table = entry ? entry() : NULL;
    if (!table)
        refuse("libredpoll_cuda.so has no " RPI_CUDA_ENTRY);
    else if (is_ours(table) && has_driver(table) && has_devices(table))
        found.table = table;
}

/* Threads that the GPU's driver starts take no signals of the process: redpoll run would not
 * hear that a rank has ended, and a program's handler would run there. */
static void block_signals(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static void find_quietly(void) {
    sigset_t before;
    block_signals(&before);
    find();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

rp_status rpi_cuda_open(const rpi_cuda_library **out) {
    (void)pthread_once(&found.once, find_quietly);
    *out = found.table;
    return found.table ? RP_OK : RP_FAIL(UNSUPPORTED, "CUDA: %s", found.reason);
}

/* ---- kernels are loaded ---- */

enum { PREPARED_MAX = 64 };

static pthread_mutex_t prepare_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool prepared[PREPARED_MAX];

static bool has_no_image(const rpi_cuda_library *cuda, int error) {
    const char *name = cuda->error_name(error);
    return name && (strcmp(name, "cudaErrorNoKernelImageForDevice") == 0 ||
                    strcmp(name, "cudaErrorUnsupportedPtxVersion") == 0);
}

static rp_status load_kernels(const rpi_cuda_library *cuda, int device) {
    int capability = 0;
    char text[512];
    rpi_cuda_before before;
    if (!fits(cuda, device, &capability))
        return RP_FAIL(UNSUPPORTED, "CUDA: %s",
                       no_kernels(cuda, device, capability, text, sizeof text));
    RP_TRY(rpi_cuda_check(cuda, cuda->enter(device, &before), "choosing the GPU"));
    int error = cuda->load();
    cuda->leave(&before);
    if (error && has_no_image(cuda, error))
        return RP_FAIL(UNSUPPORTED, "CUDA: %s (%s)",
                       no_kernels(cuda, device, capability, text, sizeof text),
                       cuda->error_text(error));
    return rpi_cuda_check(cuda, error, "loading kernels");
}

static rp_status load_quietly(const rpi_cuda_library *cuda, int device) {
    sigset_t before;
    block_signals(&before);
    rp_status status = load_kernels(cuda, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

rp_status rpi_cuda_prepare(const rpi_cuda_library *cuda, int device) {
    bool is_noted = device >= 0 && device < PREPARED_MAX;
    if (is_noted && atomic_load(&prepared[device])) return RP_OK;
    pthread_mutex_lock(&prepare_lock);
    rp_status status =
        is_noted && atomic_load(&prepared[device]) ? RP_OK : load_quietly(cuda, device);
    if (status == RP_OK && is_noted) atomic_store(&prepared[device], true);
    pthread_mutex_unlock(&prepare_lock);
    return status;
}

/* ---- what is said ---- */

static bool is_memory(const char *name) {
    return name && strcmp(name, "cudaErrorMemoryAllocation") == 0;
}

rp_status rpi_cuda_pin(const rpi_cuda_library *cuda, size_t bytes, void **out) {
    int error = cuda->pin(bytes, out);
    if (error && is_memory(cuda->error_name(error)))
        return RP_FAIL(NOMEM, "CUDA: pinning memory: the host has no %zu bytes left to pin",
                       bytes);
    return rpi_cuda_check(cuda, error, "pinning memory");
}

rp_status rpi_cuda_check(const rpi_cuda_library *cuda, int error, const char *what) {
    if (error == 0) return RP_OK;
    const char *name = cuda->error_name(error);
    if (is_memory(name)) return RP_FAIL(NOMEM, "CUDA: %s: the GPU has no memory left", what);
    return RP_FAIL(IO, "CUDA: %s: %s (%s)", what, cuda->error_text(error),
                   name ? name : "unknown");
}

const char *rpi_cuda_summary(char *text, size_t bytes) {
    const rpi_cuda_library *cuda = NULL;
    char name[256] = "", known[256];
    if (rpi_cuda_open(&cuda) != RP_OK) {
        snprintf(text, bytes, "no: %s", found.reason);
        return text;
    }
    (void)cuda->device_name(name, sizeof name);
    snprintf(text, bytes, "%s, kernels by CUDA %d.%d for %s", name, cuda->runtime / 1000,
             cuda->runtime % 1000 / 10,
             rpi_capability_text(cuda->architectures, known, sizeof known));
    return text;
}
