"""Problems with a reference in C++: how a submission gets the data, and that nothing of a call is left in the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems.loading import load
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, needs

# All kinds of types: structs with a member that isn't part of the data, one with a `Flat` of its own that adds to what
# it finds, rows of other lengths for each seed. What is made of them is sums, and some of it as it came.
KINDS = r"""
// TESTS = [{"size": 5, "seed": 1}, {"size": 0, "seed": 2}, {"size": 30, "seed": 3}, {"size": 2, "seed": 4}]
// BENCHMARKS = [{"size": 20, "seed": 5}]
#include <array>
#include <complex>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

struct Row {
  std::vector<int> cells;
  double weight = 1;
  int64_t sum = 0;  // nobody's data
  KB_FIELDS(cells, weight)
};
struct Point { int x, y, z; };
KB_PLAIN(Point);
struct Bag { std::vector<int> all; };
template <> struct kb::Flat<Bag> {
  static void put(const Bag &bag, Sink &to) { Flat<std::vector<int>>::put(bag.all, to); }
  static void get(Bag &bag, Source &from) {
    const kb_array &a = from.next();
    for (long long i = 0; i < a.size; ++i) bag.all.push_back(static_cast<const int *>(a.data)[i]);
  }
};
struct Input {
  std::vector<Row> rows;
  std::vector<std::vector<float>> nested;
  std::vector<bool> marks;
  std::array<std::vector<double>, 2> pair;
  std::tuple<std::string, Point, std::complex<float>> more;
  std::vector<Point> points;
  BAG
  int64_t used = 0;  // nobody's data either
  KB_FIELDS(rows, nested, marks, pair, more, points, LAST)
};
using input_t = Input;
using output_t = std::tuple<std::vector<int64_t>, std::vector<bool>, std::vector<float>>;

input_t generate_input(int size, int seed) {
  input_t d;
  unsigned state = 77u * seed + 5;
  auto drawn = [&](unsigned below) { return (int)((state = state * 1664525u + 1013904223u) >> 8) % (int)below; };
  for (int i = 0; i < size; ++i) {
    Row row;
    for (int j = (i * 7) % 5; j > 0; --j) row.cells.push_back(drawn(100));
    row.weight = drawn(10);
    d.rows.push_back(row);
    d.nested.emplace_back((size_t)(i % 3), (float)drawn(9));
    d.marks.push_back(drawn(2) == 1);
    d.pair[0].push_back(drawn(5));
    d.points.push_back({drawn(3), drawn(3), drawn(3)});
  }
  d.pair[1].push_back(drawn(7));
  d.more = {std::string((size_t)size / 2, (char)('a' + drawn(20))), Point{1, drawn(50), 3}, {(float)drawn(8), 1.0f}};
  ADD
  return d;
}
// In place, as submissions do it: what was there before would count.
inline output_t answer(input_t &d) {
  std::vector<int64_t> sums;
  std::vector<float> flat;
  for (auto &row : d.rows) {
    for (int x : row.cells) row.sum += x;
    sums.push_back(row.sum * (int64_t)row.weight);
  }
  for (auto &inner : d.nested) for (float x : inner) flat.push_back(x);
  int64_t all = d.used += 3;
  for (auto &side : d.pair) for (double x : side) all = all * 3 + (int64_t)x;
  for (char c : std::get<0>(d.more)) all = all * 7 % 1000003 + c;
  all += std::get<1>(d.more).y + (int64_t)std::get<2>(d.more).real();
  for (const Point &p : d.points) all = (all * 5 + p.x * 9 + p.y * 3 + p.z) % 1000003;
  TAKE
  sums.push_back(all);
  return {sums, d.marks, flat};
}
output_t reference(input_t d) { return answer(d); }
bool check_implementation(output_t output, output_t expected) { return output == expected; }
"""
BAGS = {
    "own_flat": {"BAG": "std::vector<Bag> bags;", "LAST": "bags", "ADD": "d.bags = {Bag{{1, drawn(9)}}, Bag{{size}}};",
                 "TAKE": "for (auto &bag : d.bags) for (int x : bag.all) all = all * 3 + x;"},
    "kept": {"BAG": "int last;", "LAST": "last", "ADD": "d.last = drawn(9);", "TAKE": "all += d.last;"},
}  # fmt: skip
SPOILT = """
  d.rows.resize(3); d.nested.assign(50, {1.0f}); d.marks.flip(); d.pair[1].clear();
  std::get<0>(d.more) += "more"; d.points = {};
