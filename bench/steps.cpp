// heddle's side of against_pytorch.py: optimizer steps of a Hugging Face model on one rank, on command.
//   bench_steps MODEL_DIRECTORY 'distributed: {strategy: fsdp2}' BATCH SEQUENCE
// The rank's place comes from the environment. Reads lines from its standard input: "run N" takes N steps,
// "quit" ends. Rank 0 answers with one JSON line: seconds of the N steps, and the loss and gradient norm of
// the last one.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/transport/join.h"
#include "lib/run/model/prepared_model.h"
#include "trainer/cli/main/memory_settings.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

// Computes the batch of batch_of() in pytorch_steps.py.
Batch batch_of(int rank, int64_t rows, int64_t length, int64_t vocabulary) {
  const at::Tensor row = at::arange(rank * rows, (rank + 1) * rows, at::kLong).unsqueeze(1);
  const at::Tensor column = at::arange(length + 1, at::kLong).unsqueeze(0);
  const at::Tensor tokens = (row * 7919 + column * 104729 + row * column * 31).remainder(vocabulary);
  Batch batch;
  batch.tokens = tokens.narrow(1, 0, length).contiguous();
  batch.labels = tokens.narrow(1, 1, length).contiguous();
  return batch;
}

// Seconds of the processor that this rank has had.
double processor() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void serve(Step& step, const std::vector<Batch>& batches, const DeviceMesh& mesh) {
  const auto meet = [&] { mesh.rendezvous().barrier("bench"); };
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const int count = std::atoi(line.c_str() + line.find(' '));
    meet();
    const Clock::time_point start = Clock::now();
    const double before = processor();
    StepReport report;
    for (int i = 0; i < count; ++i) report = step.run(batches, 1e-4, 0.01);
    const std::chrono::duration<double> seconds = Clock::now() - start;
    const double work = processor() - before;
    meet();
    if (mesh.rank("world") != 0) continue;
    std::printf("{\"seconds\": %.9f, \"processor\": %.9f, \"loss\": %.9g, \"norm\": %.9g}\n", seconds.count(),
                work, report.loss.item<double>(), report.grad_norm.item<double>());
    std::fflush(stdout);
  }
}

void run(char** arguments) {
  const RankPlace place = place_from_environment().value_or(RankPlace{});
  const auto rendezvous = mesh::join(place, {});
  PluginRegistry plugins(plugin::search_path({}));
  const PreparedModel pretrained = open_pretrained(arguments[1], plugins);
  const auto units = [&](const Setup&) {
    return pretrained.spec->make_units(at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
  };
  engine::Model model = engine::model(config::read_text(arguments[2], "the command line"), plugins,
                                      {*rendezvous, units, pretrained.source, 1, ""});
  Step step(model.stages, model.mesh, StepConfig{});
  serve(step,
        {batch_of(model.mesh.rank("dp"), std::atoll(arguments[3]), std::atoll(arguments[4]),
                  pretrained.spec->facts().vocabulary)},
        model.mesh);
  rendezvous->leave();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "bench_steps MODEL_DIRECTORY 'distributed: {...}' BATCH SEQUENCE\n");
    return 2;
  }
  cli::keep_memory_between_steps();  // as `heddle train` does
  at::set_num_threads(1);
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
