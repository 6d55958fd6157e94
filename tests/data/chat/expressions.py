"""Small templates whose results by jinja2 are recorded in expressions.jsonl (record.py), and what they see."""

VARIABLES = {
    "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 1e22, "tiny": 1.5e-7, "yes": True, "no": False, "nil": None,
    "s": "Hello, World", "e": "", "u": "Grüße, Ωμέγα ΣΑΣ, 你好 👋🏽", "q": "it's \"quoted\"\n\ttab\\", "sp": "  pad \n ",
    "w": "the quick  brown fox\tjumps", "lines": "a\nb\r\nc\n\nd", "html": "<b>&'\"</b>",
    "l": [3, 1, 2], "mixed": [1, "a", None, True, 2.0, [1], {"k": 1}], "words": ["pear", "Apple", "fig", "apple"],
    "empty": [], "d": {"b": 2, "a": 1, "C": 3}, "ed": {},
    "people": [{"name": "Ann", "age": 30, "city": "Rome"}, {"name": "bob", "age": 25, "city": "oslo"},
               {"name": "Cy", "age": 30, "city": "Oslo"}, {"name": "di", "city": "Rome"}],
    "tool": {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "x": {"type": "number", "description": "ein Größe"}, "items": {"type": ["string", "null"]}}, "required": ["x"]}}},
    "nested": {"a": {"b": {"c": [10, 20, {"d": "deep"}]}}},
}

