// Hostile templates: each ends in an error in bounded time and memory, none crashes.
#include <ctime>

#include <gtest/gtest.h>

#include "text/jinja_testing.h"

namespace quire::text::jinja {
namespace {

std::string Repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// An error that speaks of `what`, within seconds even where sanitizers slow everything down.
void ExpectRefused(const std::string& source, std::string_view what) {
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  const RenderOptions options{
      .limits = {.max_steps = 500'000, .max_memory_bytes = 64 << 20, .max_depth = 400}, .now = {}};
  const std::string text = RenderText(source, "{}", options);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(text.substr(0, 7), "ERROR: ") << source.substr(0, 200);
  EXPECT_NE(text.find(what), std::string::npos) << text << " from " << source.substr(0, 200);
  EXPECT_LT(seconds, 60) << source.substr(0, 200);
}

TEST(JinjaLimits, LoopsWithoutEndRunOutOfSteps) {
  ExpectRefused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                "steps");
  ExpectRefused("{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
                "more than");
  ExpectRefused(
      "{{ range(99999)|map('string')|map('length')|sum and "
      "range(99999)|list|sort|map('string')|join|length * 0 }}" +
          Repeat("{% for i in range(99999) %}{{ i }}{% endfor %}", 300),
      "more than");
}

TEST(JinjaLimits, HugeTextIsRefusedBeforeItIsBuilt) {
  ExpectRefused("{{ 'ab' * 9999999999999 }}", "memory");
  ExpectRefused("{{ ([1] * 9999999999)|length }}", "memory");
  ExpectRefused("{{ 'a'.ljust(9999999999) }}", "memory");
  ExpectRefused("{{ 'a'.zfill(9999999999) }}", "memory");
  ExpectRefused("{{ 'a'|center(9999999999) }}", "memory");
  ExpectRefused("{{ 'a\nb'|indent(9999999999) }}", "memory");
  ExpectRefused("{{ [1]|tojson(indent=9999999999) }}", "memory");
  ExpectRefused("{{ '%9999999999d' % 1 }}", "width");
  ExpectRefused("{{ '{:9999999999}'.format(1) }}", "width");
  ExpectRefused("{{ range(999999999) }}", "range");
  ExpectRefused("{{ [1]|batch(999999999, 0)|list }}", "batch");
}

TEST(JinjaLimits, DoublingRunsOutOfMemoryOrSteps) {
  ExpectRefused(
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "more than");
  ExpectRefused(
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}"
      "{% set ns.s = ns.s.replace('a', 'aaaa') %}{% endfor %}",
      "more than");
  ExpectRefused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}"
      "{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "more than");
  ExpectRefused(
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}xxxxxxxx{% endif %}"
      "{% endmacro %}{{ f(40) }}",
      "more than");
  ExpectRefused("{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "more than");
}

TEST(JinjaLimits, SharedValuesDoNotMultiply) {
  const std::string shared =
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}";
  ExpectRefused(shared + "{{ ns.l }}", "more than");
  ExpectRefused(shared + "{{ ns.l|tojson }}", "more than");
  const std::string other =
      "{% set ms = namespace(l=[1]) %}{% for i in range(99) %}{% set ms.l = [ms.l, ms.l] %}"
      "{% endfor %}";
  ExpectRefused(shared + other + "{{ ns.l == ms.l }}", "more than");
  ExpectRefused(shared + other + "{{ ns.l < ms.l }}", "more than");
  ExpectRefused(
      "{% set ns = namespace(l=(1,)) %}{% for i in range(99) %}"
      "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
      "key");
}

