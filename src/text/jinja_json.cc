#include <algorithm>
#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

std::string FloatText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FloatRepr(value);
}

class JsonWriter {
 public:
  JsonWriter(Writer& out, const JsonStyle& style) : out_(out), style_(style) {}

  void Write(const Value& value) {
    out_.budget().Step();
    Nesting nesting(out_.budget());
    switch (value.kind()) {
      case Kind::kNone:
        return out_.Append("null");
      case Kind::kBool:
        return out_.Append(value.integer() != 0 ? "true" : "false");
      case Kind::kInt:
        return out_.Append(std::to_string(value.integer()));
      case Kind::kFloat:
        return out_.Append(FloatText(value.number()));
      case Kind::kString:
        return String(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return List(value.items());
      case Kind::kDict:
        return Dict(value.dict());
      default:
        Fail("an object of type {} is not JSON serializable{}", value.TypeName(),
             value.is(Kind::kUndefined) ? fmt::format(" ({})", value.undefined_hint()) : "");
    }
  }

 private:
  void List(const std::vector<Value>& items) {
    if (items.empty()) return out_.Append("[]");
    out_.Append("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      Write(items[i]);
    }
    --level_;
    NewLine();
    out_.Append("]");
  }

  void Dict(const DictObject& dict) {
    if (dict.entries().empty()) return out_.Append("{}");
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.key_order == KeyOrder::kSorted) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
        return Compare(out_.budget(), a->first, b->first, "<") < 0;
      });
    }
    out_.Append("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      Key(entries[i]->first);
      out_.Append(style_.key_separator);
      Write(entries[i]->second);
    }
    --level_;
    NewLine();
    out_.Append("}");
  }

  void Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return String(key.text());
      case Kind::kBool:
        return String(key.integer() != 0 ? "true" : "false");
      case Kind::kNone:
        return String("null");
      case Kind::kInt:
        return String(std::to_string(key.integer()));
      case Kind::kFloat:
        return String(FloatText(key.number()));
      default:
        Fail("keys must be str, int, float, bool or None, not {}", key.TypeName());
    }
  }

  void NewLine() {
    if (!style_.indent) return;
    out_.Append("\n");
    for (int i = 0; i < level_; ++i) out_.Append(*style_.indent);
  }

  void String(std::string_view text) {
    std::string out = "\"";
    out_.budget().CheckRoom(2 * static_cast<int64_t>(text.size()));
    out.reserve(text.size() + 2);
    for (size_t offset = 0; offset < text.size();) {
      const size_t start = offset;
      const char32_t c = NextCodePoint(text, offset);
      if (c == '"' || c == '\\') {
        out += '\\';
        out += static_cast<char>(c);
      } else if (c < 0x20) {
        Control(out, c);
      } else if (c >= 0x7F && style_.non_ascii == NonAscii::kEscaped) {
        Escape(out, c);
      } else {
        out += text.substr(start, offset - start);
      }
    }
    out += '"';
    out_.Append(out);
  }

  static void Control(std::string& out, char32_t c) {
    static constexpr std::string_view kShort = "\b\f\n\r\t";
    static constexpr std::string_view kLetters = "bfnrt";
    const size_t i = kShort.find(static_cast<char>(c));
    if (i == std::string_view::npos) return Escape(out, c);
    out += '\\';
    out += kLetters[i];
  }

  static void Escape(std::string& out, char32_t c) {
    if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      return;
    }
    const auto above = static_cast<uint32_t>(c - 0x10000);
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
  }

  Writer& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

void AppendJson(Writer& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).Write(value);
}

}  // namespace quire::text::jinja
