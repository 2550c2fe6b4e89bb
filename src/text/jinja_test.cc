// The template language: statements, scopes, white space, macros, loops. What the examples expect
// is what the reference implementation renders.
#include "text/jinja.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "text/jinja_testing.h"

namespace quire::text::jinja {
namespace {

void ExpectAll(std::initializer_list<Example> examples, std::string_view args = "{}") {
  for (const Example& example : examples) {
    EXPECT_EQ(RenderText(example.source, args), example.expected) << example.source;
  }
}

TEST(Jinja, TextAndOutputAreWrittenAsTheyAre) {
  ExpectAll({
      {"", ""},
      {"plain { text } % # }}", "plain { text } % # }}"},
      {"a{{ 'b' }}c", "abc"},
      {"{{ 1 }}{{ 1.5 }}{{ true }}{{ none }}{{ [1, 'a'] }}", "11.5TrueNone[1, 'a']"},
      {"{{ 'a' 'b' }}", "ab"},
      {"{{ 'tab\\tquote\\'x\\x41\\u00e9' }}", "tab\tquote'xAé"},
      {"{{ 1, 2 }}", "(1, 2)"},
      {"line\n", "line"},
      {"line\n\n", "line\n"},
      {"a\r\nb\rc", "a\nb\nc"},
  });
}

TEST(Jinja, BlockTagsTakeTheirLineBreakAndIndentAlong) {
  ExpectAll({
      {"{% if true %}\na\n{% endif %}\nb", "a\nb"},
      {"x\n  {% if true %}\n  a\n  {% endif %}\nb", "x\n  a\nb"},
      {"x {% if true %} a {% endif %} b", "x  a  b"},
      {"  {{ 1 }}\n  x", "  1\n  x"},
      {"a\n  {# note #}\nb", "a\nb"},
      {"  {%+ if true %}a{% endif %}", "  a"},
      {"{% if true +%}\na{% endif %}", "\na"},
      {"{% if true %}\n\na{% endif %}", "\na"},
  });
}

TEST(Jinja, MinusSignsStripWhiteSpace) {
  ExpectAll({
      {"a \n {{- 1 -}} \n b", "a1b"},
      {"a \n {%- if true -%} \n b \n {%- endif -%} \n c", "abc"},
      {"a \n {#- note -#} \n b", "ab"},
      {"\u00a0a\u2003{{- 1 }}", "\u00a0a1"},
      {"{{-1}}", "1"},
      {"{{ -1 }}", "-1"},
  });
}

TEST(Jinja, RawBlocksAndCommentsAreNotInterpreted) {
  ExpectAll({
      {"{% raw %}{{ x }} {% if %}{% endraw %}", "{{ x }} {% if %}"},
      {"a {%- raw -%} {{ x }} {%- endraw -%} b", "a{{ x }}b"},
      {"{# {{ x }} {% if %} #}a", "a"},
      {"{{ '{{ x }}' }}{{ '%}' }}", "{{ x }}%}"},
      {"{{ {'a': {'b': 1}}.a.b}}", "1"},
  });
}

TEST(Jinja, ConditionsChooseTheFirstThatHolds) {
  constexpr const char* kSource =
      "{% if x == 1 %}a{% elif x == 2 %}b{% elif x %}c{% else %}d{% endif %}";
  EXPECT_EQ(RenderText(kSource, R"({"x": 1})"), "a");
  EXPECT_EQ(RenderText(kSource, R"({"x": 2})"), "b");
  EXPECT_EQ(RenderText(kSource, R"({"x": "?"})"), "c");
  EXPECT_EQ(RenderText(kSource, R"({"x": []})"), "d");
  EXPECT_EQ(RenderText(kSource), "d");
}

TEST(Jinja, LoopsKnowWhereTheyAre) {
  ExpectAll({
      {"{% for c in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ c }}{% if loop.first %}F{% endif %}"
       "{% if loop.last %}L{% endif %} {% endfor %}",
       "10aF 21b 32cL "},
      {"{% for i in [1, 2, 3] %}{{ loop.revindex }}{{ loop.revindex0 }}/{{ loop.length }} {% "
       "endfor %}",
       "32/3 21/3 10/3 "},
      {"{% for i in [1, 2] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
       "<1>2 1<2> "},
      {"{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
      {"{% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}", "True False True "},
      {"{% for i in [] %}x{% else %}empty{% endfor %}", "empty"},
      {"{% for i in none_such %}x{% else %}empty{% endfor %}", "empty"},
      {"{% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }} {% endfor %}", "1-2 3-4 "},
      {"{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}", "xy"},
      {"{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "x1y2"},
      {"{% for i in range(6) if i % 2 %}{{ i }}{{ loop.index }}{{ loop.last }} {% endfor %}",
       "11False 32False 53True "},
      {"{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}"
       "{% endif %}{{ i }}{% endfor %}",
       "013"},
      {"{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is not number else i }}{{ loop.depth "
       "}}"
       "{% endfor %}",
       "11223321"},
  });
}

TEST(Jinja, AssignmentsStayInTheirScope) {
  ExpectAll({
      {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
      {"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
       "12 13 1"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% endfor %}"
       "{{ ns.n }}",
       "6"},
      {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
      {"{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}", "a1b3"},
      {"{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "[AB]"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "3"},
      {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"},
      {"{% generation %}said{% endgeneration %}", "said"},
      {"{% print 1, 2 %}", "12"},
  });
}

TEST(Jinja, MacrosTakeDefaultsKeywordsAndCallers) {
  ExpectAll({
      {"{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}"
       "{{ f(c=9, a=7) }}",
       "122;133;729;"},
      {"{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "False"},
      {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}",
       "(1, 2){'x': 3}"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
       "3210"},
      {"{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) f(5) %}{{ y + 1 }}{% endcall %}",
       "<6>"},
      {"{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}", "1"},
      {"{% macro f(a, b) %}{% endmacro %}{{ f.name }}{{ f.arguments }}", "f('a', 'b')"},
      {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}", "12"},
  });
}

TEST(Jinja, MissingThingsAreUndefinedAndUsingThemIsAnError) {
  ExpectAll({
      {"[{{ x }}]", "[]"},
      {"{{ x is defined }}{{ {}.a is defined }}{{ [1][3] is defined }}", "FalseFalseFalse"},
      {"{{ x|default('d') }}{{ ''|default('d') }}{{ ''|default('d', true) }}", "dd"},
      {"{{ 'yes' if x }}{{ 'yes' if x else 'no' }}", "no"},
      {"{{ x == y }}{{ x|length }}{{ x|list }}{{ 'a' in x }}", "True0[]False"},
      {"{{ x.y }}", "ERROR: template line 1: 'x' is undefined"},
      {"\n\n{{ {'a': 1}.b.c }}", "ERROR: template line 3: 'dict object' has no attribute 'b'"},
      {"{{ 'a' + x }}", "ERROR: template line 1: 'x' is undefined"},
      {"{{ x() }}", "ERROR: template line 1: 'x' is undefined"},
  });
}

TEST(Jinja, MistakesNameTheirLine) {
  ExpectAll({
      {"a\n{% if x %}",
       "ERROR: template line 2: expected {% endif %}, found the end of the template"},
      {"\n{% nonsense %}", "ERROR: template line 2: unknown tag 'nonsense'"},
      {"{{ 1 + }}", "ERROR: template line 1: expected an expression, found }}"},
      {"{{ (1] }}", "ERROR: template line 1: unexpected ']', expected ')'"},
      {"{# open", "ERROR: template line 1: a comment is not closed, expected #}"},
      {"{{ 'open }}", "ERROR: template line 1: a string is not closed"},
      {"{{ 1|nosuch }}", "ERROR: template line 1: there is no filter 'nosuch'"},
      {"{{ 1 is nosuch }}", "ERROR: template line 1: there is no test 'nosuch'"},
      {"{% break %}", "ERROR: template line 1: break and continue belong into a loop"},
      {"a\n\n{{ raise_exception('Only users.') }}", "ERROR: template line 3: Only users."},
      {"{{ ? }}", "ERROR: template line 1: unexpected character '?'"},
      {"{{ 99999999999999999999 }}",
       "ERROR: template line 1: the number 99999999999999999999 does not fit 64 bits"},
  });
}

TEST(Jinja, ArgumentsKeepTheirTypesAndOrder) {
  constexpr const char* kArgs =
      R"({"z": {"b": 1, "a": [true, null, 1.0, "é"]}, "u": 18446744073709551615})";
  EXPECT_EQ(RenderText("{{ z }}", kArgs), "{'b': 1, 'a': [True, None, 1.0, 'é']}");
  EXPECT_EQ(RenderText("{{ z|tojson }}", kArgs), R"({"b": 1, "a": [true, null, 1.0, "é"]})");
  EXPECT_EQ(RenderText("{{ u }}", kArgs), "1.8446744073709552e+19");
}

TEST(Jinja, StrftimeNowFormatsTheGivenDay) {
  const RenderOptions options{.limits = {}, .now = Date(2026, 7, 26)};
  EXPECT_EQ(RenderText("{{ strftime_now('%d %b %Y, %A %j %H:%M %f %%') }}", "{}", options),
            "26 Jul 2026, Sunday 207 00:00 000000 %");
  EXPECT_EQ(RenderText("{{ strftime_now('') }}", "{}", options), "");
  EXPECT_EQ(RenderText("{{ strftime_now('%999999d') }}", "{}", options).substr(0, 6), "ERROR:");
  EXPECT_EQ(RenderText("{{ strftime_now('%Y')|length }}"), "4");
}

TEST(Jinja, OneTemplateRendersOnManyThreads) {
  const Result<Template> parsed = Template::Parse(
      "{% macro f(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n='const') %}"
      "{% for i in range(n) %}{{ f(i) }}{% set ns.n = ns.n + 'x' %}{% endfor %}{{ ns.n|length }}");
  ASSERT_TRUE(parsed.ok());
  const std::string expected = *parsed->Render({{"n", 50}});
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        equal[static_cast<size_t>(t)] += *parsed->Render({{"n", 50}}) == expected ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 20));
}

}  // namespace
}  // namespace quire::text::jinja
