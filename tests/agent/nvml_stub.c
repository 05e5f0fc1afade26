/* A libnvidia-ml.so.1 without a driver: GPUs whose values and faults stand in a text file that may change at any time.
 *
 * The file is named by the environment (NVML_STUB_CONTROL) and is read again whenever it was replaced; tests/_nvml_stub.py
 * writes it. Each line is `WHO KEY VALUE`. WHO is `node`, `all`, a GPU (`3`) or a MIG device of one (`3/0`); later lines win.
 *
 *   node gpus 8          how many there are             node order 2,0,1    which GPU has index 0, 1, ... at the next init
 *   node driver 0        not loaded                     node boot 2         another number: the driver was loaded again
 *   node init 18         what nvmlInit returns          node version 580.1  of the driver
 *   node delay_us 50     of each call on a device
 *   3 uuid GPU-x         3 name Tesla                   3 power_mw 250000   and all names of KEYS below, in NVML's own units
 *   3 lost 1             fallen off the bus             3 sticky 1          handles made before it was lost stay lost
 *   3 fail NAME=3        what this function returns     3 field 186=3       what this field of nvmlDeviceGetFieldValues returns
 *   3 hang NAME          it does not return while this stands here
 *   3 procs 71:1048576,72:-   compute processes: pid:bytes, - for unknown; mps_procs: the same for MPS clients
 *   3 xid 79=1           one event; another number behind = is another event
 *   3/0 uuid MIG-x       makes this MIG device; it has sms, slices, total_bytes, used_bytes, procs
 *
 * For the tests: stub_calls(NAME) tells how often a function was called.
 * Energy: energy_mj is where the counter begins; it then grows with power_mw, as the real one does.
 */
#include "nvml_stub_state.h"

#define ENTER(handle) { int entered = enter(handle, __func__); if (entered) return entered; }
#define VALUE(handle, key) (device_of(handle)->value[K_##key])
#define GET(function, type, key) int function(struct handle *h, type *out) { ENTER(h) *out = (type)VALUE(h, key); return OK; }
#define NEVER(function) int function(struct handle *h) { ENTER(h) return NOT_SUPPORTED; }
#define FIXED(function, type, number) int function(struct handle *h, type *out) { ENTER(h) *out = (number); return OK; }

/* ---- node ---- */

static void list_gpus(void) {
  char copy[sizeof order], *rest = NULL;
  listed_count = 0;
  strcpy(copy, order);
  for (char *part = strtok_r(copy, ",", &rest); part && listed_count < GPUS; part = strtok_r(NULL, ",", &rest))
    listed[listed_count++] = atoi(part);
  if (!order[0])
    for (; listed_count < gpu_count; listed_count++) listed[listed_count] = listed_count;
}

