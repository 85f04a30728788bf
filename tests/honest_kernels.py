"""Kernels that people could have written on their own, for four problems; those of one problem must not be confused."""

from __future__ import annotations

from collections.abc import Mapping

FRAME = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
{cuda}
"""

module = load_inline(name="kernel", cpp_sources="", cuda_sources=SOURCE, functions=["run"], verbose=False)


def custom_kernel(data):
    return module.run(data)
'''


def inline(cuda: str) -> str:
    """A submission that brings this CUDA in a string."""
    return FRAME.replace("{cuda}", cuda)


# What the problem hands out: the frame of every submission in CUDA.
TEMPLATE = inline("#include <torch/extension.h>\n\ntorch::Tensor run(torch::Tensor x) {\n    return x;\n}")

SOFTMAX = {
    # The same idea as the next one, written by somebody else.
    "triton_fused": """import torch
import triton
import triton.language as tl


@triton.jit
def fused_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    x_row = x_ptr + pid * x_stride
    offsets = tl.arange(0, BLOCK_SIZE)
    vals = tl.load(x_row + offsets, mask=offsets < n_cols, other=-1e30)
    vals = vals - tl.max(vals, axis=0)
    e = tl.exp(vals)
    y = e / tl.sum(e, axis=0)
    y_row = y_ptr + pid * y_stride
    tl.store(y_row + offsets, y, mask=offsets < n_cols)


def custom_kernel(data: torch.Tensor) -> torch.Tensor:
    x = data.contiguous()
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    fused_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), BLOCK_SIZE=BLOCK_SIZE)
    return y
""",
    "triton_whole_row": """import torch
import triton
import triton.language as tl


@triton.jit
def softmax_row(out_ptr, in_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < columns
    x = tl.load(in_ptr + row * stride + cols, mask=inside, other=-float("inf"))
    top = tl.max(x, axis=0)
    raised = tl.exp(x - top)
    total = tl.sum(raised, axis=0)
    tl.store(out_ptr + row * stride + cols, raised / total, mask=inside)


def custom_kernel(data):
    rows, columns = data.shape
    out = torch.empty_like(data)
    block = triton.next_power_of_2(columns)
    warps = 4 if block < 2048 else 8
    softmax_row[(rows,)](out, data, data.stride(0), columns, BLOCK=block, num_warps=warps)
    return out
""",
    "triton_online": '''import torch
import triton
import triton.language as tl

CHUNK = 1024


@triton.jit
def streaming(src, dst, n, pitch, CHUNK: tl.constexpr):
    """Two passes; the first keeps a running maximum and rescales the sum."""
    pid = tl.program_id(axis=0)
    src += pid * pitch
    dst += pid * pitch
    m = -float("inf")
    s = 0.0
    for start in range(0, n, CHUNK):
        idx = start + tl.arange(0, CHUNK)
        v = tl.load(src + idx, mask=idx < n, other=-float("inf"))
        new_m = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(v - new_m), 0)
        m = new_m
    inverse = 1.0 / s
    for start in range(0, n, CHUNK):
        idx = start + tl.arange(0, CHUNK)
        v = tl.load(src + idx, mask=idx < n)
        tl.store(dst + idx, tl.exp(v - m) * inverse, mask=idx < n)


def custom_kernel(data):
    result = torch.empty(data.shape, device=data.device, dtype=data.dtype)
    height = data.shape[0]
    grid = lambda meta: (height,)
    streaming[grid](data, result, data.shape[1], data.stride(0), CHUNK=CHUNK)
    return result
''',
    "cuda_warp": inline(
        """#include <torch/extension.h>

// One warp has one row.
__global__ void warp_rows(const float* x, float* y, int rows, int cols) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (warp >= rows) return;
    const float* mine = x + (size_t)warp * cols;
    float best = -INFINITY;
    for (int c = lane; c < cols; c += 32) best = fmaxf(best, mine[c]);
    for (int off = 16; off > 0; off >>= 1) best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, off));
    float sum = 0.f;
    for (int c = lane; c < cols; c += 32) sum += __expf(mine[c] - best);
    for (int off = 16; off > 0; off >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, off);
    float scale = 1.f / sum;
    for (int c = lane; c < cols; c += 32) y[(size_t)warp * cols + c] = __expf(mine[c] - best) * scale;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int rows = x.size(0);
    warp_rows<<<(rows + 7) / 8, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1));
    return y;
}"""
    ),
    "cuda_block": inline(
        """#include <torch/extension.h>
