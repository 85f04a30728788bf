// A stand-in for a GPU and its driver, for tests on machines without one: the calls of CUDA's driver API that the
// harness makes, over memory of the host's. It stands for the hardware only; judge, runner and what passes between them
// are the real ones. What is like a device: memory that is shared by file descriptors, work that goes on while the
// process that queued it is stopped, and work of another process that waits for its turn while the device is busy.
//
// Beside this library lies `device.conf`: lines `name value` (mode, export, import, version, devices, memory,
// copies_wait, sync_ns, l2, log). With `log` the process that lends memory writes its commands into `device.log` there.
// Built with STANDIN_HIP, and with each name replaced by HIP's, it is HIP's library. `standin_write`, `standin_busy` and `standin_mine` are what a kernel launch would be.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {
constexpr size_t PAYLOADS = 1 << 20, TAIL = PAYLOADS + 65536, STEP = 65536;
constexpr int JOBS = 64;
constexpr uint64_t SLICE = 2000000;

struct Job {
  std::atomic<uint32_t> state;  // 0 free, 1 queued, 2 done, 3 spinning, 4 computing, 5 waiting for a word of memory
  uint64_t at, offset, size;
  uint64_t was, after;  // state 3: a kernel that spins until the input's first word isn't this one any more
  double factor;
};
struct Tail {  // behind every piece of shared memory: what the device knows of it, whoever has it mapped
  std::atomic<uint64_t> busy_until, used, moved;  // moved: how many bytes have gone through the device's cache
  std::atomic<uint32_t> jobs_made;
  std::atomic<int> works_for;  // whose work the device did last
  Job jobs[JOBS];
};
struct Piece {
  int fd;
  size_t size;
  char *whole;
  Tail *tail;
  char *payloads;
  bool ours;
};