"""
FORMS = {
    "by value, moved on": "output_t custom_kernel(input_t d) { input_t mine = std::move(d); return answer(mine); }",
    "by reference, spoilt": f"output_t custom_kernel(input_t &d) {{ output_t out = answer(d); {SPOILT} return out; }}",
    "moved out of": "output_t custom_kernel(input_t &d) { input_t mine = std::move(d); return answer(mine); }",
}
MORE_FORMS = {
    "what is moved": "output_t custom_kernel(input_t &&d) { input_t mine(std::move(d)); return reference(mine); }",
    "an answer that is kept": (
        "const output_t &custom_kernel(const input_t &d) { static output_t out; out = reference(d); return out; }"
    ),
    "with other parameters": "output_t custom_kernel(input_t d, int more = 0) { return reference(d); }",
    "whatever it is": "template <class T> auto custom_kernel(T &&d) { return reference(d); }",
    "an object": "static auto custom_kernel = [](auto &d) { return reference(d); };",
    "overloaded": "int custom_kernel(int) { return 0; }\noutput_t custom_kernel(input_t d) { return reference(d); }",
}
SUMS = r"""
// TESTS = [{"size": 9, "seed": 1}, {"size": 0, "seed": 2}]
// BENCHMARKS = [{"size": 4000, "seed": 3}]
#include <vector>
using input_t = std::vector<std::vector<float>>;
using output_t = std::vector<double>;
input_t generate_input(int size, int seed) { return {input_t::value_type(size, seed % 7), {1, 2, 3}}; }
output_t reference(input_t data) {
  output_t found(2);
  for (int side = 0; side < 2; ++side) for (float x : data[side]) found[side] += x;
  return found;
}
bool check_implementation(output_t output, output_t expected) { return output == expected; }
"""
ARRAYS = r"""
#include "reference.cu"
#include <cstdio>
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  if (inputs != 3 || in[0].dtype != KB_I64 || *(const long long *)in[0].data != 2) return 1;
  if (in[1].dtype != KB_F32 || in[1].ndim != 1 || outputs != 1 || out[0].dtype != KB_F64 || out[0].size != 2) return 2;
  double *found = (double *)out[0].data;
  for (int side = 0; side < 2; ++side) {
    found[side] = 0;
    for (long long i = 0; i < in[1 + side].size; ++i) found[side] += ((const float *)in[1 + side].data)[i];
  }
  return 0;
}
"""


def judged(folder: Path, reference: str, source: str, mode: wire.Mode = "benchmark") -> wire.Report:
    """A submission to a problem in one file, which it includes."""
    folder.mkdir(exist_ok=True)
    (folder / "reference.cu").write_text(reference)
    problem = load(folder / "reference.cu", name="typed")
    source = source if "reference.cu" in source else f'#include "reference.cu"\n{source}\n'
    told = manifest_for(
        problem, token="t", attempt=1, nonce="n", mode=mode, gpu="cpu", secret_seed=ground.SECRET, source=source
    )
    return ground.judged(folder / "run", told).told


def kinds_of(name: str) -> str:
    """The problem with all kinds of types."""
    text = KINDS
    for word, own in BAGS[name].items():
        text = text.replace(f"  {word}\n", f"  {own}\n").replace(f", {word})", f", {own})")
    return text


def said(report: wire.Report) -> list[str]:
    """The lines that a submission wrote."""
    return [line for line in report.log.splitlines() if line.startswith("said ")]


@needs(GXX)
@pytest.mark.parametrize("kinds", BAGS)
def test_nothing_of_a_call_is_left_in_the_next_however_the_data_is_taken(tmp_path: Path, kinds: str) -> None:
    reference, told = kinds_of(kinds), {}
    forms = FORMS if kinds == "kept" else dict([*FORMS.items()][:2])
    for number, (form, source) in enumerate(forms.items()):
        report = judged(tmp_path / str(number), reference, source, "benchmark" if number == 0 else "test")
        told[form] = report.verdict if report.verdict == "passed" else f"{report.verdict}: {report.reason}"
    assert told == dict.fromkeys(forms, "passed")


@needs(GXX)
@pytest.mark.parametrize("form", MORE_FORMS)
def test_data_may_be_taken_in_any_way_that_it_can_be_given(tmp_path: Path, form: str) -> None:
    report = judged(tmp_path, SUMS, MORE_FORMS[form], "test")
    assert report.verdict == "passed", report.reason


@needs(GXX)
@pytest.mark.parametrize("how", ["input_t", "input_t &"])
def test_a_call_that_raised_leaves_nothing_to_the_next(tmp_path: Path, how: str) -> None:
    body = "d.used += 5; if (d.rows.empty()) throw 1; d.used -= 5; return answer(d);"
    source = f"output_t custom_kernel({how} d) {{ {body} }}"
    report = judged(tmp_path, kinds_of("kept"), source, "test")
    assert [t.status for t in report.tests] == ["pass", "error", "pass", "pass"]
    assert "an exception of another type" in report.tests[1].message


@needs(GXX)
def test_a_submission_may_take_the_arrays_as_they_are(tmp_path: Path) -> None:
    report = judged(tmp_path / "right", SUMS, ARRAYS, "leaderboard")
    assert report.verdict == "passed", report.reason
    both = ARRAYS + "output_t custom_kernel(input_t data) { return reference(data); }\n"
    assert judged(tmp_path / "both", SUMS, both, "test").verdict == "passed"
    nothing = judged(tmp_path / "nothing", SUMS, ARRAYS.replace("found[side] +=", "(void)"), "test")
    assert nothing.verdict == "wrong"
    refused = judged(tmp_path / "refused", SUMS, ARRAYS.replace("return 0;", "return 7;"), "test")
    assert (refused.verdict, "the submission returned an error" in refused.reason) == ("error", True), refused.reason


WRONG = [
    ("void custom_kernel(input_t data) {}", "'void'"),
    ("int custom_kernel(float *x) { return 0; }", "to 'float*'"),
    ("KB_ENTRY int custom_kernel(const kb_array *in, int inputs) { return 0; }", "to 'const kb_array*'"),
    ("KB_ENTRY void custom_kernel(const kb_array *, int, kb_array *, int) {}", "from 'void' to 'bool'"),
    ("output_t custom_kernal(input_t data) { return {}; }", "'custom_kernel' was not declared in this scope"),
]


@needs(GXX)
@pytest.mark.parametrize(("source", "why"), WRONG)
def test_what_can_be_called_neither_way_is_told_both(tmp_path: Path, source: str, why: str) -> None:
    report = judged(tmp_path, SUMS, source, "test")
    assert report.verdict == "error"
    assert "submission.cu doesn't define what is called: " in report.reason
    assert why in report.reason
    assert report.reason.endswith(
        "expected is output_t custom_kernel(input_t data) or "
        "KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs)"
    )


@needs(GXX)
def test_an_answer_of_another_size_is_told(tmp_path: Path) -> None:
    report = judged(tmp_path, SUMS, "output_t custom_kernel(input_t data) { return {1.0}; }", "test")
    assert report.verdict == "wrong"
    assert "array 1 of the output has 8 bytes; 16 were expected" in report.reason


WARM = {
    "arrays": "KB_ENTRY int kb_warm_up(const kb_array *, int, kb_array *, int) { ++warmed; return 0; }",
    "data": "void kb_warm_up(const input_t &) { ++warmed; }",
    "data by value": "void kb_warm_up(input_t data) { ++warmed; data.clear(); }",
    "data to spoil": "void kb_warm_up(input_t &data) { ++warmed; data.assign(5, {}); }",
}  # fmt: skip
WHOLE = SUMS.replace("std::vector<std::vector<float>>", "std::array<std::vector<float>, 2>").replace(
    "#include <vector>", "#include <array>\n#include <vector>"
)


@needs(GXX)
@pytest.mark.parametrize("warm", WARM)
@pytest.mark.parametrize("form", ["arrays", "data"])
def test_a_warm_up_takes_either_whatever_its_kernel_takes(tmp_path: Path, form: str, warm: str) -> None:
    counts = "static int warmed = 0;\n" + WARM[warm].replace("data.clear()", "data[0].clear()").replace(
        "data.assign(5, {})", "data = {}"
    )
    told = 'std::printf("said %d\\n", warmed); std::fflush(stdout);'
    kernel = (
        f"KB_ENTRY int custom_kernel(const kb_array *in, int, kb_array *out, int) {{ {told}\n"
        "for (int side = 0; side < 2; ++side) { double sum = 0;\n"
        "  for (long long i = 0; i < in[side].size; ++i) sum += ((const float *)in[side].data)[i];\n"
        "  ((double *)out[0].data)[side] = sum; }\nreturn 0; }"
        if form == "arrays"
        else f"output_t custom_kernel(const input_t &data) {{ {told} return reference(data); }}"
    )
    report = judged(tmp_path, WHOLE, f'#include "reference.cu"\n#include <cstdio>\n{counts}\n{kernel}\n')
    assert report.verdict == "passed", report.reason
    assert int(said(report)[-1].split()[1]) > 1


@needs(GXX)
def test_sizes_that_mean_nothing_before_a_call_are_no_error_of_a_warm_up(tmp_path: Path) -> None:
    source = (
        "void kb_warm_up(input_t &data) { data.clear(); }\noutput_t custom_kernel(input_t d) { return reference(d); }"
    )
    report = judged(tmp_path, SUMS, source)
    assert report.verdict == "passed", report.reason


# How often memory of the input's size is taken between two calls.
COUNTED = r"""
#include "reference.cu"
#include <cstdio>
#include <cstdlib>
#include <new>
static long long large = 0;
void *operator new(std::size_t size) {
  large += size >= 16000;
  if (void *at = std::malloc(size)) return at;
  throw std::bad_alloc();
}
void operator delete(void *at) noexcept { std::free(at); }
void operator delete(void *at, std::size_t) noexcept { std::free(at); }
output_t custom_kernel(HOW data) {
  std::printf("said %lld\n", large);
  std::fflush(stdout);
  large = 0;
  output_t found(2);
  for (int side = 0; side < 2; ++side) for (float x : data[side]) found[side] += x;
  return found;
}
"""


@needs(GXX)
@pytest.mark.parametrize(("how", "taken"), [("const input_t &", 0), ("input_t &", 0), ("input_t", 1)])
def test_a_call_takes_no_more_memory_than_its_kernel_asks_for(tmp_path: Path, how: str, taken: int) -> None:
    report = judged(tmp_path, SUMS, COUNTED.replace("HOW", how))
    assert report.verdict == "passed", report.reason
    assert said(report)[-1] == f"said {taken}"


@needs(GXX)
@pytest.mark.parametrize("where", ["input_t", "output_t"])
def test_a_type_that_cant_be_sent_is_told_with_those_that_can(tmp_path: Path, where: str) -> None:
    was = {"input_t": "std::vector<std::vector<float>>;", "output_t": "std::vector<double>;"}[where]
    text = SUMS.replace(f"using {where} = {was}", f"struct Own {{ {was.rstrip(';')} own; int *other = nullptr; }};\n"
                        f"using {where} = Own;")  # fmt: skip
    text = text.split("input_t generate_input")[0] + (
        "input_t generate_input(int size, int seed) { return {}; }\noutput_t reference(input_t) { return {}; }\n"
        "bool check_implementation(output_t, output_t) { return true; }\n"
    )
    report = judged(tmp_path, text, "output_t custom_kernel(input_t d) { return reference(d); }")
    assert (report.verdict, "type that can't be sent" in report.reason) == ("infrastructure", True), report.reason