#define THREADS 512

__device__ float reduce(float value, float* scratch, bool is_max) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) {
            float a = scratch[threadIdx.x], b = scratch[threadIdx.x + half];
            scratch[threadIdx.x] = is_max ? (a > b ? a : b) : a + b;
        }
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();
    return result;
}

__global__ void block_softmax(float* __restrict__ dst, const float* __restrict__ src, long width) {
    __shared__ float scratch[THREADS];
    src += blockIdx.x * width;
    dst += blockIdx.x * width;
    float peak = -1e30f;
    for (long i = threadIdx.x; i < width; i += THREADS) {
        peak = src[i] > peak ? src[i] : peak;
    }
    peak = reduce(peak, scratch, true);
    float partial = 0;
    for (long i = threadIdx.x; i < width; i += THREADS) {
        float e = expf(src[i] - peak);
        dst[i] = e;
        partial += e;
    }
    partial = reduce(partial, scratch, false);
    for (long i = threadIdx.x; i < width; i += THREADS) {
        dst[i] /= partial;
    }
}

torch::Tensor run(torch::Tensor input) {
    torch::Tensor output = torch::zeros_like(input);
    dim3 grid(input.size(0));
    block_softmax<<<grid, THREADS>>>(output.data_ptr<float>(), input.data_ptr<float>(), input.size(1));
    return output;
}"""
    ),
    "cuda_vector": inline(
        """#include <torch/extension.h>
#include <cuda_fp16.h>

template <int VEC>
__global__ void soft4(const float4* in, float4* out, int quads) {
    extern __shared__ float4 line[];
    const float4* from = in + blockIdx.x * quads;
    float m = -3.4e38f;
    for (int q = threadIdx.x; q < quads; q += blockDim.x) {
        float4 v = __ldg(from + q);
        line[q] = v;
        m = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    __shared__ float tops[32], sums[32];
    for (int d = 1; d < 32; d *= 2) m = fmaxf(m, __shfl_down_sync(~0u, m, d));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = m;
    __syncthreads();
    m = tops[0];
    for (int w = 1; w < blockDim.x / 32; ++w) m = fmaxf(m, tops[w]);
    float s = 0;
    for (int q = threadIdx.x; q < quads; q += blockDim.x) {
        float4 v = line[q];
        v.x = expf(v.x - m);
        v.y = expf(v.y - m);
        v.z = expf(v.z - m);
        v.w = expf(v.w - m);
        s += v.x + v.y + v.z + v.w;
        line[q] = v;
    }
    for (int d = 1; d < 32; d *= 2) s += __shfl_down_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
    __syncthreads();
    float all = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) all += sums[w];
    for (int q = threadIdx.x; q < quads; q += blockDim.x) {
        float4 v = line[q];
        out[blockIdx.x * quads + q] = make_float4(v.x / all, v.y / all, v.z / all, v.w / all);
    }
}

torch::Tensor run(torch::Tensor x) {
    auto result = torch::empty({x.size(0), x.size(1)}, x.options());
    const int quads = x.size(1) / 4;
    soft4<4><<<x.size(0), 128, quads * sizeof(float4)>>>(
        (const float4*)x.data_ptr<float>(), (float4*)result.data_ptr<float>(), quads);
    return result;
}"""
    ),
}

TRANSPOSE = {
    # The same idea as `cuda_shared`, written by somebody else.
    "cuda_padded": inline(
        """#include <torch/extension.h>
#define TILE_DIM 32
#define BLOCK_ROWS 8

