// Loads libheddle_trainer, and with it LibTorch, for the commands that need it.
#include "trainer/cli/main/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "commands_stamp.h"
#include "heddle/base/error.h"
#include "heddle/transport/rank_place.h"
#include "lib/cost/shared_cores.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/main/memory_settings.h"
#include "trainer/cli/main/torch.h"

namespace heddle::cli {
namespace {

// Returns the ranks on this machine. An invalid environment is reported later, when the other ranks can be
// informed.
int ranks_here(const TrainCommand& train) {
  try {
    if (const auto place = place_from_environment()) return place->local_world_size;
  } catch (const Error&) {
    return 1;
  }
  return train.nproc_per_node.value_or(1);
}

// Sets how OpenMP's threads wait, according to wait_setting(), unless the environment sets it. By default
// they spin and take cores from working threads of other local ranks (OMP_NUM_THREADS) or processes. Must be
// called before LibTorch, and OpenMP with it, is loaded.
void choose_waiting(const Command& command) {
  const auto* train = std::get_if<TrainCommand>(&command);
  const bool said = ::getenv("OMP_WAIT_POLICY") != nullptr || ::getenv("GOMP_SPINCOUNT") != nullptr;
  if (train == nullptr || said) return;
  const char* threads = ::getenv("OMP_NUM_THREADS");  // without it, ranks share the cores
  const int ranks = ranks_here(*train);
  const Waiting waiting = wait_setting(threads == nullptr ? std::nullopt : std::optional(::atoi(threads)),
                                       ranks, threads_per_rank(1));
  ::setenv(waiting.variable, waiting.value, /*overwrite=*/0);
}

std::filesystem::path find_library() {
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::filesystem::path beside = here / "libheddle_trainer.so";
  if (std::filesystem::exists(beside, ignored)) return beside;
  const std::filesystem::path installed = here / ".." / "lib" / "libheddle_trainer.so";
  if (std::filesystem::exists(installed, ignored)) return installed;
  throw Error(ErrorCode::internal, beside.string(),
              "the trainer's library is neither next to the program nor in ../lib",
              "build the target heddle_trainer, or reinstall heddle");
}

}  // namespace

int run_in_library(const Command& command) {
  choose_waiting(command);
  load_torch_of_environment();
  keep_memory_between_steps();
  const std::filesystem::path file = find_library();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(ErrorCode::internal, file.string(), dlerror(),
                "rebuild heddle with the LibTorch that it loads");
  const auto* stamp = static_cast<const char*>(dlsym(library, kCommandsStamp));
  if (stamp == nullptr || std::string_view(stamp) != HEDDLE_COMMANDS)
    throw Error(
        ErrorCode::internal, file.string(),
        std::string(
            "the trainer's library and the program are from different builds: the library's commands are ") +
            (stamp == nullptr ? "unknown" : stamp) + ", and the program's " HEDDLE_COMMANDS,
        "build both together (the target heddle_program), or reinstall heddle");
  auto* run = reinterpret_cast<RunCommand*>(dlsym(library, kRunCommand));
  if (!run) throw Error(ErrorCode::internal, file.string(), dlerror(), "rebuild heddle");
  return run(command);
}

}  // namespace heddle::cli
