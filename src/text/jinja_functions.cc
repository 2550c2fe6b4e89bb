// The functions every template can call.
#include <map>

#include "text/jinja_objects.h"
#include "text/jinja_parameters.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox

Value MakeRange(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"});
  const int64_t first = parameters.Int(0);
  const int64_t start = parameters.Has(1) ? first : 0;
  const int64_t stop = parameters.Has(1) ? parameters.Int(1) : first;
  const int64_t step = parameters.IntOr(2, 1);
  if (step == 0) Fail("range() needs a step other than 0");
  const Value range = Value::Range(&interpreter.budget(), start, stop, step);
  if (range.range().size() > kMaxRange) {
    Fail("range() gives at most {} numbers, this one has {}", kMaxRange, range.range().size());
  }
  return range;
}

// dict(mapping or pairs, key=value, ...): the common part of dict and namespace.
Value FillDict(Interpreter& interpreter, Value dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) Fail("dict() takes at most one positional argument");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries()) {
        interpreter.budget().Step();
        dict.dict().Set(key, value);
      }
      continue;
    }
    for (const Value& pair : ToVector(interpreter.budget(), source)) {
      const std::vector<Value> items = ToVector(interpreter.budget(), pair);
      if (items.size() != 2) Fail("dict() needs pairs, found {} values", items.size());
      dict.dict().Set(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict.dict().Set(interpreter.MakeString(name), value);
  }
  return dict;
}

Value MakeDict(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  return FillDict(interpreter, Value::Dict(&interpreter.budget()), arguments);
}

Value MakeNamespace(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  return FillDict(interpreter, Value::Namespace(&interpreter.budget()), arguments);
}

Value RaiseException(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"});
  Fail("{}", ToStr(interpreter.budget(), parameters.Required(0)));
}

Value StrftimeNow(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"});
  std::string format = parameters.Text(0);
  constexpr size_t kMaxFormat = 1024;
  if (format.size() > kMaxFormat) Fail("a date format has at most {} bytes", kMaxFormat);
  for (size_t at = format.find('%'); at != std::string::npos; at = format.find('%', at + 2)) {
    if (at + 1 < format.size() && format[at + 1] == 'f') format.replace(at, 2, "000000");
  }
  if (format.empty()) return interpreter.MakeString("");
  format += ' ';  // an empty result can then be told from one that does not fit
  std::string out(16 * kMaxFormat, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &interpreter.now()));
  if (out.empty()) Fail("the date format '{}' gives too long a text", parameters.Text(0));
  out.pop_back();
  return interpreter.MakeString(ReplaceInvalidUtf8(out));
}

// joiner(", "): nothing when called first, the separator from then on.
class JoinerObject : public CallableObject {
 public:
  JoinerObject(Budget* budget, Value separator)
      : CallableObject(budget), separator_(std::move(separator)) {
    Charge(128);
  }
  ~JoinerObject() override { ReleaseFlat({std::move(separator_)}); }
  Value Call(Interpreter& interpreter, Arguments) override {
    return std::exchange(used_, true) ? separator_ : interpreter.MakeString("");
  }
  std::string Repr() const override { return "<Joiner>"; }
  std::string_view TypeName() const override { return "Joiner"; }

 private:
  Value separator_;
  bool used_ = false;
};

Value MakeJoiner(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters parameters("joiner", arguments, {"sep"});
  return Value::Callable(std::make_shared<JoinerObject>(
      &interpreter.budget(), parameters.Or(0, interpreter.MakeString(", "))));
}

}  // namespace

const Value* FindFunction(std::string_view name) {
  auto function = [](std::string_view called, Builtin builtin) {
    return std::pair(called, Value::Callable(std::make_shared<FunctionObject>(called, builtin)));
  };
  static const std::map<std::string_view, Value> functions = {
      function("range", MakeRange),
      function("dict", MakeDict),
      function("namespace", MakeNamespace),
      function("joiner", MakeJoiner),
      function("raise_exception", RaiseException),
      function("strftime_now", StrftimeNow),
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : &found->second;
}

}  // namespace quire::text::jinja
