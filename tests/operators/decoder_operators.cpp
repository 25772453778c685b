// Operators between layers: block residuals, hyper-connections, layer scalars.
#include <array>
#include <span>

#include "decoder/plain_streams.h"
#include "heddle/decoder/description.h"
#include "lib/decoder/blocks/block_mix.h"
#include "lib/decoder/streams/hyper_connection.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using decoder::HyperConnections;
using Ins = OperatorTensors;

Operator block_mix_operator() {
  constexpr double kEps = 1e-2;
  Operator out{"block_mix", {"BlockMixBackward"}, {}};
  for (const auto& [values, tokens, width] : {std::array<int64_t, 3>{1, 3, 4}, {2, 1, 5}, {5, 7, 6}}) {
    std::vector<OperatorInput> inputs(static_cast<size_t>(values), {tokens, width});
    inputs.push_back({width});
    inputs.push_back({1, width});
    out.cases.push_back(
        {std::to_string(values) + " blocks",
         inputs,
         [](const Ins& in, const Ins&) {
           return Ins{
               decoder::block_mix(std::span(in).first(in.size() - 2), in[in.size() - 2], in.back(), kEps)};
         },
         [](const Ins& in, const Ins&) {
           const Ins blocks(in.begin(), in.end() - 3);
           return Ins{plain_blocks(blocks, in[in.size() - 3], in[in.size() - 2], in.back(), kEps)};
         },
         {},
         2.0 * static_cast<double>(values * tokens * width)});
  }
  return out;
}

struct StreamShape {
  std::string name;
  int64_t tokens, width;
  HyperConnections form;
  bool last = false;  // weights of the head, which have no mixing matrix

  int64_t weights() const { return last ? form.streams : form.streams * (2 + form.streams); }
};

const StreamShape kStreamShapes[] = {{"one token", 1, 3, {4, 20, 1e-6, 1e-6}},
                                     {"two streams", 7, 5, {2, 3, 1e-3, 1e-5}},
                                     {"columns alone", 5, 6, {3, 1, 1e-6, 1e-6}},
                                     {"one stream", 4, 7, {1, 2, 1e-6, 1e-6}},
                                     {"last of four streams", 5, 3, {4, 20, 1e-6, 1e-6}, true}};

Operator hyper_weights_operator() {
  Operator out{"hyper_weights", {"HyperWeightsBackward"}, {}};
  for (const StreamShape& of : kStreamShapes) {
    const int64_t all = of.form.streams * of.width;
    out.cases.push_back({of.name,
                         {{of.tokens, all}, {of.weights(), all}, {of.weights()}, {of.last ? 1 : 3}},
                         [=](const Ins& in, const Ins&) {
                           return Ins{decoder::hyper_weights(in[0], in[1], in[2], in[3], of.form)};
                         },
                         [=](const Ins& in, const Ins&) {
                           return Ins{PlainStreams{in[1], in[2], in[3], of.form}.weights(in[0])};
                         },
                         {},
                         2.0 * static_cast<double>(of.tokens * all * of.weights())});
  }
  return out;
}

Operator hyper_collapsed_operator() {
  Operator out{"hyper_collapsed", {"HyperCollapsedBackward"}, {}};
  for (const StreamShape& of : kStreamShapes)
    out.cases.push_back(
        {of.name,
         {{of.tokens, of.form.streams * of.width}, OperatorInput({of.tokens, of.weights()}).wide()},
         [=](const Ins& in, const Ins&) {
           return Ins{decoder::hyper_collapsed(in[0], in[1], of.form.streams)};
         },
         [=](const Ins& in, const Ins&) {
           const int64_t n = of.form.streams;
           return Ins{(in[1].narrow(1, 0, n).unsqueeze(2) * in[0].view({of.tokens, n, -1})).sum(1)};
         }});
  return out;
}

Operator hyper_expanded_operator() {
  Operator out{"hyper_expanded", {"HyperExpandedBackward"}, {}};
  for (const StreamShape& of : kStreamShapes) {
    if (of.last) continue;
    out.cases.push_back(
        {of.name,
         {{of.tokens, of.form.streams * of.width},
          {of.tokens, of.width},
          OperatorInput({of.tokens, of.weights()}).wide()},
         [=](const Ins& in, const Ins&) {
           return Ins{decoder::hyper_expanded(in[0], in[1], in[2], of.form.streams)};
         },
         [=](const Ins& in, const Ins&) {
           const int64_t n = of.form.streams;
           const at::Tensor post = in[2].narrow(1, n, n).unsqueeze(2);
           const at::Tensor matrix = in[2].narrow(1, 2 * n, n * n).view({-1, n, n});
           const at::Tensor mixed = at::matmul(matrix.transpose(1, 2), in[0].view({of.tokens, n, -1}));
           return Ins{(post * in[1].unsqueeze(1) + mixed).flatten(1)};
         }});
  }
  return out;
}

}  // namespace

std::vector<Operator> decoder_operators() {
  return {block_mix_operator(), hyper_weights_operator(), hyper_collapsed_operator(),
          hyper_expanded_operator()};
}

}  // namespace heddle::tests
