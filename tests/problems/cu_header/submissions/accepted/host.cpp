#include "task.h"
#ifndef BLOCK
#error "the problem defines BLOCK"
#endif

output_t custom_kernel(input_t data) {
  auto &rows = std::get<0>(data);
  const Options options = std::get<1>(data);
  for (auto &row : rows) {
    double sum = static_cast<double>(options.first);
    for (auto &cell : row) cell = static_cast<float>(sum += options.scale * cell);
  }
  return std::move(rows);
}
