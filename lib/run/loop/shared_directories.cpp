// Checks shared directories with files that rank 0 writes and the first rank of each host looks for.
#include "lib/run/loop/shared_directories.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/preflight/throw_at_key.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbe = ".probe.tmp.";  // sweep() removes an empty file with this prefix

struct SharedDirectory {
  std::string key;
  fs::path path;
};

std::vector<SharedDirectory> shared_directories(const RunSpec& run) {
  const CheckpointSection& section = run.recipe.checkpoint;
  std::vector<SharedDirectory> out{{"checkpoint_dir", section.directory}};
  if (section.staging_dir) out.push_back({"staging_dir", stages_of(section)});
  return out;
}

// Creates an empty file, and its directory if necessary. Returns why that failed; empty: success.
std::string make_probe(const fs::path& file) {
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  if (failed) return failed.message();
  const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (opened < 0) return std::strerror(errno);
  ::close(opened);
  return "";
}

// Files that are removed with this object.
class Probes {
 public:
  Probes() = default;
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;
  ~Probes() { remove(); }

  std::string add(const fs::path& file) {
    std::string fault = make_probe(file);
    if (fault.empty()) files_.push_back(file);
    return fault;
  }
  void remove() {
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
    files_.clear();
  }

 private:
  std::vector<fs::path> files_;
};

// Waits until the file is visible. A network file system may show new files late; listing the directory
// refreshes it.
bool is_seen(const fs::path& file, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (std::chrono::milliseconds pause(10);; pause = std::min(2 * pause, std::chrono::milliseconds(500))) {
    std::error_code failed;
    if (fs::exists(file, failed)) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
    for (const fs::directory_entry& entry : fs::directory_iterator(file.parent_path(), failed))
      if (entry.path() == file) return true;
  }
}

class SharedCheck {
 public:
  SharedCheck(const RunSpec& run, Rendezvous& rendezvous)
      : rendezvous_(rendezvous), run_(run), directories_(shared_directories(run)) {}

  void check() {
    const bool is_on_one_host = rendezvous_.local_world_size() == rendezvous_.world_size();
    const std::string mine = (is_on_one_host ? "1" : "2") + checkpoint::checksum(fingerprint(run_));
    const std::string token = rendezvous_.meet(
        "shared directories", mine,
        [&](std::span<const std::string> texts) { return std::vector<std::string>{begin(texts)}; });
    if (token.empty()) return;
    const bool looks = rendezvous_.local_rank() == 0 && rendezvous_.rank() != 0;
    rendezvous_.meet("shared directories seen", looks ? look(token) : "",
                     [&](std::span<const std::string> texts) {
                       probes_.remove();
                       refuse(texts);
                       return std::vector<std::string>{""};
                     });
  }

 private:
  // On rank 0: returns the suffix of the file names; empty: there is nothing to check.
  std::string begin(std::span<const std::string> texts) {
    const auto differs = [&](const std::string& text) { return text.substr(1) != texts[0].substr(1); };
    const auto is_alone = [](const std::string& text) { return text[0] == '1'; };
    if (std::any_of(texts.begin(), texts.end(), differs)) return "";
    if (std::all_of(texts.begin(), texts.end(), is_alone)) return "";
    const std::string token = std::to_string(std::random_device()());
    for (const SharedDirectory& directory : directories_)
      if (const std::string fault = probes_.add(probe(directory, token)); !fault.empty())
        refuse_not_writable(directory, 0, fault);
    return token;
  }

  static fs::path probe(const SharedDirectory& directory, const std::string& token) {
    return directory.path / (kProbe + token);
  }

  // On the first rank of a host: returns for each directory "" (visible and writable), "missing", or why it
  // cannot be written.
  std::string look(const std::string& token) const {
    const auto patience =
        std::min<std::chrono::milliseconds>(std::chrono::seconds(5), rendezvous_.timeout() / 4);
    std::vector<std::string> out;
    for (const SharedDirectory& directory : directories_) {
      std::error_code failed;
      const bool is_new = fs::create_directories(directory.path, failed);
      if (failed) {
        out.push_back(failed.message());
        continue;
      }
      if (is_seen(probe(directory, token), patience)) {
        out.push_back(Probes().add(probe(directory, token + std::to_string(rendezvous_.rank()))));
        continue;
      }
      if (is_new) fs::remove(directory.path, failed);
      out.push_back(kMissing);
    }
    return mesh::pack(out);
  }

  void refuse(std::span<const std::string> texts) const {
    std::vector<int> blind;
    const SharedDirectory* unseen = nullptr;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      const std::vector<std::string> faults = mesh::unpack(texts[rank]);
      for (size_t i = 0; i < faults.size(); ++i) {
        if (faults[i].empty()) continue;
        if (faults[i] != kMissing) refuse_not_writable(directories_[i], static_cast<int>(rank), faults[i]);
        if (unseen == nullptr) unseen = &directories_[i];
        if (unseen == &directories_[i]) blind.push_back(static_cast<int>(rank));
      }
    }
    if (unseen == nullptr) return;
    throw_at_key(
        Error(
            ErrorCode::config, "checkpoint." + unseen->key,
            unseen->key + " " + std::filesystem::absolute(unseen->path).string() +
                " is not one directory on all hosts: the file that " + named({0}) +
                " wrote there is not visible to " + named(with_hosts(blind)),
            "Set checkpoint." + unseen->key +
                " to a directory on a disk that all hosts share. On a cluster without a shared disk, export "
                "a directory of one host to the others over NFS, or set checkpoint.enabled: false to train "
                "without checkpoints."),
        run_.recipe.configuration);
  }

  [[noreturn]] void refuse_not_writable(const SharedDirectory& directory, int rank,
                                        const std::string& fault) const {
    throw_at_key(Error(ErrorCode::config, "checkpoint." + directory.key,
                       directory.key + " " + directory.path.string() + " cannot be written by " +
                           named(with_hosts({rank})) + ": " + fault,
                       "Every rank writes its part of a checkpoint. Give each host the right to write there, "
                       "or set checkpoint." +
                           directory.key + " to another directory."),
                 run_.recipe.configuration);
  }

  // Adds all other ranks of these ranks' hosts if host names are known.
  std::vector<int> with_hosts(const std::vector<int>& ranks) const {
    std::vector<int> out;
    for (int rank = 0; rank < rendezvous_.world_size(); ++rank) {
      const std::string host = rendezvous_.host_name(rank);
      const auto is_beside = [&](int one) {
        return one == rank || (!host.empty() && rendezvous_.host_name(one) == host);
      };
      if (std::any_of(ranks.begin(), ranks.end(), is_beside)) out.push_back(rank);
    }
    return out;
  }

  std::string named(const std::vector<int>& ranks) const {
    return mesh::name_ranks(ranks, [&](int rank) { return rendezvous_.host_name(rank); });
  }

  static constexpr const char* kMissing = "missing";

  Rendezvous& rendezvous_;
  const RunSpec& run_;
  const std::vector<SharedDirectory> directories_;
  Probes probes_;  // used on rank 0
};

}  // namespace

void check_shared_directories(const RunSpec& run, Rendezvous& rendezvous) {
  if (rendezvous.world_size() == 1 || !run.recipe.checkpoint.enabled || run.recipe.benchmark) return;
  SharedCheck(run, rendezvous).check();
}

}  // namespace heddle