__global__ void transposePadded(const float *idata, float *odata, int width, int height) {
    __shared__ float buf[TILE_DIM][TILE_DIM + 1];

    int col = blockIdx.x * TILE_DIM + threadIdx.x;
    int row = blockIdx.y * TILE_DIM + threadIdx.y;

    for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) {
        if (row + i < height && col < width) {
            buf[threadIdx.y + i][threadIdx.x] = idata[(row + i) * width + col];
        }
    }
    __syncthreads();

    int tcol = blockIdx.y * TILE_DIM + threadIdx.x;
    int trow = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) {
        if (trow + i < width && tcol < height) {
            odata[(trow + i) * height + tcol] = buf[threadIdx.x][threadIdx.y + i];
        }
    }
}

torch::Tensor run(torch::Tensor input) {
    const int height = input.size(0);
    const int width = input.size(1);
    auto output = torch::empty({width, height}, input.options());
    dim3 block(TILE_DIM, BLOCK_ROWS);
    dim3 grid((width + TILE_DIM - 1) / TILE_DIM, (height + TILE_DIM - 1) / TILE_DIM);
    transposePadded<<<grid, block>>>(input.data_ptr<float>(), output.data_ptr<float>(), width, height);
    return output;
}"""
    ),
    "triton_tile": """import torch
import triton
import triton.language as tl


@triton.jit
def flip(src, dst, height, width, TILE: tl.constexpr):
    by = tl.program_id(0) * TILE + tl.arange(0, TILE)
    bx = tl.program_id(1) * TILE + tl.arange(0, TILE)
    ok = (by[:, None] < height) & (bx[None, :] < width)
    block = tl.load(src + by[:, None] * width + bx[None, :], mask=ok)
    tl.store(dst + bx[:, None] * height + by[None, :], tl.trans(block), mask=tl.trans(ok))


def custom_kernel(data):
    height, width = data.shape
    out = torch.empty((width, height), dtype=data.dtype, device=data.device)
    grid = (triton.cdiv(height, 32), triton.cdiv(width, 32))
    flip[grid](data, out, height, width, TILE=32)
    return out
""",
    "triton_flat": """import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"N": n}, num_warps=w) for n in (256, 512) for w in (2, 4)], key=["total"])