int nvmlInitWithFlags(u32 flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  looked_s = 0;
  refresh();
  count_call(__func__);
  int result = !driver ? NOT_LOADED : init_code;
  if (!result && !opened++) {
    generation++;
    handles = calloc(GPUS * (SLICES + 1), sizeof *handles); /* the old ones stay, to be told apart */
    for (int at = 0; at < GPUS * (SLICES + 1); at++)
      handles[at] = (struct handle){ generation, at / (SLICES + 1), at % (SLICES + 1) - 1 };
    for (int gpu = 0; gpu < GPUS; gpu++) {
      registered[gpu] = 0, xid_seen[gpu] = gpus[gpu].xid_number;
      accrue(gpu);
    }
    list_gpus();
  }
  pthread_mutex_unlock(&lock);
  return result;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  int result = enter_node(__func__);
  if (!result) opened--;
  return result;
}
const char *nvmlErrorString(int code) {
  switch (code) {
    case OK: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char *into, u32 size) {
  int result = enter_node(__func__);
  return result ? result : text(into, size, driver_version);
}
int nvmlSystemGetNVMLVersion(char *into, u32 size) { return text(into, size, "13.580.65.06"); }
int nvmlSystemGetCudaDriverVersion(int *into) { *into = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *into) { *into = 13000; return OK; }

int nvmlDeviceGetCount_v2(u32 *into) {
  int result = enter_node(__func__);
  if (!result) *into = (u32)listed_count;
  return result;
}
int nvmlDeviceGetCount(u32 *into) { return nvmlDeviceGetCount_v2(into); }
int nvmlDeviceGetHandleByIndex_v2(u32 index, struct handle **into) {
  int result = enter_node(__func__);
  if (result) return result;
  if (index >= (u32)listed_count) return INVALID_ARGUMENT;
  if (gpu_lost(listed[index])) return LOST;
  *into = &handles[listed[index] * (SLICES + 1)];
  return OK;
}
int nvmlDeviceGetHandleByIndex(u32 index, struct handle **into) { return nvmlDeviceGetHandleByIndex_v2(index, into); }
int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **into) {
  for (u32 index = 0; index < (u32)listed_count; index++)
    if (!strcmp(gpus[listed[index]].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(index, into);
  return NOT_FOUND;
}

/* ---- what a GPU is ---- */

int nvmlDeviceGetUUID(struct handle *h, char *into, u32 size) { ENTER(h) return text(into, size, device_of(h)->uuid); }
int nvmlDeviceGetName(struct handle *h, char *into, u32 size) { ENTER(h) return text(into, size, device_of(h)->name); }
int nvmlDeviceGetIndex(struct handle *h, u32 *into) {
  ENTER(h)
  for (u32 index = 0; index < (u32)listed_count; index++)
    if (listed[index] == h->gpu) *into = index;
  return OK;
}
struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(struct handle *h, struct pci *into) {
  ENTER(h)
  *into = (struct pci){ .bus = (u32)h->gpu + 1, .id = 0x233010de, .subsystem = 0x16c110de };
  snprintf(into->legacy, sizeof into->legacy, "0000:%02X:00.0", into->bus);
  snprintf(into->bus_id, sizeof into->bus_id, "00000000:%02X:00.0", into->bus);
  return OK;
}
int nvmlDeviceGetSerial(struct handle *h, char *into, u32 size) { ENTER(h) return text(into, size, "1650000000000"); }

/* ---- values ---- */

int nvmlDeviceGetUtilizationRates(struct handle *h, u32 into[2]) {
  ENTER(h)
  if (VALUE(h, mig)) return NOT_SUPPORTED; /* as real drivers do in MIG mode */
  into[0] = (u32)VALUE(h, util), into[1] = (u32)VALUE(h, mem_util);
  return OK;
}
int nvmlDeviceGetMemoryInfo(struct handle *h, u64 into[3]) {
  ENTER(h) /* the first version counts the reserved part as used */
  into[0] = VALUE(h, total_bytes), into[2] = VALUE(h, used_bytes) + VALUE(h, reserved_bytes), into[1] = into[0] - into[2];
  return OK;
}
struct memory { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct handle *h, struct memory *into) {
  ENTER(h)
  into->total = VALUE(h, total_bytes), into->reserved = VALUE(h, reserved_bytes), into->used = VALUE(h, used_bytes);
  into->free = into->total - into->reserved - into->used;
  return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(struct handle *h, u64 into[3]) {
  ENTER(h)
  into[0] = 1ULL << 37, into[1] = into[0] - (1 << 20), into[2] = 1 << 20;
  return OK;
}
GET(nvmlDeviceGetPowerUsage, u32, power_mw)
GET(nvmlDeviceGetEnforcedPowerLimit, u32, limit_mw)
GET(nvmlDeviceGetPowerManagementLimit, u32, limit_mw)
static u64 energy_mj(int gpu) {
  u64 base = gpus[gpu].value[K_energy_mj];
  if (base == 0xffffffffULL || base >> 62) return base; /* a sentinel does not grow */
  accrue(gpu);
  return base + (u64)(joules[gpu] * 1000);
}
int nvmlDeviceGetTotalEnergyConsumption(struct handle *h, u64 *into) { ENTER(h) *into = energy_mj(h->gpu); return OK; }
int nvmlDeviceGetTemperature(struct handle *h, int sensor, u32 *into) {
  (void)sensor;
  ENTER(h) *into = (u32)VALUE(h, temp);
  return OK;
}
struct temperature { u32 version; int sensor, degrees; };
int nvmlDeviceGetTemperatureV(struct handle *h, struct temperature *into) { ENTER(h) into->degrees = (int)VALUE(h, temp); return OK; }
int nvmlDeviceGetClockInfo(struct handle *h, int kind, u32 *into) {
  ENTER(h) *into = (u32)(kind == 2 ? VALUE(h, mem_mhz) : VALUE(h, sm_mhz));
  return OK;
}
int nvmlDeviceGetMaxClockInfo(struct handle *h, int kind, u32 *into) { return nvmlDeviceGetClockInfo(h, kind, into); }
GET(nvmlDeviceGetCurrentClocksEventReasons, u64, reasons)
GET(nvmlDeviceGetCurrentClocksThrottleReasons, u64, reasons)
struct violation { u64 reference, time; };
int nvmlDeviceGetViolationStatus(struct handle *h, int policy, struct violation *into) {
  ENTER(h)
  into->reference = (u64)(now_s(CLOCK_MONOTONIC) * 1e6);
  into->time = policy == 0 ? VALUE(h, policy_power_ns) : policy == 1 ? VALUE(h, policy_thermal_ns) : VALUE(h, policy_sync_ns);
  return policy > 2 ? NOT_SUPPORTED : OK;
}
GET(nvmlDeviceGetCurrPcieLinkGeneration, u32, pcie_gen)
GET(nvmlDeviceGetCurrPcieLinkWidth, u32, pcie_width)
GET(nvmlDeviceGetPcieReplayCounter, u32, pcie_replays)
int nvmlDeviceGetPcieThroughput(struct handle *h, int kind, u32 *into) {
  (void)kind;
  ENTER(h)
  usleep(20000); /* what it takes on real drivers */
  *into = 1000;
  return OK;
}
int nvmlDeviceGetTotalEccErrors(struct handle *h, int kind, int counter, u64 *into) {
  (void)counter;
  ENTER(h) *into = kind ? VALUE(h, ecc_uncorrected) : VALUE(h, ecc_corrected);
  return OK;
}

/* ---- fields: one call for many values ---- */

struct field { u32 id, scope; long long at, latency; u32 type; int result; union { double d; u32 u; u64 ull; } value; };
static void field_value(struct handle *h, struct field *field) {
  int major = atoi(driver_version);
  int throttle = major >= 590 ? 269 : major >= 575 ? 251 : 0; /* real drivers have renumbered these */
  int smoothing = major >= 590 || major < 575 ? 251 : 256;
  int old_links = VALUE(h, link_received) == 0;
  field->result = OK, field->type = 3, field->value.ull = 0;
  if (throttle && (int)field->id >= throttle && (int)field->id < throttle + 3) {
    int which = (int)field->id - throttle;
    field->value.ull = which == 0 ? VALUE(h, sw_thermal_ns) : which == 1 ? VALUE(h, hw_thermal_ns) : VALUE(h, brake_ns);
    return;
  }
  if ((int)field->id >= smoothing && (int)field->id < smoothing + 18) {
    field->type = 1, field->value.u = (u32)VALUE(h, smoothing);
    return;
  }
  switch (field->id) {
    case 3: field->value.ull = VALUE(h, ecc_corrected); break;
    case 4: field->value.ull = VALUE(h, ecc_uncorrected); break;
    case 74: field->value.ull = VALUE(h, policy_power_ns); break;
    case 75: field->value.ull = VALUE(h, policy_thermal_ns); break;
    case 76: field->value.ull = VALUE(h, policy_sync_ns); break;
    case 83: field->value.ull = energy_mj(h->gpu); break;
    case 91: field->type = 1, field->value.u = (u32)VALUE(h, links); break;
    case 94: field->type = 1, field->value.u = (u32)VALUE(h, pcie_replays); break;
    case 185: field->type = 1, field->value.u = (u32)(VALUE(h, average_mw) ? VALUE(h, average_mw) : VALUE(h, power_mw)); break;
    case 186: field->type = 1, field->value.u = (u32)VALUE(h, power_mw); break;
    case 38: field->value.ull = VALUE(h, link_crc); break;
    case 45: field->value.ull = VALUE(h, link_data); break;
    case 52: field->value.ull = VALUE(h, link_replay); break;
    case 59: field->value.ull = VALUE(h, link_recovery); break;
    case 161: case 162: case 163: field->value.ull = 1; break;                     /* one of each on each link */
    case 208: field->value.ull = VALUE(h, link_received); break;
    case 215: field->value.ull = 0; break;
    default: field->result = NOT_SUPPORTED;
  }
  int link = field->id == 38 || field->id == 45 || field->id == 52 || field->id == 59 || field->id == 208 || field->id == 215 ||
             (field->id >= 161 && field->id <= 163);
  if (link && (!VALUE(h, links) || (old_links != (field->id < 200)))) field->result = NOT_SUPPORTED;
  if (link && field->id > 160 && field->scope >= VALUE(h, links)) field->result = INVALID_ARGUMENT;
}
int nvmlDeviceGetFieldValues(struct handle *h, int count, struct field *fields) {
  ENTER(h)
  const struct device *device = device_of(h);
  for (int at = 0; at < count; at++) {
    field_value(h, &fields[at]);
    for (int fault = 0; fault < device->field_count; fault++)
      if (device->fields[fault].id == fields[at].id) fields[at].result = device->fields[fault].code;
  }
  return OK;
}

/* ---- processes ---- */

struct process_info { u32 pid; u64 bytes; u32 gpu_instance, compute_instance; };
static int list_processes(struct handle *h, u32 *count, struct process_info *into, int mps) {
  u32 found = 0, room = into ? *count : 0;
  const struct device *device = device_of(h);
  int instances = h->slice < 0 && VALUE(h, mig) ? SLICES : 0; /* a GPU in MIG mode tells of all its MIG devices */
  for (int slice = -1; slice < instances; slice++) {
    const struct device *from = slice < 0 ? device : &slices[h->gpu][slice];
    int many = mps ? from->mps_count : from->proc_count;
    u32 instance = h->slice >= 0 ? (u32)h->slice : slice >= 0 ? (u32)slice : ~0u;
    for (int at = 0; at < many; at++, found++)
      if (found < room) into[found] = (struct process_info){ (mps ? from->mps : from->procs)[at].pid,
                                                             (mps ? from->mps : from->procs)[at].bytes, instance, instance };
  }
  *count = found;
  return found > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *h, u32 *count, struct process_info *into) {
  ENTER(h) return list_processes(h, count, into, 0);
}
int nvmlDeviceGetComputeRunningProcesses_v2(struct handle *h, u32 *count, struct process_info *into) {
  ENTER(h) return list_processes(h, count, into, 0);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct handle *h, u32 *count, struct process_info *into) {
  ENTER(h) return list_processes(h, count, into, 1);
}
static int no_processes(struct handle *h, const char *function, u32 *count) {
  int result = enter(h, function);
  if (!result) *count = 0;
  return result;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(struct handle *h, u32 *count, void *into) { (void)into; return no_processes(h, __func__, count); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(struct handle *h, u32 *count, void *into) { (void)into; return no_processes(h, __func__, count); }
int nvmlDeviceGetProcessUtilization(struct handle *h, void *into, u32 *count, u64 since) {
  (void)into, (void)since;
  *count = 0;
  ENTER(h) return NOT_FOUND;
}
int nvmlSystemGetProcessName(u32 pid, char *into, u32 size) { (void)pid; return text(into, size, "python"); }

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(struct handle *h, u32 *current, u32 *pending) {
  ENTER(h)
  *current = *pending = (u32)VALUE(h, mig);
  return OK;
}
int nvmlDeviceIsMigDeviceHandle(struct handle *h, u32 *into) { ENTER(h) *into = h->slice >= 0; return OK; }
FIXED(nvmlDeviceGetMaxMigDeviceCount, u32, 7)
int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *h, u32 index, struct handle **into) {
  ENTER(h)
  if (index >= 7) return INVALID_ARGUMENT;
  if (!VALUE(h, mig) || !slices[h->gpu][index].uuid[0]) return NOT_FOUND;
  *into = h + 1 + index;
  return OK;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct handle *h, struct handle **into) {
  ENTER(h)
  *into = h - 1 - h->slice;
  return OK;
}
int nvmlDeviceGetGpuInstanceId(struct handle *h, u32 *into) { ENTER(h) *into = (u32)h->slice; return h->slice < 0 ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetComputeInstanceId(struct handle *h, u32 *into) { ENTER(h) *into = 0; return h->slice < 0 ? NOT_SUPPORTED : OK; }
struct attributes { u32 sms, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices; u64 memory_mib; };
int nvmlDeviceGetAttributes_v2(struct handle *h, struct attributes *into) {
  ENTER(h)
  if (h->slice < 0) return NOT_SUPPORTED;
  *into = (struct attributes){ .sms = (u32)VALUE(h, sms), .gpu_slices = (u32)VALUE(h, slices), .compute_slices = (u32)VALUE(h, slices),
                               .memory_mib = VALUE(h, total_bytes) >> 20 };
  return OK;
}
struct profile { u32 version, id, p2p, slices, instances, sms, copy, decoder, encoder, jpeg, ofa; u64 memory_mib; char name[96]; };
int nvmlDeviceGetGpuInstanceProfileInfoV(struct handle *h, u32 profile, struct profile *into) {
  static const u32 sevenths[] = { 1, 2, 3, 4, 7 };
  ENTER(h)
  if (profile >= 5) return NOT_SUPPORTED;
  into->id = profile, into->slices = sevenths[profile], into->sms = (u32)VALUE(h, sms) * sevenths[profile] / 7;
  return OK;
}

/* ---- events ---- */

struct event { struct handle *device; u64 type, data; u32 gpu_instance, compute_instance; };
int nvmlEventSetCreate(void **into) {
  static int set;
  *into = &set;
  return enter_node(__func__);
}
int nvmlEventSetFree(void *set) { (void)set; return enter_node(__func__); }
FIXED(nvmlDeviceGetSupportedEventTypes, u64, 8)
int nvmlDeviceRegisterEvents(struct handle *h, u64 types, void *set) {
  (void)set;
  ENTER(h)
  registered[h->gpu] = (types & 8) != 0;
  return OK;
}
int nvmlEventSetWait_v2(void *set, struct event *into, u32 milliseconds) {
  (void)set;
  double until = now_s(CLOCK_MONOTONIC) + milliseconds / 1000.0;
  do {
    int result = enter_node(__func__);
    if (result) return result;
    for (int gpu = 0; gpu < GPUS; gpu++)
      if (registered[gpu] && gpus[gpu].xid_number != xid_seen[gpu]) {
        xid_seen[gpu] = gpus[gpu].xid_number;
        *into = (struct event){ &handles[gpu * (SLICES + 1)], 8, gpus[gpu].xid, ~0u, ~0u };
        return OK;
      }
    if (milliseconds) usleep(1000);
  } while (now_s(CLOCK_MONOTONIC) < until);
  return TIMEOUT;
}

/* ---- what only other programs ask ---- */

NEVER(nvmlDeviceGetFanSpeed)
NEVER(nvmlDeviceGetDriverModel)
NEVER(nvmlDeviceGetDriverModel_v2)
FIXED(nvmlDeviceGetMinorNumber, u32, (u32)h->gpu)
FIXED(nvmlDeviceGetPerformanceState, int, 0)
FIXED(nvmlDeviceGetComputeMode, int, 0)
FIXED(nvmlDeviceGetPersistenceMode, int, 1)
FIXED(nvmlDeviceGetDisplayMode, int, 0)
FIXED(nvmlDeviceGetDisplayActive, int, 0)
int nvmlDeviceGetCudaComputeCapability(struct handle *h, int *major, int *minor) { ENTER(h) *major = 9, *minor = 0; return OK; }
int nvmlDeviceGetEncoderUtilization(struct handle *h, u32 *percent, u32 *us) { ENTER(h) *percent = 0, *us = 167000; return OK; }
int nvmlDeviceGetDecoderUtilization(struct handle *h, u32 *percent, u32 *us) { ENTER(h) *percent = 0, *us = 167000; return OK; }
