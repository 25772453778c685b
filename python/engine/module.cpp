// The Python module heddle._engine, which converts objects and exceptions between Python and the engine and
// manages the GIL.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/version.h"
#include "hosted.h"
#include "pipelined.h"
#include "world.h"

namespace py = pybind11;

namespace heddle::python {
namespace {

// A Python object held by C++ code. It is released with the GIL, or leaked after the end of the interpreter.
class Held {
 public:
  explicit Held(py::object object)
      : object_(new py::object(std::move(object)), [](py::object* held) {
          if (!interpreter_lives()) return;
          const py::gil_scoped_acquire gil;
          delete held;
        }) {}
  py::object& operator*() const { return *object_; }

 private:
  std::shared_ptr<py::object> object_;
};

// Raises heddle.Error with all its parts, or KeyboardInterrupt if Ctrl-C has ended a wait.
void set_error(const Error& error) {
  if (PyErr_CheckSignals() != 0) return;
  const py::object type = py::module_::import("heddle.errors").attr("Error");
  const auto made = [&](const Error& one) {
    return type(std::string(name_of(one.code())), one.where(), one.message(), one.hint());
  };
  py::object raised = made(error);
  if (const auto* list = dynamic_cast<const ErrorList*>(&error)) {
    py::list all;
    all.append(raised);
    for (size_t i = 1; i < list->all().size(); ++i) all.append(made(list->all()[i]));
    raised.attr("all") = py::tuple(all);
  }
  PyErr_SetObject(type.ptr(), raised.ptr());
}

// Throws from a hook of a backward. autograd passes on torch's own holder of a Python exception unchanged.
[[noreturn]] void throw_through_autograd(py::error_already_set& error) {
  const py::gil_scoped_acquire gil;
  error.restore();
  python_error raised;
  raised.persist();
  throw std::move(raised);
}

std::function<void(int, std::string, std::string)> log_to(const py::object& sink) {
  return [sink = Held(sink)](int level, const std::string& room, const std::string& text) {
    if (!interpreter_lives()) return;
    const py::gil_scoped_acquire gil;
    try {
      (*sink)(level, room, text);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("heddle's log");
    }
  };
}

ParameterSource source_of(const py::object& read) {
  if (read.is_none()) return {};
  return [read = Held(read)](const Shard& shard) {
    const py::gil_scoped_acquire gil;
    return (*read)(shard.name, shard.tensor, shard.offset, shard.shape).cast<bool>();
  };
}

// Returns whether the attributes of an object may be outputs of a unit: not those of a class, function or
// module.
bool is_record(const py::handle& value) {
  static const py::object& module = *new py::object(py::module_::import("torch.nn").attr("Module"));
  return py::hasattr(value, "__dict__") && !PyType_Check(value.ptr()) && !PyCallable_Check(value.ptr()) &&
         !PyModule_Check(value.ptr()) && !py::isinstance(value, module);
}

// Collects every tensor that requires a gradient in tensors, lists, tuples, dicts and the attributes of data
// classes and other objects. Objects within other objects, such as the layers of a cache, are skipped.
void collect(const py::handle& value, Tensors& out, std::set<const PyObject*>& seen, int depth = 0,
             bool in_record = false) {
  if (THPVariable_Check(value.ptr())) {
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (tensor.requires_grad()) out.push_back(tensor);
    return;
  }
  if (value.is_none() || depth > 16 || !seen.insert(value.ptr()).second) return;
  if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
    for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value))
      collect(item, out, seen, depth + 1, in_record);
  } else if (PyDict_Check(value.ptr())) {
    for (const auto& item : py::reinterpret_borrow<py::dict>(value))
      collect(item.second, out, seen, depth + 1, in_record);
  } else if (py::hasattr(value, "__dataclass_fields__")) {
    collect(value.attr("__dict__"), out, seen, depth + 1, in_record);
  } else if (!in_record && is_record(value)) {
    collect(value.attr("__dict__"), out, seen, depth + 1, true);
  }
}

// Converts a tuple (name, [(parameter name, tensor)], buffers) to a unit.
GivenUnit unit_of(const py::handle& given) {
  const auto parts = py::reinterpret_borrow<py::tuple>(given);
  return {parts[0].cast<std::string>(), parts[1].cast<std::vector<std::pair<std::string, at::Tensor>>>(),
          parts[2].cast<std::vector<at::Tensor>>()};
}

std::shared_ptr<Hosted> make_hosted(const std::shared_ptr<World>& world, const std::string& configuration,
                                    const std::string& origin, const py::list& units,
                                    const py::object& source, const py::object& backward_ended,
                                    bool averages) {
  Hosted::Given given;
  given.world = world;
  given.configuration = configuration;
  given.origin = origin;
  for (const py::handle& unit : units) given.units.push_back(unit_of(unit));
  given.source = source_of(source);
  given.backward_ended = [ended = Held(backward_ended)] {
    try {
      const py::gil_scoped_acquire gil;
      (*ended)();
    } catch (py::error_already_set& error) {
      throw_through_autograd(error);
    }
  };
  given.averages = averages;
  const py::gil_scoped_release no_gil;
  return std::make_shared<Hosted>(std::move(given));
}

