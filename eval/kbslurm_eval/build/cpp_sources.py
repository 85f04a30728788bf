"""What lies between the harness and compiled code, in C++: the header that submissions may include, and what is put
around a submission and around a reference so that both are called with plain arrays.

The symbols of a submission's library are `kb_call`, `kb_serve` around it, and `kb_warm`; a reference's has
`kb_generate`, `kb_answer`, `kb_check` and what reads the arrays that they give. Nothing here is trusted in a runner: a
submission shares its library with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm_eval.build.c_arrays import BACK
from kbslurm_eval.shared import runner_link

HEADER = r"""
#ifndef KBSLURM_H
#define KBSLURM_H

/* An array of an input or an output, C order. The layout of outputs is the judge's: fill what data points to. */
typedef struct kb_array {
  void *data;             /* the first element; for a tensor of the GPU's a device pointer */
  long long size;         /* how many elements */
  int dtype;              /* one of the numbers below */
  int ndim;               /* 0 for a single number */
  const long long *shape; /* ndim numbers */
} kb_array;

enum {
  KB_BOOL = 1, KB_U8, KB_I8, KB_I16, KB_U16, KB_I32, KB_U32, KB_I64, KB_U64, KB_F16, KB_BF16, KB_F32, KB_F64, KB_C64,
  KB_C128, KB_OTHER
};

#ifdef __cplusplus
#define KB_ENTRY extern "C"
#else
#define KB_ENTRY
#endif

#endif
"""
# Host code that uses a few calls of CUDA's runtime compiles without it; host and device memory are then the same.
HOST_CUDA = r"""
#ifndef KBSLURM_HOST_CUDA_H
#define KBSLURM_HOST_CUDA_H
#include <cstdlib>
#include <cstring>
#define __host__
#define __device__
#define __forceinline__ inline
typedef int cudaError_t;
typedef int cudaStream_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice,
                      cudaMemcpyDefault };
