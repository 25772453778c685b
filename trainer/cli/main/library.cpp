// Loads libheddle_trainer, and with it LibTorch, for the commands that need it.
#include "trainer/cli/main/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "commands_stamp.h"
#include "heddle/base/error.h"
#include "trainer/cli/main/memory_settings.h"
#include "trainer/cli/main/thread_settings.h"
#include "trainer/cli/main/torch.h"

namespace heddle::cli {
namespace {

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
