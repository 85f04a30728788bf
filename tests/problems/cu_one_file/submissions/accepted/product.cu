#include "reference.cu"

output_t custom_kernel(input_t data) {
  for (size_t i = 0; i < data[0].size(); ++i) data[0][i] *= data[1][i];
  return data[0];
}