@triton.jit
def gather(a, b, rows, cols, total, N: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    r = where % rows
    c = where // rows
    tl.store(b + where, tl.load(a + r * cols + c, mask=where < total, other=0), mask=where < total)


def custom_kernel(data):
    rows, cols = data.size()
    b = data.new_empty(cols, rows)
    gather[lambda meta: (triton.cdiv(data.numel(), meta["N"]), 1, 1)](data, b, rows, cols, data.numel())
    return b
""",
    "cuda_shared": inline(
        """#include <torch/extension.h>
const int T = 32, ROWS = 8;

__global__ void shared_tile(float* out, const float* in, int h, int w) {
    __shared__ float tile[T][T + 1];
    int x = blockIdx.x * T + threadIdx.x;
    int y = blockIdx.y * T + threadIdx.y;
    for (int j = 0; j < T; j += ROWS)
        if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
    __syncthreads();
    x = blockIdx.y * T + threadIdx.x;
    y = blockIdx.x * T + threadIdx.y;
    for (int j = 0; j < T; j += ROWS)
        if (x < h && y + j < w) out[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}

torch::Tensor run(torch::Tensor in) {
    int h = in.size(0), w = in.size(1);
    auto out = torch::empty({w, h}, in.options());
    dim3 blocks((w + T - 1) / T, (h + T - 1) / T), threads(T, ROWS);
    shared_tile<<<blocks, threads>>>(out.data_ptr<float>(), in.data_ptr<float>(), h, w);
    return out;
}"""
    ),
    "cuda_naive": inline(
        """#include <torch/extension.h>

__global__ void one_each(const float* __restrict__ a, float* __restrict__ b, unsigned rows, unsigned cols) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    while (i < (unsigned long long)rows * cols) {
        unsigned from_row = i / cols;
        unsigned from_col = i - (unsigned long long)from_row * cols;
        b[(unsigned long long)from_col * rows + from_row] = __ldg(&a[i]);
        i += step;
    }
}

torch::Tensor run(torch::Tensor a) {
    torch::Tensor b = torch::empty({a.size(1), a.size(0)}, a.options());
    one_each<<<1024, 256>>>((const float*)a.data_ptr(), (float*)b.data_ptr(), a.size(0), a.size(1));
    return b;
}"""
    ),
    "cuda_shuffle": inline(
        """#include <torch/extension.h>

// A warp turns 32 rows of 32 in its registers: log2(32) rounds of exchanges.
__global__ void registers(float* to, const float* from, int n, int m) {
    float held[32];
    int lane = threadIdx.x, top = blockIdx.y * 32, left = blockIdx.x * 32;
    #pragma unroll
    for (int k = 0; k < 32; ++k) held[k] = top + k < n && left + lane < m ? from[(top + k) * m + left + lane] : 0.f;
    #pragma unroll
    for (int bit = 16; bit >= 1; bit /= 2) {
        bool upper = lane & bit;
        #pragma unroll
        for (int k = 0; k < 32; ++k) {
            if (k & bit) continue;
            float give = upper ? held[k] : held[k + bit];
            float got = __shfl_xor_sync(0xffffffffu, give, bit);
            if (upper) held[k] = got; else held[k + bit] = got;
        }
    }
    #pragma unroll
    for (int k = 0; k < 32; ++k)
        if (left + k < m && top + lane < n) to[(left + k) * n + top + lane] = held[k];
}

torch::Tensor run(torch::Tensor t) {
    const auto n = t.size(0), m = t.size(1);
    auto to = at::empty({m, n}, t.options());
    registers<<<dim3((m + 31) >> 5, (n + 31) >> 5), 32>>>(to.data_ptr<float>(), t.data_ptr<float>(), n, m);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return to;
}"""
    ),
}

MATMUL = {
    # The same idea as `cuda_tiled`, written by somebody else.
    "cuda_shared": inline(
        """#include <torch/extension.h>

const int BLOCK = 32;

__global__ void sgemm_shared(const float* lhs, const float* rhs, float* dst, int rows, int cols, int inner) {
    __shared__ float l[BLOCK * BLOCK], r[BLOCK * BLOCK];
    int ty = threadIdx.x / BLOCK, tx = threadIdx.x % BLOCK;
    int i = blockIdx.x * BLOCK + ty;
    int j = blockIdx.y * BLOCK + tx;
    float sum = 0;
    for (int base = 0; base < inner; base += BLOCK) {
        l[ty * BLOCK + tx] = 0;
        r[ty * BLOCK + tx] = 0;
        if (i < rows && base + tx < inner) l[ty * BLOCK + tx] = lhs[i * inner + base + tx];
        if (j < cols && base + ty < inner) r[ty * BLOCK + tx] = rhs[(base + ty) * cols + j];
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) sum += l[ty * BLOCK + k] * r[k * BLOCK + tx];
        __syncthreads();
    }
    if (i < rows && j < cols) dst[i * cols + j] = sum;
}

torch::Tensor run(torch::Tensor lhs, torch::Tensor rhs) {
    int rows = lhs.size(0), inner = lhs.size(1), cols = rhs.size(1);
    torch::Tensor dst = torch::empty({rows, cols}, lhs.options());
    dim3 grid((rows + BLOCK - 1) / BLOCK, (cols + BLOCK - 1) / BLOCK);
    sgemm_shared<<<grid, BLOCK * BLOCK>>>(
        lhs.data_ptr<float>(), rhs.data_ptr<float>(), dst.data_ptr<float>(), rows, cols, inner);
    return dst;
}"""
    ),
    "triton_blocks": """import torch
import triton
import triton.language as tl


