// Operators, filters, tests and methods. Every expected text is what the reference implementation
// renders.
#include <gtest/gtest.h>

#include "text/jinja_testing.h"

namespace quire::text::jinja {
namespace {

void ExpectAll(std::initializer_list<Example> examples) {
  constexpr const char* kArgs = R"({"m": [{"role": "user", "n": 2},
      {"role": "assistant", "n": 1, "x": {"y": 5}}, {"role": "user", "n": 0}]})";
  for (const Example& example : examples) {
    const std::string source = std::string("{{ ") + example.source + " }}";
    EXPECT_EQ(RenderText(source, kArgs), example.expected) << source;
  }
}

TEST(JinjaExpressions, ArithmeticIsPythons) {
  ExpectAll({
      {R"(1 + 2 * 3)", R"(7)"},
      {R"(7 / 2)", R"(3.5)"},
      {R"(7 // 2)", R"(3)"},
      {R"(-7 // 2)", R"(-4)"},
      {R"(7 % 3)", R"(1)"},
      {R"(-7 % 3)", R"(2)"},
      {R"(7 % -3)", R"(-2)"},
      {R"(2 ** 10)", R"(1024)"},
      {R"(2 ** -1)", R"(0.5)"},
      {R"(2 ** 3 ** 2)", R"(64)"},
      {R"(-2 ** 2)", R"(4)"},
      {R"(1.5 + 1)", R"(2.5)"},
      {R"(7.5 // 2)", R"(3.0)"},
      {R"(-7.5 % 2)", R"(0.5)"},
      {R"(10 / 5)", R"(2.0)"},
      {R"(1e16)", R"(1e+16)"},
      {R"(1e-5)", R"(1e-05)"},
      {R"(0.1 + 0.2)", R"(0.30000000000000004)"},
      {R"(100000000000000000.0)", R"(1e+17)"},
      {R"(true + 1)", R"(2)"},
      {R"('ab' * 3)", R"(ababab)"},
      {R"(3 * [1])", R"([1, 1, 1])"},
      {R"([1] + [2])", R"([1, 2])"},
      {R"((1,) + (2,))", R"((1, 2))"},
      {R"('a' ~ 1 ~ none ~ 1.0)", R"(a1None1.0)"},
      {R"('%s=%05.2f' % ('x', 3.14159))", R"(x=03.14)"},
      {R"('%d%%' % 5)", R"(5%)"},
      {R"('%(a)s' % {'a': 1})", R"(1)"},
      {R"(-3 | abs)", R"(3)"},
      {R"(- 3 + 5)", R"(2)"},
      {R"(+true)", R"(1)"},
      {R"(1_000 + 0x1F + 0b11 + 0o17)", R"(1049)"},
  });
}

TEST(JinjaExpressions, ComparisonsChainAndShortCircuit) {
  ExpectAll({
      {R"(1 < 2 < 3)", R"(True)"},
      {R"(1 < 3 < 2)", R"(False)"},
      {R"(1 == 1.0 == true)", R"(True)"},
      {R"('a' < 'b')", R"(True)"},
      {R"([1, 2] < [1, 3])", R"(True)"},
      {R"((1, 2) == (1, 2))", R"(True)"},
      {R"([1] == (1,))", R"(False)"},
      {R"({'a': 1} == {'a': 1.0})", R"(True)"},
      {R"(2 in [1, 2])", R"(True)"},
      {R"('b' in 'abc')", R"(True)"},
      {R"('a' in {'a': 1})", R"(True)"},
      {R"(3 not in range(3))", R"(True)"},
      {R"(not 1 in [1])", R"(False)"},
      {R"(0 or 'x')", R"(x)"},
      {R"(1 and '')", R"()"},
      {R"(none or false or [])", R"([])"},
      {R"('a' if 1 else 'b')", R"(a)"},
      {R"('a' if 0 else 'b' if 0 else 'c')", R"(c)"},
      {R"(not '')", R"(True)"},
      {R"(none == none)", R"(True)"},
      {R"(undef == undef)", R"(True)"},
      {R"(undef == none)", R"(False)"},
      {R"(1 != '1')", R"(True)"},
  });
}

