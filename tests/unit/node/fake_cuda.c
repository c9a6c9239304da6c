/* The libraries of driver, CUDA, cuDNN and NCCL for tests of cuda_probe, which has no GPU.
 *
 * FAKE_GPUS is the number of GPUs. As the real library, this one counts the fastest GPU first, which
 * is the last one of the PCI bus here, unless CUDA_DEVICE_ORDER is PCI_BUS_ID; and it shows no GPU if
 * CUDA_VISIBLE_DEVICES is set to nothing. The function that FAKE_CALL names returns FAKE_STATUS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int status(const char *call) {
    const char *failing = getenv("FAKE_CALL");
    return failing && !strcmp(failing, call) ? number("FAKE_STATUS", 0) : 0;
}

static int visible(void) {
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    return chosen && !*chosen ? 0 : number("FAKE_GPUS", 2);
}

static int slot(int device) {
    const char *order = getenv("CUDA_DEVICE_ORDER");
    return order && !strcmp(order, "PCI_BUS_ID") ? device : visible() - 1 - device;
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
