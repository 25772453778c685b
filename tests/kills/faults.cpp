// Injects disk errors into saves and resumes the run afterwards.
#include "faults.h"

#include <array>
#include <cerrno>
#include <utility>

#include "ends.h"

namespace kills {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<int, const char*>, 3> kErrors{
    {{ENOSPC, "No space left on device"}, {EACCES, "Permission denied"}, {EIO, "Input/output error"}}};

void copy_anew(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
}

// Checks that the run printed exactly one error, with the operation, the reason and a hint.
void check_message(const End& end, const std::string& reason) {
  const std::string& said = end.errors;
  const size_t at = said.find("error[io] /");
  if (end.status != 1 || at == std::string::npos || said.find("error[io]", at + 1) != std::string::npos)
    throw Broken{"expected one error[io] and status 1, got status " + std::to_string(end.status) + ": " +
                 said};
  if (said.find(reason, at) == std::string::npos || said.find("\n  hint: ", at) == std::string::npos)
    throw Broken{"the error does not say '" + reason + "' and what to do: " + said};
}

void check_untouched(const fs::path& before, const fs::path& after) {
  for (const auto& [step, name] : published(before))
    if (!published(after).contains(step)) throw Broken{"the checkpoint " + name + " was lost"};
  check_whole(after);
}

// Checks that a failed save removed the files that it had written, if the disk allowed it.
void check_room(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".incomplete")
      throw Broken{entry.path().filename().string() + " still takes room"};
}

void check_goes_on(const Training& training, const fs::path& cut, const std::string& wanted) {
  const End end = live(training, cut, KillPoint{}, 0);
  if (end.status != 0) throw Broken{"it does not go on: " + end.errors};
  if (end_of(cut) != wanted) throw Broken{"it goes on to another end"};
}

int64_t run_undisturbed(const Training& training, const fs::path& folder, int rank) {
  const End end = live(training, folder, KillPoint{}, rank);
  if (end.status != 0) throw Broken{"the undisturbed run failed: " + end.errors};
  return operations();
}

}  // namespace

int fail_everywhere(const Training& training, const fs::path& folder, int stride) {
  const fs::path base = folder / "base", whole = folder / "whole", cut = folder / "cut";
  const Training first = up_to(training, 1), all = up_to(training, 2);
  run_undisturbed(first, base, 0);
  int failed = 0;
  for (int rank = 0; rank < training.ranks; ++rank) {
    copy_anew(base, whole);
    const int64_t operations = run_undisturbed(all, whole, rank);
    const std::string wanted = end_of(whole);
    for (int64_t at = 1; at <= operations; ++at) {
      const auto& [error, reason] = kErrors[static_cast<size_t>(at / stride) % kErrors.size()];
      for (const auto& [number, words] : kErrors) {
        if (stride > 1 && (number != error || at % stride != 0)) continue;
        copy_anew(base, cut);
        const End end =
            live(all, cut, KillPoint{KillPoint::When::fails, KillPoint::Whom::process, at, 0, number}, rank);
        try {
          if (end.status != 0) check_message(end, words), ++failed;
          if (number != EACCES) check_room(cut);
          check_untouched(base, cut);
          check_goes_on(all, cut, wanted);
        } catch (const Broken& broken) {
          throw Broken{"rank " + std::to_string(rank) + ", '" + words + "' from operation " +
                       std::to_string(at) + ": " + broken.what};
        }
      }
    }
  }
  if (failed == 0) throw Broken{"nothing failed"};
  return failed;
}

void fail_without_permission(Training training, const fs::path& folder) {
  const fs::path base = folder / "base", cut = folder / "cut", whole = folder / "whole";
  const Training first = up_to(training, 1), all = up_to(training, 2);
  run_undisturbed(first, base, 0);
  copy_anew(base, whole);
  run_undisturbed(all, whole, 0);
  copy_anew(base, cut);
  const fs::perms before = fs::status(cut).permissions();
  fs::permissions(cut / "training.jsonl", fs::perms::all);
  fs::permissions(cut, fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write,
                  fs::perm_options::remove);
  training = all;
  training.user = Training::User::nobody;
  const End end = live(training, cut, KillPoint{}, 0);
  fs::permissions(cut, before);
  check_message(end, "Permission denied");
  check_untouched(base, cut);
  check_goes_on(all, cut, end_of(whole));
}

}  // namespace kills
