// Building blocks of the kernels: number types, vectors, and sums over a block. NVRTC compiles the source for
// GPUs. Tests compile it with the C++ compiler and define these macros, threads and barriers themselves
// (HEDDLE_EMULATE).
#pragma once

#ifndef HEDDLE_EMULATE
#define HEDDLE_KERNEL extern "C" __global__
#define HEDDLE_DEVICE __device__ __forceinline__
#define HEDDLE_SHARED __shared__
#define HEDDLE_UNROLL _Pragma("unroll")  // of a loop over a pack, which else may lie in local memory
#define HEDDLE_DYNAMIC_SHARED(Type, name) extern __shared__ Type name[]
#endif

typedef unsigned int u32;
typedef long long i64;

// bfloat16: the upper half of a float, rounded to nearest even.
struct Bf16 {
  unsigned short bits;
};

union Bits {
  float value;
  u32 bits;
};

HEDDLE_DEVICE float infinity() {
  Bits out;
  out.bits = 0x7f800000u;
  return out.value;
}

HEDDLE_DEVICE float no_number() {
  Bits out;
  out.bits = 0x7fc00000u;
  return out.value;
}

HEDDLE_DEVICE float wide(float x) {
  return x;
}
HEDDLE_DEVICE float wide(Bf16 x) {
  Bits out;
  out.bits = static_cast<u32>(x.bits) << 16;
  return out.value;
}

HEDDLE_DEVICE void narrow(float x, float& to) {
  to = x;
}
HEDDLE_DEVICE void narrow(float x, Bf16& to) {
  Bits in;
  in.value = x;
  const bool is_nan = (in.bits & 0x7fffffffu) > 0x7f800000u;
  to.bits =
      static_cast<unsigned short>(is_nan ? 0x7fc0u : (in.bits + 0x7fffu + ((in.bits >> 16) & 1u)) >> 16);
}

// 16 bytes of elements, read and written at once.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

template <class T>
struct One {
  static constexpr int kSize = 1;
  T at[1];
};

template <class Pack, class T>
HEDDLE_DEVICE Pack load(const T* from) {
  return *reinterpret_cast<const Pack*>(from);
}
template <class Pack, class T>
HEDDLE_DEVICE void store(T* to, const Pack& pack) {
  *reinterpret_cast<Pack*>(to) = pack;
}

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // threads per block

// Returns the sum of x over all threads to each thread. `shared`: kThreads / kWarp floats.
HEDDLE_DEVICE float block_sum(float x, float* shared) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  __syncthreads();  // earlier reads of `shared` are done
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) sum += shared[i];
  return sum;
}

HEDDLE_DEVICE float block_max(float x, float* shared) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  float most = shared[0];
  for (int i = 1; i < kThreads / kWarp; ++i) most = fmaxf(most, shared[i]);
  return most;
}
