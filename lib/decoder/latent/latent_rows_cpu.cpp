// Loops over tokens, split over threads.
#include "lib/decoder/latent/latent_rows_cpu.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace heddle::decoder {
namespace {

template <class Number>
using Sum = std::conditional_t<std::is_same_v<Number, double>, double, float>;

template <class Body>
void of_type(const at::Tensor& rows, const Body& body) {
  if (rows.scalar_type() == at::kFloat) return body(float{});
  if (rows.scalar_type() == at::kDouble) return body(double{});
  body(c10::BFloat16{});
}

template <class Body>
void over_chunks(const at::Tensor& rows, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, rows.size(1)));
  at::parallel_for(0, rows.size(0), grain, body);
}

template <class Body>
void over_tokens(const at::Tensor& rows, const Body& body) {
  over_chunks(rows, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) body(token);
  });
}

// Rotates the pairs of one head by the angles of its token; without angles, copies them.
struct Turn {
  const float *cos = nullptr, *sin = nullptr;
  int64_t width, half, step, apart;  // pair i: elements step * i and step * i + apart
  double direction;

  Turn(const model::RotaryAngles& angles, int64_t token, const LatentShape& shape, double direction)
      : width(shape.rotary),
        half(shape.rotary / 2),
        step(shape.interleaved ? 2 : 1),
        apart(shape.interleaved ? 1 : half),
        direction(direction) {
    if (!angles.cos.defined()) return;
    cos = angles.cos.const_data_ptr<float>() + token * half;
    sin = angles.sin.const_data_ptr<float>() + token * half;
  }

  // `from` and `to` may be equal.
  template <class From, class To>
  void operator()(const From* from, To* to) const {
    using W = Sum<To>;
    if (cos == nullptr) {
      std::transform(from, from + width, to, [](From one) { return static_cast<To>(one); });
      return;
    }
    for (int64_t i = 0; i < half; ++i) {
      const W a = static_cast<W>(from[step * i]), b = static_cast<W>(from[step * i + apart]);
      const W c = static_cast<W>(cos[i]), s = static_cast<W>(direction) * static_cast<W>(sin[i]);
      to[step * i] = static_cast<To>(a * c - b * s);
      to[step * i + apart] = static_cast<To>(b * c + a * s);
    }
  }
};

}  // namespace

bool has_latent_kernel(const at::Tensor& rows) {
  const at::ScalarType dtype = rows.scalar_type();
  return rows.is_cpu() && rows.dim() == 2 && rows.stride(1) == 1 &&
         (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16);
}

void rotate_heads_cpu(const at::Tensor& q, const model::RotaryAngles& angles, const LatentShape& shape,
                      double direction) {
  if (!angles.cos.defined()) return;
  of_type(q, [&]<class Number>(Number) {
    auto* const to = q.mutable_data_ptr<Number>();
    over_tokens(q, [&](int64_t token) {
      const Turn turn(angles, token, shape, direction);
      Number* head = to + token * q.stride(0) + shape.plain;
      for (int64_t i = 0; i < shape.heads; ++i, head += shape.key()) turn(head, head);
    });
  });
}

void assemble_cpu(const at::Tensor& of_latent, const at::Tensor& shared_key,
                  const model::RotaryAngles& angles, const LatentShape& shape, const at::Tensor& k,
                  const at::Tensor& v) {
  of_type(k, [&]<class Number>(Number) {
    const auto *latent = of_latent.const_data_ptr<Number>(), *shared = shared_key.const_data_ptr<Number>();
    auto *const keys = k.mutable_data_ptr<Number>(), *const values = v.mutable_data_ptr<Number>();
    over_tokens(k, [&](int64_t token) {
      const Number* from = latent + token * of_latent.stride(0);
      Number *key = keys + token * k.stride(0), *value = values + token * v.stride(0);
      Number* const first = key + shape.plain;
      Turn(angles, token, shape, 1.0)(shared + token * shared_key.stride(0), first);
      for (int64_t i = 0; i < shape.heads; ++i, from += shape.plain + shape.value) {
        std::copy_n(from, shape.plain, key);
        if (i > 0) std::copy_n(first, shape.rotary, key + shape.plain);
        std::copy_n(from + shape.plain, shape.value, value);
        key += shape.key(), value += shape.value;
      }
    });
  });
}

void take_apart_cpu(const at::Tensor& dk, const at::Tensor& dv, const model::RotaryAngles& angles,
                    const LatentShape& shape, const at::Tensor& d_of_latent, const at::Tensor& d_shared_key) {
  of_type(dk, [&]<class Number>(Number) {
    const auto *keys = dk.const_data_ptr<Number>(), *values = dv.const_data_ptr<Number>();
    auto *const latent = d_of_latent.mutable_data_ptr<Number>(), *const shared =
                                                                     d_shared_key.mutable_data_ptr<Number>();
    const auto of_token = [&](int64_t token, std::vector<Sum<Number>>& sum) {
      const Number *key = keys + token * dk.stride(0), *value = values + token * dv.stride(0);
      Number* to = latent + token * d_of_latent.stride(0);
      std::fill(sum.begin(), sum.end(), Sum<Number>{0});
      for (int64_t i = 0; i < shape.heads; ++i, to += shape.plain + shape.value) {
        std::copy_n(key, shape.plain, to);
        std::copy_n(value, shape.value, to + shape.plain);
        for (int64_t j = 0; j < shape.rotary; ++j) sum[j] += static_cast<Sum<Number>>(key[shape.plain + j]);
        key += shape.key(), value += shape.value;
      }
      Turn(angles, token, shape, -1.0)(sum.data(), shared + token * d_shared_key.stride(0));
    };
    over_chunks(dk, [&](int64_t begin, int64_t end) {
      std::vector<Sum<Number>> sum(static_cast<size_t>(shape.rotary));
      for (int64_t token = begin; token < end; ++token) of_token(token, sum);
    });
  });
}

}  // namespace heddle::decoder
