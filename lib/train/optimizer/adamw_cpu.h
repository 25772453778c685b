// AdamW or Adam of one tensor on the CPU, in one pass. It does not write the gradient.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>

namespace heddle::train {

// Arithmetic of fp64 is in fp64, of everything else in fp32.
template <class Number>
using UpdateNumber = std::conditional_t<std::is_same_v<Number, double>, double, float>;

// Factors of one update (Loshchilov and Hutter 2019).
template <class Wide>
struct AdamWFactors {
  Wide gradient;                  // what gradients are multiplied by: clipping
  Wide decay;                     // what weights are multiplied by: 1 - lr * weight decay
  Wide coupled;                   // of the weights that is added to the gradients: Adam's weight decay
  Wide rest1, beta2, rest2, eps;  // rest: 1 - beta, of the doubles
  Wide step;                      // lr / (1 - beta1^t)
  Wide root;                      // 1 / sqrt(1 - beta2^t)
};

// Numbers of one tensor; each is computed alone, so neither threads nor shards change its bits.
template <class Number>
struct AdamWNumbers {
  Number* weights;
  const Number* gradients;
  Number *averages, *squares;
};

// Computes the same bits on every processor: replicas update for themselves, and stay equal. Of float,
// double, c10::BFloat16 and c10::Half.
template <class Number>
void adamw_cpu(const AdamWNumbers<Number>& numbers, int64_t count,
               const AdamWFactors<UpdateNumber<Number>>& factors);

}  // namespace heddle::train
