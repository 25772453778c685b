// All headers that a plugin needs: the interfaces, the schema, and HEDDLE_PLUGIN, which writes the entry
// point.
#pragma once

#include "heddle/base/error.h"
#include "heddle/config/schema.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/config_keys.h"
#include "heddle/model/family.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/plan.h"
#include "heddle/parallel/reduction.h"
#include "heddle/parallel/strategy.h"
#include "heddle/plugin/entry_point.h"
#include "heddle/plugin/offer.h"
