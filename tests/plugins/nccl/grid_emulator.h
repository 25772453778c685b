// Runs the GPU's kernels on the CPU. The threads of a block are fibers that switch at barriers.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <functional>
#include <vector>

#define HEDDLE_EMULATE
#define HEDDLE_KERNEL inline
#define HEDDLE_DEVICE inline
#define HEDDLE_SHARED static  // one block runs at a time
#define HEDDLE_UNROLL
#define HEDDLE_DYNAMIC_SHARED(Type, name) static Type name[1 << 14]

namespace heddle::tests::emulator {

struct Index {
  unsigned x = 0;
};

inline Index threadIdx, blockIdx, gridDim;

constexpr int kBlock = 256;
constexpr size_t kStack = 64 * 1024;

class Grid {
 public:
  // Runs every thread of each block, one block after another.
  static void run(unsigned blocks, const std::function<void()>& kernel) {
    Grid& grid = get();
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) grid.run_block(kernel);
  }
  // Switches to the other threads, which run up to their next barrier.
  static void barrier() {
    Grid& grid = get();
    swapcontext(&grid.threads_[grid.current_].place, &grid.scheduler_);
  }
  static float exchange(float x, unsigned apart) {
    Grid& grid = get();
    grid.slots_[grid.current_] = x;
    barrier();
    const float other = grid.slots_[grid.current_ ^ apart];
    barrier();
    return other;
  }

 private:
  struct Thread {
    ucontext_t place;
    std::vector<char> stack = std::vector<char>(kStack);
    bool ended = false;
  };
  static Grid& get() {
    static Grid grid;
    return grid;
  }
  static void enter() {
    Grid& grid = get();
    (*grid.kernel_)();
    grid.threads_[grid.current_].ended = true;
    swapcontext(&grid.threads_[grid.current_].place, &grid.scheduler_);
  }
  void run_block(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    for (Thread& thread : threads_) {
      thread.ended = false;
      getcontext(&thread.place);
      thread.place.uc_stack = {thread.stack.data(), 0, thread.stack.size()};
      thread.place.uc_link = nullptr;
      makecontext(&thread.place, &Grid::enter, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (current_ = 0; current_ < threads_.size(); ++current_) {
        Thread& thread = threads_[current_];
        if (thread.ended) continue;
        any = true;
        threadIdx.x = static_cast<unsigned>(current_);
        swapcontext(&scheduler_, &thread.place);
      }
    }
  }

  std::vector<Thread> threads_ = std::vector<Thread>(kBlock);
  std::vector<float> slots_ = std::vector<float>(kBlock);
  size_t current_ = 0;
  ucontext_t scheduler_{};
  const std::function<void()>* kernel_ = nullptr;
};

inline void __syncthreads() {
  Grid::barrier();
}
inline float __shfl_xor_sync(unsigned, float x, int apart) {
  return Grid::exchange(x, static_cast<unsigned>(apart));
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}

}  // namespace heddle::tests::emulator