// never destroyed: the device's thread works until the process is gone
std::recursive_mutex &guard = *new std::recursive_mutex;
std::atomic<uint64_t> mine_until{0};
std::map<uint64_t, Piece *> &pieces = *new std::map<uint64_t, Piece *>;  // by handle
std::map<uint64_t, std::pair<size_t, Piece *>> &mapped = *new std::map<uint64_t, std::pair<size_t, Piece *>>;  // by address
std::map<uint64_t, size_t> &allocated = *new std::map<uint64_t, size_t>;
std::map<std::string, long long> &conf = *new std::map<std::string, long long>;
uint64_t next_handle = 1, used_here = 0;
size_t persisting = 0;  // of this process's context: how much of the cache is set aside
bool exporting = false, running = false;
int held = -1, retained = 0;

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
void pause_ns(uint64_t ns) {
  timespec t{(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  nanosleep(&t, nullptr);
}
std::string conf_path() {
  Dl_info info;
  dladdr((void *)&conf_path, &info);
  std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/')) + "/device.conf";
}
long long set(const char *name, long long otherwise) {
  auto it = conf.find(name);
  return it == conf.end() ? otherwise : it->second;
}
thread_local int here = 0;  // the device whose context is this thread's
void tells(const char *what, size_t n) {  // a runner can't write there
  if (!set("log", 0)) return;
  const std::string path = conf_path(), at = here ? "@" + std::to_string(here) : "";
  if (FILE *file = fopen((path.substr(0, path.rfind('/')) + "/device.log").c_str(), "a")) {
    fprintf(file, "%s%s %zu\n", what, at.c_str(), n);
    fclose(file);
  }
}
void moves(const char *what, size_t n) {  // through the cache
  tells(what, n);
  if (!exporting) return;
  std::lock_guard<std::recursive_mutex> lock(guard);
  for (auto &p : pieces) p.second->tail->moved += n;
}
uint64_t busy_until() {
  uint64_t latest = 0;
  for (auto &p : pieces) latest = std::max<uint64_t>(latest, p.second->tail->busy_until);
  return latest;
}
bool due() {
  std::lock_guard<std::recursive_mutex> lock(guard);
  for (auto &p : pieces)
    for (Job &job : p.second->tail->jobs)
      if (job.state == 1 && job.at <= now()) return true;
  return false;
}
// A device that worked for another process takes its time to change over to this one: on an H200 0.14 ms for kernels,
// fills and copies within it, nothing for copies from and to the host, which have engines of their own.
uint64_t changes_over() {
  static const int me = (int)(now() & 0x7fffffff) | 1;  // in a PID namespace of its own a process has a small number
  std::lock_guard<std::recursive_mutex> lock(guard);
  bool changes = false;
  for (auto &p : pieces) {
    const int before = p.second->tail->works_for.exchange(me);
    changes |= before != 0 && before != me;
  }
  return changes ? set("change_over_ns", 0) : 0;
}
void take_turn(bool copy) {  // another process's work: ours is let in after at most one slice
  if (!exporting || (copy && !set("copies_wait", 0))) return;
  uint64_t until, t = now();
  {
    std::lock_guard<std::recursive_mutex> lock(guard);
    until = busy_until();
  }
  if (until > t) pause_ns(std::min(until - t, SLICE));
  while (due()) pause_ns(20000);  // what comes before it is really done
}
void work() {  // the device itself: does what was queued, whether or not who queued it runs
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    {
      std::lock_guard<std::recursive_mutex> lock(guard);
      for (auto &entry : pieces) {
        Piece *p = entry.second;
        if (!p->ours) continue;
        auto before = pieces.find(entry.first - 1);  // the input, where this is the output
        for (Job &job : p->tail->jobs) {
          if (before == pieces.end() || job.state < 3) continue;
          const char *in = before->second->whole;
          if (job.state == 3 && memcmp(in, &job.was, 8)) {
            job.at = now() + job.after;
            p->tail->busy_until = job.at;
            job.state = 4;
          } else if (job.state == 4 && now() >= job.at) {
            for (size_t n = 0; n < job.size; ++n) ((double *)p->whole)[n] = ((const double *)in)[n] * job.factor;
            job.state = 2;
          }
        }
        for (Job &job : p->tail->jobs)
          if (job.state == 1 && now() >= job.at) {
            if (job.offset + job.size <= p->size && job.size <= PAYLOADS / JOBS)
              memcpy(p->whole + job.offset, p->payloads + (&job - p->tail->jobs) * (PAYLOADS / JOBS), job.size);
            job.state = 2;
          }
      }
    }
    pause_ns(50000);
  }
}
Piece *piece_of(int fd, bool ours) {
  struct stat told;
  if (fstat(fd, &told) || (size_t)told.st_size <= TAIL) return nullptr;
  const size_t size = told.st_size - TAIL;
  char *at = (char *)mmap(nullptr, told.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  return new Piece{fd, size, at, (Tail *)(at + size), at + size + 65536, ours};
}
void forget_the_dead() {  // what a process had is free when it has ended
  for (auto &p : pieces) {
    if (!p.second->ours || flock(p.second->fd, LOCK_EX | LOCK_NB)) continue;
    p.second->tail->used = 0;
    flock(p.second->fd, LOCK_UN);
  }
}
uint64_t used() {
  forget_the_dead();
  uint64_t sum = used_here;
  for (auto &p : pieces) sum += p.second->ours ? p.second->size + p.second->tail->used : 0;
  return sum;
}
std::pair<Piece *, uint64_t> where(uint64_t at) {
  for (auto &m : mapped)
    if (at >= m.first && at < m.first + m.second.first) return {m.second.second, at - m.first};
  return {nullptr, 0};
}
void go_on_after(uint64_t written) {  // streams that waited for the first word of this memory to change
  std::lock_guard<std::recursive_mutex> lock(guard);
  auto [piece, offset] = where(written);
  if (!piece) return;
  Job &job = piece->tail->jobs[JOBS - 2];
  if (job.state != 5 || !memcmp(piece->whole, &job.was, 8)) return;
  piece->tail->busy_until = now() + job.after;
  job.state = 2;
}
struct Event { uint64_t at; };
struct Location { int type, id; };
// As the real library does to a thread that it starts (580.159 on an H200): without that it doesn't start at all.
bool named_itself() {
  bool done = false;
  std::thread([&done] {
    const std::string name = "/proc/self/task/" + std::to_string(gettid()) + "/comm";
    if (FILE *file = fopen(name.c_str(), "w")) done = fputs("cuda00001400006", file) >= 0 && fclose(file) == 0;
  }).join();
  return done;
}
}  // namespace

extern "C" {
typedef int R;
R cuInit(unsigned) {
  if (FILE *file = fopen(conf_path().c_str(), "r")) {
    char name[64];
    long long value;
    while (fscanf(file, "%63s %lld", name, &value) == 2) conf[name] = value;
    fclose(file);
  }
  if (set("names_threads", 0) && !named_itself()) return 304;
  return set("devices", 1) ? 0 : 100;
}
R cuDriverGetVersion(int *v) { *v = (int)set("version", 12080); return 0; }
R cuDeviceGetCount(int *n) { *n = (int)set("devices", 1); return 0; }
R cuDeviceGet(int *d, int n) { *d = n; return 0; }
R cuDeviceGetName(char *to, int n, int) { snprintf(to, n, "Stand-in 1"); return 0; }
R cuDeviceGetPCIBusId(char *to, int n, int d) { snprintf(to, n, "0000:%02X:00.0", d + 1); return 0; }
R cuDeviceGetUuid_v2(unsigned char *to, int d) { memset(to, 0x40 + d, 16); return 0; }
R cuDeviceGetAttribute(int *v, int which, int) {
#ifdef STANDIN_HIP
  which = which == 6 ? 20 : which == 19 ? 38 : 0;
#endif
  *v = which == 20 ? (int)set("mode", 0) : which == 103 ? (int)set("export", 1) : which == 38 ? (int)set("l2", 1 << 20) : 0;
  return 0;
}
R cuDevicePrimaryCtxRetain(void **c, int d) {
  *c = (void *)(intptr_t)(d + 1);
  if (set("mode", 0) == 3 && held < 0) {
    held = open(conf_path().c_str(), O_RDONLY | O_CLOEXEC);
    if (held < 0 || flock(held, LOCK_EX | LOCK_NB)) {
      if (held >= 0) close(held);
      held = -1;
      return 46;
    }
  }
  retained++;
  return 0;
}
R cuDevicePrimaryCtxRelease_v2(int) {
  if (retained > 0 && --retained == 0 && held >= 0) {
    close(held);
    held = -1;
  }
  return 0;
}
R cuCtxSetCurrent(void *c) {
  here = (int)(intptr_t)c - 1;
  return 0;
}
R cuCtxResetPersistingL2Cache() {
  moves("unpersist", 0);
  return 0;
}
R cuCtxSetLimit(int which, size_t value) {
  if (which == 6) persisting = value;
  return which == 6 ? 0 : 1;
}
R cuCtxGetLimit(size_t *value, int which) {
  *value = persisting;
  return which == 6 ? 0 : 1;
}
R cuCtxSynchronize() {
  if (const uint64_t t = now(), until = mine_until; until > t) pause_ns(until - t);
  if (exporting) return 0;
  pause_ns(set("sync_ns", 0));
  for (;;) {
    uint64_t until, t = now();
    {
      std::lock_guard<std::recursive_mutex> lock(guard);
      until = busy_until();
    }
    if (until <= t) return 0;
    pause_ns(until - t);
  }
}
R cuMemGetInfo_v2(size_t *free, size_t *whole) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  *whole = (size_t)set("memory", 1 << 30);
  *free = used() < *whole ? *whole - used() : 0;
  return 0;
}
R cuMemAlloc_v2(uint64_t *at, size_t size) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  uint64_t before = used_here;
  for (auto &p : pieces) before += p.second->tail->used + (p.second->ours ? p.second->size : 0);
  if (before + size > (uint64_t)set("memory", 1 << 30)) return 2;
  void *found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return 2;
  allocated[*at = (uint64_t)found] = size;
  if (!exporting && !pieces.empty()) pieces.begin()->second->tail->used += size;
  else used_here += size;
  return 0;
}
R cuMemFree_v2(uint64_t at) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (!allocated.count(at)) return 1;
  munmap((void *)at, allocated[at]);
  if (!exporting && !pieces.empty()) pieces.begin()->second->tail->used -= allocated[at];
  else used_here -= allocated[at];
  allocated.erase(at);
  return 0;
}
R cuMemAllocHost_v2(void **at, size_t size) {
  *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *at == MAP_FAILED ? 2 : 0;
}
R cuMemFreeHost(void *) { return 0; }
R cuMemGetAllocationGranularity(size_t *step, void *, int) { *step = STEP; return 0; }
R cuMemCreate(uint64_t *handle, size_t size, const int *told, unsigned long long) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (size % STEP || told[0] != 1 || told[1] != 1 || told[2] != 1) return 1;
  if (used() + size > (uint64_t)set("memory", 1 << 30)) return 2;
  int fd = memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, size + TAIL)) return 2;
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  Piece *made = piece_of(fd, true);
  if (!made) return 2;
  pieces[*handle = next_handle++] = made;
  exporting = true;
  if (!running) {
    running = true;
    std::thread(work).detach();
  }
  return 0;
}
R cuMemRelease(uint64_t handle) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (!pieces.count(handle)) return 1;
  Piece *p = pieces[handle];
  munmap(p->whole, p->size + TAIL);
  close(p->fd);
  pieces.erase(handle);
  delete p;
  return 0;
}
R cuMemExportToShareableHandle(int *fd, uint64_t handle, int kind, unsigned long long) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (kind != 1 || !pieces.count(handle)) return 1;
  *fd = fcntl(pieces[handle]->fd, F_DUPFD_CLOEXEC, 0);
  return *fd < 0 ? 1 : 0;
}
R cuMemImportFromShareableHandle(uint64_t *handle, void *fd, int kind) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (kind != 1 || !set("import", 1)) return 801;
#ifdef STANDIN_HIP  // older versions take the descriptor's address
  const int number = *(const int *)fd;
