/* NVIDIA's libnvidia-ml for tests of nvml.py, which has no GPU. It is as unfriendly as the original:
 * it writes to stdout, and the list of processes has two forms, the newer one missing in old drivers
 * (-DOLD). GPU 1 tells no use, GPU 2 tells nonsense, and GPU 3 has fallen off the bus. FAKE_INIT is
 * the status of the start. The call that FAKE_HANG names never returns. The first process of a list
 * has the pid FAKE_PID, or the last pid in the file FAKE_APPS of fake_cuda.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOST 15
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define PROCESSES 20 /* more than the first list of a caller has room for */

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long memory; } process1;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } process2;

static int devices[4];
static int started;

static void hang(const char *call) {
    const char *name = getenv("FAKE_HANG");
    while (name && !strcmp(name, call)) sleep(1000);
}

static int number_of(void *device) { return (int)((int *)device - devices); }

int nvmlInit_v2(void) {
    const char *status = getenv("FAKE_INIT");
    printf("NVML: hello\n");
    hang("nvmlInit_v2");
    started = !status;
    return status ? atoi(status) : 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!started || index > 3) return 1;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *found) {
    hang("nvmlDeviceGetUtilizationRates");
    found->gpu = number_of(device) == 2 ? 4294967295u : 75;
    found->memory = 33;
    return number_of(device) == 3 ? LOST : number_of(device) == 1 ? NOT_SUPPORTED : 0;
}

static unsigned first_pid(void) {
    const char *pid = getenv("FAKE_PID"), *path = getenv("FAKE_APPS");
    FILE *apps = pid || !path ? NULL : fopen(path, "r");
    int slot, found = pid ? atoi(pid) : 7;
    while (apps && fscanf(apps, "%d %d", &slot, &found) == 2) continue;
    if (apps) fclose(apps);
    return (unsigned)found;
}

/* The first process has 1 GiB. The driver does not know the memory of the next. */
#define LIST(name, row)                                                                  \
    int name(void *device, unsigned *count, row *rows) {                                 \
        if (number_of(device) == 3) return LOST;                                         \
        if (*count < PROCESSES) { *count = PROCESSES; return INSUFFICIENT_SIZE; }        \
        *count = PROCESSES;                                                              \
        for (int place = 0; place < PROCESSES; place++) {                                \
            rows[place].pid = place ? 100000 + place : first_pid();                      \
            rows[place].memory = place == 1 ? ~0ull : (1ull << 30) + (unsigned)place;    \
        }                                                                                \
        return 0;                                                                        \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, process1)
#ifndef OLD
LIST(nvmlDeviceGetComputeRunningProcesses_v2, process2)
/* In drivers of the line 535 the rows of version 3 are longer than the caller's. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *rows) {
    memset(rows, 0xff, *count * 32);
    return 0;
}
#endif