TEST(JinjaExpressions, SlicesTakeNegativeSteps) {
  ExpectAll({
      {R"('abcdef'[1:3])", R"(bc)"},
      {R"('abcdef'[::-1])", R"(fedcba)"},
      {R"('abcdef'[-2:])", R"(ef)"},
      {R"('abcdef'[:-2])", R"(abcd)"},
      {R"('abcdef'[4:1:-2])", R"(ec)"},
      {R"('abcdef'[10:])", R"()"},
      {R"([1,2,3,4][::2])", R"([1, 3])"},
      {R"([1,2,3,4][-1])", R"(4)"},
      {R"((1,2,3)[1:])", R"((2, 3))"},
      {R"(range(10)[2:8:3]|list)", R"([2, 5])"},
      {R"('héllo 你好'[1:7])", R"(éllo 你)"},
      {R"('你好'[1])", R"(好)"},
      {R"('你好'[::-1])", R"(好你)"},
      {R"([1,2,3][5] is defined)", R"(False)"},
      {R"([1,2,3][true])", R"(2)"},
      {R"('abc'[none:2])", R"(ab)"},
  });
}

TEST(JinjaExpressions, ValuesPrintAsInPython) {
  ExpectAll({
      {R"([1, 1.0, true, none, 'a'])", R"([1, 1.0, True, None, 'a'])"},
      {R"({'a': [1, {'b': ()}], 2: 'x'})", R"({'a': [1, {'b': ()}], 2: 'x'})"},
      {R"((1,))", R"((1,))"},
      {R"(['it\'s', 'say "x"', 'both \' "'])", R"(["it's", 'say "x"', 'both \' "'])"},
      {R"(['\n\t\\ \x00 \x7f \u00e9 \u200b'])", R"(['\n\t\\ \x00 \x7f é \u200b'])"},
      {R"(range(3))", R"(range(0, 3))"},
      {R"(range(1, 9, 2))", R"(range(1, 9, 2))"},
      {R"({'a': 1}.items())", R"(dict_items([('a', 1)]))"},
      {R"({'a': 1}.keys())", R"(dict_keys(['a']))"},
      {R"({'a': 1}.values())", R"(dict_values([1]))"},
      {R"([undef])", R"([Undefined])"},
      {R"(1e22)", R"(1e+22)"},
      {R"(1.0e-7)", R"(1e-07)"},
      {R"(123456789012345680.0)", R"(1.2345678901234568e+17)"},
      {R"(-0.0)", R"(-0.0)"},
      {R"('你')", R"(你)"},
      {R"(['你🚀'])", R"(['你🚀'])"},
  });
}

TEST(JinjaExpressions, FiltersOfText) {
  ExpectAll({
      {R"(' a '|trim)", R"(a)"},
      {R"('xxaxx'|trim('x'))", R"(a)"},
      {R"('aB'|upper)", R"(AB)"},
      {R"('aB'|lower)", R"(ab)"},
      {R"('straße'|upper)", R"(STRASSE)"},
      {R"('hello wORLD (foo) a-b'|title)", R"(Hello World (Foo) A-B)"},
      {R"('hELLO'|capitalize)", R"(Hello)"},
      {R"('aXbX'|replace('X', '-'))", R"(a-b-)"},
      {R"('aXbX'|replace('X', '-', 1))", R"(a-bX)"},
      {R"(1.0|string)", R"(1.0)"},
      {R"('a'|length)", R"(1)"},
      {R"('你好'|length)", R"(2)"},
      {R"('a\nb\n\nc'|indent)", R"(a
    b

    c)"},
      {R"('a\nb\n\nc'|indent(2, true))", R"(  a
  b

  c)"},
      {R"('a\n\nb'|indent('> ', blank=true))", R"(a
> 
> b)"},
      {R"('%s-%s'|format(1, 'x'))", R"(1-x)"},
      {R"('%(a)s'|format(a=1))", R"(1)"},
      {R"('<a href="x">'|e)", R"(&lt;a href=&#34;x&#34;&gt;)"},
      {R"('hello world foo'|truncate(9))", R"(hello...)"},
      {R"('hello world foo'|truncate(9, true))", R"(hello ...)"},
      {R"('a b, c_d'|wordcount)", R"(3)"},
      {R"('ab'|center(6))", R"(  ab  )"},
      {R"('abc'|reverse)", R"(cba)"},
      {R"('abc'|list)", R"(['a', 'b', 'c'])"},
      {R"('abc'|first ~ 'abc'|last)", R"(ac)"},
  });
}

TEST(JinjaExpressions, FiltersOfNumbers) {
  ExpectAll({
      {R"('42'|int)", R"(42)"},
      {R"('4_2'|int)", R"(42)"},
      {R"('x'|int)", R"(0)"},
      {R"('x'|int(7))", R"(7)"},
      {R"('ff'|int(base=16))", R"(255)"},
      {R"('0x1f'|int(base=0))", R"(31)"},
      {R"('3.7'|int)", R"(3)"},
      {R"(3.7|int)", R"(3)"},
      {R"(-3.7|int)", R"(-3)"},
      {R"('1e3'|int)", R"(1000)"},
      {R"(true|int)", R"(1)"},
      {R"(none|int)", R"(0)"},
      {R"('2.5'|float)", R"(2.5)"},
      {R"('x'|float(1.0))", R"(1.0)"},
      {R"('inf'|float)", R"(inf)"},
      {R"(3|float)", R"(3.0)"},
      {R"(2.5|round)", R"(2.0)"},
      {R"(3.5|round)", R"(4.0)"},
      {R"(2.675|round(2))", R"(2.67)"},
      {R"(1234|round(-2))", R"(1200)"},
      {R"(2.1|round(0, 'ceil'))", R"(3.0)"},
      {R"(2.19|round(1, 'floor'))", R"(2.1)"},
      {R"(-5|abs)", R"(5)"},
      {R"(1.5|abs)", R"(1.5)"},
      {R"([1, 2.5]|sum)", R"(3.5)"},
      {R"([1, 2]|sum(start=10))", R"(13)"},
      {R"([3, 1, 2]|min)", R"(1)"},
      {R"(['b', 'A']|max)", R"(b)"},
  });
}

TEST(JinjaExpressions, ToJsonIsJsonDumps) {
  ExpectAll({
      {R"({'a': [1, 2.0, true, none, 'x']}|tojson)", R"({"a": [1, 2.0, true, null, "x"]})"},
      {R"({'a': 1, 'b': []}|tojson(indent=2))", R"({
  "a": 1,
  "b": []
})"},
      {R"([1, [2, {}]]|tojson(indent=4))", R"([
    1,
    [
        2,
        {}
    ]
])"},
      {R"('é你🚀 " \\ \n \t \x01 </script>'|tojson)", R"("é你🚀 \" \\ \n \t \u0001 </script>")"},
      {R"('\x7f'|tojson|length)", "3"},
      {R"('é🚀'|tojson(ensure_ascii=true))", R"("\u00e9\ud83d\ude80")"},
      {R"({'b': 1, 'a': 2}|tojson(sort_keys=true))", R"({"a": 2, "b": 1})"},
      {R"({1: 2, none: 3, true: 4, 1.5: 5}|tojson)", R"({"1": 4, "null": 3, "1.5": 5})"},
      {R"([1, 2]|tojson(separators=(',', ':')))", R"([1,2])"},
      {R"((1, 2)|tojson)", R"([1, 2])"},
      {R"({'a': 1}|tojson(indent='\t'))", "{\n\t\"a\": 1\n}"},
      {R"([]|tojson(indent=2))", R"([])"},
      {R"('1e400'|float|tojson)", R"(Infinity)"},
      {R"({'a':1}|tojson(indent=0))", R"({
"a": 1
})"},
  });
}