#else
  const int number = (int)(intptr_t)fd;
#endif
  const int mine = open(("/proc/self/fd/" + std::to_string(number)).c_str(), O_RDWR | O_CLOEXEC);
  Piece *found = piece_of(mine >= 0 ? mine : fcntl(number, F_DUPFD_CLOEXEC, 0), false);
  if (!found) return 1;
  flock(found->fd, LOCK_SH | LOCK_NB);  // let go when this process ends
  pieces[*handle = next_handle++] = found;
  return 0;
}
R cuMemAddressReserve(uint64_t *at, size_t size, size_t, uint64_t, unsigned long long) {
  void *found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *at = (uint64_t)found;
  return found == MAP_FAILED ? 2 : 0;
}
R cuMemAddressFree(uint64_t at, size_t size) { return munmap((void *)at, size) ? 1 : 0; }
R cuMemMap(uint64_t at, size_t size, size_t offset, uint64_t handle, unsigned long long) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (!pieces.count(handle) || offset || size > pieces[handle]->size) return 1;
  if (mmap((void *)at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, pieces[handle]->fd, 0) == MAP_FAILED) return 1;
  mapped[at] = {size, pieces[handle]};
  return 0;
}
R cuMemUnmap(uint64_t at, size_t size) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  mapped.erase(at);
  return mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}