@triton.jit
def mm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    rm = m0 + tl.arange(0, BM)
    rn = n0 + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        at = k + rk
        a = tl.load(a_ptr + rm[:, None] * K + at[None, :], mask=(rm[:, None] < M) & (at[None, :] < K), other=0)
        b = tl.load(b_ptr + at[:, None] * N + rn[None, :], mask=(at[:, None] < K) & (rn[None, :] < N), other=0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def custom_kernel(data):
    a, b = data
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device="cuda")
    mm[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, c, M, N, K, BM=64, BN=64, BK=32)
    return c
""",
    "triton_grouped": '''import torch
import triton
from triton import language as tl

GROUP = 8


@triton.jit
def grouped_gemm(x, y, z, m, n, k, sx, sy, sz, GROUP: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr):
    """Neighbouring programs share a band of x, which stays in L2."""
    pid = tl.program_id(0)
    across = tl.cdiv(n, Q)
    band = pid // (GROUP * across)
    first = band * GROUP
    tall = min(tl.cdiv(m, P) - first, GROUP)
    i = first + (pid % (GROUP * across)) % tall
    j = (pid % (GROUP * across)) // tall
    px = tl.make_block_ptr(x, (m, k), (sx, 1), (i * P, 0), (P, R), (1, 0))
    py = tl.make_block_ptr(y, (k, n), (sy, 1), (0, j * Q), (R, Q), (1, 0))
    total = tl.zeros([P, Q], tl.float32)
    while k > 0:
        left = tl.load(px, boundary_check=(0, 1))
        right = tl.load(py, boundary_check=(0, 1))
        total = tl.dot(left, right, total)
        px = tl.advance(px, (0, R))
        py = tl.advance(py, (R, 0))
        k -= R
    pz = tl.make_block_ptr(z, (m, n), (sz, 1), (i * P, j * Q), (P, Q), (1, 0))
    tl.store(pz, total, boundary_check=(0, 1))


def custom_kernel(data):
    x, y = data
    z = x.new_empty(x.size(0), y.size(1))
    programs = triton.cdiv(z.size(0), 128) * triton.cdiv(z.size(1), 128)
    grouped_gemm[(programs,)](
        x, y, z, x.size(0), y.size(1), x.size(1), x.stride(0), y.stride(0), z.stride(0), GROUP, 128, 128, 32
    )
    return z
''',
    "cuda_tiled": inline(
        """#include <torch/extension.h>
#define TS 16

__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[TS][TS];
    __shared__ float Bs[TS][TS];
    int row = blockIdx.y * TS + threadIdx.y;
    int col = blockIdx.x * TS + threadIdx.x;
    float acc = 0.0f;
    for (int t = 0; t < (K + TS - 1) / TS; t++) {
        int ax = t * TS + threadIdx.x, by = t * TS + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = (row < M && ax < K) ? A[row * K + ax] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = (by < K && col < N) ? B[by * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TS; k++) {
            acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < M && col < N) {
        C[row * N + col] = acc;
    }
}

torch::Tensor run(torch::Tensor A, torch::Tensor B) {
    int M = A.size(0), K = A.size(1), N = B.size(1);
    auto C = torch::zeros({M, N}, A.options());
    dim3 threads(TS, TS);
    dim3 blocks((N + TS - 1) / TS, (M + TS - 1) / TS);
    tiled<<<blocks, threads>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    return C;
}"""
    ),
    "cuda_registers": inline(
        """#include <torch/extension.h>

template <int BM, int BN, int BK, int R>
__global__ void __launch_bounds__(256) blocked(const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ c, const int n, const int depth) {
    __shared__ float sa[BK * BM], sb[BK * BN];
    float part[R * R] = {};
    float ra[R], rb[R];
    const int tid = threadIdx.x, across = BN / R;
    const int ty = tid / across, tx = tid % across;
    a += blockIdx.y * BM * depth;
    b += blockIdx.x * BN;
    for (int k0 = 0; k0 < depth; k0 += BK) {
        for (int e = tid; e < BM * BK; e += blockDim.x) sa[(e % BK) * BM + e / BK] = a[e / BK * depth + e % BK];
        for (int e = tid; e < BK * BN; e += blockDim.x) sb[e] = b[e / BN * n + e % BN];
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int kk = 0; kk < BK; ++kk) {
            for (int r = 0; r < R; ++r) ra[r] = sa[kk * BM + ty * R + r];
            for (int r = 0; r < R; ++r) rb[r] = sb[kk * BN + tx * R + r];
            for (int p = 0; p < R; ++p)
                for (int q = 0; q < R; ++q) part[p * R + q] = fmaf(ra[p], rb[q], part[p * R + q]);
        }
        __syncthreads();
    }
    float* mine = c + (blockIdx.y * BM + ty * R) * n + blockIdx.x * BN + tx * R;
    for (int p = 0; p < R; ++p)
        for (int q = 0; q < R; ++q) mine[p * n + q] = part[p * R + q];
}