# Expressions, one a line; each is printed.
EXPRESSIONS = r'''
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 // -2, -7 % 3, 7 % -3, 7.5 % 2, -7.5 // 2
2 ** 10, 2 ** -1, 2 ** 0.5, (-2) ** 3, -2 ** 2
1 / 3, 10 / 5, 1e3, 1.0, 100000000000000000000.0, 1e16, 1e15, 123456789.123456789
0.1 + 0.2, 1e-5, 0.0001, 1.5e300 * 1e10, -0.0
big, tiny, f, n, neg
9223372036854775807, -9223372036854775807
0x1f, 0b101, 0o17, 1_000, 1_0.5
n == 7, n != 7, n < 8, n <= 7, n > 7, n >= 8
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, "a" < "b", "a" < "B", "é" > "z"
[1, 2] < [1, 3], [1] < [1, 0], (1, 2) == (1, 2), [1] == (1,), {"a": 1} == {"a": 1.0}
1 < "a"
none < 1
n and z, n or z, not n, not z, z or e or "x", n and e
yes and no or yes
s ~ n ~ f ~ nil ~ yes ~ l ~ missing
"a" "b" 'c'
"a" + "b", "ab" * 3, 2 * "x", [1] + [2], (1,) + (2,), [0] * 3, "x" * -1
"a" + 1
1 + none
n if yes else z
n if no
(n if no) is defined
"x" in "xyz", "q" in "xyz", 1 in l, 9 in l, "a" in d, "z" in d, "z" not in d, 1 not in l
1 in "abc"
1 in 5
[] in d
(1, 2, 3), (1,), (), [1, [2, (3,)]], {"a": [none, true]}
[1, 2, 3][0], [1, 2, 3][-1], [1, 2, 3][5] is defined, [1, 2][5]
s[0], s[-1], s[100] is defined, s[1:4], s[::-1], s[-5:], s[:5], s[::2], s[5:1:-1], s[10:2]
u[0], u[2], u[-1], u[::-1], u[7:12], u|length
l[1:], l[::-1], l[:-1], l[5:], l[::2], (1, 2, 3)[1:]
l[::0]
d.a, d["a"], d.zzz is defined, d["zzz"], nested.a.b.c[2].d, nested["a"]["b"].c[1]
missing, missing is defined, missing|default("x"), missing.a is defined
missing.a
missing["a"]
missing()
missing + 1
missing < 1
-missing
missing == missing, missing == none, missing != 1
nil.x, nil["x"], nil.x is defined
nil.x.y
d.a.b, d.a.b is defined
s.nope, l.nope is defined, s["nope"] is defined
"".__class__, "".__class__ is defined, l.__len__ is defined, d.__class__ is defined
"".__class__.__mro__
d._x is defined
d.items(), d.keys(), d.values()
d.items()|list, d.keys()|list, d.values()|sum, d.items()|length
d.get("a"), d.get("zz"), d.get("zz", 5)
d.copy(), l.copy(), l.index(1), l.count(3), (1, 1).count(1)
l.index(99)
l.append(4)
l.append is defined
d.update({"x": 1})
d.pop("a")
l.sort()
tool.function.parameters.properties.items is defined, tool.function.parameters["properties"]["items"]
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.swapcase()
"ΑΣ".lower(), "ΑΣ Σ".lower(), "ΑΣΑ".lower(), "ß".upper(), "ǆ".title(), "ŉ".upper(), "İ".lower(), "straße".capitalize()
sp.strip(), sp.lstrip(), sp.rstrip(), "xxaxx".strip("x"), "abcba".lstrip("ab"), "abcba".rstrip("ab"), "a".strip("")
"a,b,,c".split(","), "a,b,,c".split(",", 1), " a  b ".split(), " a  b c ".split(none, 1), w.split(), "".split(), "".split(",")
"a,b,,c".rsplit(",", 1), "a b c".rsplit(none, 1), "a b c".rsplit(maxsplit=1), "abc".rsplit("x")
"a".split("")
"a-b-c".partition("-"), "abc".partition("-"), "a-b-c".rpartition("-"), "abc".rpartition("-")
lines.splitlines(), lines.splitlines(true), "".splitlines(), "a\n".splitlines()
s.startswith("Hello"), s.startswith(("x", "He")), s.endswith("ld"), s.endswith(()), s.startswith("ello", 1), s.startswith("")
s.find("o"), s.find("o", 5), s.rfind("o"), s.find("zz"), u.find("你"), s.count("l"), s.count(""), s.index("W"), s.find("l", -3)
s.index("zz")
s.replace("l", "L"), s.replace("l", "L", 2), s.replace("", "-"), "".replace("", "x"), s.replace("o", ""), "aaa".replace("aa", "b")
",".join(["a", "b"]), "-".join("abc"), "".join([])
",".join([1])
"abc".removeprefix("a"), "abc".removesuffix("c"), "abc".removeprefix("x"), "abc".removesuffix("")
"12".isdigit(), "1a".isdigit(), "²".isdigit(), "²".isdecimal(), "½".isnumeric(), "".isdigit(), "é".isalpha(), "a1".isalnum(), " \t".isspace()
"AB".isupper(), "Ab".isupper(), "ab".islower(), "12".isupper(), "Ab Cd".istitle(), "AB".istitle(), "é".isascii(), "\x07".isprintable()
"ab".center(7, "*"), "ab".center(6), "abc".center(6), "ab".ljust(5) ~ "|", "ab".rjust(5), "7".zfill(3), "-7".zfill(4), "ab".zfill(1)
"a\tb".expandtabs(4), "a\tbc\td".expandtabs()
"{} {}".format(1, "x"), "{0} {1} {0}".format("a", "b"), "{a}".format(a=5), "{:>5}|{:<5}|{:^5}".format("a", "b", "c"), "{{}}".format()
"{:05d} {:x} {:#x} {:b} {:o} {:+d} {:,}".format(42, 255, 255, 5, 8, 3, 1234567)
"{:.2f} {:8.3f} {:e} {:g} {:.1%} {:g}".format(3.14159, 2.5, 12345.678, 0.0001, 0.256, 1e20)
"{!r} {!s}".format("a", "b"), "{a.x} {b[k]} {c[0]}".format(a={"x": 1}, b={"k": 2}, c=[3]), "{:*^9}".format("mid")
"{}".format()
"{x}".format(1)
"{0.__class__}".format(1)
"{".format(1)
"%s is %d, %5.2f|%-5s|%05d|%x|%r|%%" % ("a", 3, 2.5, "b", 42, 255, "q")
"%s" % "only", "%s" % [1], "%(a)s-%(b)d" % {"a": 1, "b": 2}, "%d" % 3.99, "%c%c" % ("x", 65), "%e %g" % (1234.5, 1e-7), "%+d % d" % (1, 2), "%.3s|" % "abcdef", "%i" % true
"%d" % "a"
"%s %s" % ("a",)
"%s" % ("a", "b")
s|upper, s|lower, "hello world-foo (bar"|title, "HELLO"|capitalize, sp|trim, "xxhixx"|trim("x"), 5|string, n|string|length
u|title, "ǆ"|title, "ÉCOLE école"|title, "a1b c_d"|title
s|length, l|length, d|length, u|length, e|count, missing|length
n|length
l|first, l|last, s|first, s|last, empty|first is defined, d|first, d|last, "é"|last
l|sort, l|sort(reverse=true), words|sort, words|sort(case_sensitive=true), d|sort, s|sort|join
mixed|sort
people|sort(attribute="city")|map(attribute="name")|join(","), people|sort(attribute="city,name")|map(attribute="name")|join(",")
people|sort(attribute="age")
l|reverse|list, s|reverse, u|reverse, d|reverse|list
l|sum, [1.5, 2]|sum, people[:3]|sum(attribute="age"), empty|sum, [[1], [2]]|sum(start=[]), l|sum(start=10)
["a"]|sum
l|min, l|max, words|min, words|max, empty|min is defined, people[:3]|max(attribute="age"), words|max(case_sensitive=true)
words|unique|list, words|unique(case_sensitive=true)|list, people|unique(attribute="city")|map(attribute="name")|list, [1, 1.0, true, "1"]|unique|list
words|join, words|join(", "), l|join("-"), people|join(",", attribute="name"), s|join("."), mixed|join("|"), d|join
words|map("upper")|list, words|map("length")|list, people|map(attribute="age", default=0)|list, people|map(attribute="name")|map("lower")|join(" ")
words|map("replace", "p", "P")|list, nested.a.b.c|map("string")|list, people|map(attribute="age")|list
words|map("nosuchfilter")|list
l|select("odd")|list, l|reject("odd")|list, mixed|select|list, mixed|reject|list, l|select("gt", 1)|list, l|select("in", [1, 2])|list, words|select("equalto", "fig")|list
people|selectattr("age")|map(attribute="name")|list, people|selectattr("age", "eq", 30)|map(attribute="name")|list, people|rejectattr("age", "defined")|map(attribute="name")|list
people|selectattr("city", "in", ["Rome"])|list|length, people|rejectattr("city", "equalto", "Rome")|map(attribute="name")|join
people|selectattr("name", "nosuchtest")|list
l|batch(2)|list, l|batch(2, "x")|list, l|slice(2)|list, [1, 2, 3, 4, 5]|slice(3, "x")|list, empty|batch(2)|list
people|groupby("city")|map(attribute="grouper")|list, people|groupby("city", case_sensitive=true)|map("first")|list, people|groupby("age", default=0)|map(attribute="list")|map("length")|list
people|groupby("city")
d|dictsort, d|dictsort(true), d|dictsort(false, "value"), d|dictsort(reverse=true), ed|dictsort
d|items|list, missing|items|list, d|list, s|list|length, "ab"|list
n|items|list
d|tojson, l|tojson, s|tojson, nil|tojson, yes|tojson, f|tojson, u|tojson, q|tojson, empty|tojson, ed|tojson
u|tojson(ensure_ascii=true), d|tojson(indent=2), nested|tojson(indent=4), empty|tojson(indent=2), d|tojson(separators=(",", ":")), d|tojson(sort_keys=true)
d|tojson(indent=2, separators=(",", ": ")), l|tojson(indent=0), l|tojson(indent="--"), html|tojson, "\x7f\x1f\u2028"|tojson, tool|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson, (1, 2)|tojson, 1e400|tojson, big|tojson
missing|tojson
{(1, 2): 3}|tojson
l|map("string")|tojson
n|float, "3.7"|float, "x"|float, "x"|float(1.5), nil|float, "1e3"|float, " 2 "|float, "1_0"|float, yes|float
"42"|int, "3.9"|int, "x"|int, "x"|int(-1), 3.9|int, -3.9|int, nil|int, yes|int, "0x1f"|int(0, 16), "ff"|int(base=16), "101"|int(0, 2), " 7 "|int, "1_000"|int, "-0b11"|int(0, 2), "inf"|int, "012"|int
missing|int
missing|float
2.5|round, 3.5|round, 2.675|round(2), 1234.5|round(-2), 42|round, 42.55|round(1, "floor"), 42.51|round(0, "ceil"), -2.5|round, 1e10|round(3), 0.5|round|int, 15|round(-1), 25|round(-1)
2.5|round(method="down")
neg|abs, f|abs, -0.5|abs, (-3)|abs
s|replace("l", "L"), s|replace("l", "L", 1), n|replace("7", "x"), "aaa"|replace("a", "b", 0)
lines|indent, lines|indent(2, true), lines|indent(2, blank=true), lines|indent("> "), "a"|indent
"foo bar baz qux"|truncate(9), "foo bar baz qux"|truncate(9, true), "foo bar baz qux"|truncate(11), "foo bar baz qux"|truncate(11, false, "...", 0), "short"|truncate(5), u|truncate(8, true, "…", 0)
"foo"|truncate(2)
w|wordcount, u|wordcount, "a_b c-d"|wordcount, ""|wordcount
"%s-%s"|format(1, 2), "%(a)s"|format(a=5), "%03d"|format(7)
html|escape, html|e, html|safe, html|escape|escape, html|forceescape, (html|safe) ~ "<", (html|safe) + "<", [html|safe], n|escape, html|escape is escaped, html is escaped
missing|default(1), missing|d, e|default("x"), e|default("x", true), nil|default("x"), nil|default("x", boolean=true), z|default(5, true)
123456789|filesizeformat, 1|filesizeformat, 0|filesizeformat, 1000|filesizeformat, 1500|filesizeformat(true), 1e25|filesizeformat, "2048"|filesizeformat(binary=true)
"a b/c?d=é&f"|urlencode, 5|urlencode
d|attr("a") is defined, d|attr("items") is defined, s|attr("upper") is defined, s|attr("nope")
"ab"|center(6) ~ "|", n|center(5)
l|nosuchfilter
s|upper|lower|title|replace("o", "0")|length
-5|abs, -n|abs, +n, -f, --n
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), 4 is even
n is number, f is number, yes is number, s is number, n is integer, yes is integer, f is float, n is float, yes is boolean, n is boolean
s is string, n is string, d is mapping, l is mapping, l is sequence, s is sequence, d is sequence, n is sequence, (1, 2) is sequence
l is iterable, s is iterable, n is iterable, d is iterable, missing is iterable, missing is sequence, d.items() is iterable, d.items() is sequence, l|map("string") is sequence
nil is none, missing is none, z is none, yes is true, 1 is true, no is false, 0 is false
missing is undefined, n is undefined, missing is not defined, n is not none
n is eq 7, n is equalto(7), n is ne 7, n is lt 8, n is le 7, n is gt 7, n is ge 7, n is lessthan 3, n is greaterthan 3, n is == 7
n is in [7, 8], n is not in [1], "a" is in d, s is in ["x"]
"ab" is lower, "AB" is upper, "Ab" is lower, 5 is lower
n is sameas n, nil is sameas none, yes is sameas true, 1 is sameas true, l is sameas l, "a" is sameas "b"
s.upper is callable, n is callable, range is callable, missing is callable
"upper" is filter, "nope" is filter, "odd" is test, "nope" is test
n is nosuchtest
n is odd and n is number or no
not n is odd, not (n is odd)
s is odd
range(5)|list, range(2, 5)|list, range(5, 0, -2)|list, range(0), range(3), range(0, 10, 3), range(5)[2], range(3)|length, 2 in range(3), range(5)|sum
range(100001)|length
range(1, 2, 0)
dict(a=1, b=2), dict({"x": 1}), dict([["a", 1]]), dict(d, a=5)
namespace(a=1).a, namespace({"q": 2}).q, namespace(a=1), namespace().x is defined
namespace(_a=1)
cycler("a", "b").next(), cycler("a", "b").current
s.upper().lower().split(", ")[1]
"a" if n > 5 else "b" if n > 3 else "c"
[n, s][1].upper()[0]
{"a": n}["a"], {"a": {"b": 1}}.a.b, {n: 1}[7], {1: "x"}[1.0], {true: "y"}[1]
q, [q], {"k": q}, u, [u], ["\x00\x1f\x7f\u00a0\u200b\u2028\U0001F600\ue000"], ["'"], ['"'], ["'\""], "\101\x41\u0041\U00000041\q\
end"
html, [html]
"a" is defined and "b"
n is not defined or "x"
1.5 is divisibleby 0.5
none, true, false, None, True, False
[none, true, 1.0, "x"]|string
"abc"[1], "abc"[true], "abc"["x"] is defined, l["0"] is defined
l.0, l.2, nested.a.b.c.1, people.0.name
foo.bar.baz is defined
loop is defined
1 == 1 == 1, 1 < 2 == 2, 3 in [3] == true
(n, s), (n), ((n,),)
l[0] + l[1] * l[2] ** 2 // 2 % 3
1 / 0
1 // 0
1 % 0
1.0 / 0
0.0 ** -1
raise_exception("stop: " ~ n)
mixed
strftime_now("%d %b %Y") is string
"x" * 3 ~ "y"
words|select("string")|first|upper
d|length > 2 and "many" or "few"
people|map(attribute="name")|first, (people|map(attribute="name"))[0] is defined
l|map("string")|length
{"a": 1, "a": 2}
{"a"}
[1,,2]
(1 2)
1 +
| upper
s..x
s.upper(
f(a=1, 2)
"abc
@
s is odd is even
'''

