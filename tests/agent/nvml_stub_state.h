/* The node behind nvml_stub.c: its GPUs as the text has them, what outlives a change of the text, and the way into a call. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL, NOT_LOADED = 9, TIMEOUT, LOST = 15 };
enum { GPUS = 64, SLICES = 8, PROCS = 64, FAULTS = 48, NAMES = 160 };

/* what a GPU or a MIG device has, with what it is when nobody sets it */
#define KEYS(X) \
  X(util, 50) X(mem_util, 20) X(total_bytes, 85899345920) X(used_bytes, 34359738368) X(reserved_bytes, 629145600) \
  X(power_mw, 300000) X(average_mw, 0) X(limit_mw, 700000) X(energy_mj, 1000000) X(temp, 55) X(sm_mhz, 1980) X(mem_mhz, 2619) \
  X(reasons, 0) X(policy_power_ns, 0) X(policy_thermal_ns, 0) X(policy_sync_ns, 0) X(sw_thermal_ns, 0) X(hw_thermal_ns, 0) \
  X(brake_ns, 0) X(smoothing, 1) X(pcie_gen, 5) X(pcie_width, 16) X(pcie_replays, 0) X(ecc_corrected, 0) X(ecc_uncorrected, 0) \
  X(links, 18) X(link_crc, 0) X(link_data, 0) X(link_replay, 0) X(link_recovery, 0) X(link_received, 0) \
  X(mig, 0) X(sms, 132) X(slices, 1) X(lost, 0) X(sticky, 0)
#define NAME_OF(name, value) #name,
#define VALUE_OF(name, value) value,
#define ENUM_OF(name, value) K_##name,
enum { KEYS(ENUM_OF) KEY_COUNT };
static const char *const key_names[] = { KEYS(NAME_OF) };
static const u64 key_defaults[] = { KEYS(VALUE_OF) };

struct process { u32 pid; u64 bytes; };
struct fault { char name[64]; int code; };
struct device {
  char uuid[80], name[96], hang[64];
  u64 value[KEY_COUNT];
  struct process procs[PROCS], mps[PROCS];
  int proc_count, mps_count, fault_count, field_count;
  struct fault faults[FAULTS];
  struct { u32 id; int code; } fields[FAULTS];
  u64 xid, xid_number;
};
struct handle { int generation, gpu, slice; }; /* slice -1: the GPU itself */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device gpus[GPUS], slices[GPUS][SLICES];
static int gpu_count, driver, init_code, boot, delay_us, listed[GPUS], listed_count;
static char order[512], driver_version[64];
static struct stat read_stat;
static double looked_s;
/* what outlives the text */
static struct handle *handles;
static int generation, opened, lost_in[GPUS], registered[GPUS];
static double joules[GPUS], accrued_s[GPUS];
static u64 energy_base[GPUS], xid_seen[GPUS];
static struct { const char *name; u64 calls; } called[NAMES];