torch::Tensor run(torch::Tensor left, torch::Tensor right) {
    auto product = torch::empty({left.size(0), right.size(1)}, left.options());
    const dim3 grid(right.size(1) / 128, left.size(0) / 128);
    blocked<128, 128, 8, 8><<<grid, 256>>>(
        left.data_ptr<float>(), right.data_ptr<float>(), product.data_ptr<float>(), right.size(1), left.size(1));
    return product;
}"""
    ),
    "cuda_wmma": inline(
        """#include <torch/extension.h>
#include <mma.h>
using namespace nvcuda;

__global__ void tensor_cores(const half* A, const half* B, float* C, int M, int N, int K) {
    const int warpM = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    const int warpN = blockIdx.y * blockDim.y + threadIdx.y;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int k = 0; k < K; k += 16) {
        if (warpM * 16 >= M || warpN * 16 >= N) break;
        wmma::load_matrix_sync(fa, A + warpM * 16 * K + k, K);
        wmma::load_matrix_sync(fb, B + k * N + warpN * 16, N);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    if (warpM * 16 < M && warpN * 16 < N)
        wmma::store_matrix_sync(C + warpM * 16 * N + warpN * 16, fc, N, wmma::mem_row_major);
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto ha = a.to(torch::kHalf).contiguous();
    auto hb = b.to(torch::kHalf).contiguous();
    auto c = torch::empty({a.size(0), b.size(1)}, a.options().dtype(torch::kFloat));
    dim3 block(128, 4);
    dim3 grid((a.size(0) + 63) / 64, (b.size(1) + 63) / 64);
    tensor_cores<<<grid, block>>>(
        reinterpret_cast<half*>(ha.data_ptr<at::Half>()), reinterpret_cast<half*>(hb.data_ptr<at::Half>()),
        c.data_ptr<float>(), a.size(0), b.size(1), a.size(1));
    return c;
}"""
    ),
}

HISTOGRAM = {
    # The same idea as `cuda_private`, written by somebody else.
    "cuda_block": inline(
        """#include <torch/extension.h>

__global__ void histo_shared(const int *values, int *histo, int size) {
    __shared__ int temp[256];
    temp[threadIdx.x] = 0;
    __syncthreads();

    int i = threadIdx.x + blockIdx.x * blockDim.x;
    int stride = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&temp[values[i]], 1);
        i += stride;
    }
    __syncthreads();
    atomicAdd(&histo[threadIdx.x], temp[threadIdx.x]);
}

torch::Tensor run(torch::Tensor values) {
    torch::Tensor histo = torch::zeros({256}, values.options());
    histo_shared<<<512, 256>>>(values.data_ptr<int>(), histo.data_ptr<int>(), (int)values.numel());
    return histo;
}"""
    ),
    "triton_compare": """import torch
import triton
import triton.language as tl


@triton.jit
def count(values, bins, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seen = tl.load(values + offsets, mask=offsets < n, other=BINS)
    mine = tl.histogram(seen, BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), mine)


def custom_kernel(data):
    bins = torch.zeros(256, dtype=torch.int32, device=data.device)
    n = data.numel()
    count[(triton.cdiv(n, 4096),)](data, bins, n, BINS=256, BLOCK=4096)
    return bins
