// Attention by blocks against PyTorch's CPU flash attention, forward and backward in turn on one core; and
// the time of packed documents against the work that their mask leaves: pairs of tokens, and moving each
// token's rows.
//   bench_attention [rounds] [packed]      packed: only the second
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "heddle/nn/attention_layout.h"
#include "trainer/cli/main/memory_settings.h"

namespace {

using namespace heddle;

// Processor time, without other programs of the machine.
double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Problem {
  model::Heads heads;
  at::Tensor q, k, v, d_out;
};

Problem problem(int64_t sequence, int64_t head_dim, int64_t heads, int64_t key_heads, at::ScalarType dtype) {
  const auto random = [&](int64_t count) { return at::randn({sequence, count * head_dim}).to(dtype); };
  return {{1, sequence, head_dim, {}}, random(heads), random(key_heads), random(key_heads), random(heads)};
}

struct Times {
  double forward = 0, backward = 0;
  double both() const { return forward + backward; }
};

Times ours(const Problem& of, const at::Tensor& documents) {
  const int64_t tokens = of.q.size(0), count = of.q.size(1) / of.heads.head_dim;
  const model::BlockedShape shape = model::blocked_shape(of.heads);
  at::Tensor out, sums;
  const double forward = seconds([&] {
    out = at::empty_like(of.q);
    sums = at::empty({count, tokens});
    model::attend_blocked_cpu({of.q, of.k, of.v, model::visible_keys(of.heads, documents)}, shape, out, sums);
  });
  return {forward, seconds([&] {
            model::attend_blocked_backward_cpu(
                {of.q, of.k, of.v, model::visible_keys(of.heads, documents)}, shape, of.d_out, out, sums,
                {at::empty_like(of.q), at::empty_like(of.k), at::empty_like(of.v)});
          })};
}

Times flash(const Problem& of) {
  const auto heads = [&](const at::Tensor& x) { return model::by_head(x, of.heads, of.heads.head_dim); };
  const at::Tensor q = heads(of.q), k = heads(of.k), v = heads(of.v), d_out = heads(of.d_out);
  at::Tensor out, sums;
  const double forward = seconds(
      [&] { std::tie(out, sums) = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true); });
  return {forward, seconds([&] {
            at::_scaled_dot_product_flash_attention_for_cpu_backward(d_out, q, k, v, out, sums, 0.0, true);
          })};
}

void against_flash(const Problem& of, const char* name, int rounds) {
  std::vector<double> mine, forward, backward, both;
  for (int round = 0; round < rounds; ++round) {
    const Times a = ours(of, {}), b = flash(of);
    mine.push_back(a.both() * 1e3);
    forward.push_back(b.forward / a.forward);
    backward.push_back(b.backward / a.backward);
    both.push_back(b.both() / a.both());
  }
  std::printf("| %lld | %lld | %s | %.2f | %.2f | %.2f | %.2f |\n", static_cast<long long>(of.heads.sequence),
              static_cast<long long>(of.heads.head_dim), name, median(mine), median(forward),
              median(backward), median(both));
  std::fflush(stdout);
}

// Lengths up to `longest`, drawn evenly, and the pairs of tokens that see each other.
std::pair<at::Tensor, double> documents_of(int64_t sequence, int longest, std::mt19937& random) {
  std::vector<int> offsets = {0};
  double pairs = 0;
  while (offsets.back() < sequence) {
    const int64_t drawn = std::uniform_int_distribution<int>(1, longest)(random);
    const int64_t length = std::min(drawn, sequence - offsets.back());
    offsets.push_back(offsets.back() + static_cast<int>(length));
    pairs += static_cast<double>(length) * static_cast<double>(length + 1) / 2;
  }
  return {at::tensor(offsets, at::kInt), pairs};
}

double causal_pairs(int64_t sequence) {
  return static_cast<double>(sequence) * static_cast<double>(sequence + 1) / 2;
}

// Moves what attention must at least read and write, forward and backward: q, k and v to the output, and
// these with the output and its gradient to three gradients. Reads and writes of whole tensors, which nothing
// waits for.
class Moves {
 public:
  explicit Moves(const Problem& of) : queries_(of.q.detach()), keys_(of.k.detach()), values_(of.v.detach()) {}

  double seconds_once() const {
    return seconds([&] {
      const at::Tensor out = queries_.clone(), d_queries = queries_.clone();
      const at::Tensor d_keys = keys_.clone(), d_values = values_.clone();
      for (const at::Tensor* read : {&keys_, &values_, &out, &queries_}) read->sum();
    });
  }

 private:
  at::Tensor queries_, keys_, values_;
};

// Processor time, the least of some rounds: packed documents, one causal sequence, and the moves of either.
struct Packed {
  double documents = 1e9, causal = 1e9, moves = 1e9;
  // The time of `pairs` at the rate of the causal sequence.
  double of_pairs(double pairs, int64_t sequence) const { return causal * pairs / causal_pairs(sequence); }
  // The moves, which depend on tokens alone, and the pairs at the rate of the causal sequence without its
  // moves.
  double of_work(double pairs, int64_t sequence) const {
    return moves + (causal - moves) * pairs / causal_pairs(sequence);
  }
};

void packed(int64_t sequence, int longest, int rounds) {
  std::mt19937 random(7);
  const Problem of = problem(sequence, 64, 4, 2, at::kFloat);
  const Moves moves(of);
  const auto [documents, pairs] = documents_of(sequence, longest, random);
  Packed times;
  for (int round = 0; round < rounds; ++round) {
    times.documents = std::min(times.documents, ours(of, documents).both());
    times.causal = std::min(times.causal, ours(of, {}).both());
    times.moves = std::min(times.moves, moves.seconds_once());
  }
  std::printf("| %lld | %lld of 1 to %d | %.4f | %.1f | %.1f | %.2f | %.2f |\n",
              static_cast<long long>(sequence), static_cast<long long>(documents.numel() - 1), longest,
              pairs / causal_pairs(sequence), times.documents * 1e3, times.moves * 1e3,
              times.documents / times.of_pairs(pairs, sequence),
              times.documents / times.of_work(pairs, sequence));
  std::fflush(stdout);
}

void all_against_flash(int rounds) {
  std::printf("| tokens | head | dtype | ours, ms | flash / ours, forward | backward | both |\n");
  std::printf("|--:|--:|---|--:|--:|--:|--:|\n");
  for (const int64_t sequence : {512, 1024, 2048, 4096, 8192, 16384})
    against_flash(problem(sequence, 64, 2, 2, at::kFloat), "float32", sequence > 4096 ? 3 : rounds);
  for (const int64_t sequence : {512, 4096}) {
    against_flash(problem(sequence, 128, 2, 2, at::kFloat), "float32", rounds);
    against_flash(problem(sequence, 64, 2, 2, at::kBFloat16), "bfloat16", rounds);
    against_flash(problem(sequence, 128, 2, 2, at::kBFloat16), "bfloat16", rounds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  cli::keep_memory_between_steps();  // as `heddle train` does
  at::set_num_threads(1);
  if (argc < 3) all_against_flash(rounds);
  std::printf(
      "\n| tokens | documents | pairs / causal | ms | moves, ms | time / pairs | time / (pairs and moves) |\n"
      "|--:|---|--:|--:|--:|--:|--:|\n");
  for (const int longest : {512, 1024, 2048, 8192}) packed(8192, longest, rounds);
}
