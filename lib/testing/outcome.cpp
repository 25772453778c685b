// Comparison of numbers and tensors, step by step.
#include "lib/testing/outcome.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heddle::kits {
namespace {

double apart(double one, double other) {
  if (one == other || (std::isnan(one) && std::isnan(other))) return 0;  // the loss of a skipped update
  return std::abs(one - other) / std::max(std::abs(other), 1e-30);
}

// Compares element `i`, if both have it.
void compare_number(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                    size_t i, double most, std::string& out) {
  if (i < want.size() && i < got.size() && !(apart(got[i], want[i]) <= most))
    out += what + " of step " + std::to_string(i) + " differs by " + written(apart(got[i], want[i])) + "\n";
}

void compare_sizes(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                   std::string& out) {
  if (got.size() != want.size())
    out += what + " has " + std::to_string(got.size()) + " values, not " + std::to_string(want.size()) + "\n";
}

void compare_series(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                    double most, std::string& out) {
  compare_sizes(what, got, want, out);
  for (size_t i = 0; i < want.size(); ++i) compare_number(what, got, want, i, most, out);
}

// Returns the layer of a parameter: "model.layers.3" of "model.layers.3.self_attn.k_proj.bias", or the name
// without its last two words if it contains no number.
std::string layer_of(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end) return name.substr(0, end);
    begin = end + 1;
  }
  const size_t last = name.rfind('.');
  const size_t before = last == name.npos || last == 0 ? name.npos : name.rfind('.', last - 1);
  return before == name.npos ? "" : name.substr(0, before);
}

double largest_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

// Compares relative to the largest element, which is taken to be at least `floor`.
std::string plain_difference(const at::Tensor& got, const at::Tensor& want, double floor, double most) {
  const double largest = std::max(largest_of(want), floor);
  const double difference = (got - want).abs().max().item<double>() / largest;
  return difference <= most ? "" : "by " + written(difference) + " of its largest element";
}

std::string adamw_difference(const at::Tensor& got, const at::Tensor& want, double most) {
  const at::Tensor apart = (got - want).abs();
  const double farthest = apart.max().item<double>();
  if (!(farthest <= 2e-4 + most * want.abs().max().item<double>())) return "by " + written(farthest);
  const int64_t beyond = apart.gt(2e-5 + 1e-3 * want.abs()).sum().item<int64_t>();
  return beyond <= std::max<int64_t>(3, want.numel() / 100) ? ""
                                                            : "in " + std::to_string(beyond) + " elements";
}

template <class Difference>
void compare_tensors(const std::string& what, const Named& got, const Named& want,
                     const Difference& difference, std::string& out) {
  for (const auto& [name, tensor] : got)
    if (want.count(name) == 0) out += "'" + name + "' is in " + what + ", and should not be\n";
  for (const auto& [name, tensor] : want) {
    const auto here = got.find(name);
    if (here == got.end()) {
      out += "'" + name + "' is missing in " + what + "\n";
    } else if (!here->second.sizes().equals(tensor.sizes())) {
      out += "'" + name + "' has another shape in " + what + "\n";
    } else if (tensor.numel() > 0) {
      const std::string found = difference(name, here->second, tensor);
      if (!found.empty()) out += "'" + name + "' differs in " + what + " " + found + "\n";
    }
  }
}

void compare_plain(const std::string& what, const Named& got, const Named& want, double most,
                   std::string& out) {
  double overall = 1e-12;
  std::map<std::string, double> layers;
  for (const auto& [name, tensor] : want) {
    double& layer = layers[layer_of(name)];
    layer = std::max(layer, largest_of(tensor));
    overall = std::max(overall, layer);
  }
  // A gradient that is zero in exact arithmetic, such as that of a key bias, consists of rounding errors of
  // its layer.
  compare_tensors(
      what, got, want,
      [&](const std::string& name, const at::Tensor& here, const at::Tensor& there) {
        return plain_difference(here, there, std::max(1e-3 * overall, 1e-2 * layers[layer_of(name)]), most);
      },
      out);
}

void compare_bits(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                  std::string& out) {
  compare_series(what, got, want, 0, out);
}

void compare_bits(const std::string& what, const Named& got, const Named& want, std::string& out) {
  compare_tensors(
      what, got, want,
      [](const std::string&, const at::Tensor& here, const at::Tensor& there) {
        return at::equal(here, there) ? "" : std::string("by bits");
      },
      out);
}

}  // namespace

std::string differences(const Outcome& got, const Outcome& want, const Tolerance& tolerance) {
  std::string out;
  compare_sizes("the loss", got.losses, want.losses, out);
  compare_sizes("the gradient norm", got.norms, want.norms, out);
  for (size_t i = 0; i < want.losses.size(); ++i) {  // the first line is the cause of those after it
    compare_number("the loss", got.losses, want.losses, i, tolerance.loss, out);
    if (i < want.gradients.size())  // rounding of the steps before adds up
      compare_plain("the gradients of step " + std::to_string(i), got.gradients.at(i), want.gradients[i],
                    i == 0 ? 1e-4 : 5e-4, out);
    compare_number("the gradient norm", got.norms, want.norms, i, tolerance.norm, out);
  }
  compare_series("the validation loss", got.validation, want.validation, tolerance.loss, out);
  for (const auto& [name, values] : got.sides)
    if (want.sides.count(name) == 0) out += "the side output '" + name + "' should not be\n";
  for (const auto& [name, values] : want.sides) {
    const auto here = got.sides.find(name);
    compare_series("the side output '" + name + "'",
                   here == got.sides.end() ? std::vector<double>() : here->second, values, 2e-4, out);
  }
  if (!want.gradients.empty())
    compare_plain("the parameters at the end", got.parameters, want.parameters, 1e-4, out);
  else
    compare_tensors(
        "the parameters at the end", got.parameters, want.parameters,
        [&](const std::string&, const at::Tensor& here, const at::Tensor& there) {
          return adamw_difference(here, there, tolerance.parameter);
        },
        out);
  return out;
}

std::string bit_differences(const Outcome& got, const Outcome& want) {
  std::string out;
  compare_bits("the loss", got.losses, want.losses, out);
  compare_bits("the gradient norm", got.norms, want.norms, out);
  compare_bits("the validation loss", got.validation, want.validation, out);
  compare_bits("the parameters", got.parameters, want.parameters, out);
  compare_bits("exp_avg", got.averages, want.averages, out);
  compare_bits("exp_avg_sq", got.squares, want.squares, out);
  return out;
}

std::string distance(const Outcome& got, const Outcome& want) {
  double most = 0;
  for (size_t i = 0; i < want.losses.size(); ++i) most = std::max(most, apart(got.losses[i], want.losses[i]));
  return "loss differs by " + written(most);
}

}  // namespace heddle::kits
