#pragma once
#include <cstdint>
#include <tuple>
#include <vector>

struct Options {
  int64_t first;
  double scale;
  KB_FIELDS(first, scale)
};

using input_t = std::tuple<std::vector<std::vector<float>>, Options>;
using output_t = std::vector<std::vector<float>>;
