// A reference in C++ with a reporter, a nested container and a struct.
#pragma once
#include <cmath>
#include <random>
#include "task.h"

static input_t generate_input(int seed, int rows, int cols) {
  std::mt19937 draw(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> value(0.0f, 1.0f);
  std::vector<std::vector<float>> found(static_cast<size_t>(rows), std::vector<float>(static_cast<size_t>(cols)));
  for (auto &row : found)
    for (auto &cell : row) cell = value(draw);
  return {found, Options{seed % 5, 1.5}};
}

static output_t ref_kernel(input_t data) {
  auto &[rows, options] = data;
  for (auto &row : rows) {
    double sum = static_cast<double>(options.first);
    for (auto &cell : row) cell = static_cast<float>(sum += options.scale * cell);
  }
  return rows;
}

static void check_implementation(TestReporter &reporter, input_t data, output_t output, float rtol = 1e-5f) {
  output_t want = ref_kernel(data);
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < want[i].size(); ++j)
      if (!(std::fabs(want[i][j] - output[i][j]) <= rtol * std::fabs(want[i][j]) + 1e-6f)) {
        reporter.fail() << "row " << i << ", column " << j << " is " << output[i][j] << ", not " << want[i][j];
        return;
      }
  reporter.pass();
}
