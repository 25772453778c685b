// Sequence operators: delta rule, state space scan, short convolution.
#include <algorithm>
#include <cmath>

#include "lib/decoder/delta_net/delta_rule.h"
#include "lib/decoder/mamba/state_scan.h"
#include "lib/decoder/recurrence/short_convolution.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using decoder::DeltaHeads;
using decoder::ScanHeads;
using decoder::TokenRows;
using Ins = OperatorTensors;

// Shape of the rows, and their documents.
struct RowsShape {
  std::string name;
  int64_t rows, sequence;
  std::vector<int> documents = {};  // empty: each row is one document

  int64_t tokens() const { return rows * sequence; }
  bool begins(int64_t token) const {
    if (documents.empty()) return token % sequence == 0;
    return std::find(documents.begin(), documents.end(), token) != documents.end();
  }
  Ins constants() const { return {documents.empty() ? at::Tensor() : at::tensor(documents, at::kInt)}; }
  TokenRows with(const Ins& constants) const { return {rows, sequence, constants[0]}; }
};

at::Tensor unit_rows(const at::Tensor& x) {
  return x / ((x * x).sum(-1, true) + 1e-6).sqrt();
}

// Reference delta rule, token by token. in: q, k, v, a, b, a_log, bias.
at::Tensor plain_delta_rule(const Ins& in, const DeltaHeads& of, const RowsShape& shape) {
  const int64_t tokens = shape.tokens(), group = of.value_heads / of.key_heads;
  const auto keys = [&](const at::Tensor& x) {
    return unit_rows(x.view({tokens, of.key_heads, of.key})).repeat_interleave(group, 1);
  };
  const at::Tensor q = keys(in[0]) / std::sqrt(static_cast<double>(of.key)), k = keys(in[1]);
  const at::Tensor v = in[2].view({tokens, of.value_heads, of.value});
  const at::Tensor open = (in[3] + in[6]).view({tokens, of.value_heads, of.decays(), 1});
  const at::Tensor speed = in[5].exp().view({-1, 1, 1}), rate = in[4].sigmoid();
  const at::Tensor kept =
      (of.lowest < 0 ? at::sigmoid(speed * open) * of.lowest : -speed * at::softplus(open)).exp();
  at::Tensor state;
  Ins out;
  for (int64_t t = 0; t < tokens; ++t) {
    state = shape.begins(t) ? at::zeros({of.value_heads, of.key, of.value}, at::kDouble) : state * kept[t];
    const at::Tensor known = (state * k[t].unsqueeze(2)).sum(1);
    const at::Tensor written = (v[t] - known) * rate[t].unsqueeze(1);
    state = state + k[t].unsqueeze(2) * written.unsqueeze(1);
    out.push_back((state * q[t].unsqueeze(2)).sum(1).flatten());
  }
  return at::stack(out);
}

