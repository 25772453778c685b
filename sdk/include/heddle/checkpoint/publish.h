// Directories that appear under their name only when they are complete and on the disk.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

// Makes a file or a directory survive a power cut as it is now. Throws Error{io}.
HEDDLE_API void sync(const std::filesystem::path& path);

// Makes a directory and its missing parents so that they survive a power cut. Throws Error{io}.
HEDDLE_API void make_directories(const std::filesystem::path& path);

// Where a directory is written before it is published: its name with the suffix ".incomplete".
HEDDLE_API std::filesystem::path stage_of(const std::filesystem::path& directory);

// Makes the empty stage of a directory (at `stage` if given, on the same file system), and removes one that
// an interrupted save has left. Throws Error{io} if the directory itself exists.
HEDDLE_API void open_stage(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Syncs every file and directory of the stage, renames it, and syncs the directories above. If it is
// interrupted, the directory is either complete or absent. Throws Error{io}.
HEDDLE_API void publish(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Whether a directory can be renamed from one to the other: both are on one file system, or will be once they
// exist.
HEDDLE_API bool on_one_file_system(const std::filesystem::path& a, const std::filesystem::path& b);

// Makes the link LINK name the directory TARGET beside it; a text file LINK.txt if the file system has no
// links. A reader sees the old target or the new one. Throws Error{io}.
HEDDLE_API void point(const std::filesystem::path& link, const std::string& target);

// Called before `target` is published: once it exists the link names it, even if the process or the machine
// stops before point(). Throws Error{io}.
HEDDLE_API void announce(const std::filesystem::path& link, const std::string& target);

// An announced target that exists becomes the link's target (until then only pointed() knows it); one that
// does not exist is forgotten. Throws Error{io}.
HEDDLE_API void settle(const std::filesystem::path& link);

// What such a link names, or will once point() is done; "": no link.
HEDDLE_API std::string pointed(const std::filesystem::path& link);

// A piece of work on disk that every rank does its part of: it succeeds on all ranks or fails on all.

// A meeting of all ranks after `work`; `key` is used once in a run. Where the work of some ranks threw, the
// Error of the lowest of them is thrown on every rank, so that nobody waits for one that is gone. The work
// may take longer than the meeting's timeout, which is of ranks that give no sign; rank 0 warns then.
HEDDLE_API void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

// The same, and rank 0 gets what the work of each rank returned, in rank order; the others get nothing.
HEDDLE_API std::vector<std::string> tell_first(Rendezvous& meeting, const std::string& key,
                                               const std::function<std::string()>& work);

// The same for work that rank 0 does alone.
HEDDLE_API void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