""",
    "torch_sorted": '''import torch


def _edges(ordered, bins):
    wanted = torch.arange(bins + 1, device=ordered.device, dtype=ordered.dtype)
    return torch.searchsorted(ordered, wanted, right=False)


@torch.compile(dynamic=False)
def _differences(edges):
    return (edges[1:] - edges[:-1]).to(torch.int32)


def custom_kernel(data):
    """Sort, look up where each value begins, subtract."""
    ordered, _ = torch.sort(data.flatten().to(torch.int64))
    return _differences(_edges(ordered, 256))
''',
    "cuda_global": inline(
        """#include <torch/extension.h>

__global__ void straight(const int* data, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&counts[data[i]], 1);
    }
}

torch::Tensor run(torch::Tensor data) {
    auto counts = torch::zeros({256}, data.options());
    int n = data.numel();
    int threads = 256;
    int blocks = (n + threads - 1) / threads;
    straight<<<blocks, threads>>>(data.data_ptr<int>(), counts.data_ptr<int>(), n);
    return counts;
}"""
    ),
    "cuda_private": inline(
        """#include <torch/extension.h>
constexpr int BINS = 256;

__global__ void privatized(const int* __restrict__ in, unsigned* __restrict__ out, size_t count) {
    __shared__ unsigned local[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) local[b] = 0u;
    __syncthreads();
    const size_t hop = (size_t)blockDim.x * gridDim.x;
    for (size_t p = threadIdx.x + (size_t)blockIdx.x * blockDim.x; p < count; p += hop) {
        atomicAdd(local + in[p], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        if (local[b] != 0u) atomicAdd(out + b, local[b]);
}

torch::Tensor run(torch::Tensor in) {
    torch::Tensor out = torch::zeros({BINS}, torch::dtype(torch::kInt32).device(in.device()));
    cudaDeviceProp what;
    cudaGetDeviceProperties(&what, in.get_device());
    privatized<<<what.multiProcessorCount * 4, 512>>>(
        in.data_ptr<int>(), reinterpret_cast<unsigned*>(out.data_ptr<int>()), in.numel());
    return out;
}"""
    ),
    "cuda_per_warp": inline(
        """#include <torch/extension.h>
#define WARPS 8

// Each warp has a table of its own, of bytes' counts packed by four loads at once.
__global__ void warp_tables(const int4* src, int* dst, int quads, const int* rest, int left) {
    __shared__ int table[WARPS][257];
    int w = threadIdx.x >> 5;
    for (int s = threadIdx.x; s < WARPS * 257; s += WARPS * 32) (&table[0][0])[s] = 0;
    __syncthreads();
    for (int q = blockIdx.x * WARPS * 32 + threadIdx.x; q < quads; q += gridDim.x * WARPS * 32) {
        int4 v = src[q];
        atomicAdd(&table[w][v.x], 1);
        atomicAdd(&table[w][v.y], 1);
        atomicAdd(&table[w][v.z], 1);
        atomicAdd(&table[w][v.w], 1);
    }
    if (blockIdx.x == 0 && threadIdx.x < left) atomicAdd(&table[w][rest[threadIdx.x]], 1);
    __syncthreads();
    int sum = 0;
    #pragma unroll
    for (int t = 0; t < WARPS; ++t) sum += table[t][threadIdx.x];
    if (sum) atomicAdd(dst + threadIdx.x, sum);
}

torch::Tensor run(torch::Tensor v) {
    const int n = v.numel(), quads = n >> 2;
    auto dst = torch::zeros(256, v.options());
    const int* p = v.data_ptr<int>();
    warp_tables<<<min(1056, quads / 256 + 1), 256>>>((const int4*)p, dst.data_ptr<int>(), quads, p + 4 * quads, n & 3);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess);
    return dst;
}"""
    ),
}

TUNING: Mapping[str, Mapping[str, str]] = {"softmax": SOFTMAX, "transpose": TRANSPOSE}
HELD_OUT: Mapping[str, Mapping[str, str]] = {"matmul": MATMUL, "histogram": HISTOGRAM}
