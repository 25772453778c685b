// AdamW or Adam of one fp32 tensor on the CPU, in one pass. It does not write the gradient.
#pragma once

#include <cstdint>

namespace heddle::train {

// Factors of one update (Loshchilov and Hutter 2019).
struct AdamWFactors {
  float gradient;                  // what gradients are multiplied by: clipping
  float decay;                     // what weights are multiplied by: 1 - lr * weight decay
  float coupled;                   // of the weights that is added to the gradients: Adam's weight decay
  float rest1, beta2, rest2, eps;  // rest: 1 - beta, of the doubles
  float step;                      // lr / (1 - beta1^t)
  float root;                      // 1 / sqrt(1 - beta2^t)
};

// Numbers of one tensor; each is computed alone, so neither threads nor shards change its bits.
struct AdamWNumbers {
  float* weights;
  const float* gradients;
  float *averages, *squares;
};

void adamw_cpu(const AdamWNumbers& numbers, int64_t count, const AdamWFactors& factors);

}  // namespace heddle::train
