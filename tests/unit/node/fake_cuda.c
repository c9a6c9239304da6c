/* The libraries of driver, CUDA, cuDNN and NCCL for tests of cuda_probe, which has no GPU.
 *
 * FAKE_GPUS is the number of GPUs. As the real library, this one counts the fastest GPU first, which
 * is the last one of the PCI bus here, unless CUDA_DEVICE_ORDER is PCI_BUS_ID; and it shows the GPUs
 * of CUDA_VISIBLE_DEVICES in that order, by number or by the beginning of a UUID, up to the first
 * unknown one. The function that FAKE_CALL names returns FAKE_STATUS. A program with memory on a GPU
 * has a line "slot pid" in the file FAKE_APPS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int status(const char *call) {
    const char *failing = getenv("FAKE_CALL");
    return failing && !strcmp(failing, call) ? number("FAKE_STATUS", 0) : 0;
}

/* The slot on the PCI bus of a GPU in CUDA's order of all GPUs. */
static int ordered(int device) {
    const char *order = getenv("CUDA_DEVICE_ORDER");
    return order && !strcmp(order, "PCI_BUS_ID") ? device : number("FAKE_GPUS", 2) - 1 - device;
}

/* The slot that a word of CUDA_VISIBLE_DEVICES names, -1 for none. */
static int named(const char *word) {
    int count = number("FAKE_GPUS", 2);
    char *end;
    long index = strtol(word, &end, 10);
    if (*word && !*end) return index >= 0 && index < count ? ordered((int)index) : -1;
    for (int slot = 0; slot < count; slot++) {
        char uuid[64], *next = uuid + sprintf(uuid, "GPU-");
        for (int byte = 0; byte < 16; byte++) {
            if (byte == 4 || byte == 6 || byte == 8 || byte == 10) *next++ = '-';
            next += sprintf(next, "%02x", 0xa0 + slot);
        }
        if (strlen(word) > 4 && !strncmp(uuid, word, strlen(word))) return slot;
    }
    return -1;
}

/* Write the slots of the visible GPUs, and return their number. */
static int chosen(int *slots) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    char words[1024];
    int count = 0, all = number("FAKE_GPUS", 2);
    if (!given) {
        for (; count < all && count < MOST; count++) slots[count] = ordered(count);
        return count;
    }
    snprintf(words, sizeof words, "%s", given);
    for (char *word = strtok(words, ","); word && count < MOST; word = strtok(NULL, ",")) {
        int slot = named(word);
        if (slot < 0) break;
        slots[count++] = slot;
    }
    return count;
}

static int visible(void) {
    int slots[MOST];
    return chosen(slots);
}

static int slot(int device) {
    int slots[MOST];
    return device < chosen(slots) ? slots[device] : -1;
}

#define CALL(name) \
    if (status(#name)) return status(#name)

int cuInit(unsigned flags) { CALL(cuInit); return visible() ? 0 : 100; }
int cuDriverGetVersion(int *version) {
    CALL(cuDriverGetVersion);
    *version = number("FAKE_DRIVER", 11040);
    return 0;
}
int cuDeviceGetCount(int *count) { CALL(cuDeviceGetCount); *count = visible(); return 0; }
int cuDeviceGet(int *device, int index) {
    CALL(cuDeviceGet);
    *device = index;
    return index < visible() ? 0 : 101;
}
int cuDeviceGetName(char *text, int size, int device) {
    CALL(cuDeviceGetName);
    snprintf(text, size, "Fake %d", slot(device));
    return 0;
}
int cuDeviceGetPCIBusId(char *text, int size, int device) {
    CALL(cuDeviceGetPCIBusId);
    snprintf(text, size, "0000:%02X:00.0", 0x3b + slot(device));
    return 0;
}
int cuDeviceGetUuid(char *raw, int device) {
    CALL(cuDeviceGetUuid);
    memset(raw, 0xa0 + slot(device), 16);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALL(cuDeviceGetAttribute);
    *value = attribute == 75 ? 7 : attribute == 76 ? 5 : -1;
    return 0;
}
int cuDeviceCanAccessPeer(int *can, int one, int two) {
    CALL(cuDeviceCanAccessPeer);
    *can = number("FAKE_PEERS", 1);
    return one == two ? 101 : 0;
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    static int used;
    CALL(cuCtxCreate_v2);
    used = slot(device);
    *context = &used;
    return 0;
}
int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    const char *path = getenv("FAKE_APPS");
    FILE *apps = path ? fopen(path, "a") : NULL;
    CALL(cuMemAlloc_v2);
    if (!apps) return 2;
    fprintf(apps, "%d %d\n", slot(0), (int)getpid());
    fclose(apps);
    *address = bytes;
    return 0;
}
int cudaRuntimeGetVersion(int *version) {
    CALL(cudaRuntimeGetVersion);
    *version = number("FAKE_RUNTIME", 9020);
    return 0;
}
int cudaGetDeviceCount(int *count) {
    CALL(cudaGetDeviceCount);
    *count = number("FAKE_COUNT", visible());
    return 0;
}
size_t cudnnGetVersion(void) { return number("FAKE_CUDNN", 7605); }
int ncclGetVersion(int *version) {
    CALL(ncclGetVersion);
    *version = number("FAKE_NCCL", 2708);
    return 0;
}