py::list list_shards(Hosted& hosted) {
  py::list out;
  for (const Shard* shard : hosted.shards())
    out.append(py::make_tuple(shard->name, shard->tensor, shard->shape, shard->offset, shard->axes));
  return out;
}

void after(Hosted& hosted, size_t unit, const py::object& result) {
  Tensors outputs;
  std::set<const PyObject*> seen;
  collect(result, outputs, seen);
  const py::gil_scoped_release no_gil;
  hosted.after(unit, outputs);
}

std::shared_ptr<World> make_world(double timeout, std::vector<std::string> plugins, const py::object& log) {
  World::Options options{timeout, std::move(plugins), log_to(log)};
  const py::gil_scoped_release no_gil;
  return std::make_shared<World>(options);
}

std::shared_ptr<Pipelined> make_pipelined(const std::shared_ptr<World>& world,
                                          const std::string& configuration, const std::string& origin,
                                          const py::list& pieces, double max_norm,
                                          std::pair<double, double> betas, double eps) {
  std::vector<GivenPiece> given;
  for (const py::handle& piece : pieces) {
    const auto parts = py::reinterpret_borrow<py::tuple>(piece);
    given.push_back({unit_of(parts[0]), [call = Held(parts[1])](Tensors inputs, const Batch& batch) {
                       const py::gil_scoped_acquire gil;
                       return (*call)(std::move(inputs), py::cast(batch)).cast<Tensors>();
                     }});
  }
  StepConfig config;
  config.optimizer.beta1 = betas.first;
  config.optimizer.beta2 = betas.second;
  config.optimizer.eps = eps;
  config.max_norm = max_norm > 0 ? std::optional(max_norm) : std::nullopt;
  const py::gil_scoped_release no_gil;
  return std::make_shared<Pipelined>(world, configuration, origin, std::move(given), config);
}

using NoGil = py::call_guard<py::gil_scoped_release>;

void define_world(py::module_& module) {
  py::class_<World, std::shared_ptr<World>>(module, "World")
      .def(py::init(&make_world))
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def_property_readonly("local_rank", &World::local_rank)
      .def_property_readonly("local_size", &World::local_size)
      .def_property_readonly("launcher", &World::launcher)
      .def_property_readonly("interrupted", &World::interrupted)
      .def("listen", &World::listen)
      .def("barrier", &World::barrier, NoGil())
      .def("exchange", &World::exchange, NoGil())
      .def("abandon", &World::abandon, NoGil())
      .def("leave", &World::leave, NoGil());
}

void define_hosted(py::module_& module) {
  py::class_<Hosted, std::shared_ptr<Hosted>>(module, "Hosted")
      .def(py::init(&make_hosted))
      .def("shards", &list_shards)
      .def("parameter", &Hosted::parameter)
      .def("strategy", &Hosted::strategy)
      .def("warnings", &Hosted::warnings)
      .def("checkpoints", &Hosted::checkpoints)
      .def("autocast", &Hosted::autocast)
      .def("precision", &Hosted::precision)
      .def("begin", &Hosted::begin, NoGil())
      .def("before", &Hosted::before, NoGil())
      .def("after", &after)
      .def("end", &Hosted::end, NoGil())
      .def("abandon", &Hosted::abandon, NoGil())
      .def("synchronize", &Hosted::synchronize)
      .def("parameters_changed", &Hosted::parameters_changed, NoGil())
      .def("norm", &Hosted::norm, NoGil())
      .def("hold_whole", &Hosted::hold_whole, NoGil())
      .def("release_whole", &Hosted::release_whole, NoGil())
      .def("save", &Hosted::save, NoGil())
      .def("load", &Hosted::load, NoGil());
}

void define_pipelined(py::module_& module) {
  py::class_<Batch>(module, "Batch")
      .def(py::init<>())
      .def_readwrite("tokens", &Batch::tokens)
      .def_readwrite("labels", &Batch::labels)
      .def_readwrite("positions", &Batch::positions)
      .def_readwrite("documents", &Batch::documents)
      .def_readwrite("padding", &Batch::padding)
      .def_readwrite("extra", &Batch::extra);
  py::class_<Pipelined, std::shared_ptr<Pipelined>>(module, "Pipelined")
      .def(py::init(&make_pipelined))
      .def("step", &Pipelined::step, NoGil())
      .def("evaluate", &Pipelined::evaluate, NoGil())
      .def("save", &Pipelined::save, NoGil())
      .def("load", &Pipelined::load, NoGil());
}

}  // namespace

PYBIND11_MODULE(_engine, module) {
  module.attr("version") = HEDDLE_VERSION;
  // Translates only heddle's errors, because torch translates its own.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      set_error(error);
    }
  });
  module.def("interpreter_ends", &interpreter_ends);
  module.def("write_checkpoint", &write_checkpoint, NoGil());
  define_world(module);
  define_hosted(module);
  define_pipelined(module);
}

}  // namespace heddle::python
