// Defaults of data sets, and out-of-line destructors that anchor the vtables.
#include "heddle/data/dataset.h"

#include <algorithm>
#include <utility>

namespace heddle {

MissingData::MissingData(std::vector<One> missing)
    : Error(ErrorCode::input, missing.front().where, missing.front().what,
            "paths are relative to " + std::filesystem::current_path().string()),
      all_(std::move(missing)) {}
MissingData::~MissingData() = default;

IDataset::~IDataset() = default;

int64_t IDataset::longest() const {
  if (!is_uneven()) return row_length();
  int64_t most = 0;
  for (int64_t sample = 0; sample < size(); ++sample) most = std::max(most, length(sample));
  return most;
}

bool IDataset::verify(DataNotes&) const {
  return true;
}

}  // namespace heddle