TEST(JinjaExpressions, FiltersOfSequences) {
  ExpectAll({
      {R"([1, 2]|join)", R"(12)"},
      {R"([1, 2]|join(', '))", R"(1, 2)"},
      {R"(m|join('+', 'n'))", R"(2+1+0)"},
      {R"([3, 1, 2]|sort)", R"([1, 2, 3])"},
      {R"(['b', 'A', 'c']|sort)", R"(['A', 'b', 'c'])"},
      {R"(['b', 'A']|sort(case_sensitive=true))", R"(['A', 'b'])"},
      {R"([1, 2, 3]|sort(reverse=true))", R"([3, 2, 1])"},
      {R"(m|sort(attribute='n')|map(attribute='n')|list)", R"([0, 1, 2])"},
      {R"(m|sort(attribute='role,n')|map(attribute='n')|list)", R"([1, 0, 2])"},
      {R"({'b': 1, 'A': 2}|dictsort)", R"([('A', 2), ('b', 1)])"},
      {R"({'b': 1, 'a': 2}|dictsort(by='value'))", R"([('b', 1), ('a', 2)])"},
      {R"({'a': 1}|items|list)", R"([('a', 1)])"},
      {R"(['a', 'A', 'b']|unique|list)", R"(['a', 'b'])"},
      {R"(['a', 'A']|unique(true)|list)", R"(['a', 'A'])"},
      {R"([1, 2, 3]|reverse|list)", R"([3, 2, 1])"},
      {R"([1, 2, 3]|first)", R"(1)"},
      {R"([]|first is defined)", R"(False)"},
      {R"([1, 2, 3]|last)", R"(3)"},
      {R"(['a', 'b']|map('upper')|join)", R"(AB)"},
      {R"(m|map(attribute='x.y', default='-')|list)", R"(['-', 5, '-'])"},
      {R"([1, 0, 2]|select|list)", R"([1, 2])"},
      {R"([1, 2, 3]|select('odd')|list)", R"([1, 3])"},
      {R"([1, 2, 3]|reject('gt', 1)|list)", R"([1])"},
      {R"(m|selectattr('n')|list|length)", R"(2)"},
      {R"(m|selectattr('role', 'equalto', 'user')|map(attribute='n')|list)", R"([2, 0])"},
      {R"(m|rejectattr('x', 'defined')|list|length)", R"(2)"},
      {R"([1, 2, 3]|batch(2)|list)", R"([[1, 2], [3]])"},
      {R"([1, 2, 3]|batch(2, 0)|list)", R"([[1, 2], [3, 0]])"},
      {R"(m|groupby('role')|length)", R"(2)"},
      {R"({'a': 1}|length)", R"(1)"},
      {R"(range(5)|list)", R"([0, 1, 2, 3, 4])"},
      {R"(undef|list)", R"([])"},
      {R"([[1, 2], [3]]|sum(start=[]))", R"([1, 2, 3])"},
  });
}

