// Looks at the size of a file before it is read.
#include "lib/checkpoint/huggingface/note_size.h"

#include <string>
#include <system_error>

#include "heddle/base/error.h"

namespace heddle::checkpoint {

void refuse_large_note(const std::filesystem::path& file) {
  std::error_code missing;
  const uintmax_t bytes = std::filesystem::file_size(file, missing);
  if (missing || bytes <= kLargestNote) return;
  throw Error(ErrorCode::input, file.string(),
              "is larger than " + std::to_string(kLargestNote >> 20) + " MiB", "is it a model's own file?");
}

}  // namespace heddle::checkpoint
