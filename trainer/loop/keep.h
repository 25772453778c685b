// What a published checkpoint changes beside it: the pointers to the newest and the best.
#pragma once

#include <filesystem>

#include "trainer/loop/save.h"

namespace heddle {

// On rank 0, once `directory` is published: LATEST points to it. Throws Error{io}.
void keep(const Job& job, const std::filesystem::path& directory, const Losses& losses);

}  // namespace heddle