TEST(JinjaExpressions, TestsSayWhatValuesAre) {
  ExpectAll({
      {R"([1 is number, true is number, 1.5 is number, '1' is number])",
       R"([True, True, True, False])"},
      {R"([1 is integer, true is integer, 1.0 is float])", R"([True, False, True])"},
      {R"(['' is string, none is none, true is boolean])", R"([True, True, True])"},
      {R"([{} is mapping, [] is mapping])", R"([True, False])"},
      {R"([[] is sequence, {} is sequence, 'a' is sequence, 1 is sequence])",
       R"([True, True, True, False])"},
      {R"([[] is iterable, 'a' is iterable, 1 is iterable, none is iterable])",
       R"([True, True, False, False])"},
      {R"([undef is defined, undef is undefined, none is defined])", R"([False, True, True])"},
      {R"([3 is odd, 4 is even, 9 is divisibleby 3])", R"([True, True, True])"},
      {R"([1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is ge 2])", R"([True, True, True, True])"},
      {R"(['a' is in 'abc', 3 is in [1]])", R"([True, False])"},
      {R"(['ab' is lower, 'AB' is upper])", R"([True, True])"},
      {R"([true is true, 1 is true, false is false])", R"([True, False, True])"},
      {R"([1 is not string, 'a' is not none])", R"([True, True])"},
      {R"([none is sameas none, 1 is equalto 1.0])", R"([True, True])"},
      {R"(range is callable)", R"(True)"},
      {R"(['upper' is filter, 'nosuch' is filter, 'odd' is test])", R"([True, False, True])"},
      {R"(1 is string or 2 is number and 3 is odd)", R"(True)"},
  });
}

