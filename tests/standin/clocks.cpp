// A stand-in for the library by which NVIDIA's driver tells of a device's clocks. Beside it lies `clocks.conf`: lines
// `name value` (sm, memory, most, set, usual, reasons; throttled and changed name readings by their numbers, from 1:
// `throttled_from`, `throttled_to`, `changed_from`, and `changed_to` is the clock from then on).
#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <string>

namespace {
std::map<std::string, long long> &conf = *new std::map<std::string, long long>;
long long readings = 0;
long long set(const char *name, long long otherwise) {
  auto it = conf.find(name);
  return it == conf.end() ? otherwise : it->second;
}
}  // namespace

extern "C" {
typedef int R;
R nvmlInit_v2() {
  Dl_info info;
  dladdr((void *)&nvmlInit_v2, &info);
  std::string path = info.dli_fname;
  if (FILE *file = fopen((path.substr(0, path.rfind('/')) + "/clocks.conf").c_str(), "r")) {
    char name[64];
    long long value;
    while (fscanf(file, "%63s %lld", name, &value) == 2) conf[name] = value;
    fclose(file);
  }
  return 0;
}
R nvmlShutdown() { return 0; }
R nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
  const std::string at = pci;
  *device = (void *)(at == "0000:02:00.0" ? 2l : 1l);
  return at == "0000:01:00.0" || at == "0000:02:00.0" ? 0 : 6;
}
R nvmlDeviceGetCurrentClocksThrottleReasons(void *, unsigned long long *reasons) {
  ++readings;
  const bool throttled = readings >= set("throttled_from", 1 << 30) && readings <= set("throttled_to", 0);
  *reasons = (unsigned long long)(set("reasons", 2) | (throttled ? set("throttled", 0x20) : 0));
  return (int)set("error", 0);
}
R nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
  const bool second = device == (void *)2l;
  *mhz = (unsigned)(kind == 2 ? set("memory", 1593) : set(second ? "second" : "sm", 1410));
  if (kind == 1 && readings >= set("changed_from", 1 << 30)) *mhz = (unsigned)set("changed_to", 0);
  return 0;
}
R nvmlDeviceGetMaxClockInfo(void *, int, unsigned *mhz) { *mhz = (unsigned)set("most", 1980); return 0; }
R nvmlDeviceGetApplicationsClock(void *, int kind, unsigned *mhz) {
  *mhz = (unsigned)(kind == 2 ? 1593 : set("set", 1410));
  return 0;
}
R nvmlDeviceGetDefaultApplicationsClock(void *, int kind, unsigned *mhz) {
  *mhz = (unsigned)(kind == 2 ? 1593 : set("usual", 1980));
  return 0;
}
}