static double now_s(clockid_t clock) {
  struct timespec at;
  clock_gettime(clock, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void accrue(int gpu) {
  double now = now_s(CLOCK_MONOTONIC);
  if (accrued_s[gpu] > 0 && !gpus[gpu].value[K_lost] && gpus[gpu].value[K_power_mw] < 0xffffffff)
    joules[gpu] += (double)gpus[gpu].value[K_power_mw] / 1000 * (now - accrued_s[gpu]);
  accrued_s[gpu] = now;
}

/* ---- the text ---- */

static int processes(struct process *into, char *text) {
  int count = 0;
  char *rest = NULL;
  for (char *part = strtok_r(text, ",", &rest); part && count < PROCS; part = strtok_r(NULL, ",", &rest)) {
    char *colon = strchr(part, ':');
    if (!colon) continue;
    into[count].pid = (u32)strtoul(part, NULL, 10);
    into[count++].bytes = colon[1] == '-' ? ~0ULL : strtoull(colon + 1, NULL, 10);
  }
  return count;
}

static void set_device(struct device *device, const char *key, char *value) {
  char *equals = strchr(value, '=');
  if (!strcmp(key, "uuid")) snprintf(device->uuid, sizeof device->uuid, "%s", value);
  else if (!strcmp(key, "name")) snprintf(device->name, sizeof device->name, "%s", value);
  else if (!strcmp(key, "hang")) snprintf(device->hang, sizeof device->hang, "%s", value);
  else if (!strcmp(key, "procs")) device->proc_count = processes(device->procs, value);
  else if (!strcmp(key, "mps_procs")) device->mps_count = processes(device->mps, value);
  else if (!strcmp(key, "xid") && equals) {
    device->xid = strtoull(value, NULL, 10);
    device->xid_number = strtoull(equals + 1, NULL, 10);
  } else if (!strcmp(key, "fail") && equals && device->fault_count < FAULTS) {
    struct fault *fault = &device->faults[device->fault_count++];
    snprintf(fault->name, sizeof fault->name, "%.*s", (int)(equals - value), value);
    fault->code = atoi(equals + 1);
  } else if (!strcmp(key, "field") && equals && device->field_count < FAULTS) {
    device->fields[device->field_count].id = (u32)atoi(value);
    device->fields[device->field_count++].code = atoi(equals + 1);
  } else
    for (int at = 0; at < KEY_COUNT; at++)
      if (!strcmp(key, key_names[at])) device->value[at] = strtoull(value, NULL, 10);
}

static void set_node(const char *key, const char *value) {
  if (!strcmp(key, "gpus")) gpu_count = atoi(value) < GPUS ? atoi(value) : GPUS;
  else if (!strcmp(key, "driver")) driver = atoi(value);
  else if (!strcmp(key, "init")) init_code = atoi(value);
  else if (!strcmp(key, "boot")) boot = atoi(value);
  else if (!strcmp(key, "delay_us")) delay_us = atoi(value);
  else if (!strcmp(key, "order")) snprintf(order, sizeof order, "%s", value);
  else if (!strcmp(key, "version")) snprintf(driver_version, sizeof driver_version, "%s", value);
}

static void set_line(char *line) {
  char who[16], key[32], value[1024];
  int gpu, slice;
  if (sscanf(line, "%15s %31s %1023[^\n]", who, key, value) != 3) return;
  if (!strcmp(who, "node")) set_node(key, value);
  else if (!strcmp(who, "all"))
    for (int at = 0; at < GPUS; at++) { char copy[1024]; strcpy(copy, value); set_device(&gpus[at], key, copy); }
  else if (sscanf(who, "%d/%d", &gpu, &slice) == 2 && gpu >= 0 && gpu < GPUS && slice >= 0 && slice < SLICES)
    set_device(&slices[gpu][slice], key, value);
  else if (sscanf(who, "%d", &gpu) == 1 && gpu >= 0 && gpu < GPUS) set_device(&gpus[gpu], key, value);
}

static void defaults(void) {
  gpu_count = 1, driver = 1, init_code = 0, boot = 1, delay_us = 0, order[0] = 0;
  strcpy(driver_version, "580.65.06");
  memset(gpus, 0, sizeof gpus);
  memset(slices, 0, sizeof slices);
  for (int gpu = 0; gpu < GPUS; gpu++) {
    snprintf(gpus[gpu].uuid, sizeof gpus[gpu].uuid, "GPU-%08x-0000-4000-8000-000000000000", gpu);
    strcpy(gpus[gpu].name, "NVIDIA Stub 80GB");
    memcpy(gpus[gpu].value, key_defaults, sizeof key_defaults);
    for (int slice = 0; slice < SLICES; slice++) {
      strcpy(slices[gpu][slice].name, "NVIDIA Stub 80GB MIG 1g.10gb");
      memcpy(slices[gpu][slice].value, key_defaults, sizeof key_defaults);
    }
  }
}

/* Read the text again when the file is another one; called with the lock held. */
static void refresh(void) {
  const char *path = getenv("NVML_STUB_CONTROL");
  struct stat found;
  double now = now_s(CLOCK_MONOTONIC_COARSE);
  if (now == looked_s) return; /* that clock stands still for some ms; a look at the file in each call would be dear */
  looked_s = now;
  if (!path || stat(path, &found)) return;
  if (found.st_ino == read_stat.st_ino && found.st_mtim.tv_sec == read_stat.st_mtim.tv_sec &&
      found.st_mtim.tv_nsec == read_stat.st_mtim.tv_nsec && found.st_size == read_stat.st_size)
    return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  for (int gpu = 0; gpu < GPUS; gpu++) accrue(gpu);
  int old_boot = boot;
  char line[1200];
  read_stat = found;
  defaults();
  while (fgets(line, sizeof line, file)) set_line(line);
  fclose(file);
  for (int gpu = 0; gpu < GPUS; gpu++) {
    if (gpus[gpu].value[K_energy_mj] != energy_base[gpu] || old_boot != boot) {
      energy_base[gpu] = gpus[gpu].value[K_energy_mj];
      joules[gpu] = 0;
    }
    if (gpus[gpu].value[K_lost]) lost_in[gpu] = generation;
  }
  if (!driver || (old_boot && old_boot != boot)) opened = 0;
}

/* ---- the way into each function ---- */

static void count_call(const char *function) {
  for (int at = 0; at < NAMES; at++) {
    if (!called[at].name) called[at].name = function;
    if (called[at].name == function || !strcmp(called[at].name, function)) { called[at].calls++; return; }
  }
}

u64 stub_calls(const char *function) {
  for (int at = 0; at < NAMES && called[at].name; at++)
    if (!strcmp(called[at].name, function)) return called[at].calls;
  return 0;
}

static struct device *device_of(const struct handle *handle) {
  return handle->slice < 0 ? &gpus[handle->gpu] : &slices[handle->gpu][handle->slice];
}

static int gpu_lost(int gpu) {
  return gpus[gpu].value[K_lost] || (gpus[gpu].value[K_sticky] && lost_in[gpu] == generation);
}

static int enter_node(const char *function) {
  pthread_mutex_lock(&lock);
  refresh();
  count_call(function);
  int result = opened ? OK : UNINITIALIZED;
  pthread_mutex_unlock(&lock);
  return result;
}

/* What real drivers answer of a MIG device; all else belongs to its GPU. */
static const char *const of_slices[] = {
  "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetIndex", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
  "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
  "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
  "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
  "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes_v2", NULL,
};

static int slice_knows(const char *function) {
  for (int at = 0; of_slices[at]; at++)
    if (!strcmp(of_slices[at], function)) return 1;
  return 0;
}

static int enter(const struct handle *handle, const char *function) {
  int result = enter_node(function);
  if (result) return result;
  if (!handle || handle->generation != generation) return INVALID_ARGUMENT;
  const struct device *device = device_of(handle);
  if (delay_us) usleep((useconds_t)delay_us);
  while (!strcmp(device->hang, function)) {
    usleep(3000);
    pthread_mutex_lock(&lock);
    refresh();
    pthread_mutex_unlock(&lock);
  }
  if (gpu_lost(handle->gpu)) return LOST;
  if (handle->slice >= 0 && !device->uuid[0]) return INVALID_ARGUMENT; /* that MIG device was taken apart */
  if (handle->slice >= 0 && !slice_knows(function)) return NOT_SUPPORTED;
  int any = OK;
  for (int at = 0; at < device->fault_count; at++) {
    if (!strcmp(device->faults[at].name, function)) return device->faults[at].code;
    if (!strcmp(device->faults[at].name, "*")) any = device->faults[at].code;
  }
  return any;
}

static int text(char *into, u32 size, const char *from) {
  if (strlen(from) + 1 > size) return TOO_SMALL;
  strcpy(into, from);
  return OK;
}