TEST(JinjaExpressions, MethodsOfStrings) {
  ExpectAll({
      {R"('  a '.strip())", R"(a)"},
      {R"('xxaxx'.strip('x'))", R"(a)"},
      {R"(' a '.lstrip() ~ '|')", R"(a |)"},
      {R"(' a '.rstrip() ~ '|')", R"( a|)"},
      {R"('a b  c'.split())", R"(['a', 'b', 'c'])"},
      {R"('a,b,,c'.split(','))", R"(['a', 'b', '', 'c'])"},
      {R"('a,b,c'.split(',', 1))", R"(['a', 'b,c'])"},
      {R"('a b c '.split(none, 1))", R"(['a', 'b c '])"},
      {R"('a,b,c'.rsplit(',', 1))", R"(['a,b', 'c'])"},
      {R"('abc'.startswith('ab'))", R"(True)"},
      {R"('abc'.endswith(('x', 'bc')))", R"(True)"},
      {R"('abcabc'.startswith('ca', 2))", R"(True)"},
      {R"('aXbX'.replace('X', ''))", R"(ab)"},
      {R"('aaa'.replace('', '-'))", R"(-a-a-a-)"},
      {R"('hELLO wORLD'.title())", R"(Hello World)"},
      {R"('hELLO'.capitalize())", R"(Hello)"},
      {R"('aB'.swapcase())", R"(Ab)"},
      {R"('hello'.find('l'))", R"(2)"},
      {R"('hello'.rfind('l'))", R"(3)"},
      {R"('hello'.find('z'))", R"(-1)"},
      {R"('héllo'.find('l'))", R"(2)"},
      {R"('hello'.index('e'))", R"(1)"},
      {R"('hello'.count('l'))", R"(2)"},
      {R"(', '.join(['a', 'b']))", R"(a, b)"},
      {R"('a\nb\r\nc'.splitlines())", R"(['a', 'b', 'c'])"},
      {R"('a\nb'.splitlines(true))", R"(['a\n', 'b'])"},
      {R"('prefix-x'.removeprefix('prefix-'))", R"(x)"},
      {R"('x.txt'.removesuffix('.txt'))", R"(x)"},
      {R"('a=b=c'.partition('='))", R"(('a', '=', 'b=c'))"},
      {R"('a=b=c'.rpartition('='))", R"(('a=b', '=', 'c'))"},
      {R"('7'.zfill(3))", R"(007)"},
      {R"('-7'.zfill(4))", R"(-007)"},
      {R"('a'.ljust(3, '.') ~ 'a'.rjust(3) ~ 'a'.center(4, '*'))", R"(a..  a*a**)"},
      {R"(['12'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace()])",
       R"([True, True, True, True])"},
      {R"(['ab'.islower(), 'AB'.isupper(), 'Ab Cd'.istitle()])", R"([True, True, True])"},
      {R"('{} {1}'.format(1) if false else 'x')", R"(x)"},
      {R"('{} {}'.format(1, 'a'))", R"(1 a)"},
      {R"('{1} {0} {x!r:>5}'.format(1, 'a', x='q'))", R"(a 1   'q')"},
      {R"('{:05.1f}|{:<4}|{:^5}|{:,}|{:x}'.format(3.14159, 'a', 'b', 1234567, 255))",
       R"(003.1|a   |  b  |1,234,567|ff)"},
      {R"('{0[a]} {0.b}'.format({'a': 1}) if false else '{0[a]}'.format({'a': 1}))", R"(1)"},
      {R"('a\tb'.expandtabs(4))", R"(a   b)"},
      {R"('Straße'.casefold())", R"(strasse)"},
      {R"('你好你'.count('你'))", R"(2)"},
  });
}

