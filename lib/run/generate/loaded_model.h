// A model with its weights on one rank, ready for text generation.
#pragma once

#include <memory>
#include <string>

#include "heddle/mesh/device_mesh.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/parallel/stages.h"
#include "lib/run/generate/generate.h"
#include "lib/run/generate/kv_cache.h"
#include "lib/run/model/prepared_model.h"

namespace heddle {

class LoadedModel {
 public:
  // Reads the weights. Throws Error{input}, and Error{usage} if the model is not causal.
  explicit LoadedModel(const PreparedModel& model);

  KvCache* cache() { return cache_.get(); }  // null: see why_no_cache()
  // the model has state that no cache keeps
  const std::string& why_no_cache() const { return why_no_cache_; }
  // Valid for the lifetime of this object.
  Logits logits();

 private:
  LoadedModel(const PreparedModel& model, Units units);

  std::unique_ptr<Rendezvous> rendezvous_;
  std::string why_no_cache_;
  std::unique_ptr<KvCache> cache_;
  DeviceMesh mesh_;
  Stages stages_;
};

}  // namespace heddle
