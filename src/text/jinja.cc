#include "text/jinja.h"

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr size_t kMaxSource = 4 << 20;

Error AtLine(const Failure& failure, int line) {
  return MakeError(failure.kind, "template line {}: {}", failure.line > 0 ? failure.line : line,
                   failure.message);
}

std::tm LocalNow() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

Value FromText(Budget& budget, std::string_view text) {
  budget.CheckRoom(static_cast<int64_t>(text.size()));
  return Value::String(&budget, IsValidUtf8(text) ? std::string(text) : ReplaceInvalidUtf8(text));
}

Value FromJson(Budget& budget, const boost::json::value& json) {
  budget.Step();
  Nesting nesting(budget);
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::None();
    case boost::json::kind::bool_:
      return Value::Bool(json.get_bool());
    case boost::json::kind::int64:
      return Value::Int(json.get_int64());
    case boost::json::kind::uint64:
      return json.get_uint64() <= INT64_MAX ? Value::Int(static_cast<int64_t>(json.get_uint64()))
                                            : Value::Float(static_cast<double>(json.get_uint64()));
    case boost::json::kind::double_:
      return Value::Float(json.get_double());
    case boost::json::kind::string: {
      const boost::json::string& text = json.get_string();
      return FromText(budget, {text.data(), text.size()});
    }
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const boost::json::value& item : json.get_array()) {
        items.push_back(FromJson(budget, item));
      }
      return Value::List(&budget, std::move(items));
    }
    case boost::json::kind::object: {
      Value dict = Value::Dict(&budget);
      for (const auto& [key, item] : json.get_object()) {
        dict.dict().Set(FromText(budget, {key.data(), key.size()}), FromJson(budget, item));
      }
      return dict;
    }
  }
  return Value::None();
}

}  // namespace

struct Template::Parsed {
  Body body;
};

std::tm Date(int year, int month, int day) {
  std::tm date{};
  date.tm_year = year - 1900;
  date.tm_mon = month - 1;
  date.tm_mday = day;
  timegm(&date);  // fills in the day of the week and of the year
  return date;
}

Template::Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::Parse(std::string source) {
  if (source.size() > kMaxSource) {
    return MakeError(ErrorKind::kInvalid, "the template has {} bytes, at most {} are supported",
                     source.size(), kMaxSource);
  }
  if (!IsValidUtf8(source)) return MakeError(ErrorKind::kInvalid, "the template is not UTF-8");
  try {
    auto parsed = std::make_shared<Parsed>();
    parsed->body = jinja::Parse(source);
    return Template(std::move(parsed));
  } catch (const Failure& failure) {
    return AtLine(failure, 1);
  }
}

Result<std::string> Template::Render(const boost::json::object& args,
                                     const RenderOptions& options) const {
  Interpreter interpreter(options.limits, options.now ? *options.now : LocalNow());
  try {
    for (const auto& [name, value] : args) {
      interpreter.globals().Set({name.data(), name.size()}, FromJson(interpreter.budget(), value));
    }
    return interpreter.Render(parsed_->body);
  } catch (const Failure& failure) {
    return AtLine(failure, interpreter.line());
  }
}

}  // namespace quire::text::jinja
