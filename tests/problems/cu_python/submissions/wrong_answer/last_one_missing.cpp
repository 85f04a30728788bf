#include "kbslurm.h"

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const float *x = (const float *)in[0].data, *y = (const float *)in[1].data;
  const float a = (float)*(const double *)in[2].data;
  for (long long i = 0; i + 1 < out[0].size; ++i) ((float *)out[0].data)[i] = a * x[i] + y[i];
  return 0;
}
