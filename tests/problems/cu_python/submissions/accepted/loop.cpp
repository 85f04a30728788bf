#include "kbslurm.h"
#include "bounds.h"

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  if (inputs != 3 || outputs != 1) return 1;
  const float *x = (const float *)in[0].data, *y = (const float *)in[1].data;
  const double a = *(const double *)in[2].data;
  float *z = (float *)out[0].data;
  const long long n = at_most(in[0].size, out[0].size);
  for (long long i = 0; i < n; ++i) z[i] = (float)(a * x[i] + y[i]);
  return 0;
}