inline const char *cudaGetErrorString(cudaError_t e) { return e ? "out of memory" : "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
template <class T> cudaError_t cudaMalloc(T **at, size_t size) {
  *at = static_cast<T *>(std::malloc(size ? size : 1));
  return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void *at) { std::free(at); return cudaSuccess; }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
  std::memmove(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void *at, int value, size_t size) { std::memset(at, value, size); return cudaSuccess; }
#endif
"""

# Values of C++ as arrays and back: numbers, containers of them, containers of containers, tuples, strings.
MARSHAL = r"""
#include <array>
#include <complex>
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kb {
struct Misfit : std::runtime_error { using std::runtime_error::runtime_error; };

template <class T, class = void> struct Tied : std::false_type {};
template <class T> struct Tied<T, std::void_t<decltype(std::declval<T &>().kb_tied())>> : std::true_type {};
template <class T> struct Plain : std::bool_constant<
    std::is_arithmetic<T>::value || std::is_enum<T>::value ||
    (std::is_class<T>::value && std::is_trivially_copyable<T>::value && sizeof(T) <= 4 && !Tied<T>::value)> {};
template <class T> struct Plain<std::complex<T>> : std::true_type {};
// What is nothing but truth values, whose bytes say 0 or 1: the compiler computes with whatever else they say.
template <class T> struct Truths : std::is_same<T, bool> {};
template <class T, size_t N> struct Truths<std::array<T, N>> : Truths<T> {};

struct Leaf { char code; std::string bytes; };

template <class T> constexpr char code() {
  if constexpr (std::is_same<T, float>::value) return 'f';
  else if constexpr (std::is_same<T, double>::value) return 'd';
  else if constexpr (std::is_same<T, bool>::value) return 'B';
  else if constexpr (std::is_integral<T>::value && std::is_signed<T>::value)
    return sizeof(T) == 1 ? 'b' : sizeof(T) == 2 ? 'h' : sizeof(T) == 4 ? 'i' : 'q';
  else return sizeof(T) == 2 ? 'H' : sizeof(T) == 4 ? 'I' : sizeof(T) == 8 ? 'Q' : 'B';
}
inline long long width(char c) {
  switch (c) { case 'h': case 'H': return 2; case 'i': case 'I': case 'f': return 4;
               case 'q': case 'Q': case 'd': return 8; default: return 1; }
}

// Where arrays are written to: leaves of our own (a reference's), or places that the judge has laid out (a call's).
struct Sink {
  std::vector<Leaf> *leaves = nullptr;
  kb_array *at = nullptr;
  int left = 0, number = 0;
  void put(char c, const void *data, size_t bytes) {
    if (leaves) {
      ++number;
      leaves->push_back({c, std::string(static_cast<const char *>(data), bytes)});
      return;
    }
    void *to = place(bytes);
    if (bytes) std::memcpy(to, data, bytes);
  }
  void *place(size_t bytes) {
    ++number;
    if (left == 0) throw Misfit("there are more arrays in the output than expected");
    const long long room = at->size * width_of(at->dtype);
    if ((long long)bytes != room)
      throw Misfit("array " + std::to_string(number) + " of the output has " + std::to_string(bytes) + " bytes; " +
                   std::to_string(room) + " were expected");
    --left;
    return at++->data;
  }
  static long long width_of(int dtype) {
    switch (dtype) { case KB_I16: case KB_U16: case KB_F16: case KB_BF16: return 2;
      case KB_I32: case KB_U32: case KB_F32: return 4;
      case KB_I64: case KB_U64: case KB_F64: case KB_C64: return 8;
      case KB_C128: return 16; default: return 1; }
  }
};
struct Source {
  const kb_array *at;
  int left;
  bool strict = false;  // a submission may have written these
  bool again = false;   // what they are read into has had other data before
  const kb_array &next() {
    if (left == 0) throw Misfit("there are fewer arrays than the type needs");
    --left;
    return *at++;
  }
  size_t bytes(const kb_array &a) const { return (size_t)(a.size * Sink::width_of(a.dtype)); }
  template <class T> void look(const void *data, size_t bytes) const {
    if constexpr (Truths<T>::value)
      for (size_t i = 0; strict && i < bytes; ++i)
        if (static_cast<const unsigned char *>(data)[i] > 1)
          throw Misfit("a bool is " + std::to_string(static_cast<const unsigned char *>(data)[i]) +
                       ", which isn't a truth value");
  }
};

template <class T> struct CanBeSent : std::false_type {};
template <class T, class = void> struct Flat {
  static_assert(CanBeSent<T>::value,
                "an input or an answer has a type that can't be sent: it may be a number, a std::string, vector, array,"
                " tuple or pair, or a struct of these");
  static void put(const T &, Sink &) {}
  static void get(T &, Source &) {}
};
// Types whose `get` leaves nothing of what was there before: an object of the call before will do. A Flat of a
// problem's own doesn't say so, and is always given a new one.
template <class T, class = void> struct Keeps : std::false_type {};
template <class T> struct Keeps<T, std::enable_if_t<Flat<T>::keeps>> : std::true_type {};

template <class T> struct Flat<T, std::enable_if_t<Plain<T>::value>> {
  static constexpr bool keeps = true;
  static void put(const T &v, Sink &to) { to.put(code<T>(), &v, sizeof(T)); }
  static void get(T &v, Source &from) {
    const kb_array &a = from.next();
    if (from.bytes(a) != sizeof(T)) throw Misfit("a single value was expected");
    from.look<T>(a.data, sizeof(T));
    std::memcpy(&v, a.data, sizeof(T));
  }
};
template <class T> void put_all(const T *v, size_t n, Sink &to) {
  if constexpr (Plain<T>::value) to.put(code<T>(), v, n * sizeof(T));
  else for (size_t i = 0; i < n; ++i) Flat<T>::put(v[i], to);
}
template <class T, class A> struct Flat<std::vector<T, A>> {
  static constexpr bool keeps = Keeps<T>::value;
  static void put(const std::vector<T, A> &v, Sink &to) {
    if constexpr (std::is_same<T, bool>::value) {
      if (!to.leaves) {
        unsigned char *bytes = static_cast<unsigned char *>(to.place(v.size()));
        for (size_t i = 0; i < v.size(); ++i) bytes[i] = v[i];
        return;
      }
      std::vector<unsigned char> wide(v.begin(), v.end());
      to.put('B', wide.data(), wide.size());
    } else {
      if constexpr (!Plain<T>::value) Flat<int64_t>::put((int64_t)v.size(), to);
      put_all(v.data(), v.size(), to);
    }
  }
  static void get(std::vector<T, A> &v, Source &from) {
    if constexpr (std::is_same<T, bool>::value) {
      const kb_array &a = from.next();
      const unsigned char *p = static_cast<const unsigned char *>(a.data);
      from.look<T>(p, (size_t)a.size);
      v.assign(p, p + a.size);
    } else if constexpr (Plain<T>::value) {
      const kb_array &a = from.next();
      const size_t size = from.bytes(a) / sizeof(T);
      from.look<T>(a.data, size * sizeof(T));
      if constexpr (std::is_trivially_copyable<T>::value && std::is_copy_assignable<T>::value)
        if (reinterpret_cast<uintptr_t>(a.data) % alignof(T) == 0) {
          const T *at = static_cast<const T *>(a.data);
          v.assign(at, at + size);  // new memory is written once, not cleared before
          return;
        }
      v.resize(size);
      if (!v.empty()) std::memcpy(static_cast<void *>(v.data()), a.data, size * sizeof(T));
    } else {
      int64_t n = 0;
      Flat<int64_t>::get(n, from);
      if (n < 0 || n > from.left) throw Misfit("a count that can't be");
      v.resize((size_t)n);
      for (auto &inner : v) Flat<T>::get(inner, from);
    }
  }
};
template <class T, size_t N> struct Flat<std::array<T, N>, std::enable_if_t<!Plain<std::array<T, N>>::value>> {
  static constexpr bool keeps = Keeps<T>::value;
  static void put(const std::array<T, N> &v, Sink &to) { put_all(v.data(), N, to); }
  static void get(std::array<T, N> &v, Source &from) {
    if constexpr (Plain<T>::value) {
      const kb_array &a = from.next();
      if (from.bytes(a) != N * sizeof(T)) throw Misfit("an array of another length was expected");
      from.look<T>(a.data, N * sizeof(T));
      std::memcpy(v.data(), a.data, N * sizeof(T));
    } else for (auto &inner : v) Flat<T>::get(inner, from);
  }
};
template <> struct Flat<std::string> {
  static constexpr bool keeps = true;
  static void put(const std::string &v, Sink &to) { to.put('B', v.data(), v.size()); }
  static void get(std::string &v, Source &from) {
    const kb_array &a = from.next();
    v.assign(static_cast<const char *>(a.data), (size_t)a.size);
  }
};
template <class... T> struct Flat<std::tuple<T...>> {
  static constexpr bool keeps = (Keeps<T>::value && ...);
  static void put(const std::tuple<T...> &v, Sink &to) {
    std::apply([&](const auto &...x) { (Flat<std::decay_t<decltype(x)>>::put(x, to), ...); }, v);
  }
  static void get(std::tuple<T...> &v, Source &from) {
    std::apply([&](auto &...x) { (Flat<std::decay_t<decltype(x)>>::get(x, from), ...); }, v);
  }
};
template <class A, class B> struct Flat<std::pair<A, B>> {
  static constexpr bool keeps = Keeps<A>::value && Keeps<B>::value;
  static void put(const std::pair<A, B> &v, Sink &to) { Flat<A>::put(v.first, to); Flat<B>::put(v.second, to); }
  static void get(std::pair<A, B> &v, Source &from) { Flat<A>::get(v.first, from); Flat<B>::get(v.second, from); }
};

template <class T> struct Flat<T, std::enable_if_t<Tied<T>::value && !Plain<T>::value>> {
  static constexpr bool keeps = std::is_default_constructible<T>::value && std::is_move_assignable<T>::value;
  static void put(const T &v, Sink &to) {
    std::apply([&](auto &...x) { (Flat<std::decay_t<decltype(x)>>::put(x, to), ...); }, const_cast<T &>(v).kb_tied());
  }
  static void get(T &v, Source &from) {
    if constexpr (keeps)
      if (from.again) {  // what isn't among its fields is as in a new one
        T fresh{};
        auto to = fresh.kb_tied(), old = v.kb_tied();
        kept(to, old, std::make_index_sequence<std::tuple_size<decltype(to)>::value>());
        v = std::move(fresh);
      }
    std::apply([&](auto &...x) { (Flat<std::decay_t<decltype(x)>>::get(x, from), ...); }, v.kb_tied());
  }
  template <class F, size_t... N> static void kept(F &to, F &old, std::index_sequence<N...>) {
    (kept(std::get<N>(to), std::get<N>(old)), ...);
  }
  template <class F> static void kept(F &to, F &old) {
    if constexpr (!Plain<F>::value && Keeps<F>::value && std::is_move_assignable<F>::value) to = std::move(old);
  }
};

template <class T> T taken(const kb_array *in, int inputs, bool strict = false) {
  T value{};
  Source from{in, inputs, strict};
  Flat<T>::get(value, from);
  if (from.left) throw Misfit("there are more arrays than the type takes");
  return value;
}
// A submission's function is called with a call's arrays, if it takes them, or else with the data that they are.
// Whoever takes the data by value gets it moved there, since a copy would be one more.
template <class T> struct ByValue { template <class R> void operator()(R (*)(T)) const; };
template <class T, class Any, class Named> constexpr bool moves() {
  return std::is_invocable<Named, ByValue<T>>::value ||
         (std::is_invocable<Any, T>::value && !std::is_invocable<Any, T &>::value);
}
template <class F> constexpr bool takes_arrays() {
  return std::is_invocable<F, const kb_array *, int, kb_array *, int>::value;
}
template <class T> T &place_of() {
  static T *at = new T{};  // one for all calls, for as long as the process lives: vectors keep their memory
  return *at;
}
template <class T, class Body> auto with_data(const kb_array *in, int inputs, Body &&body) {
  if constexpr (Keeps<T>::value) {
    T &data = place_of<T>();
    Source from{in, inputs, false, true};
    Flat<T>::get(data, from);
    if (from.left) throw Misfit("there are more arrays than the type takes");
    return body(data);
  } else {
    T data = taken<T>(in, inputs);
    return body(data);
  }
}
template <class T, class O, class Named, class Any, class One>
int called(Named, Any any, One one, const kb_array *in, int inputs, kb_array *out, int outputs) {
  if constexpr (takes_arrays<Any>()) return any(in, inputs, out, outputs) ? 2 : 0;
  else return with_data<T>(in, inputs, [&](T &data) {
    Sink to;
    to.at = out;
    to.left = outputs;
    if constexpr (moves<T, Any, Named>()) {
      const O &found = any(std::move(data));
      Flat<O>::put(found, to);
    } else {
      const O &found = one(data);
      Flat<O>::put(found, to);
    }
    if (to.left) throw Misfit("there are fewer arrays in the output than expected");
    return 0;
  });
}
template <class T, class Named, class Any, class One>
auto warmed(Named, Any any, One one, const kb_array *in, int inputs, kb_array *out, int outputs) {
  if constexpr (takes_arrays<Any>()) return any(in, inputs, out, outputs);
  else {
    const auto body = [&](T &data) {
      if constexpr (moves<T, Any, Named>()) return any(std::move(data));
      else return one(data);
    };
    using Told = decltype(with_data<T>(in, inputs, body));
    try { return with_data<T>(in, inputs, body); }
    catch (const Misfit &) { return Told(); }  // sizes are contents, too, and mean nothing before the call
  }
}
template <class F> int guarded(F &&body, char *said, int cap) {
  try { return body(); }
  catch (const Misfit &e) { std::snprintf(said, (size_t)cap, "%s", e.what()); return 1; }
  catch (const std::bad_alloc &) { std::snprintf(said, (size_t)cap, "std::bad_alloc"); return 3; }
  catch (const std::exception &e) { std::snprintf(said, (size_t)cap, "exception: %s", e.what()); return 2; }
  catch (...) { std::snprintf(said, (size_t)cap, "an exception of another type"); return 2; }
}

// What a submission defines beside its kernel: a number other than 0 is an error, and whatever else it returns is lost.
template <class F> int asked(F &&call, char *said, int cap) {
  using Told = decltype(call());
  return guarded([&]() -> int {
    if constexpr (std::is_integral<Told>::value || std::is_enum<Told>::value)
      return static_cast<long long>(call()) ? 2 : 0;
    else { (void)call(); return 0; }
  }, said, cap);
}
}  // namespace kb

// A struct of plain numbers without pointers, copied as its bytes; and, inside a struct, the fields that make it up.
#define KB_PLAIN(type) template <> struct kb::Plain<type> : std::true_type {}
#define KB_FIELDS(...) auto kb_tied() { return std::tie(__VA_ARGS__); }
#if defined(__CUDACC__) || defined(__HIPCC__)
KB_PLAIN(float2); KB_PLAIN(float3); KB_PLAIN(float4); KB_PLAIN(double2);
KB_PLAIN(int2); KB_PLAIN(int3); KB_PLAIN(int4); KB_PLAIN(uint2); KB_PLAIN(uint4);
#endif
"""

# Many references' checks report to this; problems whose own headers define it keep theirs.
REPORTER = r"""
#include <iostream>
class TestReporter {
 public:
  void pass() { said_ = true; good_ = true; }
  std::stringstream &fail() { said_ = true; good_ = false; return text_; }
  template <class A, class B> bool check_equal(const std::string &name, const A &a, const B &b) {
    if (a == b) return true;
    fail() << name << " (" << a << " and " << b << ")";
    return false;
  }
  bool has_passed() const { return said_ && good_; }
  std::string message() const { return text_.str(); }
 private:
  bool said_ = false, good_ = false;
  std::stringstream text_;
};
"""


def call_unit(entry_file: str, adapter: Mapping[str, Any], call: str) -> str:
    """One translation unit: the submission, and around it `kb_call` and, where it has one, its `kb_warm_up`."""
    front = f'#include "kbslurm.h"\n{MARSHAL}\n{_SERVE}\n'
    own = f'#include "{entry_file}"\n'
    given = "in, inputs, out, outputs"
    if not adapter:
        body, warm = f"return {call}({given}) ? 2 : 0;", f"return kb_warm_up({given});"
        return front + own + _CALL.format(body=body) + _WARM.format(body=warm)
    headers = "".join(f'#include "{name}"\n' for name in adapter["shared"])
    if adapter["file"] in adapter["shared"] and adapter["check"] == "reporter" and not adapter["own_reporter"]:
        headers = f"{REPORTER}\n{headers}"  # its check is compiled along
    body = f"return kb::called<input_t, output_t>({_either(call)}, {given});"
    warm = f"return kb::warmed<input_t>({_either('kb_warm_up')}, {given});"
    return front + headers + own + _CALL.format(body=body) + _WARM.format(body=warm)


def _either(name: str) -> str:
    """A function of the submission's by its name, called with whatever it takes, and called with the data: there it is
    an error if it takes neither."""
    return (
        f"[](auto known) -> decltype(known({name})) {{}}, "
        f"[](auto &&...x) -> decltype({name}(std::forward<decltype(x)>(x)...)) "
        f"{{ return {name}(std::forward<decltype(x)>(x)...); }}, "
        f"[](auto &data) -> decltype(auto) {{ return {name}(data); }}"
    )


def expected_of(adapter: Mapping[str, Any], call: str) -> str:
    """How a submission defines what `call_unit` calls."""
    arrays = f"KB_ENTRY int {call}(const kb_array *in, int inputs, kb_array *out, int outputs)"
    return f"output_t {call}(input_t data) or {arrays}" if adapter else arrays


# `kb_warm` around a `kb_warm_up` that is called as a kernel is; with `KB_WARM_UP`, else there is none.
_WARM = """
#ifdef KB_WARM_UP
extern "C" int kb_warm(const kb_array *in, int inputs, kb_array *out, int outputs, char *kb_said, int kb_cap) {{
  (void)in; (void)inputs; (void)out; (void)outputs;
  return kb::asked([&] {{ {body} }}, kb_said, kb_cap);
}}
extern "C" int kb_warms() {{ return 1; }}
#else
extern "C" int kb_warm(const kb_array *, int, kb_array *, int, char *, int) {{ return 0; }}
extern "C" int kb_warms() {{ return 0; }}
#endif
"""
# Waiting for a call and answering it is everybody's, so that nobody gains by doing it faster than the runner. In front
# of the submission, whose macros are its own affair.
_SAME = ("KIND", "SIZE", "LAYOUT", "OUT_SIZE", "AHEAD")  # words that say what a call is
_SERVE = f"""
#include <atomic>
#include <sched.h>
extern "C" int kb_call(const kb_array *, int, kb_array *, int, char *, int);
extern "C" int kb_warm(const kb_array *, int, kb_array *, int, char *, int);
// One call after another, as long as they are alike: what interprets the runner's loop would leave the caches full of
// itself in between. A child that the submission forked (mark) answers nothing for its parent.
extern "C" int kb_serve(volatile unsigned long long *words, unsigned long long last, const kb_array *in, int inputs,
                        kb_array *out, int outputs, char *said, int cap, unsigned long long *token,
                        const volatile char *mark) {{
  static const int at[] = {{{", ".join(str(getattr(runner_link, name) // 8) for name in _SAME)}}};
  unsigned long long told[{len(_SAME)}], pinged = words[{runner_link.PING // 8}];
  for (int n = 0; n < {len(_SAME)}; ++n) told[n] = words[at[n]];
  bool ready = true;
  *token = last;
  words[{runner_link.AWAKE // 8}] = pinged;  // the clock starts when this is seen
  for (int spins = 0;; spins = (spins + 1) & 4095) {{
    if (words[{runner_link.AGAIN // 8}] != last) {{
      if (!ready) return {BACK};
      unsigned long long again;
      do {{  // all of its bytes are there once it stands there twice
        again = words[{runner_link.AGAIN // 8}];
        std::atomic_thread_fence(std::memory_order_seq_cst);
        *token = words[{runner_link.GO // 8}];
      }} while (*token != again);
      last = *token;
      said[0] = 0;
      const int code = kb_call(in, inputs, out, outputs, said, cap);
      if (!*mark) return code > 0 ? code : -1;
      if (code != 0) return code;
      words[{runner_link.STATUS // 8}] = 0;
      std::atomic_thread_fence(std::memory_order_seq_cst);
      words[{runner_link.DONE // 8}] = last;
      ready = false;
    }} else if (words[{runner_link.PING // 8}] != pinged) {{
      std::atomic_thread_fence(std::memory_order_seq_cst);
      for (int n = 0; n < {len(_SAME)}; ++n)
        if (told[n] != words[at[n]]) return {BACK};
      said[0] = 0;
      const int code = kb_warm(in, inputs, out, outputs, said, cap);
      if (!*mark) return code > 0 ? code : -1;
      if (code != 0) return {BACK};  // it is called once more there, and what it says is told
      pinged = words[{runner_link.PING // 8}];
      words[{runner_link.AWAKE // 8}] = pinged;
      ready = true;
    }} else if (spins == 4095) {{
      sched_yield();
    }}
  }}
}}
"""
_CALL = """
extern "C" int kb_call(const kb_array *in, int inputs, kb_array *out, int outputs, char *kb_said, int kb_cap) {{
  return kb::guarded([&]() -> int {{ {body} }}, kb_said, kb_cap);
}}
"""


def reference_unit(adapter: Mapping[str, Any]) -> str:
    """One translation unit: the problem's three functions, and the code that calls them with arrays."""
    headers = [*adapter["headers"], adapter["file"]]
    includes = "".join(f'#include "{name}"\n' for name in headers)
    own = "" if adapter["own_reporter"] else REPORTER
    given = ", ".join(f"kb_given<{kind}>({n}, p)" for n, (kind, _) in enumerate(adapter["generate"]))
    data, out = "kb::taken<input_t>(in, inputs)", "kb::taken<output_t>(found, founds, true)"
    worked = "kb_device_worked(); return kb_verdict(told, said, cap);"
    match adapter["check"]:
        case "reporter":
            checked = (
                f"TestReporter reporter; check_implementation(reporter, {data}, {out}); "
                "kb_device_worked(); return kb_passed(reporter, said, cap);"
            )
        case "output_reference":  # here the output comes first, as the judge passes it
            checked = f"auto told = check_implementation(kb::taken<output_t>(in, inputs, true), {out}); {worked}"
        case _:
            checked = f"auto told = check_implementation({data}, {out}); {worked}"
    return (
        f'#include "kbslurm.h"\n{MARSHAL}\n{own}\n{includes}\n{_REFERENCE_FRONT}'
        'extern "C" void *kb_generate(const kb_param *p, char *said, int cap) {\n'
        f"  return kb_kept([&] {{ return generate_input({given}); }}, said, cap);\n}}\n"
        'extern "C" void *kb_answer(const kb_array *in, int inputs, char *said, int cap) {\n'
        f"  return kb_kept([&] {{ return {adapter['answer']}({data}); }}, said, cap);\n}}\n"
        'extern "C" int kb_check(const kb_array *in, int inputs, const kb_array *found, int founds, char *said,\n'
        f"                        int cap) {{\n  return kb::guarded([&]() -> int {{ {checked} }}, said, cap);\n}}\n"
    )


_REFERENCE_FRONT = r"""
#if defined(__HIPCC__) && !defined(__CUDACC__)
#include <hip/hip_runtime.h>
#endif
extern "C" { typedef struct kb_param { double real; long long whole; const char *text; } kb_param; }
template <class T> T kb_given(int n, const kb_param *p) {
  if constexpr (std::is_floating_point<T>::value) return (T)p[n].real;
  else if constexpr (std::is_convertible<const char *, T>::value && !std::is_arithmetic<T>::value) return T(p[n].text);
  else return (T)p[n].whole;
}
// A call of CUDA's or HIP's that failed leaves the answer as it was: whatever then equals it would count as right.
inline void kb_device_worked() {
#if defined(__HIPCC__) && !defined(__CUDACC__)
  hipError_t failed = hipGetLastError();
  if (failed == hipSuccess) {
    failed = hipDeviceSynchronize();
    if (failed == hipErrorNoDevice || failed == hipErrorInsufficientDriver) failed = hipSuccess;  // nothing used it
  }
  if (failed == hipErrorNoDevice || failed == hipErrorInsufficientDriver)
    throw std::runtime_error("it needs a GPU, and there is none here");
  if (failed != hipSuccess) throw std::runtime_error(std::string("HIP: ") + hipGetErrorString(failed));
#elif defined(__CUDACC__)
  cudaError_t failed = cudaGetLastError();
  if (failed == cudaSuccess) {
    failed = cudaDeviceSynchronize();
    if (failed == cudaErrorNoDevice || failed == cudaErrorInsufficientDriver) failed = cudaSuccess;  // nothing used it
  }
  if (failed == cudaErrorNoDevice || failed == cudaErrorInsufficientDriver)
    throw std::runtime_error("it needs a GPU, and there is none here");
  if (failed != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(failed));
#endif
}
template <class F> void *kb_kept(F &&body, char *said, int cap) {
  auto *kept = new std::vector<kb::Leaf>();
  const int bad = kb::guarded([&]() -> int {
    auto value = body();
    kb_device_worked();
    kb::Sink to;
    to.leaves = kept;
    kb::Flat<decltype(value)>::put(value, to);
    return 0;
  }, said, cap);
  if (!bad) return kept;
  delete kept;
  return nullptr;
}
extern "C" int kb_leaves(void *kept) { return (int)static_cast<std::vector<kb::Leaf> *>(kept)->size(); }
extern "C" const char *kb_leaf(void *kept, int n, char *code, long long *size) {
  const kb::Leaf &leaf = (*static_cast<std::vector<kb::Leaf> *>(kept))[(size_t)n];
  *code = leaf.code;
  *size = (long long)leaf.bytes.size();
  return leaf.bytes.data();
}
extern "C" void kb_free(void *kept) { delete static_cast<std::vector<kb::Leaf> *>(kept); }

inline int kb_told(bool good, const std::string &text, char *said, int cap) {
  std::snprintf(said, (size_t)cap, "%s", text.c_str());
  return good ? 10 : 11;
}
inline int kb_verdict(bool good, char *said, int cap) { return kb_told(good, "", said, cap); }
inline int kb_verdict(const std::string &text, char *said, int cap) {
  return kb_told(text.empty(), text, said, cap);
}
inline int kb_verdict(const std::pair<bool, std::string> &found, char *said, int cap) {
  return kb_told(found.first, found.second, said, cap);
}
template <class R> auto kb_passed(R &r, char *said, int cap) -> decltype(r.has_passed(), r.message(), 0) {
  return kb_told(r.has_passed(), r.message(), said, cap);
}
"""