OperatorCase delta_case(const RowsShape& shape, const DeltaHeads& of) {
  const int64_t tokens = shape.tokens(), keys = of.key_heads * of.key, decays = of.value_heads * of.decays();
  return {shape.name,
          {{tokens, keys},
           {tokens, keys},
           {tokens, of.value_heads * of.value},
           {tokens, decays},
           {tokens, of.value_heads},
           {of.value_heads},
           {decays}},
          [=](const Ins& in, const Ins& constants) {
            return Ins{decoder::delta_rule({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, of,
                                           shape.with(constants))};
          },
          [=](const Ins& in, const Ins&) { return Ins{plain_delta_rule(in, of, shape)}; },
          shape.constants(),
          8.0 * static_cast<double>(tokens * of.value_heads * of.value * of.key)};
}

Operator delta_rule_operator() {
  const std::vector<int> documents = {0, 10, 11, 70, 128, 150, 163, 300};
  return {"delta_rule",
          {"DeltaRuleBackward"},
          {delta_case({"one token", 1, 1}, {1, 1, 3, 2}), delta_case({"short rows", 3, 7}, {2, 6, 5, 3}),
           delta_case({"one chunk", 2, 64}, {1, 2, 4, 4}), delta_case({"one more", 1, 65}, {3, 3, 2, 5}),
           delta_case({"three chunks", 2, 150}, {2, 4, 6, 7}),
           delta_case({"documents", 2, 150, documents}, {1, 2, 3, 4}),
           delta_case({"documents at chunks", 1, 130, {0, 64, 128, 129, 130}}, {2, 2, 3, 3}),
           delta_case({"tokens alone", 1, 5, {0, 1, 2, 3, 4, 5}}, {1, 1, 2, 2}),
           delta_case({"empty document", 1, 9, {0, 4, 4, 9}}, {1, 1, 2, 2}),
           delta_case({"channels of one token", 1, 1}, {1, 1, 3, 2, true}),
           delta_case({"channels of short rows", 3, 7}, {2, 6, 5, 3, true}),
           delta_case({"channels of one more", 1, 65}, {3, 3, 2, 5, true}),
           delta_case({"channels of three chunks", 2, 150}, {2, 4, 6, 7, true}),
           delta_case({"channels in documents", 2, 150, documents}, {1, 2, 3, 4, true}),
           delta_case({"channels of tokens alone", 1, 5, {0, 1, 2, 3, 4, 5}}, {1, 1, 2, 2, true}),
           delta_case({"bounded", 3, 7}, {2, 6, 5, 3, false, -0.5}),
           delta_case({"bounded channels", 2, 150}, {2, 4, 6, 7, true, -5}),
           delta_case({"bounded channels in documents", 2, 70, {0, 10, 11, 70, 128, 140}},
                      {1, 2, 3, 4, true, -0.3})},
          {},
          false,
          1e-1,
          {delta_case({"512 tokens, 4 heads of 64", 1, 512}, {4, 4, 64, 64})}};
}

// Reference scan, token by token. in: x, b, c, dt, a_log, bias, direct.
at::Tensor plain_state_scan(const Ins& in, const ScanHeads& of, const RowsShape& shape) {
  const int64_t tokens = shape.tokens(), group = of.heads / of.groups;
  const auto shared = [&](const at::Tensor& given) {
    return given.view({tokens, of.groups, of.state}).repeat_interleave(group, 1);
  };
  const at::Tensor b = shared(in[1]), c = shared(in[2]), x = in[0].view({tokens, of.heads, of.width});
  const at::Tensor step = at::softplus(in[3] + in[5]).clamp(of.shortest, of.longest);
  const at::Tensor kept = (-in[4].exp() * step).exp();
  at::Tensor state;
  Ins out;
  for (int64_t t = 0; t < tokens; ++t) {
    state = shape.begins(t) ? at::zeros({of.heads, of.state, of.width}, at::kDouble)
                            : state * kept[t].view({-1, 1, 1});
    state = state + b[t].unsqueeze(2) * (x[t] * step[t].unsqueeze(1)).unsqueeze(1);
    out.push_back(((state * c[t].unsqueeze(2)).sum(1) + x[t] * in[6].unsqueeze(1)).flatten());
  }
  return at::stack(out);
}

OperatorCase scan_case(const RowsShape& shape, const ScanHeads& of) {
  const int64_t tokens = shape.tokens();
  return {shape.name,
          {{tokens, of.heads * of.width},
           {tokens, of.groups * of.state},
           {tokens, of.groups * of.state},
           {tokens, of.heads},
           {of.heads},
           {of.heads},
           {of.heads}},
          [=](const Ins& in, const Ins& constants) {
            return Ins{decoder::state_scan({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, of,
                                           shape.with(constants))};
          },
          [=](const Ins& in, const Ins&) { return Ins{plain_state_scan(in, of, shape)}; },
          shape.constants(),
          6.0 * static_cast<double>(tokens * of.heads * of.width * of.state)};
}

Operator state_scan_operator() {
  return {"state_scan",
          {"StateScanBackward"},
          {scan_case({"one token", 1, 1}, {1, 1, 3, 2}), scan_case({"short rows", 3, 7}, {2, 6, 5, 3}),
           scan_case({"one chunk", 2, 64}, {1, 2, 4, 4}), scan_case({"one more", 1, 65}, {3, 3, 2, 5}),
           scan_case({"three chunks", 2, 150}, {2, 4, 6, 7}),
           scan_case({"cut steps", 1, 90}, {1, 3, 4, 2, 0.5, 0.9}),
           scan_case({"documents", 2, 150, {0, 10, 11, 70, 128, 150, 163, 300}}, {1, 2, 3, 4}),
           scan_case({"documents at chunks", 1, 130, {0, 64, 128, 129, 130}}, {2, 2, 3, 3}),
           scan_case({"tokens alone", 1, 5, {0, 1, 2, 3, 4, 5}}, {1, 1, 2, 2}),
           scan_case({"empty document", 1, 9, {0, 4, 4, 9}}, {1, 1, 2, 2})},
          {},
          false,
          5e-2,
          {scan_case({"512 tokens, 8 heads of 64", 1, 512}, {1, 8, 64, 64})}};
}

// in: x, the weight and optionally the bias.
at::Tensor plain_short_convolution(const Ins& in, const RowsShape& shape) {
  const int64_t taps = in[1].size(2);
  Ins out;
  for (int64_t t = 0; t < shape.tokens(); ++t) {
    at::Tensor sum = in[0][t] * in[1].select(2, taps - 1).select(1, 0);
    for (int64_t back = 1; back < taps && !shape.begins(t - back + 1); ++back)
      sum = sum + in[0][t - back] * in[1].select(2, taps - 1 - back).select(1, 0);
    if (in.size() > 2) sum = sum + in[2];
    out.push_back(sum * sum.sigmoid());
  }
  return at::stack(out);
}

Operator short_convolution_operator() {
  Operator out{"short_convolution", {"ShortConvolutionBackward"}, {}};
  for (const RowsShape& shape : {RowsShape{"one token", 1, 1}, RowsShape{"rows", 3, 7},
                                 RowsShape{"tokens alone", 1, 5, {0, 1, 2, 3, 4, 5}},
                                 RowsShape{"documents", 2, 15, {0, 3, 4, 9, 9, 15, 17, 30}}})
    for (const int64_t taps : {1, 4})
      for (const bool bias : {false, true}) {
        std::vector<OperatorInput> inputs = {{shape.tokens(), 5}, {5, 1, taps}};
        if (bias) inputs.push_back({5});
        out.cases.push_back(
            {shape.name + ", " + std::to_string(taps) + " taps" + (bias ? " and a bias" : ""), inputs,
             [=](const Ins& in, const Ins& constants) {
               return Ins{decoder::short_convolution(in[0], in[1], shape.with(constants),
                                                     bias ? in[2] : at::Tensor())};
             },
             [=](const Ins& in, const Ins&) { return Ins{plain_short_convolution(in, shape)}; },
             shape.constants()});
      }
  return out;
}

}  // namespace

std::vector<Operator> recurrence_operators() {
  return {delta_rule_operator(), state_scan_operator(), short_convolution_operator()};
}

}  // namespace heddle::tests