# Whole templates.
STATEMENTS = [
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}",
    "{% if missing %}a{% elif z %}b{% elif e %}c{% else %}d{% endif %}",
    "{% if n %}\n  a\n{% endif %}\nb\n",
    "  {% if n %}\nx\n  {% endif %}\n  y",
    "a  {%- if n -%}  b  {%- endif -%}  c",
    "a\n  {%+ if n %}b{% endif +%}\nc",
    "a {{- n -}} b {{ n }}\n\n",
    "line\n    {# comment #}\nnext {# c1 -#}   tail",
    "{#- x -#} y {#\n multi \n#}\nz",
    "{% raw %}{{ n }} {% if %}{% endraw %}\nafter",
    "x  {%- raw -%}  {{ a }}  {%- endraw -%}  y",
    "{% raw %}\n  a\n{% endraw %}\nb",
    "{{ '{{' }} {{ '%}' }} {{ \"}}\" }} { { % }",
    "{{ {'a': {'b': 1}}['a'] }}{{ {'a': {}} }}",
    "a\r\nb\rc\n",
    "trailing\n\n",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}\n{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.depth }} {{ loop.depth0 }}\n{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in empty %}x{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{% for x in n %}x{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}no{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a ~ b ~ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 3 %}{% break %}{% endif %}!{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}|{% endfor %}",
    "{% break %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in l %}{% set x = i %}{% endfor %}{{ x is defined }}",
    "{% for i in l %}{% if loop.first %}{% set q = 1 %}{% endif %}{{ q }} {% endfor %}",
    "{% set ns = namespace(t=0, found=false) %}{% for i in l %}{% set ns.t = ns.t + i %}{% set ns.found = true %}{% endfor %}{{ ns.t }} {{ ns.found }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set d2 = {} %}{% set d2.x = 1 %}",
    "{% set nope.x = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "{% set x %}hello {{ n }}{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} hello {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 5 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='z') }} {{ m(b=1, a=2) }} {{ m() }}",
    "{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', 'y') }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}{{ m() }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}",
    "{% macro m(l) %}{% for x in l %}[{{ caller(x, loop.index) }}]{% endfor %}{% endmacro %}{% call(x, i) m(l) %}{{ i }}:{{ x }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% macro tree(x) %}{% if x is mapping %}{ {%- for k, v in x.items() %}{{ k }}:{{ tree(v) }}{% if not loop.last %},{% endif %}{% endfor %} }{% elif x is iterable and x is not string %}[{% for v in x %}{{ tree(v) }};{% endfor %}]{% else %}{{ x }}{% endif %}{% endmacro %}{{ tree(nested) }}",
    "{% macro inf(x) %}{{ inf(x) }}{% endmacro %}{{ inf(1) }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(3) }}{{ y is defined }}{{ m.name }}",
    "{% filter upper %}hello {{ s }}{% endfilter %}",
    "{% filter replace('l', 'L')|trim %}  hello {{ s }} {% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% generation %}gen {{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
    "{% for m in people %}{%- if m.age is defined -%}{{ m['name'] ~ ':' ~ m.age }}{%- else -%}{{ m.name }}{%- endif -%}{{ ' ' if not loop.last }}{% endfor %}",
    "{%- for k, v in tool.function.parameters.properties|items %}{{ k }}: {{ v.type }}{{ v.description if v.description }}\n{% endfor -%}",
    "{% set messages2 = people[1:] %}{{ messages2|length }}{{ messages2[0].name }}",
    "{% set loop_messages = people %}{% if people[0]['name'] == 'Ann' %}{% set loop_messages = people[1:] %}{% endif %}{{ loop_messages|length }}",
    "{% if l is defined and l|length > 0 and l[0] == 3 %}ok{% endif %}",
    "{% if not (s.startswith('H') and s.endswith('d')) %}no{% else %}yes{% endif %}",
    "{% if 'x' in s or s is string and not nil %}t{% endif %}",
    "{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{{ s.split(',')[0] }}{{ '</think>' in s }}{{ (s.split('o')|last).lstrip('\\n') }}",
    "{{ raise_exception('Conversation roles must alternate') }}",
    "{% if yes %}{{ raise_exception('bad ' + s) }}{% endif %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% from 'x' import y %}",
    "{% nosuch %}", "{% if %}{% endif %}", "{% if n %}", "{% endif %}", "{% for x in %}{% endfor %}", "{% for 1 in l %}{% endfor %}",
    "{% set 1 = 2 %}", "{% set x %}", "{{ n", "{% if n", "{# open", "{{ }}", "{{ n }} }}", "{% raw %}x", "{{ 'a }}", "{% macro %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(**d) is defined }}", "{{ dict(**d) }}{{ '%s-%s'.format(*l) }}{{ '{}-{}'.format(*l) }}",
    "{{ dict(a=1, **{'a': 2}) }}", "{{ range(*[1, 4])|list }}", "{% call n() %}{% endcall %}",
    "{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l|join(',') }}",
    "{% set ns = namespace(s='') %}{% for i in range(40) %}{% set ns.s = ns.s + 'ab' %}{% set keep = ns.s %}{% endfor %}{{ ns.s }}|{{ ns.s|length }}",
    "{% set a = 'x' * 40 %}{% set b = a + 'b' %}{% set c = a + 'c' %}{% set e2 = b + 'e' %}{% set f2 = b + 'f' %}{{ b }}{{ c }}{{ e2 }}{{ f2 }}",
    "{{ missing.attr if missing is defined else 'none' }}",
    "{% if missing.attr %}x{% endif %}",
    "{% for x in l %}{{ x }}{{ ',' if not loop.last else '.' }}{% endfor %}",
    "{{ loop }}{% for x in l %}{{ loop }}{% endfor %}",
    "{%if n%}a{%else%}b{%endif%}{{n}}{{-n-}}",
    "{% if n -%}\n\n  a\n\n{%- endif %}\n\nb",
    "{%- set x = 5 -%}\n  {{- x -}}  \n end",
    "{% set x = {'role': 'user', 'content': s} %}{{ x.role }}{{ x['content'] }}{{ [x] + people[:1] }}",
    "{% for p in people|sort(attribute='name') %}{{ p.name }}{% endfor %}",
    "{{ '%s' % missing }}{{ missing ~ 'x' }}{{ [missing] }}{{ missing|string|length }}{{ missing|upper }}{{ missing|join }}{{ missing|list }}",
    "{{ '\\n'.join(['a', 'b']) }}{{ 'a\\tb' }}{{ '\\\\' }}",
    "{% set x = none %}{{ x }}{% set x = true %}{{ x }}{{ not x }}",
    "{{ n }}{% set n = 9 %}{{ n }}{% for i in [1] %}{{ n }}{% set n = 3 %}{{ n }}{% endfor %}{{ n }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}",
    "{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for a in l %}{% set outer_loop = loop %}{% for b in l %}{{ outer_loop.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{{ caller }}{{ varargs is defined }}",
]


def templates():
    expressions = EXPRESSIONS.strip("\n").split("\n")
    joined = []
    for line in expressions:  # a line that ends with a backslash goes on
        if joined and joined[-1].endswith("\\"):
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    return ["{{ " + line + " }}" for line in joined] + STATEMENTS