TEST(JinjaExpressions, MethodsOfContainers) {
  ExpectAll({
      {R"({'a': 1}.get('a'))", R"(1)"},
      {R"({'a': 1}.get('b'))", R"(None)"},
      {R"({'a': 1}.get('b', 2))", R"(2)"},
      {R"({'a': 1}.items()|list)", R"([('a', 1)])"},
      {R"({'a': 1}.keys()|list)", R"(['a'])"},
      {R"({'a': 1, 'items': 5}['items'])", R"(5)"},
      {R"({'items': 5}.items()|list)", R"([('items', 5)])"},
      {R"({'a': {'b': [10, 20]}}.a.b[1])", R"(20)"},
      {R"({'a': {'b': 1}}['a']['b'])", R"(1)"},
      {R"([1, 2, 1].count(1))", R"(2)"},
      {R"([1, 2].index(2))", R"(1)"},
      {R"((1, 2).count(2))", R"(1)"},
      {R"(dict(a=1, b=2))", R"({'a': 1, 'b': 2})"},
      {R"(dict([('a', 1)], b=2))", R"({'a': 1, 'b': 2})"},
      {R"({'a': 1}.copy())", R"({'a': 1})"},
      {R"(namespace(a=1).a)", R"(1)"},
  });
}

TEST(JinjaExpressions, ListsAndDictsCanBeChanged) {
  EXPECT_EQ(RenderText("{% set l = [3, 1] %}{% set _ = l.append(2) %}{{ l }}{{ l.pop() }}"
                       "{% set _ = l.sort() %}{{ l }}{% set _ = l.insert(0, 9) %}{{ l }}"
                       "{% set _ = l.extend([5]) %}{% set _ = l.remove(9) %}{{ l }}"
                       "{% set _ = l.reverse() %}{{ l }}{% set _ = l.clear() %}{{ l }}"),
            "[3, 1, 2]2[1, 3][9, 1, 3][1, 3, 5][5, 3, 1][]");
  EXPECT_EQ(RenderText("{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}, c=3) %}{{ d }}"
                       "{{ d.pop('a') }}{{ d.pop('z', 0) }}{{ d.setdefault('q', 7) }}{{ d }}"
                       "{{ d.popitem() }}{% set e = d %}{% set _ = e.clear() %}{{ d }}"),
            "{'a': 1, 'b': 2, 'c': 3}107{'b': 2, 'c': 3, 'q': 7}('q', 7){}");
}

TEST(JinjaExpressions, WhatPythonRefusesIsAnError) {
  for (const char* source : {"1 / 0",
                             "1 // 0",
                             "1 % 0",
                             "1.0 / 0",
                             "'a' + 1",
                             "1 + 'a'",
                             "[1] + (2,)",
                             "1 < 'a'",
                             "none < 1",
                             "1 in 'a'",
                             "1 in 2",
                             "-'a'",
                             "{[1]: 2}",
                             "{}[1:2].x",
                             "'a'.nosuch()",
                             "none|items",
                             "1|length",
                             "1|list",
                             "none|join",
                             "[1, 'a']|sort",
                             "{1: 2}|tojson(1, 2, 3, 4, 5)",
                             "undef|tojson",
                             "range|tojson",
                             "'%d' % 'a'",
                             "'%s' % (1, 2)",
                             "'%s %s' % 1",
                             "'{}'.format()",
                             "'{'.format()",
                             "''.join([1])",
                             "'a'.split('')",
                             "[].pop()",
                             "{}.pop('a')",
                             "'a'.index('b')",
                             "range(1, 2, 0)",
                             "namespace(1)",
                             "1|round(1, 'up')",
                             "'x'|indent(none)",
                             "1.name.x",
                             "'abc'[::0]",
                             "2 ** 0.5 ** 'a'",
                             "9223372036854775807 + 1",
                             "-9223372036854775807 - 2",
                             "9223372036854775807 * 2",
                             "2 ** 64",
                             "3 * 'a' * 'b'",
                             "'1' * 99999999999|int",
                             "[1]|map('nosuch')|list",
                             "[1]|select('nosuch')|list",
                             "dict(1)",
                             "[{'r': 'a'}]|sum(attribute='r')",
                             "'%c' % -1",
                             "'{:d}'.format('a')",
                             "'{:.3d}'.format(1)",
                             "(undef).x",
                             "undef[0]",
                             "undef()"}) {
    EXPECT_EQ(RenderText(std::string("{{ ") + source + " }}").substr(0, 7), "ERROR: ") << source;
  }
}

}  // namespace
}  // namespace quire::text::jinja
