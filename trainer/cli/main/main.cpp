// The `heddle` program: runs commands, those without LibTorch directly, and prints errors as blocks.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "trainer/cli/main/arguments.h"
#include "trainer/cli/main/library.h"
#include "trainer/cli/main/schedule_file.h"

namespace heddle::cli {
namespace {

// Whether a launcher started this process as one of its ranks.
bool is_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

// Parses the command line. A rank with an invalid command line reports the error to the other ranks.
std::variant<Answer, Command> parse_or_refuse(const std::vector<std::string>& words) {
  try {
    return parse(words);
  } catch (const Error& error) {
    const bool has_others = !words.empty() && (words[0] == "train" || words[0] == "convert");
    // In a Slurm batch script without srun there are no other ranks.
    const bool is_alone =
        std::getenv("SLURM_PROCID") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") == nullptr;
    if (!has_others || !is_rank() || is_alone) throw;
    return Command(RefusedCommand{error});
  }
}

// Reads the configuration before LibTorch is loaded, so that syntax errors appear at once. A rank of a
// launcher skips this, because reporting an error to the other ranks needs LibTorch.
void read_first(Command& command) {
  if (is_rank()) return;
  if (auto* train = std::get_if<TrainCommand>(&command)) train->configuration = config::read(train->config);
  if (const auto* check = std::get_if<CheckCommand>(&command))
    if (check->configs.size() == 1 && !check->json)
      check->only_distributed ? config::read_only(check->configs[0], kEngineSections)
                              : config::read(check->configs[0]);
}

int run(const std::vector<std::string>& words) {
  auto parsed = parse_or_refuse(words);
  if (const auto* answer = std::get_if<Answer>(&parsed)) {
    std::cout << answer->text << std::flush;
    return std::cout ? 0 : throw Error(ErrorCode::io, "standard output", "cannot be written");
  }
  Command& command = std::get<Command>(parsed);
  read_first(command);
  // run_in_library() loads the library that needs LibTorch, and calls its function for the command, such as
  // train() in trainer/cli/train.cpp.
  const auto* schedule = std::get_if<ScheduleCommand>(&command);
  const int status =
      schedule != nullptr && !schedule->csv.empty() ? show_schedule_file(*schedule) : run_in_library(command);
  if (status == 0 && !(std::cout << std::flush))
    throw Error(ErrorCode::io, "standard output", "cannot be written");
  return status;
}

int report(const Error& error, const std::vector<std::string>& words) {
  std::cerr << error.what() << std::endl;
  bool json = false;
  for (size_t i = 0; i < words.size(); ++i)
    json |= words[i] == "--json" || words[i] == "--format=json" ||
            (words[i] == "json" && i > 0 && words[i - 1] == "--format");
  if (json) std::cout << to_json(error) << std::endl;
  return exit_status(error.code());
}

int run_or_report(const std::vector<std::string>& words) {
  try {
    return run(words);
  } catch (const Error& error) {
    return report(error, words);
  } catch (const std::exception& error) {
    const auto memory = out_of_memory(error);
    return report(memory ? *memory : Error(ErrorCode::internal, "heddle", error.what()), words);
  } catch (...) {
    return report(Error(ErrorCode::internal, "heddle", "an exception of unknown type was thrown"), words);
  }
}

}  // namespace
}  // namespace heddle::cli

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  ::signal(SIGXFSZ,
           SIG_IGN);  // exceeding the file size limit gives a write error instead of killing the process
  const int status = heddle::cli::run_or_report(words);
  // Skips static destructors, because LibTorch's take a third of `heddle check`; profilers of a run need
  // theirs.
  if (!words.empty() && words[0] == "train") return status;
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  ::_exit(status);
}
