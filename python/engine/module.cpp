// The Python module heddle._engine: the GIL, exceptions and objects between the package and the engine.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/version.h"
#include "hosted.h"
#include "pipelined.h"
#include "world.h"

namespace py = pybind11;

namespace heddle::python {
namespace {

// A Python object that C++ code holds: dropped with the GIL, and leaked once the interpreter has ended.
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

// heddle.Error with its parts; KeyboardInterrupt where Ctrl-C has ended a wait.
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

// In a hook of a backward: autograd passes on torch's own holder of a Python exception as the exception.
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

// Every tensor that requires a gradient in tensors, lists, tuples, dicts and the attributes of a data class.
void collect(const py::handle& value, Tensors& out, int depth = 0) {
  if (THPVariable_Check(value.ptr())) {
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (tensor.requires_grad()) out.push_back(tensor);
    return;
  }
  if (value.is_none() || depth > 16) return;
  if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
    for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value)) collect(item, out, depth + 1);
  } else if (PyDict_Check(value.ptr())) {
    for (const auto& item : py::reinterpret_borrow<py::dict>(value)) collect(item.second, out, depth + 1);
  } else if (py::hasattr(value, "__dataclass_fields__")) {
    collect(value.attr("__dict__"), out, depth + 1);
  }
}

// A unit of a tuple (name, [(parameter's name, tensor)], buffers).
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
  given.backward_ended = [ended = Held(backward_ended)](bool synchronized) {
    try {
      const py::gil_scoped_acquire gil;
      (*ended)(synchronized);
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
  collect(result, outputs);
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
      .def(
          "parameters_changed", [](Hosted& hosted) { hosted.parameters_changed(); }, NoGil())
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
  // Only heddle's own errors: torch translates its own.
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
