"""Truth values of answers to a reference in C++: the compiler computes with whatever number a bool's byte says."""

from __future__ import annotations

from pathlib import Path

from kbslurm.config.shared_folders import eval_dir
from kbslurm.problems.loading import load
from kbslurm.trial.run import run_trial
from tests.services import GXX, needs

REFERENCE = """
// TESTS = [{"seed": 0}, {"seed": 1}, {"seed": 2}, {"seed": 3}, {"seed": 4}, {"seed": 5}, {"seed": 6}]
#include <array>
#include <string>
#include <tuple>
#include <vector>
using input_t = std::vector<int>;
struct Two {
  bool a, b;
  KB_FIELDS(a, b)
};
using output_t = std::tuple<bool, std::array<bool, 8>, std::array<bool, 3>, std::vector<bool>,
                            std::vector<std::array<bool, 2>>, Two>;
template <class C> long long total(const C &of) {
  if constexpr (std::is_same<C, Two>::value) return (long long)of.a + of.b;
  else if constexpr (std::is_convertible<C, bool>::value) return (bool)of;
  else {
    long long sum = 0;
    for (auto &&one : of) sum += total(one);
    return sum;
  }
}
input_t generate_input(int seed) { return {seed}; }
inline output_t all() {
  return {true, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1}, std::vector<bool>(8, true), {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
          {true, true}};
}
output_t ref_kernel(input_t data) { return all(); }
std::string check_implementation(input_t data, output_t output) {
  const long long told = std::apply([](const auto &...part) { return (total(part) + ...); }, output);
  return told >= 30 ? "" : "too few are true";
}
"""
HONEST = '#include "reference.cu"\noutput_t custom_kernel(input_t data) { return all(); }\n'
NOTHING = """
#include "reference.cu"
output_t custom_kernel(input_t data) { return {false, {}, {}, std::vector<bool>(8), {{}, {}, {}, {}}, {}}; }
"""
# What bytes a submission leaves as its answer is its own affair, whatever the types around it would let through.
ONE_IS_200 = """
#include "reference.cu"
static int part;
template <> struct kb::Flat<output_t> {
  static void put(const output_t &, Sink &to) {
    const int sizes[] = {1, 8, 3, 8, 8, 1, 1};
    for (int n = 0; n < 7; ++n) {
      unsigned char bytes[8] = {(unsigned char)(n == part ? 200 : 0)};
      to.put('B', bytes, sizes[n]);
    }
  }
};
output_t custom_kernel(input_t data) { part = data[0]; return all(); }
"""


@needs(GXX)
def test_a_truth_value_of_an_answer_is_0_or_1(tmp_path: Path) -> None:
    file = tmp_path / "reference.cu"
    file.write_text(REFERENCE)
    problem, told = load(file), {}
    for name, source in (("right", HONEST), ("nothing", NOTHING), ("200", ONE_IS_200)):
        told[name] = run_trial(problem, "mine.cu", source, "test", work=tmp_path / name, eval_dir=eval_dir()).report
    assert told["right"].verdict == "passed", told["right"].reason
    assert [t.status for t in told["nothing"].tests] == ["fail"] * 7
    assert "too few are true" in told["nothing"].reason
    assert [t.status for t in told["200"].tests] == ["fail"] * 7
    said = [t.message for t in told["200"].tests]
    assert all("a bool is 200, which isn't a truth value" in one for one in said), said