R cuMemSetAccess(uint64_t at, size_t size, const int *told, size_t n) {
  return n != 1 || told[0] != 1 || mprotect((void *)at, size, told[2] == 3 ? PROT_READ | PROT_WRITE : PROT_READ) ? 1 : 0;
}
R cuStreamCreate(void **s, unsigned) { *s = (void *)1; return 0; }
R cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *) {
  take_turn(true);
  moves("to_device", n);
  memcpy((void *)to, from, n);
  go_on_after(to);
  return 0;
}
R cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *) {
  take_turn(true);
  tells("to_host", n);
  memcpy(to, (void *)from, n);
  return 0;
}
R cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *) {
  take_turn(true);
  if (const uint64_t ns = changes_over()) pause_ns(ns);
  moves("within", n);
  memmove((void *)to, (void *)from, n);
  return 0;
}
R cuMemsetD8Async(uint64_t at, unsigned char value, size_t n, void *) {
  take_turn(false);
  if (const uint64_t ns = changes_over()) pause_ns(ns);
  moves("fill", n);
  memset((void *)at, value, n);
  return 0;
}
struct Copy2D {
  size_t src_x, src_y;
  int src_type;
  const void *src_host;
  uint64_t src_device;
  void *src_array;
  size_t src_pitch, dst_x, dst_y;
  int dst_type;
  void *dst_host;
  uint64_t dst_device;
  void *dst_array;
  size_t dst_pitch, width, height;
};
R cuMemcpy2DAsync_v2(const Copy2D *c, void *) {
  if (c->src_type != 2 || c->dst_type != 1 || c->width > c->src_pitch || c->width > c->dst_pitch) return 1;
  take_turn(true);
  for (size_t row = 0; row < c->height; ++row)
    memcpy((char *)c->dst_host + row * c->dst_pitch, (char *)c->src_device + row * c->src_pitch, c->width);
  return 0;
}
#ifdef STANDIN_HIP
R hipSetDevice(int) { return 0; }
R hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t rows, int kind, void *) {
  const Copy2D told{0, 0, 2, nullptr, (uint64_t)from, nullptr, pitch, 0, 0, 1, to, 0, nullptr, to_pitch, width, rows};
  return kind == 2 ? cuMemcpy2DAsync_v2(&told, nullptr) : 1;
}
#endif
R cuEventCreate(Event **e, unsigned) { *e = new Event{0}; return 0; }
R cuEventRecord(Event *e, void *stream) {
  if (const uint64_t ns = stream ? 0 : changes_over()) pause_ns(ns);
  std::lock_guard<std::recursive_mutex> lock(guard);
  e->at = exporting ? now() : std::max(now(), busy_until());
  return 0;
}
R cuEventQuery(Event *e) { return now() >= e->at ? 0 : 600; }
R cuEventSynchronize(Event *e) {
  const uint64_t t = now();
  if (e->at > t) pause_ns(e->at - t);
  return 0;
}
R cuEventElapsedTime(float *ms, Event *a, Event *b) {
  *ms = (float)((double)(b->at - a->at) / 1e6);
  return 0;
}

