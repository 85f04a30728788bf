// One file: types, inputs, reference and check. Its cases stand in comments, one line each.
// TESTS = [{"size": 5, "seed": 1}, {"size": 64, "seed": 2}]
// BENCHMARKS = [{"size": 2000, "seed": 3}]
// BASELINE = "reference"
#include <array>
#include <cmath>
#include <random>
#include <vector>

using input_t = std::array<std::vector<float>, 2>;
using output_t = std::vector<float>;

input_t generate_input(int size, int seed) {
  std::mt19937 draw(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  input_t found;
  for (auto &side : found) {
    side.resize(static_cast<size_t>(size));
    for (auto &x : side) x = value(draw);
  }
  return found;
}

output_t reference(input_t data) {
  output_t found(data[0].size());
  for (size_t i = 0; i < found.size(); ++i) found[i] = data[0][i] * data[1][i];
  return found;
}

bool check_implementation(output_t output, output_t expected, float epsilon = 1e-6f) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::fabs(output[i] - expected[i]) <= epsilon)) return false;
  return output.size() == expected.size();
}