TEST(JinjaLimits, DeepNestingIsRefused) {
  ExpectRefused("{{ " + Repeat("(", 100'000) + "1" + Repeat(")", 100'000) + " }}", "deep");
  ExpectRefused("{{ " + Repeat("[", 100'000) + Repeat("]", 100'000) + " }}", "deep");
  ExpectRefused("{{ " + Repeat("not ", 100'000) + "1 }}", "deep");
  ExpectRefused("{{ " + Repeat("-", 100'000) + "1 }}", "deep");
  ExpectRefused("{{ 1" + Repeat(" + 1", 100'000) + " }}", "deep");
  ExpectRefused("{{ x" + Repeat(".a", 100'000) + " }}", "deep");
  ExpectRefused("{{ 1" + Repeat("|abs", 100'000) + " }}", "deep");
  ExpectRefused("{{ 1" + Repeat(" if 1 else 1", 100'000) + " }}", "deep");
  ExpectRefused(Repeat("{% if 1 %}", 100'000), "deep");
  ExpectRefused("{% if 1 %}" + Repeat("{% elif 1 %}", 100'000) + "{% endif %}", "deep");
  ExpectRefused("{% set " + Repeat("(", 100'000) + "x" + Repeat(")", 100'000) + " = 1 %}", "deep");
  ExpectRefused("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "deep");
  ExpectRefused("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
                "deep");
  ExpectRefused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep");
  ExpectRefused("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "deep");
  ExpectRefused("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "deep");
  ExpectRefused("{{ '" + Repeat("{:", 1'000) + Repeat("}", 1'000) + "'.format(" +
                    Repeat("1,", 1'000) + ") }}",
                "deep");
}

TEST(JinjaLimits, DeepValuesDieWithoutDeepStacks) {
  EXPECT_EQ(RenderText("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
                       "{% set ns.l = [ns.l] %}{% endfor %}done"),
            "done");
  EXPECT_EQ(RenderText("{% set ns = namespace(l={}) %}{% for i in range(99999) %}"
                       "{% set ns.l = {'a': (ns.l,)} %}{% endfor %}done"),
            "done");
  EXPECT_EQ(RenderText("{% set ns = namespace(f=1) %}{% for i in range(50000) %}"
                       "{% set old = ns.f %}{% macro f() %}{{ old }}{% endmacro %}"
                       "{% set ns.f = f %}{% endfor %}done"),
            "done");
  EXPECT_EQ(RenderText("{% set ns = namespace(l=1) %}{% for i in range(50000) %}"
                       "{% for x in [ns.l]|select %}{% set ns.l = loop %}{% endfor %}"
                       "{% endfor %}done"),
            "done");
  EXPECT_EQ(RenderText("{% set ns = namespace(m='') %}{% for i in range(50000) %}"
                       "{% set l = [ns.m] %}{% set ns.m = l.append %}{% endfor %}done"),
            "done");
}

TEST(JinjaLimits, CyclesAreFreed) {  // the leak checker of the asan build watches
  EXPECT_EQ(
      RenderText("{% set l = [] %}{% set _ = l.append(l) %}{% set d = {} %}"
                 "{% set _ = d.update({'d': d, 'l': l}) %}{% set ns = namespace() %}"
                 "{% set ns.ns = ns %}{% macro f() %}{{ f }}{% endmacro %}"
                 "{% for x in [1, 2] %}{% set ns.loop = loop %}{% set _ = loop.changed(loop) %}"
                 "{% set ns.m = l.append %}{% endfor %}ok"),
      "ok");
}

TEST(JinjaLimits, SearchingIsLinearInHostileTexts) {
  const std::string texts = "{% set t = 'a' * 999999 %}{% set p = 'a' * 99999 + 'b' %}";
  EXPECT_EQ(RenderText(texts + "{{ p in t }}{{ t.find(p) }}{{ t.replace(p, '')|length }}"
                               "{{ t.split(p)|length }}{{ t.count(p) }}"),
            "False-199999910");
  ExpectRefused(texts + "{{ t.rfind('b' + p) }}", "steps");
  ExpectRefused(texts + "{{ t.rsplit('b' + p, 3) }}", "steps");
  ExpectRefused(texts + "{{ t.strip(p) }}", "steps");
}

TEST(JinjaLimits, LimitsAreTheCallers) {
  const char* kLoop = "{% for i in range(100) %}xx{% endfor %}";
  EXPECT_EQ(RenderText(kLoop).size(), 200u);
  EXPECT_EQ(RenderText(kLoop, "{}", {.limits = {.max_steps = 100}, .now = {}}),
            "ERROR: template line 1: the template takes more than 100 steps");
  EXPECT_EQ(RenderText(kLoop, "{}", {.limits = {.max_output_bytes = 100}, .now = {}}),
            "ERROR: template line 1: the template writes more than 100 bytes");
  EXPECT_EQ(RenderText("{{ 'x' * 9999 }}", "{}", {.limits = {.max_memory_bytes = 5000}, .now = {}}),
            "ERROR: template line 1: the template needs more than 5000 bytes of memory");
}

TEST(JinjaLimits, LimitsAreOfTheKindExhausted) {
  const Result<Template> parsed = Template::Parse("{{ 'x' * 99999999999 }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Render({}).error().kind, ErrorKind::kExhausted);
  EXPECT_EQ(Template::Parse("{{ \xff }}").error().message, "the template is not UTF-8");
}

}  // namespace
}  // namespace quire::text::jinja
