// Which units share two buffers: the largest set of units that are alike, or all.
#include <functional>

#include "model.h"

namespace heddle::megatron_fsdp {
namespace {

using Loans = std::vector<Loan*>;  // of one unit

std::vector<size_t> sizes_of(const Loans& loans) {
  std::vector<size_t> sizes;
  for (const Loan* loan : loans) sizes.push_back(loan->bytes());
  return sizes;
}

// The sizes of the buffers: of most units, or the largest k-th ones.
std::vector<size_t> lane_sizes(std::vector<Loans>& units, Buffering buffering) {
  std::vector<size_t> lanes;
  if (buffering == Buffering::two_for_all_units) {
    for (Loans& loans : units) {
      std::sort(loans.begin(), loans.end(), [](Loan* a, Loan* b) { return a->bytes() > b->bytes(); });
      const std::vector<size_t> sizes = sizes_of(loans);
      lanes.resize(std::max(lanes.size(), sizes.size()));
      for (size_t i = 0; i < sizes.size(); ++i) lanes[i] = std::max(lanes[i], sizes[i]);
    }
    return lanes;
  }
  std::map<std::vector<size_t>, int> alike;
  int most = 0;
  for (const Loans& loans : units)
    if (const int count = ++alike[sizes_of(loans)]; count > most) most = count, lanes = sizes_of(loans);
  return lanes;
}

void lend(std::vector<Loans> units, const Options& options, c10::Device device, std::deque<Lane>& lanes) {
  const std::vector<size_t> sizes = lane_sizes(units, options.buffering);
  const size_t first = lanes.size();
  for (const size_t bytes : sizes) lanes.emplace_back(bytes, device);
  for (const Loans& loans : units) {
    const bool fits = options.buffering == Buffering::two_for_all_units || sizes_of(loans) == sizes;
    for (size_t i = 0; i < loans.size(); ++i) {
      if (fits)
        loans[i]->use(&lanes[first + i]);
      else if (options.keep_outliers)
        loans[i]->keep();
    }
  }
}

}  // namespace

void Model::lend_buffers(const Options& options, const Ranks& ranks) {
  if (options.buffering == Buffering::from_the_allocator) return;
  std::vector<Loans> parameters, sums;
  for (const Run& run : runs) {
    Loans mine, of_gradients;
    for (Bucket* bucket : run.buckets)
      if (bucket->split().parameters && !bucket->kept && bucket->users == 1) mine.push_back(&bucket->loan());
    for (Gradients& one : gradients)
      if (one.split() && one.bucket().users == 1 && run.uses(&one.bucket()))
        of_gradients.push_back(&one.loan());
    if (!mine.empty()) parameters.push_back(std::move(mine));
    if (!of_gradients.empty()) sums.push_back(std::move(of_gradients));
  }
  lend(std::move(parameters), options, ranks.device, lanes_);
  lend(std::move(sums), options, ranks.device, lanes_);
}

}  // namespace heddle::megatron_fsdp