// ---- what a kernel launch would be -------------------------------------------------------------------------------
R standin_write(uint64_t to, const void *data, size_t n, uint64_t after_ns) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  auto [piece, offset] = where(to);
  if (!piece || n > PAYLOADS / JOBS) return 1;
  const uint64_t at = now() + after_ns + changes_over();
  const uint32_t slot = piece->tail->jobs_made++ % JOBS;
  Job &job = piece->tail->jobs[slot];
  memcpy(piece->payloads + slot * (PAYLOADS / JOBS), data, n);
  job.at = at;
  job.offset = offset;
  job.size = n;
  job.state = 1;
  if (piece->tail->busy_until < at) piece->tail->busy_until = at;
  return 0;
}
R standin_spin(uint64_t in, uint64_t out, size_t n, double factor, uint64_t after_ns) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  auto [piece, offset] = where(out);
  if (!piece || offset) return 1;
  Job &job = piece->tail->jobs[JOBS - 1];
  memcpy(&job.was, (void *)in, 8);
  job.size = n;
  job.factor = factor;
  job.after = after_ns;
  job.state = 3;
  return 0;
}
R standin_spun(uint64_t out) {  // whether it is done
  std::lock_guard<std::recursive_mutex> lock(guard);
  auto [piece, offset] = where(out);
  return piece && piece->tail->jobs[JOBS - 1].state == 2;
}
R standin_wait(uint64_t at, uint64_t after_ns) {  // work that a stream does as soon as this word is another one
  std::lock_guard<std::recursive_mutex> lock(guard);
  auto [piece, offset] = where(at);
  if (!piece || offset) return 1;
  Job &job = piece->tail->jobs[JOBS - 2];
  memcpy(&job.was, (void *)at, 8);
  job.after = after_ns;
  job.state = 5;
  return 0;
}
uint64_t standin_stamp() {  // what has gone through the cache until now
  std::lock_guard<std::recursive_mutex> lock(guard);
  return pieces.empty() ? 0 : pieces.begin()->second->tail->moved.load();
}
R standin_cold(uint64_t stamp) {  // whether what was in the cache then has been pushed out since
  return standin_stamp() - stamp >= (uint64_t)set("l2", 1 << 20);
}
R standin_mine(uint64_t ns) {  // a kernel of this process that nobody else waits for
  mine_until = now() + ns;
  return 0;
}
R standin_busy(uint64_t ns) {
  std::lock_guard<std::recursive_mutex> lock(guard);
  if (pieces.empty()) return 1;
  pieces.begin()->second->tail->busy_until = now() + ns;
  return 0;
}
#ifndef STANDIN_HIP
// The stand-in for ncu listens on loopback, and profiles between these two.
static int tell_profiler(char what) {
  const char *port = getenv("STANDIN_NCU_PORT");
  if (!port) return 0;
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(atoi(port));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int line = socket(AF_INET, SOCK_STREAM, 0);
  if (line < 0) return 999;
  int failed = connect(line, (sockaddr *)&there, sizeof there) || write(line, &what, 1) != 1;
  close(line);
  return failed ? 999 : 0;
}
int cuProfilerStart() { return tell_profiler('+'); }
int cuProfilerStop() { return tell_profiler('-'); }
#endif
}
