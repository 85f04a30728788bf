#include "task.h"

output_t custom_kernel(input_t data) {
  auto rows = std::get<0>(data);
  rows.pop_back();
  return rows;
}
